"""Budget allocation: the part of the query's budget that each measure gets.

Measures serve columns, which are what people read. The parts minimise the geometric mean of the columns' errors. With
`weights=` they minimise the largest ratio of a column's error, times its weight, to the error that it would have alone;
with `accuracy=` the largest ratio to its target. docs/proofs/weights.md.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from dpsql.aggregates.estimate import Formula, Linear, Ratio, SmoothFunction
from dpsql.errors import ProgrammingError, did_you_mean
from dpsql.mechanisms.additive import Box

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from dpsql.aggregates.estimate import Estimate
    from dpsql.aggregates.release import Bounded, Release
    from dpsql.mechanisms.additive import AdditiveMechanism, BundlePlace
    from dpsql.pipeline.plan_query import Planned, PlannedRelease

MeasurePlace: TypeAlias = tuple[int, str]
"""The place of a measure: the number of its release, and its column."""

SELECTING = 0.25
"""The importance of the partition-selection count, relative to a column of the answer."""
LEAST_FOR_SELECTION = 0.25
"""The least part of its release's budget for the partition-selection count."""
LARGEST = 1e100
"""The largest ratio of weights, whose squares must stay finite."""
STEP = 1e-6
"""The relative step of numerical derivatives."""
TOTAL = 1 / 6
"""How much a column matters in the totals of one level, beside the same column in the groups: there are fewer of them,
and each of them is larger."""
DIAGNOSING = Fraction(1, 20)
"""The part of the cost that `diagnose` takes."""
AUTO_BOUNDS = Fraction(1, 10)
"""The part of the cost that `"auto"` bounds take."""


@dataclass(frozen=True)
class Wanted:
    """A column of the answer: the squared factors by which the noise of measures enters it."""

    squares: Mapping[MeasurePlace, float]
    importance: float = 1.0

    def log_variance(self, stds: Mapping[MeasurePlace, float]) -> float:
        return math.log(max(math.fsum(square * stds[place] ** 2 for place, square in self.squares.items()), 1e-300))


def allocated(
    planned: Planned, columns: Sequence[Wanted], kind: AdditiveMechanism, aims: Sequence[Wanted] = ()
) -> tuple[tuple[Fraction, ...], ...]:
    """The parts of the measures of each release that serve these columns best; all parts add up to 1.

    With `aimed` columns, in units of their target errors, it minimises the largest error.
    """
    # In L1, for Laplace noise, one unit moves groups * each in all; in L2, for Gaussian, sqrt(groups) * each.
    variance_exponent = kind.variance_exponent
    moved = {
        (number, part.column): float(part.groups) ** variance_exponent
        * float(part.each) ** 2
        * kind.width(box.dimension)
        for number, one in enumerate(planned.releases)
        if not is_auxiliary(one)
        for part, box in zip(one.release.noised, boxes_of(one.release.noised), strict=True)
    }
    rows = [
        ([column.squares.get(place, 0.0) * moved[place] for place in moved], column.importance)
        for column in aims or columns
    ]
    noisy = [(row, importance) for row, importance in rows if any(row)]
    parts = np.full(len(moved), 1 / max(1, len(moved)))
    if noisy:
        best = least_worst if aims else least_geometric_mean if planned.request.weights is None else least_worst_ratio
        importance = [importance for _, importance in noisy]
        parts = best(np.array([row for row, _ in noisy]), importance, variance_exponent, _cases(planned, moved, kind))
    return _by_release(planned, dict(zip(moved, parts.tolist(), strict=True)), kind)


def boxes_of(bounds: Sequence[Bounded]) -> list[Box]:
    """The K-norm box of each measure of a release."""
    boxes = [part.box for part in bounds]
    dimensions = Counter(boxes)
    return [Box(dimensions[box], box) for box in boxes]


def places_of(bounds: Sequence[Bounded], kind: AdditiveMechanism) -> list[BundlePlace | None]:
    """The place of each measure among those that share a part: disjoint measures, or all measures of a K-norm box."""
    if not kind.boxed:
        return [part.place for part in bounds]
    return [((part.box[0], part.box[1]), number) for number, part in enumerate(bounds)]


