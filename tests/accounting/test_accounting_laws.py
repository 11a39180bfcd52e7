"""The law book: what every event and every filter obeys. A new one inherits its laws by adding a class below."""

import math
import sys
from dataclasses import replace
from fractions import Fraction
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.accounting.events import (
    KINDS,
    ApproximateRelease,
    Composed,
    Event,
    Exponential,
    Free,
    Gaussian,
    Laplace,
    NonPrivate,
    Parallel,
    PureRelease,
    Repeated,
    from_json,
)
from dpsql.accounting.filters import FILTERS, RESERVED_SHARE, Auto, Basic, Gdp, Mixed, SmoothedSum, Zcdp, filter_named
from dpsql.accounting.privacy_loss import PrivacyLoss, privacy_loss
from dpsql.errors import ProgrammingError, Unsupported

TENTH = Fraction(1, 10)
TINY = Fraction(1, 10**9)
DELTA = Fraction(1, 10**6)


class LawsOfEvents:
    event: Event
    louder: Event  # the same release with more noise, or a smaller claim

    def test_survives_json(self):
        assert from_json(self.event.to_json()) == self.event
        assert from_json(self.event.to_json()).to_json() == self.event.to_json()

    def test_is_a_value(self):
        assert hash(from_json(self.event.to_json())) == hash(self.event)
        with pytest.raises(AttributeError):
            self.event.epsilon = Fraction(1)

    @pytest.mark.parametrize("k", [0, 1, 2, 7])
    def test_k_fold_composition_is_k_single_ones(self, k):
        singles = PrivacyLoss()
        for _ in range(k):
            singles += privacy_loss(self.event)
        # What was pure before the first Gaussian is another amount where all is charged at once.
        assert replace(privacy_loss(Composed((self.event,) * k)), committed=singles.committed) == singles

    def test_order_does_not_matter(self):
        events = (self.event, Gaussian(Fraction(7, 3)), PureRelease(TENTH))
        assert len({privacy_loss(Composed(order)) for order in permutations(events)}) == 1
        assert len({privacy_loss(Parallel(order)) for order in permutations(events)}) == 1

    def test_what_is_smoothed_never_costs_more(self):
        for event in (self.event, self.louder):
            assert privacy_loss(event).smoothed <= privacy_loss(event).mu_squared

    def test_more_noise_never_costs_more(self):
        assert privacy_loss(self.louder) <= privacy_loss(self.event)

    def test_no_amount_is_negative(self):
        assert PrivacyLoss() <= privacy_loss(self.event)

    def test_parts_cost_at_most_as_much_as_the_whole(self):
        both = (self.event, ApproximateRelease(TENTH, DELTA))
        assert privacy_loss(self.event) <= privacy_loss(Parallel(both)) <= privacy_loss(Composed(both))
        assert privacy_loss(Parallel((self.event, self.event))) == privacy_loss(self.event)


class TestLaplace(LawsOfEvents):
    event = Laplace(Fraction(10))
    louder = Laplace(Fraction(11))


class TestGaussian(LawsOfEvents):
    event = Gaussian(Fraction(20))
    louder = Gaussian(Fraction(21))


class TestPureRelease(LawsOfEvents):
    event = PureRelease(TENTH)
    louder = PureRelease(Fraction(1, 11))


class TestApproximateRelease(LawsOfEvents):
    event = ApproximateRelease(TENTH, DELTA)
    louder = ApproximateRelease(TENTH, DELTA / 2)


class TestExponential(LawsOfEvents):
    event = Exponential(TENTH)
    louder = Exponential(Fraction(1, 11))


class TestParallel(LawsOfEvents):
    event = Parallel((Laplace(Fraction(3)), Gaussian(Fraction(2))))
    louder = Parallel((Laplace(Fraction(4)), Gaussian(Fraction(2))))


class TestComposed(LawsOfEvents):
    event = Composed((Laplace(Fraction(3)), ApproximateRelease(Fraction(0), DELTA)))
    louder = Composed((Laplace(Fraction(4)), ApproximateRelease(Fraction(0), DELTA)))


class TestFree(LawsOfEvents):
    event = Free()
    louder = Free()


class TestNonPrivate(LawsOfEvents):
    event = NonPrivate()
    louder = Laplace(Fraction(1))


class TestRepeated(LawsOfEvents):
    event = Repeated((Laplace(Fraction(10)),), Fraction(3))
    louder = Repeated((Laplace(Fraction(11)),), Fraction(3))


def test_every_event_has_its_laws():
    assert {laws.event.__class__ for laws in LawsOfEvents.__subclasses__()} == set(KINDS.values())


