"""Post-processing that is understood without the engine: what is said of it is what the engine would say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlglot import exp

from dpsql.engines.base import PostProcessingTable
from dpsql.engines.post_processor import PostProcessor
from dpsql.sql.post_processing import passthrough
from dpsql.sql.syntax import DUCKDB

TYPES = {"_k0": "VARCHAR", "_k1": "DATE", "_a0": "BIGINT", "_a1": "DOUBLE", "_a2": "DECIMAL(38, 2)", "m0": "HUGEINT"}
TABLE = PostProcessingTable("_release_0", {}, {name: (kind, name) for name, kind in TYPES.items()})
UNDERSTOOD = (
    "SELECT _a0 FROM _release_0",
    'SELECT "_k0" AS region, _a0 AS "count_star()", _a1 AS "a", _a2 AS b, m0 AS _hidden_m0 FROM _release_0',
    "SELECT _k1, _a0 AS n FROM _release_0 WHERE _a0 > 100 ORDER BY _a1 DESC, n NULLS FIRST LIMIT 3",
    "SELECT _a0 FROM _release_0 WHERE _a0 > 100 AND (_a1 <= 2.5 OR m0 <> _a0) OR 1e5 = _a1 LIMIT 0",
    "SELECT _a0 FROM _release_0 WHERE _a0 < 100000000000000000000000000000000000000000",
    f"SELECT _a0 FROM _release_0 WHERE {' OR '.join(['_a0 = 1'] * 3000)}",
)
ASKED_ABOUT = (
    "SELECT _a0 + 1 AS n FROM _release_0",
    "SELECT * FROM _release_0",
    "SELECT DISTINCT _a0 FROM _release_0",
    "SELECT r._a0 FROM _release_0 AS r",
    "SELECT _release_0._a0 FROM _release_0",
    "SELECT _a0 AS n, _a1 AS N FROM _release_0",
    'SELECT _a0 AS "" FROM _release_0',
    "SELECT _a0 FROM _release_0, _release_0 AS other",
    "SELECT _a0 FROM _release_0 WHERE _k0 > 5",
    "SELECT _a0 FROM _release_0 WHERE _a0 > '5'",
    "SELECT _a0 FROM _release_0 WHERE _k0 = 'a'",
    "SELECT _a0 FROM _release_0 WHERE _a0",
    "SELECT _a0 FROM _release_0 ORDER BY 5",
    "SELECT _a0 FROM _release_0 ORDER BY abs(_a0)",
    "SELECT _a0 FROM _release_0 ORDER BY nothing",
    "SELECT _a0 FROM _release_0 LIMIT 2.5",
    "SELECT _a0 FROM _release_0 LIMIT 10000000000000000000000",
    "SELECT _a0 FROM _release_0 LIMIT 5 OFFSET 2",
    "SELECT _a0 FROM _release_0 QUALIFY row_number() OVER () = 1",
    "SELECT _a0 FROM _release_0 UNION ALL SELECT _a1 FROM _release_0",
    "SELECT nothing FROM _release_0",
    "SELECT _a0 FROM _release_1",
    "WITH q AS (SELECT 1) SELECT _a0 FROM _release_0",
)


@pytest.fixture(scope="module")
def engine() -> Iterator[PostProcessor]:
    found = PostProcessor()
    yield found
    found.close()


def parsed(sql: str) -> exp.Query:
    (tree,) = DUCKDB.parse(sql)
    assert isinstance(tree, exp.Query)
    return tree


@pytest.mark.parametrize("sql", UNDERSTOOD)
def test_columns_are_those_that_the_engine_finds(sql: str, engine: PostProcessor) -> None:
    assert passthrough(parsed(sql), [TABLE]) == engine.describe(sql, [TABLE])


@pytest.mark.parametrize("sql", ASKED_ABOUT)
def test_the_engine_is_asked_about_everything_else(sql: str) -> None:
    assert passthrough(parsed(sql), [TABLE]) is None


def test_the_engine_is_asked_where_there_are_several_tables() -> None:
    assert passthrough(parsed("SELECT _a0 FROM _release_0"), [TABLE, TABLE]) is None
