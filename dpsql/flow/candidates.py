"""The ways to give noise to all measures of a query, Laplace or Gaussian, and what each takes of the session.

Laplace adds epsilons, Gaussian adds squared mus. docs/proofs/calibration.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from dpsql.accounting.costs import Totals, price
from dpsql.accounting.events import (
    ApproximateRelease,
    Composed,
    Event,
    Free,
    Gaussian,
    Laplace,
    PureRelease,
    Repeated,
)
from dpsql.accounting.exact import root_up
from dpsql.accounting.filters import Basic, Filter, Zcdp
from dpsql.accounting.gaussian_dp import mu_for
from dpsql.accounting.zcdp import rho_for
from dpsql.draws.draw import Spared
from dpsql.errors import ProgrammingError
from dpsql.flow.shares import curve_delta, each_epsilon, measure_count, statistic_count
from dpsql.mechanisms import gaussian, laplace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from dpsql.accounting.budget import Budget
    from dpsql.aggregates.release import Bounded
    from dpsql.flow.plan_query import Planned
    from dpsql.intervals import NoisyColumns
    from dpsql.mechanisms.noise import Noise

FINEST_STD = 2**26
"""Noise is drawn on a grid of at least 1/2^26 of its standard deviation; finer digits would be noise anyway."""
KEPT_BITS = 11
"""One unit's bound keeps this many bits, so that rounding it up to the grid costs less than a thousandth."""


@dataclass(frozen=True)
class NoisyMeasure:
    """A measure and the noise that it gets, on a grid of 2^shift of its column's units."""

    bounded: Bounded
    noise: Noise
    shift: int
    alone: Spared
    """What it costs by itself; nothing where a release has one price as a whole."""

    @property
    def std(self) -> float:
        """The noise's standard deviation in the column's units."""
        return math.ldexp(self.noise.std, self.shift)


@dataclass(frozen=True)
class Candidate:
    """One way to give noise to all measures of a query: by release, noisy measures and what they are together."""

    mechanism: str
    measures: tuple[tuple[NoisyMeasure, ...], ...]
    events: tuple[Event, ...]
    delta: Fraction
    """The delta at which the query's epsilon holds, key selection apart."""
    statistics: Event
    budget: Budget = field(repr=False)

    @property
    def share(self) -> float:
        """The part of the session that it takes, statistics included."""
        return self._taken[0]

    @property
    def fits(self) -> bool:
        """Whether that much is left."""
        return self._taken[1]

    @cached_property
    def _taken(self) -> tuple[float, bool]:
        return share_of(price(Composed((*self.events, self.statistics))), self.budget)

    @property
    def spread(self) -> float:
        """The log of the variance, on average over the measures: how much error there is."""
        stds = [measure.std for release in self.measures for measure in release if measure.bounded.linf]
        return 2 * sum(math.log(max(std, 1e-300)) for std in stds) / max(1, len(stds))


def makers(planned: Planned, filter_: Filter) -> Mapping[str, Callable[[Planned, Budget], Candidate]]:
    """The kinds of noise that the query may have, and what calibrates each."""
    known = {"laplace": _laplace, "gaussian": _gaussian}
    question = planned.question
    delta = filter_.delta if question.delta is None else question.delta
    if not measure_count(planned) or (question.mechanism not in known and not delta):
        return {"laplace": _laplace}
    if question.mechanism not in known:
        return known
    if question.mechanism == "gaussian" and not delta:
        raise ProgrammingError(
            "Gaussian noise needs a delta, and this session has none", hint="connect with delta=1e-6, or use Laplace"
        )
    return {question.mechanism: known[question.mechanism]}


def noisy_columns(measures: Iterable[NoisyMeasure]) -> NoisyColumns:
    return {measure.bounded.column: (measure.noise, 1 << measure.shift) for measure in measures}


def _laplace(planned: Planned, budget: Budget) -> Candidate:
    each = each_epsilon(planned)

    def noisy(bounded: Bounded) -> NoisyMeasure:
        shift = _shift(bounded, float(bounded.l1 / each), planned)
        noise = laplace.calibrated(bounded.l0 * coarse(bounded.linf, shift), each)
        return NoisyMeasure(bounded, noise, shift, Spared(Laplace(1 / each), each))

    measures = tuple(tuple(map(noisy, release.release.measures)) for release in planned.releases)
    events = tuple(Composed(tuple(measure.alone.event for measure in release)) for release in measures)
    return Candidate("laplace", measures, events, Fraction(0), _drawing(planned), budget)


