"""A SELECT with groups: of each person's own rows, which gives rows of people again, or across people, a release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.expressions.parser_tree import copied
from dpsql.relation.relation import Aggregate
from dpsql.resolve.above import Above
from dpsql.resolve.collected import as_reports
from dpsql.resolve.groups import read_groups
from dpsql.resolve.inner import INNER, release_name, reports_name
from dpsql.resolve.option_clauses import clause_of
from dpsql.resolve.per_unit import per_unit
from dpsql.resolve.rows import Answer
from dpsql.resolve.syntax import is_star, output_name, unaliased

if TYPE_CHECKING:
    from dpsql.relation.relation import AggregateCall
    from dpsql.resolve.apply_where import Filtered
    from dpsql.resolve.groups import Groups
    from dpsql.resolve.rows import Item


def aggregate(below: Filtered, select: exp.Select) -> Item:
    groups = read_groups(below, select)
    if any(map(groups.below.rows.tells_unit, groups.keys)) and not groups.totals:
        return per_unit(groups, select)
    refuse_people_apart(groups)
    refuse_equal_keys(groups)
    return _release(groups, select)


def refuse_people_apart(groups: Groups) -> None:
    """Groups of one person each are never shown, so a release of such groups would be an empty answer."""
    rows = groups.below.rows
    for item, key in zip(groups.items, groups.keys, strict=True):
        if rows.key_of(key) is None:
            continue
        if rows.tells_unit(key):
            what, hint = "totals over groups of one person each", "group by the unit in a subquery, without totals"
        else:
            what = "the key tells people apart, and is NULL for some, who would be one group"
            hint = "COALESCE the units of both sides of the outer join, or add WHERE ... IS NOT NULL"
        raise groups.below.scope.resolver.refuse(f"{what}: this cannot be asked", item, hint)


def refuse_equal_keys(groups: Groups) -> None:
    """Where a total leaves out one of two equal keys, the engine leaves out both."""
    if groups.totals and len(set(groups.keys)) < len(groups.keys):
        raise groups.below.scope.resolver.refuse(
            "two keys of the totals are the same expression",
            groups.items[-1],
            "name it once, and SELECT it again outside",
        )


def _release(groups: Groups, select: exp.Select) -> Answer:
    below, scope = groups.below, groups.below.scope
    kept = below.rows.kept
    keeps_rows = kept is not None and not kept.is_inner(below.conditions)

    def column(call: AggregateCall) -> exp.Expr:
        answer = _answer_column(groups.answer_name(call))
        return (
            exp.Greatest(this=answer, expressions=[exp.Literal.number(1)]) if keeps_rows and _is_star(call) else answer
        )

    above = Above(
        groups,
        column=column,
        subquery=lambda node: scope.resolver.answer(
            copied(node), scope.named, refusal="a subquery would show rows of people"
        ),
    )
    post_processing = _post_processing(above, select)
    calls = groups.calls
    if not groups.keys and not calls:
        raise scope.resolver.refuse("there is no aggregate", select, "write COUNT(*), SUM(x) or AVG(x)")
    listed = None if kept is None else kept.groups(groups.keys, calls, below.conditions)
    released = Aggregate(
        source=below.rows.relation,
        keys=groups.keys,
        calls=tuple(calls),
        grouped=bool(groups.keys),
        totals=groups.totals,
        listed=listed if groups.keys else None,
        listed_once=keeps_rows and any(map(_is_star, calls)),
        clause=clause_of(select),
    )
    if kept is not None and released.listed_once and not groups.keys:
        raise kept.refuse("COUNT(*) counts these too", "write COUNT(v.id), or group by the key")
    released = as_reports(released)
    # Subqueries in the SELECT list have been numbered by now.
    if released.reports is not None and released.reports.is_free:
        name = reports_name(scope.resolver.reports_number(released))
    else:
        name = release_name(scope.resolver.number_of(released, below.rows.all_units))
    post_processing.set("from_", exp.From(this=exp.Table(this=exp.to_identifier(name))))
    return Answer(post_processing)


def _is_star(call: AggregateCall) -> bool:
    return call.name == "COUNT" and not call.arguments


def _answer_column(name: str) -> exp.Expr:
    column = exp.column(name)
    column.meta[INNER] = True
    return column


def _post_processing(above: Above, select: exp.Select) -> exp.Select:
    """The same SELECT over the release's columns; HAVING becomes WHERE, since groups are rows now."""
    post_processing = exp.Select(expressions=[_output(item, above) for item in select.expressions])
    post_processing.set("with_", select.args.get("with_"))
    having = select.args.get("having")
    if having is not None:
        post_processing.set("where", exp.Where(this=above.rewritten(having.this)))
    post_processing.set("windows", [above.rewritten(window) for window in select.args.get("windows") or ()])
    for clause in ("qualify", "order", "limit", "offset", "distinct"):
        node = select.args.get(clause)
        post_processing.set(clause, node and above.rewritten(node, aliases_first=True))
    return post_processing


def _output(item: exp.Expr, above: Above) -> exp.Expr:
    if item.is_star and not is_star(unaliased(item)):
        raise above.scope.resolver.refuse("* would show rows of people", item, "name the groups and aggregates")
    name = exp.to_identifier(output_name(item), quoted=True)
    return exp.Alias(this=above.rewritten(unaliased(item)), alias=name)
