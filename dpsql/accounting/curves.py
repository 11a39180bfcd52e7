"""Gaussian differential privacy: conversions between mu and (epsilon, delta), both ways.

    delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)

Every answer errs to the safe side. The curve is evaluated in 50 decimal digits with bounds on both of its terms, so the
result is an upper bound on every machine, and the same one on every machine. See docs/proofs/gaussian_dp.md.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from dpsql.accounting.exact import LARGEST, root_up, rounded_up

if TYPE_CHECKING:
    from collections.abc import Callable

DIGITS = Context(prec=50)
# Covers the rounding of some hundred operations at 50 digits, of which cancellation may cost six.
MARGIN = Decimal("1e-38")
PI = Decimal("3.14159265358979323846264338327950288419716939937511")

# Where the Taylor series hands over to the continued fraction.
SERIES_END = 5
# A thousand standard deviations out, the tail is below 1e-217000 and no longer computed.
FAR = 1000
LARGEST_MU = 10.0**10
TOLERANCE = 2.0**-46
# Where an edge is expected: it is looked at this far on both sides, after at most so many secants of so few digits.
AUXILIARY = 2.0**-48
FEWER_DIGITS = Context(prec=24, traps=[])
SECANTS = 40
CLOSE = 2.0**-30


def delta_at(mu: float, epsilon: float) -> float:
    """An upper bound on delta such that mu-GDP implies (epsilon, delta)-DP.

    >>> f"{delta_at(1.0, 1.0):.6f}"
    '0.126937'
    """
    if mu == 0:
        return 0.0
    if mu > LARGEST_MU:
        return 1.0
    with localcontext(DIGITS):
        # A larger epsilon has a smaller delta, so that of LARGEST bounds it.
        bound = _delta_above(mu, Decimal(min(epsilon, float(LARGEST))))
    return min(1.0, max(math.ulp(0.0), math.nextafter(float(bound), math.inf)))


@lru_cache(maxsize=4096)
def mu_for(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest mu such that mu-GDP implies (epsilon, delta)-DP, from below.

    >>> f"{float(mu_for(Fraction(1), Fraction(1, 10**6))):.6f}"
    '0.236704'
    """
    with localcontext(DIGITS):
        target, exact_epsilon = _decimal_below(delta), _decimal_below(epsilon)

        def part(mu: float) -> Decimal:
            return _delta_above(mu, exact_epsilon) / target

        # Two proven starting points: delta <= Phi(-z) for z = epsilon/mu - mu/2, and delta <= mu / sqrt(2 pi).
        z = _tail_quantile_above(target)
        start = max((z * z + 2 * exact_epsilon).sqrt() - z, target * Decimal("2.5"))
        inside = float(start) * (1 - 1e-12)
        outside = 2 * inside
        while part(outside) <= 1:
            inside, outside = outside, 2 * outside
        return Fraction(_edge(part, inside, outside))


@lru_cache(maxsize=4096)
def gaussian_epsilon_at(mu: float, delta: Fraction) -> float:
    """The smallest epsilon such that mu-GDP implies (epsilon, delta)-DP, from above.

    >>> f"{gaussian_epsilon_at(0.5, Fraction(1, 10**6)):.3f}"
    '2.254'
    """
    if mu == 0:
        return 0.0
    if mu > LARGEST_MU or delta == 0:
        return math.inf
    with localcontext(DIGITS):
        target = _decimal_below(delta)

        def part(epsilon: float) -> Decimal:
            return _delta_above(mu, Decimal(epsilon)) / target

        if part(0.0) <= 1:
            return 0.0
        exact_mu = Decimal(mu)
        proven = exact_mu * exact_mu / 2 + exact_mu * _tail_quantile_above(target)
        return _edge(part, float(proven) * (1 + 1e-12), 0.0)


