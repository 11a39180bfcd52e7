"""The base class of local mechanisms: a report *supports* some values, the true one more often than others.

With p the probability that a report supports the value that it was made of, and q that it supports any other given one,
the number of reports that support a value has expectation n_v p + (n - n_v) q; solved for n_v this is the estimate
(Wang et al. 2017 call such protocols pure). Proof: docs/proofs/local.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction
from functools import cache, cached_property
from math import ceil
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dpsql.accounting.exact import exact
from dpsql.errors import ProgrammingError, shown_argument

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from dpsql.sampling import Randomness

# -- domain ------------------------------------------------------------------------------------------------------------
# The public list of values that an answer can have, and their numbers 0, 1, 2, ..., which the mechanisms work on.
#
# NULL is refused, unless None is one of the values: then it is an answer like any other, and as well hidden.

Column: TypeAlias = "Sequence[Any] | NDArray[Any] | pd.Series[Any]"
"""What perturb() and estimate() take: a value for each person."""

CHUNK = 1 << 16
"""Values that are handled together."""
MOST_VALUES = 1 << 20


class AnswerDomain:
    """
    >>> AnswerDomain(["no", "yes"]).encode(["yes", "no"])
    array([1, 0])
    """

    def __init__(self, values: Iterable[object]) -> None:
        self.values = tuple(values) if not isinstance(values, str) else (values,)
        if not 2 <= len(self.values) <= MOST_VALUES:
            raise ProgrammingError(
                f"a domain of {len(self.values):,} value{'s' * (len(self.values) != 1)} cannot be randomised",
                hint=f"list all possible answers, from 2 to {MOST_VALUES:,} values, such as [False, True]",
            )
        if len({*self.values}) < len(self.values) or any(value != value for value in self.values):
            raise ProgrammingError(
                "the values of a domain must be distinct",
                hint="list every value once; in Python True equals 1 and False equals 0, and NaN is not a value",
            )

    def __len__(self) -> int:
        return len(self.values)

    def encode(self, values: Column) -> NDArray[np.intp]:
        """The number of each value."""
        return np.concatenate([np.empty(0, dtype=np.intp), *(codes for _, codes in self.encoded(values))])

    def encoded(self, values: Column, width: int = 1) -> Iterator[tuple[slice, NDArray[np.intp]]]:
        """Part by part the number of each value, so that little is held at once; parts have `CHUNK / width` rows.

        What is outside is counted and refused at the end, never shown: who asks for parts must ask for all.
        """
        given = _as_array(values)
        missing = outside = 0
        for part in chunks(len(given), width):
            codes, nulls = self._numbers(given[part])
            missing += nulls
            outside += int(np.count_nonzero(codes < 0)) - nulls
            yield part, np.maximum(codes, 0)
        if missing:
            raise ProgrammingError(
                f"{missing:,} of {len(given):,} values are NULL",
                hint='make it an answer of its own, such as "none" (or None in dpsql.local), or drop these rows',
            )
        if outside:
            raise ProgrammingError(
                f"{outside:,} of {len(given):,} values are outside the domain",
                hint=f"list all possible answers; these {len(self)} were given",
            )

    def decode(self, codes: NDArray[np.intp]) -> NDArray[Any]:
        return self.stored[codes]

    @cached_property
    def stored(self) -> NDArray[Any]:
        """The values as a column: booleans or whole numbers where all of them are, else objects."""
        plain = {type(value) for value in self.values} in ({bool}, {int})
        return np.array(self.values) if plain else _as_array(self.values)

    def _numbers(self, part: NDArray[Any]) -> tuple[NDArray[np.intp], int]:
        """The numbers, -1 outside the domain, and how many are NULL without being a value."""
        import pandas as pd

        nulls: NDArray[np.bool_] = pd.isna(part)
        plain = part.dtype.kind in "iub" and self.stored.dtype.kind in "ib"
        codes: NDArray[np.intp] = self._index(plain).get_indexer(pd.Index(part, dtype=None if plain else object))
        null = self.values.index(None) if None in self.values else -1
        codes[nulls] = null
        return codes, int(np.count_nonzero(nulls)) if null < 0 else 0

    @cache  # noqa: B019 - a domain is as long-lived as its mechanism
    def _index(self, plain: bool) -> pd.Index[Any]:
        import pandas as pd

        index: pd.Index[Any] = pd.Index(self.stored, dtype=None if plain else object)
        return index


def chunks(n: int, width: int = 1) -> Iterator[slice]:
    """Splits n rows of `width` cells into parts, to limit memory."""
    step = max(1, CHUNK // width)
    return (slice(start, min(start + step, n)) for start in range(0, n, step))


def _as_array(values: Column) -> NDArray[Any]:
    if hasattr(values, "dtype"):
        given = np.asarray(values)
    else:
        given = np.empty(len(values), dtype=object)
        given[:] = values
    if given.ndim != 1:
        raise ProgrammingError("the values to randomise must be a single column", hint="pass one value per person")
    return given


# -- estimate ----------------------------------------------------------------------------------------------------------
# What reports say about all people together: how often each value is the truth, and how sure that is.
#
# The error is that of the coins alone: the people are who they are. docs/proofs/local.md, section 3.

LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """For each value of the domain, the estimated number of people who have it, and its standard error."""

    values: tuple[object, ...]
    n: int
    counts: NDArray[np.float64]
    standard_errors: NDArray[np.float64]

    @property
    def shares(self) -> NDArray[np.float64]:
        return self.counts / max(1, self.n)

    def intervals(self, level: float = LEVEL) -> pd.DataFrame:
        """A row for each value: its count between count_low and count_high."""
        import pandas as pd

        width = quantile(level) * self.standard_errors
        columns = {"count": self.counts, "count_low": self.counts - width, "count_high": self.counts + width}
        return pd.DataFrame({"value": pd.Series(self.values, dtype=object), **columns})

    def projected(self) -> Estimate:
        """The nearest counts that could be: none below 0, and n together. Better on the whole, no longer unbiased."""
        return replace(self, counts=on_simplex(self.counts, self.n))


def quantile(level: float) -> float:
    """The number of standard errors on either side that gives this coverage."""
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise ProgrammingError(
            f"a confidence level must lie between 0 and 1, not {shown_argument(level)}", hint="write 0.95"
        )
    return NormalDist().inv_cdf((1 + level) / 2)


def on_simplex(counts: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """The point nearest to `counts`, by Euclid, among those that are not negative and sum to n.

    All counts are lowered by the same amount and held at 0 (Duchi et al. 2008; Norm-Sub in Wang et al. 2020).

    >>> on_simplex(np.array([60.0, 50.0, -10.0]), 100)
    array([55., 45.,  0.])
    """
    falling = np.sort(counts)[::-1]
    lowered = (np.cumsum(falling) - n) / np.arange(1, len(counts) + 1)
    kept = np.flatnonzero(falling > lowered)
    amount = lowered[kept[-1]] if len(kept) else lowered[-1]
    nearest: NDArray[np.float64] = np.maximum(counts - amount, 0.0)
    return nearest


# -- shares ------------------------------------------------------------------------------------------------------------
# Probabilities as whole multiples of 2^-64, so that one random word decides a coin exactly, with nothing left over.
#
# e^epsilon is irrational, so no such probability reaches it. Shares are rounded to the private side: the odds between
# any two of them that a mechanism uses are at most e^epsilon. Proof: docs/proofs/local.md, section 1.

WORDS = 1 << 64
"""So many words there are, each as likely as any other."""

# From e^100 on every odds are beyond what shares can express.
LARGEST = Fraction(100)
PRECISION = 60


def read_epsilon(epsilon: object) -> Fraction:
    number = exact(epsilon)
    if number == 0:
        raise ProgrammingError("epsilon must be above 0", hint="write epsilon=1.0, for example")
    return number


def power_below(epsilon: Fraction) -> Fraction:
    """e^epsilon from below, off by less than 10^-50 of it. Decimal's exp is correctly rounded."""
    with localcontext(Context(prec=PRECISION, rounding=ROUND_FLOOR, Emin=MIN_EMIN, Emax=MAX_EMAX)):
        capped = min(epsilon, LARGEST)
        power = (Decimal(capped.numerator) / Decimal(capped.denominator)).exp()
    return Fraction(power) * (1 - Fraction(1, 10 ** (PRECISION - 5)))


