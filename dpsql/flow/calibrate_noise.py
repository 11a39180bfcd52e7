"""calibrate_noise: which noise, how much of it, and what that costs.

The query's epsilon is shared equally by all its measures, key selection included, and its statistics. Laplace adds
epsilons, Gaussian adds squared mus; the one that gives less error for the same part of the session is taken, unless the
analyst names one. A statistic has a mechanism of its own (draws/). docs/proofs/calibration.md.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from dpsql.accounting.costs import Cost, price
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
from dpsql.accounting.exact import root_up, rounded_up
from dpsql.accounting.filters import RESERVED_SHARE, Basic, Filter, Zcdp
from dpsql.accounting.gaussian_dp import mu_for
from dpsql.accounting.zcdp import rho_for
from dpsql.draws.choose import draw_for
from dpsql.draws.draw import Spared, Terms
from dpsql.errors import ProgrammingError
from dpsql.mechanisms import gaussian, laplace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dpsql.accounting.budget import Budget
    from dpsql.accounting.costs import Totals
    from dpsql.aggregates.answer import Test
    from dpsql.aggregates.release import Bounded, Drawn, Release
    from dpsql.draws.draw import Draw
    from dpsql.expressions.write import Sql
    from dpsql.flow.plan_query import Output, Planned, PlannedRelease, PublicTable
    from dpsql.flow.question import Question
    from dpsql.flow.setting import Setting
    from dpsql.intervals import NoisyColumns
    from dpsql.mechanisms.noise import Noise

FINEST_STD = 2**26
"""Noise is drawn on a grid of at least 1/2^26 of its standard deviation; finer digits would be noise anyway."""
SPARED_BITS = 11
"""One unit's bound keeps this many bits, so that rounding it up to the grid costs less than a thousandth."""
PASSING = 0.98
"""Of the noise in a test; half of what is outside makes it fail."""
LARGEST_STD = 2.0**56
"""Beyond this the noise would leave 64 bits, and the answer would be nothing but noise."""


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
class CalibratedTest:
    """A clipped sum is shown where the noisy number of units that exceed the clip is at most `most`."""

    test: Test
    most: int


@dataclass(frozen=True)
class CalibratedRelease:
    planned: PlannedRelease
    measures: tuple[NoisyMeasure, ...]
    statistics: tuple[tuple[Drawn, Draw], ...]
    tests: tuple[CalibratedTest, ...]
    threshold: int | None
    event: Event
    epsilon: Fraction
    delta: Fraction
    fingerprint: str
    """The same for the same release at the same price: its noisy answer is drawn once."""
    subject: str
    """The same for the same release at any price."""

    @property
    def refusable(self) -> dict[str, Spared]:
        """The columns that a test can refuse, and what is not spent when it does so in every group."""
        alone = {measure.bounded.column: measure.alone for measure in self.measures}
        clipped = {part.test.clipped: alone[part.test.clipped] for part in self.tests}
        groups = self.planned.release.groups
        drawn = {
            drawn.column: Spared(Repeated((draw.spared.event,), Fraction(groups)), draw.spared.epsilon * groups)
            for drawn, draw in self.statistics
            if draw.spared is not None
        }
        return clipped | drawn

    @property
    def noises(self) -> NoisyColumns:
        """The noise of each column that has one which everybody knows, in the column's units."""
        drawn = {drawn.column: (draw.noise, 1) for drawn, draw in self.statistics if draw.noise is not None}
        return {**noisy_columns(self.measures), **drawn}

    def salted(self, salt: int) -> Sql:
        """The engine SQL; the salt decides which of a unit's groups and values count."""
        return _salted(self.planned, self.statistics, salt)

    @cached_property
    def sql(self) -> Sql:
        """The SQL as it would run, with the salt 0."""
        return self.salted(0)