@lru_cache(maxsize=4096)
def mu_of_pure(epsilon: Fraction) -> Fraction:
    """The mu of any epsilon-DP release, -2 Phi^-1(1 / (1 + e^epsilon)), from above.

    >>> f"{float(mu_of_pure(Fraction(1, 10))):.6f}"
    '0.125309'
    """
    if epsilon == 0:
        return Fraction(0)
    # From 1/(1 + e^epsilon) >= e^-epsilon / 2 and Phi(-z) <= e^(-z^2/2) / 2. Far out nothing better is needed.
    proven = root_up(8 * epsilon)
    if epsilon > FAR:
        return Fraction(proven)
    with localcontext(DIGITS):
        odds = 1 + _decimal_above(epsilon).exp()

        def part(mu: float) -> Decimal:
            half = Decimal(mu) / 2
            return _density(half) * _mills(half, above=True) * odds * (1 + MARGIN)

        return Fraction(_edge(part, proven, 0.0))


def pure_epsilon_at(mu: float) -> float:
    """About the largest epsilon such that epsilon-DP implies mu-GDP: ln(Phi(mu/2) / Phi(-mu/2)). Infinite far out.

    >>> f"{pure_epsilon_at(0.125309):.5f}"
    '0.10000'
    """
    within, beyond = math.erf(mu / math.sqrt(8)), math.erfc(mu / math.sqrt(8))
    if within < 1 / 2:
        return 2 * math.atanh(within)
    return math.log((1 + within) / beyond) if beyond else math.inf


def _delta_above(mu: float, epsilon: Decimal) -> Decimal:
    """delta(epsilon) = density(a) (mills(a) - mills(b)): no factor overflows and the difference keeps its digits."""
    exact_mu = Decimal(mu)
    a = epsilon / exact_mu - exact_mu / 2
    b = a + exact_mu
    if a < -FAR:
        return Decimal(1)
    if a > FAR:
        return _density(Decimal(FAR))
    return _density(a) * (_mills(a, above=True) - _mills(b, above=False)) * (1 + MARGIN)


def _density(x: Decimal) -> Decimal:
    return (-x * x / 2).exp() / (2 * PI).sqrt()


def _mills(x: Decimal, *, above: bool) -> Decimal:
    """Phi(-x) / density(x), from above or from below."""
    if x < -SERIES_END:
        return (1 / _density(x) - _mills(-x, above=not above)) * _outward(above)
    if x < SERIES_END:
        return (1 / (2 * _density(x)) - _odd_series(x)) * _outward(above)
    # x + 1/(x + 2/(x + 3/(x + ...))) cut after an even number of terms is too small, after an odd number too large.
    terms = 2 * (int(700 / (x * x)) + 12) + (0 if above else 1)
    continued = x
    for k in range(terms, 0, -1):
        continued = x + k / continued
    return _outward(above) / continued


def _outward(above: bool) -> Decimal:
    return 1 + MARGIN if above else 1 - MARGIN


def _odd_series(x: Decimal) -> Decimal:
    """(Phi(x) - 1/2) / density(x) = x + x^3/3 + x^5/(3*5) + ..., until a term no longer shows in 50 digits."""
    square, term, total, odd = x * x, x, x, 1
    while True:
        odd += 2
        term = term * square / odd
        if total + term == total:
            return total
        total += term


def _tail_quantile_above(delta: Decimal) -> Decimal:
    """Some z >= 0 with Phi(-z) <= delta, since Phi(-z) <= e^(-z^2/2) / 2; a half or more needs no z."""
    return (-2 * (2 * delta).ln()).sqrt() if 2 * delta < 1 else Decimal(0)


def _decimal_below(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator) * (1 - MARGIN)


def _decimal_above(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator) * (1 + MARGIN)


def _edge(part: Callable[[float], Decimal], inside: float, outside: float) -> float:
    """The last point that halving finds to be within 1, on the way from where it is proven to be to where it is not.

    Along it the part only grows, so what is seen at one point is known of all before it, or of all beyond it. Halving
    by itself would look 46 times; after a look on both sides of where the edge should be, it hardly has to.
    """
    forward = math.copysign(1, outside - inside)
    within, beyond = inside, outside

    def holds(point: float) -> bool:
        nonlocal within, beyond
        if forward * point <= forward * within or forward * point >= forward * beyond:
            return forward * point <= forward * within
        found = part(point) <= 1
        within, beyond = (point, beyond) if found else (within, point)
        return found

    expected = _expected_edge(part, inside, outside)
    for beside in (1 - AUXILIARY, 1 + AUXILIARY):
        holds(expected * beside)
    while abs(outside - inside) > TOLERANCE * inside:
        middle = (inside + outside) / 2
        if middle in (inside, outside):
            break
        if holds(middle):
            inside = middle
        else:
            outside = middle
    return inside


