"""A Spark as the source: what is read of its catalogue and its rows, and how it fails."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import dpsql
from dpsql.cli.app import main
from dpsql.engines.registry import kind_of
from dpsql.engines.spark import engine
from dpsql.schema.model import Schema

pytestmark = pytest.mark.spark

SCHEMA: dict[str, Any] = {
    "dataset": "clinic",
    "contribution": {"max_groups": 3, "max_rows_per_group": 20},
    "tables": {
        "people": {"unit": "id", "columns": {"id": "integer", "born": {"type": "date", "nullable": True}}},
        "visits": {
            "unit": "person",
            "columns": {
                "person": "integer",
                "at": {"type": "timestamp", "nullable": True},
                "ward": {"type": "text", "values": ["a", "b"], "nullable": True},
                "cost": {"type": "decimal(12,3)", "bounds": [0, 1000], "nullable": True},
                "points": {"type": "double", "bounds": [0, 10], "nullable": True},
                "code": {"type": "integer", "bounds": [0, 10], "nullable": True},
            },
        },
    },
}
COLUMNS = """
    person DECIMAL(20,0), at TIMESTAMP, ward STRING COLLATE UTF8_LCASE, cost DECIMAL(10,1), points FLOAT, code SMALLINT
"""


@pytest.fixture(scope="module")
def lake(spark: Any) -> Any:
    """A database that somebody else made, as the current one."""
    spark.sql("CREATE DATABASE IF NOT EXISTS clinic")
    spark.sql("USE clinic")
    spark.sql(
        "CREATE TABLE people USING parquet AS SELECT id, date_add(DATE '1970-01-01', int(id)) AS born FROM range(300)"
    )
    rows = [
        (Decimal(number % 300), datetime(2024, 1, 1), "ab"[number % 2], Decimal(number % 100), number % 11 * 1.0, 3)
        for number in range(900)
    ]
    nan, infinite = float("nan"), float("inf")
    rows += [(Decimal(7), None, "B", None, nan, None), (Decimal(7), datetime(9999, 1, 1), "c", None, infinite, -5)]
    rows += [(Decimal(10) ** 19, None, None, None, None, None)]  # nobody that 64 bits could name
    spark.createDataFrame(rows, COLUMNS).write.saveAsTable("visits")
    spark.sql("CREATE VIEW seen AS SELECT * FROM visits")
    spark.sql("CREATE TABLE listed (person BIGINT, points DOUBLE) USING csv")
    spark.sql("CREATE TABLE nested (person BIGINT, many ARRAY<INT>, raw BINARY) USING parquet")
    spark.sql("CREATE TABLE in_orc USING orc AS SELECT id AS person, CAST(id % 10 AS DOUBLE) AS points FROM range(100)")
    spark.createDataFrame([(1, 2.0)], "person BIGINT, points DOUBLE").createOrReplaceTempView("passing")
    spark.sql("CREATE TABLE bytes USING parquet AS SELECT id AS person, CAST(x'FF41' AS STRING) AS word FROM range(50)")
    yield spark
    spark.sql("USE default")
    spark.sql("DROP DATABASE clinic CASCADE")


def connect(source: Any, tables: dict[str, Any] | None = None, **options: Any) -> dpsql.Connection:
    schema = SCHEMA if tables is None else SCHEMA | {"tables": tables}
    return dpsql.connect(source, schema=schema, ledger=":memory:", **{"budget": 1e15, "query_epsilon": 1e9} | options)


def rows(source: Any, sql: str, tables: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
    with connect(source, tables) as connection:
        return connection.execute(sql).fetchall()


def test_groups_are_scaled_as_the_definition_says(lake: Any) -> None:
    """bounding="l2_clip", max_groups=1: people in n kinds of visits count for 1/sqrt(n) in each of them."""
    kind = "CASE WHEN points < 4 THEN 'low' WHEN points < 8 THEN 'middle' ELSE 'high' END"
    with connect(lake, delta=1e-6) as connection:
        asked = f"SELECT {kind} AS kind, COUNT(*) AS n FROM visits WHERE person <> 7 GROUP BY kind"
        found = dict(connection.execute(asked, bounding="l2_clip", max_groups=1).fetchall())
    defined = f"""
        SELECT kind, SUM(n / SQRT(kinds)) AS n FROM (
            SELECT kind, n, COUNT(*) OVER (PARTITION BY person) AS kinds FROM (
                SELECT person, {kind} AS kind, COUNT(*) AS n FROM clinic.visits
                WHERE person < 300 AND person <> 7 GROUP BY person, {kind})) GROUP BY kind"""
    assert found == {row["kind"]: pytest.approx(row["n"], abs=1) for row in lake.sql(defined).collect()}
    assert len(found) == 3


def one_table(name: str, column: str = "points", kind: str = "double") -> dict[str, Any]:
    return {name: {"unit": "person", "columns": {"person": "integer", column: {"type": kind, "nullable": True}}}}


# -- what is read -----------------------------------------------------------------------------------------------------


def test_stored_types_are_read_as_declared(lake: Any) -> None:
    """Decimals as integers, a time with a zone, a text of another collation, and values beyond all that is declared."""
    ((count, wards, points, codes),) = rows(
        lake, "SELECT COUNT(*), COUNT(ward), COUNT(points), COUNT(code) FROM visits"
    )
    assert (round(count), round(wards), round(points), round(codes)) == (902, 900, 900, 901)
    assert round(rows(lake, "SELECT COUNT(*) FROM visits WHERE at < '2024-01-02'")[0][0]) == 900


def test_rows_are_sorted_by_their_unit_before_they_are_ranked(lake: Any) -> None:
    """Sent once, and sorted twice: Spark does not take both sorts for one."""
    with connect(lake) as connection:
        (release,) = connection.explain("SELECT MEDIAN(points) AS m FROM visits").releases
    ((plan,),) = lake.sql(f"EXPLAIN {release.sql}").collect()
    assert plan.count("Exchange hashpartitioning(_unit") == 1
    sorts = [line for line in plan.splitlines() if "Sort [_unit" in line]
    assert len(sorts) == 2
    assert "ASC NULLS FIRST]" in sorts[1], "the first one by the unit alone"


def test_both_doors_lead_to_the_same_tables(lake: Any, spark_url: str) -> None:
    sql = "SELECT ward, COUNT(*), SUM(cost) FROM visits GROUP BY ward"
    assert rows(lake, sql) == rows(f"{spark_url}/;database=clinic", sql)


def test_bytes_that_are_no_text_are_null(lake: Any) -> None:
    assert round(rows(lake, "SELECT COUNT(word) FROM bytes", one_table("bytes", "word", "text"))[0][0]) == 0


def test_orc_is_read_too(lake: Any) -> None:
    assert round(rows(lake, "SELECT COUNT(points) FROM in_orc", one_table("in_orc"))[0][0]) == 100


@pytest.mark.parametrize(
    ("table", "column", "kind", "says"),
    [
        ("nothing", "points", "double", 'has no table "nothing"'),
        ("passing", "points", "double", 'has no table "passing"'),  # a temporary view is its session's own
        ("seen", "points", "double", "it is a view"),
        ("listed", "points", "double", "it is stored as csv, so reading a row may fail"),
        ("nested", "many", "integer", "the database has ARRAY"),
        ("nested", "raw", "text", "the database has BINARY"),
        ("visits", "ward", "integer", "the database has VARCHAR"),
    ],
)
def test_what_cannot_be_relied_on_is_refused_by_name(lake: Any, table: str, column: str, kind: str, says: str) -> None:
    with pytest.raises(dpsql.SchemaError, match=says) as caught:
        connect(lake, one_table(table, column, kind))
    assert caught.value.hint


def test_a_view_can_be_trusted(lake: Any) -> None:
    tables = {"seen": one_table("seen")["seen"] | {"view": "trusted"}}
    assert round(rows(lake, "SELECT COUNT(*) FROM seen", tables)[0][0]) == 902


def test_nothing_is_unique_in_a_lake(lake: Any) -> None:
    """Its constraints are not enforced."""
    with connect(lake) as connection:
        guarantees = connection.session.environment.engine.guarantees
        integer = Schema.model_validate(SCHEMA).tables["people"].columns["id"].type
        assert not guarantees.is_unique("people", "id", integer)
        assert not guarantees.never_null("people", "id")


@pytest.mark.parametrize(
    "constraint",
    [
        "CONSTRAINT one PRIMARY KEY (id)",
        *(
            f"CONSTRAINT one {kind} {state} {trust}"
            for kind in ("PRIMARY KEY (id)", "UNIQUE (id)")
            for state in ("NOT ENFORCED", "ENFORCED", "DISABLE NOVALIDATE")
            for trust in ("", "RELY", "NORELY")
        ),
    ],
)
def test_no_constraint_of_a_lake_counts(lake: Any, constraint: str) -> None:
    """Whatever is said there. Tables of files take none at all so far."""
    lake.sql("DROP TABLE IF EXISTS made")
    try:
        lake.sql(f"CREATE TABLE made (id BIGINT NOT NULL, {constraint}) USING parquet")
    except Exception:  # it has no such words, or no such tables
        lake.sql("CREATE TABLE made (id BIGINT NOT NULL) USING parquet TBLPROPERTIES ('primary_key' = 'id')")
    lake.sql("INSERT INTO made VALUES (1), (1)")
    with connect(lake, {"made": {"unit": "id", "columns": {"id": "integer"}}}) as connection:
        environment = connection.session.environment
        integer = environment.schema.tables["made"].columns["id"].type
        assert not environment.engine.guarantees.is_unique("made", "id", integer)
        assert not environment.engine.guarantees.never_null("made", "id")
    lake.sql("DROP TABLE made")


# -- whose session it is ----------------------------------------------------------------------------------------------


def test_settings_of_the_session_that_is_given_do_not_matter(lake: Any) -> None:
    """Nor are they changed."""
    other = lake.newSession()
    other.sql("USE clinic")
    for name, value in {"ansi.enabled": "false", "session.timeZone": "Asia/Tokyo", "caseSensitive": "true"}.items():
        other.conf.set(f"spark.sql.{name}", value)
    sql = "SELECT ward, COUNT(*) FROM visits WHERE at < '2024-01-01 00:00:01' GROUP BY ward"
    assert rows(other, sql) == rows(lake, sql)
    assert other.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"


def test_functions_of_other_sessions_are_not_called(lake: Any) -> None:
    lake.udf.register("octet_length", lambda text: 10**6, "int")
    lake.udf.register("xxhash64", lambda *parts: 1, "bigint")
    assert round(rows(lake, "SELECT COUNT(ward) FROM visits")[0][0]) == 900


def test_an_engine_that_computes_otherwise_is_refused(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "PROBES", {"id = 1": "its zero is one"})
    with pytest.raises(dpsql.OperationalError, match="not certified on this Spark: its zero is one"):
        connect(lake)


def test_constants_that_are_moved_together_are_noticed(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting that keeps them apart is needed, and that it holds is looked at."""
    settings = {name: value for name, value in engine.SETTINGS.items() if "excludedRules" not in name}
    monkeypatch.setattr(engine, "SETTINGS", settings)
    with pytest.raises(dpsql.OperationalError, match="it reorders constants"):
        connect(lake)


