"""Many quantiles by bisection: private to the letter, with an error that grows with the number of levels."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations_with_replacement
from math import exp, inf, log
from typing import TypeAlias

import numpy as np
import pytest

from dpsql.mechanisms.exponential import QuantileChoice, QuantileFraction, QuantileTree, RankWindows, SortedRows

Data: TypeAlias = tuple[int, ...]
Answers: TypeAlias = tuple[int, ...]
LEVEL = Fraction(1, 2)
"""The epsilon of a level."""


def tree_of(number: int, rows: int, low: int = 0, high: int = 4) -> QuantileTree:
    return QuantileTree(tuple(Fraction(i, number + 1) for i in range(1, number + 1)), LEVEL, rows, low, high)


def distribution(
    tree: QuantileTree, data: Data, low: int, high: int, ends: tuple[Fraction, ...]
) -> dict[Answers, float]:
    """The exact probabilities of all answers, by the definition of each draw; the points of `data` are told apart."""
    if len(ends) == 2:
        return {(): 1.0}
    if low > high:
        return {(high,) * (len(ends) - 2): 1.0}
    middle = len(ends) // 2
    part = (ends[middle] - ends[0]) / (ends[-1] - ends[0])
    b, aim = part.denominator, part.numerator * len(data)
    rate = float(tree.epsilon / (2 * tree.rows_per_unit * max(part.numerator, b - part.numerator)))
    scores = [
        max(0, aim - b * sum(x <= c for x in data), b * sum(x < c for x in data) - aim) for c in range(low, high + 1)
    ]
    weights = [exp(-rate * score) for score in scores]
    found: dict[Answers, float] = {}
    for c, weight in zip(range(low, high + 1), weights, strict=True):
        left = distribution(tree, tuple(x for x in data if x <= c), low, c, ends[: middle + 1])
        right = distribution(tree, tuple(x for x in data if x > c), c + 1, high, ends[middle:])
        for one, p in left.items():
            for other, q in right.items():
                answers = (*one, c, *other)
                found[answers] = found.get(answers, 0) + weight / sum(weights) * p * q
    return found


def whole(tree: QuantileTree, data: Data) -> dict[Answers, float]:
    return distribution(tree, data, tree.low, tree.high, (Fraction(0), *tree.fractions, Fraction(1)))


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("number", [2, 3, 5])
def test_private_to_the_letter(number: int, rows: int) -> None:
    """All data of others and all rows of one person on a small grid: rows on both sides of a split are charged once."""
    tree = tree_of(number, rows, high=3)
    worst = 0.0
    for others in range(3 if number == 5 else 4):
        for data in combinations_with_replacement(range(4), others):
            without = whole(tree, data)
            for own in combinations_with_replacement(range(4), rows):
                with_them = whole(tree, (*data, *own))
                losses = [log(with_them[answers] / without[answers]) for answers in without]
                assert with_them.keys() == without.keys()
                worst = max(worst, *map(abs, losses))
    assert worst <= tree.levels * float(LEVEL) * (1 + 1e-9)
    assert worst > 0.3 * float(LEVEL)


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("split", [0, 1, 3])
def test_the_losses_of_a_level_span_its_epsilon(rows: int, split: int) -> None:
    """What a level is charged for: whatever was answered before, and wherever the rows of a person fall."""
    tree, widest = tree_of(3, rows), 0.0
    nodes = [
        (0, split, (Fraction(0), Fraction(1, 3), Fraction(1, 2))),
        (split + 1, 4, (Fraction(1, 2), Fraction(3, 4), Fraction(1))),
    ]
    for data in combinations_with_replacement(range(5), 3):
        for own in combinations_with_replacement(range(5), rows):
            span = 0.0
            for low, high, ends in nodes:
                without, with_them = (
                    distribution(tree, tuple(x for x in points if low <= x <= high), low, high, ends)
                    for points in (data, (*data, *own))
                )
                losses = [log(with_them[answer] / without[answer]) for answer in without]
                span += max(losses) - min(losses)
            widest = max(widest, span)
    assert 0.6 * float(LEVEL) < widest <= float(LEVEL) * (1 + 1e-9)


def test_draws_follow_the_probabilities() -> None:
    tree, data = tree_of(3, 1), (0, 1, 1, 3, 4, 4)
    expected, times = whole(tree, data), 20_000
    ends = (Fraction(0), *tree.fractions, Fraction(1))
    rows = SortedRows(np.tile(np.array(data), times), np.full(times, len(data)))  # each group draws for itself
    grid = np.zeros(times, dtype=np.int64), np.full(times, 4)
    seen = Counter(zip(*(column.tolist() for column in tree.bisected(rows, grid, ends)), strict=True))
    assert seen.keys() <= expected.keys()
    common = [answers for answers, p in expected.items() if p * times >= 5]
    squares = sum((seen[one] - times * expected[one]) ** 2 / (times * expected[one]) for one in common)
    assert squares < len(common) + 4 * (2 * len(common)) ** 0.5


def profile(data: np.ndarray) -> RankWindows:
    values, counts = np.unique(data, return_counts=True)
    return RankWindows(values, counts, np.array([0, len(values)]), np.array([0]), np.array([len(data)]))


def rank_errors(data: np.ndarray, tree: QuantileTree, answers: np.ndarray) -> np.ndarray:
    data, aims = np.sort(data), np.array([float(part) * len(data) for part in tree.fractions])
    below, upto = (np.searchsorted(data, answers, side=side) for side in ("left", "right"))
    return np.maximum(0, np.maximum(aims - upto, below - aims))


DATA = {
    "spread": np.arange(20_000) * 37 % 1_000_003,
    "ties": np.where(np.arange(20_000) % 5 < 3, 0, np.arange(20_000)),
    "constant": np.full(20_000, 7),
    "few": np.arange(3),
    "none": np.arange(0),
}


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("number", [9, 19])
def test_all_rank_errors_are_kept(name: str, number: int) -> None:
    tree = tree_of(number, 1, 0, 1 << 25)
    stated = np.array([tree.rank_errors(0.95)[part] for part in tree.fractions])
    kept = 0
    for _ in range(40):
        (answers,) = tree.sample(profile(DATA[name])).T
        assert (np.diff(answers) >= 0).all()
        assert 0 <= answers.min() <= answers.max() <= 1 << 25
        kept += bool((rank_errors(DATA[name], tree, answers) <= stated).all())
    assert kept >= 36


def test_nineteen_err_by_less_than_half_of_nineteen_shares() -> None:
    data, epsilon = np.sort(DATA["spread"]), Fraction(1)
    tree = QuantileTree(tuple(Fraction(i, 20) for i in range(1, 20)), epsilon / 5, 1, 0, 1_000_003)
    shares = [
        QuantileChoice(QuantileFraction(part.numerator, part.denominator), epsilon / 19, 1, 0, 1_000_003)
        for part in tree.fractions
    ]
    together, apart = [], []
    for _ in range(8):
        together.append(rank_errors(data, tree, tree.sample(profile(data))[:, 0]).mean())
        apart.append(rank_errors(data, tree, np.sort([one.sample(profile(data))[0] for one in shares])).mean())
    assert np.mean(together) < 0.5 * np.mean(apart)


def test_groups_are_drawn_side_by_side() -> None:
    """Each from its own rows, whatever the others have."""
    tree, parts = tree_of(9, 1, 0, 1 << 25), [DATA["spread"], DATA["none"], DATA["constant"], DATA["few"], DATA["ties"]]
    counted = [np.unique(data, return_counts=True) for data in parts]
    starts = np.concatenate(([0], np.cumsum([len(values) for values, _ in counted])))
    values, counts = (np.concatenate(column) for column in zip(*counted, strict=True))
    rows = np.array([len(data) for data in parts])
    found = tree.sample(RankWindows(values, counts, starts, np.zeros(5, dtype=np.int64), rows))
    assert found.shape == (9, 5)
    for number, data in enumerate(parts):
        assert rank_errors(data, tree, found[:, number]).max() < 1500
    assert (found[:, 2] == 7).all()


def test_ties_are_split() -> None:
    """Of 60 % zeros: rows that all fell on one side would stand for another fraction, and err by thousands of ranks."""
    tree = tree_of(9, 1, 0, 1 << 25)
    (answers,) = tree.sample(profile(DATA["ties"])).T
    assert (answers[:5] == 0).all()
    assert rank_errors(DATA["ties"], tree, answers).max() < 500


def test_the_largest_grid_has_room() -> None:
    tree = QuantileTree((Fraction(1, 3), Fraction(2, 3)), Fraction(1), 1, -(2**61), 2**61 - 2)
    assert tree.tie_bits == 0
    assert tree.sample(profile(np.array([-(2**61), 0, 2**61 - 2]))).shape == (2, 1)


def test_fractions_are_in_order() -> None:
    for wrong in ((Fraction(1, 2), Fraction(1, 3)), (Fraction(0), Fraction(1, 2)), (Fraction(1),)):
        with pytest.raises(ValueError, match="fractions"):
            QuantileTree(wrong, Fraction(1), 1, 0, 9)


def test_levels() -> None:
    assert [tree_of(number, 1).levels for number in (1, 2, 3, 4, 7, 8, 9, 15, 16, 19)] == [1, 2, 2, 3, 3, 4, 4, 4, 5, 5]
    assert max(tree_of(9, 1).rank_errors(0.95).values()) < inf
