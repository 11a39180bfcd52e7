"""What is proven in docs/proofs/local.md about probabilities, executed on the rational numbers in use and on draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from scipy import stats

from dpsql.local import (
    KaryResponse,
    LocalMechanism,
    OptimizedUnaryEncoding,
    RandomizedResponse,
    Rappor,
    SubsetSelection,
)

DRAWS = 2_000_000
EPSILONS = (0.001, 0.1, 0.5, 1.0, math.log(3), 2.0, 5.0, 12.0)
KINDS: dict[str, Callable[[int, object], LocalMechanism]] = {
    "kary": lambda k, epsilon: KaryResponse(range(k), epsilon),
    "oue": lambda k, epsilon: OptimizedUnaryEncoding(range(k), epsilon),
    "rappor": lambda k, epsilon: Rappor(range(k), epsilon),
    "rappor twice": lambda k, epsilon: Rappor(range(k), epsilon, instantaneous=(0.5, 0.75)),
    "subset": lambda k, epsilon: SubsetSelection(range(k), epsilon),
}


def power(epsilon: float) -> Fraction:
    """e^epsilon to 70 digits, a little above: by a way of its own."""
    with localcontext(prec=80):
        return Fraction(Decimal(repr(epsilon)).exp()) * (1 + Fraction(1, 10**70))


def largest_ratio(channel: list[list[Fraction]]) -> Fraction:
    return max(max(column) / min(column) for column in zip(*channel, strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("k", [2, 3, 5])
def test_no_report_tells_more_than_epsilon(kind: str, k: int, epsilon: float) -> None:
    mechanism = KINDS[kind](k, epsilon)
    channel = mechanism.channel
    assert [sum(row) for row in channel] == [1] * k
    assert min(min(row) for row in channel) > 0
    assert largest_ratio(channel) == mechanism.ratio <= power(epsilon)


@pytest.mark.parametrize("kind", ["kary", "oue", "rappor", "subset"])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_nearly_all_of_epsilon_is_used(kind: str, epsilon: float) -> None:
    """Rounding to shares of 2^-64 costs nothing that shows."""
    assert math.log(KINDS[kind](10, epsilon).ratio) == pytest.approx(epsilon, rel=1e-9)


def test_shares_at_their_ends() -> None:
    """Beyond e^44 there are no more odds in 64 bits: such an epsilon is not used up. Below 2^-60 nothing is left."""
    assert KaryResponse(range(3), 1000).ratio == 2**64 - 2
    assert KaryResponse(range(3), "1e18").ratio == 2**64 - 2
    assert 1 < KaryResponse(range(3), 1e-12).ratio <= power(1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_support_is_what_the_channel_says(kind: str) -> None:
    """p and q are the marginals of the channel: what estimates rest on."""
    mechanism = KINDS[kind](4, 1.0)
    supported = list(supports(mechanism))
    for value, row in enumerate(mechanism.channel):
        for other in range(4):
            chance = sum((mass for mass, named in zip(row, supported, strict=True) if other in named), Fraction(0))
            assert chance == (mechanism.truth if other == value else mechanism.other)


def supports(mechanism: LocalMechanism) -> list[set[int]]:
    """The values that each column of the channel supports."""
    k = len(mechanism.domain)
    if isinstance(mechanism, KaryResponse):
        return [{value} for value in range(k)]
    if isinstance(mechanism, SubsetSelection):
        return [set(named) for named in combinations(range(k), mechanism.size)]
    return [{value for value in range(k) if bits[value]} for bits in product((0, 1), repeat=k)]


@pytest.mark.parametrize("kind", KINDS)
def test_draws_follow_the_channel(kind: str, coins) -> None:  # type: ignore[no-untyped-def]
    """Chi-square over two million reports of one value."""
    mechanism, value = KINDS[kind](4, 1.0), 2
    reports = mechanism.perturb(np.full(DRAWS, value), coins)
    if isinstance(mechanism, KaryResponse):
        observed = np.bincount(reports, minlength=4)
    else:
        masks = [sum(1 << part for part in named) for named in supports(mechanism)]
        observed = np.bincount(reports[:, 0], minlength=16)[masks]
        assert observed.sum() == DRAWS
    expected = [float(mass) * DRAWS for mass in mechanism.channel[value]]
    assert stats.chisquare(observed, expected).pvalue > 1e-3


def test_subsets_of_a_larger_domain_are_uniform(coins) -> None:  # type: ignore[no-untyped-def]
    mechanism = SubsetSelection(range(9), 0.7)
    assert mechanism.size == 3
    packed = mechanism.perturb(np.full(DRAWS // 4, 8), coins).astype(np.int64)
    observed = np.bincount(packed[:, 0] + 256 * packed[:, 1], minlength=512)
    masks = [sum(1 << part for part in named) for named in combinations(range(9), 3)]
    expected = [float(mass) * (DRAWS // 4) for mass in mechanism.channel[8]]
    assert stats.chisquare(observed[masks], expected).pvalue > 1e-3


def test_coins_come_from_the_cryptographic_source() -> None:
    """Without a source of its own a mechanism asks for words that nobody can replay: two runs differ."""
    values = np.zeros(1000, dtype=int)
    for make in KINDS.values():
        mechanism = make(4, 1.0)
        assert not np.array_equal(mechanism.perturb(values), mechanism.perturb(values))


# -- the worked examples of the textbooks ------------------------------------------------------------------------------


def test_warner_with_two_coins() -> None:
    """Tails: the truth. Heads: a second coin. Yes is said by 3/4 of those with the property and 1/4 of the others."""
    survey = RandomizedResponse.two_coins()
    assert survey.channel == [[Fraction(3, 4), Fraction(1, 4)], [Fraction(1, 4), Fraction(3, 4)]]
    assert survey.ratio == 3
    assert survey.epsilon == pytest.approx(math.log(3), rel=1e-15)
    assert survey.exact_epsilon > Fraction(math.log(3)) - Fraction(1, 2**50)


def test_accuracy_of_randomized_response() -> None:
    """If 400 of 1000 say yes, the share is 2 * 0.4 - 1/2; its error is at most 1/2 * sqrt(1/n) / (1/2)."""
    survey = RandomizedResponse.two_coins()
    found = survey.estimate([True] * 400 + [False] * 600)
    assert found.shares[1] == pytest.approx(2 * 0.4 - 0.5)
    # Each report has variance 3/16 whatever the truth, and is doubled: n * 3/16 * 4.
    assert found.standard_errors == pytest.approx([math.sqrt(1000 * 0.75)] * 2)


def test_k_ary_keeps_with_the_textbook_probability() -> None:
    """A uniform value with probability k/(k - 1 + e^epsilon), else the truth: the ratio is e^epsilon."""
    k, epsilon = 7, 1.3
    redrawn = k / (k - 1 + math.exp(epsilon))
    mechanism = KaryResponse(range(k), epsilon)
    assert float(mechanism.truth) == pytest.approx(1 - redrawn + redrawn / k)
    assert float(mechanism.other) == pytest.approx(redrawn / k)


def test_rappor_flips_half_of_f() -> None:
    """f = 2/(1 + e^(epsilon/2)); each bit is flipped with probability f/2, and two bits make e^epsilon."""
    epsilon = 2.0
    f = 2 / (1 + math.exp(epsilon / 2))
    mechanism = Rappor(range(5), epsilon)
    assert float(mechanism.other) == pytest.approx(f / 2)
    assert float(mechanism.truth) == pytest.approx(1 - f / 2)
    assert float(mechanism.ratio) == pytest.approx(((1 - f / 2) / (f / 2)) ** 2)


def test_deniability_of_longitudinal_rappor() -> None:
    """f = 1/2, p = 1/2, q = 3/4 as in the paper: p* = 9/16, q* = 11/16; one report is worth ln(77/45), all 2 ln 3."""
    mechanism = Rappor(range(3), 2 * math.log(3), instantaneous=(0.5, 0.75))
    assert float(mechanism.other) == pytest.approx(9 / 16)
    assert float(mechanism.truth) == pytest.approx(11 / 16)
    assert mechanism.epsilon_once == pytest.approx(math.log(77 / 45))
    assert mechanism.epsilon_once < mechanism.epsilon == pytest.approx(2 * math.log(3))


def test_all_reports_of_a_person_tell_no_more_than_the_permanent_bits(coins) -> None:  # type: ignore[no-untyped-def]
    """A thousand reports of one person show the permanent bits at most, and those are worth epsilon."""
    mechanism = Rappor(["a", "b"], 1.0, instantaneous=(0.25, 0.75))
    kept = mechanism.permanent(["b"], coins)
    reports = mechanism.report(np.repeat(kept, 10_000, axis=0), coins)
    shares = mechanism.unpack(reports).mean(axis=0)
    assert np.array_equal(shares > 0.5, mechanism.unpack(kept)[0])
    assert Rappor(["a", "b"], 1.0).report(kept) is kept
