"""PIVOT and UNPIVOT as what they stand for.

PIVOT (SELECT a, b, n ...) ON b IN ('x', 'y') USING SUM(n)
    SELECT a, SUM(n) FILTER (WHERE b = 'x') AS x, SUM(n) FILTER (WHERE b = 'y') AS y FROM (...) GROUP BY a
UNPIVOT (SELECT n, s ...) ON n, s INTO NAME what VALUE v
    SELECT 'n' AS what, n AS v FROM (...) WHERE n IS NOT NULL UNION ALL SELECT 's', s FROM (...) WHERE s IS NOT NULL

Which columns an answer has must not depend on rows, so the values are listed, or those that the schema declares.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from dpsql.errors import Unsupported
from dpsql.expressions.lower import place_of
from dpsql.expressions.parser_tree import copied, nodes_of
from dpsql.resolve.syntax import copy_in_place, extra_clauses, from_nodes, is_defined, output_name, unaliased

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    ValuesOf = Callable[[exp.Table, str], Collection[Any]]

KNOWN = {"this", "expressions", "fields", "using", "group", "unpivot", "into", "alias", "columns", "with_"}
NOTES = {"identify_pivot_strings", "prefixed_pivot_columns", "pivot_column_naming", "value_columns_first"}
"""Notes of the parser to its own writer."""


def unpivoted(tree: exp.Expr, text: str, values_of: ValuesOf) -> exp.Expr:
    """The statement as a query, where it is a PIVOT; those inside are rewritten in place.

    `values_of` gives what is declared of a column: all that it can be, or None.
    """
    for pivot in nodes_of(tree, exp.Pivot)[::-1]:
        if pivot.arg_key != "pivots":  # a statement, or a query in WITH or FROM
            found = _as_query(pivot, text, values_of)
            if pivot is tree:
                tree = found
            else:
                pivot.replace(found)
    for node in nodes_of(tree, exp.Subquery, exp.Table):
        for pivot in node.args.get("pivots") or ():
            _replace(node, pivot, text, values_of)
    return tree


def _as_query(pivot: exp.Pivot, text: str, values_of: ValuesOf) -> exp.Query:
    """PIVOT t ON a USING SUM(b)"""
    if pivot.args.get("unpivot"):
        return _unpivot(pivot.this, [part.name for part in pivot.expressions], *_into(pivot), text)
    return _pivot(pivot, pivot.this, pivot.expressions, pivot.args.get("using") or [], text, values_of)


def _replace(node: exp.Expr, pivot: exp.Pivot, text: str, values_of: ValuesOf) -> None:
    """(SELECT ...) PIVOT (SUM(n) FOR b IN ('x', 'y')) AS p"""
    source = copy_in_place(node)
    source.set("pivots", None)
    alias = source.args.get("alias")
    if len(node.args["pivots"]) > 1 or alias is not None:
        raise _refuse("one PIVOT behind a subquery can be asked", pivot, "put the first one into a subquery", text)
    if pivot.args.get("unpivot"):
        (field,), (value,) = pivot.args["fields"], pivot.expressions
        query = _unpivot(source, [part.name for part in field.expressions], field.this.name, value.name, text)
    else:
        query = _pivot(pivot, source, pivot.args["fields"], pivot.expressions, text, values_of)
    node.replace(exp.Subquery(this=query, alias=pivot.args.get("alias")))


def _pivot(
    pivot: exp.Expr,
    source: exp.Expr,
    fields: Sequence[exp.Expr],
    calls: Sequence[exp.Expr],
    text: str,
    values_of: ValuesOf,
) -> exp.Select:
    for clause in extra_clauses(pivot, KNOWN | NOTES):
        raise _refuse(f"PIVOT with {clause.replace('_', ' ')} cannot be asked", pivot, "leave it out", text)
    on = fields[0].this if fields and isinstance(fields[0], exp.In) else fields[0] if fields else None
    values = _listed(fields[0]) if on is not None else []
    if on is not None and not values:
        values = [_constant(value) for value in _declared(on, source, values_of)]
    if len(fields) != 1 or on is None or not values or not calls:
        raise _refuse(
            "PIVOT needs one column and its values",
            pivot,
            "list them: ON region IN ('north', 'south') USING SUM(n)",
            text,
        )
    group = pivot.args.get("group")
    keys = list(group.expressions) if group is not None else _others(pivot, source, [on, *calls], text)
    columns = [
        exp.alias_(_filtered(unaliased(call), on, unaliased(value)), _name(value, call, len(calls)), quoted=True)
        for value in values
        for call in calls
    ]
    found = exp.Select(
        expressions=[*(copied(key) for key in keys), *columns],
        from_=exp.From(this=source),
        with_=pivot.args.get("with_"),
    )
    if keys:
        found.set("group", exp.Group(expressions=[copied(key) for key in keys]))
    return found


def _listed(field: exp.Expr) -> list[exp.Expr]:
    """The values that are written; none for ANY and where there are none."""
    listed = list(field.expressions) if isinstance(field, exp.In) else []
    return [] if any(isinstance(value, exp.PivotAny) for value in listed) else listed


def _declared(on: exp.Expr, source: exp.Expr, values_of: ValuesOf) -> list[object]:
    """What a column can be that is one of a declared table, through the names that subqueries give it."""
    name: str | None = on.name if isinstance(on, exp.Column) else None
    while isinstance(source, exp.Subquery) and name is not None:
        select = source.this
        tables = from_nodes(select) if isinstance(select, exp.Select) else []
        items = [item for item in getattr(select, "selects", ()) if output_name(item).lower() == name.lower()]
        column = unaliased(items[0]) if len(items) == 1 else None
        name = column.name if isinstance(column, exp.Column) else None
        if len(tables) != 1:
            return []
        source = tables[0]
    if name is None or not isinstance(source, exp.Table) or is_defined(source):
        return []
    return sorted(values_of(source, name), key=lambda value: (str(type(value)), value))


def _constant(value: object) -> exp.Expr:
    if isinstance(value, bool | int | str):
        return exp.convert(value)
    return exp.cast(exp.Literal.string(str(value)), "DATE")


def _filtered(call: exp.Expr, on: exp.Expr, value: exp.Expr) -> exp.Expr:
    chosen = exp.Where(this=exp.EQ(this=copied(on), expression=copied(value)))
    return exp.Filter(this=copied(call), expression=chosen)


def _name(value: exp.Expr, call: exp.Expr, count: int) -> str:
    """As DuckDB calls the column."""
    constant = unaliased(value)
    shown = value.alias or (str(constant.this).lower() if isinstance(constant, exp.Boolean) else constant.name)
    return f"{shown}_{output_name(call)}" if count > 1 or isinstance(call, exp.Alias) else str(shown)


def _others(pivot: exp.Expr, source: exp.Expr, read: Sequence[exp.Expr], text: str) -> list[exp.Expr]:
    """The columns that nothing of the PIVOT reads: its groups."""
    used = {column.name.lower() for part in read for column in nodes_of(part, exp.Column)}
    return [exp.column(name) for name in _columns(pivot, source, text) if name.lower() not in used]


def _columns(pivot: exp.Expr, source: exp.Expr, text: str, word: str = "PIVOT") -> list[str]:
    query = source.this if isinstance(source, exp.Subquery) else None
    if not isinstance(query, exp.Select) or any(item.is_star for item in query.selects):
        raise _refuse(
            f"{word} needs to know the columns",
            pivot,
            f"name them in a subquery: {word} (SELECT a, b, n FROM t) ON ...",
            text,
        )
    return [output_name(item) for item in query.selects]


def _into(pivot: exp.Expr) -> tuple[str, str]:
    """INTO NAME what VALUE v"""
    into = pivot.args.get("into")
    return ("name", "value") if into is None else (into.this.name, into.expressions[0].name)


def _unpivot(source: exp.Expr, names: Sequence[str], name: str, value: str, text: str) -> exp.Query:
    listed = {part.lower() for part in names}
    others = [column for column in _columns(source, source, text, "UNPIVOT") if column.lower() not in listed]
    parts: list[exp.Query] = []
    for part in names:
        missing = exp.Is(this=exp.column(part), expression=exp.Null())
        parts.append(
            exp.Select(
                expressions=[
                    *(exp.column(other) for other in others),
                    exp.alias_(exp.Literal.string(part), name),
                    exp.alias_(exp.column(part), value),
                ],
                from_=exp.From(this=copied(source)),
                where=exp.Where(this=exp.Not(this=missing)),
            )
        )
    return reduce(lambda left, right: exp.Union(this=left, expression=right, distinct=False), parts)


def _refuse(what: str, node: exp.Expr, hint: str, text: str) -> Unsupported:
    return Unsupported(what, at=place_of(node, text), hint=hint)
