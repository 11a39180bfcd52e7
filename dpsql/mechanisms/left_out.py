"""What contribution bounding leaves out: an upper bound from one noisy histogram of people by their number of rows.

Of T rows of a person at least min(T, kept) count, whatever a WHERE leaves of them and a GROUP BY makes of them. So an
answer leaves out at most the sum of T - kept over all people with more, and that follows from how many people have how
many rows. One person is in one bin. Nobody can see one person in it: what is bounded are everybody's first `cap` rows.
docs/proofs/left_out.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from dpsql.mechanisms import combined

if TYPE_CHECKING:
    from datetime import datetime

    from dpsql.mechanisms.additive import Noise

EDGES = (
    *range(1, 7),
    *range(8, 13, 2),
    *range(16, 33, 4),
    *range(40, 65, 8),
    80,
    96,
    128,
    192,
    256,
    384,
    512,
    1024,
    4096,
    16384,
)
"""A person counts in the first bin that the number of rows does not exceed; who has more than the last, in one more."""
BEYOND = 1 << 62
"""Where the last bin ends."""
CAPS = (1024, 4096, 16384)
"""Of nobody more rows than this are accounted for: the first of them beyond which nobody is seen."""
SURE = 0.99
"""The confidence with which people beyond a cap are seen."""
CELLS = 500
"""A bound need not be as fine as an error bar."""


@dataclass(frozen=True)
class RowsPerPerson:
    """The noisy histogram of a table."""

    counts: tuple[int, ...]
    """The noisy number of people in each bin."""
    noise: Noise
    step: int
    """How many people one step of the noise is."""
    drawn_at: datetime | None = None
    """When it was drawn, if it is on record."""

    def beyond(self, lost: tuple[int, ...]) -> float:
        """The noisy number of rows if a person in each bin has so many."""
        return float(sum(count * rows for count, rows in zip(self.counts, lost, strict=True)))

    def margin(self, lost: tuple[int, ...], level: float) -> float:
        """How far, at this one-sided level, the true number may be above it."""
        return self.step * _quantile(lost, (self.noise,), level)

    @cached_property
    def cap(self) -> int | None:
        """The first cap beyond which nobody is seen; None if there are people beyond all of them."""
        for cap in CAPS:
            first = EDGES.index(cap) + 1
            ones = tuple(int(place >= first) for place in range(len(self.counts)))
            if sum(self.counts[first:]) <= self.step * _quantile(ones, (self.noise,), SURE):
                return cap
        return None


@dataclass(frozen=True)
class LeftOut:
    """What bounding may leave out of each cell of a column: rows, each of which would add `low` to `high`."""

    people: RowsPerPerson
    kept: int
    """So many of a person's rows count at least."""
    full: int
    """Of people with at most so many rows all count."""
    cap: int
    """No more of a person's rows than this are accounted for, or can be in the question at all."""
    low: float
    high: float

    def most(self, level: float) -> float:
        """The most rows that are left out, at this one-sided level, whichever cap the noisy counts chose."""
        if level not in self._known:
            each = 1 - (1 - level) / len(CAPS)
            self._known[level] = max(0.0, self.people.beyond(self._lost) + self.people.margin(self._lost, each))
        return self._known[level]

    @property
    def is_known(self) -> bool:
        """Whether the table has more rows than noise could hide: else there are too few people to tell."""
        seen = tuple(min(most, max(0, self.cap - self.kept)) for most in (*EDGES, BEYOND))
        return not any(self._lost) or self.people.margin(self._lost, SURE) <= self.people.beyond(seen)

    @cached_property
    def _known(self) -> dict[float, float]:
        """What was computed before, by level: many cells ask for the same."""
        return {}

    @cached_property
    def _lost(self) -> tuple[int, ...]:
        """For each bin, how many rows of a person in it are left out at most."""
        return tuple(max(0, min(most, self.cap) - self.kept) * (most > self.full) for most in (*EDGES, BEYOND))


@lru_cache(maxsize=1024)
def _quantile(weights: tuple[int, ...], noises: tuple[Noise], level: float) -> float:
    terms = [(float(weight), noise) for weight in weights for noise in noises if weight]
    return combined.half_width(terms, 2 * level - 1, CELLS) if terms else 0.0
