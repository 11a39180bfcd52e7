"""The additive mechanisms that a query can use, their noise, and the share of the session's budget that each takes.

There is one for each additive mechanism of mechanisms/registry.py. docs/proofs/calibration.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from dpsql.accounting.events import Composed, Event, Exponential, PureRelease, Repeated
from dpsql.accounting.filters import RESERVED_SHARE, Basic, PureSum
from dpsql.accounting.privacy_loss import PrivacyLoss, privacy_loss
from dpsql.errors import ProgrammingError
from dpsql.mechanisms.additive import Allowance, Share, joint_part
from dpsql.mechanisms.draw import Refund
from dpsql.mechanisms.registry import ADDITIVE, MECHANISMS, is_chosen
from dpsql.pipeline.allocate import (
    Wanted,
    allocated,
    asked_count,
    auxiliary_part,
    boxes_of,
    places_of,
    statistic_count,
    wanted,
)
from dpsql.relation.units import memoized_on_node

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dpsql.accounting.budget import Budget
    from dpsql.accounting.filters import Currency, Filter, Rule
    from dpsql.aggregates.measure import Statistic
    from dpsql.aggregates.release import Bounded
    from dpsql.intervals import NoisyColumns
    from dpsql.mechanisms.additive import AdditiveMechanism, Calibration, Noise
    from dpsql.pipeline.environment import PublicEnvironment
    from dpsql.pipeline.plan_query import Planned, PlannedRelease

FINEST_STD = 2**26
"""Noise is drawn on a grid of at least 2^-26 of its standard deviation; finer digits would be pure noise."""
KEPT_BITS = 11
"""The bits that a sensitivity keeps, so that rounding it up to the grid costs less than a thousandth."""


@dataclass(frozen=True)
class NoisyMeasure:
    """A measure and its noise, on a grid of 2^shift quanta of its column."""

    bounded: Bounded
    noise: Noise
    shift: int
    alone: Refund
    """The privacy event of the measure alone; Free if the release is charged as a whole."""

    @property
    def std(self) -> float:
        """The standard deviation of the noise, in the column's quanta."""
        return math.ldexp(self.noise.std, self.shift)


@dataclass(frozen=True, kw_only=True, eq=False)
class NoisePlan:
    """A noise plan: one mechanism for all measures of a query, with the noisy measures and the event of each release.

    It follows from the plan and the session's composition rule, not from what is already spent.
    """

    mechanism: str
    measures: tuple[tuple[NoisyMeasure, ...], ...]
    events: tuple[Event, ...]
    parts: tuple[tuple[Fraction, ...], ...]
    """The part of the measures' budget that each release has."""
    delta: Fraction
    """The delta of the query's epsilon, without partition selection."""
    spread: float
    """The mean logarithm of the columns' variances: the measure of error."""
    loss: PrivacyLoss = field(repr=False)
    """The privacy loss of the whole query, including statistics."""
    filter: Filter = field(repr=False)
    """The session's privacy filter when the noise was chosen."""

    def part(self, number: int) -> Fraction:
        """The part of the measures' budget that a release has."""
        bounds = [measure.bounded for measure in self.measures[number]]
        return joint_part(_shares(bounds, self.parts[number], ADDITIVE[self.mechanism]))


def is_l2_clipped(planned: Planned) -> bool:
    return any(part.is_l2_clipped for one in planned.releases for part in one.release.noised)


def noisy_columns(measures: Iterable[NoisyMeasure]) -> NoisyColumns:
    return {measure.bounded.column: (measure.noise, 1 << measure.shift) for measure in measures}


@memoized_on_node
def noise_plan(planned: Planned, mechanism: str, filter_: Filter) -> NoisePlan:
    """The noise plan of a query with this mechanism."""
    return noise_plan_within(planned, mechanism, filter_)


