"""Additive mechanisms: how much noise the measures of a query get for what they may cost, and the privacy loss of it.

A mechanism that is epsilon-DP for each measure by itself says what noise that is, and all else follows
(`PureMechanism`). One that counts otherwise (gaussian.py) says how the whole allowance is shared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from dpsql.accounting.events import Composed, Event, Free, Parallel, PureRelease, Repeated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dpsql.accounting.filters import Filter
    from dpsql.mechanisms.noise import Noise


@dataclass(frozen=True)
class Allowance:
    """What all measures of a query may cost together, and how the session that pays for them counts."""

    epsilon: Fraction
    delta: Fraction
    filter: Filter


Place: TypeAlias = tuple[tuple[int, int], int]
"""A bundle of measures, and a case of it."""


@dataclass(frozen=True)
class Box:
    """Measures that one unit moves together in a group, each by no more than its own bound: how many, and which."""

    dimension: int = 1
    name: tuple[int, ...] = ()


@dataclass(frozen=True)
class Share:
    """A measure that one unit moves in at most so many groups, and its part of the allowance."""

    groups: int
    part: Fraction
    place: Place | None = None
    """Where it is one of several of which a unit brings no more to all cases together than to one."""
    box: Box = Box()
    times_alone: Fraction = Fraction(1)
    """Or else a unit may move all groups together, in L1, by so many times what it may move one of them."""


def joint_shares(shares: Sequence[Share]) -> list[Share]:
    """Those that add up: a bundle has the part of its largest case. docs/proofs/exclusive.md."""
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
    """What they take of the allowance together."""
    return sum((share.part for share in joint_shares(shares)), Fraction(0))


@dataclass(frozen=True)
class Dose:
    """What one measure gets."""

    noise: Callable[[int], Noise]
    """For a measure that one unit moves in each group by at most so much."""
    alone: Event
    """The measure by itself; Free where several have one price as a whole."""
    epsilon: Fraction
    """By how much the query's epsilon falls if it is not released."""


class AdditiveMechanism(ABC):
    """One kind of noise for all measures of a query."""

    falloff: ClassVar[int]
    """The variance of a measure is inverse to this power of its part of the allowance."""
    by_l2: ClassVar[bool] = False
    """Whether it is enough that one unit moves everything together by no more than a bound in L2."""
    boxed: ClassVar[bool] = False
    """Whether noise is drawn for all measures of a box together, so that they share one part of the allowance."""

    def width(self, dimension: int) -> float:
        """How much larger the variance of a measure is in a box of so many, at the same part."""
        return 1.0

    @abstractmethod
    def calibrate(self, allowance: Allowance, shares: Sequence[Share]) -> tuple[list[Dose], Event]:
        """For a release with some (at least one) of the measures: what each gets, and all of them together."""

    def at_most(self, allowance: Allowance, part: Fraction) -> Event:
        """What a release is, at most, whose measures share this part of the allowance in whatever way."""
        return self.calibrate(allowance, [Share(1, part)])[1]

    @abstractmethod
    def epsilon_at(self, precision: Fraction, delta: Fraction, filter_: Filter) -> Fraction:
        """The epsilon of a query whose errors are 1/precision times those at a precision of 1."""

    @abstractmethod
    def precision_within(self, limit: Filter, weights: tuple[Fraction, ...]) -> Fraction:
        """About how precise queries of these weights can be that share the limit; where to begin the search."""


class PureMechanism(AdditiveMechanism):
    """Each measure is epsilon-DP by itself, and each group of it epsilon/groups; its error falls as 1/epsilon."""

    falloff = 2

    @abstractmethod
    def noise(self, scale: Fraction, box: Box) -> Noise:
        """Makes what one unit moves in so many groups, in each by at most linf, (epsilon/groups)-DP in each.

        The scale is groups * linf / epsilon. What that makes private is the measure or, if it is `boxed`, the box.
        """

    def event(self, epsilon: Fraction) -> Event:
        return PureRelease(epsilon)

    def calibrate(self, allowance: Allowance, shares: Sequence[Share]) -> tuple[list[Dose], Event]:
        doses = [self._dose(allowance.epsilon, share) for share in shares]
        return doses, Composed(tuple(self._event(allowance.epsilon, share) for share in joint_shares(shares)))

    def at_most(self, allowance: Allowance, part: Fraction) -> Event:
        return PureRelease(allowance.epsilon * part)

    def _dose(self, whole: Fraction, share: Share) -> Dose:
        epsilon, groups = whole * share.part, max(1, share.groups)

        def noise(linf: int) -> Noise:
            return self.noise(Fraction(groups * linf) / epsilon, share.box)

        # What is left of a box without one of its measures costs as much.
        return Dose(noise, Free(), Fraction(0)) if self.boxed else Dose(noise, self._event(whole, share), epsilon)

    def _event(self, whole: Fraction, share: Share) -> Event:
        """Every group has noise of its own, so that curves count what each of them loses.

        Of a unit with few rows they count what all groups lose together: docs/proofs/few_rows.md.
        """
        groups = max(1, share.groups)
        each = whole * share.part / groups
        in_groups = Repeated((self.event(each),), Fraction(groups))
        return in_groups if share.times_alone <= 1 else Parallel((in_groups, self.event(each * share.times_alone)))

    def epsilon_at(self, precision: Fraction, delta: Fraction, filter_: Filter) -> Fraction:
        return precision

    def precision_within(self, limit: Filter, weights: tuple[Fraction, ...]) -> Fraction:
        return limit.epsilon / sum(weights)