def _expected_edge(part: Callable[[float], Decimal], inside: float, outside: float) -> float:
    """An estimate of the point where the part is 1, by secants of its logarithm; only a starting point."""
    with localcontext(FEWER_DIGITS):
        (x, at_x), (y, at_y) = ((point, part(point).ln()) for point in (inside, outside))
        for _ in range(SECANTS):
            slope = (at_y - at_x) / (Decimal(y) - Decimal(x))
            root = float(Decimal(y) - at_y / slope)
            if not min(inside, outside) < root < max(inside, outside):
                root = (inside + outside) / 2
            x, at_x, y, at_y = y, at_y, root, part(root).ln()
            inside, outside = (root, outside) if at_y <= 0 else (inside, root)
            if abs(y - x) <= CLOSE * y:
                break
    return y


# -- zcdp --------------------------------------------------------------------------------------------------------------
# Zero-concentrated differential privacy: conversions between rho and (epsilon, delta), both ways.
#
# For every order alpha > 1, rho-zCDP implies (epsilon, delta)-DP with
#
#     epsilon = alpha rho + ln((alpha - 1) / alpha) + (ln(1 / delta) - ln(alpha)) / (alpha - 1)
#
# (Canonne, Kamath and Steinke 2020). Any order gives a valid bound, so the search for the best one need not be exact.
# See docs/proofs/composition.md.

# The logarithm of alpha - 1 is searched in this range, which holds the best order for every epsilon from 1e-18 to 1e18.
FLATTEST, STEEPEST = Decimal(-60), Decimal(60)
STEPS = 60


@lru_cache(maxsize=4096)
def rho_for(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest rho such that rho-zCDP implies (epsilon, delta)-DP, from below.

    >>> f"{float(rho_for(Fraction(1), Fraction(1, 10**6))):.6f}"
    '0.024356'
    """
    with localcontext(DIGITS):
        exact_epsilon = _decimal(epsilon)

        def rho(order_minus_one: Decimal) -> Decimal:
            return (exact_epsilon - _conversion(order_minus_one, delta)) / (1 + order_minus_one)

        best = _largest(rho) - MARGIN * (1 + exact_epsilon)
    return max(Fraction(0), Fraction(best))


@lru_cache(maxsize=4096)
def zcdp_epsilon_at(rho: Fraction, delta: Fraction) -> float:
    """The smallest epsilon such that rho-zCDP implies (epsilon, delta)-DP, from above.

    >>> f"{zcdp_epsilon_at(Fraction(1, 2), Fraction(1, 10**6)):.3f}"
    '5.222'
    """
    if rho == 0:
        return 0.0
    with localcontext(DIGITS):
        exact_rho = _decimal(rho)

        def negated_epsilon(order_minus_one: Decimal) -> Decimal:
            return -(1 + order_minus_one) * exact_rho - _conversion(order_minus_one, delta)

        best = MARGIN * (1 + exact_rho) - _largest(negated_epsilon)
    return rounded_up(max(Fraction(0), Fraction(best)))


def _conversion(order_minus_one: Decimal, delta: Fraction) -> Decimal:
    """The difference between epsilon and alpha rho."""
    order = 1 + order_minus_one
    log_delta = Decimal(delta.numerator).ln() - Decimal(delta.denominator).ln()
    return (order_minus_one / order).ln() - (log_delta + order.ln()) / order_minus_one


def _largest(value: Callable[[Decimal], Decimal]) -> Decimal:
    """The maximum over all orders of a function that first rises and then falls, by thirds."""
    low, high = FLATTEST, STEEPEST
    for _ in range(STEPS):
        third = (high - low) / 3
        if value((low + third).exp()) < value((high - third).exp()):
            low += third
        else:
            high -= third
    return value(((low + high) / 2).exp())


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)
