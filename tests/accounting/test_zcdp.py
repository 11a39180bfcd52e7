"""The conversion of zCDP in docs/proofs/composition.md, executed against dp-accounting's Renyi accountant."""

from fractions import Fraction

import dp_accounting
import numpy
import pytest

from dpsql.accounting.curves import rho_for, zcdp_epsilon_at

DELTA = Fraction(1, 10**6)


def renyi_epsilon(rho, orders):
    accountant = dp_accounting.rdp.RdpAccountant(orders=orders)
    accountant.compose(dp_accounting.ZCDpEvent(rho))
    return accountant.get_epsilon(float(DELTA))


@pytest.mark.parametrize("rho", ["1e-6", "0.005", "0.125", "0.5", "3", "100"])
def test_epsilon_agrees_with_dp_accounting(rho):
    # Its best order on a grid is a little worse than the best of all, so ours lies just below.
    theirs = renyi_epsilon(float(rho), 1 + numpy.geomspace(1e-3, 1e7, 20_000))
    assert theirs * (1 - 1e-6) <= zcdp_epsilon_at(Fraction(rho), DELTA) <= theirs * (1 + 1e-12)


@pytest.mark.parametrize("epsilon", ["1e-6", "0.1", "1", "3", "10", "1e6", "1e15"])
def test_rho_is_the_inverse_from_the_safe_side(epsilon):
    rho = rho_for(Fraction(epsilon), DELTA)
    assert zcdp_epsilon_at(rho, DELTA) == pytest.approx(float(epsilon), rel=1e-9)
    assert zcdp_epsilon_at(rho * (1 - Fraction(1, 10**9)), DELTA) < float(epsilon)


def test_the_conversion_beats_the_textbook_one():
    for rho in (0.01, 0.5, 5.0):
        textbook = rho + 2 * (rho * float(numpy.log(10**6))) ** 0.5
        assert zcdp_epsilon_at(Fraction(str(rho)), DELTA) < textbook


def test_the_ends_of_the_range():
    assert zcdp_epsilon_at(Fraction(0), DELTA) == 0.0
    assert zcdp_epsilon_at(Fraction(10**18), DELTA) > 10**18
    assert rho_for(Fraction(1, 10**18), Fraction(1, 10**100)) >= 0
