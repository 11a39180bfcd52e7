"""Measures: integers that are counted or summed over people, and receive noise.

A measure has three parts: what the engine computes for one unit in one group (`partial`), what of that counts if a unit
may add at most `rows` rows to a group (`bounded`), and the resulting sensitivity (`linf`). docs/proofs/bounding.md.

    COUNT(*)      n rows              ->  min(n, rows)                                 <= rows
    SUM(x)        n values, sum S     ->  S if n <= rows else S * rows / n, rounded    <= rows * max(|low|, |high|)
    with bounds per group             ->  the same, clamped to them                   <= their larger absolute value
    mean of a unit's values           ->  S / n, rounded, clamped to the bounds per group: as if rows were 1
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import isqrt
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from dpsql.engine_sql.build import (
    LONG,
    SHORT,
    WIDE,
    apply,
    cast,
    clamp,
    count,
    integer,
    short_total,
    test,
    total,
    when,
    wide,
)
from dpsql.engine_sql.tree import AggFunc, Alias, Case, Constant, Field
from dpsql.expressions.casts import LARGEST, LARGEST_BITS, ROW_BITS, clamps_column, decimal_of_quanta, in_fixed_point
from dpsql.schema.types import Integer

if TYPE_CHECKING:
    from dpsql.engine_sql.tree import Short, Term, Wide
    from dpsql.expressions.properties import Value
    from dpsql.expressions.tree import Expression, Known
    from dpsql.relation.relation import CrossUnitJoin
    from dpsql.schema.types import Decimal

MOST_ROWS = 2**20
"""Up to this many rows per group, sums of 32-bit values are scaled in 64 bits."""


@dataclass(frozen=True)
class CountUnits:
    """The number of units in a group."""

    def partial(self, name: str, values: str) -> list[Alias]:
        return []

    def bounded(self, name: str, rows: int) -> Term:
        return integer(1)

    def linf(self, rows: int) -> int:
        return 1


@dataclass(frozen=True)
class CountUnitsWith:
    """The number of units in a group that have a value."""

    argument: Expression

    def input(self, argument: Term) -> Term:
        return argument

    def partial(self, name: str, values: str) -> list[Alias]:
        return [Alias(count(Field(values)), name)]

    def bounded(self, name: str, rows: int) -> Term:
        return apply("least", Field(name), integer(1), kind=Integer())

    def linf(self, rows: int) -> int:
        return 1


class _Count:
    """The base class of counts of rows and counts of values."""

    most: int | None
    """A bound per unit that the aggregate itself carries."""

    def bounded(self, name: str, rows: int) -> Term:
        return apply("least", Field(name), integer(self.linf(rows)), kind=Integer())

    def linf(self, rows: int) -> int:
        return rows if self.most is None else min(rows, self.most)

    def reach(self, rows: int) -> tuple[int, int]:
        """The least and the most that a unit adds to a group in which it has rows."""
        return 0, self.linf(rows)

    def unclipped(self, rows: int) -> int:
        """The most that a unit could add without the bound that the aggregate carries."""
        return rows


@dataclass(frozen=True)
class CountRows(_Count):
    """The number of rows in a group."""

    most: int | None = None

    def partial(self, name: str, values: str) -> list[Alias]:
        return [Alias(count(), name)]

    def reach(self, rows: int) -> tuple[int, int]:
        return 1, self.linf(rows)


@dataclass(frozen=True)
class CountValues(_Count):
    """The number of non-NULL values in a group."""

    argument: Expression
    most: int | None = None

    def input(self, argument: Term) -> Term:
        return argument

    def partial(self, name: str, values: str) -> list[Alias]:
        return [Alias(count(Field(values)), name)]


@dataclass(frozen=True, kw_only=True)
class SumValues:
    """A sum in quanta: each value is clamped to [low, high] quanta and recentred at `centre`."""

    argument: Expression
    quantum: Fraction
    low: int
    high: int
    centre: int
    group: tuple[int, int] | None = None
    """Bounds in quanta for what a unit adds to a group; such a sum is not recentred."""
    null_is_zero: bool = False
    """Whether NULL counts as 0, so that there are as many values as rows."""
    mean: bool = False
    """Whether a unit adds the mean of its values, as if one row of it counted."""

    def input(self, argument: Term) -> Term:
        """One row's value, clamped: decimals unchanged, others in quanta. NULL, NaN and infinity become NULL."""
        if self.decimal is None:
            return self._in_quanta(argument, LONG)
        zero, low, high = (Constant(end * self.quantum, self.decimal) for end in (0, self.low, self.high))
        clamped = clamp(argument, low, high)
        return apply("coalesce", clamped, zero, kind=self.decimal) if self.null_is_zero else clamped

    def centred(self, argument: Term) -> Term:
        """One row's value in quanta, clamped and recentred, in as few bits as it needs."""
        value = self._in_quanta(argument, self.kind)
        return apply("-", value, integer(self.centre), kind=self.kind) if self.centre else value

    def _in_quanta(self, argument: Term, kind: Integer | Short) -> Term:
        fixed_point = in_fixed_point(argument, self.argument.type, self.quantum, self.low, self.high, kind)
        return apply("coalesce", fixed_point, integer(0), kind=kind) if self.null_is_zero else fixed_point

    @property
    def decimal(self) -> Decimal | None:
        """The decimal type, if decimals are summed directly and converted to quanta afterwards; else None."""
        return decimal_of_quanta(self.argument.type, self.quantum) if self.group is None else None

    @property
    def kind(self) -> Integer | Short:
        """The shortest integer type that holds a value before and after recentring."""
        ends = (self.low, self.high, self.low - self.centre, self.high - self.centre)
        return SHORT if max(map(abs, ends)) <= 2**ROW_BITS else LONG

    def total(self, values: Term) -> Term:
        """The sum of what `input` returns, in quanta. A computed value may have a wider type or none."""
        if self.decimal is None:
            return total(values)
        typed = values if values.kind == self.decimal else cast(values, self.decimal)
        return AggFunc("sum of quanta", (typed,), kind=WIDE)

    def sum_centred(self, values: Term) -> Term:
        """The same sum, recentred: minus the centre times the number of values."""
        if not self.centre:
            return self.total(values)
        centres = apply("*", wide(count(values)), integer(self.centre), kind=WIDE)
        return apply("-", self.total(values), centres, kind=WIDE)

    def clamps(self, known: Known) -> bool:
        """Whether this clamps a column at least as tightly as the scan, which may then leave it out."""
        return clamps_column(self.argument, known, self.quantum, self.low, self.high)

    def partial(self, name: str, values: str) -> list[Alias]:
        return [
            Alias(short_total(Field(values)) if self.kind == SHORT else total(Field(values)), name),
            # NULL counts as 0 there: the rows are counted anyway.
            Alias(count() if self.null_is_zero else count(Field(values)), f"{name}_count"),
        ]

    def kept(self, name: str, rows: int) -> Term:
        """The expectation of keeping `rows` random rows, without the randomness; rounded half away from zero.

        S rows / n, by the whole part of S / n and the rest, so that 32-bit values need no more than 64 bits.
        """
        kind, rows = self._kept_kind(rows), 1 if self.mean else rows
        summed = Field(name, kind=LONG) if kind == LONG else wide(Field(name))
        values = Field(f"{name}_count", kind=LONG)
        # An engine may divide before it asks for the count; of zero rows there is no sum to be scaled.
        number = apply("greatest", values, integer(1), kind=LONG)
        whole, rest = (apply(part, summed, number, kind=kind) for part in ("//", "%"))
        half = when(test(">=", summed, integer(0)), values, apply("negate", values, kind=LONG))
        doubled = apply("+", apply("*", rest, integer(2 * rows), kind=kind), half, kind=kind)
        rounded = apply("//", doubled, apply("*", integer(2), number, kind=LONG), kind=kind)
        scaled = apply("+", apply("*", whole, integer(rows), kind=kind), rounded, kind=kind)
        return when(test("<=", values, integer(rows)), summed, scaled)

    def _kept_kind(self, rows: int) -> Integer | Wide:
        """The shortest integer type for `kept` and all intermediate results."""
        return LONG if self.kind == SHORT and rows <= MOST_ROWS else WIDE

    def bounded(self, name: str, rows: int) -> Term:
        kept = self.kept(name, rows)
        if self.group is None:
            return apply("coalesce", kept, integer(0), kind=self._kept_kind(rows))
        held = when(test(">", Field(f"{name}_count"), integer(0)), self.clamped(kept, rows))
        return apply("coalesce", held, integer(0), kind=WIDE)

    def clamped(self, summed: Term, rows: int) -> Term:
        """A total, clamped to the bounds of the group."""
        low, high = self.reach(rows)
        if self.group is None:
            return summed
        return apply("least", apply("greatest", summed, integer(low), kind=WIDE), integer(high), kind=WIDE)

    def reach(self, rows: int) -> tuple[int, int]:
        """The least and the most that a unit adds to a group in which it has values."""
        low, high = (min(self.low, 0), max(self.high, 0)) if self.null_is_zero else (self.low, self.high)
        low, high = low - self.centre, high - self.centre
        rows = 1 if self.mean else rows
        low, high = min(low, rows * low), max(high, rows * high)
        if self.group is None:
            return low, high
        first, last = self.group
        return min(max(low, first), last), min(max(high, first), last)

    def linf(self, rows: int) -> int:
        return max(map(abs, self.reach(rows)))

    def unclipped(self, rows: int) -> int:
        return replace(self, group=None).linf(rows)