@dataclass(frozen=True)
class Calibrated:
    question: Question
    releases: tuple[CalibratedRelease, ...]
    public: tuple[PublicTable, ...]
    outputs: tuple[Output, ...]
    finish: str
    mechanism: str
    reason: str
    candidate: Candidate = field(repr=False)

    @property
    def event(self) -> Event:
        return Composed(tuple(release.event for release in self.releases))

    @property
    def cost(self) -> Cost:
        """The whole query as (epsilon, delta)."""
        return Cost(
            rounded_up(sum((release.epsilon for release in self.releases), Fraction(0))),
            rounded_up(sum((release.delta for release in self.releases), Fraction(0))),
        )

    @property
    def cost_if_refused(self) -> Cost:
        """What is left of that when every test refuses."""
        spared = [part.epsilon for release in self.releases for part in release.refusable.values()]
        epsilon = sum((release.epsilon for release in self.releases), Fraction(0)) - sum(spared, Fraction(0))
        return Cost(rounded_up(epsilon), self.cost.delta)


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


def calibrate_noise(planned: Planned, setting: Setting) -> Calibrated:
    budget = setting.ledger.budget
    candidates = [make(planned, budget) for make in makers(planned, budget.filter).values()]
    # What still fits comes first. Then error weighed by what it costs the session: variance times share.
    candidates.sort(key=lambda way: (not way.fits, way.spread + math.log(max(way.share, 1e-300))))
    ways = [with_noise(planned, way, _reason(way, candidates, planned), setting) for way in candidates]
    return first_answered(ways, setting)


def first_answered(ways: Sequence[Calibrated], setting: Setting) -> Calibrated:
    """The way in which this very question was answered before, so that it can be recalled; or else the first."""
    return next((way for way in ways if _answered(way, setting)), ways[0])


def _answered(way: Calibrated, setting: Setting) -> bool:
    answers = setting.ledger.answers
    return not way.question.fresh and all(answers.recall(release.fingerprint) for release in way.releases)


def with_noise(planned: Planned, chosen: Candidate, reason: str, setting: Setting) -> Calibrated:
    if any(measure.std > LARGEST_STD for release in chosen.measures for measure in release):
        raise ProgrammingError(
            f"at epsilon {float(planned.question.epsilon):.3g} the answer would be nothing but noise",
            hint="name a larger epsilon",
        )
    delta = _reserved_delta(planned, setting.ledger.budget.filter, chosen)
    releases: list[CalibratedRelease] = []
    for number in range(len(planned.releases)):
        releases.append(_release(planned, number, chosen, delta, setting, releases))
    noises = ["ptr"] if any(release.tests for release in releases) else []
    noises += [chosen.mechanism] if _measures(planned) else []
    drawn = [draw.name for release in releases for _, draw in release.statistics]
    return Calibrated(
        planned.question,
        tuple(releases),
        planned.public,
        planned.outputs,
        planned.finish,
        " and ".join(dict.fromkeys(noises + drawn)),
        reason,
        chosen,
    )


def makers(planned: Planned, filter_: Filter) -> Mapping[str, Callable[[Planned, Budget], Candidate]]:
    """The kinds of noise that the query may have, and what calibrates each."""
    known = {"laplace": _laplace, "gaussian": _gaussian}
    question = planned.question
    delta = filter_.delta if question.delta is None else question.delta
    if not _measures(planned) or (question.mechanism not in known and not delta):
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
    each = _each(planned)

    def noisy(bounded: Bounded) -> NoisyMeasure:
        shift = _shift(bounded, float(bounded.l1 / each), planned)
        noise = laplace.calibrated(bounded.l0 * _coarse(bounded.linf, shift), each)
        return NoisyMeasure(bounded, noise, shift, Spared(Laplace(1 / each), each))

    measures = tuple(tuple(map(noisy, release.release.measures)) for release in planned.releases)
    events = tuple(Composed(tuple(measure.alone.event for measure in release)) for release in measures)
    return Candidate("laplace", measures, events, Fraction(0), _drawing(planned), budget)


