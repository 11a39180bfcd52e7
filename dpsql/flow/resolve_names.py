"""resolve_names: a tree of names -> the releases that touch people, and the rest of the query above them.

    SELECT region, 2 * COUNT(*) AS n FROM orders WHERE amount > 10 GROUP BY region ORDER BY n

becomes the release  Aggregate(Filter(Scan(orders), amount > 10), keys=(region,), calls=(COUNT(*),))  and the finish

    SELECT _k0 AS region, 2 * _a0 AS n FROM _release_0 ORDER BY n

Every name is looked up in the declared schema; what is not declared does not exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.flow.readable import about_releases, laid_out
from dpsql.relation.readable import readable_aggregate, readable_call
from dpsql.resolve.query import Resolver
from dpsql.resolve.syntax import DUCKDB

if TYPE_CHECKING:
    from sqlglot import exp

    from dpsql.flow.parse_sql import Parsed
    from dpsql.flow.public_setting import PublicSetting
    from dpsql.flow.question import Question
    from dpsql.relation.relation import Aggregate, Scan
    from dpsql.resolve.earlier import EarlierAnswer


@dataclass(frozen=True)
class Resolved:
    question: Question
    releases: tuple[Aggregate, ...]
    unit_columns: tuple[frozenset[str], ...]
    """For each release the names of the columns that are its unit."""
    public: tuple[Scan | Aggregate, ...]
    """The public tables that the finish reads."""
    earlier: tuple[EarlierAnswer, ...]
    """The answers that releases read."""
    finish: exp.Query
    """What is left of the query, over tables _release_0, _release_1, ... and public ones."""

    def __str__(self) -> str:
        return laid_out(
            [
                *about_releases([readable_aggregate(part), *map(readable_call, part.calls)] for part in self.releases),
                *((answer.table.name, [answer.sql]) for answer in self.earlier),
                ("finish", [self.finish.sql(DUCKDB)]),
            ]
        )


def resolve_names(parsed: Parsed, public: PublicSetting) -> Resolved:
    resolver = Resolver(public.schema, public.guarantees, parsed.question.sql, public.scratch)
    finish = resolver.whole(parsed.tree.copy())
    releases, unit_columns = zip(*resolver.releases, strict=True) if resolver.releases else ((), ())
    scans, earlier = tuple(resolver.public_scans(finish)), tuple(resolver.earlier)
    return Resolved(parsed.question, releases, unit_columns, scans, earlier, finish)
