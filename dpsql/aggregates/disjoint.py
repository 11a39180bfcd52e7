"""Disjoint values: on every row at most one of them is not NULL.

    CASE WHEN a = 'x' THEN 1 END    and    CASE WHEN a = 'y' THEN v END

Disjointness is inferred from the conditions, and not claimed if it does not follow from them. Disjoint measures share
one bound, which makes them more accurate; the engine SQL enforces that bound. docs/proofs/exclusive.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from itertools import islice, product
from typing import TYPE_CHECKING, TypeAlias

from dpsql.aggregates.measure import (
    ClippedInL2,
    CountRows,
    CountUnits,
    CountUnitsWith,
    CountValues,
    Disjoint,
    Recentred,
    SumValues,
)
from dpsql.engine_sql.build import NULL, WIDE, any_of, apply, integer, test, wide
from dpsql.engine_sql.tree import Alias, Case, Field
from dpsql.expressions.narrow import MIRRORED, is_clamped
from dpsql.expressions.tree import Call, Literal
from dpsql.schema.types import Integer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dpsql.aggregates.measure import ByUnit, Measure
    from dpsql.engine_sql.tree import Term
    from dpsql.expressions.properties import Value
    from dpsql.expressions.tree import Expression

MOST_CASES, MOST_WAYS, MOST_CONSTANTS = 200, 16, 100
"""So many different cases are compared, each with all; those with more ways, or with longer lists, are not: two CASEs
of many branches would be compared for minutes, before anybody pays."""

Fact: TypeAlias = "tuple[Expression, bool]"
"""A fact: a condition that is TRUE, or one that is not."""
CasePlace: TypeAlias = tuple[int, int]
"""A bundle of values that exclude each other, and the case of it that a value belongs to."""


def bundled(values: Iterable[Expression]) -> Mapping[Expression, CasePlace]:
    """The disjoint values and their places. Values with equal conditions form one case of a bundle."""
    cases: dict[frozenset[frozenset[Fact]], list[Expression]] = {}
    for value in dict.fromkeys(values):
        ways = frozenset(map(frozenset, islice(_ways(value), MOST_WAYS + 1)))
        if frozenset() not in ways and len(ways) <= MOST_WAYS:
            cases.setdefault(ways, []).append(value)
    compiled = [([_compiled(way) for way in _ways(case[0])], case) for case in list(cases.values())[:MOST_CASES]]
    bundles: list[list[tuple[Sequence[_Way], list[Expression]]]] = []
    for case in compiled:
        fitting = (bundle for bundle in bundles if all(_exclude(case[0], other) for other, _ in bundle))
        bundle = next(fitting, None)
        if bundle is None:
            bundles.append(bundle := [])
        bundle.append(case)
    shared = [bundle for bundle in bundles if len(bundle) > 1]
    return {
        value: (number, place)
        for number, bundle in enumerate(shared)
        for place, (_, values) in enumerate(bundle)
        for value in values
    }


def without_zeros(value: Expression) -> Expression:
    """The value without ELSE 0: to a sum, CASE WHEN c THEN x ELSE 0 END adds the same as CASE WHEN c THEN x END."""
    match value:
        case Call(function, (*branches, Literal(constant) as otherwise)) if function.name == "CASE":
            if _are_numbers(constant) and constant == 0:
                return replace(value, arguments=(*branches, replace(otherwise, value=None)))
    return value


def _ways(value: Expression) -> Iterator[tuple[Fact, ...]]:
    """The branches by which a value can be non-NULL: on each such row all facts of one branch hold."""
    while isinstance(value, Call) and is_clamped(value):
        value = value.arguments[0]  # NULL stays NULL
    if isinstance(value, Literal) and value.value is None:
        return
    if not isinstance(value, Call) or value.function.name != "CASE":
        yield ()
        return
    *branches, otherwise = value.arguments
    passed: list[Fact] = []
    for condition, then in zip(branches[::2], branches[1::2], strict=True):
        yield from ((*passed, (condition, True), *way) for way in _ways(then))
        passed.append((condition, False))
    yield from ((*passed, *way) for way in _ways(otherwise))


# What the facts of one way say of each expression that they compare with constants.


@dataclass(frozen=True)
class _Region:
    """The range of an expression on a branch; it can be NULL only if `null` is not False."""

    null: bool | None = None
    values: frozenset[Value] | None = None
    without: frozenset[Value] = frozenset()
    above: tuple[tuple[Value, bool], ...] = ()
    """Ends that it is not below, and whether it may be there."""
    below: tuple[tuple[Value, bool], ...] = ()


@dataclass(frozen=True)
class _Way:
    facts: dict[Expression, bool] = field(default_factory=dict)
    regions: dict[Expression, _Region] = field(default_factory=dict)


def _compiled(facts: Iterable[Fact]) -> _Way:
    way = _Way()
    for condition, holds in facts:
        way.facts[condition] = holds
        if holds:
            _add_true(condition, way)
    return way


def _add_true(condition: Expression, way: _Way) -> None:
    """Adds a condition that is TRUE, and everything it implies."""
    way.facts[condition] = True
    match condition:
        case Call(function, arguments) if function.name == "AND":
            for part in arguments:
                _add_true(part, way)
        case Call(function, (inner,)) if function.name == "NOT":
            _add_false(inner, way)
        case Call(function, (subject,)) if function.name == "IS NULL":
            _narrow(way, subject, null=True)
        case Call(function, (subject, *choices)) if function.name == "IN":
            constants = [choice.value for choice in choices if isinstance(choice, Literal)]
            known = frozenset(value for value in constants if value is not None)
            is_known = len(constants) == len(choices) <= MOST_CONSTANTS
            _narrow(way, subject, null=False, values=known if is_known else None)
        case Call(function, (subject, Literal(value))):
            _add_comparison(function.name, subject, value, way)
        case Call(function, (Literal(value), subject)) if function.name in MIRRORED or function.name == "<>":
            _add_comparison(MIRRORED.get(function.name, "<>"), subject, value, way)
        case _:
            _narrow(way, condition, null=False, values=frozenset((True,)))


def _add_false(condition: Expression, way: _Way) -> None:
    """Adds a condition that is FALSE, neither TRUE nor NULL."""
    way.facts[condition] = False
    match condition:
        case Call(function, arguments) if function.name == "OR":
            for part in arguments:
                _add_false(part, way)
        case Call(function, (inner,)) if function.name == "NOT":
            _add_true(inner, way)
        case Call(function, (subject,)) if function.name == "IS NULL":
            _narrow(way, subject, null=False)
        case Call(function, (subject, *choices)) if function.name == "IN":
            constants = (choice.value for choice in choices if isinstance(choice, Literal))
            _narrow(way, subject, null=False, without=frozenset(value for value in constants if value is not None))
        case Call(function, (subject, Literal(value))) if function.name in OPPOSITE:
            _add_comparison(OPPOSITE[function.name], subject, value, way)
        case _:
            _narrow(way, condition, null=False, values=frozenset((False,)))


OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def _add_comparison(operator: str, subject: Expression, value: Value | None, way: _Way) -> None:
    if operator == "IS NOT DISTINCT FROM" and value is None:
        _narrow(way, subject, null=True)
    if value is None:
        return
    match operator:
        case "=" | "IS NOT DISTINCT FROM":
            _narrow(way, subject, null=False, values=frozenset((value,)))
        case "<>":
            _narrow(way, subject, null=False, without=frozenset((value,)))
        case "IS DISTINCT FROM":
            _narrow(way, subject, without=frozenset((value,)))
        case "<" | "<=":
            _narrow(way, subject, null=False, below=((value, operator == "<="),))
        case ">" | ">=":
            _narrow(way, subject, null=False, above=((value, operator == ">="),))


def _narrow(
    way: _Way,
    subject: Expression,
    *,
    null: bool | None = None,
    values: frozenset[Value] | None = None,
    without: frozenset[Value] = frozenset(),
    above: tuple[tuple[Value, bool], ...] = (),
    below: tuple[tuple[Value, bool], ...] = (),
) -> None:
    """The facts of both; of two lists the later one is kept."""
    known = way.regions.get(subject, _Region())
    way.regions[subject] = _Region(
        known.null if null is None else null,
        known.values if values is None else values,
        known.without | without,
        known.above + above,
        known.below + below,
    )


# Whether two ways cannot be taken by one row.


def _exclude(one: Sequence[_Way], other: Sequence[_Way]) -> bool:
    return all(_contradict(first, second) for first, second in product(one, other))


def _contradict(one: _Way, other: _Way) -> bool:
    if any(other.facts.get(condition, holds) != holds for condition, holds in one.facts.items()):
        return True
    return any(
        _disjoint(region, other.regions[subject]) for subject, region in one.regions.items() if subject in other.regions
    )


def _disjoint(one: _Region, other: _Region) -> bool:
    if {one.null, other.null} == {True, False}:
        return True
    if False not in (one.null, other.null):
        return False  # both may be NULL
    return _apart(one, other) or _apart(other, one)


def _apart(one: _Region, other: _Region) -> bool:
    if any(_is_below(end, start) for end in one.below for start in other.above):
        return True
    if one.values is None:
        return False
    return all(
        value in other.without
        or (other.values is not None and not any(_may_be_equal(value, choice) for choice in other.values))
        or any(_is_below(end, (value, True)) for end in other.below)
        or any(_is_below((value, True), start) for start in other.above)
        for value in one.values
    )


def _may_be_equal(one: Value, other: Value) -> bool:
    """Numbers may be compared as doubles; what is of different kinds may be compared as anything."""
    if _are_numbers(one, other):
        return one == other or _as_double(one) == _as_double(other)
    return type(one) is not type(other) or one == other


def _is_below(end: tuple[Value, bool], start: tuple[Value, bool]) -> bool:
    """Whether no value lies below the end and above the start."""
    (last, at_last), (first, at_first) = end, start
    if _are_numbers(last, first):
        # Rounding to doubles keeps the order of numbers, but may make two of them one.
        if at_last and at_first:
            return last < first and _as_double(last) < _as_double(first)  # type: ignore[operator]
        return bool(last <= first)  # type: ignore[operator]
    if type(last) is not type(first) or isinstance(last, str | bool):
        return False
    return bool(last < first or (last == first and not (at_last and at_first)))  # type: ignore[operator]


def _are_numbers(*values: Value | None) -> bool:
    return all(type(value) in (int, Fraction) for value in values)


def _as_double(value: Value) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")  # type: ignore[operator]


# -- one of ------------------------------------------------------------------------------------------------------------
# Counts and sums of which parts may count: those whose values exclude each other and share one bound
# (docs/proofs/exclusive.md), and those of units that are in too many groups (l2_clipping.md).

FINE_BITS = 20
"""The least bits of a contribution whose parts are kept."""
LEAST_AUXILIARY_UNITS = 3
"""If units are counted anyway, bundles of fewer cases are better recentred by that count (docs/proofs/weights.md)."""


def exclusive_values(measures: Iterable[Measure], *, units_counted: bool) -> Mapping[Expression, CasePlace]:
    """The disjoint values among those that are counted or summed."""
    values = [part.argument for part in measures if isinstance(part, CountValues | SumValues) and _is_plain(part)]
    found = bundled(values)
    cases: dict[int, set[int]] = {}
    for bundle, case in found.values():
        cases.setdefault(bundle, set()).add(case)
    least = LEAST_AUXILIARY_UNITS if units_counted else 2
    return {value: place for value, place in found.items() if len(cases[place[0]]) >= least}


def disjoint(
    measure: Measure, places: Mapping[Expression, CasePlace], rows: int, *, row_by_row: bool
) -> Disjoint | None:
    """The measure as a case of its bundle, if it has one. Its grid is only refined if rows are summed per unit."""
    if not isinstance(measure, CountValues | SumValues) or not _is_plain(measure) or measure.argument not in places:
        return None
    return Disjoint(measure, *places[measure.argument], 1 if row_by_row else _finer(measure, rows))


def l2_clipped(measure: Measure, groups: int, all_groups: int, rows: int) -> ClippedInL2:
    """The measure on a finer grid, so that scaled parts stay precise. docs/proofs/l2_clipping.md."""
    assert isinstance(measure, CountUnits | CountUnitsWith | CountRows | CountValues | SumValues | Recentred)
    return ClippedInL2(measure, groups, all_groups, _finer(measure, rows))


def _finer(measure: Measure, rows: int) -> int:
    return 1 << max(0, FINE_BITS - measure.linf(rows).bit_length())


def _is_plain(measure: CountValues | SumValues) -> bool:
    """Whether a contribution is the sum over the unit's values, each of which counts."""
    if isinstance(measure, CountValues):
        return measure.most is None
    return measure.group is None and not measure.null_is_zero


