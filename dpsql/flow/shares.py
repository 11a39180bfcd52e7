"""How a query's epsilon and delta are shared: equally by all measures, key selection included, and statistics.

Of the delta a part is the noise's own; the rest is for choosing which groups to show, and for tests.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.accounting.filters import RESERVED_SHARE, Basic
from dpsql.errors import ProgrammingError

if TYPE_CHECKING:
    from dpsql.accounting.filters import Filter
    from dpsql.flow.candidates import Candidate
    from dpsql.flow.plan_query import Planned


def measure_count(planned: Planned) -> int:
    return sum(len(release.release.measures) for release in planned.releases)


def statistic_count(planned: Planned) -> int:
    return sum(len(release.release.statistics) for release in planned.releases)


def each_epsilon(planned: Planned) -> Fraction:
    """The epsilon of one measure or statistic."""
    return planned.question.epsilon / max(1, measure_count(planned) + statistic_count(planned))


def curve_delta(planned: Planned, filter_: Filter) -> Fraction:
    """The delta of the noise itself; what is left of the query's delta is for key selection and tests."""
    question = planned.question
    if isinstance(filter_, Basic):
        whole = whole_delta(question.epsilon, question.delta, filter_)
        return whole / 2 if selection_count(planned) or test_count(planned) else whole
    return filter_.curve_delta if question.delta is None else question.delta * (1 - RESERVED_SHARE)


def whole_delta(epsilon: Fraction, delta: Fraction | None, filter_: Basic) -> Fraction:
    """In basic composition what names no delta takes as much of it as of epsilon."""
    if delta is not None:
        return delta
    return filter_.delta * (min(Fraction(1), epsilon / filter_.epsilon) if filter_.epsilon else Fraction(1))


def selection_count(planned: Planned) -> int:
    """How many releases have groups whose very keys tell about people."""
    return sum(release.release.domain is None for release in planned.releases)


def test_count(planned: Planned) -> int:
    """How many statistics may be drawn by a mechanism that needs a delta."""
    return 0 if planned.question.mechanism is None else statistic_count(planned)


def reserved_delta(planned: Planned, filter_: Filter, candidate: Candidate) -> Fraction:
    """For each key selection and each test its part of the delta that is not the noise's.

    In a session that is the part of what is reserved that the query is of the session.
    """
    uses, question = selection_count(planned) + test_count(planned), planned.question
    if not uses:
        return Fraction(0)
    if isinstance(filter_, Basic):
        reserved = whole_delta(question.epsilon, question.delta, filter_) - candidate.delta
    elif question.delta is None:
        reserved = filter_.reserved_delta * Fraction(min(1.0, candidate.share))
    else:
        reserved = question.delta * RESERVED_SHARE
    if not reserved and selection_count(planned):
        raise ProgrammingError(
            "the groups are not public, and choosing which to show needs a delta",
            hint="begin the session with delta=1e-6, or let the data owner declare  values: [...]  for the keys",
        )
    return reserved / uses
