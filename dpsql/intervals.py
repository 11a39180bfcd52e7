"""Error bars: an interval that contains the noise-free answer with a given probability.

A linear answer has the quantile of its noise. For a ratio N/D the interval is Fieller's: all t for which N - t D, whose
noise is known for every t, is no farther from 0 than chance allows. Both are exact statements about the noise; what
clamping and sampling did to the data before is not theirs to know. docs/proofs/intervals.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from dpsql.aggregates.estimate import Linear, Ratio, Reported, SmoothFunction, WithError
from dpsql.mechanisms import combined
from dpsql.mechanisms.additive import Noise
from dpsql.mechanisms.selective import ShownCount

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from dpsql.mechanisms.left_out import LeftOut

NoisyColumns: TypeAlias = Mapping[str, tuple[Noise | combined.Combined, int]]
"""By measure its noise, and how many of the column's units one step of the noise is."""
Thresholds: TypeAlias = Mapping[str, int]
"""By measure the least noisy value with which a group is shown, in the column's units."""
NO_THRESHOLDS: Thresholds = MappingProxyType({})
Offsets: TypeAlias = tuple[float, float]
"""How far the truth may lie from the noisy value: at least, which is 0 or negative, and at most."""
Noises: TypeAlias = tuple[Noise | combined.Combined, ...]

GRID = 100
"""Variances are rounded up to such parts of the largest, so that few different quantiles have to be computed."""
CLOSE = 1e-4
"""The part of itself by which the distance to an end may be too long."""
STRAIGHT = 0.25
"""A function that bends by more than this part of its error bar, over two standard deviations, has none."""
MANY = 8
"""So many standard deviations of noise a count has at least, where something is divided by it."""
FARTHEST = 2.0**60
"""Beyond this an end is infinite."""
TINY = 1e-9
"""The least first step towards an end."""
NEVER = 1e-100
"""Noise of a smaller standard deviation is 0, as far as any level can tell: P[X != 0] is at most its square."""
NOTHING = 1e-300
"""Less than this and more than 0 is nothing that anybody could ask for."""


def for_all(level: float, rows: int) -> float:
    """The level at which each of several intervals must hold so that all hold at `level` (Bonferroni)."""
    return 1 - (1 - level) / max(1, rows)


def half_width(estimate: WithError | None, noises: NoisyColumns, level: float) -> float | None:
    """The same for every row, so known before the query runs; None for a ratio, or where no error is known."""
    return _linear(estimate, noises, level) if isinstance(estimate, Linear) and _known(estimate, noises) else None


def interval(
    estimate: WithError,
    value: float,
    measures: Mapping[str, Any],
    noises: NoisyColumns,
    level: float,
    thresholds: Thresholds = NO_THRESHOLDS,
) -> tuple[float, float] | None:
    """Around one noisy value. `measures` are the noisy measures of its row, where the estimate is a ratio or reads a
    count that selects groups; `thresholds` are those of such counts."""
    if isinstance(estimate, Reported):
        width = _reported(estimate, measures, level)
        return value - width, value + width
    near = _near(measures, noises, thresholds, level)
    if isinstance(estimate, SmoothFunction):
        is_near = any(name in near for part in estimate.parts for name, _ in part.weights)
        return None if is_near else _smooth(estimate, measures, noises, level)
    if not _known(estimate, noises):
        return None
    if isinstance(estimate, Linear):
        low, high = _offsets(estimate, noises, level, near)
        return value + low, value + high
    return _in_range(*_fieller(estimate, measures, noises, level, near), estimate.low, estimate.high)


def interval_with_left_out(
    estimate: Linear | Ratio,
    value: float,
    measures: Mapping[str, Any],
    noises: NoisyColumns,
    level: float,
    thresholds: Thresholds,
    left_out: LeftOut,
) -> tuple[float, float] | None:
    """The same, and what bounding left out. The risk that the interval misses is shared by the two."""
    if isinstance(estimate, Ratio):
        most, shared = left_out.most(for_all(level, 2)), for_all(level, 2)
        near = _near(measures, noises, thresholds, shared)
        found = _fieller(estimate, measures, noises, shared, near, most)
        return _in_range(*found, estimate.low, estimate.high)
    # An end that nothing was left out of is where noise alone has it; the other one shares its half of the risk.
    shared = for_all(level, 2)
    alone, wider = (interval(estimate, value, measures, noises, at, thresholds) for at in (level, shared))
    if alone is None or wider is None:
        return None
    most = left_out.most(for_all(level, 2 if left_out.low < 0 < left_out.high else 4))
    low = wider[0] + most * left_out.low if left_out.low < 0 else alone[0]
    return low, wider[1] + most * left_out.high if left_out.high > 0 else alone[1]


