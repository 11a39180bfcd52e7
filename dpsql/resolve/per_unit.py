"""GROUP BY with the unit: still rows of people, with aggregates of each one's own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.errors import ProgrammingError
from dpsql.expressions.parser_tree import copied
from dpsql.expressions.tree import Column
from dpsql.relation.relation import Filter, PerUnit
from dpsql.resolve.above import Above
from dpsql.resolve.calls import per_unit_type
from dpsql.resolve.constant_subqueries import read_constants
from dpsql.resolve.inner import inner_column
from dpsql.resolve.joins import Source
from dpsql.resolve.project import output_rows, refuse_kept, refuse_order
from dpsql.resolve.rows import Rows
from dpsql.resolve.scope import Scope
from dpsql.resolve.syntax import output_name, unaliased

if TYPE_CHECKING:
    from sqlglot import exp

    from dpsql.resolve.groups import Groups


def per_unit(groups: Groups, select: exp.Select) -> Rows:
    _refuse_clauses(groups, select)
    above = Above(
        groups,
        column=lambda call: inner_column(Column(groups.answer_name(call), per_unit_type(call))),
        subquery=copied,
    )
    items = [(output_name(item).lower(), above.rewritten(unaliased(item))) for item in select.expressions]
    having = [above.rewritten(clause.this) for clause in (select.args.get("having"),) if clause is not None]
    rows = _grouped(groups)
    # Subqueries up here are constants, and names are aliases: all else has become a column.
    scope = Scope(
        resolver=groups.below.scope.resolver,
        named=groups.below.scope.named,
        source=Source(rows, (), {}),
        aliases=dict(items),
    )
    scope = read_constants(scope, [*having, *(node for _, node in items)])
    for node in having:
        rows = replace(rows, relation=Filter(rows.relation, scope.condition(node, "HAVING")))
    columns = {name: scope.lowering.lower(node) for name, node in items}
    if len(columns) < len(items):
        raise ProgrammingError("two columns have the same name", hint="rename one with AS")
    return output_rows(rows, columns)


def _refuse_clauses(groups: Groups, select: exp.Select) -> None:
    refuse_order(
        groups.below,
        select,
        "groups of one person each: the first of them would be people",
        "count them: SELECT COUNT(*) FROM (SELECT ... GROUP BY the unit) WHERE n > 300; or group by what people share",
    )
    refuse_kept(groups.below)
    for clause in ("qualify", "distinct"):
        if select.args.get(clause):
            raise groups.below.scope.resolver.refuse(
                f"{clause.upper()} cannot be used with GROUP BY the unit",
                select.args[clause],
                "put the GROUP BY into a subquery and use it outside",
            )


def _grouped(groups: Groups) -> Rows:
    """The keys and aggregates of each unit, under names of our own."""
    rows = groups.below.rows
    keys = {f"_k{number}": key for number, key in enumerate(groups.keys)}
    relation = PerUnit(
        rows.relation,
        tuple(keys.items()),
        tuple((groups.answer_name(call), call) for call in groups.calls),
        by_unit_alone=all(map(rows.is_of_unit_alone, groups.keys)),
    )
    told = {name: sense for name, key in keys.items() if (sense := rows.key_of(key)) is not None}
    present = frozenset(frozenset({name}) for name in told if rows.tells_unit(keys[name]))
    return Rows(relation=relation, columns={}, unit_keys=told, present=present, unit_type=rows.unit_type)
