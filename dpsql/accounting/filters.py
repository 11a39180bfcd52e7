"""Privacy filters: before each query they decide whether the session's budget still admits it.

A filter has one or more composition rules, and admits what any of them admits. Its guarantee holds for the session as a
whole, even if queries are chosen adaptively. See docs/proofs/composition.md.
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
# Composition rules for a session. Each is sound if queries are chosen adaptively, after seeing earlier answers.
#
#     PureSum      sum of epsilon    <= epsilon
#     Concentrated sum of rho        <= rho(epsilon, curve_delta)
#     GaussianSum  sum of mu_squared <= mu(epsilon, curve_delta)^2
#     SmoothedSum  sum of smoothed + the largest headroom <= the same
#     MixedSum     sum of pure epsilon <= cap, sum of the others' mu_squared <= mu(epsilon - cap, curve_delta)^2
#     CommittedSum the same, where the cap is what pure releases had spent when the first of the others was charged
#
# and, for all of them, the additive deltas stay within the share set aside for them. See docs/proofs/composition.md.

# What is left along a curve is known to some fourteen digits, from above. This much less is sure to fit.
SHY = 1 - 1e-9
HAIR = 2.0**-40
# Of epsilon, what a chosen cap leaves for pure releases that come later, such as what a stopped question pays.
SPARE = Fraction(1, 100)


class Rule(Protocol):
    """A composition rule: the totals must stay within `limit`. The methods express this in epsilon, for people."""

    @property
    def limit(self) -> PrivacyLoss: ...

    @property
    def curve_delta(self) -> Fraction:
        """The delta at which the rule states its epsilon; 0 for a pure sum."""
        ...

    def spent(self, totals: PrivacyLoss) -> float:
        """The least epsilon at which the rule admits the totals, nearly, from above. The deltas stay as they are."""
        ...

    def remaining(self, totals: PrivacyLoss) -> float:
        """The largest epsilon of one more query, rounded down."""
        ...

    def query(self, epsilon: Fraction) -> Event:
        """The event of a query that spends exactly this epsilon by itself."""
        ...


class Currency(Rule, Protocol):
    """A rule with a single sum, by which fractions of a session's budget are defined."""

    def epsilon_of(self, part: Fraction) -> Fraction:
        """The epsilon of a query that takes this fraction of the session's budget, rounded down."""
        ...

    def pure_epsilon_of(self, part: Fraction) -> Fraction:
        """The epsilon of a pure release that takes this fraction."""
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
        """The fraction of mu squared."""
        return totals.mu_squared

    def spent(self, totals: PrivacyLoss) -> float:
        return _along_the_curve(self.taken(totals), self.curve_delta)

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
    """Small pure releases cost less while enough noise budget remains to smooth their two-point losses."""

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
        return curves.zcdp_epsilon_at(totals.rho, self.curve_delta) * (1 + HAIR)

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
        """The rho of a pure release: epsilon^2/2."""
        return Fraction(SHY * root_down(2 * self.rho * part))


@dataclass(frozen=True)
class MixedSum:
    """Pure releases may spend up to `cap`; all others share what the Gaussian curve allows at the remaining epsilon."""

    epsilon: Fraction
    cap: Fraction
    curve_delta: Fraction
    reserved_delta: Fraction
    query_delta: Fraction
    """The delta at which a Gaussian query is calibrated, whichever rule counts it later."""

    @cached_property
    def mu(self) -> Fraction:
        return curves.mu_for(self.epsilon - self.cap, self.curve_delta)

    @cached_property
    def limit(self) -> PrivacyLoss:
        return replace(EVERYTHING, pure=self.cap, rest=self.mu**2, delta=self.reserved_delta)

    def spent(self, totals: PrivacyLoss) -> float:
        """The cap is the same part of a smaller epsilon."""
        if isinstance(totals.pure, float) or not self.epsilon:
            return math.inf
        part, rest = self.cap / self.epsilon, _along_the_curve(totals.rest, self.curve_delta)
        return max(rounded_up(totals.pure / part), rest / float(1 - part) * (1 + HAIR))

    def remaining(self, totals: PrivacyLoss) -> float:
        """The largest epsilon of one more query, by the kind of noise that has more left."""
        if not (totals.pure <= self.cap and totals.rest <= self.mu**2):
            return 0.0
        left = root_down(self.mu**2 - Fraction(totals.rest))
        curve = SHY * curves.gaussian_epsilon_at(left, self.query_delta)
        return max(rounded_down(self.cap - Fraction(totals.pure)), curve)

    def query(self, epsilon: Fraction) -> Event:
        return Gaussian(1 / curves.mu_for(epsilon, self.query_delta))