def _by_clause(
    planned: Planned, parts: dict[MeasurePlace, Fraction], kind: AdditiveMechanism
) -> dict[MeasurePlace, Fraction]:
    """The parts if the query has several options clauses: measures share the budget of their own clause."""
    shared = dict(parts)
    for number, clause in enumerate(planned.request.clauses):
        own = {
            place: part
            for place, part in parts.items()
            if planned.releases[place[0]].release.aggregate.clause == number
        }
        share = clause.epsilon / planned.request.epsilon / _together(planned, own, kind)
        shared |= {place: part * share for place, part in own.items()}
    return shared


def _together(planned: Planned, parts: dict[MeasurePlace, Fraction], kind: AdditiveMechanism) -> Fraction:
    """The exact sum of the parts; disjoint measures count with their largest case."""
    cases: dict[tuple[int, int], Fraction] = {}
    for case, part in zip(_cases(planned, parts, kind), parts.values(), strict=True):
        cases[case] = cases.get(case, Fraction(0)) + part
    bundles: dict[int, Fraction] = {}
    for (bundle, _), part in cases.items():
        bundles[bundle] = max(bundles.get(bundle, Fraction(0)), part)
    return sum(bundles.values(), Fraction(0))


def _cases(planned: Planned, measures: Iterable[MeasurePlace], kind: AdditiveMechanism) -> Places:
    """The place of each of these measures among those that share a part."""
    placed = {
        (number, part.column): place
        for number, one in enumerate(planned.releases)
        for part, place in zip(one.release.noised, places_of(one.release.noised, kind), strict=True)
    }
    bundles: dict[object, int] = {}

    def of(measure: MeasurePlace) -> tuple[int, int]:
        bundle, case = placed[measure] or (measure[1], 0)
        return bundles.setdefault((measure[0], bundle), len(bundles)), case

    return [of(measure) for measure in measures]


def _by_release(
    planned: Planned, parts: dict[MeasurePlace, float], kind: AdditiveMechanism
) -> tuple[tuple[Fraction, ...], ...]:
    for number, one in enumerate(planned.releases):
        for level, selection in _selections(one.release):
            _raise_selection((number, selection), [(number, part.column) for part in level], parts, planned, kind)
    fractions = as_fractions(np.array(list(parts.values())), _cases(planned, parts, kind)) if parts else ()
    exact = _by_clause(planned, dict(zip(parts, fractions, strict=True)), kind)
    beside = _auxiliary_of_measures(planned)
    return tuple(
        (beside * _auxiliary_part(one, planned) / auxiliary_part(planned),)
        if is_auxiliary(one)
        else tuple((1 - beside) * exact[number, part.column] for part in one.release.noised)
        for number, one in enumerate(planned.releases)
    )


def is_auxiliary(planned: PlannedRelease) -> bool:
    """Whether the release is auxiliary: a histogram for `diagnose` or `"auto"`."""
    return planned.release.aggregate.is_auxiliary


def auxiliary_part(planned: Planned) -> Fraction:
    """The part of the cost that auxiliary releases take together."""
    return sum((_auxiliary_part(one, planned) for one in planned.releases if is_auxiliary(one)), Fraction(0))


def _auxiliary_part(one: PlannedRelease, planned: Planned) -> Fraction:
    """The part of each auxiliary release: those of a kind share their part equally."""
    binned = one.release.aggregate.binned is not None
    alike = (
        is_auxiliary(other) and (other.release.aggregate.binned is not None) == binned for other in planned.releases
    )
    return (AUTO_BOUNDS if binned else DIAGNOSING) / sum(alike)


def _auxiliary_of_measures(planned: Planned) -> Fraction:
    """The part of auxiliary releases, relative to that of all measures."""
    part, asked = auxiliary_part(planned), asked_count(planned)
    rest = (1 - part) * Fraction(asked, max(1, asked + statistic_count(planned)))
    return part / (part + rest) if part else part


def asked_count(planned: Planned) -> int:
    """The measures of the query itself, without auxiliary releases."""
    return sum(len(one.release.noised) for one in planned.releases if not is_auxiliary(one))


def statistic_count(planned: Planned) -> int:
    """The number of draws of one statistic's epsilon."""
    return sum(drawn.draws for one in planned.releases for drawn in one.release.statistics)


