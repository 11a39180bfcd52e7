"""Window functions over rows of people: partitioned by the unit, with a frame, perhaps under a name.

SUM(x) OVER (PARTITION BY unit ORDER BY day ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)
ROW_NUMBER() OVER w ... WINDOW w AS (PARTITION BY unit ORDER BY day)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from sqlglot import exp

from dpsql.expressions.parser_tree import copied
from dpsql.expressions.tree import Column
from dpsql.relation.per_unit import WINDOWS, check_per_unit, result_type
from dpsql.relation.relation import Frame, WindowCall, WindowOrder
from dpsql.resolve.calls import aggregate_call
from dpsql.resolve.inner import inner_column
from dpsql.resolve.syntax import extra_clauses, outermost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from dpsql.errors import Unsupported
    from dpsql.expressions.lower import Lowering
    from dpsql.expressions.properties import Properties
    from dpsql.resolve.apply_where import Filtered
    from dpsql.resolve.rows import Rows

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
            return inner_column(Column(next(name for name, call in self.calls if call == window), properties.type))

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


def _window_call(node: exp.Window, lowering: Lowering, rows: Rows, refuse: Refuse) -> tuple[WindowCall, Properties]:
    """A window function, which must be partitioned by the unit."""
    if extra_clauses(node, {"this", "partition_by", "order", "over", "spec"}):
        raise refuse("this kind of window cannot be used", node, "write OVER (PARTITION BY unit ORDER BY ...)")
    call = aggregate_call(node.this, lowering)
    check_per_unit(call, WINDOWS)
    keys = [lowering.lower(part) for part in node.args.get("partition_by") or ()]
    if not any(map(rows.tells_unit, keys)):
        raise refuse(
            "a window over rows of people must be partitioned by the unit",
            node,
            "add the unit to PARTITION BY, or aggregate first: above an aggregate every window can be used",
        )
    order = node.args.get("order")
    ordered = tuple(_ordered(part, lowering) for part in order.expressions) if order is not None else ()
    others = tuple(key for key in keys if not rows.is_unit(key))
    spec = node.args.get("spec")
    return WindowCall(call, others, ordered, spec and _frame(spec, refuse)), result_type(call)


def _named_window(node: exp.Window, windows: Sequence[exp.Window], refuse: Refuse) -> exp.Window:
    """OVER w, with what WINDOW w AS (...) says of it."""
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
        raise refuse("this frame cannot be used over rows of people", spec.parent or spec, FRAME_HINT)
    if start == "UNBOUNDED FOLLOWING" or end == "UNBOUNDED PRECEDING" or _side(end) < _side(start):
        raise refuse("a frame ends after it starts", spec.parent or spec, FRAME_HINT)
    return Frame("ROWS" if kind == "ROWS" else "RANGE", start, end)


def _frame_end(spec: exp.Expr, key: str, refuse: Refuse) -> str:
    """CURRENT ROW, UNBOUNDED PRECEDING, 3 FOLLOWING ..., in words of our own."""
    value, side = spec.args.get(key), spec.args.get(f"{key}_side")
    if value == "CURRENT ROW":
        return "CURRENT ROW"
    if side in ("PRECEDING", "FOLLOWING"):
        if value == "UNBOUNDED":
            return f"UNBOUNDED {side}"
        if isinstance(value, exp.Literal) and value.is_int and int(value.this) < LARGEST_OFFSET:
            return f"{int(value.this)} {side}"
    raise refuse("the ends of a frame are constants", spec.parent or spec, FRAME_HINT)


def _side(end: str) -> int:
    """Before the row, at it, after it: in this order the ends of a frame must come."""
    return ("PRECEDING", "ROW", "FOLLOWING").index(end.rpartition(" ")[2])
