"""Aggregate calls and windows: from the parser's nodes to `AggregateCall`.

FILTER (WHERE c) and COUNT_IF(c) are the aggregate of CASE WHEN c THEN ... END.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from sqlglot import exp

from dpsql.aggregates.table import ways_to_ask
from dpsql.errors import ProgrammingError, Unsupported
from dpsql.expressions.casts import cast_to
from dpsql.expressions.constants import as_beside
from dpsql.expressions.format import format_name
from dpsql.expressions.parser_tree import copied
from dpsql.expressions.refusals import IN_AGGREGATE, INSTEAD, spoken_name, table_read, written_instead
from dpsql.expressions.tree import Call, Column
from dpsql.relation import facts
from dpsql.relation.facts import WINDOWS, check_per_unit, result_type
from dpsql.relation.relation import AggregateCall, Frame, WindowCall, WindowOrder
from dpsql.schema.types import Boolean, Integer
from dpsql.sql.rows import internal_column
from dpsql.sql.syntax import (
    argument_counts,
    extra_clauses,
    function_name,
    has_aggregate,
    is_quantile,
    is_star,
    outermost,
    read_quantiles,
    take_bounds,
    with_bounds,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from dpsql.errors import Place
    from dpsql.expressions.lower import Lowering
    from dpsql.expressions.properties import Properties
    from dpsql.expressions.tree import Expression
    from dpsql.schema.types import ColumnType
    from dpsql.sql.rows import PrivateRows
    from dpsql.sql.subqueries import Filtered

OF_NUMBERS = ("SUM", "AVG")
"""Aggregates that take conditions too."""
ARGUMENTS = ("this", "expression", "offset", "default")
HINT = f"the aggregates are {', '.join(ways_to_ask())}"


@dataclass(frozen=True)
class Spelled:
    """An aggregate as written in the query: its function and arguments."""

    name: str
    arguments: tuple[exp.Expr, ...]
    distinct: bool = False
    wide: bool = False


def aggregate_call(node: exp.Expr, lowering: Lowering) -> AggregateCall:
    calls = aggregate_calls(node, lowering)
    if isinstance(calls, AggregateCall):
        return calls
    raise Unsupported(
        "a list of quantiles is not supported there", at=lowering.place(node), hint="use one quantile at a time"
    )


def aggregate_calls(node: exp.Expr, lowering: Lowering) -> AggregateCall | list[AggregateCall]:
    """One aggregate, or those that a list is made of: QUANTILE_CONT(x, [0.1, 0.9])."""
    place = lowering.place(node)
    node, bounds = take_bounds(node, lowering.source)
    if not is_quantile(node.this if isinstance(node, exp.Filter) else node):
        return with_bounds(_plain_call(node, lowering, place), bounds, node, lowering)
    calls, listed = _quantile_calls(node, lowering, place)
    calls = [with_bounds(call, bounds, node, lowering) for call in calls]
    return calls if listed else calls[0]


def _quantile_calls(node: exp.Expr, lowering: Lowering, place: Place | None) -> tuple[list[AggregateCall], bool]:
    plain = node.this if isinstance(node, exp.Filter) else node
    asked = read_quantiles(plain)
    if asked is None or extra_clauses(plain, {"this", "expression", "quantile"}):
        raise Unsupported(
            f"{_spoken(node, place)} is not supported in this form",
            at=place,
            hint="write MEDIAN(x) or QUANTILE_CONT(x, 0.9)",
        )
    for fraction in asked.fractions:
        if not 0 <= fraction <= 1:
            raise ProgrammingError(
                f"a quantile must lie between 0 and 1, not {float(fraction):g}",
                at=place,
                hint="write QUANTILE_CONT(x, 0.9) for the value that 90 % lie below",
            )
    value = _where(node.expression.this, asked.value) if isinstance(node, exp.Filter) else asked.value
    argument = _argument(value, lowering, place)
    return [
        AggregateCall(name=asked.name, arguments=(argument,), at=place, fraction=part) for part in asked.fractions
    ], asked.listed


def _plain_call(node: exp.Expr, lowering: Lowering, place: Place | None) -> AggregateCall:
    asked = _spelled(node)
    if asked is None:
        name = _spoken(node, place)
        hint = f"write  {written_instead(name, node)}" if name in INSTEAD else HINT
        raise Unsupported(f"{name} over many people is not supported", at=place, hint=hint)
    possible = argument_counts(asked.name)
    if len(asked.arguments) not in possible:
        takes = "one column there" if possible[-1] == 1 else f"{' or '.join(map(str, possible))} arguments"
        raise Unsupported(f"{asked.name} takes {takes}", at=place, hint="query one column at a time")
    values = [_argument(part, lowering, place) for part in asked.arguments]
    if asked.name in OF_NUMBERS:
        values = [_counted(value) for value in values]
    arguments = (*values[:1], *(as_beside(part, values[:1]) for part in values[1:]))
    return AggregateCall(name=asked.name, arguments=arguments, distinct=asked.distinct, at=place, wide=asked.wide)


def _counted(value: Expression) -> Expression:
    """A condition as 1 where it holds and 0 where it does not: SUM(paid)."""
    return Call(cast_to(Integer()), (value,), Integer(), value.at) if isinstance(value.type, Boolean) else value


def _argument(node: exp.Expr, lowering: Lowering, place: Place | None) -> Expression:
    if has_aggregate(node):
        raise ProgrammingError("aggregates cannot be nested", at=place, hint=IN_AGGREGATE[1])
    return lowering.lower(node)


def _spelled(node: exp.Expr) -> Spelled | None:
    """The function under its usual name; None if it is unknown, or has a clause that is."""
    match node:
        case exp.Filter():
            inner = _spelled(node.this)
            return None if inner is None else _filtered(inner, node.expression.this)
        case exp.IgnoreNulls(this=exp.AnyValue()):
            return _spelled(node.this)
        case exp.ApproxDistinct() if not extra_clauses(node, {"this"}):
            return Spelled("COUNT", (node.this,), distinct=True)
        case exp.CountIf():
            return Spelled("COUNT", (_where(node.this, exp.Literal.number(1)),), wide=True)
    name = function_name(node)
    return None if name is None else _with_arguments(name, node)


def _with_arguments(name: str, node: exp.Expr) -> Spelled | None:
    anonymous = isinstance(node, exp.Anonymous)
    if extra_clauses(node, {"this", "expressions"} if anonymous else {*ARGUMENTS, "big_int"}):
        return None
    written = node.expressions if anonymous else [node.args[key] for key in ARGUMENTS if node.args.get(key) is not None]
    if is_star(node):
        return Spelled(name, ())
    if not written or not isinstance(written[0], exp.Distinct):
        return Spelled(name, tuple(written))
    distinct = written[0]
    return None if written[1:] or distinct.args.get("on") else Spelled(name, tuple(distinct.expressions), distinct=True)


def _filtered(asked: Spelled, condition: exp.Expr) -> Spelled | None:
    """The aggregate over rows that satisfy the condition: of the others its (first) argument is NULL."""
    if not asked.arguments and 1 not in argument_counts(asked.name):
        return None
    first, *more = asked.arguments or (exp.Literal.number(1),)
    return replace(asked, arguments=(_where(condition, first), *more))


def _where(condition: exp.Expr, value: exp.Expr) -> exp.Expr:
    return exp.Case(ifs=[exp.If(this=copied(condition), true=copied(value))])


def _spoken(node: exp.Expr, place: Place | None) -> str:
    return spoken_name(node.this if isinstance(node, exp.Filter | exp.IgnoreNulls) else node, place)


def per_unit_type(call: AggregateCall) -> ColumnType:
    """The type of an aggregate within one unit, which not every one can be."""
    check_per_unit(call, facts.AGGREGATES)
    return result_type(call).type


# -- windows -----------------------------------------------------------------------------------------------------------
# Window functions over rows of people: partitioned by the unit, with a frame, perhaps under a name.
#
# SUM(x) OVER (PARTITION BY unit ORDER BY day ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)
# ROW_NUMBER() OVER w ... WINDOW w AS (PARTITION BY unit ORDER BY day)

if TYPE_CHECKING:
    Refuse = Callable[[str, exp.Expr, str], Unsupported]

LARGEST_OFFSET = 2**31
FRAME_HINT = "write ROWS BETWEEN 2 PRECEDING AND CURRENT ROW, or RANGE with UNBOUNDED and CURRENT ROW"


@dataclass(frozen=True)
class Windows:
    """The windows of a SELECT, each under the name of a column that holds it."""

    below: Filtered
    definitions: Sequence[exp.Window]
    """What the WINDOW clause says."""
    calls: tuple[tuple[str, WindowCall], ...] = ()

    def replaced(self, node: exp.Expr) -> exp.Expr:
        """The node with these columns instead of its windows."""
        if not self.calls:
            return node

        def replaced(part: exp.Expr) -> exp.Expr:
            if not isinstance(part, exp.Window) or part.parent_select is not None:
                return part
            window, properties = self.call(part)
            return internal_column(Column(next(name for name, call in self.calls if call == window), properties.type))

        return copied(node).transform(replaced, copy=False)

    def call(self, node: exp.Window) -> tuple[WindowCall, Properties]:
        refuse = self.below.scope.resolver.refuse
        return _window_call(
            _named_window(node, self.definitions, refuse), self.below.scope.lowering, self.below.rows, refuse
        )


def read_windows(nodes: Iterable[exp.Expr], definitions: Sequence[exp.Window], below: Filtered) -> Windows:
    windows = Windows(below, definitions)
    calls = dict.fromkeys(windows.call(window)[0] for node in nodes for window in _windows_in(node))
    return replace(windows, calls=tuple((f"_w{number}", call) for number, call in enumerate(calls)))


def _windows_in(node: exp.Expr) -> Iterator[exp.Window]:
    return cast("Iterator[exp.Window]", outermost(node, lambda part: isinstance(part, exp.Window)))


def _window_call(
    node: exp.Window, lowering: Lowering, rows: PrivateRows, refuse: Refuse
) -> tuple[WindowCall, Properties]:
    """A window function, which must be partitioned by the unit."""
    if extra_clauses(node, {"this", "partition_by", "order", "over", "spec"}):
        raise refuse("this kind of window is not supported", node, "write OVER (PARTITION BY unit ORDER BY ...)")
    call = aggregate_call(node.this, lowering)
    check_per_unit(call, WINDOWS)
    keys = [lowering.lower(part) for part in node.args.get("partition_by") or ()]
    if not rows.tell_unit(keys):
        raise refuse("a window over rows of people must be partitioned by the unit", node, _instead_of(node))
    order = node.args.get("order")
    ordered = tuple(_ordered(part, lowering) for part in order.expressions) if order is not None else ()
    others = tuple(key for key in keys if not rows.is_unit(key))
    spec = node.args.get("spec")
    return WindowCall(call, others, ordered, spec and _frame(spec, refuse)), result_type(call)


def _instead_of(node: exp.Window) -> str:
    """One person's row moves the ranks of all others, but hardly a quantile or an average, which is a noisy answer."""
    order = node.args.get("order")
    value = order.expressions[0].this if order is not None else node.this.this
    if not isinstance(value, exp.Column):
        return "add the unit to PARTITION BY, or aggregate first: above an aggregate every window is supported"
    name, table = format_name(value.name), table_read(node) or "..."
    if order is None:
        return (
            f"add the unit to PARTITION BY, or ask first: (SELECT {spoken_name(node.this, None)}({name}) FROM {table})"
        )
    return (
        f"add the unit to PARTITION BY; or, for ranks among people, compare with a quantile: {name} >= "
        f"(SELECT QUANTILE_CONT({name}, 0.9) FROM {table})"
    )


