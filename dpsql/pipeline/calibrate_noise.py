"""calibrate_noise: the mechanism, the noise of each measure, and the cost.

The query's epsilon is shared by its measures, including the partition-selection count, and its statistics. Unless the
analyst names a mechanism, the additive mechanism of least error for its share of the budget is taken. Statistics have
mechanisms of their own. mechanisms/registry.py lists all of them. docs/proofs/calibration.md.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from dpsql.accounting.events import ApproximateRelease, Composed, Event, PureRelease, Repeated
from dpsql.accounting.exact import rounded_up
from dpsql.accounting.privacy_loss import Cost, privacy_loss
from dpsql.aggregates.estimate import noise_of
from dpsql.aggregates.format import quantum_of
from dpsql.aggregates.release import LEVEL
from dpsql.errors import ProgrammingError
from dpsql.mechanisms.additive import LARGEST_STD
from dpsql.mechanisms.draw import Refund, Terms
from dpsql.mechanisms.draw_statistics import bisected_quantile
from dpsql.mechanisms.registry import draw_for, mechanism_for
from dpsql.pipeline.choose_mechanism import (
    NoisePlan,
    NoisyMeasure,
    eligible_mechanisms,
    measure_count,
    measures_epsilon,
    noise_plan_within,
    noisy_columns,
    rank_mechanisms,
    reserved_delta,
    statistic_epsilon,
)
from dpsql.pipeline.format import about_releases, laid_out
from dpsql.pipeline.identity import fingerprint_of, subject_of
from dpsql.pipeline.target_accuracy import mechanisms_meeting
from dpsql.relation.units import memoized_on_node

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dpsql.accounting.ledger.journal import AnswerOnRecord
    from dpsql.aggregates.estimate import ProposalTest
    from dpsql.aggregates.release import Drawn, Release
    from dpsql.intervals import NoisyColumns
    from dpsql.mechanisms.draw import Draw
    from dpsql.options import QueryRequest
    from dpsql.pipeline.environment import GivenAnswers, PublicEnvironment
    from dpsql.pipeline.format import Output
    from dpsql.pipeline.plan_query import CountedResponses, Planned, PlannedRelease, PublicTable
    from dpsql.pipeline.track_units import Tracked
    from dpsql.sql.noise_tracking import PropagatedError

PASSING = 0.98
"""The two-sided level of the noise in a test."""
MOST_WORK = 1 << 25
"""The most numbers that all public groups together may need, whatever the data: some seconds of work."""


@dataclass(frozen=True, kw_only=True)
class NoiseTerms:
    """What the noise of a query follows from. Calibrated on the same terms, a later query finds the stored answer."""

    mechanism: str
    epsilon: Fraction
    statistic_epsilon: Fraction
    delta: Fraction | None
    """The delta that the query named."""
    reserved: Fraction
    """The delta of each partition selection and each test."""
    parts: tuple[tuple[Fraction, ...], ...]
    """The part of the measures' budget that each measure of each release has."""

    def to_json(self) -> str:
        return json.dumps(vars(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> NoiseTerms:
        found = json.loads(text)
        return cls(
            mechanism=found["mechanism"],
            epsilon=Fraction(found["epsilon"]),
            statistic_epsilon=Fraction(found["statistic_epsilon"]),
            delta=None if found["delta"] is None else Fraction(found["delta"]),
            reserved=Fraction(found["reserved"]),
            parts=tuple(tuple(map(Fraction, release)) for release in found["parts"]),
        )


@dataclass(frozen=True)
class CalibratedTest:
    """The test of a clip: the sum is shown if the noisy number of units beyond the clip is at most `most`."""

    test: ProposalTest
    most: int


@dataclass(frozen=True, kw_only=True)
class CalibratedRelease:
    planned: PlannedRelease
    measures: tuple[NoisyMeasure, ...]
    statistics: tuple[tuple[Drawn, Draw], ...]
    tests: tuple[CalibratedTest, ...]
    thresholds: Mapping[str, int]
    """The threshold of each column that selects groups."""
    event: Event
    epsilon: Fraction
    delta: Fraction
    subject: str
    """Identifies the release, whatever its noise."""
    fingerprint: str = ""
    """Identifies the release and its noise: equal fingerprints share one noisy answer."""

    @property
    def refusable(self) -> dict[str, Refund]:
        """The columns that a test can refuse, and the refund if it refuses every group."""
        alone = {measure.bounded.column: measure.alone for measure in self.measures}
        clipped = {part.test.clipped: alone[part.test.clipped] for part in self.tests}
        groups = self.planned.release.groups
        drawn = {
            drawn.column: Refund(Repeated((draw.refund.event,), Fraction(groups)), draw.refund.epsilon * groups)
            for drawn, draw in self.statistics
            if draw.refund is not None
        }
        return clipped | drawn

    @cached_property
    def noises(self) -> NoisyColumns:
        """The noise of each column whose distribution is public, in the column's units."""
        drawn = {drawn.column: (draw.noise, 1) for drawn, draw in self.statistics if draw.noise is not None}
        return {**noisy_columns(self.measures), **drawn}

    @property
    def threshold(self) -> int | None:
        """The threshold of the finest groups; totals have higher ones."""
        return min(self.thresholds.values(), default=None)

    def with_noise_columns(
        self, columns: Mapping[str, np.ndarray], levels: Sequence[NoisyColumns] = ()
    ) -> Mapping[str, np.ndarray]:
        """The noisy columns, and the columns of standard deviations that the post-processing reads."""
        length = len(next(iter(columns.values()), ()))
        level = columns[LEVEL] if levels else np.zeros(length, dtype=np.int64)
        stds = {
            name: np.array([noises[name][0].std * noises[name][1] for noises in levels or (self.noises,)])
            for name in self.planned.weighed
        }
        return {**columns, **{noise_of(name): by_level[level] for name, by_level in stds.items()}}

    def lines(self) -> Iterator[str]:
        """Its cost and noise, line by line, for the trace."""
        yield f"cost     epsilon {float(self.epsilon):.6g}, delta {float(self.delta):.3g}"
        for measure in self.measures:
            std = measure.std * float(quantum_of(measure.bounded.measure, self.planned.release.rows))
            yield f"noise    {measure.bounded.column} + {measure.noise.name}, standard deviation {std:.6g}"
        yield from (f"drawn    {drawn.column} by {draw.name}: {draw.note}" for drawn, draw in self.statistics)
        yield from (
            f"test     {part.test.clipped} is shown if {part.test.exceeding} <= {part.most}" for part in self.tests
        )
        yield from (f"groups   shown if {column} >= {least}" for column, least in self.thresholds.items())

    def salted(self, salt: int) -> str:
        """The engine SQL with a salt, which decides the groups and values of a unit that count."""
        return self.planned.salted(salt, {drawn.column: draw.reach for drawn, draw in self.statistics})

    @cached_property
    def sql(self) -> str:
        """The engine SQL with salt 0, for `explain`."""
        return self.salted(0) if self.statistics else self.planned.shown


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    request: QueryRequest
    releases: tuple[CalibratedRelease, ...]
    public: tuple[PublicTable | CountedResponses, ...]
    outputs: tuple[Output, ...]
    post_processing: str
    propagated: PropagatedError | None = field(repr=False)
    mechanism: str
    reason: str
    noise_plan: NoisePlan = field(repr=False)
    reserved: Fraction
    """The delta of each partition selection and each test."""
    statistic_epsilon: Fraction
    """The epsilon of one statistic."""
    tracked: Tracked = field(repr=False)
    """What it was made of: once bounds are found, it is made again."""
    on_record: tuple[AnswerOnRecord | None, ...] = ()
    """The stored answer of each release."""

    def __str__(self) -> str:
        cost = self.cost
        return laid_out(
            [
                ("cost", [f"epsilon {cost.epsilon:.6g}, delta {cost.delta:.3g}"]),
                ("noise", [f"{self.mechanism}: {self.reason}"] if self.releases else []),
                *about_releases(release.lines() for release in self.releases),
            ]
        )

    @property
    def due(self) -> tuple[CalibratedRelease, ...]:
        """The releases that are drawn now: all that are not on record."""
        known = self.on_record or (None,) * len(self.releases)
        return tuple(release for release, answer in zip(self.releases, known, strict=True) if answer is None)

    def reads_noise(self, output: Output) -> bool:
        """Whether a noisy column has an unknown error, because an answer's noise decided what its release measures."""
        read = self.releases if output.release is None else (self.releases[output.release],)
        return bool(output.estimate or output.replicate) and any(part.planned.reads_noise for part in read)

    @property
    def event(self) -> Event:
        return Composed(tuple(release.event for release in self.due))

    @property
    def terms(self) -> NoiseTerms:
        return NoiseTerms(
            mechanism=self.noise_plan.mechanism,
            epsilon=self.request.epsilon,
            statistic_epsilon=self.statistic_epsilon,
            delta=self.request.delta,
            reserved=self.reserved,
            parts=self.noise_plan.parts,
        )

    @property
    def recalled(self) -> AnswerOnRecord | None:
        """The oldest part of the answer, if all of it is on record and so free."""
        known = [answer for answer in self.on_record if answer is not None]
        return None if self.due else min(known, key=_drawn_at, default=None)

    @property
    def cost(self) -> Cost:
        """The cost of what is drawn now as (epsilon, delta)."""
        return self.cost_with(None)

    @property
    def cost_if_refused(self) -> Cost:
        """The cost if all tests refuse."""
        return self.cost_with(None, is_refused=True)

    def cost_with(self, histogram: Calibrated | None, *, is_refused: bool = False) -> Cost:
        """The cost, with that of a histogram that is drawn beside it."""
        due = (*self.due, *(() if histogram is None else histogram.due))
        refundable = self.due if is_refused else ()
        refund = sum((part.epsilon for release in refundable for part in release.refusable.values()), Fraction(0))
        epsilon = sum((release.epsilon for release in due), -refund)
        return Cost(rounded_up(epsilon), rounded_up(sum((release.delta for release in due), Fraction(0))))


def calibrate_noise(planned: Planned, public: PublicEnvironment) -> Calibrated:
    """The calibration of the newest stored answer that is as good as what was asked for; else the best one."""
    ways = [
        with_noise(asked, way, reason, public.schema.dataset, reserved_delta(asked, way, public.budget))
        for asked, way, reason in _ways(planned, public)
    ]
    if planned.request.fresh or not ways[0].releases:
        return ways[0]
    # Answers of older ledgers, which have no date, are found last.
    known = (with_record(way, public.answers) for way in chain(_as_before(planned, ways, public), ways))
    return next((way for way in known if way.recalled is not None), None) or with_record(ways[0], public.answers)


def _ways(planned: Planned, public: PublicEnvironment) -> list[tuple[Planned, NoisePlan, str]]:
    """The possible calibrations of a query: at its epsilon, or at the least epsilon that meets its accuracy target."""
    return rank_mechanisms(planned, public) if planned.request.accuracy is None else mechanisms_meeting(planned, public)


# -- stored answers ----------------------------------------------------------------------------------------------------


def recalled(planned: Planned, public: PublicEnvironment) -> Calibrated | None:
    """The newest stored answer, whatever its noise; None if there is none."""
    subject = subject_of(planned, 0, public.schema.dataset)
    for answer in sorted(public.answers.about(subject), key=_drawn_at, reverse=True):
        terms = None if answer.terms is None else NoiseTerms.from_json(answer.terms)
        way = None if terms is None else _on_terms(planned, terms, Fraction(0), public)
        if way is not None and way.releases[0].fingerprint == answer.fingerprint:
            return with_record(way, public.answers)
    return None


def _as_before(planned: Planned, ways: Sequence[Calibrated], public: PublicEnvironment) -> Iterator[Calibrated]:
    """The query on the terms of its stored answers, newest first, where they leave no more noise than the best way."""
    best = ways[0]
    by_fingerprint = {way.releases[0].fingerprint: way for way in reversed(ways)}
    for answer in sorted(public.answers.about(best.releases[0].subject), key=_drawn_at, reverse=True):
        if answer.fingerprint in by_fingerprint:
            yield by_fingerprint[answer.fingerprint]
        elif answer.terms is not None:
            way = _on_terms(planned, NoiseTerms.from_json(answer.terms), best.request.epsilon, public)
            if way is not None and way.releases[0].fingerprint == answer.fingerprint and _is_as_good(way, best):
                yield way


def _on_terms(planned: Planned, terms: NoiseTerms, epsilon: Fraction, public: PublicEnvironment) -> Calibrated | None:
    """None where less epsilon was spent, or the session has no such noise."""
    filter_, measures = public.budget.filter, [len(one.release.noised) for one in planned.releases]
    if (
        terms.epsilon < epsilon
        or terms.mechanism not in eligible_mechanisms(planned, filter_)
        or [len(parts) for parts in terms.parts] != measures
    ):
        return None
    request = replace(
        planned.request, epsilon=terms.epsilon, statistic_epsilon=terms.statistic_epsilon, delta=terms.delta
    )
    asked = replace(planned, request=request)
    plan = noise_plan_within(asked, terms.mechanism, filter_, parts=terms.parts)
    return with_noise(asked, plan, "as it was asked before", public.schema.dataset, terms.reserved)


def _is_as_good(one: Calibrated, other: Calibrated) -> bool:
    """Whether no measure or statistic of one has more noise than in the other, and no group is hidden in it alone."""
    return one.statistic_epsilon >= other.statistic_epsilon and all(
        all(a.std <= b.std for a, b in zip(mine.measures, its.measures, strict=True))
        and all(mine.thresholds[column] <= least for column, least in its.thresholds.items())
        for mine, its in zip(one.releases, other.releases, strict=True)
    )


def with_record(calibrated: Calibrated, answers: GivenAnswers) -> Calibrated:
    """With the stored answer of each release."""
    known = (answers.on_record(release.fingerprint, release.subject) for release in calibrated.releases)
    return replace(calibrated, on_record=tuple(known))


def _drawn_at(answer: AnswerOnRecord) -> str:
    return answer.time or ""


# -- calibration -------------------------------------------------------------------------------------------------------


def with_noise(planned: Planned, chosen: NoisePlan, reason: str, dataset: str, reserved: Fraction) -> Calibrated:
    """`reserved` is the delta of each partition selection and each test."""
    if any(measure.std > LARGEST_STD for release in chosen.measures for measure in release):
        raise ProgrammingError(
            f"at epsilon {float(planned.request.epsilon):.3g} the answer would be pure noise",
            hint="use a larger epsilon",
        )
    releases = _releases(planned, chosen, reserved, dataset)
    named = planned.request.mechanism
    noises = [named] if named is not None and any(release.tests for release in releases) else []
    noises += [chosen.mechanism] if measure_count(planned) else []
    drawn = [draw.name for release in releases for _, draw in release.statistics]
    return Calibrated(
        request=planned.request,
        releases=releases,
        public=planned.public,
        outputs=planned.outputs,
        propagated=planned.propagated,
        post_processing=planned.post_processing,
        mechanism=" and ".join(dict.fromkeys(noises + drawn)),
        reason=reason,
        noise_plan=chosen,
        reserved=reserved,
        statistic_epsilon=statistic_epsilon(planned),
        tracked=planned.tracked,
    )


@memoized_on_node
def _releases(planned: Planned, chosen: NoisePlan, reserved: Fraction, dataset: str) -> tuple[CalibratedRelease, ...]:
    releases: list[CalibratedRelease] = []
    for number in range(len(planned.releases)):
        releases.append(_release(planned, number, chosen, reserved, dataset, releases))
    return tuple(releases)


def _release(
    planned: Planned,
    number: int,
    noise_plan: NoisePlan,
    reserved: Fraction,
    dataset: str,
    before: list[CalibratedRelease],
) -> CalibratedRelease:
    release, measures = planned.releases[number], noise_plan.measures[number]
    statistics = tuple(_drawn(drawn, release.release, planned, reserved) for drawn in release.release.statistics)
    drawings: list[Event] = [Repeated((draw.event,), Fraction(release.release.groups)) for _, draw in statistics]
    if release.auto_bounds.groups:
        # Over however many groups, once that is found: they are pure, and have their epsilon together.
        drawings = [PureRelease(statistic_epsilon(planned)) for drawn, _ in statistics for _ in range(drawn.draws)]
    event = Composed((noise_plan.events[number], *drawings))
    part = noise_plan.part(number)
    delta = noise_plan.delta * part
    delta += sum((Fraction(privacy_loss(drawing).delta) for drawing in drawings), Fraction(0))
    thresholds = _thresholds(release.release, measures, reserved)
    if release.release.domain is None:
        lost = reserved * len(thresholds)
        event = Composed((event, ApproximateRelease(Fraction(0), lost)))
        delta += lost
    draws = sum(drawn.draws for drawn, _ in statistics)
    drawn = CalibratedRelease(
        planned=release,
        measures=measures,
        statistics=statistics,
        tests=tuple(_test(answer.test, measures) for answer in release.release.answers if answer.test is not None),
        thresholds=thresholds,
        event=event,
        epsilon=measures_epsilon(planned) * part + statistic_epsilon(planned) * draws,
        delta=delta,
        subject=subject_of(planned, number, dataset),
    )
    fingerprints = {place: made.fingerprint for place, made in enumerate(before)}
    found = fingerprint_of(planned, number, drawn, noise_plan.measures, dataset, fingerprints)
    return replace(drawn, fingerprint=found)


BETA = Fraction(1, 20)
"""The largest probability that a group is shown which has fewer people than the data owner requires."""


def _thresholds(release: Release, measures: tuple[NoisyMeasure, ...], reserved: Fraction) -> dict[str, int]:
    """The noisy number of units that a group needs to be shown. With public keys, hiding small groups needs no delta.

    In a total a unit may count once for each of its groups, and it may be in as many totals.
    """
    chosen = {measure.bounded.column: measure for measure in measures if measure.bounded.column in release.selecting}
    asked = _asked_thresholds(release, chosen, reserved)
    if release.least_people is None:
        return asked
    # With one person fewer it is shown with a probability of at most BETA, and with still fewer more rarely.
    fewer = release.least_people - 1
    hiding = {column: counting.noise.threshold(1, BETA) - 1 + fewer for column, counting in chosen.items()}
    return {column: max(most, hiding[column]) for column, most in asked.items()}


def _asked_thresholds(release: Release, chosen: dict[str, NoisyMeasure], reserved: Fraction) -> dict[str, int]:
    if release.domain is not None:
        return dict.fromkeys(chosen, release.min_units or 0)
    return {
        column: counting.noise.threshold(release.groups, reserved)
        + counting.bounded.linf
        + (release.min_units or 1)
        - 2
        for column, counting in chosen.items()
    }


def _test(test: ProposalTest, measures: tuple[NoisyMeasure, ...]) -> CalibratedTest:
    """The calibrated test; if nobody exceeds the clip, it fails one time in a hundred."""
    (exceeding,) = (measure for measure in measures if measure.bounded.column == test.exceeding)
    return CalibratedTest(test, exceeding.noise.half_width(PASSING))


def _drawn(drawn: Drawn, release: Release, planned: Planned, reserved: Fraction) -> tuple[Drawn, Draw]:
    """The terms of one group: one unit is in several groups, which share the statistic's epsilon and delta."""
    terms = Terms(
        mechanism_for(type(drawn.statistic), planned.request.mechanism),
        planned.request.propose,
        statistic_epsilon(planned) / release.groups,
        reserved / release.groups,
        drawn.rows_of(release.rows),
    )
    draw = draw_for(drawn.statistic, terms)
    if drawn.together:
        draw = bisected_quantile(drawn, terms)
    if release.domain is not None and release.domain.size * draw.work > MOST_WORK:
        raise ProgrammingError(
            f"{release.domain.size:,} groups with {draw.work:,} numbers each are too much work",
            hint="use fewer groups, a larger epsilon, or fewer rows per person: max_rows_per_group=1",
        )
    return drawn, draw
