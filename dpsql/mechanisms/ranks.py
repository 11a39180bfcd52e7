"""Which rank of a sorted column a quantile aims at, and how far a row can move the aim.

Ranks are counted in parts of a row, so that all of this is whole numbers: `at(n)` of `parts` is the place, 0 before the
first of n rows and n * parts behind the last. Another row raises it by at least `least` and at most `most`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from fractions import Fraction

    from numpy.typing import NDArray

# Together they keep places below 2^60.
MOST_PARTS = 1 << 20
MOST_ROWS = 1 << 40


class Aim(Protocol):
    """A place among n sorted rows."""

    @property
    def parts(self) -> int: ...

    @property
    def least(self) -> int: ...

    @property
    def most(self) -> int: ...

    @property
    def inside(self) -> int:
        """How many rows it is away, at most, from a fraction of all rows."""
        ...

    def at(self, rows: NDArray[np.int64]) -> NDArray[np.int64]: ...


@dataclass(frozen=True)
class Share:
    """The p-quantile: p n of n rows lie below it. The median is Share(1, 2).

    >>> Share(1, 4).at(np.array([10])) / 4
    array([2.5])
    """

    numerator: int
    parts: int

    def __post_init__(self) -> None:
        if not 0 <= self.numerator <= self.parts <= MOST_PARTS:
            raise ValueError(f"a quantile is a fraction from 0 to 1 with a denominator up to {MOST_PARTS}")

    @property
    def least(self) -> int:
        return self.numerator

    @property
    def most(self) -> int:
        return self.numerator

    @property
    def inside(self) -> int:
        return 0

    def at(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.numerator * rows


def share(p: Fraction) -> Share:
    """The quantile next to p whose denominator is short enough; any p with up to six decimals is met exactly.

    >>> from fractions import Fraction
    >>> share(Fraction(1, 2)), share(Fraction("0.333333333333333"))
    (Share(numerator=1, parts=2), Share(numerator=1, parts=3))
    """
    if not 0 <= p <= 1:
        raise ValueError(f"a quantile lies between 0 and 1, unlike {float(p):g}")
    near = p.limit_denominator(MOST_PARTS)
    return Share(near.numerator, near.denominator)


@dataclass(frozen=True)
class Depth:
    """So many rows from the bottom, or from the top; but never beyond the median, when there are too few rows.

    >>> Depth(30, from_top=False).at(np.array([0, 10, 1000])) / 2
    array([ 0.,  5., 30.])
    >>> Depth(30, from_top=True).at(np.array([0, 10, 1000])) / 2
    array([  0.,   5., 970.])
    """

    rows: int
    from_top: bool
    parts: int = 2

    @property
    def least(self) -> int:
        return 1 if self.from_top else 0

    @property
    def most(self) -> int:
        return 2 if self.from_top else 1

    @property
    def inside(self) -> int:
        return self.rows

    def at(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.maximum(2 * (rows - self.rows), rows) if self.from_top else np.minimum(2 * self.rows, rows)