def _gaussian(planned: Planned, budget: Budget) -> Candidate:
    count, filter_ = _measures(planned), budget.filter
    epsilon, delta = _each(planned) * count, _curve_delta(planned, filter_)
    measures: list[tuple[NoisyMeasure, ...]] = []
    events: list[Event] = []
    for release in planned.releases:
        part = Fraction(len(release.release.measures), count)
        if isinstance(filter_, Basic):
            # Basic composition knows (epsilon, delta) only, so every release gets its part of both.
            mu_squared = mu_for(epsilon * part, delta * part) ** 2 / max(1, len(release.release.measures))
        else:
            mu_squared = _mu_squared(epsilon, delta, filter_) / count
        multiplier = Fraction(root_up(1 / mu_squared))
        alone = Spared(Gaussian(multiplier), epsilon * _less_without_one(count))
        if isinstance(filter_, Basic):
            alone = Spared(Free(), Fraction(0))
        noisy = tuple(_with_gaussian(bounded, multiplier, alone, planned) for bounded in release.release.measures)
        measures.append(noisy)
        if isinstance(filter_, Basic):
            events.append(ApproximateRelease(epsilon * part, delta * part))
        else:
            events.append(Composed((alone.event,) * len(noisy)))
    return Candidate("gaussian", tuple(measures), tuple(events), delta, _drawing(planned), budget)


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
    l2_squared = bounded.l0 * _coarse(bounded.linf, shift) ** 2
    return NoisyMeasure(bounded, gaussian.calibrated(l2_squared, multiplier), shift, alone)


def _measures(planned: Planned) -> int:
    return sum(len(release.release.measures) for release in planned.releases)


def _statistics(planned: Planned) -> int:
    return sum(len(release.release.statistics) for release in planned.releases)


def _each(planned: Planned) -> Fraction:
    """The epsilon of one measure or statistic."""
    return planned.question.epsilon / max(1, _measures(planned) + _statistics(planned))


def _shift(bounded: Bounded, std: float, planned: Planned) -> int:
    """How many low bits drown in the noise; a count of units that selects groups keeps all of its bits."""
    if std < FINEST_STD or any(release.release.selection == bounded.column for release in planned.releases):
        return 0
    return max(0, min(int(math.log2(std / FINEST_STD)), bounded.linf.bit_length() - SPARED_BITS))


def _coarse(linf: int, shift: int) -> int:
    """|S - S'| <= linf implies |q - q'| <= this for q = (S + 2^(shift-1)) >> shift."""
    return -(-linf >> shift) if shift else linf


def _curve_delta(planned: Planned, filter_: Filter) -> Fraction:
    """The delta of the noise itself; what is left of the query's delta is for key selection and tests."""
    question = planned.question
    if isinstance(filter_, Basic):
        whole = _whole_delta(question, filter_)
        return whole / 2 if _selecting(planned) or _testing(planned) else whole
    return filter_.curve_delta if question.delta is None else question.delta * (1 - RESERVED_SHARE)


def _whole_delta(question: Question, filter_: Filter) -> Fraction:
    """In basic composition a query that names no delta takes as much of it as of epsilon."""
    if question.delta is not None:
        return question.delta
    return filter_.delta * (min(Fraction(1), question.epsilon / filter_.epsilon) if filter_.epsilon else Fraction(1))


def _selecting(planned: Planned) -> int:
    """How many releases have groups whose very keys tell about people."""
    return sum(release.release.domain is None for release in planned.releases)


def _testing(planned: Planned) -> int:
    """How many statistics may be drawn by a mechanism that needs a delta."""
    return 0 if planned.question.mechanism is None else _statistics(planned)


def _reserved_delta(planned: Planned, filter_: Filter, candidate: Candidate) -> Fraction:
    """For each key selection and each test its part of the delta that is not the noise's.

    In a session that is the part of what is reserved that the query is of the session.
    """
    uses, question = _selecting(planned) + _testing(planned), planned.question
    if not uses:
        return Fraction(0)
    if isinstance(filter_, Basic):
        reserved = _whole_delta(question, filter_) - candidate.delta
    elif question.delta is None:
        reserved = filter_.reserved_delta * Fraction(min(1.0, candidate.share))
    else:
        reserved = question.delta * RESERVED_SHARE
    if not reserved and _selecting(planned):
        raise ProgrammingError(
            "the groups are not public, and choosing which to show needs a delta",
            hint="begin the session with delta=1e-6, or let the data owner declare  values: [...]  for the keys",
        )
    return reserved / uses


def _drawing(planned: Planned) -> Event:
    """All statistics, at most."""
    return Repeated((PureRelease(_each(planned)),), Fraction(_statistics(planned)))


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