def _raise_selection(
    selection: MeasurePlace,
    release: list[MeasurePlace],
    parts: dict[MeasurePlace, float],
    planned: Planned,
    kind: AdditiveMechanism,
) -> None:
    whole = together(np.array([parts[place] for place in release]), _cases(planned, release, kind))
    least = LEAST_FOR_SELECTION * whole
    if parts[selection] >= least or len(release) == 1:
        return
    less = (whole - least) / (whole - parts[selection])
    parts |= {place: parts[place] * less for place in release} | {selection: least}


def wanted(planned: Planned) -> list[Wanted]:
    """The columns that measures serve, including partition selection and tests."""
    if planned.request.weights is None:
        asked = [number for number, one in enumerate(planned.releases) if not is_auxiliary(one)]
        columns = [column for number in asked for column in _answered(planned, number)]
    else:
        columns = list(_weighed(planned, dict(planned.request.weights)))
    return [at_level for column in columns for at_level in _at_levels(column, planned)]


def aimed(planned: Planned, targets: Iterable[tuple[Linear, int, float]]) -> list[Wanted]:
    """The columns relative to their target widths; empty if some measure serves no such column."""
    columns = [
        Wanted({(number, name): min(abs(float(weight)) / width, LARGEST) ** 2 for name, weight in linear.weights})
        for linear, number, width in targets
    ]
    served = {place for column in columns for place in column.squares}
    asked = (number for number, one in enumerate(planned.releases) if not is_auxiliary(one))
    measured = {(number, part.column) for number in asked for part in planned.releases[number].release.noised}
    return columns if measured <= served else []


def _at_levels(column: Wanted, planned: Planned) -> Iterator[Wanted]:
    """The columns at each level of ROLLUP or CUBE."""
    ((number, _), *_) = column.squares
    release = planned.releases[number].release
    if not release.levels:
        yield column
    for level in release.levels:
        own = {
            (number, fine.column): (number, part.column)
            for fine, part in zip(release.measures, level.measures, strict=True)
        }
        weight = 1.0 if len(level.kept) == len(release.key_names) else TOTAL
        squares = {own[place]: square for place, square in column.squares.items()}
        yield Wanted(squares, column.importance * weight)


def _answered(planned: Planned, number: int) -> Iterator[Wanted]:
    release = planned.releases[number].release
    for answer in release.answers:
        parts = _parts(answer.estimate) if isinstance(answer.estimate, Formula) else [_squared(answer.estimate)]
        for part in parts:
            if squares := _measured(part, number, release):
                yield Wanted(squares, 1 / len(parts))
        if answer.test is not None:
            yield Wanted({(number, answer.test.exceeding): 1.0})
    yield from _selecting(number, release)


def _parts(formula: Formula) -> list[dict[str, float]]:
    """The squared factors of a smooth answer, by tangents over typical data; without these, all its parts equally."""
    smooth = formula.smooth
    if smooth is None or not smooth.typical:
        return [_squared(part) for part in formula.parts]
    steps = [STEP * max(map(abs, values)) for values in zip(*smooth.typical, strict=True)]
    return [_squared_tangent(smooth, values, steps) for values in smooth.typical]


def _squared_tangent(smooth: SmoothFunction, values: Sequence[float], steps: Sequence[float]) -> dict[str, float]:
    found: dict[str, float] = {}
    no_noise = [0.0] * len(values)
    for number, (part, step) in enumerate(zip(smooth.parts, steps, strict=True)):
        slope = smooth.slope(values, no_noise, number, step)
        for name, weight in part.weights:
            found[name] = found.get(name, 0.0) + slope * float(weight)
    return {name: weight**2 for name, weight in found.items()}


def _weighed(planned: Planned, weights: Mapping[str, Fraction]) -> Iterator[Wanted]:
    """The importance of columns from `weights=`, by name; others have 1."""
    named = {}
    for output in planned.outputs:
        if isinstance(output.estimate, Linear | Ratio) and output.release is not None:
            release = planned.releases[output.release].release
            if squares := _measured(_squared(output.estimate), output.release, release):
                named[output.name] = Wanted(squares, float(weights.get(output.name, 1)))
    for name in weights.keys() - named.keys():
        raise ProgrammingError(
            f'weights= names "{name}", which is not a column with a known error',
            hint=did_you_mean(name, named) or f"columns that can be weighted: {', '.join(named) or 'none'}",
        )
    yield from named.values()
    served = {place for column in named.values() for place in column.squares}
    for number, one in enumerate(planned.releases):
        if is_auxiliary(one):
            continue
        selection = list(_selecting(number, one.release))
        yield from selection
        served |= {place for column in selection for place in column.squares}
        yield from (
            Wanted({place: 1.0}) for part in one.release.measures if (place := (number, part.column)) not in served
        )