@dataclass(frozen=True)
class UnitsBeyond:
    """The number of units that would add more to a group than the bound of `inner` allows (aggregates/count_sum.py)."""

    inner: CountRows | CountValues | SumValues

    def partial(self, name: str, values: str) -> list[Alias]:
        return self.inner.partial(name, values)

    def bounded(self, name: str, rows: int) -> Term:
        if isinstance(self.inner, SumValues):
            return self.outside(self.inner.kept(name, rows), rows)
        return when(test(">", Field(name), integer(self.inner.linf(rows))), integer(1), integer(0))

    def outside(self, summed: Term, rows: int) -> Term:
        """1 if the total exceeds the bound; a NULL total does not."""
        assert isinstance(self.inner, SumValues)
        assert self.inner.decimal is None
        low, high = self.inner.reach(rows)
        moved = test("or", test("<", summed, integer(low)), test(">", summed, integer(high)))
        return when(moved, integer(1), integer(0))

    def linf(self, rows: int) -> int:
        return 1


@dataclass(frozen=True)
class Recentred:
    """A contribution, recentred at the midpoint of its range; doubled, if the midpoint is a half.

    The inner measure is this plus the middle times the number of units: one that is counted anyway takes a part of
    the inner measure's noise upon itself. docs/proofs/weights.md.
    """

    inner: CountRows | CountValues | SumValues

    def times(self, rows: int) -> int:
        """The factor of the recentred measure: sums have quanta so fine that half of one does not matter."""
        return 1 if isinstance(self.inner, SumValues) else 1 + sum(self._ends(rows)) % 2

    def middle(self, rows: int) -> int:
        """The midpoint, in quanta of this measure."""
        return self.times(rows) * sum(self._ends(rows)) // 2

    def _ends(self, rows: int) -> tuple[int, int]:
        """The range of the recentred contribution, which includes that of a unit without values."""
        low, high = self.inner.reach(rows)
        return (low, high) if isinstance(self.inner, CountRows) else (min(low, 0), max(high, 0))

    def partial(self, name: str, values: str) -> list[Alias]:
        return self.inner.partial(name, values)

    def bounded(self, name: str, rows: int) -> Term:
        """A contribution and its midpoint fit into 64 bits if the inner one does."""
        summed = self.inner.bounded(name, rows)
        if summed.kind != LONG:
            return self.moved(summed, integer(1), rows)
        times = self.times(rows)
        multiplied = summed if times == 1 else apply("*", summed, integer(times), kind=LONG)
        return apply("-", multiplied, integer(self.middle(rows)), kind=LONG)

    def moved(self, summed: Term, units: Term, rows: int) -> Term:
        """The recentred total of a number of units."""
        middle = apply("*", wide(units), integer(self.middle(rows)), kind=WIDE)
        return apply("-", apply("*", wide(summed), integer(self.times(rows)), kind=WIDE), middle, kind=WIDE)

    def linf(self, rows: int) -> int:
        low, high = (self.times(rows) * end - self.middle(rows) for end in self._ends(rows))
        return max(-low, high)