def test_known_prices():
    assert privacy_loss(Laplace(Fraction(10))) == privacy_loss(PureRelease(TENTH))
    assert privacy_loss(Laplace(Fraction(10))).rho == Fraction(1, 200)
    assert privacy_loss(Exponential(TENTH)).rho == Fraction(1, 800)
    assert privacy_loss(Gaussian(Fraction(20))) == PrivacyLoss(
        math.inf, Fraction(1, 800), Fraction(1, 400), Fraction(0), rest=Fraction(1, 400), smoothed=Fraction(1, 400)
    )
    assert privacy_loss(ApproximateRelease(Fraction(0), DELTA)) == PrivacyLoss(delta=DELTA)
    assert privacy_loss(Parallel(())) == privacy_loss(Composed(())) == privacy_loss(Free()) == PrivacyLoss()


def test_an_unknown_event_is_refused_also_inside_another():
    class Novelty(Event):
        pass

    for event in (Novelty(), Composed((Novelty(),)), Parallel((Free(), Novelty()))):
        with pytest.raises(Unsupported, match="Novelty"):
            privacy_loss(event)
    with pytest.raises(Unsupported, match="Novelty"):
        from_json('{"event":"Novelty"}')


@pytest.mark.parametrize("value", [0.1, -TENTH, "1/10", None])
def test_an_event_holds_exact_numbers_only(value):
    with pytest.raises(ProgrammingError, match="noise_multiplier"):
        Laplace(value)


