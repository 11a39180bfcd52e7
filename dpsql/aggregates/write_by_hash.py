"""Sums of units whose groups are ranked by a hash alone, so that texts are not sorted. docs/proofs/bounding.md.

    ranked    the rows, each with the rank of its group among those of its unit, and whether it is alone up to there
    partials  for each unit and rank the counts and sums, under the least key; for each key, without a rank, those of
              all rows that are alone

A row that is alone in its rank is all that its unit has in that group, so it counts as it is. Mostly all are: to sum
each up by itself would take half as long as to rank them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.aggregates.disjoint import values_of_bundles
from dpsql.aggregates.measure import Centred, CountRows, CountUnits, CountUnitsWith, CountValues, SumValues
from dpsql.aggregates.partials import TOGETHER, partials_of_both, sums_of_one, uncut, with_columns
from dpsql.aggregates.release import GROUP_RANK, MANY_GROUPS
from dpsql.engine_sql.build import UNIT, all_of, count, fields, select, test, when
from dpsql.engine_sql.tree import Field, Fold, Named, Ordered, Over
from dpsql.schema.types import Integer, Text

if TYPE_CHECKING:
    from dpsql.aggregates.measure import ByUnit
    from dpsql.aggregates.partials import Summed
    from dpsql.aggregates.release_sql import Writer
    from dpsql.engine_sql.tree import Query, Select, Term

HASH, ALONE = "_hash", "_alone"
SOME_GROUPS = 4
"""Of fewer groups of a unit so few rows are left that it does not matter how they are summed."""
FEW_ROWS = 8
"""Where no more rows of a unit may count in a group, most units are expected to have one there."""


def may_be_ranked_by_hash(writer: Writer) -> bool:
    """Whether a group is known by its rank, and that by a hash alone.

    Groups of a unit whose hashes tie share a rank and are one group, that of the least key: a unit is in no more groups
    for it. With one key it is in none of them twice, since equal keys of one unit have one hash: of texts and whole
    numbers that is sure. Other branches would rank these groups one by one.
    """
    release = writer.release
    return (
        release.ranked_by_row
        and release.groups < MANY_GROUPS
        and len(writer.keys) == 1
        and all(isinstance(part.kind, Integer | Text) for part in (writer.unit, *writer.keys))
        and not (release.statistics or writer.distinct_bases())
    )


def bounded_by_hash(writer: Writer, summed: Summed, rows: Query) -> Select:
    """The keys, and what of these rows counts there."""
    (key,), groups, most = writer.keys, writer.release.groups, writer.release.rows
    # Before they are ranked: a value has half as many bits then.
    hashed = Named(writer.hashed([key]), HASH)
    clamped = select([*fields([UNIT, key.name]), *summed.clamped, hashed], rows)
    shown = [*fields([UNIT, key.name, *summed.values]), Named(_over(writer, "dense_rank"), GROUP_RANK)]
    kept = {name: part.bounded(name, most) for name, part in summed.measures}
    if groups >= SOME_GROUPS and most <= FEW_ROWS and all(_adds_up(part) for _, part in summed.measures):
        partials = _beside_alone(writer, summed, select([*shown, Named(_alone(writer), ALONE)], clamped))
        is_alone = test("is null", Field(GROUP_RANK))
        kept = {name: when(is_alone, uncut(name, part, most), kept[name]) for name, part in summed.measures}
    else:
        partials = _of_units(writer, summed, select(shown, clamped))
    return select([*writer.shown_keys, *(Named(value, name) for name, value in kept.items())], partials)


def _over(writer: Writer, place: str, *arguments: Term) -> Over:
    """All are over the same window, and so see the rows of a unit in the same order, even those whose hashes tie."""
    return Over(Fold(place, arguments), (writer.unit,), (Ordered(Field(HASH)),))


def _alone(writer: Writer) -> Term:
    """Whether a row, and every one before it, is the only one with its hash."""
    all_before = test("=", _over(writer, "row_number"), _over(writer, "dense_rank"))
    return all_of([all_before, test("different", _over(writer, "lead", Field(HASH)), Field(HASH))])


def _adds_up(measure: ByUnit) -> bool:
    """Whether what many units add that have one row each follows from the sum of these rows."""
    match measure:
        case CountUnits() | CountUnitsWith() | CountRows() | CountValues():
            return True
        case SumValues(group=group):
            return group is None
        case Centred(inner):
            return _adds_up(inner)
        case _:
            return False


def _of_units(writer: Writer, summed: Summed, ranked: Query) -> Query:
    """The partials of each unit and rank."""
    (key,), partials = writer.keys, summed.partials
    by_unit = select([_least(key), *partials], ranked, writer.in_first_groups, [writer.unit, Field(GROUP_RANK)])
    seen = [key.name, *(partial.name for partial in partials)]
    return with_columns(by_unit, seen, list(values_of_bundles(summed.measures)))


def _beside_alone(writer: Writer, summed: Summed, ranked: Query) -> Query:
    """The partials of each unit and rank, and without a rank those of each key in rows that are alone."""
    (key,), partials = writer.keys, [Named(count(), TOGETHER), *partials_of_both(summed)]
    is_alone = Field(ALONE)
    unit, rank = (when(test("not", is_alone), part) for part in (writer.unit, Field(GROUP_RANK)))
    by_unit = select(
        [Named(rank, GROUP_RANK), _least(key), *partials],
        ranked,
        writer.in_first_groups,
        [unit, rank, when(is_alone, key)],
    )
    seen = [GROUP_RANK, key.name, *(partial.name for partial in partials)]
    return select([*fields(seen), *sums_of_one(summed)], by_unit)


def _least(key: Field) -> Named:
    return Named(Fold("min", (key,), kind=key.kind), key.name)
