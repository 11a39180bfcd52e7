"""The privacy loss of an event, in all currencies: pure DP, zCDP, Gaussian DP, and delta.

    epsilon      the sum of pure epsilons; infinite for a Gaussian
    rho          zero-concentrated DP
    mu_squared   Gaussian DP
    delta        losses that add up separately: partition selection, tests, the delta of approximate releases
    pure, rest   epsilon of pure releases, and mu_squared of all others, for mixed rules
    smoothed     mu_squared if `headroom` remains unspent: a small pure release then costs less
    headroom     the largest headroom that any release needs; it is reserved, not spent, so it does not add up
    committed    pure when the first other release was charged, with all that was charged with it; 0 before

An (epsilon, delta)-DP release fails with probability delta and is epsilon-DP otherwise, so it costs what the pure
release costs, plus delta. See docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property, lru_cache, reduce, singledispatch
from operator import add
from typing import TYPE_CHECKING, NamedTuple

from dpsql.accounting.curves import mu_of_pure
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
from dpsql.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

ZERO = Fraction(0)
# A release whose loss is a or -a, or a choice whose losses span 2 a, costs 9/8 a^2 where 2 a^2 are left after it.
SMOOTHED, HEADROOM = Fraction(9, 8), 2
LARGEST_SMOOTHED = Fraction(1, 4)


class Cost(NamedTuple):
    """A cost in (epsilon, delta), rounded for people."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class PrivacyLoss:
    """A privacy loss in every currency. Losses add up per currency; `<=` holds if it holds in every currency."""

    epsilon: Amount = ZERO
    rho: Amount = ZERO
    mu_squared: Amount = ZERO
    delta: Amount = ZERO
    pure: Amount = ZERO
    rest: Amount = ZERO
    smoothed: Amount = ZERO
    headroom: Amount = ZERO
    committed: Amount = ZERO

    @property
    def amounts(self) -> tuple[Amount, ...]:
        """The currencies that add up."""
        return self.epsilon, self.rho, self.mu_squared, self.delta, self.pure, self.rest, self.smoothed

    def __add__(self, other: PrivacyLoss) -> PrivacyLoss:
        """The loss of these releases and of others that were charged after them."""
        pairs = zip(self.amounts, other.amounts, strict=True)
        # Most amounts are zero, and fractions are slow to add.
        added = PrivacyLoss(*(shortened(mine + its if mine and its else mine or its) for mine, its in pairs))
        later = shortened(self.pure + other.committed) if other.rest else ZERO
        committed = self.committed if self.rest else later
        return replace(added, headroom=max(self.headroom, other.headroom), committed=committed)

    def less(self, refund: PrivacyLoss) -> PrivacyLoss:
        """The loss minus a refund. An infinite amount stays infinite: a rule that cannot count it cannot refund it."""
        pairs = zip(self.amounts, refund.amounts, strict=True)
        left = PrivacyLoss(*(mine if math.inf in (mine, its) else shortened(mine - its) for mine, its in pairs))
        return replace(left, headroom=self.headroom, committed=self.committed)

    def __le__(self, limit: PrivacyLoss) -> bool:
        mine = self._compared
        return all(mine[place] <= most for place, most in limit._finite)

    @cached_property
    def _compared(self) -> tuple[Amount, ...]:
        """The amounts that have limits: all currencies, and `smoothed` plus its headroom."""
        return *self.amounts, self.smoothed + self.headroom

    @cached_property
    def _finite(self) -> list[tuple[int, Amount]]:
        """The finite limits and their positions. Most are infinite, and comparing with infinity is slow."""
        return [(place, most) for place, most in enumerate(self._compared) if not isinstance(most, float)]

    def to_texts(self) -> dict[str, str]:
        return {name: to_text(getattr(self, name)) for name in CURRENCIES}

    @classmethod
    def from_texts(cls, texts: Mapping[str, str]) -> PrivacyLoss:
        """Reads stored amounts. A currency that an older ledger did not count is infinite."""
        return cls(*(from_text(texts.get(name, "inf")) for name in CURRENCIES))

    def agrees(self, counted: PrivacyLoss) -> bool:
        """Whether the stored sums match the counted ones, except in currencies that an older ledger did not count."""
        pairs = [(getattr(self, name), getattr(counted, name)) for name in CURRENCIES]
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
    return _of_losses(event.epsilon, span=2 * event.epsilon)


def _of_losses(epsilon: Fraction, span: Fraction) -> PrivacyLoss:
    """The loss of an epsilon-DP release whose privacy losses span at most `span`: that of a coin with +-span/2."""
    coin = span / 2
    mu_squared = mu_of_pure(coin) ** 2
    return PrivacyLoss(
        epsilon,
        rho=coin**2 / 2,
        mu_squared=mu_squared,
        pure=epsilon,
        smoothed=SMOOTHED * coin**2 if coin <= LARGEST_SMOOTHED else mu_squared,
        headroom=HEADROOM * min(coin, LARGEST_SMOOTHED) ** 2,
    )


@_found.register
def _(event: Laplace) -> PrivacyLoss:
    return _found(PureRelease(1 / event.noise_multiplier)) if event.noise_multiplier else NOISELESS


@_found.register
def _(event: Gaussian) -> PrivacyLoss:
    if event.noise_multiplier == 0:
        return NOISELESS
    mu_squared = 1 / event.noise_multiplier**2
    return PrivacyLoss(math.inf, rho=mu_squared / 2, mu_squared=mu_squared, rest=mu_squared, smoothed=mu_squared)


@_found.register
def _(event: Exponential) -> PrivacyLoss:
    """Its privacy losses span epsilon, half of what epsilon-DP allows. See docs/proofs/exponential.md."""
    return _of_losses(event.epsilon, span=event.epsilon)


@_found.register
def _(event: ApproximateRelease) -> PrivacyLoss:
    return _found(PureRelease(event.epsilon)) + PrivacyLoss(delta=event.delta)


@_found.register
def _(event: Composed) -> PrivacyLoss:
    return _at_once(reduce(add, map(_found, event.events), PrivacyLoss()))


def _at_once(loss: PrivacyLoss) -> PrivacyLoss:
    """Of releases that are charged together all pure ones are known when the first other one is made."""
    return replace(loss, committed=loss.pure if loss.rest else ZERO)


@_found.register
def _(event: Repeated) -> PrivacyLoss:
    if not event.times:
        return PrivacyLoss()
    once = _found(Composed(event.events))
    times = PrivacyLoss(*(event.times * amount for amount in once.amounts))
    return _at_once(replace(times, headroom=once.headroom))


@_found.register
def _(event: Parallel) -> PrivacyLoss:
    parts = [_found(part) for part in event.events]
    largest = PrivacyLoss(*map(max, zip(*(part.amounts for part in parts), strict=True)))
    return _at_once(replace(largest, headroom=max((part.headroom for part in parts), default=ZERO)))


@_found.register
def _(event: Free) -> PrivacyLoss:
    return PrivacyLoss()


@_found.register
def _(event: NonPrivate) -> PrivacyLoss:
    return EVERYTHING
