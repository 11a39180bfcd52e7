"""docs/proofs/composition.md, executed: fixed batches against dp-accounting, adaptive ones against the exact answer."""

import math
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from statistics import NormalDist

import dp_accounting
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit, log_ndtr, ndtr

from dpsql.accounting.curves import delta_at, mu_for
from dpsql.accounting.events import ApproximateRelease, Composed, Exponential, Gaussian, Laplace, PureRelease
from dpsql.accounting.exact import root_up
from dpsql.accounting.filters import COMMITTED_SHARE, FILTERS, Auto, Basic, CommittedSum, Gdp, Mixed, MixedSum, Zcdp
from dpsql.accounting.ledger.journal import RunningTotals
from dpsql.accounting.privacy_loss import PrivacyLoss, privacy_loss

DELTA = Fraction(1, 10**6)
# The curve is to be read at 1e-6, so the session's delta is that much larger.
SESSION_DELTA = DELTA * 20 / 19
PLENTY = Fraction(100)


def hundred(event):
    return privacy_loss(Composed((event,) * 100))


def test_a_hundred_laplace_queries():
    totals = hundred(Laplace(Fraction(10)))
    assert Basic(PLENTY, DELTA).spent(totals).epsilon == 10
    assert Zcdp(PLENTY, SESSION_DELTA).spent(totals).epsilon == pytest.approx(5.2215, abs=1e-4)

    tally = RunningTotals()
    for _ in range(100):
        tally = tally.plus(privacy_loss(Laplace(Fraction(10))), Fraction(1, 10), Fraction(0))
    assert tally.basic == (10, 0)
    assert tally.advanced(DELTA).epsilon == pytest.approx(6.3082, abs=1e-4)

    exact_batch = dp_accounting.pld.PLDAccountant()
    exact_batch.compose(dp_accounting.LaplaceDpEvent(10), 100)
    assert Gdp(PLENTY, SESSION_DELTA).spent(totals).epsilon > exact_batch.get_epsilon(float(DELTA))


def test_a_hundred_gaussian_queries():
    totals = hundred(Gaussian(Fraction(20)))
    assert Basic(PLENTY, DELTA).spent(totals).epsilon == math.inf
    assert Zcdp(PLENTY, SESSION_DELTA).spent(totals).epsilon == pytest.approx(2.4191, abs=1e-4)
    assert Gdp(PLENTY, SESSION_DELTA).spent(totals).epsilon == pytest.approx(2.2541, abs=1e-4)

    renyi = dp_accounting.rdp.RdpAccountant(orders=[1 + k / 100 for k in range(1, 3000)])
    renyi.compose(dp_accounting.GaussianDpEvent(20), 100)
    assert Zcdp(PLENTY, SESSION_DELTA).spent(totals).epsilon == pytest.approx(renyi.get_epsilon(1e-6), rel=1e-6)

    exact_batch = dp_accounting.pld.PLDAccountant()
    exact_batch.compose(dp_accounting.GaussianDpEvent(20), 100)
    assert Gdp(PLENTY, SESSION_DELTA).spent(totals).epsilon == pytest.approx(exact_batch.get_epsilon(1e-6), rel=1e-6)


def test_basic_composition_of_gaussians_charged_as_approximate_releases():
    each = dp_accounting.get_epsilon_gaussian(20, 1e-8)
    totals = hundred(ApproximateRelease(Fraction(str(each)), Fraction(1, 10**8)))
    assert Basic(PLENTY, DELTA).spent(totals) == pytest.approx((23.9, 1e-6), rel=1e-2)


def test_a_pure_release_passes_as_gaussian():
    """Randomized response is the worst pure release; its curve lies under that of its mu everywhere."""
    for epsilon in (0.1, 1.0, 3.0):
        mu = math.sqrt(privacy_loss(PureRelease(Fraction(str(epsilon)))).mu_squared)
        for threshold in (0.0, epsilon / 3, epsilon * 0.99):
            assert delta_of_response(epsilon, threshold) <= delta_at(mu, threshold)


# One adaptive session: a randomized response first, then a release chosen by what it said.

EPSILON, TARGET, FIRST = 1.0, 0.01, 0.5


def delta_of_response(epsilon, threshold):
    """The hockey-stick divergence of randomized response at e^threshold."""
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    scale = math.exp(threshold)
    return max(0.0, keep - scale * (1 - keep)) + max(0.0, (1 - keep) - scale * keep)


