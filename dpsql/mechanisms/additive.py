"""Additive mechanisms: how much noise the measures of a query get for what they may cost, and the privacy loss of it.

A mechanism that is epsilon-DP for each measure by itself says what noise that is, and all else follows
(`PureMechanism`). One that counts otherwise (gaussian.py) says how the whole allowance is shared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.accounting.events import Composed, Event, PureRelease, Repeated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dpsql.accounting.filters import Filter
    from dpsql.mechanisms.noise import Noise


@dataclass(frozen=True)
class Allowance:
    """What all measures of a query may cost together, and how the session that pays for them counts."""

    epsilon: Fraction
    delta: Fraction
    measures: int
    filter: Filter


@dataclass(frozen=True)
class Dose:
    """What the measures of one release get."""

    noise: Callable[[int, int], Noise]
    """For a measure that one unit moves in at most so many groups, in each by at most so much."""
    event: Event
    """All of them together."""
    alone: Callable[[int], Event]
    """One of them by itself, by its groups; Free where they have one price as a whole."""
    alone_epsilon: Fraction
    """By how much the query's epsilon falls if one of them is not released."""


class AdditiveMechanism(ABC):
    """One kind of noise for all measures of a query."""

    @abstractmethod
    def calibrate(self, allowance: Allowance, groups: Sequence[int]) -> Dose:
        """For a release with some (at least one) of the measures, by the number of groups that one unit moves."""

    @abstractmethod
    def epsilon_at(self, precision: Fraction, delta: Fraction, filter_: Filter) -> Fraction:
        """The epsilon of a query whose errors are 1/precision times those at a precision of 1."""

    @abstractmethod
    def precision_within(self, limit: Filter, weights: tuple[Fraction, ...]) -> Fraction:
        """About how precise queries of these weights can be that share the limit; where to begin the search."""


class PureMechanism(AdditiveMechanism):
    """Each measure is epsilon-DP by itself, and each group of it epsilon/groups; its error falls as 1/epsilon."""

    @abstractmethod
    def noise(self, groups: int, linf: int, epsilon: Fraction) -> Noise:
        """Makes a measure that one unit moves in so many groups, in each by at most linf, epsilon/groups-DP in each."""

    def event(self, epsilon: Fraction) -> Event:
        return PureRelease(epsilon)

    def calibrate(self, allowance: Allowance, groups: Sequence[int]) -> Dose:
        each = allowance.epsilon / allowance.measures

        def alone(groups: int) -> Event:
            """Every group has noise of its own, so that curves count what each of them loses."""
            return Repeated((self.event(each / max(1, groups)),), Fraction(max(1, groups)))

        together = Composed(tuple(map(alone, groups)))
        return Dose(lambda groups, linf: self.noise(groups, linf, each), together, alone, each)

    def epsilon_at(self, precision: Fraction, delta: Fraction, filter_: Filter) -> Fraction:
        return precision

    def precision_within(self, limit: Filter, weights: tuple[Fraction, ...]) -> Fraction:
        return limit.epsilon / sum(weights)
