"""resolve_names: a tree of names -> the releases that touch people, and the rest of the query above them.

    SELECT region, 2 * COUNT(*) AS n FROM orders WHERE amount > 10 GROUP BY region ORDER BY n

becomes the release  Aggregate(Filter(Scan(orders), amount > 10), keys=(region,), calls=(COUNT(*),))  and the finish

    SELECT _k0 AS region, 2 * _a0 AS n FROM _release_0 ORDER BY n

Every name is looked up in the declared schema; what is not declared does not exist.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpsql.resolve.query import Resolver

if TYPE_CHECKING:
    from sqlglot import exp

    from dpsql.flow.parse_sql import Parsed
    from dpsql.flow.question import Question
    from dpsql.flow.setting import Setting
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
    finish: exp.Query = field(compare=False)
    """What is left of the query, over tables _release_0, _release_1, ... and public ones."""


def resolve_names(parsed: Parsed, setting: Setting) -> Resolved:
    resolver = Resolver(setting.schema, setting.engine, parsed.question.sql, setting.scratch)
    finish = resolver.whole(parsed.tree)
    releases, unit_columns = zip(*resolver.releases, strict=True) if resolver.releases else ((), ())
    public, earlier = tuple(resolver.public_scans(finish)), tuple(resolver.earlier)
    return Resolved(parsed.question, releases, unit_columns, public, earlier, finish)
