"""Additive noise and its mechanisms: the noise of each measure of a query at a given cost, and its privacy event.

A mechanism that makes each measure epsilon-DP by itself only defines its noise (`PureMechanism`). Others, such as the
Gaussian, define how the whole allowance is shared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from math import expm1, log1p
from sys import float_info
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias

import numpy as np

from dpsql.accounting.events import Composed, Event, Free, Parallel, PureRelease, Repeated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from dpsql.accounting.filters import Filter

# -- noise -------------------------------------------------------------------------------------------------------------
# The interface of all additive noise distributions. A noise gives its exact tail; the interval around an answer and the
# threshold that hides rare groups follow from it. All of these err to the safe side: tails are never too small,
# intervals and thresholds never too short.

# Tails are computed in float64, as exp(-x) or erfc(z) with x and z^2 at most 745. A few roundings of the argument
# become a relative error below 2^-39; this is eight times that.
SAFETY = 2.0**-36
# Beyond this the noise would leave 64 bits, and the answer would be nothing but noise.
LARGEST_STD = 1 << 56


class Noise(Protocol):
    """A symmetric distribution on the integers."""

    name: ClassVar[str]

    @property
    def kurtosis(self) -> float:
        """The excess kurtosis of wide noise, which is 0 for a normal distribution."""
        ...

    @property
    def std(self) -> float:
        """The standard deviation."""
        ...

    def sample(self, n: int) -> NDArray[np.int64]:
        """`n` exact draws, modulo 2^64: add them with wrapping 64-bit arithmetic, as numpy does."""
        ...

    def survival(self, t: NDArray[np.float64]) -> NDArray[np.float64]:
        """P[X >= t] for whole t >= 1, up to a relative error of SAFETY while it is a normal float64."""
        ...

    def tail(self, t: int) -> float:
        """P[X >= t] or slightly more. Never 0: a tail below the least float64 is given as that."""
        beyond = float(self.survival(np.array([max(t, 1 - t)], dtype=np.float64))[0])
        probability = beyond if t > 0 else 1 - beyond
        return min(1.0, max(probability * (1 + SAFETY), float_info.min))

    def half_width(self, level: float | Fraction) -> int:
        """The least t with P[|X| <= t] >= level."""
        if not 0 <= level < 1:
            raise ValueError(f"a confidence level lies in [0, 1), unlike {level}")
        outside = 1 - Fraction(level)
        return _least(lambda t: 2 * self.tail(t + 1) <= outside)

    def threshold(self, groups: int, delta: Fraction) -> int:
        """The least tau that hides a unit which is alone in each of `groups` groups, except with probability delta.

        That is, 1 - (1 - P[1 + X >= tau])^groups <= delta. Proof: docs/proofs/thresholding.md.
        """
        if groups < 1 or not 0 < delta <= Fraction(1, 2):
            raise ValueError("a threshold needs at least one group and a delta above 0 and up to 1/2")
        each = -expm1(log1p(-float(delta)) / groups) * (1 - SAFETY)
        if each <= float_info.min:
            raise ValueError("delta is too small for a threshold")
        return 1 + _least(lambda t: self.tail(t) <= each)


def _least(holds: Callable[[int], bool]) -> int:
    """The least t >= 0 from which on `holds`."""
    low, high = -1, 0
    while not holds(high):
        low, high = high, 2 * high + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


# -- mechanisms --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Allowance:
    """The cost of all measures of a query together, and the session's privacy filter."""

    epsilon: Fraction
    delta: Fraction
    filter: Filter


BundlePlace: TypeAlias = tuple[tuple[int, int], int]
"""The place of a disjoint measure: its bundle and its case."""


@dataclass(frozen=True)
class Box:
    """A K-norm box: measures that one unit can change together in a group, each by at most its own bound."""

    dimension: int = 1
    name: tuple[int, ...] = ()


@dataclass(frozen=True)
class Share:
    """A measure: how many groups one unit changes, and its part of the allowance."""

    groups: int
    part: Fraction
    place: BundlePlace | None = None
    """Its bundle and case, if it is one of several disjoint measures."""
    box: Box = Box()
    times_alone: Fraction = Fraction(1)
    """The L1 sensitivity over all groups as a multiple of that in one group, where this is the larger bound."""


def joint_shares(shares: Sequence[Share]) -> list[Share]:
    """The shares whose costs add up: a bundle counts with its largest case. docs/proofs/exclusive.md."""
    cases: dict[tuple[int, int], dict[int, Fraction]] = {}
    of_bundle: dict[tuple[int, int], Share] = {}
    for share in shares:
        if share.place is not None:
            bundle, case = share.place
            parts, beside = cases.setdefault(bundle, {}), of_bundle.get(bundle, share)
            # What nobody can move says nothing of the others.
            of_bundle[bundle] = replace(share, times_alone=max(share.times_alone, beside.times_alone))
            parts[case] = parts.get(case, Fraction(0)) + share.part
    alone = [share for share in shares if share.place is None]
    return [
        *alone,
        *(replace(of_bundle[bundle], part=max(parts.values()), place=None) for bundle, parts in cases.items()),
    ]


