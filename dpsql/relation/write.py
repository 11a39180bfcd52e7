"""A relation as engine SQL: one SELECT whose first column, _unit, says whose each row is; public ones have none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.expressions.emit import as_value, emit, emit_value
from dpsql.expressions.table import FUNCTIONS
from dpsql.expressions.tree import Call, Column, facts_of, names_read
from dpsql.expressions.write import NULL, Sql, binary, column, listed, named
from dpsql.expressions.write import call as function
from dpsql.relation.knowledge import knowledge_of, values_of
from dpsql.relation.per_unit import BY_POSITION, per_unit_parts
from dpsql.relation.relation import (
    Across,
    Distinct,
    Filter,
    Join,
    Listed,
    Mark,
    PerUnit,
    Project,
    Relation,
    Scan,
    SemiJoin,
    SetOp,
    Window,
    WindowCall,
    WindowOrder,
)
from dpsql.relation.size import check_length
from dpsql.relation.units import is_tracked
from dpsql.relation.write_scan import UNIT, scan_sql
from dpsql.schema.types import Boolean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dpsql.expressions.tree import Expression, Known
    from dpsql.relation.knowledge import Knowledge
    from dpsql.relation.relation import AggregateCall
    from dpsql.relation.unit_sums import Parts


WHOLE_PARTITION = " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"


def relation_sql(relation: Relation, needed: Iterable[str]) -> Sql:
    """The relation's `needed` columns, and _unit."""
    sql = _written(relation, sorted(set(needed)))
    check_length(sql)
    return sql


def _written(relation: Relation, names: list[str]) -> Sql:
    match relation:
        case Scan():
            return scan_sql(relation, names)
        case Listed(table):
            return Sql(f"SELECT {listed([column(name) for name in names]) or '1'} FROM {column(table)}")
        case Filter(source, condition):
            below = relation_sql(source, {*names, *names_read(condition)})
            condition_sql = emit(condition, knowledge_of(source).always)
            return Sql(f"{_select(relation, names, below)} WHERE {condition_sql}")
        case Project(source, columns):
            kept = [(name, expression) for name, expression in columns if name in names]
            values = values_of(relation)
            below = relation_sql(source, names_read(*(expression for _, expression in kept)))
            return select([*_unit(relation), *(named(as_value(values[n], e), n) for n, e in kept)], below)
        case Join():
            return _join(relation, names)
        case Across():
            return _across(relation, names)
        case SemiJoin():
            return _semi_join(relation, names)
        case Mark(test, name):
            below_known = knowledge_of(test.source)
            passed = [column for column in names if column != name]
            used = names_read(test.condition) & set(below_known.always)
            mark = [named(_mark(test, below_known), name)] if name in names else []
            return select([*_unit(relation), *map(column, passed), *mark], relation_sql(test.source, {*passed, *used}))
        case SetOp(kind, left, right):
            # Rows are compared as wholes, so every column takes part, whatever is needed above.
            everything = names if kind == "UNION ALL" else sorted(knowledge_of(left).always)
            sides = Sql(f"({relation_sql(left, everything)}) {kind} ({relation_sql(right, everything)})")
            return _select(relation, names, sides)
        case Distinct(source):
            rows = relation_sql(source, knowledge_of(source).always)
            return _select(relation, names, Sql(f"SELECT DISTINCT * FROM ({rows}) AS _below"))
        case PerUnit():
            return _per_unit(relation, names)
        case Window():
            return _window(relation, names)


def select(columns: list[Sql], below: Sql) -> Sql:
    return Sql(f"SELECT {listed(columns) or '1'} FROM ({below}) AS _below")


def _select(relation: Relation, names: list[str], below: Sql) -> Sql:
    return select([*_unit(relation), *map(column, names)], below)


def _unit(relation: Relation) -> list[Sql]:
    return [column(UNIT)] if is_tracked(relation) else []


# -- joins ------------------------------------------------------------------------------------------------------------


