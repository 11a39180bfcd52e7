"""The ways to bound a whole session, each sound when every query is chosen after seeing earlier answers.

    PureSum      sum of epsilon    <= epsilon
    Concentrated sum of rho        <= rho(epsilon, curve_delta)
    GaussianSum  sum of mu_squared <= mu(epsilon, curve_delta)^2
    SmoothedSum  sum of smoothed + the largest headroom <= the same
    MixedSum     sum of pure epsilon <= cap, sum of the others' mu_squared <= mu(epsilon - cap, curve_delta)^2

and, for all of them, the additive deltas stay within the share set aside for them. See docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from dpsql.accounting import gaussian_dp, zcdp
from dpsql.accounting.events import Event, Gaussian, PureRelease
from dpsql.accounting.exact import root_down, root_up, rounded_down, rounded_up
from dpsql.accounting.privacy_loss import EVERYTHING, PrivacyLoss

if TYPE_CHECKING:
    from dpsql.accounting.exact import Amount

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
        return gaussian_dp.mu_for(self.epsilon, self.curve_delta)

    @cached_property
    def limit(self) -> PrivacyLoss:
        return replace(EVERYTHING, mu_squared=self.mu**2, delta=self.reserved_delta)

    def taken(self, totals: PrivacyLoss) -> Amount:
        """Of mu squared."""
        return totals.mu_squared

    def spent(self, totals: PrivacyLoss) -> float:
        taken = self.taken(totals)
        return math.inf if isinstance(taken, float) else gaussian_dp.epsilon_at(root_up(taken), self.curve_delta)

    def remaining(self, totals: PrivacyLoss) -> float:
        taken = self.taken(totals)
        if taken == 0:
            return rounded_down(self.epsilon)
        if taken >= self.mu**2:
            return 0.0
        left = root_down(self.mu**2 - Fraction(taken))
        return SHY * gaussian_dp.epsilon_at(left, self.curve_delta)

    def query(self, epsilon: Fraction) -> Event:
        return Gaussian(1 / gaussian_dp.mu_for(epsilon, self.curve_delta))

    def epsilon_of(self, part: Fraction) -> Fraction:
        found = gaussian_dp.epsilon_at(root_down(self.mu**2 * part), self.curve_delta)
        return Fraction(SHY * found) if math.isfinite(found) else self.epsilon * part

    def pure_epsilon_of(self, part: Fraction) -> Fraction:
        found = gaussian_dp.pure_epsilon_at(root_down(self.mu**2 * part))
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
        return zcdp.rho_for(self.epsilon, self.curve_delta)

    @cached_property
    def limit(self) -> PrivacyLoss:
        return replace(EVERYTHING, rho=self.rho, delta=self.reserved_delta)

    def spent(self, totals: PrivacyLoss) -> float:
        if isinstance(totals.rho, float):
            return math.inf
        return zcdp.epsilon_at(totals.rho, self.curve_delta)

    def remaining(self, totals: PrivacyLoss) -> float:
        if totals.rho == 0:
            return rounded_down(self.epsilon)
        if totals.rho >= self.rho:
            return 0.0
        return SHY * zcdp.epsilon_at(self.rho - Fraction(totals.rho), self.curve_delta)

    def query(self, epsilon: Fraction) -> Event:
        rho = zcdp.rho_for(epsilon, self.curve_delta)
        # An epsilon so small that no rho is known for it is as small as a pure release.
        return Gaussian(Fraction(root_up(1 / (2 * rho)))) if rho else PureRelease(epsilon)

    def epsilon_of(self, part: Fraction) -> Fraction:
        return Fraction(SHY * zcdp.epsilon_at(self.rho * part, self.curve_delta))

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
        return gaussian_dp.mu_for(self.epsilon - self.cap, self.curve_delta)

    @cached_property
    def limit(self) -> PrivacyLoss:
        return replace(EVERYTHING, pure=self.cap, rest=self.mu**2, delta=self.reserved_delta)

    def spent(self, totals: PrivacyLoss) -> float:
        if isinstance(totals.rest, float) or isinstance(totals.pure, float):
            return math.inf
        curve = gaussian_dp.epsilon_at(root_up(totals.rest), self.curve_delta)
        return rounded_up(totals.pure + Fraction(curve)) if math.isfinite(curve) else math.inf

    def remaining(self, totals: PrivacyLoss) -> float:
        """By the kind of noise that has more left."""
        if not (totals.pure <= self.cap and totals.rest <= self.mu**2):
            return 0.0
        left = root_down(self.mu**2 - Fraction(totals.rest))
        curve = SHY * gaussian_dp.epsilon_at(left, self.query_delta)
        return max(rounded_down(self.cap - Fraction(totals.pure)), curve)

    def query(self, epsilon: Fraction) -> Event:
        return Gaussian(1 / gaussian_dp.mu_for(epsilon, self.query_delta))