def delta_of(event, threshold):
    match event:
        case PureRelease(epsilon):
            return delta_of_response(float(epsilon), threshold)
        case ApproximateRelease(epsilon, delta):
            return float(delta) + (1 - float(delta)) * delta_of_response(float(epsilon), threshold)
        case Gaussian(multiplier):
            curve = delta_at(float(1 / multiplier), abs(threshold))
            return curve if threshold >= 0 else 1 - math.exp(threshold) * (1 - curve)


def delta_of_session(after_yes, after_no):
    """A yes is likelier with the person in the data, a no without: what they leave of epsilon differs."""
    keep = math.exp(FIRST) / (1 + math.exp(FIRST))
    return keep * delta_of(after_yes, EPSILON - FIRST) + (1 - keep) * delta_of(after_no, EPSILON + FIRST)


def second_that_just_fits():
    """The largest pure release that composes with the first one to (EPSILON, TARGET), as a fixed batch."""
    low, high = Fraction(0), Fraction(2)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of_session(*[PureRelease(middle)] * 2) <= TARGET else (low, middle)
    return PureRelease(low)


def test_stopping_on_a_composed_curve_breaks_the_promise_and_the_filters_do_not_allow_it():
    pure, leak = second_that_just_fits(), ApproximateRelease(Fraction(0), Fraction(str(TARGET)))
    # Each branch alone stays on the curve, so an odometer that looks at the composed curve lets both pass,
    assert delta_of_session(pure, pure) <= TARGET
    assert delta_of_session(leak, leak) <= TARGET * (1 + 1e-12)
    # and the session that picks its branch by the first answer does not keep the promise.
    assert delta_of_session(pure, leak) > 1.3 * TARGET
    first = PureRelease(Fraction(str(FIRST)))
    for kind in FILTERS.values():
        a_filter = kind(Fraction(str(EPSILON)), Fraction(str(TARGET)))
        assert not all(a_filter.admits(privacy_loss(first) + privacy_loss(second)) for second in (pure, leak))


def test_the_composed_curve_is_the_one_that_dp_accounting_stops_on():
    pld = dp_accounting.pld.privacy_loss_distribution
    first = pld.from_randomized_response(2 / (1 + math.exp(FIRST)), 2)
    pure = float(second_that_just_fits().epsilon)
    second = pld.from_randomized_response(2 / (1 + math.exp(pure)), 2)
    leak = pld.from_privacy_parameters(dp_accounting.pld.common.DifferentialPrivacyParameters(0, TARGET))
    assert first.compose(second).get_delta_for_epsilon(EPSILON) == pytest.approx(TARGET, rel=1e-2)
    assert first.compose(leak).get_delta_for_epsilon(EPSILON) == pytest.approx(TARGET, rel=1e-2)


MENU = [
    *(PureRelease(Fraction(k, 20)) for k in range(1, 21)),
    *(Gaussian(Fraction(k, 2)) for k in range(2, 30)),
    *(ApproximateRelease(Fraction(k, 10), Fraction(m, 2000)) for k in range(6) for m in range(1, 21, 3)),
]


@pytest.mark.parametrize("name", FILTERS)
def test_no_admitted_choice_after_the_first_answer_breaks_the_promise(name):
    a_filter = FILTERS[name](Fraction(str(EPSILON)), Fraction(str(TARGET)))
    for first_share in (FIRST,):
        spent = privacy_loss(PureRelease(Fraction(str(first_share))))
        admitted = [event for event in MENU if a_filter.admits(spent + privacy_loss(event))]
        assert admitted or name in ("gdp", "zcdp")
        for after_yes, after_no in product(admitted, repeat=2):
            assert delta_of_session(after_yes, after_no) <= TARGET * (1 + 1e-9)


def test_the_pure_sum_costs_auto_no_delta():
    auto = Auto(Fraction(1), DELTA)
    totals = PrivacyLoss()
    for _ in range(10):
        totals += privacy_loss(PureRelease(Fraction(1, 10)))
    assert auto.spent(totals) == (1.0, 0.0)


# -- mixed rules ------------------------------------------------------------------------------------------------------


def gaussian_value(mu, c):
    """The largest P(S) - c Q(S) for P and Q a distance of mu apart."""
    if mu == 0:
        return max(0.0, 1 - c)
    normal = NormalDist().cdf
    return normal(mu / 2 - math.log(c) / mu) - c * normal(-mu / 2 - math.log(c) / mu)