# -- write bundles -----------------------------------------------------------------------------------------------------
# Disjoint measures share one bound (docs/proofs/exclusive.md), which the SQL enforces.
#
# Where a unit has one row, the row counts for one case of a bundle; where it has many, their values are counted
# together.


def _bundles(measures: list[tuple[str, ByUnit]]) -> Iterator[dict[int, list[tuple[str, Disjoint]]]]:
    """The cases of each bundle of disjoint measures."""
    exclusive = [(name, part) for name, part in measures if isinstance(part, Disjoint)]
    for bundle in sorted({part.bundle for _, part in exclusive}):
        cases: dict[int, list[tuple[str, Disjoint]]] = {}
        for name, part in exclusive:
            if part.bundle == bundle:
                cases.setdefault(part.case, []).append((name, part))
        yield cases


def cases_of_rows(measures: list[tuple[str, ByUnit]]) -> Iterator[Alias]:
    """The case of a row in each bundle: the first one with a value."""
    for cases in _bundles(measures):
        branches = [
            (any_of([test("is not null", Field(name)) for name, _ in parts]), integer(case))
            for case, parts in cases.items()
        ]
        [(_, part), *_] = next(iter(cases.values()))
        yield Alias(Case(tuple(branches), NULL), part.case_of_row)


def values_of_bundles(measures: list[tuple[str, ByUnit]]) -> Iterator[Alias]:
    """The number of values of a unit and group in each bundle: per case, that of the measure with most values."""
    for cases in _bundles(measures):
        numbers = [_largest([part.number(name) for name, part in parts]) for parts in cases.values()]
        [(_, part), *_] = next(iter(cases.values()))
        yield Alias(reduce(lambda left, right: apply("+", left, right, kind=WIDE), numbers), part.values_of_bundle)


def _largest(numbers: list[Term]) -> Term:
    return wide(numbers[0] if len(numbers) == 1 else apply("greatest", *numbers, kind=Integer()))
