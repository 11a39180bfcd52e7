"""possible_noises: the additive mechanisms that suit a query's measures, its bounding and the delta of its session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.errors import ProgrammingError
from dpsql.pipeline.allocate import boxes_of
from dpsql.pipeline.candidates import is_scaled, measure_count
from dpsql.statistics.mechanism_table import ADDITIVE, MECHANISMS

if TYPE_CHECKING:
    from fractions import Fraction

    from dpsql.accounting.filters import Filter
    from dpsql.pipeline.plan_query import Planned

PURE = tuple(name for name in ADDITIVE if not MECHANISMS[name].needs_delta)


def possible_noises(planned: Planned, filter_: Filter) -> list[str]:
    named = planned.request.mechanism
    delta = filter_.delta if planned.request.delta is None else planned.request.delta
    if not measure_count(planned):
        return [PURE[0]]
    if is_scaled(planned):
        _check_scaled(named, delta)
        return [name for name, kind in ADDITIVE.items() if kind.by_l2]
    if named in ADDITIVE:
        _check_named(named, planned, delta)
        return [named]
    return [name for name in (ADDITIVE if delta else PURE) if not ADDITIVE[name].boxed or _are_boxes_worth_it(planned)]


def _check_scaled(named: str | None, delta: Fraction) -> None:
    if named in ADDITIVE and not ADDITIVE[named].by_l2:
        raise ProgrammingError(
            f'bounding="scale" bounds the squares of what a unit adds, which is not enough for {named} noise',
            hint='name "gaussian", or leave bounding= out',
        )
    if not delta:
        raise ProgrammingError(
            'bounding="scale" needs Gaussian noise, which needs a delta, and this session has none',
            hint="connect with delta=1e-6, or leave bounding= out",
        )


def _check_named(named: str, planned: Planned, delta: Fraction) -> None:
    if ADDITIVE[named].boxed and (apart := _drawn_apart(planned)):
        raise ProgrammingError(
            f"{named} noise is drawn for all measures of a group at once, and {apart}",
            hint=f"use {PURE[0].capitalize()}, or name no mechanism",
        )
    if MECHANISMS[named].needs_delta and not delta:
        raise ProgrammingError(
            f"{named.capitalize()} noise needs a delta, and this session has none",
            hint=f"connect with delta=1e-6, or use {PURE[0].capitalize()}",
        )


def _drawn_apart(planned: Planned) -> str | None:
    """Why one of the measures is drawn before the others, if it is."""
    releases = [one.release for one in planned.releases]
    if any(release.selecting for release in releases):
        return "here a count comes first, which chooses the groups that are shown"
    if any(answer.test for release in releases for answer in release.answers):
        return "here a test comes first, without which the rest is not paid for"
    return None


def _are_boxes_worth_it(planned: Planned) -> bool:
    """A box of one measure is Laplace noise by another name, and one of several leaves nothing to be weighed."""
    boxes = (box for one in planned.releases for box in boxes_of(one.release.noised))
    weighed = planned.request.weights is not None
    return not weighed and any(box.dimension > 1 for box in boxes) and not _drawn_apart(planned)