def adaptive_value(pure, mus, c):
    """The largest P(S) - c Q(S) of a strategy that may ask a coin of each pure epsilon and Gaussians of these mus in an
    order that it chooses by the answers; a coin is true as often as its epsilon allows."""
    values = [gaussian_value(math.hypot(*mus), c)]
    for i, epsilon in enumerate(pure):
        true = 1 / (1 + math.exp(-epsilon))
        left = pure[:i] + pure[i + 1 :]
        values.append(
            true * adaptive_value(left, mus, c * (1 - true) / true)
            + (1 - true) * adaptive_value(left, mus, c * true / (1 - true))
        )
    return max(values)


@pytest.mark.parametrize("c", [1.0, math.e, 10.0, 30.0])
@pytest.mark.parametrize("pure", [(0.5,), (0.2, 0.7), (0.1, 0.4, 0.9)])
def test_pure_releases_beside_gaussians_scale_the_threshold(pure, c):
    """V(E, M; c) <= H(M; c e^-E), whatever is asked first, and by little where all of E is one coin."""
    mus = (0.3, 0.8)
    bound = gaussian_value(math.hypot(*mus), c * math.exp(-sum(pure)))
    assert adaptive_value(pure, mus, c) <= bound * (1 + 1e-12)


STEP, FARTHEST = 0.05, 200
"""Privacy losses in steps, those of Gaussian noise rounded down: an attack on a bit less than there is."""


def best_attack(admits, menu, epsilon, *, ordered=True):
    """The largest P(S) - e^epsilon Q(S) of all strategies that ask what is on the menu as long as it is admitted, each
    question chosen by all answers before: by the loss so far, which is all that a best strategy looks at. Whether the
    order counts in what is admitted makes the states more, and far more work."""
    places = np.arange(-FARTHEST, FARTHEST + 1)
    stopping = np.maximum(0.0, 1 - np.exp(epsilon - places * STEP))

    @cache
    def value(spent):
        best = stopping
        for event in menu:
            total = spent + privacy_loss(event)
            if admits(total):
                after = value(total if ordered else replace(total, committed=Fraction(0)))
                moved = (
                    chance * (after[np.clip(places + move, -FARTHEST, FARTHEST) + FARTHEST] if move is not None else 1)
                    for move, chance in losses(event).items()
                )
                best = np.maximum(best, sum(moved))
        return best

    return value(PrivacyLoss())[FARTHEST]


@cache
def losses(event):
    """How likely each step of the loss is; None is a leak that tells all."""
    match event:
        case PureRelease(epsilon):
            true = 1 / (1 + math.exp(-epsilon))
            return {round(epsilon / STEP): true, -round(epsilon / STEP): 1 - true}
        case Exponential(epsilon):
            # Of the two outcomes whose losses lie epsilon apart one tells twice as much as the other.
            up, down = 2 * float(epsilon) / 3, -float(epsilon) / 3
            likely = math.exp(up) * math.expm1(down) / (math.exp(down) - math.exp(up))
            return {round(up / STEP): likely, round(down / STEP): 1 - likely}
        case Gaussian(multiplier):
            mu = 1 / float(multiplier)
            below = NormalDist(mu * mu / 2, mu).cdf
            reach = range(math.floor((mu * mu / 2 - 7 * mu) / STEP), math.ceil((mu * mu / 2 + 7 * mu) / STEP))
            return {step: below((step + 1) * STEP) - below(step * STEP) for step in reach}
        case ApproximateRelease(delta=delta):
            return {0: 1 - float(delta), None: float(delta)}


def menus(a_filter):
    """Parts of the budget, and what just fits under one rule: of all noise, and beside half of epsilon."""
    epsilon, third = a_filter.epsilon, Gaussian(3 / mu_for(a_filter.epsilon, a_filter.curve_delta))
    whole = Gaussian(1 / mu_for(epsilon, a_filter.curve_delta))
    mixed = [Gaussian(Fraction(root_up(1 / rule.limit.rest))) for rule in a_filter.rules if isinstance(rule, MixedSum)]
    leak = ApproximateRelease(Fraction(0), a_filter.reserved_delta)
    yield [PureRelease(epsilon / 4), third, leak]
    yield [PureRelease(epsilon / 4), whole, *mixed[3:4], leak]
    # Mixed sums also know what was asked first, so that there are far more of them.
    small = Fraction(1, 8 if mixed else 20)
    yield [PureRelease(small), third, leak]
    yield [Exponential(Fraction(1, 4) if mixed else Fraction(3, 20)), third, leak]


