"""df.dp.randomize: a frame of reports and the entry of the schema that describes it, ready to be asked in SQL."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import dpsql
from dpsql.errors import ProgrammingError, SchemaError, UnknownName

PEOPLE = 3_000
ANSWERS = ["never", "some", "daily"]


@pytest.fixture(scope="module")
def survey() -> pd.DataFrame:
    generator = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "id": np.arange(PEOPLE),
            "smoker": generator.random(PEOPLE) < 0.3,
            "drink": pd.Categorical(generator.choice(ANSWERS, PEOPLE, p=[0.6, 0.3, 0.1]), ANSWERS),
            "text": generator.choice(ANSWERS, PEOPLE, p=[0.6, 0.3, 0.1]),
            "sons": generator.choice([0, 1, 2], PEOPLE),
            "age": generator.integers(18, 90, PEOPLE),
        }
    )


def frames(survey: pd.DataFrame) -> dict[str, Any]:
    plain = pl.DataFrame(
        {name: survey[name].to_list() for name in survey.columns}, schema_overrides={"drink": pl.Enum(ANSWERS)}
    )
    return {"pandas": survey, "polars": plain, "lazy": plain.lazy()}


WAYS = [
    ("pandas", "smoker", {}),
    ("pandas", "smoker", {"mechanism": "randomized_response"}),
    ("pandas", "drink", {"mechanism": "rappor"}),
    ("pandas", "text", {"values": ANSWERS}),
    ("pandas", "sons", {"values": [0, 1, 2], "mechanism": "subset"}),
    ("polars", "smoker", {}),
    ("polars", "drink", {"mechanism": "oue"}),
    ("polars", "sons", {"values": [0, 1, 2]}),
    ("lazy", "text", {"values": ANSWERS}),
]


@pytest.mark.parametrize(("library", "column", "options"), WAYS)
def test_from_answers_to_an_estimate(survey: pd.DataFrame, library: str, column: str, options: dict[str, Any]) -> None:
    frame = frames(survey)[library]
    before = survey.copy()
    reports, entry = frame.dp.randomize(column, epsilon=2.0, **options)
    assert entry["collected"]["epsilon"] == 2.0
    columns = {"id": "integer", "age": {"type": "integer", "bounds": [0, 120]}, column: entry}
    conn = dpsql.connect(
        {"survey": reports}, schema={"tables": {"survey": {"unit": "id", "columns": columns}}}, budget=1.0
    )
    found = conn.execute(f"SELECT {column} AS x, COUNT(*) AS n FROM survey GROUP BY {column}").intervals()
    truth = survey[column].value_counts()
    for x, n, low, high in found.itertuples(index=False):
        assert abs(n - truth[x]) < 2.5 * (high - low)
    assert conn.budget.spent.epsilon == 0
    pd.testing.assert_frame_equal(survey, before)
    same = [name for name in survey.columns if name != column]
    other = reports.to_pandas() if library != "pandas" else reports
    assert (other[same].astype(str) == survey[same].astype(str)).all(axis=None)


def test_reports_differ_from_answers(survey: pd.DataFrame) -> None:
    """Of those who have it, e^1 / (1 + e^1) = 73 % report it."""
    reports, _ = survey.dp.randomize("smoker", epsilon=1.0)
    assert (reports.smoker == survey.smoker).mean() == pytest.approx(0.731, abs=0.04)


@pytest.mark.parametrize(
    ("call", "error", "problem"),
    [
        ({"column": "smokes", "epsilon": 1}, UnknownName, "no column"),
        ({"column": "text", "epsilon": 1}, ProgrammingError, "must not be taken from the data"),
        ({"column": "smoker", "epsilon": 0}, ProgrammingError, "above 0"),
        ({"column": "smoker", "epsilon": -1}, ProgrammingError, "negative"),
        ({"column": "smoker", "epsilon": float("nan")}, ProgrammingError, "epsilon must be a number"),
        ({"column": "smoker", "epsilon": 1, "mechanism": "coins"}, ProgrammingError, "unknown mechanism"),
        ({"column": "text", "epsilon": 1, "values": ["never"]}, SchemaError, "at least two"),
        ({"column": "text", "epsilon": 1, "values": ["never", "some", None]}, ProgrammingError, "NULL cannot be"),
        ({"column": "text", "epsilon": 1, "values": ["never", "some"]}, ProgrammingError, "outside the domain"),
        ({"column": "text", "epsilon": 1, "values": [1, 2]}, SchemaError, "1 is not text"),
    ],
)
def test_mistakes(survey: pd.DataFrame, call: dict[str, Any], error: type[Exception], problem: str) -> None:
    with pytest.raises(error, match=problem):
        survey.dp.randomize(**call)


def test_null_is_refused(survey: pd.DataFrame) -> None:
    holes = survey.assign(text=survey.text.where(survey.id > 2))
    with pytest.raises(ProgrammingError, match="3 of 3,000 values are NULL"):
        holes.dp.randomize("text", epsilon=1, values=ANSWERS)
    with pytest.raises(ProgrammingError, match="3 of 3,000 values are NULL"):
        pl.DataFrame({"text": [None] * 3 + survey.text.to_list()[3:]}).dp.randomize("text", epsilon=1, values=ANSWERS)