@dataclass(frozen=True)
class CommittedSum(MixedSum):
    """The cap was chosen before the first release that is not pure: what pure ones had spent, and a little to spare."""

    def spent(self, totals: PrivacyLoss) -> float:
        before, rest = self.cap - SPARE * self.epsilon, _along_the_curve(totals.rest, self.curve_delta)
        if math.inf in (totals.pure, rest):
            return math.inf
        return max(rounded_up((before + Fraction(rest)) / (1 - SPARE)), rounded_up((totals.pure - before) / SPARE))


def _along_the_curve(mu_squared: Amount, delta: Fraction) -> float:
    """The epsilon of this much of the Gaussian curve, and a hair more: `mu_for` of it is then no less."""
    if isinstance(mu_squared, float):
        return math.inf
    mu = root_up(mu_squared)
    epsilon = curves.gaussian_epsilon_at(mu, delta)
    return epsilon + HAIR * (epsilon + mu)


# -- filters -----------------------------------------------------------------------------------------------------------

# Of a session's delta, the share kept for partition selection and tests. The curve uses the rest.
RESERVED_SHARE = Fraction(1, 20)
# The share of all mixed rules with fixed caps together.
MIXED_SHARE = Fraction(1, 40)
CAPS = 8
"""The caps of mixed rules: 1/8, 2/8, ..., 7/8 of epsilon for pure releases."""
# And the share of the rule whose cap is what pure releases spend before all others.
COMMITTED_SHARE = Fraction(9, 40)


@dataclass(frozen=True)
class Filter(ABC):
    """A privacy filter: admits queries while their adaptive composition stays (epsilon, delta)-DP."""

    epsilon: Fraction
    delta: Fraction
    name: ClassVar[str]

    def __post_init__(self) -> None:
        if self.epsilon < 0 or not 0 <= self.delta < 1:
            raise ProgrammingError(
                f"epsilon {float(self.epsilon):g} and delta {float(self.delta):g} are not a privacy budget",
                hint="epsilon must be at least 0, and delta at least 0 and below 1; typical values are epsilon=1, "
                "delta=1e-6",
            )

    @property
    def reserved_delta(self) -> Fraction:
        """The part of delta for losses that add up: partition selection, tests, approximate releases."""
        return self.delta * RESERVED_SHARE

    @property
    def curve_delta(self) -> Fraction:
        """The part of delta for the Gaussian curve, at which Gaussian queries are calibrated."""
        return self.delta - self.reserved_delta

    @property
    def mu_budget(self) -> Fraction | None:
        """The mu of all Gaussian noise together; None if the filter does not use Gaussian DP."""
        return None

    @property
    def currency(self) -> Currency:
        """The rule in which fractions of the session's budget are defined."""
        return PureSum(self.epsilon, self.reserved_delta)

    @property
    @abstractmethod
    def rules(self) -> tuple[Rule, ...]:
        """The rules. Each is sound by itself, so the session is within its budget while any of them holds."""

    def rules_at(self, totals: PrivacyLoss) -> tuple[Rule, ...]:
        """The rules that count such totals."""
        return self.rules

    def admits(self, totals: PrivacyLoss) -> bool:
        return any(totals <= rule.limit for rule in self.rules_at(totals))

    def spent(self, totals: PrivacyLoss) -> Cost:
        """The smallest budget whose filter admits the totals. docs/proofs/composition.md, "What was spent".

        Where epsilons simply add up to the least, deltas add up too. Otherwise it has the session's whole delta.
        """
        sums, along = self._least(totals)
        if sums <= along or totals.delta > self.reserved_delta:
            return Cost(sums, rounded_up(totals.delta))
        most = rounded_up(self.epsilon) if self.admits(totals) else math.inf
        return Cost(min(along, most), rounded_up(self.delta))

    def _least(self, totals: PrivacyLoss) -> tuple[float, float]:
        """The least epsilon by a plain sum, and along a curve."""
        if not any(totals.amounts):
            return 0.0, 0.0
        rules = self.rules_at(totals)
        return min((rule.spent(totals) for rule in rules if isinstance(rule, PureSum)), default=math.inf), min(
            (rule.spent(totals) for rule in rules if not isinstance(rule, PureSum)), default=math.inf
        )

    def remaining(self, totals: PrivacyLoss) -> Cost:
        """The largest epsilon of one more query, and the delta that queries may still add, rounded down."""
        epsilon = max(rule.remaining(totals) for rule in self.rules_at(totals))
        sums, along = self._least(totals)
        delta = (self.delta if sums <= along else self.reserved_delta) - totals.delta
        return Cost(epsilon, max(0.0, rounded_down(delta)))

    def affords(self, totals: PrivacyLoss, event: Event) -> int:
        """The number of further such events that fit; `sys.maxsize` if the event is free."""
        loss = privacy_loss(event)
        return max(_copies(totals, loss, rule.limit) for rule in self.rules_at(totals + loss))

    def queries_at(self, epsilon: Fraction, delta: Fraction) -> tuple[Event, ...]:
        """The release that a query with this nominal cost can make under each rule.

        A delta of at least `curve_delta` is that of a Gaussian read at the curve; only what exceeds it adds up.
        """
        beside = delta - self.curve_delta if delta >= self.curve_delta else delta
        selection = ApproximateRelease(Fraction(0), beside)
        return tuple(Composed((rule.query(epsilon), selection)) for rule in self.rules)