@pytest.mark.parametrize("name", ["mixed", "auto", "gdp"])
def test_no_strategy_breaks_the_promise(name):
    a_filter = FILTERS[name](Fraction(1), Fraction(1, 50))
    ordered = name == "mixed"
    found = [best_attack(a_filter.admits, menu, 1.0, ordered=ordered) for menu in menus(a_filter)]
    assert max(found) <= a_filter.delta
    # Of mixed sums the one attack ends under one rule, which has 7/10 of the delta.
    assert max(found) > a_filter.delta * (0.65 if name == "mixed" else 0.8), "the attack comes close"


def test_what_is_shown_within_one_is_what_a_session_of_one_admits():
    """So whoever stops by what is shown keeps the promise too, by the test above."""
    session, own = (FILTERS["mixed"](Fraction(epsilon), Fraction(1, 50)) for epsilon in (3, 1))
    first, second, _, *_ = menus(own)
    answers = set()
    for events in product((*first, second[1], None), repeat=3):
        totals = privacy_loss(Composed(()))
        for event in filter(None, events):
            totals += privacy_loss(event)
        if not session.admits(totals):
            continue
        answers.add(own.admits(totals))
        assert own.admits(totals) == (session.spent(totals).epsilon <= 1 + 1e-11)
    assert answers == {True, False}


@pytest.mark.parametrize("pure", [Fraction(1, 10), Fraction(1, 4), Fraction(1, 2)])
def test_a_cap_that_is_fixed_before_the_first_gaussian_costs_nothing(pure):
    """One rule, one delta, and the analyst chooses by the answers how much to spend on pure releases first."""
    delta = Fraction(1, 50)

    def admits(totals):
        cap = totals.committed if totals.rest else totals.pure
        rule = CommittedSum(Fraction(1), min(cap, Fraction(1)), delta, Fraction(0), delta)
        return totals <= rule.limit

    menu = [PureRelease(pure), *(Gaussian(Fraction(root_up(1 / mu_for(1 - k * pure, delta) ** 2))) for k in (0, 1, 2))]
    assert 0.9 * delta < best_attack(admits, menu, 1.0) <= delta


def test_what_basic_or_a_curve_admits_is_not_private_at_the_same_delta():
    """So mixed cannot contain basic for nothing: half of the answers end under one rule, and half under the other."""
    delta = Fraction(1, 50)
    mu = mu_for(Fraction(1), delta)

    def either(totals):
        return Basic(Fraction(1), delta).admits(totals) or (totals.mu_squared <= mu**2 and not totals.delta)

    menu = [PureRelease(Fraction(1, 10)), Gaussian(Fraction(5, 4) / mu), ApproximateRelease(Fraction(0), delta)]
    assert best_attack(either, menu, 1.0) > 1.15 * delta


def test_a_filter_that_lets_more_pass_is_broken():
    a_filter, wider = (FILTERS["mixed"](Fraction(epsilon, 4), Fraction(1, 50)) for epsilon in (4, 6))
    assert any(best_attack(wider.admits, menu, 1.0) > 1.4 * a_filter.delta for menu in menus(a_filter))


# -- small releases while much is left --------------------------------------------------------------------------------


def values_of(mu_squared, log_c):
    """The largest P(S) - c Q(S) for P and Q a distance of mu apart, of many at once."""
    mu = np.sqrt(mu_squared)
    return ndtr(mu / 2 - log_c / mu) - np.exp(log_c + log_ndtr(-mu / 2 - log_c / mu))


@pytest.mark.parametrize("coin", [1e-3, 0.01, 0.05, 0.1, 0.25])
@pytest.mark.parametrize("left", [2, 3, 10, 100])
def test_a_small_choice_costs_little_more_than_its_variance_where_enough_is_left(coin, left):
    """Two outcomes whose losses lie 2 coins apart, at whatever place, before Gaussian noise of `left` coins squared."""
    kept, cost = left * coin**2, privacy_loss(PureRelease(Fraction(coin))).smoothed
    assert cost == privacy_loss(Exponential(Fraction(2 * coin))).smoothed == Fraction(9, 8) * Fraction(coin) ** 2
    middle = np.concatenate([np.linspace(-1, 1, 81), np.linspace(-12, 12, 97)])[:, None]
    log_c = np.linspace(-8, 8, 801)[None] * math.sqrt(kept + float(cost))
    yes, no = (expit(sign * (middle + coin)) for sign in (1, -1))
    yes_too, no_too = (expit(sign * (middle - coin)) for sign in (1, -1))
    two = yes * values_of(kept, log_c - np.log(yes / yes_too)) + no * values_of(kept, log_c - np.log(no / no_too))
    assert (two <= values_of(kept + float(cost), log_c) + 1e-15).all()
    # The symmetric one decides, and a twentieth less would not do where just enough is left.
    if left == 2 and coin <= 0.1:
        assert (two > values_of(kept + 0.95 * float(cost), log_c)).any()


