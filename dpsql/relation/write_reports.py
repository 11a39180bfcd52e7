"""Reports that may be counted as they are, as engine SQL: how many rows have the same keys and reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.engine_sql.build import count, fields, select
from dpsql.engine_sql.tree import Field, Named
from dpsql.expressions.emit import emit, emit_value
from dpsql.expressions.tree import names_read
from dpsql.relation.knowledge import knowledge_of
from dpsql.relation.write import relation_sql
from dpsql.relation.write_domain import domain_sql

if TYPE_CHECKING:
    from dpsql.engine_sql.tree import Query
    from dpsql.relation.relation import Aggregate
    from dpsql.relation.reports import Reports


def counted_reports_sql(aggregate: Aggregate) -> Query:
    """Columns _k0, _k1, ... and a count n0, n1, ... for each call; and the number of rows."""
    known = knowledge_of(aggregate.source).properties
    arguments = {number: call.arguments[0] for number, call in enumerate(aggregate.calls) if call.arguments}
    keys = [f"_k{number}" for number in range(len(aggregate.keys))]
    rows = [Named(emit_value(key, known), name) for key, name in zip(aggregate.keys, keys, strict=True)]
    rows += [Named(emit(argument, known), f"v{number}") for number, argument in arguments.items()]
    counts = [Named(count(), "rows")]
    counts += [
        Named(count(Field(f"v{number}")) if number in arguments else count(), f"n{number}")
        for number in range(len(aggregate.calls))
    ]
    below = relation_sql(aggregate.source, names_read(*aggregate.keys, *arguments.values()))
    return select([*fields(keys), *counts], select(rows, below), group_by=[Field(name) for name in keys])


def answers_sql(reports: Reports) -> Query:
    """The table of all possible answers. It reads nothing."""
    table = reports.table
    return domain_sql(table, [f"a{number}" for number in range(len(table.keys))])
