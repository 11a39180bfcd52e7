"""Smooth sensitivity: noise scaled to a smooth bound on the local sensitivity, round(q(x) + (S(x)/a) Z).

S is b-smooth; a and b are chosen such that answer and scale together are (epsilon, delta)-DP. The constants follow from
the exact divergences, and are better than those of the textbooks. They hold for one number, or for `cells` numbers that
share a scale; every further number is a release of its own. Proof: docs/proofs/smooth_sensitivity.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from math import expm1
from typing import TYPE_CHECKING

from dpsql.accounting.events import ApproximateRelease, Event, PureRelease
from dpsql.mechanisms.additive import SAFETY
from dpsql.mechanisms.local_sensitivity import LEAST_B
from dpsql.sampling import gaussian, rounded_real

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.mechanisms.local_sensitivity import LocalSensitivity
    from dpsql.sampling import Randomness

# Bits of b: few, so that fractions stay short. With a delta of 1e-200 it is still above epsilon/2 times 2^-11.
PRECISION = 30

LARGEST_EPSILON = 100


@dataclass(frozen=True)
class SmoothNoise:
    """The noise (S/a) Z for an answer with a b-smooth bound S, with Z of the given kind.

    >>> cauchy(Fraction(1)).b
    Fraction(1, 2)
    """

    kind: type[gaussian.Standard]
    a: Fraction
    b: Fraction
    event: Event

    def __post_init__(self) -> None:
        if self.b < LEAST_B:
            raise ValueError("smooth sensitivity would be pure noise")

    def release(
        self, answer: Fraction, bounds: LocalSensitivity, low: int, high: int, source: Randomness | None = None
    ) -> int:
        """The noisy answer as an integer, clamped to the public [low, high]."""
        return rounded_real(answer, bounds.smooth(self.b) / self.a, self.kind, low, high, source)


def cauchy(epsilon: Fraction) -> SmoothNoise:
    """Without a delta, with heavy tails: cosh b + a^2 e^-b / 2 <= cosh epsilon, and 1 + a^2 / 2 as well."""
    _check(epsilon)
    b = epsilon / 2
    with localcontext(Context(prec=50)):
        here, there = (_decimal(x).exp() for x in (epsilon, b))
        cosh, cosh_b = (here + 1 / here) / 2, (there + 1 / there) / 2
        a = min(2 * (cosh - 1), 2 * there * (cosh - cosh_b)).sqrt()
    return SmoothNoise(gaussian.Cauchy, _rounded_down(a), b, PureRelease(epsilon))


def laplace(epsilon: Fraction, delta: Fraction, cells: int = 1) -> SmoothNoise:
    """Laplace noise: half of epsilon for the shift, half and delta for the scale, which `cells` numbers share."""
    _check(epsilon, delta)
    half, limit = float(epsilon) / 2, epsilon / (2 * cells)

    def private(b: float) -> bool:
        with localcontext(Context(prec=30)):
            return _scale_divergence(half, b, cells) * Decimal(1 + SAFETY) <= _decimal(delta)

    return SmoothNoise(
        gaussian.StandardLaplace, epsilon / 2, _largest(private, limit), ApproximateRelease(epsilon, delta)
    )


def _scale_divergence(half: float, b: float, cells: int) -> Decimal:
    """e^-z times the sum of (z^i / i!) (1 - e^(-(cells - i) b)) over i < cells: all terms are positive."""
    z = Decimal((half + cells * b) / expm1(b))
    power, total = Decimal(1), Decimal(0)
    for i in range(cells):
        total += power * Decimal(-expm1((i - cells) * b))
        power *= z / (i + 1)
    return (-z).exp() * total


def _check(epsilon: Fraction, delta: Fraction | None = None) -> None:
    if not LEAST_B <= epsilon <= LARGEST_EPSILON:
        raise ValueError(f"smooth sensitivity needs an epsilon from 2^-30 to {LARGEST_EPSILON}")
    if delta is not None and not Fraction(1, 10**200) <= delta <= Fraction(1, 2):
        raise ValueError("this smooth noise needs a delta from 1e-200 to 1/2")


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def _rounded_down(value: Decimal) -> Fraction:
    """At most 2^-40 less, relatively: far more than the errors of 50 digits."""
    return Fraction(float(value)) * (1 - Fraction(1, 2**40))


def _largest(private: Callable[[float], bool], limit: Fraction) -> Fraction:
    """The largest multiple of limit / 2^PRECISION, up to the limit, that is still private."""
    steps = 1 << PRECISION
    inside, outside = 0, steps + 1
    while outside - inside > 1:
        middle = (inside + outside) // 2
        inside, outside = (middle, outside) if private(float(limit * middle / steps)) else (inside, middle)
    return limit * inside / steps