@dataclass(frozen=True)
class Disjoint:
    """A disjoint measure: of all values of its bundle together, at most `rows` per unit and group count.

    Where a unit has more of them, each measure keeps its part of `rows`, cut off towards zero on a finer grid, so that
    in every norm a unit moves the bundle no further than `rows` values of one case do. docs/proofs/exclusive.md.
    """

    inner: CountValues | SumValues
    bundle: int
    case: int
    finer: int
    """The number of quanta of this column per quantum of the inner measure."""

    def partial(self, name: str, values: str) -> list[Alias]:
        return self.inner.partial(name, values)

    def number(self, name: str) -> Term:
        """The number of values, from the partials."""
        return Field(name if isinstance(self.inner, CountValues) else f"{name}_count", kind=Integer())

    def bounded(self, name: str, rows: int) -> Term:
        values, summed = Field(self.values_of_bundle, kind=WIDE), wide(Field(name))
        whole = apply("*", summed, integer(self.finer), kind=WIDE)
        divisor = apply("greatest", values, wide(integer(1)), kind=WIDE)
        part = apply("//", apply("*", summed, integer(self.finer * rows), kind=WIDE), divisor, kind=WIDE)
        kept = when(test("<=", values, integer(rows)), whole, part)
        return apply("coalesce", kept, integer(0), kind=WIDE)

    @property
    def values_of_bundle(self) -> str:
        """The name of the column with the number of values of the whole bundle."""
        return f"_values{self.bundle}"

    @property
    def case_of_row(self) -> str:
        """The name of the column with the case of a row."""
        return f"_case{self.bundle}"

    def linf(self, rows: int) -> int:
        return self.finer * self.inner.linf(rows)