def joint_part(shares: Sequence[Share]) -> Fraction:
    """The part of the allowance that the shares take together."""
    return sum((share.part for share in joint_shares(shares)), Fraction(0))


@dataclass(frozen=True)
class Calibration:
    """The calibrated noise of one measure."""

    noise: Callable[[int], Noise]
    """The noise, given the sensitivity in one group."""
    alone: Event
    """The privacy event of the measure alone; Free if several measures are charged as a whole."""
    epsilon: Fraction
    """How much epsilon is saved if the measure is not released."""


class AdditiveMechanism(ABC):
    """An additive mechanism: one kind of noise for all measures of a query."""

    variance_exponent: ClassVar[int]
    """The variance exponent: variance is proportional to 1 / part ** exponent, for a part of the allowance."""
    by_l2: ClassVar[bool] = False
    """Whether a bound on the L2 sensitivity suffices."""
    boxed: ClassVar[bool] = False
    """Whether noise is drawn jointly for all measures of a box, which share one part of the allowance."""

    def width(self, dimension: int) -> float:
        """The factor by which the variance of a measure grows in a box of this dimension, at the same part."""
        return 1.0

    @abstractmethod
    def calibrate(self, allowance: Allowance, shares: Sequence[Share]) -> tuple[list[Calibration], Event]:
        """Calibrates a release with at least one of the measures.

        Returns:
            The noise of each measure, and the privacy event of all together.
        """

    def at_most(self, allowance: Allowance, part: Fraction) -> Event:
        """An upper bound on the privacy event of any measures that share this part of the allowance."""
        return self.calibrate(allowance, [Share(1, part)])[1]

    @abstractmethod
    def epsilon_at(self, precision: Fraction, delta: Fraction, filter_: Filter) -> Fraction:
        """The epsilon that a precision costs. Errors are proportional to 1 / precision."""

    @abstractmethod
    def precision_within(self, limit: Filter, weights: tuple[Fraction, ...]) -> Fraction:
        """An estimate of the precision at which queries of these weights fill the limit, to start a search."""


class PureMechanism(AdditiveMechanism):
    """A mechanism of pure differential privacy: each measure is epsilon-DP, with an error proportional to 1/epsilon."""

    variance_exponent = 2

    @abstractmethod
    def noise(self, scale: Fraction, box: Box) -> Noise:
        """The noise that makes a measure (epsilon/groups)-DP in each of `groups` groups, in which one unit moves it by
        at most linf.

        The scale is groups * linf / epsilon. If the mechanism is `boxed`, this makes the whole box private.
        A move by t costs at most t / scale, because a unit may spread its L1 sensitivity over any number of groups
        (docs/proofs/light_units.md). Staircase noise, whose smallest step costs as much as its largest, is not of this
        kind.
        """

    def event(self, epsilon: Fraction) -> Event:
        return PureRelease(epsilon)

    def calibrate(self, allowance: Allowance, shares: Sequence[Share]) -> tuple[list[Calibration], Event]:
        calibrations = [self._calibration(allowance.epsilon, share) for share in shares]
        return calibrations, Composed(tuple(self._event(allowance.epsilon, share) for share in joint_shares(shares)))

    def at_most(self, allowance: Allowance, part: Fraction) -> Event:
        return PureRelease(allowance.epsilon * part)

    def _calibration(self, whole: Fraction, share: Share) -> Calibration:
        epsilon, groups = whole * share.part, max(1, share.groups)

        def noise(linf: int) -> Noise:
            return self.noise(Fraction(groups * linf) / epsilon, share.box)

        # What is left of a box without one of its measures costs as much.
        return (
            Calibration(noise, Free(), Fraction(0))
            if self.boxed
            else Calibration(noise, self._event(whole, share), epsilon)
        )

    def _event(self, whole: Fraction, share: Share) -> Event:
        """Every group has noise of its own, so that curves count what each of them loses.

        Of a unit with few rows they count what all groups lose together: docs/proofs/light_units.md.
        """
        groups = max(1, share.groups)
        each = whole * share.part / groups
        in_groups = Repeated((self.event(each),), Fraction(groups))
        return in_groups if share.times_alone <= 1 else Parallel((in_groups, self.event(each * share.times_alone)))

    def epsilon_at(self, precision: Fraction, delta: Fraction, filter_: Filter) -> Fraction:
        return precision

    def precision_within(self, limit: Filter, weights: tuple[Fraction, ...]) -> Fraction:
        return limit.epsilon / sum(weights)
