"""Which mechanism draws which statistic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsql.aggregates.draw_average import proposed_average
from dpsql.aggregates.draw_matched import proposed_matched, smooth_matched
from dpsql.aggregates.draw_mode import chosen_mode, stable_mode
from dpsql.aggregates.draw_quantile import chosen_quantile, proposed_quantile
from dpsql.aggregates.draw_smooth import smooth_average, smooth_quantile
from dpsql.aggregates.statistic import Average, Matched, Mode, Quantile

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.aggregates.draw import Draw, Terms
    from dpsql.aggregates.statistic import Statistic

DRAWS: dict[tuple[type, str], Callable[[Any, Terms], Draw]] = {
    (Quantile, "exponential"): chosen_quantile,
    (Quantile, "ptr"): proposed_quantile,
    (Quantile, "smooth"): smooth_quantile,
    (Mode, "exponential"): chosen_mode,
    (Mode, "stable"): stable_mode,
    (Average, "ptr"): proposed_average,
    (Average, "smooth"): smooth_average,
    (Matched, "ptr"): proposed_matched,
    (Matched, "smooth"): smooth_matched,
}


def draw_for(statistic: Statistic, terms: Terms) -> Draw:
    return DRAWS[type(statistic), terms.mechanism](statistic, terms)
