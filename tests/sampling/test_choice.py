"""A choice by weights: the right distribution, and the right one for any bits."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpsql.sampling import CryptographicRandomness, bernoulli, choose, uniform_each
from dpsql.sampling.bernoulli import _decide_choice

# There are no seeds to fix: one false alarm in 10^5 runs.
ALARM = 1e-6
LISTS = {
    "even": ([1, 1, 1, 1], [0, 0, 0, 0], Fraction(1)),
    "falling": ([1, 1, 1, 1, 1], [0, 1, 2, 3, 4], Fraction(1, 2)),
    "blocks": ([1000, 1, 5, 20_000], [9, 0, 3, 12], Fraction(7, 10)),
    "far from zero": ([3, 1], [10**15 + 1, 10**15], Fraction(1, 3)),
    "sizes beyond float64": ([2**62 + 1, 2**61 + 1], [1, 0], Fraction(1, 7)),
    "flat": ([2, 3, 5], [0, 10**6, 5], Fraction(0)),
}


def exact_probabilities(sizes: list[int], scores: list[int], rate: Fraction) -> list[Decimal]:
    with localcontext() as context:
        context.prec = 300
        r = Decimal(rate.numerator) / rate.denominator
        weights = [n * (-r * (s - min(scores))).exp() for n, s in zip(sizes, scores, strict=True)]
        return [w / sum(weights) for w in weights]


def repeated(values: list[int], times: int) -> NDArray[np.int64]:
    return np.tile(np.array(values, dtype=np.int64), times)


@pytest.mark.parametrize("name", LISTS)
def test_distribution(name: str) -> None:
    sizes, scores, rate = LISTS[name]
    draws, m = 100_000, len(sizes)
    starts = np.arange(draws + 1) * m
    chosen = choose(repeated(sizes, draws), repeated(scores, draws), starts, rate) - starts[:-1]
    expected = np.array([float(p) for p in exact_probabilities(sizes, scores, rate)]) * draws
    observed = np.bincount(chosen, minlength=m)
    assert stats.chisquare(observed, expected, sum_check=False).pvalue > ALARM


@pytest.mark.parametrize("name", LISTS)
def test_bits_next_to_a_boundary(name: str, fixed_words: Any) -> None:
    """Bits that agree for one to four words with a boundary between two neighbours, and then do not."""
    sizes, scores, rate = LISTS[name]
    probabilities = exact_probabilities(sizes, scores, rate)
    starts = np.array([0, len(sizes)])
    for i in range(len(sizes) - 1):
        with localcontext() as context:
            context.prec = 300
            boundary = int(sum(probabilities[: i + 1]) * 2**512)
        for known in (1, 2, 3, 4):
            for rest, expected in ((0, i), ((1 << 64) - 1, i + 1)):
                words = [boundary >> 512 - 64 * (k + 1) & (1 << 64) - 1 for k in range(known)]
                if rest == 0 and not any(boundary >> 512 - 64 * k & (1 << 64) - 1 for k in range(known + 1, 9)):
                    continue  # the boundary itself
                source = fixed_words([*words, *[rest] * 8])
                [chosen] = choose(np.array(sizes), np.array(scores), starts, rate, source)
                assert chosen == expected


def test_what_float64_decides_is_what_decimal_decides() -> None:
    source = CryptographicRandomness()
    words = source.words(400)
    sizes, scores = np.arange(1, 41), np.arange(40) * 7 % 23

    class Replayed:
        def words(self, n: int) -> NDArray[np.uint64]:
            return words[:n]

    chosen = choose(np.tile(sizes, 400), np.tile(scores, 400), np.arange(401) * 40, Fraction(1, 3), Replayed())
    for i, place in enumerate(chosen - np.arange(400) * 40):
        assert place == _decide_choice(int(words[i]), sizes.tolist(), scores.tolist(), Fraction(1, 3), source)


def test_lists_of_all_lengths() -> None:
    lengths = np.array([1, 50_000, 2, 1, 3, 700, 1])
    starts = np.concatenate(([0], np.cumsum(lengths)))
    scores = np.full(starts[-1], 10**6)
    best = starts[:-1] + lengths // 2
    scores[best] = 0
    assert choose(np.ones_like(scores), scores, starts, Fraction(1)).tolist() == best.tolist()


@pytest.mark.parametrize("rate", [Fraction(10**400), Fraction(1, 10**400)], ids=["huge", "tiny"])
def test_extreme_rates(rate: Fraction) -> None:
    draws = 2000
    starts = np.arange(draws + 1) * 2
    chosen = choose(repeated([1, 1], draws), repeated([1, 0], draws), starts, rate) - starts[:-1]
    first = np.count_nonzero(chosen == 0)
    assert first == 0 if rate > 1 else abs(first - draws / 2) < 6 * np.sqrt(draws / 4)


def test_ten_thousand_lists_of_four_hundred_are_chosen_from_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of lists at a time; hardly ever one by itself, in arbitrary precision."""
    together, alone = [], []
    enclose, decide = bernoulli._enclose, bernoulli._decide_choice

    def spied_table(words: Any, weights: Any, final: Any) -> Any:
        together.append(len(words))
        return enclose(words, weights, final)

    def spied_list(*arguments: Any) -> int:
        alone.append(1)
        return decide(*arguments)

    monkeypatch.setattr(bernoulli, "_enclose", spied_table)
    monkeypatch.setattr(bernoulli, "_decide_choice", spied_list)
    places = np.arange(4_000_000)
    choose(places + 1, places * 7919 % 401, np.arange(0, 4_000_001, 400), Fraction(1, 5))
    assert sum(together) == 10_000
    assert len(together) <= 4_000_000 // bernoulli.CELLS + 1
    assert len(alone) <= 2


@pytest.mark.parametrize(
    ("sizes", "scores", "starts", "rate"),
    [([1], [0], [0, 0, 1], 1), ([0], [0], [0, 1], 1), ([1], [-1], [0, 1], 1), ([1], [0], [0, 1], -1)],
    ids=["an empty list", "a size of 0", "a negative score", "a negative rate"],
)
def test_refuses(sizes: list[int], scores: list[int], starts: list[int], rate: int) -> None:
    with pytest.raises(ValueError, match="a choice needs"):
        choose(np.array(sizes), np.array(scores), np.array(starts), Fraction(rate))


def test_uniform_each() -> None:
    assert stats.chisquare(np.bincount(uniform_each(np.full(70_000, 7)), minlength=7)).pvalue > ALARM
    wide = uniform_each(np.full(70_000, 3 << 61))
    assert wide.min() >= 0
    assert stats.chisquare(np.bincount(wide >> 61, minlength=3)).pvalue > ALARM
    assert uniform_each(np.ones(5, dtype=np.int64)).tolist() == [0] * 5


def test_uniform_each_rejects_instead_of_folding(fixed_words: Any) -> None:
    assert uniform_each(np.array([5, 6]), fixed_words([7, 5, 5, 12])).tolist() == [4, 5]


def test_uniform_each_refuses_nothing_to_choose_from() -> None:
    with pytest.raises(ValueError, match="at least one"):
        uniform_each(np.array([3, 0]))