def _join(join: Join, names: list[str]) -> Sql:
    """Two sides of units meet within each unit only, whatever else the condition says."""
    left_known, right_known = knowledge_of(join.left).always, knowledge_of(join.right).always
    wanted = {*names, *names_read(join.condition)}
    left = relation_sql(join.left, wanted & set(left_known))
    right = relation_sql(join.right, wanted & set(right_known))
    both = is_tracked(join.left) and is_tracked(join.right)
    conditions = [binary(column(UNIT, "_lefts"), "=", column(UNIT, "_rights"))] if both else []
    if join.condition is not None:
        conditions.append(emit(join.condition, {**left_known, **right_known}))
    meets = " AND ".join(conditions) or "true"
    unit = [named(_joined_unit(join), UNIT)] if is_tracked(join) else []
    columns = listed([*unit, *map(column, names)]) or "1"
    return Sql(f"SELECT {columns} FROM ({left}) AS _lefts {join.kind} JOIN ({right}) AS _rights ON {meets}")


def _joined_unit(join: Join) -> Sql:
    left, right = column(UNIT, "_lefts"), column(UNIT, "_rights")
    if is_tracked(join.left) and is_tracked(join.right):
        return {"RIGHT": right, "FULL": Sql(f"coalesce({left}, {right})")}.get(join.kind, left)
    return left if is_tracked(join.left) else right


LEFTS, RIGHTS = Sql("_left_rows"), Sql("_right_rows")


def _across(across: Across, names: list[str]) -> Sql:
    """Over the rows of either side that count, which the release's SQL defines; a pair is nobody's alone."""
    columns = listed([named(NULL, UNIT), *map(column, names)])
    return Sql(f"SELECT {columns} FROM {LEFTS} JOIN {RIGHTS} ON {emit(across.condition, knowledge_of(across).always)}")


def _semi_join(semi: SemiJoin, names: list[str]) -> Sql:
    known = knowledge_of(semi.source)
    used = names_read(semi.condition)
    left = relation_sql(semi.source, {*names, *(used & set(known.always))})
    return Sql(f"{_select(semi, names, left)} WHERE {test_sql(semi, known)}")


def test_sql(semi: SemiJoin, known: Knowledge) -> Sql:
    """Whether a row is kept, over columns of which this is known: NOT IN keeps it only where nothing is open."""
    match = _exists(semi, semi.condition, known)
    return Sql(" AND ".join(f"NOT {part}" for part in (match, *_open(semi, known)))) if semi.negated else match


def _mark(semi: SemiJoin, known: Knowledge) -> Sql:
    match, still_open = _exists(semi, semi.condition, known), _open(semi, known)
    if not still_open:
        return match
    return Sql(f"CASE WHEN {match} THEN true WHEN {' OR '.join(still_open)} THEN NULL ELSE false END")


def _open(semi: SemiJoin, known: Knowledge) -> list[Sql]:
    """Tests that hold where NULLs leave open whether there is a match: some row differs in nothing that is known."""
    nullable = {**known.kept, **knowledge_of(semi.other).kept}
    missing = [
        [_truth("IS NULL", side) for side in part.arguments if facts_of(side, nullable).nullable]
        for part in semi.compared
        if isinstance(part, Call)
    ]
    tests = [test for part in missing for test in part]
    if tests and len(semi.compared) > 1:
        agrees = [_truth("OR", whole, *parts) for whole, parts in zip(semi.compared, missing, strict=True)]
        tests = [_truth("AND", _truth("OR", *tests), *agrees)]
    return [_exists(semi, test, known) for test in tests]


def _truth(name: str, *arguments: Expression) -> Expression:
    return Call(FUNCTIONS[name], arguments, Boolean())


def _exists(semi: SemiJoin, condition: Expression | None, known: Knowledge) -> Sql:
    """Whether there is a row of the other relation, of the same unit, for which the condition holds."""
    other_known = knowledge_of(semi.other).always
    used = names_read(condition)
    right = relation_sql(semi.other, used & set(other_known))
    conditions = [emit(condition, {**known.always, **other_known})] if condition is not None else []
    if is_tracked(semi.source) and is_tracked(semi.other):
        conditions.append(binary(column(UNIT, "_below"), "=", column(UNIT, "_others")))
    return Sql(f"EXISTS (SELECT 1 FROM ({right}) AS _others WHERE {' AND '.join(conditions) or 'true'})")


# -- within one unit --------------------------------------------------------------------------------------------------