def logarithm_above(ratio: Fraction) -> Fraction:
    """ln(ratio) from above, for a ratio above 1."""
    with localcontext(Context(prec=PRECISION, rounding=ROUND_CEILING)):
        logarithm = (Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln()
    return Fraction(logarithm) + Fraction(1, 10 ** (PRECISION - 5))


def least_share(epsilon: Fraction, others: int = 1) -> int:
    """The least q, in shares, with (1 - others q) / q <= e^epsilon: what each of the `others` has, beside the truth."""
    share = ceil(WORDS / (power_below(epsilon) + others))
    if WORDS - others * share <= share:
        raise ProgrammingError(
            f"at epsilon={float(epsilon):g} reports would carry no information",
            hint="use a larger epsilon, such as 0.1",
        )
    return share


def uniform(below: int, n: int, source: Randomness) -> NDArray[np.int64]:
    """n times one of 0, 1, ..., below - 1, each exactly as likely; the few words that would favour some are redrawn."""
    last = np.uint64(WORDS - WORDS % below - 1)
    words = source.words(n)
    while (beyond := np.flatnonzero(words > last)).size:
        words = words.copy()
        words[beyond] = source.words(len(beyond))
    return (words % np.uint64(below)).astype(np.int64)


# -- mechanism ---------------------------------------------------------------------------------------------------------

MOST_REPORTS = 1 << 12
"""Reports of a channel that is written out."""


class LocalMechanism(ABC):
    """Randomises one value of a public domain so that the report tells little about it."""

    name: str
    """What the schema calls it."""

    def __init__(self, domain: Iterable[object], epsilon: object) -> None:
        self.domain = AnswerDomain(domain)
        self.exact_epsilon = read_epsilon(epsilon)

    @property
    def epsilon(self) -> float:
        """No two values make any report more than e^epsilon times as likely; `ratio` is how much more, exactly."""
        return float(self.exact_epsilon)

    @property
    @abstractmethod
    def truth(self) -> Fraction:
        """p: the probability that a report supports the true value."""

    @property
    @abstractmethod
    def other(self) -> Fraction:
        """q: the probability that a report supports any other given value."""

    @property
    @abstractmethod
    def ratio(self) -> Fraction:
        """The largest likelihood ratio of a report between two values; at most e^epsilon."""

    @abstractmethod
    def perturb(self, values: Column, source: Randomness | None = None) -> NDArray[Any]:
        """One report for each value, independently."""

    @abstractmethod
    def support(self, reports: Column) -> tuple[int, NDArray[np.int64]]:
        """How many reports there are, and how many support each value."""

    @property
    @abstractmethod
    def channel(self) -> list[list[Fraction]]:
        """The probability of each possible report (a column) under each value (a row)."""

    def estimate(self, reports: Column, *, project: bool = False) -> Estimate:
        """Unbiased counts; with `project` the nearest ones that could be."""
        found = self.estimate_from(*self.support(reports))
        return found.projected() if project else found

    def estimate_from(self, n: int, support: NDArray[np.int64]) -> Estimate:
        """The same, from how many of n reports support each value."""
        counts = np.asarray((support - n * float(self.other)) / float(self.truth - self.other), dtype=np.float64)
        return Estimate(self.domain.values, n, counts, np.sqrt(self.variance(n, counts.clip(0, n))))

    def variance(self, n: int, count: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """The variance of the estimate for a value that `count` of n people have, from the coins alone."""
        p, q = float(self.truth), float(self.other)
        coins = np.multiply(count, p * (1 - p)) + np.multiply(n - np.asarray(count), q * (1 - q))
        return np.asarray(coins / float(self.truth - self.other) ** 2)

    def total_variance(self, n: int) -> float:
        """The variance summed over all values; it does not depend on the answers."""
        k = len(self.domain)
        return float(k * self.variance(n, n / k))

    def check_written_out(self, reports: int) -> None:
        if reports > MOST_REPORTS:
            raise ProgrammingError(
                f"the channel has {reports:,} columns, too many to write out",
                hint="`truth`, `other` and `ratio` describe it fully",
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.domain)} values, epsilon={self.epsilon:g})"
