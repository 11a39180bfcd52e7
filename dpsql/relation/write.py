"""A relation as a query of the engine, whose first column, _unit, says whose each row is; public ones have none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import NULL, UNIT, all_of, apply, fields, select, test
from dpsql.engine_sql.tree import Derived, Field, Joined, Lasting, Named, Select, SetOperation, Table
from dpsql.expressions.emit import as_value, emit
from dpsql.expressions.tree import names_read
from dpsql.relation import write_tests, write_within
from dpsql.relation.implied_units import without_units
from dpsql.relation.knowledge import knowledge_of, values_of
from dpsql.relation.relation import (
    CrossUnitJoin,
    Distinct,
    Filter,
    Join,
    Mark,
    PerUnit,
    Project,
    Relation,
    Scan,
    SemiJoin,
    SetOp,
    ValuesTable,
    Window,
)
from dpsql.relation.stored_tests import with_stored_tests
from dpsql.relation.units import is_tracked
from dpsql.relation.whole_tables import lasts
from dpsql.relation.write_scan import scan_sql

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dpsql.engine_sql.tree import Query, Term

LEFTS, RIGHTS = "_left_rows", "_right_rows"


def relation_sql(relation: Relation, needed: Iterable[str]) -> Query:
    """The relation's `needed` columns, and _unit."""
    names = sorted(set(needed))
    match relation:
        case Scan():
            return scan_sql(relation, names)
        case ValuesTable(table):
            return Select(tuple(fields(names)), Table(table))
        case Filter(source, condition):
            tested, left = with_stored_tests(source, condition)
            below = relation_sql(tested, {*names, *names_read(*left)})
            known = knowledge_of(source).properties
            return _passed(relation, names, below, all_of([emit(part, known) for part in left])) if left else below
        case Project(source, columns):
            kept = [(name, expression) for name, expression in columns if name in names]
            values = values_of(relation)
            below = relation_sql(source, names_read(*(expression for _, expression in kept)))
            return select([*_unit(relation), *(Named(as_value(values[n], e), n) for n, e in kept)], below)
        case Join():
            return _join(relation, names)
        case CrossUnitJoin():
            return _cross_unit_join(relation, names)
        case SemiJoin():
            return _semi_join(relation, names)
        case Mark():
            return _mark(relation, names)
        case SetOp(kind, left, right):
            # Rows are compared as wholes, so every column takes part, whatever is needed above.
            everything = names if kind == "UNION ALL" else sorted(knowledge_of(left).properties)
            sides = SetOperation(kind, relation_sql(left, everything), relation_sql(right, everything))
            return _passed(relation, names, sides)
        case Distinct(source):
            everything = sorted(knowledge_of(source).properties)
            different = distinct(relation_sql(source, everything), _unit(source), everything)
            return _passed(relation, names, Lasting(different) if lasts(source) else different)
        case PerUnit():
            return write_within.per_unit_sql(relation, names, relation_sql)
        case Window():
            return write_within.window_sql(relation, names, relation_sql)


def distinct(below: Query, unit: list[Named], names: Iterable[str]) -> Select:
    return replace(select([*unit, *fields(names)], below), distinct=True)


def _passed(relation: Relation, names: list[str], below: Query, where: Term | None = None) -> Query:
    return select([*_unit(relation), *fields(names)], below, where)


def _unit(relation: Relation) -> list[Named]:
    return fields([UNIT]) if is_tracked(relation) else []


def _join(join: Join, names: list[str]) -> Query:
    """Two sides of units meet within each unit only, whatever else the condition says."""
    left_known, right_known = knowledge_of(join.left).properties, knowledge_of(join.right).properties
    conditions = [] if join.condition is None else [join.condition]
    if join.kind == "INNER" and join.condition is not None:
        tested, conditions = with_stored_tests(join, join.condition)
        assert isinstance(tested, Join)
        join = _with_one_owner(tested)
    wanted = {*names, *names_read(*conditions)}
    left = Derived(relation_sql(join.left, wanted & set(left_known)), "_lefts")
    right = Derived(relation_sql(join.right, wanted & set(right_known)), "_rights")
    both = is_tracked(join.left) and is_tracked(join.right)
    meets: list[Term] = [test("=", Field(UNIT, "_lefts"), Field(UNIT, "_rights"))] if both else []
    meets += [emit(part, {**left_known, **right_known}) for part in conditions]
    unit = [Named(_joined_unit(join), UNIT)] if is_tracked(join) else []
    return Select((*unit, *fields(names)), Joined(join.kind, left, right, all_of(meets)))


def _with_one_owner(join: Join) -> Join:
    """The same rows, where the condition says that both sides are of one unit: one side knows it."""
    if (right := without_units(join.right, join.left, join.condition)) is not None:
        return replace(join, right=right)
    left = without_units(join.left, join.right, join.condition)
    return join if left is None else replace(join, left=left)


def _joined_unit(join: Join) -> Term:
    left, right = Field(UNIT, "_lefts"), Field(UNIT, "_rights")
    if not (is_tracked(join.left) and is_tracked(join.right)):
        return left if is_tracked(join.left) else right
    if join.kind == "FULL":
        return apply("coalesce", left, right)
    return right if join.kind == "RIGHT" else left


def _cross_unit_join(across: CrossUnitJoin, names: list[str]) -> Query:
    """Over the rows of either side that count, which the release's SQL defines; a pair is nobody's alone."""
    meets = emit(across.condition, knowledge_of(across).properties)
    return Select((Named(NULL, UNIT), *fields(names)), Joined("INNER", Table(LEFTS), Table(RIGHTS), meets))


def _semi_join(semi: SemiJoin, names: list[str]) -> Query:
    known = knowledge_of(semi.source)
    below = relation_sql(semi.source, {*names, *(names_read(semi.condition) & set(known.properties))})
    return _passed(semi, names, below, write_tests.test_sql(semi, known, relation_sql))


def _mark(relation: Mark, names: list[str]) -> Query:
    semi, known = relation.test, knowledge_of(relation.test.source)
    passed = [name for name in names if name != relation.name]
    used = names_read(semi.condition) & set(known.properties)
    mark = [Named(write_tests.mark_sql(semi, known, relation_sql), relation.name)] if relation.name in names else []
    return select([*_unit(relation), *fields(passed), *mark], relation_sql(semi.source, {*passed, *used}))
