"""The registry of mechanisms: one row each, with its requirements and what it can answer.

Additive mechanisms add noise to measures (counts and sums). The others draw a statistic from its profile; the first in
the list that can do so is the default.
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
"""Calibrates a draw of a statistic, given the cost of one group; its `event` is the privacy event."""


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    name: str
    proof: str
    """Its proof note in docs/proofs/."""
    needs_delta: bool = False
    """Whether it always needs a delta; some mechanisms need one for some queries only."""
    needs_proposal: bool = False
    """Whether it needs propose=, a bound on one person's effect; sums and counts are clipped to that."""
    noise: AdditiveMechanism | None = None
    """Its noise for measures, if it is additive."""
    draws: Mapping[type[Statistic], Calibrate] = field(default_factory=dict)
    """Its calibration for each kind of statistic that it can draw."""


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
    """The names of the mechanisms that can draw a kind of statistic, the default first."""
    return [name for name, mechanism in MECHANISMS.items() if statistic in mechanism.draws]


def mechanism_for(statistic: type[Statistic], named: str | None) -> str:
    """The named mechanism, if it can draw this kind of statistic; else the default."""
    possible = drawing(statistic)
    return named if named in possible else possible[0]


def is_chosen(statistic: Statistic, named: str | None) -> bool:
    """Whether the exponential mechanism draws it, which counts as half its epsilon under Gaussian DP."""
    return isinstance(statistic, Quantile) and mechanism_for(type(statistic), named) == "exponential"


def draw_for(statistic: Statistic, terms: Terms) -> Draw:
    mechanism = MECHANISMS[terms.mechanism]
    if mechanism.needs_delta:
        terms.needs_delta()
    try:
        return mechanism.draws[type(statistic)](statistic, terms)
    except ValueError as error:  # no data was read yet: the cost does not fit
        raise ProgrammingError(
            f"each statistic in each group gets an epsilon of {float(terms.epsilon):.3g}, so {error}",
            hint="use another epsilon or mechanism",
        ) from None