def noise_plan_within(
    planned: Planned,
    mechanism: str,
    filter_: Filter,
    totals: Sequence[Fraction] | None = None,
    aims: Sequence[Wanted] = (),
    parts: tuple[tuple[Fraction, ...], ...] | None = None,
) -> NoisePlan:
    """The same, where each release's share of the budget is fixed (`totals`), how far off columns may be
    (`aims`), or what each measure has (`parts`)."""
    kind = ADDITIVE[mechanism]
    if not kind.by_l2 and is_l2_clipped(planned):
        raise ValueError("measures bounded only in L2 need Gaussian noise")
    delta = curve_delta(planned, filter_) if MECHANISMS[mechanism].needs_delta else Fraction(0)
    allowance = Allowance(measures_epsilon(planned), delta, filter_)
    columns = wanted(planned)
    parts = parts or allocated(planned, columns, kind, aims)
    if totals is not None:
        parts = tuple(
            _in_proportion(one.release.noised, shared, total, kind)
            for one, shared, total in zip(planned.releases, parts, totals, strict=True)
        )
    found = [
        _calibrated(one, shared, kind, allowance, planned) for one, shared in zip(planned.releases, parts, strict=True)
    ]
    measures, events = tuple(noisy for noisy, _ in found), tuple(event for _, event in found)
    return NoisePlan(
        mechanism=mechanism,
        measures=measures,
        events=events,
        parts=parts,
        delta=delta,
        spread=_spread(columns, measures),
        loss=privacy_loss(Composed((*events, _drawing(planned)))),
        filter=filter_,
    )


def _calibrated(
    one: PlannedRelease, parts: Sequence[Fraction], kind: AdditiveMechanism, allowance: Allowance, planned: Planned
) -> tuple[tuple[NoisyMeasure, ...], Event]:
    """The noisy measures of a release, and their joint privacy event."""
    bounds = one.release.noised
    shares = _shares(bounds, parts, kind)
    if not shares:
        return (), Composed(())
    calibrations, event = kind.calibrate(allowance, shares)
    if one.auto_bounds:
        # However its part is shared, and over however many groups, once bounds are found.
        event = kind.at_most(allowance, joint_part(shares))
    return tuple(
        _noisy(bounded, calibration, planned) for bounded, calibration in zip(bounds, calibrations, strict=True)
    ), event


def _shares(bounds: Sequence[Bounded], parts: Sequence[Fraction], kind: AdditiveMechanism) -> list[Share]:
    measures = zip(bounds, parts, places_of(bounds, kind), boxes_of(bounds), strict=True)
    return [Share(bounded.groups, part, place, box, bounded.times_alone) for bounded, part, place, box in measures]


def _in_proportion(
    bounds: Sequence[Bounded], parts: Sequence[Fraction], total: Fraction, kind: AdditiveMechanism
) -> tuple[Fraction, ...]:
    """The parts, rescaled to take `total` together."""
    taken = joint_part(_shares(bounds, parts, kind))
    return tuple(part * total / taken for part in parts)


def _spread(columns: Sequence[Wanted], measures: Sequence[Sequence[NoisyMeasure]]) -> float:
    stds = {(n, part.bounded.column): part.std for n, release in enumerate(measures) for part in release}
    logs = math.fsum(column.importance * column.log_variance(stds) for column in columns)
    return logs / (math.fsum(column.importance for column in columns) or 1)


def _noisy(bounded: Bounded, calibration: Calibration, planned: Planned) -> NoisyMeasure:
    fine = calibration.noise(bounded.each)
    shift = _shift(bounded, fine.std, planned)
    noise = calibration.noise(coarse(bounded.each, shift, bounded.sums)) if shift else fine
    return NoisyMeasure(bounded, noise, shift, Refund(calibration.alone, calibration.epsilon))


