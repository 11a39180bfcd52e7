"""Strategies for computing counts and sums such that no unit moves them further than claimed.

Each strategy bounds what one unit contributes in its own way, and is the first of STRATEGIES that fits the release:

| strategy | of each unit |
|---|---|
| one row per unit | its one row counts |
| down-weighted rows | all rows count; of too many each counts for a part |
| L2-clipped | all groups count; in too many each counts for a part |
| ranked groups | the first groups by a keyed hash count, and in each of them so many rows |
| all groups kept | all groups count, and in each of them so many rows |

Where groups are public, units with few rows in all need no bound: their rows are summed as they are (heavy_units.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from dpsql.aggregates.disjoint import cases_of_rows, values_of_bundles
from dpsql.aggregates.heavy_units import NUMBER, light_and_heavy
from dpsql.aggregates.measure import (
    SCALE,
    ClippedInL2,
    CountRows,
    CountUnits,
    CountUnitsWith,
    CountValues,
    Disjoint,
    DownWeighted,
    OverDistinct,
    Recentred,
    SumValues,
    UnitsBeyond,
)
from dpsql.aggregates.partials import summed_by, value_rows, with_columns
from dpsql.engine_sql.build import (
    BELOW,
    LONG,
    UNIT,
    WIDE,
    apply,
    cast,
    count,
    fields,
    integer,
    select,
    test,
    total,
    when,
    wide,
)
from dpsql.engine_sql.tree import CTE, Alias, Field, Joined, Select, SetOperation, Subquery, Table, With
from dpsql.expressions.casts import LARGEST_BITS, saturated
from dpsql.relation.domain import ListedKeys
from dpsql.relation.sql import domain_sql
from dpsql.schema.types import Integer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpsql.aggregates.heavy_units import LightAndHeavy
    from dpsql.aggregates.measure import ByUnit
    from dpsql.aggregates.partials import Summed
    from dpsql.aggregates.release import Release
    from dpsql.aggregates.release_sql import ReleaseWriter
    from dpsql.engine_sql.tree import Query, Term

# -- strategies --------------------------------------------------------------------------------------------------------


class Strategy(ABC):
    name: ClassVar[str]

    @abstractmethod
    def fits(self, release: Release) -> bool:
        """Whether this strategy applies, given that no earlier one does."""

    @abstractmethod
    def sums(self, writer: ReleaseWriter) -> Query:
        """The keys and, for each group, the sums of all measures."""


class OneRowPerUnit(Strategy):
    """The database keeps units unique, so rows are summed directly. docs/proofs/bounding.md, "One row per unit"."""

    name = "one row per unit"

    def fits(self, release: Release) -> bool:
        return release.one_row_per_unit

    def sums(self, writer: ReleaseWriter) -> Query:
        summed = summed_by(writer, writer.by_unit_measures())
        return _sums_of_rows(writer, summed, value_rows(writer, summed))


class DownWeightedRows(Strategy):
    """If a unit has n > `most` rows, each of them counts most / n, in any group.

    docs/proofs/light_units.md, "Where the L1 norm is all that matters".
    """

    name = "down-weighted rows"

    def fits(self, release: Release) -> bool:
        return release.is_down_weighted

    def sums(self, writer: ReleaseWriter) -> Query:
        measures = {
            part.column: part.measure for part in writer.release.measures if isinstance(part.measure, DownWeighted)
        }
        (most,) = {part.most for part in measures.values()}
        summed = summed_by(writer, [(name, part.inner) for name, part in measures.items()])
        rows = light_and_heavy(writer, summed, most)
        keys = writer.key_names
        clamped = select([*fields([NUMBER, *keys]), *summed.clamped], rows.heavy)
        cases = with_columns(clamped, [NUMBER, *keys, *summed.values], list(cases_of_rows(summed.measures)))
        parts = [Alias(_part(part, summed.values_of(name)), name) for name, part in measures.items()]
        heavy = select([*writer.shown_keys, *parts], cases)
        return _with_light(writer, summed, rows, heavy, {name: part.finer for name, part in measures.items()})


class _ByUnitAndGroup(Strategy):
    """Rows are summed by unit and group, and each of these partial sums is bounded."""

    def sums(self, writer: ReleaseWriter) -> Query:
        summed, few = summed_by(writer, writer.by_unit_measures()), writer.release.light_rows
        if few is None:
            return writer.by_keys(summed.totals, self._bounded(writer, summed, value_rows(writer, summed)))
        rows = light_and_heavy(writer, summed, few)
        return _with_light(writer, summed, rows, self._bounded(writer, summed, _of_groups(writer, summed, rows.heavy)))

    def _bounded(self, writer: ReleaseWriter, summed: Summed, rows: Query) -> Query:
        """The bounded contribution of each unit to each group."""
        kept = [Alias(part.bounded(name, writer.release.rows), name) for name, part in summed.measures]
        return select([*writer.shown_keys, *kept], self._partials(writer, summed, rows))

    def _partials(self, writer: ReleaseWriter, summed: Summed, rows: Query) -> Query:
        return _by_unit(writer, summed, rows)


class L2Clipped(_ByUnitAndGroup):
    """A unit in n groups counts for sqrt(groups / n) in each, where n is more than `groups`.

    docs/proofs/l2_clipping.md.
    """

    name = "L2-clipped"

    def fits(self, release: Release) -> bool:
        return any(part.is_l2_clipped for part in release.measures)

    def _partials(self, writer: ReleaseWriter, summed: Summed, rows: Query) -> Query:
        """The partials, each with the part that counts of its unit. To join them takes less time than to sort them."""
        names = [UNIT, *writer.key_names, *(partial.name for partial in summed.partials)]
        scaled = next(part for _, part in summed.measures if isinstance(part, ClippedInL2))
        reached = Select((*fields([UNIT]), Alias(count(), REACHED)), Table(PARTIALS), group_by=(Field(UNIT),))
        scale = Alias(scaled.scale(Field(REACHED, kind=Integer())), SCALE)
        scales = Subquery(select([*fields([UNIT]), scale], reached), SCALES)
        beside = Joined("INNER", Table(PARTIALS), scales, test("=", Field(UNIT, PARTIALS), Field(UNIT, SCALES)))
        columns = *(Alias(Field(name, PARTIALS), name) for name in names), *fields([SCALE])
        partials = CTE(PARTIALS, _by_unit(writer, summed, rows), kept=True)
        return With((partials,), Select(columns, beside))


class RankedGroups(_ByUnitAndGroup):
    """A unit counts in its first groups by a keyed hash. docs/proofs/bounding.md, "At most g groups"."""

    name = "ranked groups"

    def fits(self, release: Release) -> bool:
        return release.ranked

    def _partials(self, writer: ReleaseWriter, summed: Summed, rows: Query) -> Query:
        """Ranked before they are clamped: what is left out needs none of it."""
        return _by_unit(writer, summed, writer.first_groups(rows, [UNIT, *writer.key_names, *summed.values]))


class AllGroupsKept(_ByUnitAndGroup):
    """There are no more groups than a unit may be in. docs/proofs/bounding.md."""

    name = "all groups kept"

    def fits(self, release: Release) -> bool:
        return True


STRATEGIES: tuple[Strategy, ...] = (OneRowPerUnit(), DownWeightedRows(), L2Clipped(), RankedGroups(), AllGroupsKept())


def has_sums(release: Release) -> bool:
    """Whether anything is counted or summed over people; groups alone are a count of nothing."""
    if not release.measures:
        return not release.statistics
    return not all(isinstance(part.measure, OverDistinct) for part in release.measures)


def strategy_of(release: Release) -> Strategy:
    return next(strategy for strategy in STRATEGIES if strategy.fits(release))


# -- rows by unit and group --------------------------------------------------------------------------------------------

PARTIALS, SCALES, LISTED = "_partials", "_scales", "_listed"
REACHED = "_reached"
"""In how many groups a unit is."""


def _by_unit(writer: ReleaseWriter, summed: Summed, rows: Query) -> Query:
    """The counts and sums of each unit in each group, with any other values needed to bound them."""
    shown, partials = [*fields([UNIT]), *writer.shown_keys], summed.partials
    clamped = select([*shown, *summed.clamped], rows)
    by_unit = select([*shown, *partials], clamped, group_by=[writer.unit, *writer.keys])
    seen = [UNIT, *writer.key_names, *(partial.name for partial in partials)]
    return with_columns(by_unit, seen, list(values_of_bundles(summed.measures)))


def _of_groups(writer: ReleaseWriter, summed: Summed, rows: Query) -> Query:
    """The rows of public groups: others take no place among the groups that count."""
    domain = writer.release.domain
    assert domain is not None
    if not (writer.release.ranked and (writer.listed_keys or isinstance(domain, ListedKeys))):
        return rows
    listed = Subquery(domain_sql(domain, writer.key_names), LISTED)
    names = UNIT, *writer.key_names, *summed.values
    shown = tuple(Alias(Field(name, BELOW), name) for name in names)
    return Select(shown, Joined("INNER", Subquery(rows, BELOW), listed, writer.same_keys(BELOW, LISTED)))


# -- rows as they are --------------------------------------------------------------------------------------------------


def _sums_of_rows(writer: ReleaseWriter, summed: Summed, rows: Query, finer: Mapping[str, int] | None = None) -> Query:
    """Sums over rows that count in full, `finer` times each. The centre is taken from the whole sum."""
    clamped = [Alias(part.input(value), name) for name, part, value in summed.stored]
    cases = list(cases_of_rows(summed.measures))
    counted = with_columns(select([*writer.shown_keys, *clamped], rows), [*writer.key_names, *summed.values], cases)
    found = {name: _row_total(summed.values_of(name), part) for name, part in summed.measures}
    for name, times in (finer or {}).items():
        found[name] = apply("*", wide(found[name]), integer(times), kind=WIDE)
    return writer.by_keys([Alias(saturated(value), name) for name, value in found.items()], counted)


def _with_light(
    writer: ReleaseWriter, summed: Summed, rows: LightAndHeavy, heavy: Query, finer: Mapping[str, int] | None = None
) -> Query:
    """Sums over the bounded contributions of heavy units, and over all rows of light units."""
    light = _sums_of_rows(writer, summed, rows.light, finer)
    both = SetOperation("UNION ALL", light, writer.by_keys(summed.totals, heavy))
    return With(rows.parts, writer.by_keys(summed.totals, both))


def _row_total(column: str, measure: ByUnit) -> Term:
    """The sum of a measure over rows that count individually."""
    match measure:
        case CountUnits() | CountRows():
            return count()
        case CountUnitsWith() | CountValues():
            return count(Field(column))
        case SumValues():
            value = Field(column, kind=measure.decimal or Integer())
            clamped = when(test("is not null", value), measure.clamped(value, 1)) if measure.group else value
            return measure.sum_centred(clamped)
        case Recentred(inner):
            return measure.moved(apply("coalesce", _row_total(column, inner), integer(0)), count(), 1)
        case Disjoint(inner):
            # A row counts for its first case alone, whatever an engine makes of the conditions.
            kind = inner.decimal if isinstance(inner, SumValues) else None
            own = when(test("=", Field(measure.case_of_row), integer(measure.case)), Field(column, kind=kind))
            return count(own) if isinstance(inner, CountValues) else inner.sum_centred(own)
        case ClippedInL2():
            raise AssertionError("one row is in one group, and counts in full")
        case UnitsBeyond(SumValues()):
            return total(measure.outside(Field(column, kind=Integer()), 1))
        case UnitsBeyond():
            return integer(0)  # one row is never too many


def _part(measure: DownWeighted, values: str) -> Term:
    """The contribution of one of n rows: most / n of its value; NULL if it has no value or belongs to another case."""
    inner = measure.inner.inner if isinstance(measure.inner, Disjoint) else measure.inner
    kind = LONG if measure.linf(measure.most).bit_length() < LARGEST_BITS else WIDE
    value = cast(Field(values, kind=inner.kind), kind) if isinstance(inner, SumValues) else integer(1)
    most = apply("*", value, integer(measure.most * measure.finer), kind=kind)
    added: Term = apply("//", most, Field(NUMBER, kind=LONG), kind=kind)
    if isinstance(measure.inner, Disjoint):
        added = when(test("=", Field(measure.inner.case_of_row), integer(measure.inner.case)), added)
    return when(test("is not null", Field(values)), added) if isinstance(inner, CountValues) else added