@dataclass(frozen=True)
class ClippedInL2:
    """An L2-clipped contribution: a unit in more than `groups` groups is scaled down in all of them, so that its L2
    norm is that of `groups` groups. docs/proofs/l2_clipping.md.
    """

    inner: CountUnits | CountUnitsWith | CountRows | CountValues | SumValues | Recentred
    groups: int
    all_groups: int
    """The number of all groups, which are public."""
    finer: int
    """The number of quanta of this column per quantum of the inner measure."""

    def partial(self, name: str, values: str) -> list[Alias]:
        return self.inner.partial(name, values)

    def bounded(self, name: str, rows: int) -> Term:
        """The scaled contribution, in 64 bits if the product fits: 128-bit division is ten times slower."""
        inner = self.inner.bounded(name, rows)
        kind = LONG if inner.kind != WIDE and (self.linf(rows) * WHOLE).bit_length() <= LARGEST_BITS else WIDE
        value, scale = (cast(part, kind) for part in (inner, Field(SCALE)))
        times = apply("*", scale, integer(self.finer), kind=kind)
        return apply("//", apply("*", value, times, kind=kind), integer(WHOLE), kind=kind)

    def scale(self, reached: Term) -> Term:
        """The scale, as a fraction of WHOLE, of a unit that is in `reached` groups."""
        steps = ((test("<=", reached, integer(most)), integer(part)) for most, part in self.histogram)
        return Case(tuple(steps), integer(0))

    @property
    def histogram(self) -> list[tuple[int, int]]:
        """Steps of the scale: for up to `most` groups, the largest part with part^2 * most <= WHOLE^2 * groups."""
        # More than there are may be seen where keys are not looked up in their list before units are counted.
        last, ends = 2 * self.all_groups + 1, [self.groups]
        while ends[-1] < last:
            ends.append(min(last, max(ends[-1] + 1, ends[-1] * STEP.numerator // STEP.denominator)))
        return [(most, isqrt(WHOLE * WHOLE * self.groups // most)) for most in ends]

    def linf(self, rows: int) -> int:
        return self.finer * self.inner.linf(rows)


SCALE = "_scale"
WHOLE = 1 << 20
STEP = Fraction(17, 16)
"""The ratio between steps of the scale: within a step, all numbers of groups are scaled alike."""


@dataclass(frozen=True)
class DownWeighted:
    """A down-weighted contribution: each row of a unit with n > `most` rows in total counts most / n, rounded towards
    zero on a finer grid. docs/proofs/light_units.md.
    """

    inner: CountRows | CountValues | SumValues | Disjoint
    most: int
    finer: int
    """The number of quanta of this column per quantum of the inner measure."""

    def linf(self, rows: int) -> int:
        return self.finer * self.inner.linf(rows)


@dataclass(frozen=True)
class OverDistinct:
    """A count or sum over the distinct values of `base` in a group; one unit may add at most `rows` of them.

    The distinct values are the union of what the units bring, so one unit adds or takes at most its own `rows`.
    """

    base: Expression
    inner: CountValues | SumValues

    def linf(self, rows: int) -> int:
        return self.inner.linf(rows)


ByUnit: TypeAlias = (
    CountUnits | CountUnitsWith | CountRows | CountValues | SumValues | Recentred | UnitsBeyond | Disjoint | ClippedInL2
)
"""The measures that are sums of per-unit contributions."""
Measure: TypeAlias = ByUnit | DownWeighted | OverDistinct
Input: TypeAlias = CountUnitsWith | CountValues | SumValues
"""The measures that read a value of every row."""


def read_by(measure: ByUnit | DownWeighted) -> Input | None:
    """The innermost measure, if it reads a value of every row; else None."""
    if isinstance(measure, ClippedInL2 | DownWeighted):
        return read_by(measure.inner)
    part = measure.inner if isinstance(measure, UnitsBeyond | Recentred | Disjoint) else measure
    return part if isinstance(part, CountUnitsWith | CountValues | SumValues) else None


# -- from middle -------------------------------------------------------------------------------------------------------
# A count or sum, recentred by the number of units if the release measures that anyway.
#
# A unit that has rows in a group adds 1 to `rows` of them, so it moves  rows - (1 + rows)/2 * units  by no more than
# half of that range. At the right parts of the budget the count has no more noise than it would have alone, and the
# number of units comes free. docs/proofs/weights.md.


def midpoint_shift(measure: Measure, rows: int) -> tuple[tuple[Measure, Fraction], ...]:
    """The measure as a weighted sum of a recentred measure and the number of units."""
    if not isinstance(measure, CountRows | CountValues | SumValues) or _is_centred(measure):
        return ((measure, Fraction(1)),)
    centred = Recentred(measure)
    worth = Fraction(1, centred.times(rows))
    units = CountUnits(), worth * centred.middle(rows)
    return ((centred, worth), units) if centred.linf(rows) else (units,)


def _is_centred(measure: CountRows | CountValues | SumValues) -> bool:
    return isinstance(measure, SumValues) and (measure.centre != 0 or measure.low + measure.high == 0)


# -- statistic ---------------------------------------------------------------------------------------------------------
# Statistics: functions of a group's values that are not sums over people.
#
# One unit can move a median across the whole range, so additive noise does not help. The engine describes each group by
# a *profile* (values around a rank, counts of values, a sum and a count), and a mechanism draws the answer from it:
# exponential, smooth, propose-test-release, stable. Values are whole numbers of a public grid throughout.


@dataclass(frozen=True)
class Grid:
    """The points low, low + 1, ..., high of a public grid, each worth `quantum`."""

    quantum: Fraction
    low: int
    high: int


@dataclass(frozen=True)
class Quantile:
    """A quantile. Its profile is the distinct values around the rank, their counts, and the number of values below."""

    argument: Expression
    grid: Grid
    fraction: Fraction

    parts: ClassVar[tuple[str, ...]] = ("points", "counts", "below", "rows")

    @property
    def is_extreme(self) -> bool:
        """Whether it is MIN or MAX. The extreme of all rows is that of every unit's own, one value each."""
        return self.fraction in (0, 1)


@dataclass(frozen=True)
class Mode:
    """The mode of public values. Its profile is the count of each value."""

    argument: Expression
    values: tuple[Value, ...]
    parts: ClassVar[tuple[str, ...]] = ("points", "counts")


@dataclass(frozen=True)
class Average:
    """The mean, where its noise shall follow the number of rows.

    Its profile is that number, and what the sum of the values, counted from the lowest, is divided by it: the whole
    part and the rest. The sum itself might leave 64 bits.
    """

    argument: Expression
    grid: Grid
    """The grid of the answer, which is finer than the grid of the values."""
    finer: int
    """Steps of the answer per step of the values."""
    parts: ClassVar[tuple[str, ...]] = ("whole", "rest", "rows")


@dataclass(frozen=True)
class Matched:
    """The number of matching pairs of rows of different people, or the sum of a value over these pairs.

    One unit has at most `left_rows` and `right_rows`; its profile is the total, and how often the most frequent key
    occurs on either side.
    """

    across: CrossUnitJoin
    measure: CountRows | CountValues | SumValues
    left_rows: int
    right_rows: int
    groups: int
    """The number of groups, all of which one unit can change."""
    parts: ClassVar[tuple[str, ...]] = ("total", "left", "right")

    @property
    def grid(self) -> Grid:
        """The grid of the answer, bounded only by the range of sums that leave the engine."""
        quantum = self.measure.quantum if isinstance(self.measure, SumValues) else Fraction(1)
        return Grid(quantum, -LARGEST, LARGEST)


Statistic: TypeAlias = Quantile | Mode | Average | Matched
