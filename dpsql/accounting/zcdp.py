"""Zero-concentrated differential privacy: what rho means as (epsilon, delta), and which rho an (epsilon, delta) allows.

For every order alpha > 1, rho-zCDP implies (epsilon, delta)-DP with

    epsilon = alpha rho + ln((alpha - 1) / alpha) + (ln(1 / delta) - ln(alpha)) / (alpha - 1)

(Canonne, Kamath and Steinke 2020). Any order gives a valid bound, so the search for the best one need not be exact. See
docs/proofs/composition.md.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from dpsql.accounting.exact import rounded_up
from dpsql.accounting.gaussian_dp import DIGITS, MARGIN

if TYPE_CHECKING:
    from collections.abc import Callable

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
def epsilon_at(rho: Fraction, delta: Fraction) -> float:
    """The smallest epsilon such that rho-zCDP implies (epsilon, delta)-DP, from above.

    >>> f"{epsilon_at(Fraction(1, 2), Fraction(1, 10**6)):.3f}"
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
    """What epsilon exceeds alpha rho by."""
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