def _gaussian(planned: Planned, budget: Budget) -> Candidate:
    count, filter_ = measure_count(planned), budget.filter
    epsilon, delta = each_epsilon(planned) * count, curve_delta(planned, filter_)
    measures: list[tuple[NoisyMeasure, ...]] = []
    events: list[Event] = []
    for release in planned.releases:
        bounds = release.release.measures
        if isinstance(filter_, Basic) and bounds:
            # Basic composition knows (epsilon, delta) only: a release gets its part of both, as one price.
            part = Fraction(len(bounds), count)
            multiplier = _multiplier(mu_for(epsilon * part, delta * part) ** 2 / len(bounds))
            alone = Spared(Free(), Fraction(0))
            events.append(ApproximateRelease(epsilon * part, delta * part))
        else:
            multiplier = _multiplier(_mu_squared(epsilon, delta, filter_) / count)
            alone = Spared(Gaussian(multiplier), epsilon * _less_without_one(count))
            events.append(Composed((alone.event,) * len(bounds)))
        measures.append(tuple(_with_gaussian(bounded, multiplier, alone, planned) for bounded in bounds))
    return Candidate("gaussian", tuple(measures), tuple(events), delta, _drawing(planned), budget)


def _multiplier(mu_squared: Fraction) -> Fraction:
    """The standard deviation over the sensitivity: 1/mu, or a bit more."""
    return Fraction(root_up(1 / mu_squared))


def _less_without_one(count: int) -> Fraction:
    """By which part epsilon falls when one of the measures is not released: 1 - sqrt(1 - 1/count), or a bit less.

    Without it mu falls by that factor, and epsilon, at the same delta, by at least as much.
    """
    return 1 - Fraction(root_up(1 - Fraction(1, count)))


def _mu_squared(epsilon: Fraction, delta: Fraction, filter_: Filter) -> Fraction:
    """What the session's own currency allows a query of (epsilon, delta)."""
    return 2 * rho_for(epsilon, delta) if isinstance(filter_, Zcdp) else mu_for(epsilon, delta) ** 2


def _with_gaussian(bounded: Bounded, multiplier: Fraction, alone: Spared, planned: Planned) -> NoisyMeasure:
    shift = _shift(bounded, bounded.l2 * float(multiplier), planned)
    l2_squared = bounded.l0 * coarse(bounded.linf, shift) ** 2
    return NoisyMeasure(bounded, gaussian.calibrated(l2_squared, multiplier), shift, alone)


def _shift(bounded: Bounded, std: float, planned: Planned) -> int:
    """How many low bits drown in the noise; a count of units that selects groups keeps all of its bits."""
    if std < FINEST_STD or any(release.release.selection == bounded.column for release in planned.releases):
        return 0
    return max(0, min(int(math.log2(std / FINEST_STD)), bounded.linf.bit_length() - KEPT_BITS))


def coarse(linf: int, shift: int) -> int:
    """|S - S'| <= linf implies |q - q'| <= this for q = (S + 2^(shift-1)) >> shift."""
    return -(-linf >> shift) if shift else linf


def _drawing(planned: Planned) -> Event:
    """All statistics, at most."""
    return Repeated((PureRelease(each_epsilon(planned)),), Fraction(statistic_count(planned)))


def share_of(cost: Totals, budget: Budget) -> tuple[float, bool]:
    """The part of the session that the cost takes, by the best rule that can still admit it; whether there is one."""
    spent, rules = budget.tally.totals, budget.filter.rules
    alive = [rule for rule in rules if spent + cost <= rule.limit]
    share = min(
        max(_fraction(mine, limit) for mine, limit in zip(cost.amounts, rule.limit.amounts, strict=True))
        for rule in alive or rules
    )
    return share, bool(alive)


def _fraction(amount: Fraction | float, limit: Fraction | float) -> float:
    if amount == 0 or limit == math.inf:
        return 0.0
    return float(amount / limit) if limit else math.inf
