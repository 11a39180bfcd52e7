"""Rounded Gaussian noise: (L2/sigma)-GDP exactly, in any dimension. Proof: docs/proofs/rounded_gaussian.md."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import erfc, isinf, isqrt, sqrt
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpsql.accounting.curves import mu_for, rho_for
from dpsql.accounting.events import ApproximateRelease, Composed, Event, Free, Gaussian
from dpsql.accounting.exact import root_up
from dpsql.accounting.filters import Basic, Filter, Zcdp, filter_named
from dpsql.accounting.privacy_loss import privacy_loss
from dpsql.mechanisms.additive import AdditiveMechanism, Allowance, Calibration, Noise, Share, joint_part, joint_shares
from dpsql.sampling import rounded_gaussian

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

# Enough that rounding sigma up is invisible, few enough that fractions stay short.
SIGNIFICANT_BITS = 60

# The epsilon of a mu is known to some fourteen digits, from above. This much less is sure to fit.
SHY = 1 - Fraction(1, 10**9)


@dataclass(frozen=True)
class GaussianNoise(Noise):
    """X = floor(sigma Z + 1/2), Z standard normal. Sigma 0, always 0, is for sensitivity 0.

    >>> GaussianNoise(Fraction(10)).half_width(0.95)
    20
    """

    name: ClassVar[str] = "gaussian"
    sigma: Fraction

    def __post_init__(self) -> None:
        if self.sigma < 0:
            raise ValueError("a standard deviation is not negative")

    @property
    def kurtosis(self) -> float:
        return 0.0

    @property
    def std(self) -> float:
        """Rounding adds 1/12 to the variance, up to terms like exp(-2 pi^2 sigma^2): small sigmas need the series."""
        if self.sigma >= 2:
            return sqrt(float(self.sigma) ** 2 + 1 / 12)
        k = np.arange(1.0, 100.0)
        return sqrt(2 * float(np.sum((2 * k - 1) * self.survival(k))))

    def sample(self, n: int) -> NDArray[np.int64]:
        return rounded_gaussian(self.sigma, n) if self.sigma else np.zeros(n, dtype=np.int64)

    def survival(self, t: NDArray[np.float64]) -> NDArray[np.float64]:
        # For sigmas so small that the quotient would overflow (or 0) a number with the same effect.
        z = (t - 0.5) / (max(float(self.sigma), 1e-200) * sqrt(2))
        return np.array([erfc(x) for x in z.tolist()]) / 2


def calibrated(l2_squared: int | Fraction, noise_multiplier: Fraction) -> GaussianNoise:
    """The noise of sigma = noise_multiplier * L2, rounded up, for integers that one unit moves by at most L2.

    >>> calibrated(4, Fraction(3, 2))
    GaussianNoise(sigma=Fraction(3, 1))
    """
    if l2_squared < 0 or noise_multiplier <= 0:
        raise ValueError("calibration needs a sensitivity >= 0 and a noise multiplier > 0")
    variance = l2_squared * noise_multiplier**2
    if variance == 0:
        return GaussianNoise(Fraction(0))
    above, below = variance.numerator, variance.denominator
    # Sigma is a multiple of 2^bits, and the variance one of 4^bits.
    bits = (above.bit_length() - below.bit_length()) // 2 - SIGNIFICANT_BITS
    multiples = -(-(above << 2 * max(-bits, 0)) // (below << 2 * max(bits, 0)))
    # The least m with m^2 >= x is that with m^2 >= ceil(x).
    multiple = isqrt(multiples - 1) + 1
    return GaussianNoise(Fraction(multiple << max(bits, 0), 1 << max(-bits, 0)))


class GaussianMechanism(AdditiveMechanism):
    """Gaussian noise: squared mus add up, so the measures of a query share one mu. docs/proofs/calibration.md."""

    variance_exponent = 1
    by_l2 = True

    def calibrate(self, allowance: Allowance, shares: Sequence[Share]) -> tuple[list[Calibration], Event]:
        if isinstance(allowance.filter, Basic):
            # Basic composition knows (epsilon, delta) only: a release is charged its part of both as a whole.
            part = joint_part(shares)
            epsilon, delta = allowance.epsilon * part, allowance.delta * part
            mu_squared = mu_for(epsilon, delta) ** 2 / part
            calibrations = [
                Calibration(_noise(share, _multiplier(mu_squared * share.part)), Free(), Fraction(0))
                for share in shares
            ]
            return calibrations, ApproximateRelease(epsilon, delta)
        mu_squared = _mu_squared(allowance)
        joint = {part: _multiplier(mu_squared * part) for part in {share.part for share in joint_shares(shares)}}
        calibrations = [_calibration(share, shares, joint, allowance.epsilon) for share in shares]
        return calibrations, Composed(tuple(Gaussian(joint[share.part]) for share in joint_shares(shares)))

    def epsilon_at(self, precision: Fraction, delta: Fraction, filter_: Filter) -> Fraction:
        """Precision is mu; basic composition knows nothing better than the mu itself."""
        rules = filter_named(filter_.name, filter_.epsilon, delta).rules
        epsilon = min(rule.spent(privacy_loss(Gaussian(1 / precision))) for rule in rules)
        return precision if isinf(epsilon) else Fraction(epsilon)

    def precision_within(self, limit: Filter, weights: tuple[Fraction, ...]) -> Fraction:
        if limit.mu_budget is None:
            return limit.epsilon / sum(weights)
        return limit.mu_budget / Fraction(sqrt(sum(weight**2 for weight in weights))) * SHY


def _calibration(
    share: Share, shares: Sequence[Share], joint: Mapping[Fraction, Fraction], epsilon: Fraction
) -> Calibration:
    """`joint` has the noise multiplier of what is charged together, by its part of the allowance."""
    together = (
        joint_part([one for one in shares if one.place and one.place[0] == share.place[0]])
        if share.place
        else share.part
    )
    # Rounded up from the multiplier that is charged, so that the cases of a bundle never lose more than that.
    alone = Gaussian(_multiplier(share.part / together / joint[together] ** 2))
    return Calibration(_noise(share, alone.noise_multiplier), alone, epsilon * _less_without(share.part))


def _noise(share: Share, multiplier: Fraction) -> Callable[[int], GaussianNoise]:
    return lambda linf: calibrated(share.groups * linf**2, multiplier)


def _mu_squared(allowance: Allowance) -> Fraction:
    """The mu squared of an allowance, in the session's own currency."""
    epsilon, delta = allowance.epsilon, allowance.delta
    return 2 * rho_for(epsilon, delta) if isinstance(allowance.filter, Zcdp) else mu_for(epsilon, delta) ** 2


def _multiplier(mu_squared: Fraction) -> Fraction:
    """The noise multiplier: standard deviation over sensitivity, 1/mu rounded up."""
    return Fraction(root_up(1 / mu_squared))


def _less_without(part: Fraction) -> Fraction:
    """The fraction of epsilon that is saved if a measure with this part is not released: 1 - sqrt(1 - part), or less.

    Without it mu falls by that factor, and epsilon, at the same delta, by at least as much.
    """
    return 1 - Fraction(root_up(1 - part))
