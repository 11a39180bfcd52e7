"""Which mechanism draws which statistic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsql.aggregates.draw_average import proposed_average
from dpsql.aggregates.draw_mode import stable_mode
from dpsql.aggregates.draw_quantile import chosen_quantile, proposed_quantile
from dpsql.aggregates.statistic import Average, Mode, Quantile

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.aggregates.draw import Draw, Terms
    from dpsql.aggregates.statistic import Statistic

DRAWS: dict[tuple[type, str], Callable[[Any, Terms], Draw]] = {
    (Quantile, "exponential"): chosen_quantile,
    (Quantile, "ptr"): proposed_quantile,
    (Mode, "stable"): stable_mode,
    (Average, "ptr"): proposed_average,
}


def draw_for(statistic: Statistic, terms: Terms) -> Draw:
    return DRAWS[type(statistic), terms.mechanism](statistic, terms)
