"""No row makes a question fail, whatever the engine's optimizer does with it.

Engines fold constants together, push filters down, and evaluate a projection before the filter that guards it. So the
SQL of a release is run as it is optimized by default, without any optimizer, and without some of its parts, on rows
that hold the worst, with and without the one row whose presence an error would tell.
"""

from __future__ import annotations

import copy
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql

SCHEMA: dict[str, Any] = {
    "dataset": "total",
    "contribution": {"max_groups": 1, "max_rows_per_group": 1},
    "tables": {
        "t": {
            "unit": "u",
            "columns": {
                "u": "integer",
                "k": "integer",
                "n": {"type": "integer", "bounds": [-5, 12]},
                "m": {"type": "decimal(18,3)", "bounds": [-2, 7]},
                "w": "decimal(38,10)",
                "x": {"type": "double", "nullable": True},
                "d": "date",
            },
        }
    },
}
CREATE = "CREATE TABLE t (u BIGINT, k BIGINT, n BIGINT, m DECIMAL(18,3), w DECIMAL(38,10), x DOUBLE, d DATE)"
NINES = Decimal("9" * 28 + "." + "9" * 10)
OTHERS: list[tuple[object, ...]] = [
    (1, 0, 0, Decimal(0), Decimal(0), 0.0, "2024-02-29"),
    (2, 5, 3, Decimal("1.5"), Decimal("2.25"), 2.5, "2023-12-31"),
]
EXTREME: list[tuple[object, ...]] = [
    (42, 2**63 - 1, 2**63 - 1, Decimal("999999999999999.999"), NINES, 1.7e308, "5881580-07-10"),
    (42, -(2**63), -(2**63), Decimal("-999999999999999.999"), NINES.copy_negate(), float("-inf"), "-290307-01-01"),
    (42, 0, None, Decimal(0), Decimal(0), float("nan"), "infinity"),
    (42, -1, 0, None, None, 0.0, None),
]
SETTINGS = [
    "SET disabled_optimizers = ''",
    "PRAGMA disable_optimizer",
    "SET disabled_optimizers = 'expression_rewriter'",
    "SET disabled_optimizers = 'statistics_propagation,filter_pushdown,common_subexpressions'",
]


def insert(raw: duckdb.DuckDBPyConnection, rows: list[tuple[object, ...]]) -> None:
    raw.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?)", rows)


@pytest.fixture(scope="module")
def databases() -> list[duckdb.DuckDBPyConnection]:
    """Without the person and with it, under every setting."""
    made = []
    for setting in SETTINGS:
        for rows in (OTHERS, [*OTHERS, *EXTREME]):
            raw = duckdb.connect()
            raw.execute(CREATE)
            insert(raw, rows)
            raw.execute(setting)
            made.append(raw)
    return made


@pytest.fixture(scope="module")
def asked() -> dpsql.Connection:
    raw = duckdb.connect()
    raw.execute(CREATE)
    return dpsql.connect(raw, schema=SCHEMA, budget=1, delta=1e-6)


# -- one person read by overflow --------------------------------------------------------------------------------------

BIG = 4611686018427387904
READS_ONE_PERSON = [
    f"LEAST(GREATEST(k, 0), 0) * {BIG} * 3 > 5",
    f"3 * (LEAST(GREATEST(k, 0), 0) * {BIG}) > 5",
    f"3 * ({BIG} * LEAST(GREATEST(k, 0), 0)) > 5",
    f"LEAST(GREATEST(k, 0), 0) + {BIG} + {BIG} > 5",
    f"{BIG} - (LEAST(GREATEST(k, 0), 0) - {BIG}) > 5",
    f"CASE WHEN k = 0 THEN LEAST(GREATEST(k, 0), 0) * {BIG} * 3 ELSE 0 END > 5",
    f"LEAST(GREATEST(k, 0), 0) * {BIG} * 3 = k",
]


@pytest.mark.parametrize("setting", [None, "SET GLOBAL enable_optimizer = true", "SET GLOBAL enable_optimizer = false"])
@pytest.mark.parametrize("condition", READS_ONE_PERSON)
def test_an_overflow_does_not_tell_who_is_there(condition: str, setting: str | None, tmp_path: Path) -> None:
    """On a connection of the caller's, and (None) on a file that dpsql opened and locked."""
    source = tmp_path / "people.duckdb"
    raw = duckdb.connect(source)
    raw.execute(CREATE)
    insert(raw, [*OTHERS, *EXTREME])
    raw.close() if setting is None else raw.execute(setting)
    with dpsql.connect(raw if setting else source, schema=SCHEMA, budget=1, delta=1e-6) as connection:
        assert connection.execute(f"SELECT COUNT(*) FROM t WHERE u = 42 AND {condition}").rowcount == 1
        assert connection.session.environment.ledger.history()[-1].state == "released"


