"""How many rows one unit can have, if the schema is right: it helps to choose bounds, which are enforced all the same.

    customers, declared unique                   1
    customers JOIN regions USING (region)        1, where every region is listed once
    customers CROSS JOIN RANGE(3)                3
    customers UNION ALL customers                2
    orders                                       anything: the declared bounds are all that is known

Public rows are looked at, people's are not: what is wrong here costs accuracy, never privacy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from dpsql.engine_sql.build import apply, count, integer, select
from dpsql.engine_sql.tree import Field, Fold, Named
from dpsql.expressions.emit import emit_value
from dpsql.expressions.narrow import conjuncts
from dpsql.expressions.tree import Call, names_read
from dpsql.relation.knowledge import knowledge_of
from dpsql.relation.relation import (
    OF_THE_LEFT,
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
from dpsql.relation.units import is_tracked
from dpsql.relation.write import relation_sql

if TYPE_CHECKING:
    from collections.abc import Callable, Set

    from dpsql.engine_sql.tree import Query
    from dpsql.expressions.tree import Expression

CountPublic: TypeAlias = "Callable[[Query], int | None]"
"""Runs a query over public rows that gives one number; None where that cannot be known yet."""


def rows_per_unit(relation: Relation, count: CountPublic, given: tuple[Expression, ...] = ()) -> int | None:
    """The most rows that one unit can have; None if nothing is known. `given` holds for the rows that are kept."""
    match relation:
        case Scan():
            return 1 if relation.one_row_per_unit or relation.declared_unique else None
        case ValuesTable() | CrossUnitJoin():
            return None
        case PerUnit(_, _, _, True):
            return 1
        case Filter(source, condition):
            return rows_per_unit(source, count, (*given, *conjuncts(condition)))
        case SemiJoin(source):
            return rows_per_unit(source, count, given)
        case Mark() | PerUnit() | Project() | Distinct() | Window():
            return rows_per_unit(relation.source, count)
        case Join():
            return _joined(relation, count, given)
        case SetOp(kind, left, right):
            mine, its = rows_per_unit(left, count), rows_per_unit(right, count)
            if kind in OF_THE_LEFT:
                return mine
            return None if mine is None or its is None else mine + its


def _joined(join: Join, count: CountPublic, given: tuple[Expression, ...]) -> int | None:
    if not is_tracked(join.left):
        left, right = join.right, join.left
    else:
        left, right = join.left, join.right
    mine = rows_per_unit(left, count, given)
    if mine is None:
        return None
    if not is_tracked(right):
        conditions = (*given, *(conjuncts(join.condition) if join.condition is not None else ()))
        found = count(most_matches_sql(left, right, conditions))
        return None if found is None else mine * max(1, found)
    its = rows_per_unit(right, count, given)
    if its is None:
        return None
    # Where rows without a partner are kept on both sides, there may be more of them than pairs.
    return max(mine * its, mine + its) if join.kind == "FULL" and not join.by_unit_alone else mine * its


def most_matches_sql(left: Relation, public: Relation, conditions: tuple[Expression, ...]) -> Query:
    """How many public rows one row can be joined with: those that have the same values where equal ones are asked."""
    own, known = knowledge_of(left).properties.keys(), knowledge_of(public).properties
    for condition in conditions:
        if names_read(condition) <= known.keys():
            public = Filter(public, condition)
    keys = [key for condition in conditions if (key := _key(condition, own, known.keys())) is not None]
    below = relation_sql(public, names_read(*keys))
    counts = select([Named(count(), "n")], below, group_by=[emit_value(key, known) for key in keys])
    most = apply("coalesce", Fold("max", (Field("n"),)), integer(0))
    return select([Named(most, "n")], counts)


def _key(condition: Expression, own: Set[str], public: Set[str]) -> Expression | None:
    """The public side of an equality. Of one type: as doubles many whole numbers are equal."""
    match condition:
        case Call(function, (first, second)) if function.name == "=" and first.type == second.type:
            for mine, its in ((first, second), (second, first)):
                if names_read(mine) <= own and names_read(its) <= public and names_read(its):
                    return its
    return None
