"""The generator of test_crossings.py finds what it is for: each fault is planted, and its usual run shows it."""

from __future__ import annotations

import runpy
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from sqlglot import exp

from dpsql.aggregates import moments
from dpsql.aggregates.measure import CountUnitsWith
from dpsql.aggregates.quantile import quantile
from dpsql.aggregates.table import AGGREGATES
from dpsql.engine_sql.build import apply
from dpsql.engine_sql.tree import Term
from dpsql.engines import post_processor, tables
from dpsql.engines.base import engine_type
from dpsql.expressions import casts, constants
from dpsql.expressions.emit import emit
from dpsql.expressions.lower import SPECIAL, lower_literal
from dpsql.expressions.table import FUNCTIONS
from dpsql.expressions.text import lower_bracket
from dpsql.expressions.tree import Call, Literal, properties_of
from dpsql.pipeline import infer_sensitivity, plan_query, track_units
from dpsql.relation import facts, sql
from dpsql.schema.types import Boolean, Decimal, Double, Timestamp
from dpsql.sql import query
from dpsql.sql.rows import PrivateRows
from dpsql.sql.syntax import DUCKDB

CROSSINGS = runpy.run_path(str(Path(__file__).parents[1] / "whole" / "test_crossings.py"))


def in_doubles(lowering: Any, node: Any) -> Any:
    found = lower_literal(lowering, node)
    if isinstance(found, Literal) and isinstance(found.type, Decimal):
        return Literal(Fraction(float(found.value)), Double(), found.at)  # type: ignore[arg-type]
    return found


def one_row_whatever_the_join(scans: Any, most: Any, question: Any) -> tuple[int, int]:
    return (1, 1) if all(scan.declared_unique for scan in scans) else (60, 60)


check_totals = infer_sensitivity._check_totals


def people_are_added(release: Any, parts: Any, answers: Any) -> None:
    check_totals(release, [part for part in parts if not isinstance(part, CountUnitsWith)], answers)


double_parts = facts._double_parts


def coarse_sums(value: Term, power: int, average: bool) -> Any:
    rounded = apply("round", facts._times(value, 34 - power), kind=Double())
    return double_parts(facts._times(rounded, power - 34), power, average)


def counted_from_zero(lowering: Any, node: Any) -> Any:
    moved = exp.Literal.number(int(node.expressions[0].name) + 1)
    return lower_bracket(lowering, exp.Bracket(this=node.this, expressions=[moved]))


def open_where_null(semi: Any, known: Any, write: Any) -> list[Term]:
    tests = [Call(FUNCTIONS["IS NULL"], (part.arguments[0],), Boolean()) for part in semi.compared]
    return [emit(test, known.kept) for test in tests]


read_moment = constants.read_moment


def by_the_hour(literal: Any, wanted: Any) -> Any:
    return read_moment(literal, Timestamp() if ":" in literal.value else wanted)


read_as = tables.read_as


def nearest_microsecond(column: str, stored: str, declared: Any) -> str:
    return f"CAST({column} AS TIMESTAMP)" if stored == "TIMESTAMP_NS" else read_as(column, stored, declared)


def null_total(table: Any, name: str) -> str:
    return f'"{name}"' if not table.totals or name.startswith("_k") else f'sum("{name}")'


def median_as_its_values(call: Any, context: Any) -> Any:
    return replace(quantile(call, context), type=call.arguments[0].type)


PLANTED: dict[str, list[tuple[Any, Any, Any]]] = {
    "decimal literals are doubles": [(SPECIAL, exp.Literal, in_doubles)],
    "what is unique stays so under a join": [(infer_sensitivity, "_groups_and_rows", one_row_whatever_the_join)],
    "sums of doubles within a person are rounded to 34 bits": [(facts, "_double_parts", coarse_sums)],
    "people are added up over groups": [(infer_sensitivity, "_check_totals", people_are_added)],
    "the unit is known by its column alone": [
        (PrivateRows, "key_of", lambda self, value: self.unit_keys.get(getattr(value, "name", ""))),
        (track_units, "_check_keys", lambda *_: None),
    ],
    "characters are counted as the parser does": [
        (DUCKDB, "INDEX_OFFSET", 1),
        (SPECIAL, exp.Bracket, counted_from_zero),
    ],
    "NULL is not in nothing neither": [(sql, "_open", open_where_null)],
    "a text with a time of day makes a date a timestamp": [(constants, "read_moment", by_the_hour)],
    "a total over no group is NULL": [(post_processor, "_total", null_total)],
    "nanoseconds are rounded": [(tables, "read_as", nearest_microsecond)],
    "a constant is not explained": [
        (moments, "properties_of", lambda value, known: replace(properties_of(value, known), values=None))
    ],
    "sums are as wide as their values": [(plan_query, "answer_type", lambda answer: str(engine_type(answer.type)))],
    "zero has a sign": [(casts, "one_zero", lambda number: number)],
    "a key is kept and left out": [(query, "refuse_equal_keys", lambda *_: None)],
    "a median of dates is a date": [
        (
            AGGREGATES,
            "QUANTILE_CONT",
            replace(AGGREGATES["QUANTILE_CONT"], answer=median_as_its_values),
        )
    ],
    "options over public rows are ignored": [(track_units, "_check_options", lambda *_: None)],
}


@pytest.mark.long
@pytest.mark.parametrize("faults", PLANTED.values(), ids=PLANTED)
def test_a_planted_fault_is_found(faults: list[tuple[Any, Any, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    for place, name, fault in faults:
        if isinstance(place, dict):
            monkeypatch.setitem(place, name, fault)
        else:
            monkeypatch.setattr(place, name, fault)
    CROSSINGS["world"].cache_clear()  # frames are read when they are opened
    try:
        tries = cases_until_different()
    finally:
        CROSSINGS["world"].cache_clear()
    print(f"found by case {tries}")
    assert tries is not None


def cases_until_different() -> int | None:
    parts, examples = CROSSINGS["PARTS"], CROSSINGS["EXAMPLES"]
    usual = chain.from_iterable(CROSSINGS["drawn"](str(part), examples // parts) for part in range(parts))
    asked = (CROSSINGS["Maker"](choices).question() for choices in usual)
    return next(
        (tries for tries, question in enumerate(asked, 1) if CROSSINGS["outcome"](question) == "different"), None
    )
