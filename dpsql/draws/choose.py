"""Which mechanism draws which statistic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsql.aggregates.statistic import Average, Matched, Mode, Quantile
from dpsql.draws.mode import chosen_mode, stable_mode
from dpsql.draws.proposed import proposed_average, proposed_matched, proposed_quantile
from dpsql.draws.quantile import chosen_quantile
from dpsql.draws.smooth import smooth_average, smooth_matched, smooth_quantile
from dpsql.errors import ProgrammingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.aggregates.statistic import Statistic
    from dpsql.draws.draw import Draw, Terms

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
    try:
        return DRAWS[type(statistic), terms.mechanism](statistic, terms)
    except ValueError as error:  # no data was read yet: what does not fit is the price
        raise ProgrammingError(
            f"for one statistic and group there is an epsilon of {float(terms.epsilon):.3g}, and {error}",
            hint="name another epsilon, or another mechanism",
        ) from None
