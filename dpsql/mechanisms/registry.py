"""The mechanisms that can be named: one row each, with what it needs and what it can answer.

Additive ones give noise to measures (counts and sums, and what follows from them). The others draw a statistic from its
profile; of those that can, the first is taken where the analyst names none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from dpsql.aggregates.measure import Average, Matched, Mode, Quantile, Statistic
from dpsql.errors import ProgrammingError
from dpsql.mechanisms.data_dependent import (
    proposed_average,
    proposed_matched,
    proposed_quantile,
    smooth_average,
    smooth_matched,
    smooth_quantile,
)
from dpsql.mechanisms.draw_statistics import chosen_mode, chosen_quantile, stable_mode
from dpsql.mechanisms.gaussian import GaussianMechanism
from dpsql.mechanisms.k_norm import KNormMechanism
from dpsql.mechanisms.laplace import LaplaceMechanism

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dpsql.mechanisms.additive import AdditiveMechanism
    from dpsql.mechanisms.draw import Draw, Terms

Calibrate: TypeAlias = "Callable[[Any, Terms], Draw]"
"""From a statistic and what one group may cost to a draw, whose `event` is the privacy loss."""


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    name: str
    proof: str
    """Its note in docs/proofs/."""
    needs_delta: bool = False
    """In general; a mechanism may need one for some questions only."""
    needs_proposal: bool = False
    """Whether the analyst has to say how much one unit does, by propose=; sums and counts are clipped to it."""
    noise: AdditiveMechanism | None = None
    """How it calibrates noise for measures, if it does."""
    draws: Mapping[type[Statistic], Calibrate] = field(default_factory=dict)
    """How it calibrates a draw, for each kind of statistic that it can answer."""


MECHANISMS = {
    mechanism.name: mechanism
    for mechanism in (
        Mechanism(name="laplace", proof="discrete_laplace.md", noise=LaplaceMechanism()),
        Mechanism(name="knorm", proof="k_norm.md", noise=KNormMechanism()),
        Mechanism(name="gaussian", proof="rounded_gaussian.md", needs_delta=True, noise=GaussianMechanism()),
        Mechanism(name="exponential", proof="exponential.md", draws={Quantile: chosen_quantile, Mode: chosen_mode}),
        Mechanism(
            name="smooth",
            proof="smooth_sensitivity.md",
            draws={Quantile: smooth_quantile, Average: smooth_average, Matched: smooth_matched},
        ),
        Mechanism(
            name="ptr",
            proof="propose_test_release.md",
            needs_delta=True,
            needs_proposal=True,
            draws={Quantile: proposed_quantile, Average: proposed_average, Matched: proposed_matched},
        ),
        Mechanism(name="stable", proof="stable_values.md", needs_delta=True, draws={Mode: stable_mode}),
    )
}

ADDITIVE = {name: mechanism.noise for name, mechanism in MECHANISMS.items() if mechanism.noise is not None}


def drawing(statistic: type[Statistic]) -> list[str]:
    """The mechanisms that can draw such a statistic, the usual one first."""
    return [name for name, mechanism in MECHANISMS.items() if statistic in mechanism.draws]


def mechanism_for(statistic: type[Statistic], named: str | None) -> str:
    """The mechanism that the analyst names, if it can draw this, or the usual one."""
    possible = drawing(statistic)
    return named if named in possible else possible[0]


def is_chosen(statistic: Statistic, named: str | None) -> bool:
    """Whether it is drawn by the exponential mechanism proper, which on a curve counts as half its epsilon."""
    return isinstance(statistic, Quantile) and mechanism_for(type(statistic), named) == "exponential"


def draw_for(statistic: Statistic, terms: Terms) -> Draw:
    mechanism = MECHANISMS[terms.mechanism]
    if mechanism.needs_delta:
        terms.needs_delta()
    try:
        return mechanism.draws[type(statistic)](statistic, terms)
    except ValueError as error:  # no data was read yet: what does not fit is the price
        raise ProgrammingError(
            f"for one statistic and group there is an epsilon of {float(terms.epsilon):.3g}, and {error}",
            hint="name another epsilon, or another mechanism",
        ) from None
