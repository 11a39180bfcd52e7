"""A function of another system is answered with what is written here, which can be asked."""

from __future__ import annotations

import pandas as pd
import pytest

import dpsql
from dpsql.expressions.refusals import INSTEAD
from dpsql.expressions.table import FUNCTIONS

COLUMNS = {
    "person": "integer",
    "text": "text",
    "x": {"type": "integer", "bounds": [0, 9]},
    "y": {"type": "double", "bounds": [1, 9]},
    "day": {"type": "date", "bounds": ["2024-01-01", "2024-12-31"]},
}


@pytest.fixture(scope="module")
def session() -> dpsql.Connection:
    rows = pd.DataFrame({"person": [1], "text": ["a"], "x": [1], "y": [1.0], "day": ["2024-01-31"]})
    return dpsql.connect(
        {"t": rows}, schema={"tables": {"t": {"unit": "person", "columns": COLUMNS}}}, budget=1, delta=1e-6
    )


def test_nothing_that_can_be_asked_is_listed() -> None:
    assert INSTEAD.keys() & FUNCTIONS.keys() == set()


WRITTEN = sorted({written.split("; ")[0].split(", which")[0] for written in INSTEAD.values() if ": " not in written})


@pytest.mark.parametrize("written", [each for each in WRITTEN if each.startswith("SELECT")])
def test_what_is_written_instead_is_a_question(written: str, session: dpsql.Connection) -> None:
    assert session.explain(written).releases


@pytest.mark.parametrize("call", ["HISTOGRAM(x)", "IFF(x)", "DIV0(x, y)", "LISTAGG(x)", "ARG_MAX(x, y)", "SQUARE(x)"])
def test_the_hint_says_it(call: str, session: dpsql.Connection) -> None:
    with pytest.raises(dpsql.Unsupported) as caught:
        session.explain(f"SELECT {call} FROM t")
    assert caught.value.hint == f"write  {INSTEAD[call.partition('(')[0]]}"
