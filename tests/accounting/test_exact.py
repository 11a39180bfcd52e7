"""Numbers as people write them become exact, and floats are rounded to the side that never flatters."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.accounting.exact import exact, from_text, root_down, root_up, rounded_down, rounded_up, shortened, to_text
from dpsql.errors import ProgrammingError

positive = st.fractions(min_value=Fraction(1, 10**30), max_value=10**15)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (0.1, Fraction(1, 10)),
        (1e-6, Fraction(1, 10**6)),
        (1e15, Fraction(10**15)),
        (3, Fraction(3)),
        (0, Fraction(0)),
        ("0.1", Fraction(1, 10)),
        (" 1e-6 ", Fraction(1, 10**6)),
        ("1/3", Fraction(1, 3)),
        (Decimal("0.30"), Fraction(3, 10)),
        (
            Decimal("0.1234567890123456789012345678901234567890"),
            Fraction(1234567890123456789012345678901234567890, 10**40),
        ),
        (Fraction(2, 7), Fraction(2, 7)),
        (numpy.float64(0.1), Fraction(1, 10)),
        (numpy.int64(2), Fraction(2)),
    ],
)
def test_a_number_means_what_it_says(written, meant):
    assert exact(written) == meant


@pytest.mark.parametrize(
    "written",
    [math.nan, math.inf, -math.inf, True, False, "", "much", "1/0", "1e5/3", None, [], -1, -0.1, "-1/3", "1e999999999",
     Decimal("NaN"), Decimal("1e-999999999"), 1e19, 1e-101],
)  # fmt: skip
def test_what_is_no_budget_is_refused_with_a_way_out(written):
    with pytest.raises(ProgrammingError) as caught:
        exact(written, "delta")
    assert "delta" in caught.value.problem
    assert caught.value.hint


@given(positive)
def test_rounding_takes_the_named_side(amount):
    assert exact(rounded_down(amount)) <= amount <= exact(rounded_up(amount))
    assert rounded_up(amount) <= math.nextafter(rounded_down(amount), math.inf)
    assert Fraction(root_down(amount)) ** 2 <= amount <= Fraction(root_up(amount)) ** 2
    assert root_up(amount) <= root_down(amount) * (1 + 1e-15)


def test_a_round_number_stays_what_it_is():
    assert rounded_up(Fraction(3, 10)) == rounded_down(Fraction(3, 10)) == 0.3
    assert rounded_up(math.inf) == math.inf


@given(positive)
def test_text_is_exact(amount):
    assert from_text(to_text(amount)) == amount
    assert from_text(to_text(math.inf)) == math.inf


def test_long_denominators_are_rounded_up_and_short_ones_kept():
    assert shortened(Fraction(1, 3)) == Fraction(1, 3)
    assert shortened(math.inf) == math.inf
    long = Fraction(1, 3**400)
    assert long < shortened(long) < long + Fraction(1, 2**255)
    assert len(to_text(shortened(long))) < 160