class Basic(Filter):
    """Basic composition: epsilons add up, deltas add up."""

    name = "basic"

    @property
    def reserved_delta(self) -> Fraction:
        return self.delta

    @property
    def rules(self) -> tuple[Rule, ...]:
        return (self.currency,)


class Zcdp(Filter):
    """Zero-concentrated DP: rhos add up. With delta 0 only the pure sum applies."""

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
    """Gaussian DP: squared mus add up; small releases count in two ways. With delta 0 only the pure sum applies."""

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
        """Both rules use the same delta, so one bound covers whatever either admits."""
        return self._gaussian_sum, SmoothedSum(self.epsilon, self.curve_delta, self.reserved_delta)


class Auto(Gdp):
    """The better of basic and Gaussian composition. The pure sum needs no delta, so the choice costs none."""

    name = "auto"

    @property
    def rules(self) -> tuple[Rule, ...]:
        pure = PureSum(self.epsilon, self.reserved_delta)
        return (pure, *self._gaussian_rules) if self.delta else (pure,)


class Mixed(Gdp):
    """The two rules of `auto`, or a share of epsilon for pure releases and the rest for others.

    Pure releases before the first other one set a cap that costs nothing to choose. Later ones have a few fixed caps;
    it is not known in advance which of them will hold, so each has a share of the delta. Most queries use only Gaussian
    noise, so its rule has most of the delta.
    """

    name = "mixed"

    @property
    def curve_delta(self) -> Fraction:
        return super().curve_delta - self.delta * (MIXED_SHARE + COMMITTED_SHARE)

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

    def rules_at(self, totals: PrivacyLoss) -> tuple[Rule, ...]:
        """Before the first release that is not pure, its cap is what the pure ones have spent."""
        cap = (totals.committed if totals.rest else totals.pure) + SPARE * self.epsilon
        if not self.delta or cap > self.epsilon:
            return self.rules
        share = self.delta * COMMITTED_SHARE
        return *self.rules, CommittedSum(self.epsilon, Fraction(cap), share, self.reserved_delta, self.curve_delta)


FILTERS = {kind.name: kind for kind in (Mixed, Auto, Basic, Zcdp, Gdp)}


@lru_cache(maxsize=256)
def filter_named(name: str, epsilon: Fraction, delta: Fraction) -> Filter:
    """
    >>> filter_named("gdp", Fraction(1), Fraction(0)).mu_budget is None
    True
    """
    if name not in FILTERS:
        names = ", ".join(f'"{known}"' for known in FILTERS)
        raise ProgrammingError(f"unknown composition {name!r}", hint=f"choose one of {names}")
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