def _named_window(node: exp.Window, windows: Sequence[exp.Window], refuse: Refuse) -> exp.Window:
    """OVER w, with the definition from WINDOW w AS (...)."""
    name = node.args.get("alias")
    if name is None:
        return node
    for window in windows:
        if window.this.name.lower() == name.name.lower():
            base = _named_window(window, [other for other in windows if other is not window], refuse)
            whole = copied(node)
            whole.set("alias", None)
            for key in ("partition_by", "order", "spec"):
                whole.set(key, whole.args.get(key) or copied(base).args.get(key))
            return whole
    raise refuse(f'there is no window "{name.name}"', node, f"add WINDOW {name.name} AS (PARTITION BY ...)")


def _ordered(node: exp.Expr, lowering: Lowering) -> WindowOrder:
    lowering.only(node, ("this", "desc", "nulls_first"))
    return WindowOrder(lowering.lower(node.this), bool(node.args.get("desc")), bool(node.args.get("nulls_first")))


def _frame(spec: exp.Expr, refuse: Refuse) -> Frame:
    kind = spec.args.get("kind")
    start = _frame_end(spec, "start", refuse)
    end = _frame_end(spec, "end", refuse) if spec.args.get("end") else "CURRENT ROW"
    steps = any(part[0].isdigit() for part in (start, end))
    if kind not in ("ROWS", "RANGE") or spec.args.get("exclude") or (kind == "RANGE" and steps):
        raise refuse("this frame is not supported over rows of people", spec.parent or spec, FRAME_HINT)
    if start == "UNBOUNDED FOLLOWING" or end == "UNBOUNDED PRECEDING" or _side(end) < _side(start):
        raise refuse("a frame ends after it starts", spec.parent or spec, FRAME_HINT)
    return Frame("ROWS" if kind == "ROWS" else "RANGE", start, end)


def _frame_end(spec: exp.Expr, key: str, refuse: Refuse) -> str:
    """CURRENT ROW, UNBOUNDED PRECEDING, 3 FOLLOWING and so on, as a value."""
    value, side = spec.args.get(key), spec.args.get(f"{key}_side")
    if value == "CURRENT ROW":
        return "CURRENT ROW"
    if side in ("PRECEDING", "FOLLOWING"):
        if value == "UNBOUNDED":
            return f"UNBOUNDED {side}"
        if isinstance(value, exp.Literal) and value.is_int and int(value.this) < LARGEST_OFFSET:
            return f"{int(value.this)} {side}"
    raise refuse("the ends of a frame must be constants", spec.parent or spec, FRAME_HINT)


def _side(end: str) -> int:
    """Before the row, at it, after it: in this order the ends of a frame must come."""
    return ("PRECEDING", "ROW", "FOLLOWING").index(end.rpartition(" ")[2])
