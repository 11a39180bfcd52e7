"""What the ledger keeps of an answer gives the same columns back; and which stored answer a question gets."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.pipeline.calibrate_noise import NoiseTerms
from dpsql.pipeline.stored_answers import MANY, as_text, from_text

if TYPE_CHECKING:
    from pathlib import Path

MISSING = np.ma.masked_array(np.arange(MANY), mask=np.arange(MANY) == 3)
ENDS = [(-(2**63), 2**63 - 1), (-(2**31), 2**31 - 1), (-(2**31) - 1, 0), (0, 2**31)]


@pytest.mark.parametrize("length", [3, MANY])
@pytest.mark.parametrize("ends", ENDS)
def test_whole_numbers(ends: tuple[int, int], length: int) -> None:
    numbers = np.resize(np.array([*ends, 0]), length)
    columns = {"n": numbers, "short": numbers.astype(np.int32), "masked": np.ma.masked_array(numbers)}
    assert from_text(as_text(columns)) == {name: column.tolist() for name, column in columns.items()}


def test_numbers_that_are_missing_and_other_values() -> None:
    texts = np.array(["a", None, "é"] * MANY, dtype=object)
    columns = {"missing": MISSING, "texts": texts, "doubles": np.linspace(0, 1, MANY)}
    assert from_text(as_text(columns)) == {name: column.tolist() for name, column in columns.items()}


def test_many_numbers_are_kept_as_bytes_and_lists_are_read_too() -> None:
    assert '"n": "' in as_text({"n": np.arange(MANY)})
    assert from_text('{"n": "AQAAAAAAAAD//////////w=="}') == {"n": [1, -1]}  # 64 bits: no prefix
    assert from_text('{"n": [1, null]}') == {"n": [1, None]}


def test_terms_are_read_as_they_were_written() -> None:
    terms = NoiseTerms(
        mechanism="gaussian",
        epsilon=Fraction(1, 3),
        statistic_epsilon=Fraction(0),
        delta=None,
        reserved=Fraction(1, 10**9),
        parts=((Fraction(1, 2), Fraction(1, 2)), ()),
    )
    assert NoiseTerms.from_json(terms.to_json()) == terms


# -- which stored answer a question gets -------------------------------------------------------------------------------

BY_REGION = "SELECT region, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY region ORDER BY region"
MEDIAN = "SELECT MEDIAN(amount) AS m FROM orders"
OPEN_KEYS = "SELECT note, COUNT(*) AS n FROM orders GROUP BY note ORDER BY note"


@pytest.mark.parametrize("sql", [BY_REGION, MEDIAN, OPEN_KEYS, f"{BY_REGION} LIMIT 2"])
@pytest.mark.parametrize("options", [{"epsilon": 0.05}, {"epsilon": 0.2}])
def test_a_better_answer_on_record_is_free(sql: str, options: dict[str, Any], shop: dpsql.Connection) -> None:
    better = shop.execute(sql, epsilon=0.5)
    again = shop.execute(sql, **options)
    assert again.receipt.recalled
    assert again.fetchall() == better.fetchall()
    assert again.intervals().equals(better.intervals()), "with the error of the answer that is shown"


def test_a_better_answer_meets_an_accuracy(shop: dpsql.Connection) -> None:
    counts = "SELECT region, COUNT(*) AS n FROM orders GROUP BY region"
    shop.execute(counts, epsilon=0.5)
    assert shop.execute(counts, accuracy=100).receipt.recalled
    assert not shop.execute(counts, accuracy=2).receipt.recalled
    assert shop.execute(counts, accuracy=3).receipt.recalled, "the answer within 2"
    assert shop.execute(counts, epsilon=0.4).receipt.recalled, "the same, by its epsilon"


@pytest.mark.parametrize(
    "options", [{"epsilon": 0.6}, {"epsilon": 0.1, "mechanism": "gaussian"}, {"epsilon": 0.1, "max_groups": 1}]
)
def test_a_worse_or_another_answer_is_not_used(options: dict[str, Any], shop: dpsql.Connection) -> None:
    shop.execute(BY_REGION, epsilon=0.5, mechanism="laplace")
    assert not shop.execute(BY_REGION, **options).receipt.recalled


def test_the_newest_answer_that_is_good_enough_is_used(shop: dpsql.Connection) -> None:
    """An old answer does not come back once a newer one is as good."""
    shop.execute(BY_REGION, epsilon=0.1)
    newest = shop.execute(BY_REGION, epsilon=0.2, fresh=True).fetchall()
    shop.execute(BY_REGION, epsilon=0.02, fresh=True)
    for epsilon in (0.1, 0.15, 0.2):
        assert shop.execute(BY_REGION, epsilon=epsilon).fetchall() == newest


def test_a_stored_answer_says_when_it_was_drawn(shop: dpsql.Connection) -> None:
    assert shop.execute(BY_REGION, epsilon=0.5).receipt.asked is None
    again = shop.execute(BY_REGION, epsilon=0.5)
    asked = again.receipt.asked
    assert asked is not None
    assert datetime.now(UTC) - asked < timedelta(minutes=5)
    assert f"free: asked on {asked:%Y-%m-%d %H:%M} UTC" in again._repr_html_()


def test_explain_knows_what_is_free(shop: dpsql.Connection) -> None:
    assert not shop.explain(BY_REGION, epsilon=0.1).recalled
    shop.execute(BY_REGION, epsilon=0.5)
    explained = shop.explain(BY_REGION, epsilon=0.1)
    assert (explained.cost.epsilon, explained.share, explained.recalled) == (0, 0, True)
    assert explained.remaining == shop.budget.remaining
    assert f"cost       free: asked on {explained.asked:%Y-%m-%d %H:%M} UTC; epsilon" in str(explained)
    assert not shop.explain(BY_REGION, epsilon=0.1, fresh=True).recalled


def test_a_part_on_record_is_free(shop: dpsql.Connection) -> None:
    """One of two releases was asked for before, with the same noise."""
    shop.execute("SELECT COUNT(*) AS n FROM orders", epsilon=0.25, mechanism="laplace", diagnose=False)
    both = "SELECT (SELECT COUNT(*) FROM orders) AS n, (SELECT COUNT(*) FROM orders WHERE items > 3) AS m"
    assert shop.explain(both, epsilon=0.5, mechanism="laplace", diagnose=False).cost.epsilon == 0.25
    cursor = shop.execute(both, epsilon=0.5, mechanism="laplace", diagnose=False)
    assert cursor.receipt.epsilon == 0.25
    assert any(note.startswith("part of this answer is stored and was free: asked on") for note in cursor.notes)


def test_answers_of_older_ledgers_have_no_date(shop: dpsql.Connection) -> None:
    rows = shop.execute(BY_REGION, epsilon=0.5).fetchall()
    with shop.session.environment.ledger._file.writing() as connection:
        connection.execute("DELETE FROM answers WHERE payload LIKE '[%'")
    again = shop.execute(BY_REGION, epsilon=0.5)
    assert (again.receipt.recalled, again.receipt.asked, again.fetchall()) == (True, None, rows)
    assert "free: asked before" in again._repr_html_()


@pytest.mark.parametrize("kind", ["duckdb", "csv"])
def test_data_newer_than_the_answer_is_told(kind: str, tmp_path: Path) -> None:
    schema = {"dataset": "d", "tables": {"t": {"unit": "uid", "columns": {"uid": "integer"}}}}
    path, sql = tmp_path / f"t.{kind}", "SELECT COUNT(*) AS n FROM t"

    def write(rows: int) -> None:
        path.unlink(missing_ok=True)
        made = f"SELECT n AS uid FROM range({rows}) AS numbers(n)"
        with duckdb.connect() if kind == "csv" else duckdb.connect(path) as connection:
            connection.execute(f"COPY ({made}) TO '{path}'" if kind == "csv" else f"CREATE TABLE t AS {made}")

    def ask(**options: Any) -> tuple[int, list[str]]:
        with dpsql.connect(path, schema=schema, budget=1000, ledger=tmp_path / "ledger") as connection:
            cursor = connection.execute(sql, epsilon=50, **options)
            return cursor.fetchone()[0], [note for note in cursor.notes if "newer" in note]

    write(100)
    assert ask() == (100, [])
    assert ask() == (100, [])
    write(300)
    os.utime(path, (time.time() + 60,) * 2)
    answer, (note,) = ask()
    assert answer == 100
    assert note.endswith("than this answer: fresh=True asks again at full cost")
    os.utime(path)
    assert ask(fresh=True) == (300, [])
    assert ask() == (300, [])