def test_a_price_below_the_variance_would_break_the_promise(monkeypatch, request):
    monkeypatch.setattr("dpsql.accounting.privacy_loss.SMOOTHED", Fraction(9, 10))
    privacy_loss.cache_clear()
    request.addfinalizer(privacy_loss.cache_clear)
    a_filter = FILTERS["gdp"](Fraction(1), Fraction(1, 50))
    leak = ApproximateRelease(Fraction(0), a_filter.reserved_delta)
    menu = [PureRelease(Fraction(1, 20)), leak]
    assert best_attack(a_filter.admits, menu, 1.0, ordered=False) > 1.2 * a_filter.delta


def chord_above(z, excess):
    """How far above z a line that passes a normal curve's potential by this excess meets it: U in the proof."""

    def met(u):
        return (u + z) * (ndtr(u + z) - ndtr(z)) + (np.exp(-((u + z) ** 2) / 2) - np.exp(-(z**2) / 2)) / ROOT_TWO_PI

    return brentq(lambda u: met(u) * ROOT_TWO_PI * math.exp(z**2 / 2) - excess, 1e-9, 60)


ROOT_TWO_PI = math.sqrt(2 * math.pi)


def test_every_chord_is_long_enough():
    """U grows, so on [z, z + step] U(z) + U(-z - step) bounds U + U(-.) from below; beyond the last z U alone does."""
    smaller = 1.11
    excess, step, last = math.sqrt((2 + smaller) / 2) - 1, 0.01, 6
    assert last * excess > math.sqrt(2)
    places = np.arange(0, last, step)
    assert min(chord_above(z, excess) + chord_above(-z - step, excess) for z in places) > math.sqrt(2)
    # What the curvature of the odds costs, at the largest coin.
    cost = 9 / 8 / 16
    assert smaller * (1 + math.sqrt((2 + 9 / 8) / 2) * math.expm1(cost / 8)) <= 9 / 8


def test_a_session_affords_more_medians():
    """On the curve alone each would cost pi/2 times its variance."""
    session, median = Mixed(Fraction(3), DELTA), Exponential(Fraction(1, 10))
    counted = {type(rule).__name__: rule.limit for rule in session.rules}
    alone = counted["GaussianSum"].mu_squared / privacy_loss(median).mu_squared
    assert session.affords(PrivacyLoss(), median) > 1.37 * alone
    assert session.admits(privacy_loss(Composed((median,) * session.affords(PrivacyLoss(), median))))


def test_one_kind_of_noise_after_the_other_leaves_what_is_left():
    laplace, gaussian = PureRelease(Fraction(1, 2)), Gaussian(1 / mu_for(Fraction(1, 2), DELTA))
    kept, lost = (
        kind(Fraction(3), DELTA).remaining(privacy_loss(laplace) + privacy_loss(gaussian)) for kind in (Mixed, Auto)
    )
    assert kept.epsilon >= 1.75
    assert lost.epsilon < 2.3  # mu counts a pure release as far more than it is


@pytest.mark.parametrize("pure", ["1/100", "3/10", "1/2", "9/10"])
@pytest.mark.parametrize("queries", [1, 3])
def test_mixed_admits_what_basic_admits_of_ninety_nine_hundredths_at_its_share_of_delta(pure, queries):
    """Laplace first; then Gaussians, each calibrated and counted by basic composition at its own (epsilon, delta)."""
    session, share = Mixed(Fraction(1), DELTA), DELTA * COMMITTED_SHARE
    part = (Fraction(99, 100) - Fraction(pure)) / queries
    gaussians = Composed((Gaussian(1 / mu_for(part, share * part)),) * queries)
    assert session.admits(privacy_loss(PureRelease(Fraction(pure))) + privacy_loss(gaussians))


