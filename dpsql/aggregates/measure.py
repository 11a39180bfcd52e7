"""Measures: the integers that are counted or summed over people, and get noise.

A measure knows three things. What the engine computes for one unit in one group (`partial`), what of that may count
when a unit may bring at most `rows` rows to a group (`bounded`), and how large that can be (`linf`). The proof is in
docs/proofs/bounding.md.

    COUNT(*)      n rows              ->  min(n, rows)                                 <= rows
    SUM(x)        n values, sum S     ->  S if n <= rows else S * rows / n, rounded    <= rows * max(|low|, |high|)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from dpsql.expressions.quanta import in_quanta
from dpsql.expressions.write import Sql, binary, call, column, integer, named, when

if TYPE_CHECKING:
    from fractions import Fraction

    from dpsql.expressions.tree import Expression


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
        quanta = in_quanta(argument, self.argument.type, self.quantum, self.low, self.high)
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


@dataclass(frozen=True)
class OverDistinct:
    """A count or sum over the distinct values of `base` in a group, of which a unit may bring at most `rows`.

    The distinct values are the union of what the units bring, so one unit adds or takes at most its own `rows`.
    """

    base: Expression
    inner: CountValues | SumValues

    def linf(self, rows: int) -> int:
        return self.inner.linf(rows)


ByUnit: TypeAlias = CountUnits | CountRows | CountValues | SumValues
"""Measures that are sums of what each unit contributes."""
Measure: TypeAlias = ByUnit | OverDistinct