def test_a_version_that_is_not_certified_is_warned_of(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "CERTIFIED", ("4.9",))
    with pytest.warns(UserWarning, match=r"dpsql is certified on Spark 4\.9, but this is"):
        connect(lake).close()


def test_a_session_is_told_from_other_things(lake: Any) -> None:
    assert kind_of(lake).name == "Spark"
    assert kind_of("shop.duckdb").name == "DuckDB"
    assert kind_of({"visits": "visits.parquet"}).name == "DuckDB"


def test_an_account_needs_a_file(lake: Any) -> None:
    with pytest.raises(dpsql.InterfaceError, match="explicit ledger"):
        dpsql.connect(lake, schema=SCHEMA, budget=1)


# -- how it fails -----------------------------------------------------------------------------------------------------


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(dpsql.OperationalError, match="Spark cannot be reached"):
        connect("sc://127.0.0.1:9")


def test_a_table_that_changed_is_not_asked(lake: Any) -> None:
    lake.sql("CREATE TABLE moving USING parquet AS SELECT id AS person, 1D AS points FROM range(9)")
    with connect(lake, one_table("moving")) as connection:
        connection.execute("SELECT COUNT(*) FROM moving").fetchall()
        lake.sql("DROP TABLE moving")
        with pytest.raises(dpsql.OperationalError, match="a declared table is gone"):
            connection.execute("SELECT COUNT(*) + 0 FROM moving")
        lake.sql("CREATE TABLE moving (person BIGINT, points DOUBLE, more INT) USING parquet")
        with pytest.raises(dpsql.OperationalError, match="a declared table was changed"):
            connection.execute("SELECT COUNT(*) + 1 FROM moving")


