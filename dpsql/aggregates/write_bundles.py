"""Measures whose values exclude each other have one bound together (docs/proofs/exclusive.md), which the SQL enforces.

Where a unit has one row, the row counts for one case of a bundle; where it has many, their values are counted together.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from dpsql.aggregates.measure import OneOf
from dpsql.engine_sql.build import NULL, WIDE, any_of, apply, integer, test, wide
from dpsql.engine_sql.tree import Case, Field, Named
from dpsql.schema.types import Integer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpsql.aggregates.measure import ByUnit
    from dpsql.engine_sql.tree import Term


def _bundles(measures: list[tuple[str, ByUnit]]) -> Iterator[dict[int, list[tuple[str, OneOf]]]]:
    """Measures whose values exclude each other: for each bundle its cases."""
    exclusive = [(name, part) for name, part in measures if isinstance(part, OneOf)]
    for bundle in sorted({part.bundle for _, part in exclusive}):
        cases: dict[int, list[tuple[str, OneOf]]] = {}
        for name, part in exclusive:
            if part.bundle == bundle:
                cases.setdefault(part.case, []).append((name, part))
        yield cases


def cases_of_rows(measures: list[tuple[str, ByUnit]]) -> Iterator[Named]:
    """For each bundle the first case of which a row has a value."""
    for cases in _bundles(measures):
        branches = [
            (any_of([test("is not null", Field(name)) for name, _ in parts]), integer(case))
            for case, parts in cases.items()
        ]
        [(_, part), *_] = next(iter(cases.values()))
        yield Named(Case(tuple(branches), NULL), part.case_of_row)


def values_of_bundles(measures: list[tuple[str, ByUnit]]) -> Iterator[Named]:
    """For each bundle how many values a unit has in a group: in each case as many as the measure with the most."""
    for cases in _bundles(measures):
        numbers = [_largest([part.number(name) for name, part in parts]) for parts in cases.values()]
        [(_, part), *_] = next(iter(cases.values()))
        yield Named(reduce(lambda left, right: apply("+", left, right, kind=WIDE), numbers), part.values_of_bundle)


def _largest(numbers: list[Term]) -> Term:
    return wide(numbers[0] if len(numbers) == 1 else apply("greatest", *numbers, kind=Integer()))
