"""Adaptive subqueries: answers that a release reads, as public rows or as a constant.

    WHERE amount > (SELECT AVG(amount) FROM orders)               a value: asked first, then a constant
    WHERE ward IN (SELECT ward FROM the_largest_wards)            rows of an answer
    FROM (VALUES ('gold'), ('silver')) AS t(tier) JOIN ...        rows that are known already

docs/proofs/adaptive.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.aggregates.table import AGGREGATES
from dpsql.engine_sql.build import WIDE
from dpsql.engines.base import PostProcessingTable, answer_kind
from dpsql.engines.duckdb.render import type_name
from dpsql.errors import Unsupported
from dpsql.expressions.emit import VALUE
from dpsql.expressions.parser_tree import copied, nodes_of
from dpsql.expressions.properties import one_of, property_of
from dpsql.expressions.tree import AdaptiveConstant, Column, Expression, Literal
from dpsql.limits import LONGEST_LIST
from dpsql.relation.relation import Scan, ValuesTable
from dpsql.relation.reports import AdaptiveTable, known_rows
from dpsql.schema.types import Integer
from dpsql.sql.rows import PrivateRows, PublicQuery, internal_name, reads_release, release_name, reports_name
from dpsql.sql.scope import is_qualified
from dpsql.sql.syntax import is_defined, written

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpsql.expressions.properties import Properties
    from dpsql.relation.relation import Aggregate, AggregateCall
    from dpsql.relation.reports import Row
    from dpsql.schema.types import ColumnType
    from dpsql.sql.query import Resolver
    from dpsql.sql.rows import Named


@dataclass(frozen=True)
class AdaptiveSubquery:
    """An answer that later releases read as a table of their own SQL."""

    table: AdaptiveTable
    after: int
    """It is made of some of the first so many releases."""
    public: tuple[Scan, ...]
    query: exp.Expr = field(compare=False)

    @property
    def sql(self) -> str:
        return written(copied(self.query))


def adaptive_value(resolver: Resolver, query: exp.Expr, named: Named, node: exp.Expr) -> Expression:
    """The value of a query with one column, and one row at most."""
    value = exp.alias_(exp.Subquery(this=closed(query, named)), VALUE)
    table = _adaptive(resolver, exp.Select(expressions=[value]), node, single=True).table
    ((_, kind),) = table.columns
    if table.rows is None:
        return AdaptiveConstant(table.name, kind, resolver.place(node))
    ((constant,),) = table.rows
    return Literal(constant, kind, resolver.place(node))


def adaptive_rows(resolver: Resolver, source: exp.Expr, named: Named) -> PrivateRows:
    """The rows of a FROM item that is itself a noisy answer."""
    everything = exp.Select(expressions=[exp.Star()]).from_(copied(source))
    table = _adaptive(resolver, closed(everything, named), source, single=False).table
    properties = [_facts(table, number) for number in range(len(table.columns))]
    listed = ValuesTable(
        table.name, tuple((name, fact) for (name, _), fact in zip(table.columns, properties, strict=True))
    )
    return PrivateRows(
        relation=listed, columns={name.removeprefix("_"): Column(name, kind) for name, kind in table.columns}
    )


def closed(query: exp.Expr, named: Named) -> exp.Expr:
    """The query with the WITH queries that it reads, so that it can run on its own."""
    query = copied(query)
    needed: dict[str, exp.CTE] = {}
    _collect(query, named, needed)
    if needed:
        own = query.args.get("with_")
        parts = [copied(definition) for definition in needed.values()]
        query.set("with_", exp.With(expressions=[*parts, *(own.expressions if own is not None else ())]))
    return query


def _refuse_estimates(resolver: Resolver, query: exp.Expr, node: exp.Expr) -> None:
    """What is estimated from randomised reports is known after all releases, so none can read it."""
    released = any(
        aggregate.reports is not None and reads_release(query, number)
        for number, (aggregate, _) in enumerate(resolver.releases)
    )
    names = {reports_name(number) for number in range(len(resolver.reports))}
    if released or any(table.name in names for table in nodes_of(query, exp.Table)):
        raise resolver.refuse(
            "another aggregate cannot read an estimate from randomised reports",
            node,
            "query it first, and write the number into this query",
        )


def _collect(query: exp.Expr, named: Named, needed: dict[str, exp.CTE]) -> None:
    """The WITH queries that a query reads, each once and behind those that it reads itself."""
    read = [table for table in nodes_of(query, exp.Table) if not is_qualified(table)]
    for name in dict.fromkeys(table.name.lower() for table in read):
        item = named.get(name)
        if not isinstance(item, PublicQuery) or item.definition is None:
            continue
        definition, around = item.definition
        if name not in needed:
            _collect(definition.this, around, needed)
            needed[name] = definition
        elif needed[name] is not definition:
            raise Unsupported(f'two WITH queries are called "{name}"', hint="rename one")


def _adaptive(resolver: Resolver, query: exp.Expr, node: exp.Expr, *, single: bool) -> AdaptiveSubquery:
    sql = written(copied(query))
    for known in resolver.adaptive:
        if known.sql == sql:
            return known
    public = tuple(scan for scan in resolver.public_scans(query) if isinstance(scan, Scan))
    _refuse_estimates(resolver, query, node)
    tables = [*_release_tables(resolver), *map(_public_table, public)]
    described = resolver.post_processor.describe(sql, tables)
    columns = tuple((internal_name(name), _kind(kind, resolver, node)) for name, kind in described)
    if len({name for name, _ in columns}) < len(columns):
        raise resolver.refuse("two columns of the answer have the same name", node, "rename one with AS")
    table = AdaptiveTable(f"_adaptive_{len(resolver.adaptive)}", columns, single)
    if not any(
        isinstance(source.this, exp.Identifier) and not is_defined(source) for source in nodes_of(query, exp.Table)
    ):
        table = replace(table, rows=_constants(resolver, sql, [kind for _, kind in columns], node))
    resolver.adaptive.append(AdaptiveSubquery(table, len(resolver.releases), public, query))
    return resolver.adaptive[-1]


def _kind(name: str, resolver: Resolver, node: exp.Expr) -> ColumnType:
    kind = answer_kind(name)
    if kind is None:
        raise resolver.refuse(
            f"values of type {name} cannot be combined with rows of people", node, "CAST them to a number, text or date"
        )
    return kind


def _constants(resolver: Resolver, sql: str, kinds: list[ColumnType], node: exp.Expr) -> tuple[Row, ...]:
    found = resolver.post_processor.constants(f"SELECT * FROM ({sql}) LIMIT {LONGEST_LIST + 1}")
    if len(found) > LONGEST_LIST:
        raise resolver.refuse(f"the list has more than {LONGEST_LIST:,} rows", node, "make it a public table")
    return known_rows(found, kinds)


def _facts(table: AdaptiveTable, number: int) -> Properties:
    """Constants are known one by one; of an answer to come only the type is."""
    _, kind = table.columns[number]
    if table.rows is None:
        return property_of(kind, nullable=True)
    values = [row[number] for row in table.rows]
    return one_of(kind, (value for value in values if value is not None), nullable=None in values)


def _release_tables(resolver: Resolver) -> Iterator[PostProcessingTable]:
    for number, (aggregate, _) in enumerate(resolver.releases):
        yield PostProcessingTable(release_name(number), {}, _columns(aggregate))


def _columns(aggregate: Aggregate) -> dict[str, tuple[str, str]]:
    keys = {f"_k{number}": (type_name(key.type), "") for number, key in enumerate(aggregate.keys)}
    if aggregate.totals:
        keys |= {f"_g{number}": ("BIGINT", "") for number in range(len(aggregate.keys))}
    return keys | {f"_a{number}": (_call_type(call), "") for number, call in enumerate(aggregate.calls)}


def _call_type(call: AggregateCall) -> str:
    """As what the answer of an aggregate is read; one that is not supported of many people is refused later."""
    function = AGGREGATES.get(call.name)
    kind = call.arguments[0].type if call.arguments else Integer()
    kind = kind if function is None else function.read_as(kind)
    wide = call.wide or (function is not None and function.wide)
    return type_name(WIDE if wide and isinstance(kind, Integer) else kind)


def _public_table(scan: Scan) -> PostProcessingTable:
    types = {part.declared: (type_name(part.properties.type), "") for part in scan.columns}
    return PostProcessingTable(scan.table, {}, types)
