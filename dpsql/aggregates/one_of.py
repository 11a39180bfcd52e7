"""Counts and sums of which parts may count: those whose values exclude each other and share one bound
(docs/proofs/exclusive.md), and those of units that are in too many groups (l2_clipping.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.aggregates.measure import (
    Centred,
    CountRows,
    CountUnits,
    CountUnitsWith,
    CountValues,
    OneOf,
    Scaled,
    SumValues,
)
from dpsql.expressions.exclusive import bundled

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dpsql.aggregates.measure import Measure
    from dpsql.expressions.exclusive import Place
    from dpsql.expressions.tree import Expression

FINE_BITS = 20
"""What a unit may add has so many bits at least, where parts of values are kept."""
LEAST_BESIDE_UNITS = 3
"""Where units are counted anyway, two cases are better off leaning on their number (docs/proofs/weights.md)."""


def exclusive_values(measures: Iterable[Measure], *, units_counted: bool) -> Mapping[Expression, Place]:
    """The values that are counted or summed and exclude others."""
    values = [part.argument for part in measures if isinstance(part, CountValues | SumValues) and _is_plain(part)]
    found = bundled(values)
    cases: dict[int, set[int]] = {}
    for bundle, case in found.values():
        cases.setdefault(bundle, set()).add(case)
    least = LEAST_BESIDE_UNITS if units_counted else 2
    return {value: place for value, place in found.items() if len(cases[place[0]]) >= least}


def one_of(measure: Measure, places: Mapping[Expression, Place], rows: int, *, row_by_row: bool) -> OneOf | None:
    """The measure as one of a bundle, if it is of one. Where rows are summed by themselves it has not to be finer."""
    if not isinstance(measure, CountValues | SumValues) or not _is_plain(measure) or measure.argument not in places:
        return None
    return OneOf(measure, *places[measure.argument], 1 if row_by_row else _finer(measure, rows))


def scaled(measure: Measure, groups: int, all_groups: int, rows: int) -> Scaled:
    """The measure on a grid that is fine enough for parts of it. docs/proofs/l2_clipping.md."""
    assert isinstance(measure, CountUnits | CountUnitsWith | CountRows | CountValues | SumValues | Centred)
    return Scaled(measure, groups, all_groups, _finer(measure, rows))


def _finer(measure: Measure, rows: int) -> int:
    return 1 << max(0, FINE_BITS - measure.linf(rows).bit_length())


def _is_plain(measure: CountValues | SumValues) -> bool:
    """Whether what a unit adds is the sum of what its values add, and no value adds nothing."""
    if isinstance(measure, CountValues):
        return measure.most is None
    return measure.group is None and not measure.null_is_zero
