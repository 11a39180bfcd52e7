"""Quantiles by the exponential mechanism: private to the letter, and close to the aim."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations_with_replacement, product
from math import ceil, exp, floor, log
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from dpsql.accounting.events import Exponential
from dpsql.accounting.privacy_loss import privacy_loss
from dpsql.mechanisms.exponential import Aim, Depth, QuantileChoice, QuantileFraction, RankWindows, extreme, share

AIMS: list[Aim] = [
    QuantileFraction(0, 1),
    QuantileFraction(1, 4),
    QuantileFraction(1, 2),
    QuantileFraction(2, 3),
    QuantileFraction(1, 1),
    Depth(1, from_top=False),
    Depth(2, from_top=False),
    Depth(2, from_top=True),
]


def fraction_of(aim: Aim) -> Fraction:
    """Around which the engine looks: MIN and MAX are the 0- and the 1-quantile."""
    return Fraction(aim.numerator, aim.parts) if isinstance(aim, QuantileFraction) else Fraction(aim.least)


def ranks_within_reach(choice: QuantileChoice, rows: int) -> tuple[int, int]:
    middle = fraction_of(choice.aim) * rows
    return max(ceil(middle - choice.reach), 1), min(floor(middle + choice.reach), rows)


def windows_of(choice: QuantileChoice, groups: list[list[int]], *, whole: bool = False) -> RankWindows:
    """What the engine gives: the rows of the ranks that are needed, or all of them."""
    rows = np.array([len(group) for group in groups])
    ranks = [(1, len(group)) if whole else ranks_within_reach(choice, len(group)) for group in groups]
    first = np.array([start for start, _ in ranks])
    kept = [sorted(group)[start - 1 : end] for group, (start, end) in zip(groups, ranks, strict=True)]
    counted = [np.unique(np.array(g, dtype=np.int64), return_counts=True) for g in kept]
    starts = np.concatenate(([0], np.cumsum([len(values) for values, _ in counted])))
    values, counts = (np.concatenate(column).astype(np.int64) for column in zip(*counted, strict=True))
    return RankWindows(values, counts, starts, np.minimum(first - 1, rows), rows)


def repeated(windows: RankWindows, times: int) -> RankWindows:
    lengths = np.tile(np.diff(windows.starts), times)
    columns = (np.tile(column, times) for column in (windows.values, windows.counts, windows.below, windows.rows))
    values, counts, below, rows = columns
    return RankWindows(values, counts, np.concatenate(([0], np.cumsum(lengths))), below, rows)


def scores_of(choice: QuantileChoice, data: list[int], **how: Any) -> NDArray[np.int64]:
    """The score of every grid point, as the code weighs it."""
    left, sizes, scores, _ = choice._intervals(windows_of(choice, [data], **how))
    points = np.concatenate([np.arange(a, a + n) for a, n in zip(left, sizes, strict=True)])
    assert points.tolist() == list(range(choice.low, choice.high + 1))
    return np.repeat(scores, sizes)


def log_probabilities(choice: QuantileChoice, data: list[int]) -> NDArray[np.float64]:
    weights = -float(choice.rate) * scores_of(choice, data)
    return weights - np.log(np.exp(weights - weights.max()).sum()) - weights.max()


def defined_score(choice: QuantileChoice, data: list[int], c: int) -> int:
    aim = int(choice.aim.at(np.array([len(data)]))[0])
    below, upto = (choice.aim.parts * sum(test) for test in ([x < c for x in data], [x <= c for x in data]))
    return min(choice.cap, max(0, aim - upto, below - aim))


@given(
    st.lists(st.integers(0, 9), max_size=12),
    st.sampled_from(AIMS),
    st.sampled_from([Fraction(1), Fraction(20), Fraction(40), Fraction(200)]),
)
@settings(max_examples=100)
def test_the_window_gives_the_scores_of_the_definition(data: list[int], aim: Aim, epsilon: Fraction) -> None:
    """Epsilons so large that K is small, and rows are left out."""
    choice = QuantileChoice(aim, epsilon, 1, 0, 9)
    defined = [defined_score(choice, data, c) for c in range(10)]
    assert scores_of(choice, data).tolist() == defined
    assert scores_of(choice, data, whole=True).tolist() == defined


@pytest.mark.parametrize("aim", [*AIMS, QuantileFraction(2, 5), QuantileFraction(4, 7)], ids=str)
@pytest.mark.parametrize("epsilon", [Fraction(7), Fraction(20), Fraction(35), Fraction(200)], ids=str)
def test_the_reach_holds_every_row_that_matters(aim: Aim, epsilon: Fraction) -> None:
    """Rows with a value each: all whose score is below the cap, and hardly any others."""
    choice, spare = QuantileChoice(aim, epsilon, 1, 0, 59), []
    for rows in range(1, 60):
        first, last = ranks_within_reach(choice, rows)
        ranks = np.arange(1, rows + 1)
        aimed = int(aim.at(np.array([rows]))[0])
        scores = np.maximum(np.maximum(aimed - aim.parts * ranks, aim.parts * (ranks - 1) - aimed), 0)
        needed = ranks[scores < choice.cap]
        assert first <= needed[0] <= needed[-1] <= last
        spare.append(max(needed[0] - first, last - needed[-1]))
    assert max(spare) <= 2 + 2 * aim.inside


@pytest.mark.parametrize("aim", AIMS, ids=str)
@pytest.mark.parametrize("rows_per_unit", [1, 2])
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(5), Fraction(60)], ids=str)
def test_private_to_the_letter(aim: Aim, rows_per_unit: int, epsilon: Fraction) -> None:
    """Every database of up to 4 rows over 4 points, every unit that may join it: no outcome gains more than epsilon.

    The losses also span no more than epsilon, which is what the price of the event relies on.
    """
    choice = QuantileChoice(aim, epsilon, rows_per_unit, 0, 3)
    known = {}
    for size in range(5 + rows_per_unit):
        for data in combinations_with_replacement(range(4), size):
            known[data] = log_probabilities(choice, list(data))
    for data, before in known.items():
        for size in range(1, rows_per_unit + 1):
            for unit in combinations_with_replacement(range(4), size):
                after = known.get(tuple(sorted(data + unit)))
                if after is not None:
                    losses = after - before
                    assert np.abs(losses).max() <= float(epsilon) * (1 + 1e-12)
                    assert np.ptp(losses) <= float(epsilon) * (1 + 1e-12)


@pytest.mark.parametrize("aim", AIMS, ids=str)
def test_the_sensitivity_is_reached(aim: Aim) -> None:
    choice = QuantileChoice(aim, Fraction(1, 100), 1, 0, 3)
    moved = {
        int(np.abs(scores_of(choice, [*data, row]) - scores_of(choice, list(data))).max())
        for size in range(5)
        for data in combinations_with_replacement(range(4), size)
        for row in range(4)
    }
    assert max(moved) == choice.sensitivity


def test_draws_follow_the_probabilities_in_every_group() -> None:
    choice = QuantileChoice(QuantileFraction(1, 2), Fraction(2), 1, -3, 8)
    groups = [[], [0], [2, 2, 2, 2], [-3, -3, 8], list(range(-3, 9)), [1, 5, 5, 6]]
    draws = 20_000
    drawn = choice.sample(repeated(windows_of(choice, groups), draws)).reshape(draws, len(groups))
    for column, data in zip(drawn.T, groups, strict=True):
        expected = np.exp(log_probabilities(choice, data)) * draws
        assert stats.chisquare(np.bincount(column + 3, minlength=12), expected, sum_check=False).pvalue > 1e-6


def test_an_empty_group_is_uniform() -> None:
    choice = QuantileChoice(QuantileFraction(1, 2), Fraction(1), 1, 0, 9)
    assert set(scores_of(choice, []).tolist()) == {0}


@pytest.mark.parametrize("p", ["0.01", "0.25", "0.5", "0.9"])
def test_ties_do_not_hide_the_quantile(p: str) -> None:
    """A thousand rows on ten values: a score that compared strict counts alone would be far from 0 everywhere."""
    data = [x for x in range(10) for _ in range(100)]
    choice = QuantileChoice(share(Fraction(p)), Fraction(20), 1, 0, 10**6)
    [drawn] = choice.sample(windows_of(choice, [data]))
    assert drawn in (int(Fraction(p) * 10), int(Fraction(p) * 10) - 1)


@pytest.mark.parametrize("level", [0.5, 0.95])
@pytest.mark.parametrize("aim", [QuantileFraction(1, 2), QuantileFraction(9, 10), Depth(40, from_top=True)], ids=str)
def test_rank_error_is_kept(aim: Aim, level: float) -> None:
    choice = QuantileChoice(aim, Fraction(1), 1, 0, 10**5)
    data, draws = sorted(int(1000 * exp(x / 100)) for x in range(300)), 4000
    drawn = choice.sample(repeated(windows_of(choice, [data]), draws))
    target = int(choice.aim.at(np.array([300]))[0]) / choice.aim.parts
    below, upto = np.searchsorted(data, drawn), np.searchsorted(data, drawn, side="right")
    off = np.maximum(np.maximum(target - upto, below - target), 0)
    assert np.count_nonzero(off <= choice.rank_error(level)) >= level * draws


@pytest.mark.parametrize("greatest", [False, True])
def test_minimum_and_maximum_lie_just_inside(greatest: bool) -> None:
    choice = extreme(Fraction(1), 1, 0, 10**6, greatest=greatest)
    data, draws = list(range(400_000, 500_000, 10)), 2000
    drawn = choice.sample(repeated(windows_of(choice, [data]), draws))
    inside = (drawn >= data[0]) & (drawn <= data[-1])
    assert np.count_nonzero(inside) > 0.95 * draws
    away = np.abs(drawn[inside] - (data[-1] if greatest else data[0]))
    assert np.quantile(away, 0.95) < 10 * (choice.aim.rows + choice.rank_error(0.95))  # type: ignore[attr-defined]


@pytest.mark.parametrize("greatest", [False, True])
@pytest.mark.parametrize("values", [list(range(1000)), [7] * 40 + [8] * 900 + [9] * 60, [500] * 1000])
def test_extremes_leave_out_no_more_than_they_say(values: list[int], greatest: bool) -> None:
    """Depth plus rank error, at 95 %, of spread values and of ties."""
    choice, draws = extreme(Fraction(1), 1, 0, 1000, greatest=greatest), 2000
    drawn = choice.sample(repeated(windows_of(choice, [values]), draws))
    data = np.array(values)
    beyond = np.array([np.count_nonzero(data > at if greatest else data < at) for at in drawn])
    assert np.count_nonzero(beyond <= choice.aim.inside + choice.rank_error(0.95)) >= 0.95 * draws


@pytest.mark.parametrize("greatest", [False, True])
def test_the_extreme_of_few_rows_is_their_median(greatest: bool) -> None:
    choice = extreme(Fraction(1), 1, 0, 10**6, greatest=greatest)
    median = QuantileChoice(QuantileFraction(1, 2), Fraction(1), 1, 0, 10**6)
    rows = np.array([0, 1, 2, 5, 20])
    assert (choice.aim.at(rows) * median.aim.parts == median.aim.at(rows) * choice.aim.parts).all()


def test_one_point_is_always_chosen() -> None:
    choice = QuantileChoice(QuantileFraction(1, 2), Fraction(1), 1, 7, 7)
    assert choice.sample(windows_of(choice, [[], [7], [7, 7]])).tolist() == [7, 7, 7]


def test_tiny_epsilons_need_all_rows() -> None:
    choice = QuantileChoice(QuantileFraction(1, 2), Fraction(1, 10**30), 1, 0, 2**61)
    assert [ranks_within_reach(choice, rows) for rows in (0, 10, 10**9)] == [(1, 0), (1, 10), (1, 10**9)]
    for greatest in (False, True):
        choice = extreme(Fraction(1, 10**30), 1, 0, 2**61, greatest=greatest)
        assert choice.sample(windows_of(choice, [[], [5], [5, 6, 7]])).shape == (3,)


def test_the_window_is_short() -> None:
    choice = QuantileChoice(QuantileFraction(1, 2), Fraction(1), 1, 0, 10**6)
    first, last = ranks_within_reach(choice, 10**6)
    assert first < 500_000 < last
    assert last - first < 100


def test_the_range_of_losses_has_the_price_of_half_an_epsilon() -> None:
    """Two outcomes whose losses lie epsilon apart, wherever they lie: never more than the mu that is charged."""
    for epsilon in (0.01, 0.1, 1.0, 3.0, 10.0):
        mu = float(privacy_loss(Exponential(Fraction(epsilon))).mu_squared) ** 0.5
        x = np.linspace(-epsilon - 5, 5, 10_001)
        needed = stats.norm.isf(1 / (1 + np.exp(x + epsilon))) - stats.norm.isf(1 / (1 + np.exp(x)))
        assert needed.max() <= mu * (1 + 1e-9)
        middle = 2 * stats.norm.isf(1 / (1 + exp(epsilon / 2)))
        assert mu == pytest.approx(middle, rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_two_outcomes_are_the_worst_of_all_with_that_range(epsilon: float) -> None:
    """Random pairs whose losses span epsilon: their exact delta never exceeds that of the mu that is charged."""
    mu = float(privacy_loss(Exponential(Fraction(epsilon))).mu_squared) ** 0.5
    for count, spread in product((2, 3, 10), (1.0, 5.0)):
        for i in range(8):
            weights = np.exp(-spread * np.abs(np.sin(np.arange(count) * (i + 1.0))))
            there = weights / weights.sum()
            tilted = there * np.exp(epsilon * (np.arange(count) * (i + 3) % count) / (count - 1))
            here = tilted / tilted.sum()
            for at in np.linspace(-epsilon, epsilon, 9):
                delta = np.maximum(0, here - exp(at) * there).sum()
                allowed = stats.norm.cdf(mu / 2 - at / mu) - exp(at) * stats.norm.cdf(-mu / 2 - at / mu)
                assert delta <= allowed + 1e-12


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: QuantileChoice(QuantileFraction(1, 2), Fraction(0), 1, 0, 9),
        lambda: QuantileChoice(QuantileFraction(1, 2), Fraction(1), 0, 0, 9),
        lambda: QuantileChoice(QuantileFraction(1, 2), Fraction(1), 1, 9, 0),
        lambda: QuantileChoice(QuantileFraction(1, 2), Fraction(1), 1, 0, 2**62),
        lambda: share(Fraction(3, 2)),
        lambda: share(Fraction(-1, 2)),
        lambda: QuantileFraction(2, 1),
        lambda: QuantileChoice(QuantileFraction(1, 2), Fraction(1), 1, 0, 9).rank_error(1),
    ],
)
def test_refuses(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"quantile|confidence"):
        wrong()


def test_rank_error_is_the_theorem() -> None:
    choice = QuantileChoice(QuantileFraction(1, 2), Fraction(1, 2), 3, 0, 999)
    assert choice.rank_error(0.9) == -(-int(1e9 * log(1000 / 0.1) * 2 * 3 / 0.5 / 2) // 10**9)