@pytest.mark.parametrize("optimizer", ["true", "false"])
@pytest.mark.parametrize(
    "value",
    [f"(m + {'9' * 38}) + {'9' * 38}", f"{'9' * 38} - (m + {'9' * 38})", "(v + w) * (v - w)", "(v * w) - (w * v)"],
)
def test_what_two_operations_share_does_not_fail_before_both(value: str, optimizer: str) -> None:
    """An engine computes once what stands in several places: the cast to a common scale, before the TRY around it."""
    raw = duckdb.connect()
    raw.execute(CREATE)
    insert(raw, [*OTHERS, *EXTREME])
    raw.execute("ALTER TABLE t ADD COLUMN v DECIMAL(38,0)")
    raw.execute(f"UPDATE t SET v = {'9' * 38} WHERE u = 42; SET GLOBAL enable_optimizer = {optimizer}")
    schema = copy.deepcopy(SCHEMA)
    schema["tables"]["t"]["columns"]["v"] = "decimal(38,0)"
    with dpsql.connect(raw, schema=schema, budget=1, delta=1e-6) as connection:
        connection.execute(f"SELECT COUNT(DISTINCT {value}) FROM t WHERE u = 42", diagnose=False).fetchall()
        connection.execute(f"SELECT {value} AS v, COUNT(*) FROM t GROUP BY 1", diagnose=False).fetchall()
        states = [entry.state for entry in connection.session.environment.ledger.history()]
    assert states == ["budget", *["charged", "released"] * 2]


# -- generated expressions --------------------------------------------------------------------------------------------

CONSTANTS = ["0", "1", "-1", "2", "7", str(BIG), str(2**63 - 1), str(-(2**63)), "0.5", "1e308", "-1e-300"]
COLUMNS = ["k", "n", "m", "w", "x", "LEAST(GREATEST(k, 0), 0)", "LEAST(GREATEST(n, 1), 1)"]
PATTERNS = [
    *("({} + {})", "({} - {})", "({} * {})"),
    *("({} * {})", "(-{})", "ABS({})", "({} / {})"),
    *("ROUND({}, -2)", "ROUND({}, 2)", "FLOOR({})", "CEIL({})", "TRUNC({}, 1)"),
    *("CASE WHEN {} > {} THEN {} ELSE {} END", "COALESCE({}, {})", "GREATEST({}, {})"),
    *("CAST({} AS BIGINT)", "CAST({} AS DECIMAL(18, 4))", "CAST({} AS DOUBLE)", "CAST({} AS TINYINT)"),
    *("(CAST({} AS BIGINT) % CAST({} AS BIGINT))", "(CAST({} AS BIGINT) // CAST({} AS BIGINT))"),
    *("WIDTH_BUCKET({}, 0, 10, 5)", "DATE_DIFF('day', d, d + CAST({} AS BIGINT))"),
]
SHAPES = [
    "SELECT COUNT(*) FROM t WHERE {a} > {b}",
    "SELECT COUNT(*) FROM t WHERE u = 42 AND n > 3 AND {a} = {c}",
    "SELECT COUNT(*) FROM (SELECT u, {a} AS z FROM t) WHERE z * {c} > 5",
    "SELECT SUM(LEAST(GREATEST({a}, 0), 10)) FROM t WHERE n > 3",
    "SELECT COUNT(CASE WHEN n = 0 THEN {a} ELSE {b} END) FROM t",
    "SELECT COUNT(*) FROM t AS s JOIN (SELECT u AS v, k AS l FROM t) AS r ON s.u = r.v AND {a} < l",
    "SELECT COUNT(*) FROM (SELECT u, MAX({a}) AS z FROM t GROUP BY u HAVING MAX({b}) * {c} > 5)",
    "SELECT COUNT(*) FROM (SELECT u, LAG({a}) OVER (PARTITION BY u ORDER BY {b}) AS z FROM t) WHERE z + {c} > 1",
    "SELECT AVG(LEAST(GREATEST({a}, -1), 1)) FROM t WHERE {b} < {c}",
]


def expression(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(COLUMNS if rng.random() < 0.6 else CONSTANTS)
    pattern = rng.choice(PATTERNS)
    return pattern.format(*(expression(rng, depth - 1) for _ in range(pattern.count("{}"))))


def release_of(asked: dpsql.Connection, sql: str) -> str | None:
    """The engine SQL of the question; None if it is refused, which is before any row is read."""
    try:
        (release,) = asked.explain(sql).releases
    except dpsql.Error:
        return None
    return release.sql


def question(rng: random.Random) -> str:
    parts = {"a": expression(rng, 3), "b": expression(rng, 2), "c": rng.choice(CONSTANTS)}
    return rng.choice(SHAPES).format(**parts)


def run_everywhere(databases: list[duckdb.DuckDBPyConnection], asked: dpsql.Connection, seeds: range) -> int:
    """How many questions were run; each of them on every database, and none of them failed."""
    ran = 0
    for seed in seeds:
        sql = question(random.Random(seed))
        release = release_of(asked, sql)
        if release is None:
            continue
        ran += 1
        for raw in databases:
            try:
                raw.execute(release).fetchall()
            except duckdb.Error as error:
                raise AssertionError(f"seed {seed}: {sql}\n{error}") from error
    return ran


def test_generated_questions_never_fail(databases: list[duckdb.DuckDBPyConnection], asked: dpsql.Connection) -> None:
    assert run_everywhere(databases, asked, range(100)) > 50


@pytest.mark.long
def test_many_generated_questions_never_fail(
    databases: list[duckdb.DuckDBPyConnection], asked: dpsql.Connection
) -> None:
    assert run_everywhere(databases, asked, range(1000, 4000)) > 1500


# -- constants --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("constant", [f"{BIG} * 3", f"{2**63 - 1} + 1", f"-({-(2**63)})", f"{-(2**63)} - 1"])
def test_a_constant_that_does_not_fit_is_refused(constant: str, asked: dpsql.Connection) -> None:
    with pytest.raises(dpsql.ProgrammingError, match="does not fit into 64 bits"):
        asked.explain(f"SELECT COUNT(*) FROM t WHERE k < {constant}")
