"""Aggregates and windows over the rows of one unit, as a query of the engine.

What an aggregate is put together from is computed first, as columns of its own, and read above them: so no part of it
is written twice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import UNIT, fields, select
from dpsql.engine_sql.tree import Field, Fold, Named, Ordered, Over
from dpsql.expressions.emit import emit, emit_value
from dpsql.expressions.tree import Column, names_read
from dpsql.relation.knowledge import knowledge_of
from dpsql.relation.per_unit import BY_POSITION, per_unit_parts
from dpsql.relation.relation import Project

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeAlias

    from dpsql.engine_sql.tree import Query
    from dpsql.expressions.tree import Expression, Known
    from dpsql.relation.relation import AggregateCall, PerUnit, Relation, Window, WindowCall
    from dpsql.relation.unit_sums import Parts

    Write: TypeAlias = Callable[[Relation, Iterable[str]], Query]

WHOLE_PARTITION = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"


def per_unit_sql(relation: PerUnit, names: list[str], write: Write) -> Query:
    keys = [key for _, key in relation.keys]
    wanted = [(name, call) for name, call in relation.calls if name in names]
    source, calls = _with_arguments(relation.source, wanted, names_read(*keys, *_arguments(wanted)))
    known = knowledge_of(source).properties
    grouping = [(name, emit_value(key, known)) for name, key in relation.keys]
    parts = [(name, per_unit_parts(call, known)) for name, call in calls]
    # One row per unit is no claim about the keys, which then are functions of the unit, but how the rows are made.
    apart = [] if relation.by_unit_alone else [key for _, key in grouping]
    shown = [Named(key if apart else Fold("min", (key,)), name) for name, key in grouping if name in names]
    computed = [Named(fold, _part(name, i)) for name, each in parts for i, fold in enumerate(each.calls)]
    below = write(source, names_read(*keys, *_arguments(calls)))
    grouped = select([*fields([UNIT]), *shown, *computed], below, group_by=[Field(UNIT), *apart])
    passed = fields([UNIT, *(name for name, _ in grouping if name in names)])
    return select([*passed, *(_combined(name, each) for name, each in parts)], grouped)


def window_sql(relation: Window, names: list[str], write: Write) -> Query:
    windows = [(name, window) for name, window in relation.columns if name in names]
    passed = [name for name in names if name in knowledge_of(relation.source).properties]
    # Where positions count, every column that is read breaks ties: the order does not depend on who else is there.
    read = sorted({*passed, *names_read(*(part for _, window in windows for part in _window_parts(window)))})
    source, calls = _with_arguments(relation.source, [(name, window.call) for name, window in windows], set(read))
    known = knowledge_of(source).properties
    parts = [(name, per_unit_parts(call, known)) for name, call in calls]
    over = {name: _over(window, known, read) for name, window in windows}
    computed = [
        Named(replace(over[name], fold=fold), _part(name, i))
        for name, each in parts
        for i, fold in enumerate(each.calls)
    ]
    below = write(source, {*read, *names_read(*_arguments(calls))})
    framed = select([*fields([UNIT, *passed]), *computed], below)
    return select([*fields([UNIT, *passed]), *(_combined(name, each) for name, each in parts)], framed)


def _with_arguments(
    source: Relation, calls: list[tuple[str, AggregateCall]], used: set[str]
) -> tuple[Relation, list[tuple[str, AggregateCall]]]:
    """Sums read their argument several times, so it is computed once: as a column, beside those that are used."""
    computed = {
        name: call.arguments[0]
        for name, call in calls
        if call.name in ("SUM", "AVG") and not isinstance(call.arguments[0], Column)
    }
    if not computed:
        return source, calls
    known = knowledge_of(source).properties
    arguments = {name: Column(f"{name}.argument", value.type) for name, value in computed.items()}
    passed = [(name, Column(name, known[name].type)) for name in sorted(used)]
    project = Project(source, (*passed, *((arguments[name].name, value) for name, value in computed.items())))
    return project, [
        (name, replace(call, arguments=(arguments[name],)) if name in arguments else call) for name, call in calls
    ]


def _arguments(calls: list[tuple[str, AggregateCall]]) -> list[Expression]:
    return [argument for _, call in calls for argument in call.arguments]


def _combined(name: str, parts: Parts) -> Named:
    columns = [Field(_part(name, number), kind=fold.kind) for number, fold in enumerate(parts.calls)]
    return Named(parts.whole(columns), name)


def _part(name: str, number: int) -> str:
    return f"{name}.{number}"


def _window_parts(window: WindowCall) -> list[Expression]:
    return [*window.call.arguments, *window.keys, *(order.expression for order in window.order)]


def _over(window: WindowCall, known: Known, read: list[str]) -> Over:
    """The window of a fold that is still to be named."""
    order = [
        Ordered(emit(order.expression, known), descending=order.descending, nulls_first=order.nulls_first)
        for order in window.order
    ]
    if window.call.name in BY_POSITION or (window.frame is not None and window.frame.kind == "ROWS"):
        order += [Ordered(Field(name)) for name in read]
    # Without an order of the analyst's the frame is the whole partition; ours must not make it end at the row.
    frame = "" if window.order or not order else WHOLE_PARTITION
    if window.frame is not None:
        frame = f"{window.frame.kind} BETWEEN {window.frame.start} AND {window.frame.end}"
    partition = (Field(UNIT), *(emit(key, known) for key in window.keys))
    return Over(Fold("row_number"), partition, tuple(order), frame)
