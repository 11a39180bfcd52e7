"""The one assumption about the platform: numpy's log, sqrt, exp, cos and sin are within LIBM_ERROR."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.sampling import CryptographicRandomness
from dpsql.sampling.randomness import LIBM_ERROR, _pi, cos_sin

DIGITS = 50


def random_words(n: int) -> NDArray[np.int64]:
    return (CryptographicRandomness().words(n) & ((1 << 63) - 1) | 1).view(np.int64)


def uniforms() -> NDArray[np.float64]:
    """Random ones of every magnitude, and those where a logarithm is hardest: next to 1 and next to powers of two."""
    leading = random_words(6000)
    spread = leading >> (np.arange(len(leading)) % 17)
    powers = 2.0 ** -np.arange(0, 17)
    near = np.concatenate([np.nextafter(powers, 0), powers, np.nextafter(powers, 2)[1:]])
    below_one = 1 - np.arange(1, 400) * 2.0**-53
    return np.concatenate([(spread | 1) * 2.0**-63, near, below_one])


def relative_errors(values: NDArray[np.float64], exact: list[Decimal]) -> list[Decimal]:
    return [abs(Decimal(v) - e) / abs(e) if e else abs(Decimal(v)) for v, e in zip(values.tolist(), exact, strict=True)]


def test_log() -> None:
    u = uniforms()
    with localcontext() as context:
        context.prec = DIGITS
        assert max(relative_errors(np.log(u), [Decimal(x).ln() for x in u.tolist()])) < LIBM_ERROR


def test_sqrt() -> None:
    x = -2 * np.log(uniforms())
    with localcontext() as context:
        context.prec = DIGITS
        assert max(relative_errors(np.sqrt(x), [Decimal(v).sqrt() for v in x.tolist()])) < LIBM_ERROR


def test_exp() -> None:
    x = np.concatenate([-700 * uniforms(), -uniforms(), -np.arange(701.0)])
    with localcontext() as context:
        context.prec = DIGITS
        assert max(relative_errors(np.exp(x), [Decimal(v).exp() for v in x.tolist()])) < LIBM_ERROR


def test_cos_and_sin() -> None:
    quarters = np.arange(-4, 5) * (np.pi / 4)
    near = [np.nextafter(quarters, -9), quarters, np.nextafter(quarters, 9), quarters * (1 - 1e-9), [1e-300, 1e-18]]
    angles = np.concatenate([CryptographicRandomness().words(3000).view(np.int64) * (2 * np.pi / 2**64), *near])
    with localcontext() as context:
        context.prec = DIGITS
        turns = [(Decimal(a) / (2 * _pi(DIGITS))) % 1 for a in angles.tolist()]
        exact = [cos_sin(t + 1 if t < 0 else t) for t in turns]
        for x, y, (cosine, sine) in zip(np.cos(angles).tolist(), np.sin(angles).tolist(), exact, strict=True):
            assert abs(Decimal(x) - cosine) < LIBM_ERROR
            assert abs(Decimal(y) - sine) < LIBM_ERROR


@pytest.mark.parametrize("digits", [30, 75, 150, 300])
def test_cos_sin_of_known_angles(digits: int) -> None:
    with localcontext() as context:
        context.prec = digits
        allowed = Decimal(10) ** (6 - digits)
        diagonal = Decimal("0.5").sqrt()
        known = {
            "0": (Decimal(1), Decimal(0)),
            "0.125": (diagonal, diagonal),
            "0.25": (Decimal(0), Decimal(1)),
            "0.5": (Decimal(-1), Decimal(0)),
            "0.875": (diagonal, -diagonal),
        }
        for turns, (cosine, sine) in known.items():
            x, y = cos_sin(Decimal(turns))
            assert abs(x - cosine) < allowed
            assert abs(y - sine) < allowed


def test_pi() -> None:
    assert str(_pi(60))[:52] == "3.14159265358979323846264338327950288419716939937510"