def _selections(release: Release) -> Iterator[tuple[tuple[Bounded, ...], str]]:
    """For each partition selection: the measures of the groups, and the count that selects."""
    for measures in [level.measures for level in release.levels] or [release.measures]:
        for part in measures:
            if part.column in release.selecting:
                yield measures, part.column


def _selecting(number: int, release: Release) -> Iterator[Wanted]:
    if release.partition_selection is not None:
        yield Wanted({(number, release.partition_selection): 1.0}, SELECTING)


def _squared(estimate: Estimate) -> dict[str, float]:
    """The squared weights of a linear answer; of a ratio N/D those of N - y D, on average over the range of y."""
    if isinstance(estimate, Ratio):
        above, below = (
            {name: float(weight) for name, weight in side.weights} for side in (estimate.above, estimate.below)
        )
        low, high = (max(-LARGEST, min(float(end or 0), LARGEST)) for end in (estimate.low, estimate.high))
        middle, spread = (low + high) / 2, (high - low) ** 2 / 12
        return {
            name: min(abs(above.get(name, 0.0) - middle * below.get(name, 0.0)), LARGEST) ** 2
            + spread * below.get(name, 0.0) ** 2
            for name in above | below
        }
    weights = estimate.weights if isinstance(estimate, Linear) else ()
    return {name: min(abs(float(weight)), LARGEST) ** 2 for name, weight in weights}


def _measured(squares: Mapping[str, float], number: int, release: Release) -> dict[MeasurePlace, float]:
    """The factors of additive measures by place; statistics have mechanisms of their own."""
    measured = {part.column for part in release.measures}
    return {(number, name): square for name, square in squares.items() if name in measured}


# -- least error -------------------------------------------------------------------------------------------------------
# A column is a weighted sum of measures. A matrix holds the variance that measure i adds to column j with the whole
# budget; with a part p it is p^-k times that (k = 1 for Gaussian noise, 2 for Laplace). Any parts that add up to 1 are
# private; they only decide errors. Disjoint measures of a bundle count with the parts of the largest case
# (docs/proofs/exclusive.md).

Variances: TypeAlias = "NDArray[np.float64]"
"""The variance that each measure (column) contributes to each column of the answer (row)."""

Places: TypeAlias = "Sequence[tuple[int, int]]"
"""The bundle and the case of each measure. A measure that is not disjoint from others is a bundle of its own."""

Numbers: TypeAlias = "tuple[NDArray[np.int64], NDArray[np.int64]]"
"""The same as indices: the case of each measure, and the bundle of each case."""

STEPS = 500
CLOSE = 1e-7
"""The iteration stops when parts change by less than this factor."""
LEAST = 1e-3
"""The least part of a measure, relative to an equal share: a column that it hardly affects may matter later."""
FINEST = 1 << 24
TINY = float(np.finfo(np.float64).tiny)


def least_geometric_mean(
    variances: Variances, importance: Sequence[float], variance_exponent: int, places: Places
) -> NDArray[np.float64]:
    """The parts that minimise the geometric mean of the columns' errors, weighted by importance.

    >>> least_geometric_mean(np.array([[1.0, 0.0], [1.0, 1.0]]), [1, 1], 1, [(0, 0), (1, 0)]).round(3).tolist()
    [0.667, 0.333]
    >>> least_geometric_mean(np.eye(3), [1, 1, 1], 1, [(0, 0), (0, 1), (1, 0)]).round(3).tolist()
    [0.667, 0.667, 0.333]
    """
    numbers = _numbers(places)
    weights = np.asarray(importance, dtype=np.float64) / sum(importance)
    parts = np.full(variances.shape[1], 1 / variances.shape[1])
    for _ in range(STEPS):
        before = parts
        parts = _best(weights / _errors(variances, parts, variance_exponent) @ variances, variance_exponent, numbers)
        if np.abs(parts - before).max() < CLOSE:
            break
    return parts


