"""A question that names no price takes a tenth of the session, in the currency in which the session counts.

Ten of them use it up. Where squared mus add up, each has a tenth of the session's mu^2, which by itself is far more
than a tenth of its epsilon. docs/proofs/calibration.md.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.accounting.rules import PureSum
from dpsql.pipeline.allocate import asked_count, beside_part, statistic_count
from dpsql.pipeline.candidates import Candidate, candidate
from dpsql.pipeline.possible_noises import possible_noises
from dpsql.relation.once import once_per_node
from dpsql.statistics.mechanism_table import MECHANISMS, is_chosen

if TYPE_CHECKING:
    from dpsql.accounting.filters import Filter
    from dpsql.accounting.rules import Currency
    from dpsql.aggregates.statistic import Statistic
    from dpsql.pipeline.plan_query import Planned


def ways_within(planned: Planned, filter_: Filter, share: Fraction) -> list[tuple[Planned, Candidate]]:
    """For each kind of noise that makes sense the question at the epsilon that takes this share."""
    noises, rule = possible_noises(planned, filter_), filter_.currency
    if not isinstance(rule, PureSum):
        # Along a curve, Laplace noise has 1.77 times the error of Gaussian noise for the same part.
        noises = [noise for noise in noises if MECHANISMS[noise].needs_delta] or noises
    asked = [(_priced(planned, noise, filter_, share), noise) for noise in noises]
    return [(one, candidate(one, noise, filter_)) for one, noise in asked]


@once_per_node
def _priced(planned: Planned, noise: str, filter_: Filter, share: Fraction) -> Planned:
    """Each measure and each statistic has the same part, beside what is asked about bounding."""
    measures, statistics = asked_count(planned), statistic_count(planned)
    beside = share * beside_part(planned)
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