def ends(
    estimate: Linear | Ratio,
    rows: Iterable[Mapping[str, int | None]],
    noises: NoisyColumns,
    level: float,
    thresholds: Thresholds = NO_THRESHOLDS,
) -> Iterator[tuple[float, float] | None]:
    """The interval around the estimate itself, for each row of noisy measures; None where the answer is NULL."""
    used = _parts(estimate)
    known = used <= noises.keys()
    for row in rows:
        # What a test refused is None.
        measures = {name: value for name in used if (value := row.get(name)) is not None}
        is_known = known and len(measures) == len(used)
        yield _around(estimate, measures, noises, level, thresholds) if is_known else None


def _around(
    estimate: Linear | Ratio, measures: Mapping[str, int], noises: NoisyColumns, level: float, thresholds: Thresholds
) -> tuple[float, float] | None:
    if isinstance(estimate, Linear):
        value, constant = _value(estimate, measures), float(estimate.constant)
        answer = round(value - constant) + constant if estimate.is_whole else value
        return interval(estimate, answer, measures, noises, level, thresholds)
    below = _value(estimate.below, measures)
    # A quotient that the analyst wrote has a value unless it is by zero, an average only where there are rows for sure.
    answered = below > _margin(estimate, noises) or (below < 0 and estimate.low is None)
    return interval(estimate, math.nan, measures, noises, level, thresholds) if answered else None


def _in_range(
    low: float, high: float, least: Fraction | float | None, most: Fraction | float | None
) -> tuple[float, float]:
    """The interval, cut to the answer's range. Outside the range it keeps its width and starts at the range's end."""
    start, end = -math.inf if least is None else float(least), math.inf if most is None else float(most)
    if high < start:
        low, high = start, start + (high - low)
    elif low > end:
        low, high = end - (high - low), end
    return max(low, start), min(high, end)


