"""resolve_names: a tree of names -> the releases that touch people, and the rest of the query above them.

    SELECT region, 2 * COUNT(*) AS n FROM orders WHERE amount > 10 GROUP BY region ORDER BY n

becomes the release  Aggregate(Filter(Scan(orders), amount > 10), keys=(region,), calls=(COUNT(*),))
and the post-processing

    SELECT _k0 AS region, 2 * _a0 AS n FROM _release_0 ORDER BY n

Every name is looked up in the declared schema; what is not declared does not exist.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpsql.expressions.parser_tree import copied
from dpsql.pipeline.format import about_releases, laid_out
from dpsql.relation.format import format_aggregate, format_call
from dpsql.sql.parameters import clock_note
from dpsql.sql.post_processing import undeclared_constants
from dpsql.sql.query import Resolver
from dpsql.sql.rows import declared_rows
from dpsql.sql.syntax import shown

if TYPE_CHECKING:
    from sqlglot import exp

    from dpsql.errors import Place
    from dpsql.expressions.tree import Column
    from dpsql.options import QueryRequest
    from dpsql.pipeline.environment import PublicEnvironment
    from dpsql.pipeline.parse_sql import Parsed
    from dpsql.relation.relation import Aggregate, Relation, Scan
    from dpsql.sql.adaptive import AdaptiveSubquery
    from dpsql.sql.per_key import Determined


@dataclass(frozen=True, kw_only=True)
class Resolved:
    request: QueryRequest
    releases: tuple[Aggregate, ...]
    unit_columns: tuple[frozenset[str], ...]
    """The names of the unit columns of each release."""
    public: tuple[Scan | Aggregate, ...]
    """The public tables that the post-processing reads."""
    adaptive: tuple[AdaptiveSubquery, ...]
    """The adaptive subqueries: answers that other releases read."""
    determined: tuple[Dependency, ...]
    """Columns of public tables that others of theirs must determine."""
    post_processing: exp.Query
    """The post-processing: the rest of the query, over tables _release_0, _release_1, ... and public ones."""

    def __str__(self) -> str:
        return laid_out(
            [
                *about_releases([format_aggregate(part), *map(format_call, part.calls)] for part in self.releases),
                *((answer.table.name, [answer.sql]) for answer in self.adaptive),
                ("post-processing", [shown(self.post_processing)]),
            ]
        )


@dataclass(frozen=True)
class Dependency:
    """A functional dependency of a public table: rows with the same keys have the same value."""

    rows: Relation
    keys: tuple[Column, ...]
    value: Column
    at: Place | None


def _dependency(found: Determined, resolver: Resolver) -> Dependency:
    rows = declared_rows(resolver.schema.tables[found.table], resolver.schema, resolver.guarantees, reports=False)
    columns = rows.columns
    keys = tuple(columns[name.lower()] for name in found.keys)
    return Dependency(rows.relation, keys, columns[found.value.lower()], resolver.place(found.at))


def resolve_names(parsed: Parsed, public: PublicEnvironment) -> Resolved:
    resolver = Resolver(
        schema=public.schema,
        guarantees=public.guarantees,
        text=parsed.request.sql,
        post_processor=public.post_processor,
    )
    post_processing = resolver.whole(copied(parsed.tree))
    releases, unit_columns = zip(*resolver.releases, strict=True) if resolver.releases else ((), ())
    scans, adaptive = tuple(resolver.public_scans(post_processing)), tuple(resolver.adaptive)
    now = parsed.request.now
    notes = (*([] if now is None else [clock_note(now)]), *undeclared_constants(parsed.tree, public.schema))
    determined = tuple(_dependency(found, resolver) for found in resolver.determined)
    return Resolved(
        request=replace(parsed.request, notes=notes),
        releases=releases,
        unit_columns=unit_columns,
        public=scans,
        adaptive=adaptive,
        determined=determined,
        post_processing=post_processing,
    )
