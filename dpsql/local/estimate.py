"""De-biasing: from counts of reports to estimated counts of answers, with their errors.

A report that supports a value has the *score* (1 - q) / (p - q), one that does not -q / (p - q): on average 1 if the
value is the truth, and 0 else. The product of the scores of several columns, whose coins are independent, does the same
for a combination of values: the Kronecker product of the inverted channels. So a weighted sum of scores over all
reports estimates the sum of the weights of all answers. docs/proofs/local.md, section 6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from math import comb
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.accounting.exact import exact
from dpsql.errors import ProgrammingError, shown_argument
from dpsql.local.k_ary import KaryResponse
from dpsql.local.mechanism import chunks, read_epsilon
from dpsql.local.subset_selection import SubsetSelection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dpsql.local.mechanism import LocalMechanism

    Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CountNoise:
    """The noise with which a count was released: standard deviation and excess kurtosis."""

    std: float = 0.0
    kurtosis: float = 0.0


@dataclass(frozen=True)
class Estimates:
    """For each group (a row) and each functional (a column): the value, its standard error, its excess kurtosis."""

    values: Floats
    """NaN where an average is over no rows."""
    standard_errors: Floats
    kurtosis: Floats


def is_report(mechanism: LocalMechanism, column: NDArray[Any]) -> NDArray[np.bool_]:
    """Which entries of a column can be reports of the mechanism."""
    if isinstance(mechanism, KaryResponse):
        values = {*mechanism.domain.values}
        return np.fromiter((value in values for value in column.tolist()), dtype=np.bool_, count=len(column))
    numbers = np.array([-1 if value is None else value for value in column.tolist()], dtype=np.int64)
    possible = (numbers >= 0) & (numbers < 1 << len(mechanism.domain))
    if isinstance(mechanism, SubsetSelection):
        possible &= np.bitwise_count(np.maximum(numbers, 0)) == mechanism.size
    return possible


def scores(mechanism: LocalMechanism, column: NDArray[Any]) -> Floats:
    """A row for each value of the domain, a column for each report."""
    numbers = np.arange(len(mechanism.domain))[:, None]
    if isinstance(mechanism, KaryResponse):
        supported = numbers == mechanism.domain.encode(column)[None, :]
    else:
        supported = (column.astype(np.int64)[None, :] >> numbers) & 1 == 1
    return np.asarray((supported - float(mechanism.other)) / float(mechanism.truth - mechanism.other))


def estimate(
    tables: Sequence[Floats],
    counts: NDArray[np.int64],
    groups: NDArray[np.intp],
    group_count: int,
    weights: tuple[Floats, Floats | None],
    noise: CountNoise,
) -> Estimates:
    """Estimates linear functionals of the answers, or their ratios, in each group of rows.

    Args:
        tables: the scores of the reports: one table per column of reports, one table column per distinct row.
        counts: how often each distinct row occurs.
        groups: the group of each distinct row.
        group_count: the number of groups.
        weights: for the numerator, and for the denominator of averages: one row per functional, and one column per
            combination of answers, where the last column of reports varies fastest.
        noise: the noise of the counts.
    """
    above, below = weights[0], np.zeros_like(weights[0]) if weights[1] is None else weights[1]
    sums = _Sums(len(above), group_count)
    for part in chunks(len(counts), max(above.shape)):
        basis = reduce(_kronecker, [table[:, part] for table in tables], np.ones((1, part.stop - part.start)))
        sums.add(above @ basis, below @ basis, above**2 @ basis, counts[part], groups[part])
    return sums.estimates(weights[1] is not None, noise)


def _kronecker(left: Floats, right: Floats) -> Floats:
    """Column by column."""
    return np.asarray((left[:, None, :] * right[None, :, :]).reshape(-1, left.shape[1]))


class _Sums:
    """By group and functional: sums of scores A (above) and B (below) over reports, and of their products."""

    def __init__(self, functionals: int, groups: int) -> None:
        self.groups = groups
        shape = (groups, functionals)
        self.above, self.below, self.squared_weight = (np.zeros(shape) for _ in range(3))
        # Of A^2, AB, B^2 over reports; of these, and of A^4, A^3 B, ..., B^4, over rows, which have one noise each.
        self.coins = [np.zeros(shape) for _ in range(3)]
        self.rows = {order: [np.zeros(shape) for _ in range(order + 1)] for order in (2, 4)}

    def add(self, a: Floats, b: Floats, squared: Floats, counts: NDArray[np.int64], groups: NDArray[np.intp]) -> None:
        self.above += self._by_group(a * counts, groups)
        self.below += self._by_group(b * counts, groups)
        self.squared_weight += self._by_group(squared * counts, groups)
        for power in range(3):
            self.coins[power] += self._by_group(a ** (2 - power) * b**power * counts, groups)
        for order, sums in self.rows.items():
            for power in range(order + 1):
                sums[power] += self._by_group(a ** (order - power) * b**power, groups)

    def _by_group(self, values: Floats, groups: NDArray[np.intp]) -> Floats:
        return np.array([np.bincount(groups, weights=row, minlength=self.groups) for row in values]).T

    def estimates(self, is_average: bool, noise: CountNoise) -> Estimates:
        """An average t = A / B errs like (A - t B) / B, which is a sum of scores too."""
        counted = np.where(self.below > 0, self.below, 1.0)
        t = self.above / counted if is_average else np.zeros_like(self.above)
        # A score's expected square is the square of the weight and the variance of the coins. The weights of an
        # average are w - t where an answer counts, and 0 elsewhere.
        squared = self.squared_weight - 2 * t * self.above + t**2 * self.below
        coins = np.maximum(_powers(self.coins, t) - squared, 0.0) / counted**2
        # Where A is t B in every row, rounding may leave a bit less than nothing.
        second, fourth = (np.maximum(_powers(self.rows[order], t), 0.0) for order in (2, 4))
        variance = coins + noise.std**2 * second / counted**2
        fourth = noise.kurtosis * noise.std**4 * fourth / counted**4
        values = np.where(self.below > 0, t, np.nan) if is_average else self.above
        return Estimates(values, np.sqrt(variance), fourth / np.where(variance > 0, variance, 1.0) ** 2)


def _powers(sums: Sequence[Floats], t: Floats) -> Floats:
    """The sum of (A - t B)^n, from the sums of A^n, A^(n-1) B, ..., B^n."""
    order = len(sums) - 1
    return np.asarray(sum(comb(order, power) * (-t) ** power * part for power, part in enumerate(sums)))


# -- shuffle -----------------------------------------------------------------------------------------------------------
# What shuffling gives: reports whose senders nobody knows hide each other, so that together they tell far less.
#
# For every epsilon-private way to report, somebody else's report is with probability e^-epsilon as good as a coin
# between the two answers that an attacker wants to tell apart (Feldman, McMillan, Talwar 2021: hiding among the
# clones). Such clones, C of them, blur the one report that counts. The bound is computed, not estimated: for each
# number of clones exactly, from binomial tails, and rounded up. Proof: docs/proofs/shuffling.md.

BLOCKS = 200
"""Into so many parts the plausible numbers of clones are cut; in each the fewest count."""
REACH = 12.0
"""Numbers further than so many standard deviations from the mean are bounded, not summed."""
BEYOND = 2 * math.exp(-(REACH**2) / 2)
"""How likely a sum of fair coins is to be further away, at most (Hoeffding)."""
ROUNDING = 1e-9
"""Relative error of all sums below, with much to spare."""
HALVINGS = 40
MOST_PEOPLE = 10**8
"""What holds for so many holds for more, who hide each other better."""


def shuffled_epsilon(epsilon: object, n: int, delta: object) -> float:
    """The epsilon at which n shuffled reports, each private to `epsilon` by itself, are (epsilon, delta)-private.

    The neighbour has another answer of one person. Never more than `epsilon`, which holds without shuffling.

    >>> shuffled_epsilon(1.0, n=10_000, delta=1e-6) < 0.1
    True
    """
    local, most = float(read_epsilon(epsilon)), float(exact(delta, "delta"))
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ProgrammingError(
            f"n must be the number of people who report, not {shown_argument(n)}", hint="write n=10_000, for example"
        )
    if not 0 < most < 1:
        raise ProgrammingError("delta must lie between 0 and 1", hint="write delta=1e-6, for example")
    clones = _clones(local, min(n, MOST_PEOPLE))
    low, high = 0.0, local
    if _delta(high, clones) > most:
        return local
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if _delta(middle, clones) <= most else (middle, high)
    return high


class _Coins:
    """The coins of all clones, and the unfair coin of the one person in whom two neighbours differ.

    Of m = clones + 1 coins a fall on heads: P(a) = Bin(a; m, 1/2) (2/m) (t a + (1 - t) (m - a)) with
    t = e^local / (1 + e^local), and Q(a) = P(m - a). P/Q rises with a and is 1 in the middle.
    """

    def __init__(self, local: float, clones: int) -> None:
        self.m, self.t = clones + 1, 1 / (1 + math.exp(-local))
        m, t = self.m, self.t
        self.first = -(-m // 2)
        heads = np.arange(self.first, min(m, math.ceil(m / 2 + REACH * math.sqrt(m) / 2)) + 1)
        masses = np.exp(_log_binomial(m, heads, 0.5)) * 2 / m
        self.more = _tails(masses * (t * heads + (1 - t) * (m - heads)))
        self.less = _tails(masses * ((1 - t) * heads + t * (m - heads)))

    def exceeding(self, central: float) -> float:
        """How far P exceeds e^central Q: summed where it does, from the least such a on."""
        m, t, factor = self.m, self.t, math.exp(central)
        least = math.ceil(m * (factor * t - (1 - t)) / ((2 * t - 1) * (1 + factor)))
        place = min(max(least - self.first, 0), len(self.more) - 1)
        return max(0.0, float(self.more[place] - factor * self.less[place])) + BEYOND


def _tails(masses: Floats) -> Floats:
    """The sum from each place on; nothing behind the last."""
    return np.append(np.cumsum(masses[::-1])[::-1], 0.0)


def _clones(local: float, n: int) -> list[tuple[float, _Coins]]:
    """Numbers of clones, Bin(n - 1, e^-local), in blocks: how likely each is, and the coins of its fewest clones."""
    chance = math.exp(-local)
    mean, width = (n - 1) * chance, REACH * (math.sqrt((n - 1) * chance * (1 - chance)) + 1)
    numbers = np.arange(max(0, math.floor(mean - width)), min(n - 1, math.ceil(mean + width)) + 1)
    masses = np.exp(_log_binomial(n - 1, numbers, chance))
    starts = np.unique(np.linspace(0, len(numbers) - 1, BLOCKS).astype(np.int64))
    blocks = np.add.reduceat(masses, starts)
    # What is left out, or lost to rounding, counts as if there were no clone.
    rest = max(0.0, 1.0 - float(blocks.sum())) + 1e-15
    pairs = zip([0, *numbers[starts].tolist()], [rest, *blocks.tolist()], strict=True)
    return [(mass, _Coins(local, number)) for number, mass in pairs]


def _delta(central: float, clones: list[tuple[float, _Coins]]) -> float:
    return sum(mass * coins.exceeding(central) for mass, coins in clones) * (1 + ROUNDING)


def _log_binomial(n: int, k: NDArray[np.int64], chance: float) -> Floats:
    """Computed from the distance of k to its mean (Loader 2000), so that no large terms cancel for large n."""
    if n == 0 or chance == 1.0:
        return np.where(k == n, 0.0, -np.inf)
    inner = np.clip(k, 1, max(1, n - 1)).astype(float)
    others = np.maximum(n - inner, 1.0)
    found = _stirling(np.array([float(n)])) - _stirling(inner) - _stirling(others)
    found -= _deviance(inner, n * chance) + _deviance(others, n * (1 - chance))
    found -= np.log(2 * math.pi * inner * others / n) / 2
    return np.select([k == 0, k == n], [n * math.log1p(-chance), n * math.log(chance)], found)


def _deviance(x: Floats, mean: float) -> Floats:
    """x ln(x / mean) + mean - x."""
    distance = (x - mean) / mean
    return np.asarray(mean * ((1 + distance) * np.log1p(distance) - distance))


SMALL = np.array([0.0, *(math.lgamma(x + 1) - (x + 0.5) * math.log(x) + x for x in range(1, 64))])
SMALL -= 0.5 * math.log(2 * math.pi)


def _stirling(x: Floats) -> Floats:
    """ln x! - ln(sqrt(2 pi x) (x / e)^x). From 64 on the first term of the series that is left out is below 1e-19."""
    large = np.maximum(x, 64)
    series = 1 / (12 * large) - 1 / (360 * large**3) + 1 / (1260 * large**5) - 1 / (1680 * large**7)
    return np.where(x < 64, SMALL[np.minimum(x, 63).astype(np.int64)], series)
