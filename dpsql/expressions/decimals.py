"""Decimals as the engine computes them: exactly, with digits that follow from those of the operands.

    sum      one digit more than the longer of both needs     decimal(3,1) + decimal(10,2)  ->  decimal(11,2)
    product  the digits of both                               decimal(3,1) * decimal(10,2)  ->  decimal(13,3)
    choice   as many as hold either                           decimal(3,1), decimal(10,2)   ->  decimal(10,2)

An integer beside a decimal is one of 19 digits, an integer literal of 10 if it has 32 bits. There are 38 digits at
most, and products of two short decimals stay short (18 digits, which are 64 bits): what does not fit is NULL here.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import apply, cast
from dpsql.engine_sql.tree import TryCast
from dpsql.expressions.function import Misfit
from dpsql.schema.types import WIDEST_DECIMAL, Decimal, Integer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dpsql.engine_sql.tree import Term
    from dpsql.schema.types import ColumnType

SHORT = 18
LITERAL, INTEGER = Decimal(10, 0), Decimal(19, 0)


def as_decimal(kind: ColumnType) -> Decimal:
    """The decimal that holds every value of an integer or decimal type."""
    return INTEGER if isinstance(kind, Integer) else kind  # type: ignore[return-value]


def largest(kind: Decimal) -> Fraction:
    """
    >>> largest(Decimal(3, 1))
    Fraction(999, 10)
    """
    return Fraction(10**kind.precision - 1, 10**kind.scale)


def common_decimal(kinds: Iterable[ColumnType]) -> Decimal:
    """What values are chosen from: digits before the point are kept first."""
    before, scale = _digits(kinds)
    return Decimal(min(before + scale, WIDEST_DECIMAL), min(scale, WIDEST_DECIMAL - before))


def compared_decimal(kinds: Iterable[ColumnType]) -> Decimal:
    """What values are compared as: digits after the point are kept first."""
    before, scale = _digits(kinds)
    return Decimal(min(before + scale, WIDEST_DECIMAL), scale)


def _digits(kinds: Iterable[ColumnType]) -> tuple[int, int]:
    """The most digits before and after the point."""
    decimals = [as_decimal(kind) for kind in kinds]
    return max(kind.precision - kind.scale for kind in decimals), max(kind.scale for kind in decimals)


def sum_decimal(kinds: Iterable[ColumnType]) -> Decimal:
    before, scale = _digits(kinds)
    return Decimal(min(before + scale + 1, WIDEST_DECIMAL), scale)


def product_decimal(kinds: Iterable[ColumnType]) -> Decimal:
    first, second = map(as_decimal, kinds)
    scale, digits = first.scale + second.scale, first.precision + second.precision
    if scale > WIDEST_DECIMAL:
        raise Misfit(f"the product would have {scale} digits after the point; CAST one factor to DOUBLE")
    if digits > SHORT > scale and max(first.precision, second.precision) <= SHORT:
        return Decimal(SHORT, scale)
    return Decimal(min(digits, WIDEST_DECIMAL), scale)


def is_certain(operator: str, kinds: Sequence[ColumnType]) -> bool:
    """Whether every result fits into a decimal with a digit to spare."""
    first, second = map(as_decimal, kinds)
    digits = first.precision + second.precision if operator == "*" else sum(_digits(kinds)) + 1
    return digits < WIDEST_DECIMAL


def short_product_sql(left: Term, right: Term, kinds: Sequence[ColumnType], digits: tuple[int, int]) -> Term | None:
    """The product of factors that need so many digits, in 64 bits; None if these do not hold it.

    A factor whose type has more digits than there is room for is cast to fewer, and NULL if it needs more after all.
    """
    first, second = map(as_decimal, kinds)
    if sum(digits) > SHORT:
        return None
    if first.precision + second.precision > SHORT:
        right = TryCast(right, Decimal(digits[1], second.scale))
        if first.precision + digits[1] > SHORT:
            left = TryCast(left, Decimal(SHORT - digits[1], first.scale))
    kind = product_decimal(kinds)
    return TryCast(apply("*", left, right, kind=kind), kind)


def digits_for(kind: ColumnType, most: int | Fraction) -> int:
    """How many digits numbers of this type need that are at most so large, in absolute value.

    >>> digits_for(Decimal(15, 2), Fraction(1)), digits_for(Decimal(15, 2), Fraction(0))
    (3, 2)
    """
    scale = as_decimal(kind).scale
    return max(len(str(int(most * 10**scale))), scale)


def operation_sql(left: Term, operator: str, right: Term, kinds: Sequence[ColumnType]) -> Term:
    """Written with a digit to spare and cut back, which keeps neighbouring operations apart (see build.arithmetic).

    Without such a digit only the operation itself may fail: what two TRY have in common an engine computes before both,
    and so the casts to one scale that it would add within are written, and give NULL.
    """
    first, second = map(as_decimal, kinds)
    if not is_certain(operator, kinds):
        if operator != "*":
            first = second = sum_decimal(kinds)
        return apply(f"try {operator}", TryCast(left, first), TryCast(right, second), kind=first)
    if operator == "*":
        both_short = max(first.precision, second.precision) <= SHORT
        spare = Decimal((SHORT if both_short else first.precision) + 1, first.scale)
        return TryCast(apply(operator, cast(left, spare), right, kind=spare), product_decimal(kinds))
    kind = sum_decimal(kinds)
    return TryCast(apply(operator, cast(left, kind), right, kind=kind), kind)
