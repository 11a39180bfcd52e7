"""Exact amounts: 0.1 means one tenth, not the nearest binary fraction.

Inside the accounting every amount is a Fraction, or `math.inf` where a rule cannot bound the loss at all. Only what is
shown to people becomes a float, rounded to the side that never flatters.
"""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from numbers import Rational, Real
from typing import TypeAlias

from dpsql.errors import ProgrammingError, shown_argument

# In type hints `float` stands for `math.inf` alone; every finite amount is a Fraction.
Amount = Fraction | float

Number: TypeAlias = int | float | str | Decimal | Fraction
"""As people write one: 0.1, "1/3", Decimal("1e-6")."""

LARGEST = Fraction(10**18)
SMALLEST = Fraction(1, 10**100)
FARTHEST_EXPONENT = 200

# A running sum stays exact while its denominator is this short, and is rounded up from then on.
DENOMINATOR_BITS = 256


def exact(value: object, name: str = "epsilon") -> Fraction:
    """
    >>> exact(0.1), exact("1e-6"), exact("1/3")
    (Fraction(1, 10), Fraction(1, 1000000), Fraction(1, 3))
    """
    number = _read(value)
    if number is None:
        raise ProgrammingError(
            f"{name} must be a number, not {shown_argument(value)}", hint=f'write {name}=0.1, or {name}="1/3"'
        )
    if number < 0:
        raise ProgrammingError(
            f"{name} cannot be negative, but {shown_argument(value)} is", hint=f"write {name}=0.1, for example"
        )
    if number != 0 and not SMALLEST <= number <= LARGEST:
        raise ProgrammingError(
            f"{name}={shown_argument(value)} is out of range",
            hint=f"{name} must be 0, or between {float(SMALLEST):g} and {float(LARGEST):g}",
        )
    return number


def _read(value: object) -> Fraction | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    if isinstance(value, Real):
        value = Decimal(repr(float(value)))
    if isinstance(value, str):
        try:
            value = Fraction(value) if "/" in value else Decimal(value.strip())
        except (ValueError, InvalidOperation, ZeroDivisionError):
            return None
    if isinstance(value, Decimal) and value.is_finite():
        # The Fraction of Decimal("1e999999999") would fill the memory; anything so far out is out of range anyway.
        far = bool(value) and abs(value.adjusted()) > FARTHEST_EXPONENT
        return LARGEST * 2 if far else Fraction(value)
    return value if isinstance(value, Fraction) else None


def rounded_up(amount: Amount) -> float:
    """The smallest float that does not read as less than `amount`: three tenths are 0.3."""
    nearest = float(amount)
    return nearest if _as_written(nearest) >= amount else math.nextafter(nearest, math.inf)


def rounded_down(amount: Amount) -> float:
    """The largest float that does not read as more than `amount`."""
    nearest = float(amount)
    return nearest if _as_written(nearest) <= amount else math.nextafter(nearest, -math.inf)


def _as_written(value: float) -> Amount:
    return Fraction(repr(value)) if math.isfinite(value) else value


def root_up(amount: Fraction) -> float:
    """The square root of `amount` as a float, from above."""
    root = math.sqrt(amount)
    while _square_beside(root, amount) < 0:
        root = math.nextafter(root, math.inf)
    return root


def root_down(amount: Fraction) -> float:
    """The square root of `amount` as a float, from below."""
    root = math.sqrt(amount)
    while _square_beside(root, amount) > 0:
        root = math.nextafter(root, 0.0)
    return root


def _square_beside(root: float, amount: Fraction) -> int:
    """The sign of root^2 - amount."""
    above, below = root.as_integer_ratio()
    return above * above * amount.denominator - below * below * amount.numerator


def shortened(amount: Amount) -> Amount:
    """The amount, rounded up once its denominator is long, so that running totals stay short."""
    if isinstance(amount, float) or amount.denominator.bit_length() <= DENOMINATOR_BITS:
        return amount
    unit = 1 << DENOMINATOR_BITS
    return Fraction(math.ceil(amount * unit), unit)


def to_text(amount: Amount) -> str:
    """
    >>> to_text(Fraction(1, 10)), to_text(math.inf)
    ('1/10', 'inf')
    """
    return "inf" if isinstance(amount, float) else f"{amount.numerator}/{amount.denominator}"


def from_text(text: str) -> Amount:
    if text == "inf":
        return math.inf
    above, _, below = text.partition("/")  # Fraction would read it with a regular expression
    return Fraction(int(above), int(below or 1))
