"""The ladders on which a query finds its own bounds, as questions about the same rows.

    rows     the most rows that a unit has in a group
    groups   how many groups a unit has rows in
    values   the largest of a unit's values, on either side of an origin

Every unit stands on one step of a ladder, so one unit moves one count by one, whatever it has. What is found from the
noisy counts is found after the release. docs/proofs/found_bounds.md.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.expressions.hold import held, hold_ends
from dpsql.expressions.table import FUNCTIONS
from dpsql.expressions.tree import Call, Column
from dpsql.relation.diagnosis import GROUPS, MOST, ROWS, call_of, number, step_of, whole
from dpsql.relation.relation import Aggregate, PerUnit, Sought
from dpsql.schema.types import Boolean, Decimal, Integer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpsql.expressions.tree import Expression
    from dpsql.schema.types import ColumnType

MOST_ROWS = 1 << 16
"""More rows of a unit in a group, or more groups of it, are not looked for."""
DOUBLINGS = 48
"""Clips are looked for from 2^-48 of the widest range on."""
WIDEST = 2**40
"""Numbers without a declared range are looked for within this on either side."""
MOST_BITS = 62
LARGEST, SMALLEST = "_largest", "_smallest"


def ladder_of_rows(aggregate: Aggregate, release: int, most: int | None) -> Aggregate:
    return _counted(aggregate, whole(MOST), Sought(release=release, what="rows", steps=_numbers(most)))


def ladder_of_groups(aggregate: Aggregate, release: int, most: int | None) -> Aggregate:
    return _counted(aggregate, whole(GROUPS), Sought(release=release, what="groups", steps=_numbers(most)))


def ladder_of_values(
    aggregate: Aggregate, release: int, value: Expression, limits: tuple[Fraction, Fraction]
) -> Aggregate:
    within = held(value, limits)
    calls = ((LARGEST, call_of("MAX", within)), (SMALLEST, call_of("MIN", within)))
    by_unit = PerUnit(aggregate.source, (), calls, by_unit_alone=True)
    sought = Sought(release=release, what="values", steps=_clips(value.type, limits), value=value, limits=limits)
    key = Call(FUNCTIONS["CASE"], (*_branches(sought, value.type), number(0)), Integer())
    return Aggregate(source=by_unit, keys=(key,), calls=(call_of("COUNT"),), grouped=True, sought=sought)


def limits_of(kind: ColumnType, low: object, high: object) -> tuple[Fraction, Fraction]:
    """How far a value can reach at most: its range, or else a public number, in digits that the type can write."""
    unit, most = Fraction(1), Fraction(2**MOST_BITS)
    if isinstance(kind, Decimal):
        unit, most = Fraction(1, 10**kind.scale), Fraction(10**kind.precision - 1, 10**kind.scale)
    ends = [Fraction(end) if isinstance(end, int | Fraction) else None for end in (low, high)]
    if isinstance(kind, Integer | Decimal):
        ends = [end and round_(end / unit) * unit for end, round_ in zip(ends, (math.floor, math.ceil), strict=True)]
    widest = min(most, Fraction(WIDEST))
    first = -widest if ends[0] is None else min(max(ends[0], -most), most)
    last = widest if ends[1] is None else min(max(ends[1], -most), most)
    return min(first, last), max(first, last)


def _counted(aggregate: Aggregate, value: Expression, sought: Sought) -> Aggregate:
    keys = tuple((f"_d{place}", key) for place, key in enumerate(aggregate.keys))
    by_group = PerUnit(aggregate.source, keys, ((ROWS, call_of("COUNT")),), by_unit_alone=not keys)
    folded = ((MOST, call_of("MAX", whole(ROWS))), (GROUPS, call_of("COUNT")))
    by_unit = PerUnit(by_group, (), folded, by_unit_alone=True)
    steps = [int(step) for step in sought.steps]
    key = step_of(value, steps, len(steps) - 1)
    return Aggregate(source=by_unit, keys=(key,), calls=(call_of("COUNT"),), grouped=True, sought=sought)


def _numbers(most: int | None) -> tuple[Fraction, ...]:
    """1, 2, 4, ..., and what a unit can have at most if that is known.

    >>> [int(step) for step in _numbers(6)]
    [1, 2, 4, 6]
    """
    last = MOST_ROWS if most is None else max(1, min(most, MOST_ROWS))
    return (*(Fraction(1 << step) for step in range((last - 1).bit_length())), Fraction(last))


def _clips(kind: ColumnType, limits: tuple[Fraction, Fraction]) -> tuple[Fraction, ...]:
    """Powers of two below the longer side of the range, as the type can write them, and that side itself."""
    origin = min(max(Fraction(0), limits[0]), limits[1])
    widest = max(limits[1] - origin, origin - limits[0])
    if not widest:
        return (Fraction(1),)
    unit = Fraction(1, 10**kind.scale) if isinstance(kind, Decimal) else Fraction(isinstance(kind, Integer))
    top = Fraction(2) ** math.floor(math.log2(widest))
    halves = [top / 2**doubling for doubling in range(DOUBLINGS)]
    written = {max(unit, step // unit * unit) if unit else step for step in halves}
    return tuple(sorted(step for step in written | {widest} if step <= widest))


def _branches(sought: Sought, kind: ColumnType) -> Iterator[Expression]:
    """The first step within which all of a unit's values lie, and behind all steps once more those for units that leave
    the step before on the low side."""
    (low, high), steps, origin = sought.limits, sought.steps, sought.origin

    def above(step: Fraction) -> Expression:
        return _compared(LARGEST, "<=", min(origin + step, high), kind)

    def below(step: Fraction) -> Expression:
        return _compared(SMALLEST, ">=", max(origin - step, low), kind)

    for place, step in enumerate(steps):
        if place and low < origin < high:
            yield from (_both(above(step), below(steps[place - 1])), number(place))
        yield from (_both(above(step), below(step)), number(place + len(steps) * (place > 0 and low < origin)))


def _both(first: Expression, second: Expression) -> Expression:
    return Call(FUNCTIONS["AND"], (first, second), Boolean())


def _compared(name: str, comparison: str, end: Fraction, kind: ColumnType) -> Expression:
    return Call(FUNCTIONS[comparison], (Column(name, kind), hold_ends(kind, (end, end))[0]), Boolean())
