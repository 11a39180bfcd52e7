"""Reports that may be counted as they are, as engine SQL: how many rows have the same keys and reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.expressions.emit import emit, emit_value
from dpsql.expressions.tree import names_read
from dpsql.expressions.write import Sql, call, column, listed, named
from dpsql.relation.knowledge import knowledge_of
from dpsql.relation.write import relation_sql, select
from dpsql.relation.write_domain import domain_sql

if TYPE_CHECKING:
    from dpsql.relation.relation import Aggregate
    from dpsql.relation.reports import Reports


def counted_reports_sql(aggregate: Aggregate) -> Sql:
    """Columns _k0, _k1, ... and a count n0, n1, ... for each call; and the number of rows."""
    known = knowledge_of(aggregate.source).always
    arguments = {number: call.arguments[0] for number, call in enumerate(aggregate.calls) if call.arguments}
    keys = [column(f"_k{number}") for number in range(len(aggregate.keys))]
    rows = [named(emit_value(key, known), f"_k{number}") for number, key in enumerate(aggregate.keys)]
    rows += [named(emit(argument, known), f"v{number}") for number, argument in arguments.items()]
    counts = [named(Sql("count(*)"), "rows")]
    counts += [
        named(call("count", column(f"v{number}")) if number in arguments else Sql("count(*)"), f"n{number}")
        for number in range(len(aggregate.calls))
    ]
    below = relation_sql(aggregate.source, names_read(*aggregate.keys, *arguments.values()))
    query = select([*keys, *counts], select(rows, below))
    return Sql(f"{query} GROUP BY {listed(keys)}") if keys else query


def answers_sql(reports: Reports) -> Sql:
    """The table of all possible answers. It reads nothing."""
    table = reports.table
    return domain_sql(table, [f"a{number}" for number in range(len(table.keys))])