@pytest.mark.parametrize(("delta", "more"), [(DELTA, 1.0972), (DELTA / 2, 1.0590)], ids=["all of delta", "half of it"])
def test_after_laplace_mixed_has_nearly_the_gaussian_noise_of_basic(delta, more):
    """Of (1, 1e-6), after 0.5: basic admits Gaussian 0.5 (a count to +- 16); `mixed` 0.46 (17), and once 0.38 (20)."""
    session, before = Mixed(Fraction(1), DELTA), privacy_loss(PureRelease(Fraction(1, 2)))
    basic = 1 / mu_for(Fraction(1, 2), delta)
    assert session.admits(before + privacy_loss(Gaussian(basic * Fraction(more))))
    assert not session.admits(before + privacy_loss(Gaussian(basic * Fraction(more - 1e-3))))
    asked = Gaussian(1 / mu_for(Fraction("0.461"), session.curve_delta))
    assert session.affords(before, asked) == 1


@pytest.mark.parametrize("order", ["pure first", "gaussian first"])
def test_mixed_admits_in_any_order_what_basic_admits_of_seven_eighths(order):
    session, each = Mixed(Fraction(1), DELTA), DELTA / 280
    for k in range(1, 14):
        pure = Fraction(k, 16)
        left = Fraction(7, 8) - pure
        losses_ = [privacy_loss(PureRelease(pure))] + [privacy_loss(Gaussian(1 / mu_for(left, each)))] * (left > 0)
        first, *then = losses_ if order == "pure first" else losses_[::-1]
        assert session.admits(sum(then, first)), pure


def test_after_gaussian_noise_a_stopped_question_can_still_pay():
    session, laplace = Mixed(Fraction(1), DELTA), privacy_loss(PureRelease(Fraction(1, 2)))
    gaussian = Gaussian(1 / mu_for(Fraction(49, 100), DELTA * COMMITTED_SHARE))
    assert session.affords(laplace + privacy_loss(gaussian), PureRelease(Fraction(1, 10_000))) == 100


# -- what was spent ---------------------------------------------------------------------------------------------------

LAPLACE, CURVE = PureRelease(Fraction(1, 2)), Gaussian(1 / mu_for(Fraction(1, 2), DELTA / 2))
SPENT = {
    "laplace": [LAPLACE],
    "laplace, gaussian": [LAPLACE, CURVE],
    "gaussian, laplace": [CURVE, LAPLACE],
    "laplace between gaussians": [CURVE, LAPLACE, CURVE],
    "many": [PureRelease(Fraction(1, 100)), CURVE] * 3,
    "choices": [Exponential(Fraction(1, 10))] * 20,
    "groups": [LAPLACE, ApproximateRelease(Fraction(0), DELTA / 50)],
    "groups and gaussian": [CURVE, ApproximateRelease(Fraction(0), DELTA / 50)],
}


@pytest.mark.parametrize("events", SPENT.values(), ids=SPENT)
@pytest.mark.parametrize("name", FILTERS)
def test_what_was_spent_is_the_least_budget_that_admits_it(name, events):
    """A session with exactly that budget admits every charge, and one with a hair less refuses the last."""
    if name == "basic":
        events = [event for event in events if event is not CURVE]
    session, totals, before = FILTERS[name](Fraction(30), DELTA), PrivacyLoss(), 0.0
    for event in events:
        totals = totals + privacy_loss(event)
        spent = session.spent(totals)
        assert spent.epsilon >= before, "never less than before"
        before = spent.epsilon
        own = FILTERS[name] if spent.delta == float(DELTA) else Basic
        epsilon, delta = Fraction(repr(spent.epsilon)), Fraction(repr(spent.delta))
        assert own(epsilon, delta).admits(totals)
        assert not epsilon or not FILTERS[name](epsilon * (1 - Fraction(1, 10**9)), DELTA).admits(totals)


def test_what_was_spent_has_all_the_deltas():
    """It used to be the least over the rules, each at its own delta: 1.139 at 3.6e-9 where mixed refuses that."""
    session = Mixed(Fraction(3), DELTA)
    spent = session.spent(privacy_loss(LAPLACE) + privacy_loss(Gaussian(1 / mu_for(Fraction(1, 2), DELTA))))
    assert spent == (pytest.approx(1.0510, abs=2e-3), float(DELTA))
    assert session.spent(privacy_loss(LAPLACE)) == (0.5, 0)


def test_old_accounts_go_on_without_mixed_rules():
    """Their sums do not say what was pure."""
    old = PrivacyLoss.from_texts({"epsilon": "inf", "rho": "1/800", "mu_squared": "1/400", "delta": "0"})
    assert math.inf == old.pure == old.rest
    assert Mixed(Fraction(1), DELTA).admits(old)
    assert old.agrees(privacy_loss(Gaussian(Fraction(20))))
    assert not old.agrees(privacy_loss(Gaussian(Fraction(10))))
