"""Measures: the integers that are counted or summed over people, and get noise.

A measure knows three things. What the engine computes of a column of values for one unit in one group (`partial`), what
of that may count when a unit may bring at most `rows` rows to a group (`bounded`), and how large that can be (`linf`).
The proof is in docs/proofs/bounding.md.

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
from dpsql.engine_sql.tree import Case, Constant, Field, Fold, Named
from dpsql.expressions.casts import LARGEST, LARGEST_BITS, ROW_BITS, clamps_column, decimal_of_quanta, in_fixed_point
from dpsql.schema.types import Integer

if TYPE_CHECKING:
    from dpsql.engine_sql.tree import Short, Term, Wide
    from dpsql.expressions.properties import Value
    from dpsql.expressions.tree import Expression, Known
    from dpsql.relation.relation import CrossUnitJoin
    from dpsql.schema.types import Decimal

MOST_ROWS = 2**20
"""Where no more rows count, sums of 32-bit values are scaled in 64 bits."""


@dataclass(frozen=True)
class CountUnits:
    """How many units a group has."""

    def partial(self, name: str, values: str) -> list[Named]:
        return []

    def bounded(self, name: str, rows: int) -> Term:
        return integer(1)

    def linf(self, rows: int) -> int:
        return 1


@dataclass(frozen=True)
class CountUnitsWith:
    """How many units of a group have a value that is not NULL."""

    argument: Expression

    def input(self, argument: Term) -> Term:
        return argument

    def partial(self, name: str, values: str) -> list[Named]:
        return [Named(count(Field(values)), name)]

    def bounded(self, name: str, rows: int) -> Term:
        return apply("least", Field(name), integer(1), kind=Integer())

    def linf(self, rows: int) -> int:
        return 1


class _Count:
    """What counts of rows and of values have in common."""

    most: int | None
    """A unit counts for at most so many, if the aggregate says so itself."""

    def bounded(self, name: str, rows: int) -> Term:
        return apply("least", Field(name), integer(self.linf(rows)), kind=Integer())

    def linf(self, rows: int) -> int:
        return rows if self.most is None else min(rows, self.most)

    def reach(self, rows: int) -> tuple[int, int]:
        """The least and the most that a unit with rows in a group adds to it."""
        return 0, self.linf(rows)

    def unclipped(self, rows: int) -> int:
        """What a unit could add if the aggregate had no bound of its own."""
        return rows


@dataclass(frozen=True)
class CountRows(_Count):
    """How many rows a group has."""

    most: int | None = None

    def partial(self, name: str, values: str) -> list[Named]:
        return [Named(count(), name)]

    def reach(self, rows: int) -> tuple[int, int]:
        return 1, self.linf(rows)


@dataclass(frozen=True)
class CountValues(_Count):
    """How many values that are not NULL a group has."""

    argument: Expression
    most: int | None = None

    def input(self, argument: Term) -> Term:
        return argument

    def partial(self, name: str, values: str) -> list[Named]:
        return [Named(count(Field(values)), name)]


@dataclass(frozen=True, kw_only=True)
class SumValues:
    """The sum of values in whole quanta, each clamped to [low, high] quanta and counted from `centre`."""

    argument: Expression
    quantum: Fraction
    low: int
    high: int
    centre: int
    group: tuple[int, int] | None = None
    """What a unit adds to a group is clamped to these quanta; then nothing is counted from the middle."""
    null_is_zero: bool = False
    """Whether a row without a value counts as a value of 0, so that there are as many values as rows."""
    mean: bool = False
    """Whether a unit adds the mean of its values, which is what is left of them where one row counts."""

    def input(self, argument: Term) -> Term:
        """One row's value, clamped: a decimal as it is, else whole quanta. NULL, NaN and infinity are no values."""
        if self.decimal is None:
            return self._in_quanta(argument, LONG)
        zero, low, high = (Constant(end * self.quantum, self.decimal) for end in (0, self.low, self.high))
        clamped = clamp(argument, low, high)
        return apply("coalesce", clamped, zero, kind=self.decimal) if self.null_is_zero else clamped

    def centred(self, argument: Term) -> Term:
        """One row's value as whole quanta, counted from the centre, in as few bits as it needs."""
        value = self._in_quanta(argument, self.kind)
        return apply("-", value, integer(self.centre), kind=self.kind) if self.centre else value

    def _in_quanta(self, argument: Term, kind: Integer | Short) -> Term:
        fixed_point = in_fixed_point(argument, self.argument.type, self.quantum, self.low, self.high, kind)
        return apply("coalesce", fixed_point, integer(0), kind=kind) if self.null_is_zero else fixed_point

    @property
    def decimal(self) -> Decimal | None:
        """The type of the values where they are decimals that are summed as they are, and counted in quanta then."""
        return decimal_of_quanta(self.argument.type, self.quantum) if self.group is None else None

    @property
    def kind(self) -> Integer | Short:
        """The shortest that holds a value, whether or not it is counted from the centre yet."""
        ends = (self.low, self.high, self.low - self.centre, self.high - self.centre)
        return SHORT if max(map(abs, ends)) <= 2**ROW_BITS else LONG

    def total(self, values: Term) -> Term:
        """The sum of what `input` gives, in quanta. A value that is computed may be of no kind, or of a wider one."""
        if self.decimal is None:
            return total(values)
        typed = values if values.kind == self.decimal else cast(values, self.decimal)
        return Fold("sum of quanta", (typed,), kind=WIDE)

    def sum_centred(self, values: Term) -> Term:
        """The same with each value counted from the centre: so many centres less."""
        if not self.centre:
            return self.total(values)
        centres = apply("*", wide(count(values)), integer(self.centre), kind=WIDE)
        return apply("-", self.total(values), centres, kind=WIDE)

    def clamps(self, known: Known) -> bool:
        """Whether the argument is a column that this clamps at least as much as its scan does."""
        return clamps_column(self.argument, known, self.quantum, self.low, self.high)

    def partial(self, name: str, values: str) -> list[Named]:
        return [
            Named(short_total(Field(values)) if self.kind == SHORT else total(Field(values)), name),
            # NULL counts as 0 there: the rows are counted anyway.
            Named(count() if self.null_is_zero else count(Field(values)), f"{name}_count"),
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
        """The shortest that holds what is kept of a sum, and all that is computed on the way there."""
        return LONG if self.kind == SHORT and rows <= MOST_ROWS else WIDE

    def bounded(self, name: str, rows: int) -> Term:
        kept = self.kept(name, rows)
        if self.group is None:
            return apply("coalesce", kept, integer(0), kind=self._kept_kind(rows))
        held = when(test(">", Field(f"{name}_count"), integer(0)), self.clamped(kept, rows))
        return apply("coalesce", held, integer(0), kind=WIDE)

    def clamped(self, summed: Term, rows: int) -> Term:
        """A total that is not NULL, moved into the bounds of the group."""
        low, high = self.reach(rows)
        if self.group is None:
            return summed
        return apply("least", apply("greatest", summed, integer(low), kind=WIDE), integer(high), kind=WIDE)

    def reach(self, rows: int) -> tuple[int, int]:
        """The least and the most that a unit with values adds to a group."""
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
    """How many units would add more to a group than the bound of `inner` lets them (aggregates/count_sum.py)."""

    inner: CountRows | CountValues | SumValues

    def partial(self, name: str, values: str) -> list[Named]:
        return self.inner.partial(name, values)

    def bounded(self, name: str, rows: int) -> Term:
        if isinstance(self.inner, SumValues):
            return self.outside(self.inner.kept(name, rows), rows)
        return when(test(">", Field(name), integer(self.inner.linf(rows))), integer(1), integer(0))

    def outside(self, summed: Term, rows: int) -> Term:
        """1 where the total would be moved; NULL, a sum of nothing, is not."""
        assert isinstance(self.inner, SumValues)
        assert self.inner.decimal is None
        low, high = self.inner.reach(rows)
        moved = test("or", test("<", summed, integer(low)), test(">", summed, integer(high)))
        return when(moved, integer(1), integer(0))

    def linf(self, rows: int) -> int:
        return 1


@dataclass(frozen=True)
class Centred:
    """What a unit adds to a group, counted from the middle of what it can add; twice, where that is a half.

    The inner measure is this plus the middle times the number of units: one that is counted anyway takes a part of
    the inner measure's noise upon itself. docs/proofs/weights.md.
    """

    inner: CountRows | CountValues | SumValues

    def times(self, rows: int) -> int:
        """Sums are of quanta so fine that half of one does not matter."""
        return 1 if isinstance(self.inner, SumValues) else 1 + sum(self._ends(rows)) % 2

    def middle(self, rows: int) -> int:
        """In the units of this measure."""
        return self.times(rows) * sum(self._ends(rows)) // 2

    def _ends(self, rows: int) -> tuple[int, int]:
        """A unit that has no values adds nothing, which is one of the things that it can add."""
        low, high = self.inner.reach(rows)
        return (low, high) if isinstance(self.inner, CountRows) else (min(low, 0), max(high, 0))

    def partial(self, name: str, values: str) -> list[Named]:
        return self.inner.partial(name, values)

    def bounded(self, name: str, rows: int) -> Term:
        """What one unit adds fits into 64 bits together with the middle of it, if it does so itself."""
        summed = self.inner.bounded(name, rows)
        if summed.kind != LONG:
            return self.moved(summed, integer(1), rows)
        times = self.times(rows)
        multiplied = summed if times == 1 else apply("*", summed, integer(times), kind=LONG)
        return apply("-", multiplied, integer(self.middle(rows)), kind=LONG)

    def moved(self, summed: Term, units: Term, rows: int) -> Term:
        """What so many units add together, counted from the middle."""
        middle = apply("*", wide(units), integer(self.middle(rows)), kind=WIDE)
        return apply("-", apply("*", wide(summed), integer(self.times(rows)), kind=WIDE), middle, kind=WIDE)

    def linf(self, rows: int) -> int:
        low, high = (self.times(rows) * end - self.middle(rows) for end in self._ends(rows))
        return max(-low, high)


@dataclass(frozen=True)
class OneOf:
    """A count or sum of a bundle whose values exclude each other: of all its values together at most `rows` count.

    Where a unit has more of them, each measure keeps its part of `rows`, cut off towards zero on a finer grid, so that
    in every norm a unit moves the bundle no further than `rows` values of one case do. docs/proofs/exclusive.md.
    """

    inner: CountValues | SumValues
    bundle: int
    case: int
    finer: int
    """How many of the column's units are one of the inner measure's."""

    def partial(self, name: str, values: str) -> list[Named]:
        return self.inner.partial(name, values)

    def number(self, name: str) -> Term:
        """How many values it has, by its partials."""
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
        """The column with the number of all values of the bundle."""
        return f"_values{self.bundle}"

    @property
    def case_of_row(self) -> str:
        """The column with the case that a row is of."""
        return f"_case{self.bundle}"

    def linf(self, rows: int) -> int:
        return self.finer * self.inner.linf(rows)


@dataclass(frozen=True)
class Scaled:
    """What a unit adds to a group, in full if it is in at most `groups` groups, and else such a part of it that all of
    its groups together are no longer, in L2, than `groups` of them. docs/proofs/l2_clipping.md.
    """

    inner: CountUnits | CountUnitsWith | CountRows | CountValues | SumValues | Centred
    groups: int
    all_groups: int
    """How many there are: all are public."""
    finer: int
    """How many of the column's units are one of the inner measure's."""

    def partial(self, name: str, values: str) -> list[Named]:
        return self.inner.partial(name, values)

    def bounded(self, name: str, rows: int) -> Term:
        """In 64 bits where these hold the product: 128 are divided ten times as slowly."""
        inner = self.inner.bounded(name, rows)
        kind = LONG if inner.kind != WIDE and (self.linf(rows) * WHOLE).bit_length() <= LARGEST_BITS else WIDE
        value, scale = (cast(part, kind) for part in (inner, Field(SCALE)))
        times = apply("*", scale, integer(self.finer), kind=kind)
        return apply("//", apply("*", value, times, kind=kind), integer(WHOLE), kind=kind)

    def scale(self, reached: Term) -> Term:
        """Which part of WHOLE is kept of a unit that is in so many groups."""
        steps = ((test("<=", reached, integer(most)), integer(part)) for most, part in self.ladder)
        return Case(tuple(steps), integer(0))

    @property
    def ladder(self) -> list[tuple[int, int]]:
        """Up to how many groups which part: the largest whole one with part^2 * most <= WHOLE^2 * groups."""
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
"""Where units may be in many groups, some numbers of groups are treated alike."""


@dataclass(frozen=True)
class Parted:
    """What rows add, each of them in full if its unit has at most `most` rows in all, and else for the part most / n of
    n rows, cut off towards zero on a finer grid. docs/proofs/few_rows.md.
    """

    inner: CountRows | CountValues | SumValues | OneOf
    most: int
    finer: int
    """How many of the column's units are one of the inner measure's."""

    def linf(self, rows: int) -> int:
        return self.finer * self.inner.linf(rows)


@dataclass(frozen=True)
class OverDistinct:
    """A count or sum over the distinct values of `base` in a group, of which a unit may bring at most `rows`.

    The distinct values are the union of what the units bring, so one unit adds or takes at most its own `rows`.
    """

    base: Expression
    inner: CountValues | SumValues

    def linf(self, rows: int) -> int:
        return self.inner.linf(rows)


ByUnit: TypeAlias = (
    CountUnits | CountUnitsWith | CountRows | CountValues | SumValues | Centred | UnitsBeyond | OneOf | Scaled
)
"""Measures that are sums of what each unit contributes."""
Measure: TypeAlias = ByUnit | Parted | OverDistinct
Input: TypeAlias = CountUnitsWith | CountValues | SumValues
"""Those that read a value of every row."""


def read_by(measure: ByUnit | Parted) -> Input | None:
    """The part of a measure that reads a value of every row, if it does."""
    if isinstance(measure, Scaled | Parted):
        return read_by(measure.inner)
    part = measure.inner if isinstance(measure, UnitsBeyond | Centred | OneOf) else measure
    return part if isinstance(part, CountUnitsWith | CountValues | SumValues) else None


# -- from middle -------------------------------------------------------------------------------------------------------
# A count or sum of which the number of units, where that is counted anyway, bears a part.
#
# A unit that has rows in a group adds 1 to `rows` of them, so it moves  rows - (1 + rows)/2 * units  by no more than
# half of that range. At the right parts of the budget the count has no more noise than it would have alone, and the
# number of units comes free. docs/proofs/weights.md.


def from_middle(measure: Measure, rows: int) -> tuple[tuple[Measure, Fraction], ...]:
    """The measures, with weights, of which it is the sum."""
    if not isinstance(measure, CountRows | CountValues | SumValues) or _is_centred(measure):
        return ((measure, Fraction(1)),)
    centred = Centred(measure)
    worth = Fraction(1, centred.times(rows))
    units = CountUnits(), worth * centred.middle(rows)
    return ((centred, worth), units) if centred.linf(rows) else (units,)


def _is_centred(measure: CountRows | CountValues | SumValues) -> bool:
    return isinstance(measure, SumValues) and (measure.centre != 0 or measure.low + measure.high == 0)


# -- statistic ---------------------------------------------------------------------------------------------------------
# Statistics: what is taken of a group's values as a whole, and is no sum over people.
#
# One unit can move a median across the whole range, so no fixed noise fits it. The engine describes the group by a
# *profile* (the values around a rank, how often each value occurs, a sum and a count), and a mechanism draws the answer
# from it: exponential, smooth, propose-test-release, stable. Values are whole numbers of a public grid throughout.


@dataclass(frozen=True)
class Grid:
    """The points low, low + 1, ..., high, each worth `quantum`."""

    quantum: Fraction
    low: int
    high: int


@dataclass(frozen=True)
class Quantile:
    """The value at a rank; its profile is the distinct values around it, how often each occurs, and what is below."""

    argument: Expression
    grid: Grid
    fraction: Fraction

    parts: ClassVar[tuple[str, ...]] = ("points", "counts", "below", "rows")


@dataclass(frozen=True)
class Mode:
    """The most frequent of some public values; its profile is how often each occurs."""

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
    """Of the answer, which is finer than that of the values."""
    finer: int
    """So many steps of the answer are one of the values."""
    parts: ClassVar[tuple[str, ...]] = ("whole", "rest", "rows")


@dataclass(frozen=True)
class Matched:
    """How many pairs of rows of different people match, or the sum of a value over them.

    One unit has at most `left_rows` and `right_rows`; its profile is the total, and how often the most frequent key
    occurs on either side.
    """

    across: CrossUnitJoin
    measure: CountRows | CountValues | SumValues
    left_rows: int
    right_rows: int
    groups: int
    """There are no more than so many, and one unit can change all of them."""
    parts: ClassVar[tuple[str, ...]] = ("total", "left", "right")

    @property
    def grid(self) -> Grid:
        """Of the answer, whose only range is that of sums which leave the engine."""
        quantum = self.measure.quantum if isinstance(self.measure, SumValues) else Fraction(1)
        return Grid(quantum, -LARGEST, LARGEST)


Statistic: TypeAlias = Quantile | Mode | Average | Matched