def _per_unit(relation: PerUnit, names: list[str]) -> Sql:
    keys = [key for _, key in relation.keys]
    wanted = [(name, call) for name, call in relation.calls if name in names]
    source, calls = _with_arguments(relation.source, wanted, names_read(*keys, *_arguments(wanted)))
    known = knowledge_of(source).always
    grouping = [(name, emit_value(key, known)) for name, key in relation.keys]
    parts = [(name, per_unit_parts(call, known)) for name, call in calls]
    # One row per unit is no claim about the keys, which then are functions of the unit, but how the rows are made.
    apart = [] if relation.by_unit_alone else [sql for _, sql in grouping]
    shown = [named(sql if apart else function("min", sql), name) for name, sql in grouping if name in names]
    below = relation_sql(source, names_read(*keys, *_arguments(calls)))
    computed = [sql for name, each in parts for sql in _computed(name, each)]
    by = listed([column(UNIT), *apart])
    grouped = Sql(f"{select([column(UNIT), *shown, *computed], below)} GROUP BY {by}")
    passed = [column(name) for name, _ in grouping if name in names]
    return select([column(UNIT), *passed, *(_combined(name, each) for name, each in parts)], grouped)


def _window(relation: Window, names: list[str]) -> Sql:
    windows = [(name, window) for name, window in relation.columns if name in names]
    passed = [name for name in names if name in knowledge_of(relation.source).always]
    # Where positions count, every column that is read breaks ties: the order does not depend on who else is there.
    read = sorted({*passed, *names_read(*(part for _, window in windows for part in _window_parts(window)))})
    source, calls = _with_arguments(relation.source, [(name, window.call) for name, window in windows], set(read))
    known = knowledge_of(source).always
    parts = [(name, per_unit_parts(call, known)) for name, call in calls]
    over = {name: _over(window, known, read) for name, window in windows}
    below = relation_sql(source, {*read, *names_read(*_arguments(calls))})
    computed = [sql for name, each in parts for sql in _computed(name, each, over[name])]
    framed = select([column(UNIT), *map(column, passed), *computed], below)
    return select([column(UNIT), *map(column, passed), *(_combined(name, each) for name, each in parts)], framed)


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
    known = knowledge_of(source).always
    arguments = {name: Column(f"{name}.argument", value.type) for name, value in computed.items()}
    passed = [(name, Column(name, known[name].type)) for name in sorted(used)]
    project = Project(source, (*passed, *((arguments[name].name, value) for name, value in computed.items())))
    return project, [
        (name, replace(call, arguments=(arguments[name],)) if name in arguments else call) for name, call in calls
    ]


def _arguments(calls: list[tuple[str, AggregateCall]]) -> list[Expression]:
    return [argument for _, call in calls for argument in call.arguments]


def _computed(name: str, parts: Parts, over: str = "") -> list[Sql]:
    return [named(Sql(f"{call}{over}"), _part(name, number)) for number, call in enumerate(parts.calls)]


def _combined(name: str, parts: Parts) -> Sql:
    return named(parts.whole([column(_part(name, number)) for number in range(len(parts.calls))]), name)


def _part(name: str, number: int) -> str:
    return f"{name}.{number}"


def _window_parts(window: WindowCall) -> list[Expression]:
    return [*window.call.arguments, *window.keys, *(order.expression for order in window.order)]


def _ordered(order: WindowOrder, known: Known) -> Sql:
    direction = "DESC" if order.descending else "ASC"
    return Sql(f"{emit(order.expression, known)} {direction} NULLS {'FIRST' if order.nulls_first else 'LAST'}")


def _over(window: WindowCall, known: Known, read: list[str]) -> str:
    partition = listed([column(UNIT), *(emit(key, known) for key in window.keys)])
    order = [_ordered(order, known) for order in window.order]
    if window.call.name in BY_POSITION or (window.frame is not None and window.frame.kind == "ROWS"):
        order += [column(name) for name in read]
    ordered = f" ORDER BY {listed(order)}" if order else ""
    # Without an order of the analyst's the frame is the whole partition; ours must not make it end at the row.
    frame = "" if window.order or not ordered else WHOLE_PARTITION
    if window.frame is not None:
        frame = f" {window.frame.kind} BETWEEN {window.frame.start} AND {window.frame.end}"
    return f" OVER (PARTITION BY {partition}{ordered}{frame})"
