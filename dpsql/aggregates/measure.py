"""Measures: the integers that are counted or summed over people, and get noise.

A measure knows three things. What the engine computes for one unit in one group (`partial`), what of that may count
when a unit may bring at most `rows` rows to a group (`bounded`), and how large that can be (`linf`). The proof is in
docs/proofs/bounding.md.

    COUNT(*)      n rows              ->  min(n, rows)                                 <= rows
    SUM(x)        n values, sum S     ->  S if n <= rows else S * rows / n, rounded    <= rows * max(|low|, |high|)
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

from dpsql.expressions.write import Sql, binary, call, cast, clamp, column, finite, huge, integer, literal, named, when
from dpsql.schema.types import Decimal, Double, Integer

if TYPE_CHECKING:
    from dpsql.expressions.tree import Expression
    from dpsql.schema.types import ColumnType

ROW_BITS = 34
"""A value is rounded to this many bits of its range, so that 2^28 of the largest still fit below 2^62."""
EXACT_INTEGER_BITS = 40
"""Integers below this size are summed as they are."""
DECIMAL_DIGITS = 18


@dataclass(frozen=True)
class CountUnits:
    """How many units a group has."""

    def partial(self, name: str) -> list[Sql]:
        return []

    def bounded(self, name: str, rows: int) -> Sql:
        return integer(1)

    def linf(self, rows: int) -> int:
        return 1


@dataclass(frozen=True)
class CountRows:
    """How many rows a group has."""

    def partial(self, name: str) -> list[Sql]:
        return [named(Sql("count(*)"), name)]

    def bounded(self, name: str, rows: int) -> Sql:
        return call("least", column(name), integer(rows))

    def linf(self, rows: int) -> int:
        return rows


@dataclass(frozen=True)
class CountValues:
    """How many values that are not NULL a group has."""

    argument: Expression

    def input(self, argument: Sql) -> Sql:
        return argument

    def partial(self, name: str) -> list[Sql]:
        return [named(call("count", column(name)), name)]

    def bounded(self, name: str, rows: int) -> Sql:
        return call("least", column(name), integer(rows))

    def linf(self, rows: int) -> int:
        return rows


@dataclass(frozen=True)
class SumValues:
    """The sum of values in whole quanta, each clamped to [low, high] quanta and counted from `centre`."""

    argument: Expression
    quantum: Fraction
    low: int
    high: int
    centre: int

    def input(self, argument: Sql) -> Sql:
        """One row's value as a whole number of quanta; NULL, NaN and infinity are no values."""
        quanta = _in_quanta(argument, self.argument.type, self.quantum, self.low, self.high)
        return binary(quanta, "-", integer(self.centre)) if self.centre else quanta

    def partial(self, name: str) -> list[Sql]:
        return [
            named(call("sum", column(name)), name),
            named(call("count", column(name)), f"{name}_count"),
        ]

    def bounded(self, name: str, rows: int) -> Sql:
        """The expectation of keeping `rows` random rows, without the randomness; rounded half away from zero."""
        total, count = column(name), column(f"{name}_count")
        half = when(Sql(f"{total} >= 0"), count, Sql(f"-{count}"))
        scaled = Sql(f"({total} * {integer(2 * rows)} + {half}) // (2 * {count})")
        return call("coalesce", when(Sql(f"{count} <= {integer(rows)}"), total, scaled), integer(0))

    def linf(self, rows: int) -> int:
        return rows * max(abs(self.low - self.centre), abs(self.high - self.centre))


Measure: TypeAlias = CountUnits | CountRows | CountValues | SumValues


def _in_quanta(value: Sql, kind: ColumnType, quantum: Fraction, low: int, high: int) -> Sql:
    match kind:
        case Double():
            held = clamp(finite(value), literal(low * quantum, kind), literal(high * quantum, kind))
            return cast(call("round", binary(held, "*", literal(1 / quantum, kind))), Integer())
        case Decimal():
            # Clamped first, so that the value fits into 18 digits before it is made whole.
            held = clamp(value, literal(low * quantum, kind), literal(high * quantum, kind))
            fitted = cast(held, Decimal(DECIMAL_DIGITS, kind.scale))
            return cast(binary(fitted, "*", integer(10**kind.scale)), Integer())
        case _:
            step = int(quantum)
            held = clamp(value, integer(low * step), integer(high * step))
            if step == 1:
                return held
            # x >> b rounds down; half a quantum more makes it round to the nearest.
            raised = binary(huge(held), "+", integer(step // 2))
            return cast(binary(raised, ">>", integer(step.bit_length() - 1)), Integer())


def quantum_for(kind: ColumnType, low: Fraction, high: Fraction) -> Fraction | None:
    """The value of one unit of a sum over [low, high]; None if the range is too wide to be summed exactly."""
    largest = max(abs(low), abs(high), Fraction(1, 2**60))
    if isinstance(kind, Decimal):
        quantum = Fraction(1, 10**kind.scale)
        return quantum if largest / quantum < 10**DECIMAL_DIGITS else None
    if isinstance(kind, Integer) and largest <= 2**EXACT_INTEGER_BITS:
        return Fraction(1)
    return Fraction(2) ** (_bits(largest) - ROW_BITS)


def _bits(value: Fraction) -> int:
    """The least b with value <= 2^b."""
    bits = value.numerator.bit_length() - value.denominator.bit_length() - 1
    while Fraction(2) ** bits < value:
        bits += 1
    return bits
