"""The database above the releases: answers that are made again find their views, and none of the rows before."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.engines.base import PostProcessingTable
from dpsql.engines.post_processor import MOST_VIEWS, ImmutableTable, PostProcessor
from dpsql.errors import ProgrammingError

TABLE = PostProcessingTable(
    "_release_0", {"k": "VARCHAR", "m": "BIGINT"}, {"k": ("VARCHAR", "k"), "a": ("BIGINT", "2 * m")}
)


@pytest.fixture
def processor() -> PostProcessor:
    return PostProcessor()


def columns(*numbers: int | None) -> dict[str, np.ndarray]:
    values = np.ma.masked_array([number or 0 for number in numbers], mask=[number is None for number in numbers])
    return {"k": np.array([f"k{place}" for place in range(len(numbers))], dtype=object), "m": values}


def asked(processor: PostProcessor, sql: str, *numbers: int | None) -> list[tuple[object, ...]]:
    return processor.run(sql, [TABLE], [columns(*numbers)]).rows


def test_each_answer_is_made_of_its_own_rows(processor: PostProcessor) -> None:
    by_key = "SELECT k, a FROM _release_0 ORDER BY k"
    assert asked(processor, by_key, 1, 2) == [("k0", 2), ("k1", 4)]
    assert asked(processor, by_key, 3, None, 5) == [("k0", 6), ("k1", None), ("k2", 10)]
    assert asked(processor, "SELECT sum(a) FROM _release_0", 7) == [(14,)]
    assert asked(processor, by_key) == []


KEYS = {
    "text": (np.array(["a", "b"], dtype=object), ["a", "b"]),
    "NULL": (np.array([None, None], dtype=object), [None, None]),
    "numbers": (np.array([1, 2]), ["1", "2"]),
    "numbers that were stored": (np.array([1, None], dtype=object), ["1", None]),
    "times": (np.array(["2025-05-05", "2025-05-06"], dtype="datetime64[us]"), ["2025-05-05", "2025-05-06"]),
}


def test_a_column_may_come_as_another_type_each_time(processor: PostProcessor) -> None:
    for keys, shown in [*KEYS.values(), *reversed(KEYS.values())]:
        made = processor.run("SELECT k FROM _release_0", [TABLE], [{"k": keys, "m": np.array([1, 2])}])
        assert [str(key)[:10] if key is not None else None for (key,) in made.rows] == shown


def test_no_rows_are_kept(processor: PostProcessor) -> None:
    given = columns(1, 2, 3)
    dead = [weakref.ref(column) for column in given.values()]
    processor.run("SELECT sum(a) FROM _release_0", [TABLE], [given])
    del given
    gc.collect()
    assert [reference() for reference in dead] == [None, None]


def test_a_mistake_does_not_stay(processor: PostProcessor) -> None:
    assert asked(processor, "SELECT a FROM _release_0", 1) == [(2,)]
    with pytest.raises(ProgrammingError):
        asked(processor, "SELECT error('no') FROM _release_0", 1)
    assert asked(processor, "SELECT a FROM _release_0", 4) == [(8,)]


def test_a_table_without_rows_and_one_that_lasts_stand_beside_others(processor: PostProcessor) -> None:
    empty = PostProcessingTable("_release_1", {"x": "BIGINT"}, {"x": ("BIGINT", "x")})
    towns = PostProcessingTable("towns", {"town": "VARCHAR"}, {"town": ("VARCHAR", "town")})
    both = PostProcessingTable("towns", {"town": "VARCHAR", "n": "BIGINT"}, {"n": ("BIGINT", "n")})
    stored = {"town": np.array(["Ayr", "Bath"], dtype=object), "n": np.array([1, 2])}
    immutable = ImmutableTable(lambda names: {name: stored[name] for name in names})
    counts = "SELECT (SELECT count(*) FROM _release_0), (SELECT count(*) FROM _release_1), (SELECT count(*) FROM towns)"
    for rows in (1, 2, 3):
        data = [columns(*range(rows)), None, immutable]
        assert processor.run(counts, [TABLE, empty, towns], data).rows == [(rows, 0, 2)]
    assert processor.run("SELECT sum(n) FROM towns", [both], [immutable]).rows == [(3,)]
    assert processor.run("SELECT max(town) FROM towns", [towns], [immutable]).rows == [("Bath",)]


def test_few_are_kept(processor: PostProcessor) -> None:
    for number in range(MOST_VIEWS + 3):
        table = PostProcessingTable("_release_0", TABLE.stored, {"a": ("BIGINT", f"m + {number}")})
        assert processor.run("SELECT a FROM _release_0", [table], [columns(1)]).rows == [(1 + number,)]
    assert len(processor._views) == MOST_VIEWS
    assert asked(processor, "SELECT a FROM _release_0", 1) == [(2,)]
    processor.close()


def test_sessions_do_not_meet(processor: PostProcessor) -> None:
    """They share a database, in which only temporary views of one cursor are; copies of tables are in others."""
    other = PostProcessor()
    towns = PostProcessingTable("towns", {"town": "VARCHAR"}, {"town": ("VARCHAR", "town")})
    for number, one in enumerate((processor, other)):
        immutable = ImmutableTable(lambda names, number=number: {name: np.array([f"t{number}"]) for name in names})
        found = one.run("SELECT k, town FROM _release_0, towns", [TABLE, towns], [columns(1), immutable])
        assert found.rows == [("k0", f"t{number}")]
        assert asked(one, "SELECT a FROM _release_0", number) == [(2 * number,)]
    shared = processor._connection.cursor()
    made = "SELECT view_name FROM duckdb_views() WHERE NOT internal UNION ALL SELECT table_name FROM duckdb_tables()"
    assert shared.execute(made).fetchall() == []
    for table in ("_release_0", "_raw_release_0", "_kept0", "towns"):
        with pytest.raises(ProgrammingError, match=r"no table|Table with name"):
            other.run(f"SELECT * FROM {table}", [], [])


def test_copies_go_with_the_last_answer() -> None:
    """A session that is closed leaves them to answers whose intervals may still be computed."""
    processor, table = PostProcessor(), PostProcessingTable("towns", {"n": "BIGINT"}, {"n": ("BIGINT", "n")})
    immutable = ImmutableTable(lambda names: {name: np.array([1, 2]) for name in names})
    answer = processor.still_open()
    assert answer.run("SELECT sum(n) FROM towns", [table], [immutable]).rows == [(3,)]
    copies = weakref.ref(processor._kept)
    processor.close()
    assert answer.run("SELECT sum(n) FROM towns", [table], [immutable]).rows == [(3,)]
    del answer
    gc.collect()
    assert copies() is None


@pytest.mark.parametrize(
    ("dialect", "sql"),
    [
        ("duckdb", 'extract("year FROM d), (SELECT 7), extract(month" FROM d)'),
        ("postgres", 'extract("year FROM d), (SELECT 7), extract(month" FROM d)'),
        ("postgres", 'extract("year FROM d); CREATE MACRO round(x, y) AS 0; SELECT extract(month" FROM d)'),
        ("duckdb", "date_trunc(\"month', d), ('\" , d)"),
        ("duckdb", 'n::"Z(1), (SELECT 7), Z"'),
        ("postgres", 'n OPERATOR("+ 1, (SELECT 7),") 1'),
    ],
)
def test_no_name_in_quotes_becomes_sql(
    shop_database: duckdb.DuckDBPyConnection, shop_schema: dict[str, Any], dialect: str, sql: str
) -> None:
    question = f"SELECT {sql} FROM (SELECT DATE '2024-01-01' AS d, count(*) AS n FROM orders)"
    with (
        dpsql.connect(shop_database, schema=shop_schema, budget=1, dialect=dialect) as connection,
        pytest.raises(dpsql.Error, match="not a word"),
    ):
        connection.explain(question)


def test_what_runs_is_one_statement(processor: PostProcessor) -> None:
    with pytest.raises(ValueError, match="unpack"):
        processor.describe("SELECT 1; CREATE TABLE memory.main.mine (a INTEGER)", [])