def _shift(bounded: Bounded, std: float, planned: Planned) -> int:
    """The low bits far below the noise, which are dropped; a count that selects groups keeps all of its bits."""
    if bounded.place is not None or bounded.is_l2_clipped:
        return 0  # rounding would move each measure of a bundle by itself, and more groups than are counted
    if std < FINEST_STD or any(bounded.column in release.release.selecting for release in planned.releases):
        return 0
    return max(0, min(int(math.log2(std / FINEST_STD)), (bounded.each // bounded.sums).bit_length() - KEPT_BITS))


def coarse(each: int, shift: int, sums: int = 1) -> int:
    """|S - S'| <= each implies |q - q'| <= this for q = (S + 2^(shift-1)) >> shift; of several sums all are rounded."""
    return sums * -(-(each // sums) >> shift)


def _drawing(planned: Planned) -> Event:
    """The event of all statistics, over all groups that one unit can reach."""
    epsilon, named = statistic_epsilon(planned), planned.request.mechanism
    return Composed(
        tuple(
            _in_each_group(is_chosen(drawn.statistic, named), epsilon, one.release.groups)
            if not one.auto_bounds.groups
            else PureRelease(epsilon)
            for one in planned.releases
            for drawn in one.release.statistics
            for _ in range(drawn.draws)
        )
    )


def _in_each_group(chosen: bool, epsilon: Fraction, groups: int) -> Event:
    each = epsilon / groups
    return Repeated((Exponential(each) if chosen else PureRelease(each),), Fraction(groups))


class SessionShare(NamedTuple):
    part: float
    """The fraction of the session's budget, by the best rule that still admits the query."""
    fits: bool
    """Whether any rule admits the query."""


def share_of(cost: PrivacyLoss, budget: Budget) -> SessionShare:
    """The share that a cost takes of a session's budget, given what is spent."""
    after = budget.tally.totals + cost
    rules = budget.filter.rules_at(after)
    parts = _parts(cost, rules)
    alive = [part for part, rule in zip(parts, rules, strict=True) if after <= rule.limit]
    # An analyst's part of the budget may have room for what the dataset has not.
    return SessionShare(min(alive or parts), bool(alive) and (budget.dataset is None or budget.dataset.admits(cost)))


@lru_cache(maxsize=1024)
def _parts(cost: PrivacyLoss, rules: tuple[Rule, ...]) -> tuple[float, ...]:
    """The share by each rule."""
    return tuple(
        max(_fraction(mine, limit) for mine, limit in zip(cost.amounts, rule.limit.amounts, strict=True))
        for rule in rules
    )


def _fraction(amount: Fraction | float, limit: Fraction | float) -> float:
    if not amount or limit == math.inf:
        return 0.0
    return float(amount / limit) if limit else math.inf


# How a query's epsilon and delta are shared: statistics have an equal part each, and measures the rest.


def measure_count(planned: Planned) -> int:
    return sum(len(release.release.noised) for release in planned.releases)


def statistic_epsilon(planned: Planned) -> Fraction:
    """The epsilon of one statistic."""
    request = planned.request
    if request.statistic_epsilon is not None:
        return request.statistic_epsilon
    return request.epsilon * (1 - auxiliary_part(planned)) / max(1, asked_count(planned) + statistic_count(planned))


def measures_epsilon(planned: Planned) -> Fraction:
    """The epsilon of all measures together; allocate.py shares it among them."""
    return planned.request.epsilon - statistic_epsilon(planned) * statistic_count(planned)


def curve_delta(planned: Planned, filter_: Filter) -> Fraction:
    """The delta of the noise; the rest of the query's delta is for partition selection and tests."""
    request = planned.request
    if isinstance(filter_, Basic):
        whole = whole_delta(request.epsilon, request.delta, filter_)
        return whole / 2 if selection_count(planned) or test_count(planned) else whole
    return filter_.curve_delta if request.delta is None else request.delta * (1 - RESERVED_SHARE)


def whole_delta(epsilon: Fraction, delta: Fraction | None, filter_: Basic) -> Fraction:
    """The delta of a query that names none: under basic composition, the same share as of epsilon."""
    if delta is not None:
        return delta
    return filter_.delta * (min(Fraction(1), epsilon / filter_.epsilon) if filter_.epsilon else Fraction(1))


def selection_count(planned: Planned) -> int:
    """The number of partition selections over private keys."""
    return sum(len(release.release.selecting) for release in planned.releases if release.release.domain is None)


def test_count(planned: Planned) -> int:
    """The number of statistics whose mechanism may need a delta."""
    return 0 if planned.request.mechanism is None else statistic_count(planned)


def reserved_delta(planned: Planned, noise_plan: NoisePlan, budget: Budget) -> Fraction:
    """The delta of each partition selection and each test, out of the reserve that is not for noise.

    In a session that is the part of what is reserved that the query is of the session.
    """
    uses, request, filter_ = selection_count(planned) + test_count(planned), planned.request, budget.filter
    if not uses:
        return Fraction(0)
    if isinstance(filter_, Basic):
        reserved = whole_delta(request.epsilon, request.delta, filter_) - noise_plan.delta
    elif request.delta is None:
        # An analyst with a limit takes no more of what all share than anybody does at that epsilon.
        reserved = min(
            limit.filter.reserved_delta * Fraction(min(1.0, share_of(noise_plan.loss, limit).part))
            for limit in budget.limits
        )
    else:
        reserved = request.delta * RESERVED_SHARE
    if not reserved and selection_count(planned):
        raise ProgrammingError(
            "the groups are not public, so choosing which to show needs a delta",
            hint=f"{_way_to_delta(filter_)}; or the owner declares  values: [...]  for the keys",
        )
    return reserved / uses


# -- possible noises ---------------------------------------------------------------------------------------------------
# eligible_mechanisms: the additive mechanisms that suit a query's measures, its bounding and the delta of its session.

PURE = tuple(name for name in ADDITIVE if not MECHANISMS[name].needs_delta)


def eligible_mechanisms(planned: Planned, filter_: Filter) -> list[str]:
    named = planned.request.mechanism
    delta = filter_.delta if planned.request.delta is None else planned.request.delta
    if not measure_count(planned):
        return [PURE[0]]
    if is_l2_clipped(planned):
        _check_l2_clipped(named, delta, filter_)
        return [name for name, kind in ADDITIVE.items() if kind.by_l2]
    if named in ADDITIVE:
        _check_named(named, planned, delta, filter_)
        return [named]
    return [name for name in (ADDITIVE if delta else PURE) if not ADDITIVE[name].boxed or _are_boxes_worth_it(planned)]


def _way_to_delta(filter_: Filter) -> str:
    """A budget that is on record has a delta from its owner alone, whatever a session connects with."""
    grant = f"dpsql budget grant {float(filter_.epsilon):g} --delta 1e-6"
    return f"a new ledger has the delta that it is opened with (delta=1e-6); ask the data owner for one:  {grant}"


def _check_l2_clipped(named: str | None, delta: Fraction, filter_: Filter) -> None:
    if named in ADDITIVE and not ADDITIVE[named].by_l2:
        raise ProgrammingError(
            f'bounding="l2_clip" bounds a person only in the L2 norm, which is not enough for {named} noise',
            hint='use "gaussian", or omit bounding=',
        )
    if not delta:
        raise ProgrammingError(
            'bounding="l2_clip" needs Gaussian noise and so a delta, but this session has none',
            hint=f"omit bounding=; {_way_to_delta(filter_)}",
        )


def _check_named(named: str, planned: Planned, delta: Fraction, filter_: Filter) -> None:
    if ADDITIVE[named].boxed and (apart := _drawn_apart(planned)):
        raise ProgrammingError(
            f"{named} noise is drawn for all measures of a group at once, but {apart}",
            hint=f"use {PURE[0].capitalize()}, or omit mechanism=",
        )
    if MECHANISMS[named].needs_delta and not delta:
        raise ProgrammingError(
            f"{named.capitalize()} noise needs a delta, but this session has none",
            hint=f"use {PURE[0].capitalize()}; {_way_to_delta(filter_)}",
        )


def _drawn_apart(planned: Planned) -> str | None:
    """Why one of the measures is drawn before the others, if it is."""
    releases = [one.release for one in planned.releases]
    if any(release.selecting for release in releases):
        return "here a count must come first, to choose the groups that are shown"
    if any(answer.test for release in releases for answer in release.answers):
        return "here a private test must come first, because the rest is charged only if it passes"
    return None


def _are_boxes_worth_it(planned: Planned) -> bool:
    """A box of one measure is Laplace noise by another name, and one of several leaves nothing to be weighed."""
    boxes = (box for one in planned.releases for box in boxes_of(one.release.noised))
    weighed = planned.request.weights is not None
    return not weighed and any(box.dimension > 1 for box in boxes) and not _drawn_apart(planned)


# -- default share -----------------------------------------------------------------------------------------------------
# A query that names no cost takes a tenth of the session's budget, in the currency in which the session counts.
#
# Ten of them use it up. Where squared mus add up, each has a tenth of the session's mu^2, which by itself is far more
# than a tenth of its epsilon. docs/proofs/calibration.md.


def rank_mechanisms_within(planned: Planned, filter_: Filter, share: Fraction) -> list[tuple[Planned, NoisePlan]]:
    """The query with each sensible kind of noise, at the epsilon that takes this share of the session."""
    noises, rule = eligible_mechanisms(planned, filter_), filter_.currency
    if not isinstance(rule, PureSum):
        # Along a curve, Laplace noise has 1.77 times the error of Gaussian noise for the same part.
        noises = [noise for noise in noises if MECHANISMS[noise].needs_delta] or noises
    asked = [(_priced(planned, noise, filter_, share), noise) for noise in noises]
    return [(one, noise_plan(one, noise, filter_)) for one, noise in asked]


@memoized_on_node
def _priced(planned: Planned, noise: str, filter_: Filter, share: Fraction) -> Planned:
    """The query at a share of the budget: measures and statistics get equal parts, besides auxiliary releases."""
    measures, statistics = asked_count(planned), statistic_count(planned)
    beside = share * auxiliary_part(planned)
    rule, part = filter_.currency, (share - beside) / max(1, measures + statistics)
    added = rule if MECHANISMS[noise].needs_delta else PureSum(filter_.epsilon, filter_.reserved_delta)
    drawn = _statistic_epsilon(planned, rule, part)
    epsilon = added.epsilon_of(part * measures + beside) + drawn * statistics
    return replace(planned, request=replace(planned.request, epsilon=epsilon, statistic_epsilon=drawn))


def _statistic_epsilon(planned: Planned, rule: Currency, part: Fraction) -> Fraction:
    """The least that any of the statistics may have."""
    return min(
        (
            one.release.groups
            * _group_epsilon(drawn.statistic, planned.request.mechanism, rule, part / one.release.groups)
            for one in planned.releases
            for drawn in one.release.statistics
        ),
        default=Fraction(0),
    )


def _group_epsilon(statistic: Statistic, named: str | None, rule: Currency, part: Fraction) -> Fraction:
    """On a curve the exponential mechanism counts as a pure release of half its epsilon."""
    pure = rule.pure_epsilon_of(part)
    return 2 * pure if is_chosen(statistic, named) and not isinstance(rule, PureSum) else pure


# -- ways at price -----------------------------------------------------------------------------------------------------
# The mechanisms that a query can use at its cost, best first, and the reason.


class RankedPlan(NamedTuple):
    planned: Planned
    plan: NoisePlan
    share: SessionShare
    error: float
    """The mean logarithm of the squared errors of columns and of thresholds."""


ALL = SessionShare(1.0, fits=True)
LEAST = "the least error for its share of the budget"
NOTICEABLE = 1.05
"""Errors that differ by less than this factor are said to be the same."""


def rank_mechanisms(planned: Planned, public: PublicEnvironment) -> list[tuple[Planned, NoisePlan, str]]:
    budget, share = public.budget, planned.request.share
    if share is None:
        noises = eligible_mechanisms(planned, budget.filter)
        found = [(planned, noise_plan(planned, noise, budget.filter)) for noise in noises]
    else:
        found = rank_mechanisms_within(planned, budget.filter, share)
    # Where there is one way only, nobody needs to know what it takes.
    if len(found) == 1:
        ways = [RankedPlan(*found[0], ALL, 0.0)]
    else:
        ways = [
            RankedPlan(asked, plan, share_of(plan.loss, budget), _error(asked, plan, budget)) for asked, plan in found
        ]
    # What still fits comes first. Then error weighed by what it costs the session: variance times share.
    ways.sort(key=lambda way: (not way.share.fits, way.error + math.log(max(way.share.part, 1e-300))))
    return [(way.planned, way.plan, _reason(way, ways, budget)) for way in ways]


def _error(planned: Planned, plan: NoisePlan, budget: Budget) -> float:
    """Where keys are not public, the threshold counts like a column: it decides which groups are shown at all."""
    if not selection_count(planned):
        return plan.spread
    reserved, columns = reserved_delta(planned, plan, budget), wanted(planned)
    thresholds = [
        counting.noise.threshold(one.release.groups, reserved)
        for one, measures in zip(planned.releases, plan.measures, strict=True)
        for counting in measures
        if one.release.domain is None and counting.bounded.column in one.release.selecting
    ]
    asked = math.fsum(column.importance for column in columns)
    logs = asked * plan.spread + math.fsum(2 * math.log(max(most, 1)) for most in thresholds)
    return logs / (asked + len(thresholds))


def _reason(best: RankedPlan, ways: list[RankedPlan], budget: Budget) -> str:
    planned, share = best.planned, best.share
    if not planned.releases:
        return "no private data is read"
    if planned.request.mechanism is not None:
        return "as requested"
    if not measure_count(planned):
        return "the mechanism draws the answer itself"
    if len(ways) == 1:
        return LEAST if budget.filter.delta else "the session has no delta"
    others = [way for way in ways if way is not best and way.share.fits]
    if not others:
        return "the only noise that fits into what is left" if share.fits else LEAST
    return next((said for said in (_compared(best, way) for way in others) if said is not None), LEAST)


def _compared(best: RankedPlan, other: RankedPlan) -> str | None:
    """What is given up for what; None if the numbers that would be shown say that one is better in both."""
    times = math.exp((best.error - other.error) / 2)
    mine, instead = f"{100 * best.share.part:.2g}", f"{100 * other.share.part:.2g}"
    is_less = float(mine) < float(instead)
    if max(times, 1 / times) < NOTICEABLE or mine == instead or (times > 1) != is_less:
        return None
    return f"{times:.2g} times the error of {other.plan.mechanism}, for {mine} % of the budget instead of {instead} %"
