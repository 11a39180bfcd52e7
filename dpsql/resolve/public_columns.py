"""Which columns of a public table a finished query may read: the others need not be copied for it.

Names alone decide. Too many columns are only slow, so whatever speaks of columns without their names reads all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.expressions.parser_tree import nodes_of

if TYPE_CHECKING:
    from dpsql.relation.relation import Scan


def columns_read(scan: Scan, query: exp.Expr) -> tuple[str, ...]:
    """The declared names of the columns that the query may read, and one at least."""
    declared = tuple(column.declared for column in scan.columns)
    if _speaks_of_all(query, scan.table.lower()):
        return declared
    names = {identifier.name.lower() for identifier in nodes_of(query, exp.Identifier)}
    return tuple(name for name in declared if name.lower() in names) or declared[:1]


def _speaks_of_all(query: exp.Expr, table: str) -> bool:
    """By a star, by columns in common, by their order, or by the whole row."""
    stars = (star for star in nodes_of(query, exp.Star) if not isinstance(star.parent, exp.Count))
    rows = {table, *(alias.name.lower() for alias in nodes_of(query, exp.TableAlias))}
    return (
        any(True for _ in stars)
        or any(True for _ in nodes_of(query, exp.Columns))
        or any(join.method for join in nodes_of(query, exp.Join))
        or any(alias.args.get("columns") for alias in nodes_of(query, exp.TableAlias))
        or any(not column.table and column.name.lower() in rows for column in nodes_of(query, exp.Column))
    )
