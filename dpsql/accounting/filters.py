"""Privacy filters: they say before each query whether the session may still afford it.

A filter is one or more rules, and admits what any of them admits: it then holds for the session as a whole, however the
queries were chosen. See docs/proofs/composition.md.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, ClassVar, Protocol

from dpsql.accounting import curves
from dpsql.accounting.events import ApproximateRelease, Composed, Event, Gaussian, PureRelease
from dpsql.accounting.exact import root_down, root_up, rounded_down, rounded_up
from dpsql.accounting.privacy_loss import EVERYTHING, Cost, PrivacyLoss, privacy_loss
from dpsql.errors import ProgrammingError

if TYPE_CHECKING:
    from dpsql.accounting.exact import Amount

# -- rules -------------------------------------------------------------------------------------------------------------
# The ways to bound a whole session, each sound when every query is chosen after seeing earlier answers.
#
#     PureSum      sum of epsilon    <= epsilon
#     Concentrated sum of rho        <= rho(epsilon, curve_delta)
#     GaussianSum  sum of mu_squared <= mu(epsilon, curve_delta)^2
#     SmoothedSum  sum of smoothed + the largest headroom <= the same
#     MixedSum     sum of pure epsilon <= cap, sum of the others' mu_squared <= mu(epsilon - cap, curve_delta)^2
#
# and, for all of them, the additive deltas stay within the share set aside for them. See docs/proofs/composition.md.

# What is left along a curve is known to some fourteen digits, from above. This much less is sure to fit.
SHY = 1 - 1e-9


class Rule(Protocol):
    """`limit` is what the totals must stay under; the rest says the same in epsilon, as shown to people."""

    @property
    def limit(self) -> PrivacyLoss: ...

    @property
    def curve_delta(self) -> Fraction:
        """The delta at which this rule states its epsilon; zero for a pure sum."""
        ...

    def spent(self, totals: PrivacyLoss) -> float:
        """The epsilon that the totals amount to, from above."""
        ...

    def remaining(self, totals: PrivacyLoss) -> float:
        """The largest epsilon that one more query may have, from below."""
        ...

    def query(self, epsilon: Fraction) -> Event:
        """What one query at epsilon releases, if it is to spend exactly that alone."""
        ...


class Currency(Rule, Protocol):
    """A rule by which parts of a session can be told, since one sum decides."""

    def epsilon_of(self, part: Fraction) -> Fraction:
        """Of a query that takes this part of the session, or slightly less."""
        ...

    def pure_epsilon_of(self, part: Fraction) -> Fraction:
        """The same of a pure release."""
        ...


@dataclass(frozen=True)
class PureSum:
    epsilon: Fraction
    reserved_delta: Fraction
    curve_delta: Fraction = Fraction(0)

    @cached_property
    def limit(self) -> PrivacyLoss:
        return replace(EVERYTHING, epsilon=self.epsilon, delta=self.reserved_delta)

    def spent(self, totals: PrivacyLoss) -> float:
        return rounded_up(totals.epsilon)

    def remaining(self, totals: PrivacyLoss) -> float:
        return max(0.0, rounded_down(self.epsilon - totals.epsilon))

    def query(self, epsilon: Fraction) -> Event:
        return PureRelease(epsilon)

    def epsilon_of(self, part: Fraction) -> Fraction:
        return self.epsilon * part

    def pure_epsilon_of(self, part: Fraction) -> Fraction:
        return self.epsilon * part


@dataclass(frozen=True)
class GaussianSum:
    epsilon: Fraction
    curve_delta: Fraction
    reserved_delta: Fraction

    @cached_property
    def mu(self) -> Fraction:
        return curves.mu_for(self.epsilon, self.curve_delta)

    @cached_property
    def limit(self) -> PrivacyLoss:
        return replace(EVERYTHING, mu_squared=self.mu**2, delta=self.reserved_delta)

    def taken(self, totals: PrivacyLoss) -> Amount:
        """Of mu squared."""
        return totals.mu_squared

    def spent(self, totals: PrivacyLoss) -> float:
        taken = self.taken(totals)
        return math.inf if isinstance(taken, float) else curves.gaussian_epsilon_at(root_up(taken), self.curve_delta)

    def remaining(self, totals: PrivacyLoss) -> float:
        taken = self.taken(totals)
        if taken == 0:
            return rounded_down(self.epsilon)
        if taken >= self.mu**2:
            return 0.0
        left = root_down(self.mu**2 - Fraction(taken))
        return SHY * curves.gaussian_epsilon_at(left, self.curve_delta)

    def query(self, epsilon: Fraction) -> Event:
        return Gaussian(1 / curves.mu_for(epsilon, self.curve_delta))

    def epsilon_of(self, part: Fraction) -> Fraction:
        found = curves.gaussian_epsilon_at(root_down(self.mu**2 * part), self.curve_delta)
        return Fraction(SHY * found) if math.isfinite(found) else self.epsilon * part

    def pure_epsilon_of(self, part: Fraction) -> Fraction:
        found = curves.pure_epsilon_at(root_down(self.mu**2 * part))
        return Fraction(SHY * found) if math.isfinite(found) else self.epsilon * part


@dataclass(frozen=True)
class SmoothedSum(GaussianSum):
    """Small pure releases cost less as long as enough is left to hide that they are coins."""

    @cached_property
    def limit(self) -> PrivacyLoss:
        return replace(EVERYTHING, smoothed=self.mu**2, headroom=Fraction(0), delta=self.reserved_delta)

    def taken(self, totals: PrivacyLoss) -> Amount:
        return totals.smoothed + totals.headroom


@dataclass(frozen=True)
class Concentrated:
    epsilon: Fraction
    curve_delta: Fraction
    reserved_delta: Fraction

    @cached_property
    def rho(self) -> Fraction:
        return curves.rho_for(self.epsilon, self.curve_delta)

    @cached_property
    def limit(self) -> PrivacyLoss:
        return replace(EVERYTHING, rho=self.rho, delta=self.reserved_delta)

    def spent(self, totals: PrivacyLoss) -> float:
        if isinstance(totals.rho, float):
            return math.inf
        return curves.zcdp_epsilon_at(totals.rho, self.curve_delta)

    def remaining(self, totals: PrivacyLoss) -> float:
        if totals.rho == 0:
            return rounded_down(self.epsilon)
        if totals.rho >= self.rho:
            return 0.0
        return SHY * curves.zcdp_epsilon_at(self.rho - Fraction(totals.rho), self.curve_delta)

    def query(self, epsilon: Fraction) -> Event:
        rho = curves.rho_for(epsilon, self.curve_delta)
        # An epsilon so small that no rho is known for it is as small as a pure release.
        return Gaussian(Fraction(root_up(1 / (2 * rho)))) if rho else PureRelease(epsilon)

    def epsilon_of(self, part: Fraction) -> Fraction:
        return Fraction(SHY * curves.zcdp_epsilon_at(self.rho * part, self.curve_delta))

    def pure_epsilon_of(self, part: Fraction) -> Fraction:
        """A pure release has a rho of epsilon^2/2."""
        return Fraction(SHY * root_down(2 * self.rho * part))


@dataclass(frozen=True)
class MixedSum:
    """Pure releases add up to `cap` at most, and everything else to what a curve allows at the epsilon that is left."""

    epsilon: Fraction
    cap: Fraction
    curve_delta: Fraction
    reserved_delta: Fraction
    query_delta: Fraction
    """At which one Gaussian query of a given epsilon is calibrated, whatever rule it will be counted by."""

    @cached_property
    def mu(self) -> Fraction:
        return curves.mu_for(self.epsilon - self.cap, self.curve_delta)

    @cached_property
    def limit(self) -> PrivacyLoss:
        return replace(EVERYTHING, pure=self.cap, rest=self.mu**2, delta=self.reserved_delta)

    def spent(self, totals: PrivacyLoss) -> float:
        if isinstance(totals.rest, float) or isinstance(totals.pure, float):
            return math.inf
        curve = curves.gaussian_epsilon_at(root_up(totals.rest), self.curve_delta)
        return rounded_up(totals.pure + Fraction(curve)) if math.isfinite(curve) else math.inf

    def remaining(self, totals: PrivacyLoss) -> float:
        """By the kind of noise that has more left."""
        if not (totals.pure <= self.cap and totals.rest <= self.mu**2):
            return 0.0
        left = root_down(self.mu**2 - Fraction(totals.rest))
        curve = SHY * curves.gaussian_epsilon_at(left, self.query_delta)
        return max(rounded_down(self.cap - Fraction(totals.pure)), curve)

    def query(self, epsilon: Fraction) -> Event:
        return Gaussian(1 / curves.mu_for(epsilon, self.query_delta))


# -- filters -----------------------------------------------------------------------------------------------------------

# Of a session's delta, the share kept for partition selection and tests. The curve uses the rest.
RESERVED_SHARE = Fraction(1, 20)
# And the share of all mixed rules together.
MIXED_SHARE = Fraction(1, 40)
CAPS = 8
"""Mixed rules give 1/8, 2/8, ..., 7/8 of epsilon to pure releases."""


@dataclass(frozen=True)
class Filter(ABC):
    """Admits queries as long as their sum is (epsilon, delta)-DP."""

    epsilon: Fraction
    delta: Fraction
    name: ClassVar[str]

    def __post_init__(self) -> None:
        if self.epsilon < 0 or not 0 <= self.delta < 1:
            raise ProgrammingError(
                f"epsilon {float(self.epsilon):g} and delta {float(self.delta):g} are not a privacy budget",
                hint="epsilon is at least 0, and delta from 0 up to (not including) 1; epsilon=1, delta=1e-6 is usual",
            )

    @property
    def reserved_delta(self) -> Fraction:
        """The delta for partition selection, tests, and every other loss that adds up beside the curve."""
        return self.delta * RESERVED_SHARE

    @property
    def curve_delta(self) -> Fraction:
        """The delta at which the curve is read, and at which one Gaussian query of a given epsilon is calibrated."""
        return self.delta - self.reserved_delta

    @property
    def mu_budget(self) -> Fraction | None:
        """The mu that all Gaussian noise together may have; None where Gaussian DP is not what counts."""
        return None

    @property
    def currency(self) -> Currency:
        """The rule that most sessions of this kind end by, in which parts of a session are told."""
        return PureSum(self.epsilon, self.reserved_delta)

    @property
    @abstractmethod
    def rules(self) -> tuple[Rule, ...]:
        """Each is sound on its own, so the session stays within its budget while one of them holds."""

    def admits(self, totals: PrivacyLoss) -> bool:
        return any(totals <= rule.limit for rule in self.rules)

    def spent(self, totals: PrivacyLoss) -> Cost:
        """What the totals amount to by the best rule, from above."""
        epsilon, delta = self._spent(totals)
        return Cost(epsilon, rounded_up(delta))

    def remaining(self, totals: PrivacyLoss) -> Cost:
        """The largest epsilon that one more query may have, and the delta that is not spent, from below."""
        _, delta = self._spent(totals)
        epsilon = max(rule.remaining(totals) for rule in self.rules)
        return Cost(epsilon, max(0.0, rounded_down(self.delta - delta)))

    def _spent(self, totals: PrivacyLoss) -> tuple[float, Amount]:
        epsilon, curve_delta = min((rule.spent(totals), rule.curve_delta) for rule in self.rules)
        if self.admits(totals):
            epsilon = min(epsilon, rounded_up(self.epsilon))
        return epsilon, totals.delta + (curve_delta if epsilon > 0 else 0)

    def affords(self, totals: PrivacyLoss, event: Event) -> int:
        """How many more events like this one fit; `sys.maxsize` if it is free."""
        return max(_copies(totals, privacy_loss(event), rule.limit) for rule in self.rules)

    def queries_at(self, epsilon: Fraction, delta: Fraction) -> tuple[Event, ...]:
        """The releases that a query with this nominal cost may consist of, one for each rule.

        A delta of at least `curve_delta` is that of a Gaussian read at the curve; only what exceeds it adds up.
        """
        beside = delta - self.curve_delta if delta >= self.curve_delta else delta
        selection = ApproximateRelease(Fraction(0), beside)
        return tuple(Composed((rule.query(epsilon), selection)) for rule in self.rules)


class Basic(Filter):
    """Epsilons add up, deltas add up."""

    name = "basic"

    @property
    def reserved_delta(self) -> Fraction:
        return self.delta

    @property
    def rules(self) -> tuple[Rule, ...]:
        return (self.currency,)


class Zcdp(Filter):
    """Rhos add up. Without a delta only the pure sum is left."""

    name = "zcdp"

    @property
    def currency(self) -> Currency:
        if self.delta == 0:
            return super().currency
        return Concentrated(self.epsilon, self.curve_delta, self.reserved_delta)

    @property
    def rules(self) -> tuple[Rule, ...]:
        return (self.currency,)


class Gdp(Filter):
    """Squared mus add up, in either way of counting small releases. Without a delta only the pure sum is left."""

    name = "gdp"

    @property
    def mu_budget(self) -> Fraction | None:
        return self._gaussian_sum.mu if self.delta else None

    @property
    def currency(self) -> Currency:
        return self._gaussian_sum if self.delta else super().currency

    @property
    def rules(self) -> tuple[Rule, ...]:
        return self._gaussian_rules if self.delta else (self.currency,)

    @cached_property
    def _gaussian_sum(self) -> GaussianSum:
        return GaussianSum(self.epsilon, self.curve_delta, self.reserved_delta)

    @cached_property
    def _gaussian_rules(self) -> tuple[Rule, ...]:
        """Both are read at the same delta: one bound holds for what either of them admits."""
        return self._gaussian_sum, SmoothedSum(self.epsilon, self.curve_delta, self.reserved_delta)


class Auto(Gdp):
    """Epsilons add up, or else squared mus do: a pure sum fails with probability zero, so the choice costs no delta."""

    name = "auto"

    @property
    def rules(self) -> tuple[Rule, ...]:
        pure = PureSum(self.epsilon, self.reserved_delta)
        return (pure, *self._gaussian_rules) if self.delta else (pure,)


class Mixed(Gdp):
    """The two of `auto`, or a part of epsilon for pure releases and the rest for others, at one of a few fixed caps.

    Which cap holds at the end is not known in advance, so each has a part of the delta. Gaussian noise alone is asked
    for most often, so most of the delta is its.
    """

    name = "mixed"

    @property
    def curve_delta(self) -> Fraction:
        return super().curve_delta - self.delta * MIXED_SHARE

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        pure = PureSum(self.epsilon, self.reserved_delta)
        if not self.delta:
            return (pure,)
        each = self.delta * MIXED_SHARE / (CAPS - 1)
        mixed = (
            MixedSum(self.epsilon, self.epsilon * Fraction(part, CAPS), each, self.reserved_delta, self.curve_delta)
            for part in range(1, CAPS)
        )
        return (pure, *self._gaussian_rules, *mixed)


FILTERS = {kind.name: kind for kind in (Mixed, Auto, Basic, Zcdp, Gdp)}


@lru_cache(maxsize=256)
def filter_named(name: str, epsilon: Fraction, delta: Fraction) -> Filter:
    """
    >>> filter_named("gdp", Fraction(1), Fraction(0)).mu_budget is None
    True
    """
    if name not in FILTERS:
        names = ", ".join(f'"{known}"' for known in FILTERS)
        raise ProgrammingError(f"there is no composition {name!r}", hint=f"composition is one of {names}")
    return FILTERS[name](epsilon, delta)


def _copies(totals: PrivacyLoss, each: PrivacyLoss, limit: PrivacyLoss) -> int:
    kept = max(totals.headroom, each.headroom) if limit.smoothed < math.inf else 0
    room = replace(limit, smoothed=limit.smoothed - kept)
    columns = zip(totals.amounts, each.amounts, room.amounts, strict=True)
    return min(_copies_of_one(*column) for column in columns)


def _copies_of_one(total: Amount, each: Amount, limit: Amount) -> int:
    if total > limit:
        return 0
    if limit == math.inf or each == 0:
        return sys.maxsize
    return math.floor((limit - total) / each)
