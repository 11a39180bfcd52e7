"""What an event costs, in every currency at once.

    epsilon      the sum of pure epsilons; a Gaussian has none, at any finite price
    rho          zero-concentrated DP
    mu_squared   Gaussian DP
    delta        what is lost beside the curve: partition selection, tests, the delta of approximate releases
    pure, rest   epsilon of what has one, and mu_squared of what has none: mixed rules count each where it is least

An (epsilon, delta)-DP release fails with probability delta and is epsilon-DP otherwise, so it costs what the pure
release costs, and delta on top. See docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import lru_cache, reduce, singledispatch
from operator import add
from typing import TYPE_CHECKING, NamedTuple

from dpsql.accounting.events import (
    ApproximateRelease,
    Composed,
    Event,
    Exponential,
    Free,
    Gaussian,
    Laplace,
    NonPrivate,
    Parallel,
    PureRelease,
    Repeated,
)
from dpsql.accounting.exact import Amount, from_text, shortened, to_text
from dpsql.accounting.gaussian_dp import mu_of_pure
from dpsql.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

ZERO = Fraction(0)


class Cost(NamedTuple):
    """(epsilon, delta) as shown to people."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class PrivacyLoss:
    """Amounts in each currency; they add up one by one, and one total fits under another if every amount does."""

    epsilon: Amount = ZERO
    rho: Amount = ZERO
    mu_squared: Amount = ZERO
    delta: Amount = ZERO
    pure: Amount = ZERO
    rest: Amount = ZERO

    @property
    def amounts(self) -> tuple[Amount, ...]:
        return self.epsilon, self.rho, self.mu_squared, self.delta, self.pure, self.rest

    def __add__(self, other: PrivacyLoss) -> PrivacyLoss:
        pairs = zip(self.amounts, other.amounts, strict=True)
        # Most amounts are zero, and fractions are slow to add.
        return PrivacyLoss(*(shortened(mine + its if mine and its else mine or its) for mine, its in pairs))

    def less(self, refund: PrivacyLoss) -> PrivacyLoss:
        """Without what was not spent after all. Infinity stays: what a rule cannot count it cannot give back."""
        pairs = zip(self.amounts, refund.amounts, strict=True)
        return PrivacyLoss(*(mine if math.inf in (mine, its) else shortened(mine - its) for mine, its in pairs))

    def __le__(self, limit: PrivacyLoss) -> bool:
        # Most limits are infinite, and to compare a fraction with infinity is slow.
        pairs = zip(self.amounts, limit.amounts, strict=True)
        return all(isinstance(its, float) or mine <= its for mine, its in pairs)

    def to_texts(self) -> dict[str, str]:
        return {name: to_text(getattr(self, name)) for name in CURRENCIES}

    @classmethod
    def from_texts(cls, texts: Mapping[str, str]) -> PrivacyLoss:
        """Accounts that were begun before a currency was counted have no end of it."""
        return cls(*(from_text(texts.get(name, "inf")) for name in CURRENCIES))

    def agrees(self, counted: PrivacyLoss) -> bool:
        """Whether these are the sums that were counted, but for what was not counted yet when they were begun."""
        pairs = list(zip(self.amounts, counted.amounts, strict=True))
        return all(mine == its for mine, its in pairs[:4]) and all(mine in (its, math.inf) for mine, its in pairs[4:])


CURRENCIES = tuple(field.name for field in fields(PrivacyLoss))
EVERYTHING = PrivacyLoss(*[math.inf] * len(CURRENCIES))


NOISELESS = replace(EVERYTHING, delta=ZERO)


@lru_cache(maxsize=1024)
def privacy_loss(event: Event) -> PrivacyLoss:
    """
    >>> privacy_loss(Laplace(Fraction(10))).epsilon, privacy_loss(Gaussian(Fraction(10))).mu_squared
    (Fraction(1, 10), Fraction(1, 100))
    """
    return _found(event)


@singledispatch
def _found(event: Event) -> PrivacyLoss:
    raise Unsupported(
        f"{type(event).__name__} has no known privacy loss, so it cannot be charged",
        hint="describe the release with a known event",
    )


@_found.register
def _(event: PureRelease) -> PrivacyLoss:
    mu_squared = mu_of_pure(event.epsilon) ** 2
    return PrivacyLoss(event.epsilon, rho=event.epsilon**2 / 2, mu_squared=mu_squared, pure=event.epsilon)


@_found.register
def _(event: Laplace) -> PrivacyLoss:
    return _found(PureRelease(1 / event.noise_multiplier)) if event.noise_multiplier else NOISELESS


@_found.register
def _(event: Gaussian) -> PrivacyLoss:
    if event.noise_multiplier == 0:
        return NOISELESS
    mu_squared = 1 / event.noise_multiplier**2
    return PrivacyLoss(epsilon=math.inf, rho=mu_squared / 2, mu_squared=mu_squared, rest=mu_squared)


@_found.register
def _(event: Exponential) -> PrivacyLoss:
    """Its privacy loss has a range of epsilon, half of what epsilon-DP allows. See docs/proofs/exponential.md."""
    mu_squared = mu_of_pure(event.epsilon / 2) ** 2
    return PrivacyLoss(event.epsilon, rho=event.epsilon**2 / 8, mu_squared=mu_squared, pure=event.epsilon)


@_found.register
def _(event: ApproximateRelease) -> PrivacyLoss:
    return _found(PureRelease(event.epsilon)) + PrivacyLoss(delta=event.delta)


@_found.register
def _(event: Composed) -> PrivacyLoss:
    return reduce(add, map(_found, event.events), PrivacyLoss())


@_found.register
def _(event: Repeated) -> PrivacyLoss:
    once = _found(Composed(event.events))
    return PrivacyLoss(*(event.times * amount if event.times else ZERO for amount in once.amounts))


@_found.register
def _(event: Parallel) -> PrivacyLoss:
    return PrivacyLoss(*map(max, zip(*(_found(part).amounts for part in event.events), strict=True)))


@_found.register
def _(event: Free) -> PrivacyLoss:
    return PrivacyLoss()


@_found.register
def _(event: NonPrivate) -> PrivacyLoss:
    return EVERYTHING