def _release(
    planned: Planned,
    number: int,
    candidate: Candidate,
    reserved: Fraction,
    setting: Setting,
    before: list[CalibratedRelease],
) -> CalibratedRelease:
    release, measures = planned.releases[number], candidate.measures[number]
    statistics = tuple(_drawn(drawn, release.release, planned, reserved) for drawn in release.release.statistics)
    drawings = [Repeated((draw.event,), Fraction(release.release.groups)) for _, draw in statistics]
    event = Composed((candidate.events[number], *drawings))
    delta = candidate.delta * Fraction(len(measures), max(1, _measures(planned)))
    delta += sum((Fraction(price(drawing).delta) for drawing in drawings), Fraction(0))
    # Where keys are public, hiding small groups by their noisy number of units needs no delta.
    threshold = release.release.min_units
    if release.release.domain is None:
        (counting,) = (measure for measure in measures if measure.bounded.column == release.release.selection)
        threshold = counting.noise.threshold(counting.bounded.l0, reserved) + (threshold or 1) - 1
        event = Composed((event, ApproximateRelease(Fraction(0), reserved)))
        delta += reserved
    return CalibratedRelease(
        release,
        measures,
        statistics,
        tuple(_test(answer.test, measures) for answer in release.release.answers if answer.test is not None),
        threshold,
        event,
        _each(planned) * (len(measures) + len(statistics)),
        delta,
        _fingerprint(release, measures, statistics, threshold, setting, before),
        subject_of(planned, number, setting),
    )


def _test(test: Test, measures: tuple[NoisyMeasure, ...]) -> CalibratedTest:
    """Where nobody exceeds the clip, the test fails one time in a hundred."""
    (exceeding,) = (measure for measure in measures if measure.bounded.column == test.exceeding)
    return CalibratedTest(test, exceeding.noise.half_width(PASSING))


def _drawn(drawn: Drawn, release: Release, planned: Planned, reserved: Fraction) -> tuple[Drawn, Draw]:
    """One unit reaches several groups, so each group has its part of the statistic's epsilon and delta."""
    asked, possible = planned.question.mechanism, drawn.statistic.mechanisms
    terms = Terms(
        asked if asked in possible else possible[0],
        planned.question.propose,
        _each(planned) / release.groups,
        reserved / release.groups,
        release.rows,
    )
    return drawn, draw_for(drawn.statistic, terms)


def _salted(release: PlannedRelease, statistics: tuple[tuple[Drawn, Draw], ...], salt: int) -> Sql:
    return release.salted(salt, {drawn.column: draw.reach for drawn, draw in statistics})


def _fingerprint(
    release: PlannedRelease,
    measures: tuple[NoisyMeasure, ...],
    statistics: tuple[tuple[Drawn, Draw], ...],
    threshold: int | None,
    setting: Setting,
    before: list[CalibratedRelease],
) -> str:
    noises = [(measure.bounded.column, repr(measure.noise), measure.shift) for measure in measures]
    draws = [(drawn.column, repr(draw)) for drawn, draw in statistics]
    # What a release reads of earlier answers is as much a part of it as its SQL.
    read = [[part.finish, *(before[number].fingerprint for number in part.releases)] for part in release.earlier]
    text = json.dumps([setting.schema.dataset, _salted(release, statistics, 0), noises, draws, threshold, read])
    return hashlib.sha256(text.encode()).hexdigest()


def subject_of(planned: Planned, number: int, setting: Setting) -> str:
    """What a release is about, whatever its noise."""
    release = planned.releases[number]
    read = [
        [part.finish, *(subject_of(planned, number, setting) for number in part.releases)] for part in release.earlier
    ]
    text = json.dumps(["subject", setting.schema.dataset, release.salted(0, {}), read])
    return hashlib.sha256(text.encode()).hexdigest()


def _reason(best: Candidate, candidates: list[Candidate], planned: Planned) -> str:
    if planned.question.mechanism is not None:
        return "as asked for"
    if not _measures(planned):
        return "the answer is chosen, since no fixed noise fits it"
    if len(candidates) == 1:
        return "the session has no delta"
    (other,) = (candidate for candidate in candidates if candidate is not best)
    times = math.exp((other.spread - best.spread) / 2)
    more = max(times, 1 / times)
    error = f"{more:.2g} times {'less' if times >= 1 else 'more'} error" if more >= 1.05 else "about as much error"
    part = f"takes {best.share:.2g} of the session instead of {other.share:.2g}"
    return f"{error} {'as' if more < 1.05 else 'than'} {other.mechanism}, and {part}"
