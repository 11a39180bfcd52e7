"""Public groups that are ranked are known by their numbers, which are shorter to sort and to group by than keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.aggregates.measure import Matched
from dpsql.engine_sql.build import BELOW, all_of, cast, fields, integer, select, test
from dpsql.engine_sql.tree import Derived, Field, Fold, Joined, Named, Ordered, Over, Select, Short, Table
from dpsql.relation.domain import Domain
from dpsql.relation.sql import domain_sql

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dpsql.aggregates.release import Release
    from dpsql.engine_sql.tree import Query

GROUPS, GROUP = "_groups", "_group"
"""The list of public groups, and the number that a group has there."""
MOST_NUMBERED = 2**15 - 1


def are_numbered(release: Release) -> bool:
    """Whether a group is known by its number: where many rows are ranked, in a short list without NULL."""
    return (
        release.ranked
        and release.few_rows is None
        and isinstance(release.domain, Domain)
        and release.domain.size <= MOST_NUMBERED
        and not release.domain.has_null
        and release.aggregate.reports is None
        and not any(isinstance(drawn.statistic, Matched) for drawn in release.statistics)
    )


def number_type(release: Release) -> Short:
    """As short as can be: of 8 bits, DuckDB sorts unit, hash and number in 8 bytes (duckdb/short_order.py)."""
    assert release.domain is not None
    return Short(8 if release.domain.size < 2**7 else 16)


def numbered_groups(release: Release) -> Query:
    """The public groups, numbered in the order of their keys."""
    assert release.domain is not None
    names = release.key_names
    place = Over(Fold("row_number"), (integer(1),), tuple(Ordered(Field(name)) for name in names))
    number = Named(cast(place, number_type(release)), GROUP)
    return select([*fields(names), number], domain_sql(release.domain, names))


def with_number(rows: Query, release: Release, names: Iterable[str]) -> Select:
    """The same rows with the number of their group in place of its keys; other keys are of no group."""
    meets = [test("=", Field(name, BELOW), Field(name, GROUPS)) for name in release.key_names]
    shown = fields([GROUP, *names])
    return Select(tuple(shown), Joined("INNER", Derived(rows, BELOW), Table(GROUPS), all_of(meets)))