def least_worst_ratio(
    variances: Variances, importance: Sequence[float], variance_exponent: int, places: Places
) -> NDArray[np.float64]:
    """The parts that minimise the largest ratio of a column's error, times its importance, to its error alone.

    >>> least_worst_ratio(np.array([[1.0, 0.0], [1.0, 1.0]]), [1, 1], 1, [(0, 0), (1, 0)]).round(3).tolist()
    [0.75, 0.25]
    """
    numbers = _numbers(places)
    alone = np.array(
        [_errors(row[None], _best(row, variance_exponent, numbers), variance_exponent) for row in variances]
    )
    return least_worst(variances / alone, importance, variance_exponent, places)


def least_worst(
    variances: Variances, importance: Sequence[float], variance_exponent: int, places: Places
) -> NDArray[np.float64]:
    """The parts that minimise the largest error of a column, times its importance.

    >>> least_worst(np.array([[1.0, 0.0], [0.0, 9.0]]), [1, 1], 1, [(0, 0), (1, 0)]).round(3).tolist()
    [0.1, 0.9]
    """
    numbers = _numbers(places)
    compared = variances * (np.asarray(importance, dtype=np.float64)[:, None] / max(importance)) ** 2
    weights = np.full(len(variances), 1 / len(variances))
    parts = _best(weights @ compared, variance_exponent, numbers)
    for _ in range(STEPS):
        # A column that does worse than the others weighs more in the next step.
        weights *= np.sqrt(_errors(compared, parts, variance_exponent))
        weights /= weights.sum()
        before, parts = parts, _best(weights @ compared, variance_exponent, numbers)
        if np.abs(parts - before).max() < CLOSE:
            break
    return parts


def as_fractions(parts: NDArray[np.float64], places: Places) -> tuple[Fraction, ...]:
    """The parts as positive fractions that add up to exactly 1.

    >>> as_fractions(np.array([0.5, 0.5]), [(0, 0), (1, 0)])
    (Fraction(1, 2), Fraction(1, 2))
    """
    raised = np.maximum(parts, LEAST / max(1, len(parts)))
    steps = np.ceil(raised * FINEST)
    whole = int(together(steps, places))
    return tuple(Fraction(int(step), whole) for step in steps)


def together(parts: NDArray[np.float64], places: Places) -> float:
    """The sum of the parts, where a bundle counts with its largest case."""
    cases, bundles = _numbers(places)
    largest = np.zeros(len(set(bundles)))
    np.maximum.at(largest, bundles, np.bincount(cases, weights=parts))
    return float(largest.sum())


def _errors(variances: Variances, parts: NDArray[np.float64], variance_exponent: int) -> NDArray[np.float64]:
    """The variance of each column. A measure with weight 0 adds nothing, even if its share is 0."""
    added = np.divide(variances, parts**variance_exponent, out=np.zeros_like(variances), where=variances > 0)
    found: NDArray[np.float64] = added.sum(axis=1)
    return found


def _best(costs: NDArray[np.float64], variance_exponent: int, numbers: Numbers) -> NDArray[np.float64]:
    """The parts that minimise the sum of cost / part^k.

    Within a case, parts are proportional to roots of costs; between bundles, to roots of their cases' total costs.
    """
    order = variance_exponent + 1
    cases, bundles = numbers
    roots = np.maximum(costs, TINY) ** (1 / order)
    by_case = np.bincount(cases, weights=roots)
    by_bundle = np.bincount(bundles, weights=by_case**order) ** (1 / order)
    found: NDArray[np.float64] = (by_bundle / by_bundle.sum())[bundles[cases]] * roots / by_case[cases]
    return found


def _numbers(places: Places) -> Numbers:
    cases = {place: number for number, place in enumerate(dict.fromkeys(places))}
    bundles = {bundle: number for number, bundle in enumerate(dict.fromkeys(bundle for bundle, _ in places))}
    return np.array([cases[place] for place in places]), np.array([bundles[bundle] for bundle, _ in cases])
