"""Plans a release again with the bounds that its noisy histograms give. Part of run_rounds.

Only noisy counts and public facts go in. The cost stays what was charged: the same part of the budget, allocated anew
among the measures. Any bounds are private; which ones are best only decides the error (mechanisms/auto_bounds.py).
docs/proofs/auto_bounds.md.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.aggregates.estimate import Formula, Linear, Ratio
from dpsql.aggregates.measure import CountUnits
from dpsql.aggregates.table import AGGREGATES
from dpsql.errors import Error, OperationalError
from dpsql.expressions.narrow import kept_properties
from dpsql.expressions.properties import range_of
from dpsql.intervals import for_all
from dpsql.mechanisms.auto_bounds import Histogram, Setting, Sides, Wish, best_bounds
from dpsql.mechanisms.registry import ADDITIVE
from dpsql.pipeline.allocate import SELECTING
from dpsql.pipeline.auto_bounds import FoundBounds, read_again, with_found
from dpsql.pipeline.calibrate_noise import with_noise
from dpsql.pipeline.choose_mechanism import noise_plan_within
from dpsql.pipeline.infer_sensitivity import infer_sensitivity
from dpsql.pipeline.plan_query import plan_query
from dpsql.pipeline.stored_answers import found_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np

    from dpsql.expressions.tree import Expression, Known
    from dpsql.pipeline.calibrate_noise import Calibrated, CalibratedRelease
    from dpsql.pipeline.environment import PublicEnvironment
    from dpsql.relation.relation import AggregateCall, BinnedBound

    Columns = Mapping[str, np.ndarray]

CLIPPED_SUMS = frozenset(name for name, function in AGGREGATES.items() if function.clip_power)
RANKS = 20.0
"""The typical rank error of a quantile, for one row per unit and one group."""
SURE = 0.999
"""The confidence that no empty bin of a histogram is taken for a filled one."""
SHY = 1 - Fraction(1, 2**40)
"""Rounding may make the parts of a cost add up to slightly more than the whole; this much less is sure to fit."""


def with_bounds(
    calibrated: Calibrated,
    number: int,
    drawn: Mapping[int, Columns | None],
    recalled: str | None,
    public: PublicEnvironment,
) -> Calibrated:
    """The query with the found bounds of one release."""
    auto_bounds = calibrated.releases[number].planned.auto_bounds
    if recalled is not None:
        return _within(calibrated, number, read_again(found_in(recalled), auto_bounds), public)
    for found in _ranked(calibrated, number, drawn):
        try:
            return _within(calibrated, number, found, public)
        except OperationalError:
            raise  # of the database, whatever the bounds are
        except Error:
            continue  # too much noise, or too much work: the next best
    return calibrated


def _within(calibrated: Calibrated, number: int, found: FoundBounds, public: PublicEnvironment) -> Calibrated:
    """Replaces one release, which keeps its cost and its name in the ledger."""
    made = made_again(calibrated, number, found, public)
    old = calibrated.releases[number]
    new = replace(
        made.releases[number],
        event=old.event,
        epsilon=old.epsilon,
        delta=old.delta,
        fingerprint=old.fingerprint,
        subject=old.subject,
    )
    kept = [new if place == number else release for place, release in enumerate(calibrated.releases)]
    return replace(
        made,
        request=calibrated.request,
        releases=tuple(kept),
        on_record=calibrated.on_record,
        noise_plan=calibrated.noise_plan,
        mechanism=calibrated.mechanism,
    )


def made_again(calibrated: Calibrated, number: int, found: FoundBounds, public: PublicEnvironment) -> Calibrated:
    """The query with these bounds of the release, at no more than the charged cost: that of each statistic, of each
    release, and the delta of each partition selection."""
    tracked = calibrated.tracked
    releases = [
        with_found(release, found) if place == number else release for place, release in enumerate(tracked.releases)
    ]
    chosen = calibrated.noise_plan
    price = replace(calibrated.request, statistic_epsilon=calibrated.statistic_epsilon)
    planned = plan_query(infer_sensitivity(replace(tracked, request=price, releases=tuple(releases)), public), public)
    totals = [chosen.part(place) * SHY for place in range(len(releases))]
    again = noise_plan_within(planned, chosen.mechanism, chosen.filter, totals)
    return with_noise(planned, again, calibrated.reason, public.schema.dataset, calibrated.reserved)


def _ranked(calibrated: Calibrated, number: int, drawn: Mapping[int, Columns | None]) -> Iterator[FoundBounds]:
    """The bounds that the histograms suggest, best first."""
    release = calibrated.releases[number]
    planned = release.planned.release
    found: dict[str, Histogram] = {}
    sides: dict[Expression, Sides] = {}
    bins: dict[Expression, BinnedBound] = {}
    for place, part in enumerate(calibrated.releases):
        binned, columns = part.planned.release.aggregate.binned, drawn[place]
        if binned is None or binned.release != number or columns is None:
            continue
        if binned.value is None:
            found[binned.what] = histogram_of(part, binned, columns)
        else:
            sides[binned.value], bins[binned.value] = _sides(part, binned, columns), binned
    values = [value for value, _ in release.planned.auto_bounds.values]
    setting = Setting(
        groups=planned.groups,
        rows=planned.rows,
        all_groups=None if planned.domain is None else planned.domain.size,
        threshold=release.threshold,
        variance_exponent=ADDITIVE[calibrated.noise_plan.mechanism].variance_exponent,
    )
    wishes = list(_wishes(release, values))
    best = best_bounds(found.get("rows"), found.get("groups"), [sides[value] for value in values], wishes, setting)
    for bounds in best:
        clips = tuple((value, _ends(bins[value], clip)) for value, clip in zip(values, bounds.clips, strict=True))
        yield FoundBounds(bounds.rows, bounds.groups, clips)


def _ends(binned: BinnedBound, clip: tuple[int | None, int | None]) -> tuple[Fraction, Fraction]:
    """The clip, within the search limits."""
    low, high = (Fraction(0) if edge is None else binned.bins[edge] for edge in clip)
    return max(binned.limits[0], binned.origin - low), min(binned.limits[1], binned.origin + high)


def histogram_of(release: CalibratedRelease, binned: BinnedBound, columns: Columns, first: int = 0) -> Histogram:
    """The noisy counts of all bins, in order."""
    (measure,) = release.measures
    counted = dict(zip(columns["_k0"].tolist(), columns[measure.bounded.column].tolist(), strict=True))
    bins = range(len(binned.bins))
    numbers = [float(counted.get(0 if edge == 0 else first + edge, 0)) for edge in bins]
    sure = measure.noise.half_width(for_all(SURE, len(counted))) << measure.shift
    return Histogram(tuple(map(float, binned.bins)), tuple(numbers), measure.std, float(sure))


def _sides(release: CalibratedRelease, binned: BinnedBound, columns: Columns) -> Sides:
    """The histograms of values below and above the origin; the bin next to it belongs to both."""
    (low, high), origin = binned.limits, binned.origin
    below = histogram_of(release, binned, columns, len(binned.bins)) if low < origin else None
    return Sides(histogram_of(release, binned, columns) if high > origin or below is None else None, below)


# -- what is asked for, and how exact it is at the bounds at hand ------------------------------------------------------


def _wishes(release: CalibratedRelease, values: list[Expression]) -> Iterator[Wish]:
    planned = release.planned.release
    stds = _stds(release)
    units = {part.column for part in planned.measures if isinstance(part.measure, CountUnits)}
    for call, answer in zip(planned.aggregate.calls, planned.answers, strict=True):
        estimate, value = answer.estimate, _value(call, values)
        power = AGGREGATES[call.name].clip_power or 1
        size = _size(call, planned.facts.surviving) ** power
        if isinstance(estimate, Linear) and {name for name, _ in estimate.weights} <= stds.keys():
            # Counted by their rows, units are the same at the bounds at hand, but not at others.
            of_units = call.distinct and {name for name, _ in estimate.weights} <= units
            noise = _std(estimate, stds)
            if value is None:
                yield Wish("units" if of_units else "rows", noise / size)
            else:
                yield Wish("sum", noise, value, power)
        elif isinstance(estimate, Ratio) or (isinstance(estimate, Formula) and estimate.parts):
            noise = _std(_summed(estimate, power), stds)
            yield Wish("average", noise / size) if value is None else Wish("mean", noise, value, power)
        else:
            yield Wish("rank", RANKS)
    if planned.partition_selection is not None:
        yield Wish("units", stds[planned.partition_selection], importance=SELECTING)


def _size(call: AggregateCall, known: Known) -> float:
    """The presumed contribution of one row to a sum of bounded values: half of the largest."""
    if not AGGREGATES[call.name].clip_power:
        return 1.0
    ends = range_of(kept_properties(call.arguments[0], known))
    return max(abs(float(end or 0)) for end in ends) / 2 or 1.0


def _stds(release: CalibratedRelease) -> dict[str, float]:
    """The noise of each measure, at the finest level."""
    stds = {part.bounded.column: part.std for part in release.measures}
    planned = release.planned.release
    finest = max(planned.levels, key=lambda level: len(level.kept)).measures if planned.levels else planned.measures
    return {one.column: stds[part.column] for one, part in zip(planned.measures, finest, strict=True)}


def _value(call: AggregateCall, values: list[Expression]) -> int | None:
    """The index of the clipped value that a measure sums."""
    return values.index(call.arguments[0]) if call.name in CLIPPED_SUMS and call.arguments[0] in values else None


def _summed(estimate: Ratio | Formula, power: int) -> Linear:
    """The sum whose noise decides: the numerator of a ratio, or the sum of powers of a moment."""
    if isinstance(estimate, Formula):
        return estimate.parts[min(power, len(estimate.parts) - 1)]
    middle = ((estimate.low or 0) + (estimate.high or 0)) / 2
    return estimate.above.plus(estimate.below, -Fraction(middle))


def _std(linear: Linear, stds: Mapping[str, float]) -> float:
    return math.hypot(*(float(weight) * stds.get(name, 0.0) for name, weight in linear.weights))
