"""Which aggregate is asked for.

FILTER (WHERE c) and COUNT_IF(c) are the aggregate of CASE WHEN c THEN ... END.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.aggregates.table import ways_to_ask
from dpsql.errors import ProgrammingError, Unsupported
from dpsql.expressions.casts import cast_to
from dpsql.expressions.constants import as_beside
from dpsql.expressions.elsewhere import INSTEAD, written_instead
from dpsql.expressions.parser_tree import copied
from dpsql.expressions.refusals import IN_AGGREGATE, spoken
from dpsql.expressions.tree import Call
from dpsql.relation import per_unit
from dpsql.relation.per_unit import check_per_unit, result_type
from dpsql.relation.relation import AggregateCall
from dpsql.resolve.bounds import take_bounds, with_bounds
from dpsql.resolve.names import argument_counts, function_name
from dpsql.resolve.quantiles import is_quantile, read_quantiles
from dpsql.resolve.syntax import extra_clauses, has_aggregate, is_star
from dpsql.schema.types import Boolean, Integer

if TYPE_CHECKING:
    from dpsql.expressions.lower import Lowering
    from dpsql.expressions.tree import Expression
    from dpsql.schema.types import ColumnType
    from dpsql.source import Place

OF_NUMBERS = ("SUM", "AVG")
"""Aggregates that take conditions too."""
ARGUMENTS = ("this", "expression", "offset", "default")
HINT = f"the aggregates are {', '.join(ways_to_ask())}"


@dataclass(frozen=True)
class Spelled:
    """A function over many rows as it is written: which one, and of what."""

    name: str
    arguments: tuple[exp.Expr, ...]
    distinct: bool = False
    wide: bool = False


def aggregate_call(node: exp.Expr, lowering: Lowering) -> AggregateCall:
    calls = aggregate_calls(node, lowering)
    if isinstance(calls, AggregateCall):
        return calls
    raise Unsupported("a list of quantiles cannot be asked there", at=lowering.place(node), hint="ask for one quantile")


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
            f"{_spoken(node, place)} cannot be asked in this form",
            at=place,
            hint="write MEDIAN(x) or QUANTILE_CONT(x, 0.9)",
        )
    for fraction in asked.fractions:
        if not 0 <= fraction <= 1:
            raise ProgrammingError(
                f"a quantile lies between 0 and 1, and {float(fraction):g} does not",
                at=place,
                hint="write QUANTILE_CONT(x, 0.9) for what 90 % are below",
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
        raise Unsupported(f"{name} over many people cannot be asked", at=place, hint=hint)
    possible = argument_counts(asked.name)
    if len(asked.arguments) not in possible:
        takes = "one column there" if possible[-1] == 1 else f"{' or '.join(map(str, possible))} arguments"
        raise Unsupported(f"{asked.name} takes {takes}", at=place, hint="ask about one column at a time")
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
        raise ProgrammingError("an aggregate cannot stand inside another", at=place, hint=IN_AGGREGATE[1])
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
    return spoken(node.this if isinstance(node, exp.Filter | exp.IgnoreNulls) else node, place)


def per_unit_type(call: AggregateCall) -> ColumnType:
    """The type of an aggregate within one unit, which not every one can be."""
    check_per_unit(call, per_unit.AGGREGATES)
    return result_type(call).type
