"""What is said where a query would show people's rows as they are, or groups of one person each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.resolve.syntax import from_nodes

if TYPE_CHECKING:
    from dpsql.schema.model import Schema

SHOWS_ROWS = "the query would show rows of people as they are"
SHOWS_GROUPS = "each group would be one person's"
AGGREGATE_FIRST = "let it aggregate: COUNT(*), SUM(x), AVG(x)"
SHARED = "group by what people share, or ask about all of them"


def people_shown(query: exp.Expr, problem: str, schema: Schema) -> tuple[str, exp.Expr, str]:
    """The problem, its place and the way out, for a query that is rows of people.

    One with a GROUP BY has the unit among its keys, or it would be an answer.
    """
    select = query.this if isinstance(query, exp.Subquery) else query
    group = select.args.get("group")
    if group is not None:
        return SHOWS_GROUPS, group, f"{SHARED}: SELECT AVG(LEAST(n, 100)) FROM ({_counted(select)})"
    table = _only_table(select)
    if table is None:
        return problem, query, AGGREGATE_FIRST
    declared = f"; DESCRIBE {table} lists its columns" if schema.table(table) is not None else ""
    return problem, query, f"let it aggregate: SELECT COUNT(*) FROM {table}{declared}"


def _counted(select: exp.Expr) -> str:
    table, keys = _only_table(select), select.args["group"].expressions
    if table is None or len(keys) != 1 or not isinstance(keys[0], exp.Column):
        return "SELECT unit, COUNT(*) AS n FROM ... GROUP BY unit"
    return f"SELECT {keys[0].name}, COUNT(*) AS n FROM {table} GROUP BY {keys[0].name}"


def _only_table(select: exp.Expr) -> str | None:
    items = from_nodes(select) if isinstance(select, exp.Select) else []
    return items[0].name if len(items) == 1 and isinstance(items[0], exp.Table) else None