def _near(
    measures: Mapping[str, int], noises: NoisyColumns, thresholds: Thresholds, level: float
) -> dict[str, tuple[ShownCount, int]]:
    """The counts of this row whose noise may have decided that the row is shown, with their values in steps."""
    found = {}
    for name in thresholds.keys() & measures.keys():
        noise, unit = noises[name]
        assert not isinstance(noise, combined.Combined)  # levels of which groups are hidden are not made consistent
        count, value = ShownCount(noise, -(-thresholds[name] // unit)), measures[name] // unit
        if count.is_near(value, level):
            found[name] = count, value
    return found


def _reported(estimate: Reported, measures: Mapping[str, float], level: float) -> float:
    """Coins of many people and perhaps some noise."""
    quantile = _quantile(level, measures[estimate.kurtosis])
    return abs(float(estimate.factor)) * measures[estimate.standard_error] * quantile


def _smooth(
    estimate: SmoothFunction, measures: Mapping[str, int], noises: NoisyColumns, level: float
) -> tuple[float, float] | None:
    """The interval by the delta method, if the function is nearly linear over the noise of its parts; else None.

    The first part is a count.
    """
    if not all(_known(part, noises) for part in estimate.parts):
        return None
    values = [_value(part, measures) for part in estimate.parts]
    stds = [_std(part, noises) for part in estimate.parts]
    if values[0] < MANY * stds[0]:
        return None
    tangent, bend = Linear(()), 0.0
    try:
        variances = [std**2 for std in stds]
        middle = estimate.value(values, variances)
        for number, (part, std) in enumerate(zip(estimate.parts, stds, strict=True)):
            if std:
                tangent = tangent.plus(part, Fraction(estimate.slope(values, variances, number, std / 100)))
            far = (estimate.value(_moved(values, number, side * std), variances) for side in (-2, 2))
            bend += abs(sum(far) - 2 * middle) / 2
    except (ArithmeticError, ValueError):
        return None
    width = _nearly_normal(tangent, noises, level)
    if not width or bend > STRAIGHT * width:
        return None
    return _in_range(middle - width - bend, middle + width + bend, estimate.low, estimate.high)


def _nearly_normal(linear: Linear, noises: NoisyColumns, level: float) -> float:
    """A quantile of several noises together, by their kurtosis: no two rows have the same weights."""
    terms = _terms(linear, noises)
    sums = [weight * noise.std for weight, noise in terms if isinstance(noise, combined.Combined)]
    others, _ = combined.independent(
        [(weight, noise) for weight, noise in terms if not isinstance(noise, combined.Combined)]
    )
    total = math.fsum(std**2 for std in (*sums, *(weight * noise.std for weight, noise in others)))
    if not total:
        return 0.0
    kurtosis = math.fsum(noise.kurtosis * ((weight * noise.std) ** 2 / total) ** 2 for weight, noise in others)
    return _quantile(level, kurtosis) * math.sqrt(total)


def _quantile(level: float, kurtosis: float) -> float:
    """The quantile of a nearly normal distribution (Cornish and Fisher)."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    return max(z + (z**3 - 3 * z) / 24 * kurtosis, 0.0)


def _moved(values: list[float], number: int, step: float) -> list[float]:
    return [value + step * (place == number) for place, value in enumerate(values)]


def _std(linear: Linear, noises: NoisyColumns) -> float:
    return math.hypot(*(weight * noise.std for weight, noise in _terms(linear, noises)))


def _terms(linear: Linear, noises: NoisyColumns) -> list[tuple[float, Noise | combined.Combined]]:
    """The noises in the sum, with their weights."""
    return [(float(weight) * noises[name][1], noises[name][0]) for name, weight in linear.weights]


def _known(estimate: Linear | Ratio, noises: NoisyColumns) -> bool:
    """Whether every part has a noise that everybody knows; a quantile that was chosen has none."""
    return _parts(estimate) <= noises.keys()


def _parts(estimate: Linear | Ratio) -> set[str]:
    """The columns that the estimate reads."""
    sides = (estimate,) if isinstance(estimate, Linear) else (estimate.above, estimate.below)
    return {name for side in sides for name, _ in side.weights}


def _linear(linear: Linear, noises: NoisyColumns, level: float) -> float:
    return _rounded(linear, _width(_terms(linear, noises), level))


def _rounded(linear: Linear, width: float) -> float:
    # Of whole numbers, what is within this much before rounding is within so many after it.
    return math.floor(width + 0.5) if linear.is_whole else width + float(linear.rounding)


def _offsets(linear: Linear, noises: NoisyColumns, level: float, near: Mapping[str, tuple[ShownCount, int]]) -> Offsets:
    """How far the truth may lie from the noisy sum, of which the counts in `near` select the row.

    These and all others hold at a level at which both do at the level asked for (Bonferroni).
    """
    selecting = [(name, weight) for name, weight in linear.weights if name in near]
    if not selecting:
        width = _linear(linear, noises, level)
        return -width, width
    others = [(name, weight) for name, weight in linear.weights if name not in near]
    level = for_all(level, len(selecting) + bool(others))
    width = _width(_terms(Linear(tuple(others)), noises), level)
    low, high = -width, width
    for name, weight in selecting:
        count, value = near[name]
        ends = [float(weight) * noises[name][1] * (end - value) for end in count.interval(value, level)]
        low, high = low + min(ends), high + max(ends)
    return -_rounded(linear, -low), _rounded(linear, high)


def _width(terms: Sequence[tuple[float, Noise | combined.Combined]], level: float) -> float:
    """The half-width for a weighted sum of noises."""
    noises = tuple(noise for _, noise in terms)
    if len(noises) == 1:
        return abs(terms[0][0]) * _width_of_one(noises, level)
    stds = [abs(weight) * std for (weight, _), std in zip(terms, _stds(noises), strict=True)]
    largest = max(stds, default=0.0)
    if not largest:
        return 0.0
    return largest * _normalised(noises, tuple(math.ceil(GRID * (std / largest) ** 2) for std in stds), level)


@lru_cache(maxsize=4096)
def _width_of_one(noises: Noises, level: float) -> float:
    return combined.half_width([(1.0, noise) for noise in noises], level)


@lru_cache(maxsize=4096)
def _stds(noises: Noises) -> list[float]:
    return [noise.std if noise.std > NEVER else 0.0 for noise in noises]


@lru_cache(maxsize=4096)
def _normalised(noises: Noises, steps: tuple[int, ...], level: float) -> float:
    """Where the largest variance is 1, and each one a number of steps of the grid."""
    scaled = zip(steps, noises, _stds(noises), strict=True)
    return combined.half_width([(math.sqrt(step / GRID) / std, noise) for step, noise, std in scaled if step], level)


def _fieller(
    ratio: Ratio,
    measures: Mapping[str, int],
    noises: NoisyColumns,
    level: float,
    near: Mapping[str, tuple[ShownCount, int]],
    left_out: float = 0.0,
) -> tuple[float, float]:
    """`left_out` rows at most, each between the ends of the ratio's range, are in neither side."""
    above, below = _value(ratio.above, measures), _value(ratio.below, measures)
    low, high = _offsets(ratio.below, noises, level, near)
    margin = _margin(ratio, noises)
    if below + low <= margin and below + high >= 0:
        # The divisor may be 0 or of the other sign: then no ratio is ruled out. An average is shown because noise took
        # its count beyond the margin, or may be: so little farther nothing is ruled out either.
        return -math.inf, math.inf

    over, under = ({name: float(weight) for name, weight in side.weights} for side in (ratio.above, ratio.below))
    parts = [(over.get(name, 0.0), under.get(name, 0.0), *noises[name]) for name in over | under]

    def beyond(t: float) -> float:
        """How much farther from 0 the difference is than chance, and what is left out, allow."""
        difference = above - t * below
        if near:
            low, high = _offsets(_difference(ratio, t), noises, level, near)
        else:
            high = _width([((up - t * down) * units, noise) for up, down, noise, units in parts], level)
            low = -high
        less, more = _of_rows(ratio, t, left_out)
        return max(difference + low - more, less - difference - high)

    middle = above / below
    step = max(-beyond(middle) / abs(below), abs(middle) * TINY, TINY)
    return _edge(beyond, middle, -step), _edge(beyond, middle, step)


def _margin(ratio: Ratio, noises: NoisyColumns) -> float:
    return ratio.margin({name: noises[name][0].std * noises[name][1] for name in ratio.weighed})


def _of_rows(ratio: Ratio, t: float, rows: float) -> tuple[float, float]:
    """The difference that counts miss if up to so many rows are in neither side: they would have added its negative."""
    if not rows or ratio.low is None or ratio.high is None:
        return 0.0, 0.0
    return -rows * max(0.0, float(ratio.high) - t), rows * max(0.0, t - float(ratio.low))


def _difference(ratio: Ratio, t: float) -> Linear:
    """The numerator less t times the denominator, without their rounding."""
    difference = ratio.above.plus(ratio.below, -Fraction(t))
    return Linear(difference.weights, difference.constant)


def _value(linear: Linear, measures: Mapping[str, int]) -> float:
    return float(linear.constant + sum(weight * measures[name] for name, weight in linear.weights))


def _edge(beyond: Callable[[float], float], inside: float, step: float) -> float:
    """The end of the plausible values in one direction: outward in growing steps, then closing in on it."""
    while (over := beyond(inside + step)) <= 0:
        step *= 2
        if abs(step) > FARTHEST:
            return math.copysign(math.inf, step)
    # The middle is plausible, also where it is off by more than so little noise as doubles are rounded.
    low, under, high = 0.0, min(beyond(inside), 0.0), step
    # Where noise has no width the end is the middle itself, as near as doubles are to each other.
    while abs(high - low) > max(CLOSE * abs(high), math.ulp(inside), NOTHING):
        # Nearly straight, so that the chord meets it nearby; a hundredth further, both ends close in.
        chord = low + (high - low) * min(max(-under / (over - under) + 0.01, 0.1), 0.9)
        found = beyond(inside + chord)
        low, under, high, over = (chord, found, high, over) if found <= 0 else (low, under, chord, found)
    return inside + high