def test_a_failure_is_sealed_and_the_next_question_works(
    lake: Any, spark_url: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Files that are gone make Spark fail. What it says, and what its client would log, stays where it is."""
    place = tmp_path / "torn"
    lake.sql(f"CREATE TABLE torn USING parquet LOCATION '{place}' AS SELECT id AS person, 1D AS points FROM range(9)")
    url = f"{spark_url}/;database=clinic"
    tables = one_table("torn") | {"people": SCHEMA["tables"]["people"]}
    with connect(url, tables, budget=10, query_epsilon=1, on_failure="warn") as connection:
        for file in place.glob("part-*"):
            file.write_bytes(b"no rows any more")
        with pytest.raises(dpsql.SealedExecutionError) as caught:
            connection.execute("SELECT COUNT(*) FROM torn")
        assert "torn" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert connection.budget.spent.epsilon > 0
        assert "no rows any more" not in "".join(capfd.readouterr())
        assert connection.execute("SELECT COUNT(*) FROM people").fetchall()
    lake.sql("DROP TABLE torn")


def test_what_it_has_no_words_for_is_refused_before_the_charge(lake: Any) -> None:
    with connect(lake, budget=1, query_epsilon=0.5) as connection:
        with pytest.raises(dpsql.Unsupported, match="on Spark REGEXP_MATCHES") as caught:
            connection.execute("SELECT COUNT(*) FROM visits WHERE REGEXP_MATCHES(ward, '^a')")
        assert caught.value.hint
        assert connection.budget.spent.epsilon == 0


def test_dates_that_old_files_hold_do_not_fail(lake: Any) -> None:
    """Files of old versions count days by another calendar, and reading them fails by default."""
    lake.sql("CREATE TABLE old USING parquet AS SELECT id AS person, DATE '0001-01-01' AS points FROM range(20)")
    tables = one_table("old", "points", "date")
    assert round(rows(lake, "SELECT COUNT(points) FROM old WHERE points <= DATE '0001-01-01'", tables)[0][0]) == 20
    assert date.min == date(1, 1, 1)


# -- the command ------------------------------------------------------------------------------------------------------


def test_a_schema_is_begun_checked_and_asked(
    lake: Any, spark_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    url = f"{spark_url}/;database=clinic"

    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        assert not ended.value.code, capsys.readouterr().err
        return capsys.readouterr().out

    run("init", url, "--unit", "people.id", "--unit", "visits.person", "--yes")
    assert "cost: decimal(10,1)" in Path("clinic.yaml").read_text()
    Path("people.yaml").write_text(json.dumps(SCHEMA))
    assert "is valid and matches" in run("check", "people.yaml", url)
    options = ["--db", url, "--schema", "people.yaml", "--ledger", "people.ledger", "--epsilon", "1"]
    asked = run("query", "SELECT COUNT(*) AS n FROM people", *options, "--budget", "3", "--json")
    assert json.loads(asked)["rows"]
