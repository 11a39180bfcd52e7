"""Tables in place of what lasts from question to question, where an engine can keep some.

    WITH _known AS (SELECT _unit, count(*) AS _number FROM orders GROUP BY _unit) SELECT ...
    WITH _known AS (SELECT _unit, _number FROM kept) SELECT ...

What stands inside a condition is left as it is: it is read for a few rows, and found there again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import fields
from dpsql.engine_sql.tree import AroundRank, Derived, Joined, Lasting, Select, SetOperation, Table, With

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.engine_sql.tree import Query, Source


def with_tables(query: Query, name: Callable[[Select], str]) -> Query:
    """The same over tables with these names, each with the rows of the query that it is named for."""
    match query:
        case Lasting(lasting):
            return Select(tuple(fields(column.name for column in lasting.columns)), Table(name(lasting)))
        case Select(source=Derived() | Joined() as source):
            return replace(query, source=_over_tables(source, name))
        case SetOperation(left=left, right=right):
            return replace(query, left=with_tables(left, name), right=with_tables(right, name))
        case With(parts, last):
            read = tuple(replace(part, query=with_tables(part.query, name)) for part in parts)
            return With(read, with_tables(last, name))
        case AroundRank(values=values):
            return replace(query, values=with_tables(values, name))
    return query


def _over_tables(source: Source, name: Callable[[Select], str]) -> Source:
    match source:
        case Derived(query):
            return replace(source, query=with_tables(query, name))
        case Joined(left=left, right=right):
            return replace(source, left=_over_tables(left, name), right=_over_tables(right, name))
    return source
