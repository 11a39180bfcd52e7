"""The kinds of noise that a question can have at its price, the best first, and why."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dpsql.pipeline.candidates import SessionShare, candidate, measure_count, share_of
from dpsql.pipeline.default_share import ways_within
from dpsql.pipeline.possible_noises import possible_noises

if TYPE_CHECKING:
    from dpsql.accounting.budget import Budget
    from dpsql.pipeline.candidates import Candidate
    from dpsql.pipeline.plan_query import Planned
    from dpsql.pipeline.public_environment import PublicEnvironment

    Way = tuple[Planned, Candidate, SessionShare]

ALL = SessionShare(1.0, fits=True)


def ways_at_price(planned: Planned, public: PublicEnvironment) -> list[tuple[Planned, Candidate, str]]:
    budget, share = public.budget, planned.request.share
    if share is None:
        noises = possible_noises(planned, budget.filter)
        found = [(planned, candidate(planned, noise, budget.filter)) for noise in noises]
    else:
        found = ways_within(planned, budget.filter, share)
    # Where there is one way only, nobody needs to know what it takes.
    ways: list[Way] = [
        (asked, noise, share_of(noise.loss, budget) if len(found) > 1 else ALL) for asked, noise in found
    ]
    # What still fits comes first. Then error weighed by what it costs the session: variance times share.
    ways.sort(key=lambda way: (not way[2].fits, way[1].spread + math.log(max(way[2].part, 1e-300))))
    return [(*way[:2], _reason(way, ways, budget)) for way in ways]


def _reason(best: Way, ways: list[Way], budget: Budget) -> str:
    planned, noise, share = best
    if not planned.releases:
        return "nothing is read of people but what is public"
    if planned.request.mechanism is not None:
        return "as asked for"
    if not measure_count(planned):
        return "the answer is chosen, since no fixed noise fits it"
    if len(ways) == 1:
        return "the least error for a part of the session" if budget.filter.delta else "the session has no delta"
    _, other, its_share = next(way for way in ways if way is not best)
    times = math.exp((other.spread - noise.spread) / 2)
    more = max(times, 1 / times)
    error = f"{more:.2g} times {'less' if times >= 1 else 'more'} error" if more >= 1.05 else "about as much error"
    part = f"takes {share.part:.2g} of the session instead of {its_share.part:.2g}"
    return f"{error} {'as' if more < 1.05 else 'than'} {other.mechanism}, and {part}"
