"""Two ways in which a bound on what one unit can do would not hold: rounding to even, and keys compared as doubles."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.aggregates.measure import Average, Grid
from dpsql.expressions.tree import Column
from dpsql.mechanisms.data_dependent import proposed_average
from dpsql.mechanisms.draw import Terms
from dpsql.schema.types import Integer


def test_means_that_are_one_step_apart_stay_so_when_they_are_rounded() -> None:
    """1/2, 3/2, 5/2, ...: rounded to even, two of them would be two steps apart."""
    terms = Terms("ptr", Fraction(1), Fraction(1), Fraction(1, 10**6), 1)
    draw = proposed_average(Average(Column("x", Integer()), Grid(Fraction(1), 0, 10), finer=1), terms)
    sums = np.array([1, 3, 5, 7, 9])
    answers, _ = draw.found([sums // 2, sums % 2, np.full_like(sums, 2)])
    assert all(later - earlier == 1 for earlier, later in pairwise(answers))


@pytest.fixture
def visits() -> Any:
    """200 whole numbers, of which 129 are the same double."""
    database = duckdb.connect()
    database.execute("CREATE TABLE a AS SELECT i AS person, 2::BIGINT ** 60 + i % 200 AS key FROM range(1000) AS r(i)")
    database.execute("ALTER TABLE a ALTER key TYPE BIGINT")
    database.execute("CREATE TABLE b AS SELECT i AS person, (2 ** 60)::DOUBLE AS key FROM range(1000) AS r(i)")
    tables = {
        name: {"unit": "person", "columns": {"person": "integer", "key": kind}}
        for name, kind in (("a", "integer"), ("b", "double"))
    }
    with dpsql.connect(database, schema={"dataset": "visits", "tables": tables}, budget=10, delta=1e-6) as conn:
        yield conn


def test_people_are_matched_by_keys_of_one_type(visits: dpsql.Connection) -> None:
    """Keys of two types are a condition like any other, of pairs that each with each make: no key is rarer than all."""
    (release,) = visits.explain("SELECT COUNT(*) FROM a JOIN b ON a.key = b.key", mechanism="smooth").releases
    assert "count(*) AS _count FROM _left_rows WHERE true" in release.sql
    assert "count(*) AS _count FROM _right_rows WHERE true" in release.sql
    assert visits.explain("SELECT COUNT(*) FROM a JOIN a AS c ON a.key = c.key", mechanism="smooth")