class LawsOfFilters:
    kind: type
    affordable: Event  # fits many times
    deltas = (Fraction(0), DELTA)

    def filters(self):
        return [self.kind(Fraction(1), delta) for delta in self.deltas]

    def test_nothing_is_always_affordable_and_costs_nothing(self):
        for a_filter in self.filters():
            assert a_filter.admits(PrivacyLoss())
            assert a_filter.spent(PrivacyLoss()) == (0, 0)
            assert a_filter.remaining(PrivacyLoss()) == (1, float(a_filter.delta))
            assert a_filter.affords(PrivacyLoss(), Free()) == sys.maxsize

    @pytest.mark.parametrize("event", [Laplace(Fraction(0)), Gaussian(Fraction(0)), NonPrivate()])
    def test_zero_noise_is_infinite_loss(self, event):
        for a_filter in [*self.filters(), self.kind(Fraction(10**15), DELTA)]:
            assert not a_filter.admits(privacy_loss(event))
            assert not a_filter.admits(privacy_loss(Parallel((Free(), event))))
            assert a_filter.affords(PrivacyLoss(), event) == 0
            assert a_filter.spent(privacy_loss(event)).epsilon == math.inf
            assert a_filter.remaining(privacy_loss(event)).epsilon == 0

    def test_what_it_affords_is_what_it_admits(self):
        for a_filter in self.filters():
            event = self.affordable if a_filter.delta else Laplace(Fraction(10))
            k = a_filter.affords(PrivacyLoss(), event)
            assert k > 1
            assert a_filter.admits(privacy_loss(Composed((event,) * k)))
            assert not a_filter.admits(privacy_loss(Composed((event,) * (k + 1))))
            half = privacy_loss(Composed((event,) * (k // 2)))
            assert a_filter.affords(half, event) == k - k // 2

    def test_spending_never_goes_back_and_never_passes_the_budget_unseen(self):
        for a_filter in self.filters():
            event = self.affordable if a_filter.delta else Laplace(Fraction(10))
            totals, spent, remaining = PrivacyLoss(), a_filter.spent(PrivacyLoss()), a_filter.remaining(PrivacyLoss())
            while a_filter.admits(totals := totals + privacy_loss(event)):
                assert spent[0] <= a_filter.spent(totals).epsilon <= 1
                assert spent[1] <= a_filter.spent(totals).delta <= float(a_filter.delta)
                assert a_filter.remaining(totals).epsilon <= remaining[0]
                spent, remaining = a_filter.spent(totals), a_filter.remaining(totals)
            assert a_filter.spent(totals).epsilon > 1

    def test_one_more_query_at_what_remains_fits_and_little_more_does_not(self):
        for a_filter in self.filters():
            event = self.affordable if a_filter.delta else Laplace(Fraction(10))
            totals = privacy_loss(Composed((event,) * (a_filter.affords(PrivacyLoss(), event) // 3)))
            for spent in (PrivacyLoss(), totals):
                left = Fraction(a_filter.remaining(spent).epsilon)
                assert any(a_filter.affords(spent, query) for query in a_filter.queries_at(left, Fraction(0)))
                more = left * Fraction(1001, 1000)
                assert not any(a_filter.affords(spent, query) for query in a_filter.queries_at(more, Fraction(0)))

    def test_delta_beside_the_curve_is_bounded_by_its_share(self):
        for a_filter in self.filters():
            share = a_filter.reserved_delta
            assert a_filter.admits(PrivacyLoss(delta=share))
            assert not a_filter.admits(PrivacyLoss(delta=share + TINY * DELTA))
            # One bound holds for what either of the two Gaussian rules admits, so they have one delta.
            curves = [
                rule.curve_delta for rule in a_filter.rules_at(PrivacyLoss()) if not isinstance(rule, SmoothedSum)
            ]
            assert share + sum(curves) == a_filter.delta

    def test_more_noise_never_costs_more(self):
        for a_filter in self.filters():
            spends = [a_filter.spent(privacy_loss(Laplace(Fraction(k)))).epsilon for k in (1, 2, 5, 30)]
            assert spends == sorted(spends, reverse=True)

    def test_a_larger_budget_affords_more(self):
        for delta in self.deltas:
            counts = [
                self.kind(Fraction(epsilon), delta).affords(PrivacyLoss(), Laplace(Fraction(10)))
                for epsilon in (1, 2, 10, 10**6, 10**15)
            ]
            assert counts == sorted(counts)
            assert counts[0] < counts[-1]

    def test_without_delta_only_the_pure_sum_is_left(self):
        pure = self.kind(Fraction(1), Fraction(0))
        assert pure.mu_budget is None
        totals = PrivacyLoss()
        for _ in range(10):
            totals += privacy_loss(Laplace(Fraction(10)))
        assert pure.admits(totals)
        assert pure.spent(totals) == (1.0, 0.0)
        assert pure.remaining(totals) == (0.0, 0.0)
        assert not pure.admits(totals + privacy_loss(PureRelease(TINY)))
        assert not pure.admits(privacy_loss(Gaussian(Fraction(10**6))))

    @pytest.mark.parametrize(("epsilon", "delta"), [(-1, 0), (1, 1), (1, 2), (1, -1)])
    def test_what_is_no_budget_is_refused(self, epsilon, delta):
        with pytest.raises(ProgrammingError, match="privacy budget"):
            self.kind(Fraction(epsilon), Fraction(delta))


class TestBasic(LawsOfFilters):
    kind = Basic
    affordable = ApproximateRelease(TENTH, DELTA / 10)


class TestZcdp(LawsOfFilters):
    kind = Zcdp
    affordable = Gaussian(Fraction(20))


class TestGdp(LawsOfFilters):
    kind = Gdp
    affordable = Gaussian(Fraction(20))


class TestMixed(LawsOfFilters):
    kind = Mixed
    affordable = Gaussian(Fraction(20))


class TestAuto(LawsOfFilters):
    kind = Auto
    affordable = Gaussian(Fraction(20))


def test_every_filter_has_its_laws():
    assert {laws.kind for laws in LawsOfFilters.__subclasses__()} == set(FILTERS.values())


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_is_found_by_name(name):
    assert filter_named(name, Fraction(1), DELTA) == FILTERS[name](Fraction(1), DELTA)


def test_an_unknown_composition_is_refused():
    with pytest.raises(ProgrammingError, match="unknown composition 'renyi'") as caught:
        filter_named("renyi", Fraction(1), DELTA)
    assert '"gdp"' in caught.value.hint


def test_ten_tenths_are_one_and_an_eleventh_is_too_much():
    for a_filter in (Basic(Fraction(1), DELTA), Auto(Fraction(1), DELTA)):
        totals = privacy_loss(Composed((PureRelease(TENTH),) * 10))
        assert a_filter.admits(totals)
        assert not a_filter.admits(totals + privacy_loss(PureRelease(TINY)))


def test_auto_takes_the_better_of_two_rules():
    auto, pure, gdp = Auto(Fraction(3), DELTA), Basic(Fraction(3), DELTA), Gdp(Fraction(3), DELTA)
    few, many = privacy_loss(PureRelease(Fraction(3))), privacy_loss(Composed((PureRelease(Fraction(1, 100)),) * 900))
    assert pure.admits(few)
    assert not gdp.admits(few)
    assert auto.admits(few)
    assert gdp.admits(many)
    assert not pure.admits(many)
    assert auto.admits(many)
    assert auto.spent(many).epsilon == gdp.spent(many).epsilon < 9
    assert auto.mu_budget == gdp.mu_budget
    assert auto.curve_delta == DELTA * (1 - RESERVED_SHARE)


@given(
    st.lists(st.fractions(min_value=Fraction(1, 1000), max_value=2, max_denominator=1000), min_size=1, max_size=6),
    st.randoms(),
)
@settings(max_examples=50)
def test_sums_do_not_depend_on_the_order_of_queries(epsilons, shuffler):
    events = [PureRelease(epsilon) for epsilon in epsilons]
    expected = privacy_loss(Composed(tuple(events)))
    shuffler.shuffle(events)
    assert privacy_loss(Composed(tuple(events))) == expected
