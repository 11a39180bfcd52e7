"""A PostgreSQL server as the source: what is read of its catalogue and its rows, and how it fails."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from IPython.core.interactiveshell import InteractiveShell

import dpsql
from dpsql.cli.app import main
from dpsql.engines.postgresql import engine
from dpsql.engines.postgresql.engine import SETTINGS

SCHEMA: dict[str, Any] = {
    "dataset": "clinic",
    "contribution": {"max_groups": 3, "max_rows_per_group": 20},
    "tables": {
        "people": {
            "unit": "id",
            "columns": {"id": "integer", "born": {"type": "date", "nullable": True}, "mail": "text"},
        },
        "visits": {
            "unit": {"through": "person", "to": "people.id"},
            "columns": {
                "person": "integer",
                "at": {"type": "timestamp", "nullable": True},
                "ward": {"type": "text", "values": ["a", "b"], "nullable": True},
                "cost": {"type": "decimal(12,3)", "bounds": [0, 1000], "nullable": True},
                "code": {"type": "text", "nullable": True},
                "points": {"type": "double", "bounds": [0, 10], "nullable": True},
            },
        },
    },
}
DUMP = """
    CREATE EXTENSION IF NOT EXISTS citext;
    DROP SCHEMA IF EXISTS clinic CASCADE; CREATE SCHEMA clinic; SET search_path = clinic, public;
    CREATE TYPE ward AS ENUM ('a', 'b', 'c');
    CREATE DOMAIN euros AS numeric CHECK (VALUE IS NULL OR VALUE = VALUE);
    CREATE TABLE people (id INTEGER PRIMARY KEY, born DATE, mail citext NOT NULL, tags TEXT[]);
    CREATE TABLE visits (person INTEGER NOT NULL REFERENCES people, at TIMESTAMPTZ, ward ward, cost euros,
                         code CHAR(4), points NUMERIC, length INTERVAL);
    INSERT INTO people SELECT i, DATE '1970-01-01' + i, 'P' || i || '@x.org', ARRAY['x'] FROM generate_series(1, 300) i;
    INSERT INTO visits SELECT 1 + i % 300, TIMESTAMPTZ '2024-01-01 00:00+02' + i * INTERVAL '1 hour',
        (ARRAY['a', 'b'])[1 + i % 2]::ward, (i % 1000) * 1.0005, 'k' || i % 3, i % 11 FROM generate_series(0, 899) i;
    INSERT INTO visits VALUES (7, 'infinity', NULL, 'NaN', NULL, 'Infinity'), (7, '-infinity', 'c', 1e120, '', 1e-400),
        (7, '4713-01-01 BC', 'a', -1e120, 'ab', 'NaN'), (7, NULL, 'b', 0.1234567, NULL, 1e400);
    CREATE VIEW seen AS SELECT * FROM visits;
    CREATE MATERIALIZED VIEW kept AS SELECT * FROM visits;
    CREATE TABLE parted (person INTEGER, points NUMERIC(4,1)) PARTITION BY RANGE (person);
    CREATE TABLE parted_low PARTITION OF parted FOR VALUES FROM (0) TO (100);
    CREATE TABLE ruled (person INTEGER UNIQUE, points FLOAT); ALTER TABLE ruled ENABLE ROW LEVEL SECURITY;
    CREATE TABLE "Odd Names" ("Some One" INTEGER, "x""y" FLOAT);
    CREATE TABLE twice (person INTEGER, x FLOAT, "X" FLOAT);
    CREATE TABLE base (person INTEGER UNIQUE); CREATE TABLE heir () INHERITS (base);
    INSERT INTO base VALUES (1); INSERT INTO heir VALUES (1);
"""


@pytest.fixture(scope="module")
def url(postgresql_url: str) -> str:
    """A database made by somebody else, with the schema `clinic`."""
    import psycopg

    with psycopg.connect(postgresql_url, autocommit=True) as connection:
        connection.execute(DUMP)
    return f"{postgresql_url}&options=-csearch_path%3Dclinic"


@pytest.fixture
def execute(postgresql_url: str) -> Iterator[Callable[[str], Any]]:
    """The owner's own connection."""
    import psycopg

    with psycopg.connect(f"{postgresql_url}&options=-csearch_path%3Dclinic", autocommit=True) as connection:
        yield connection.execute


def connect(url: str, tables: dict[str, Any] | None = None, **options: Any) -> dpsql.Connection:
    schema = SCHEMA if tables is None else SCHEMA | {"tables": tables}
    return dpsql.connect(url, schema=schema, ledger=":memory:", **{"budget": 1e15, "query_epsilon": 1e9} | options)


def rows(url: str, sql: str, tables: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
    with connect(url, tables) as connection:
        return connection.execute(sql).fetchall()


# -- what is read ------------------------------------------------------------------------------------------------------


def test_stored_types_are_read_as_declared(url: str) -> None:
    """An enum, a domain over NUMERIC, CHAR(4), TIMESTAMPTZ, CITEXT, and values beyond everything declared."""
    ((count, cost, points, codes, wards),) = rows(
        url, "SELECT COUNT(*), COUNT(cost), COUNT(points), COUNT(code), COUNT(ward) FROM visits"
    )
    # No NaN, no infinity, nothing longer than its decimal, and no ward that is not declared.
    assert (round(count), round(cost), round(points), round(codes), round(wards)) == (904, 901, 901, 902, 902)


def test_a_moment_with_a_zone_is_its_moment_in_utc(url: str) -> None:
    sql = "SELECT COUNT(*) FROM visits WHERE at < '2024-01-01 00:00:00' AND at > '2023-01-01'"
    assert round(rows(url, sql)[0][0]) == 2


def test_decimals_are_rounded_to_their_digits(url: str) -> None:
    assert float(rows(url, "SELECT SUM(cost) FROM visits WHERE cost < 1")[0][0]) == pytest.approx(0.123, abs=1e-6)


def test_names_are_those_of_the_catalogue(url: str) -> None:
    tables = {"odd names": {"unit": "some one", "columns": {"some one": "integer"}}}
    assert round(rows(url, 'SELECT COUNT(*) FROM "odd names"', tables)[0][0]) == 0


def test_groups_are_scaled_as_the_definition_says(url: str, execute: Callable[[str], Any]) -> None:
    """bounding="l2_clip", max_groups=1: people in n kinds of visits count for 1/sqrt(n) in each of them."""
    kind = "CASE WHEN points < 4 THEN 'low' WHEN points < 8 THEN 'middle' ELSE 'high' END"
    with connect(url, delta=1e-6) as connection:
        asked = f"SELECT {kind} AS kind, COUNT(*) AS n FROM visits WHERE person <> 7 GROUP BY kind"
        found = dict(connection.execute(asked, bounding="l2_clip", max_groups=1).fetchall())
    defined = f"""
        SELECT kind, SUM(n / SQRT(kinds)) FROM (
            SELECT {kind} AS kind, COUNT(*) AS n, COUNT(*) OVER (PARTITION BY person) AS kinds
            FROM visits WHERE person <> 7 GROUP BY person, 1) AS of_person GROUP BY kind"""
    assert found == {name: pytest.approx(float(n), abs=1) for name, n in execute(defined).fetchall()}
    assert len(found) == 3


@pytest.mark.parametrize("key", ["word", "number"])
def test_every_group_has_its_own_rows(key: str, url: str, execute: Callable[[str], Any]) -> None:
    """NULL beside '' and 0, and numbers that PostgreSQL hashes alike: groups may be known by their hashes alone."""
    keys = f"(VALUES (NULL, NULL), ('', 0), ('b', 2147483648), ('c', {2**63 - 1})) AS keys(word, number)"
    execute(f"CREATE TABLE everywhere AS SELECT person, word, number FROM generate_series(1, 100) AS person, {keys}")
    columns = {"person": "integer", "word": "text", "number": "integer"}
    with connect(url, {"everywhere": {"unit": "person", "columns": columns}}, delta=1e-6) as connection:
        asked = f"SELECT {key}, COUNT(*), COUNT(DISTINCT person) FROM everywhere GROUP BY {key}"
        found = connection.execute(asked, max_groups=4, max_rows_per_group=8).fetchall()
    execute("DROP TABLE everywhere")
    assert [row[1:] for row in found] == [(100, 100)] * 4


@pytest.mark.parametrize(
    ("table", "columns", "says"),
    [
        ("nothing", {"person": "integer"}, 'has no table "nothing"'),
        ("people", {"id": "integer", "tags": "text"}, "declared as text, but the database has _TEXT"),
        ("twice", {"person": "integer", "x": "double"}, "two columns of the database have this name"),
        ("visits", {"person": "integer", "length": "integer"}, "the database has INTERVAL"),
        ("visits", {"person": "integer", "code": "integer"}, "the database has VARCHAR"),
        ("seen", {"person": "integer"}, "it is a view"),
        ("kept", {"person": "integer"}, "it is a materialized view"),
        ("ruled", {"person": "integer"}, "it is a table with row level security"),
    ],
)
def test_what_cannot_be_relied_on_is_refused_by_name(url: str, table: str, columns: dict[str, Any], says: str) -> None:
    unit = next(iter(columns))
    with pytest.raises(dpsql.Error, match=says):
        connect(url, {table: {"unit": unit, "columns": columns}})


def test_a_view_can_be_trusted(url: str) -> None:
    tables = {"seen": {"unit": "person", "view": "trusted", "columns": {"person": "integer"}}}
    assert round(rows(url, "SELECT COUNT(*) FROM seen", tables)[0][0]) == 904


def test_constraints_are_the_databases_own(url: str) -> None:
    """Of tables with heirs nothing is unique, whatever the parent says."""
    with connect(url) as connection:
        engine = connection.session.environment.engine.guarantees
        integer = connection.session.environment.schema.tables["people"].columns["id"].type
        assert engine.is_unique("people", "id", integer)
        assert not engine.is_unique("visits", "person", integer)
        assert engine.never_null("people", "id")
        assert not engine.never_null("visits", "cost")
    with connect(url, {"base": {"unit": "person", "columns": {"person": "integer"}}}) as connection:
        assert not connection.session.environment.engine.guarantees.is_unique("base", "person", integer)


ENFORCED = {
    "primary key": "CREATE TABLE made (id BIGINT PRIMARY KEY)",
    "unique": "CREATE TABLE made (id BIGINT UNIQUE NOT NULL)",
    "of all partitions": """CREATE TABLE made (id BIGINT PRIMARY KEY) PARTITION BY RANGE (id);
        CREATE TABLE made_low PARTITION OF made FOR VALUES FROM (0) TO (100)""",
    "of a partition that is attached": """CREATE TABLE made (id BIGINT UNIQUE) PARTITION BY RANGE (id);
        CREATE TABLE made_low (id BIGINT); ALTER TABLE made ATTACH PARTITION made_low FOR VALUES FROM (0) TO (100)""",
    "one NULL at most": "CREATE TABLE made (id BIGINT UNIQUE NULLS NOT DISTINCT)",
    "an index that becomes a constraint": """CREATE TABLE made (id BIGINT); CREATE UNIQUE INDEX made_id ON made (id);
        ALTER TABLE made ADD UNIQUE USING INDEX made_id""",
}
NOT_ENFORCED = {
    "an index that is no constraint": "CREATE TABLE made (id BIGINT NOT NULL); CREATE UNIQUE INDEX ON made (id)",
    "a partial index": "CREATE TABLE made (id BIGINT); CREATE UNIQUE INDEX ON made (id) WHERE id > 5",
    "an index of an expression": "CREATE TABLE made (id BIGINT); CREATE UNIQUE INDEX ON made ((id / 2))",
    "two columns": "CREATE TABLE made (id BIGINT, day DATE, PRIMARY KEY (id, day))",
    "deferrable": "CREATE TABLE made (id BIGINT UNIQUE DEFERRABLE)",
    "deferred": "CREATE TABLE made (id BIGINT UNIQUE DEFERRABLE INITIALLY DEFERRED)",
    "of the parent alone": """CREATE TABLE made (id BIGINT) PARTITION BY RANGE (id);
        CREATE TABLE made_low PARTITION OF made FOR VALUES FROM (0) TO (100);
        ALTER TABLE ONLY made ADD UNIQUE (id)""",
    "of a partition that has parts of its own": """CREATE TABLE made (id BIGINT) PARTITION BY RANGE (id);
        CREATE TABLE made_low PARTITION OF made FOR VALUES FROM (0) TO (100) PARTITION BY RANGE (id);
        CREATE TABLE made_lowest PARTITION OF made_low FOR VALUES FROM (0) TO (10);
        ALTER TABLE ONLY made ADD UNIQUE (id); ALTER TABLE ONLY made_low ADD CONSTRAINT low UNIQUE (id);
        ALTER INDEX made_id_key ATTACH PARTITION low""",
    "of one partition": """CREATE TABLE made (id BIGINT) PARTITION BY RANGE (id);
        CREATE TABLE made_low PARTITION OF made FOR VALUES FROM (0) TO (100);
        ALTER TABLE made_low ADD UNIQUE (id)""",
    "with heirs": "CREATE TABLE made (id BIGINT PRIMARY KEY); CREATE TABLE made_heir () INHERITS (made)",
    "an index that is not valid": """CREATE TABLE made (id BIGINT PRIMARY KEY);
        UPDATE pg_index SET indisvalid = false WHERE indrelid = 'made'::regclass""",
    "an index that is not ready": """CREATE TABLE made (id BIGINT PRIMARY KEY);
        UPDATE pg_index SET indisready = false WHERE indrelid = 'made'::regclass""",
    "an index that is dropped": """CREATE TABLE made (id BIGINT PRIMARY KEY);
        UPDATE pg_index SET indislive = false WHERE indrelid = 'made'::regclass""",
    "a constraint that is not validated": """CREATE TABLE made (id BIGINT PRIMARY KEY);
        UPDATE pg_constraint SET convalidated = false WHERE conrelid = 'made'::regclass""",
    "a check": "CREATE TABLE made (id BIGINT CHECK (id > 0))",
    "an exclusion": "CREATE TABLE made (id BIGINT, EXCLUDE USING btree (id WITH =))",
}


@pytest.mark.parametrize("form", [*ENFORCED, *NOT_ENFORCED])
def test_only_what_is_enforced_counts_as_unique(url: str, execute: Callable[[str], Any], form: str) -> None:
    """A constraint is worth what its index enforces on every row: else one person's rows could be many."""
    execute("DROP TABLE IF EXISTS made CASCADE")
    execute((ENFORCED | NOT_ENFORCED)[form])
    with connect(url, {"made": {"unit": "id", "columns": {"id": "integer"}}}) as connection:
        environment = connection.session.environment
        integer = environment.schema.tables["made"].columns["id"].type
        assert environment.engine.guarantees.is_unique("made", "id", integer) == (form in ENFORCED)
    execute("DROP TABLE made CASCADE")


def test_a_column_that_is_not_null_elsewhere_may_be_null_here(url: str, execute: Callable[[str], Any]) -> None:
    """An heir may drop what its parent requires."""
    execute("DROP TABLE IF EXISTS made CASCADE; CREATE TABLE made (id BIGINT NOT NULL)")
    for heir, expected in (("", True), ("CREATE TABLE made_heir () INHERITS (made)", False)):
        execute(heir)
        with connect(url, {"made": {"unit": "id", "columns": {"id": "integer"}}}) as connection:
            assert connection.session.environment.engine.guarantees.never_null("made", "id") == expected
    execute("DROP TABLE made CASCADE")


COMPARED = "EXISTS (SELECT 1 FROM visits b WHERE b.person = a.person AND b.cost > a.cost)"

# -- how it reads ------------------------------------------------------------------------------------------------------


def test_it_only_reads(url: str) -> None:
    with connect(url) as connection:
        engine = connection.session.environment.engine
        with pytest.raises(Exception, match="read-only"):
            engine.run("DELETE FROM clinic.visits")
        ((setting,),) = engine.run("SELECT current_setting('search_path')").values()
        assert setting == "pg_catalog, pg_temp"


def test_a_role_needs_no_more_than_the_declared_columns(url: str, execute: Callable[[str], Any]) -> None:
    execute("DROP OWNED BY analyst" if execute("SELECT 1 FROM pg_roles WHERE rolname = 'analyst'").fetchone() else "")
    execute("DO $$ BEGIN CREATE ROLE analyst LOGIN; EXCEPTION WHEN duplicate_object THEN END $$")
    execute("GRANT USAGE ON SCHEMA clinic TO analyst")
    execute("GRANT SELECT (id, mail) ON people TO analyst")
    tables = {"people": {"unit": "id", "columns": {"id": "integer", "mail": "text"}}}
    with connect(url.replace("owner@", "analyst@"), tables) as connection:
        assert round(connection.execute("SELECT COUNT(*) FROM people").fetchall()[0][0]) == 300


def test_a_role_that_may_read_nothing_is_told_at_once(url: str, execute: Callable[[str], Any]) -> None:
    execute("DO $$ BEGIN CREATE ROLE stranger LOGIN; EXCEPTION WHEN duplicate_object THEN END $$")
    execute("GRANT USAGE ON SCHEMA clinic TO stranger")
    with pytest.raises(dpsql.OperationalError, match="this role cannot read the declared columns"):
        connect(url.replace("owner@", "stranger@"))


def test_an_account_needs_a_file(url: str) -> None:
    with pytest.raises(dpsql.InterfaceError, match="a server needs an explicit ledger"):
        dpsql.connect(url, schema=SCHEMA, budget=1)


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(dpsql.OperationalError, match="PostgreSQL cannot be reached"):
        connect("postgresql://nobody@/nothing?host=/nowhere")


# -- how it fails ------------------------------------------------------------------------------------------------------


def test_a_failure_is_sealed_and_the_next_question_works(url: str, execute: Callable[[str], Any]) -> None:
    with connect(url, budget=10, query_epsilon=1, on_failure="warn") as connection:
        setting = connection.session.environment
        engine = setting.engine

        class Failing:
            def __getattr__(self, name: str) -> Any:
                return getattr(engine, name)

            def run(self, sql: str, materialized: Any = None) -> Any:
                return engine.run("SELECT 1 / (person - person) FROM clinic.visits")

        connection.session.environment = dataclasses.replace(setting, engine=Failing())
        with pytest.raises(dpsql.SealedExecutionError) as caught:
            connection.execute("SELECT COUNT(*) FROM visits")
        assert "division" not in str(caught.value)
        assert caught.value.__cause__ is None
        connection.session.environment = setting
        assert connection.execute("SELECT COUNT(*) FROM people").fetchall()


def test_people_are_sorted_once_and_by_several_processes(url: str, execute: Callable[[str], Any]) -> None:
    """As the server plans it, where starting a process costs nothing: what counts is that it may, and where."""
    tables = {"base": {"unit": "person", "columns": {"person": {"type": "integer", "values": list(range(40))}}}}
    execute("SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0")
    with connect(url, tables, delta=1e-6) as connection:
        (by_person,) = connection.explain("SELECT COUNT(*) FROM base").releases
        few: Any = {"max_groups": 2, "max_rows_per_group": 5}
        (by_group,) = connection.explain("SELECT person % 40, COUNT(*) FROM base GROUP BY 1", **few).releases
    for release in (by_person, by_group):
        plan = "\n".join(line for (line,) in execute(f"EXPLAIN (COSTS OFF) {release.sql}"))
        before, gathered, shared = plan.partition("Gather Merge")
        assert gathered, plan
        assert "Sort" in shared, plan
        assert "GroupAggregate" in before, plan
    assert re.search(r"Group Key: \w+\._unit, \w+\._order, \w+\._k0", plan), plan


def test_no_row_is_compared_with_each_of_all_others(url: str, execute: Callable[[str], Any]) -> None:
    """Whatever the server expects: one person's rows would take time by the number of everybody's."""
    rare = "cost > 1 AND points = 3 AND code = 'k1' AND LENGTH(code) = 2"
    with connect(url, delta=1e-6) as connection:
        (release,) = connection.explain(f"SELECT ward, AVG(cost) FROM visits WHERE {rare} GROUP BY ward").releases
    execute(f"SET enable_nestloop = {SETTINGS['enable_nestloop']}")
    plan = "\n".join(line for (line,) in execute(f"EXPLAIN {release.sql}"))
    assert "Nested Loop" not in plan, plan


def test_conditions_reach_the_rows_before_they_are_joined(url: str, execute: Callable[[str], Any]) -> None:
    """With whom they belong to, by a key: else all rows would be joined, and the planner expect one."""
    with connect(url, delta=1e-6) as connection:
        (release,) = connection.explain("SELECT SUM(cost) FROM visits WHERE ward = 'a' AND cost * 2 > 5").releases
    plan = [line for (line,) in execute(f"EXPLAIN (COSTS OFF) {release.sql}")]
    scanned = next(number for number, line in enumerate(plan) if "Seq Scan on visits" in line)
    assert "ward" in plan[scanned + 1], plan
    assert "cost" in plan[scanned + 1], plan


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT COUNT(*) FROM visits a WHERE {COMPARED} OR a.cost > 500",
        f"SELECT COUNT(*) FROM (SELECT person, {COMPARED} AS later FROM visits a) WHERE NOT later",
        "SELECT COUNT(*) FROM (SELECT person, (person, cost) IN (SELECT person, cost FROM visits WHERE points > 3) AS m"
        " FROM visits) WHERE m IS NULL",
    ],
)
def test_no_row_reads_all_others_again(url: str, sql: str) -> None:
    """A match that is no condition of its own is looked up by its hash, or refused before the charge."""
    with connect(url) as connection:
        with pytest.raises(dpsql.Unsupported, match="compare every row with every other"):
            connection.execute(sql)
        assert connection.budget.spent.epsilon == 0
        looked_up = COMPARED.replace("b.cost > a.cost", "b.code = a.code")
        assert connection.execute(f"SELECT COUNT(*) FROM visits a WHERE {looked_up} OR a.cost > 500").fetchall()
        assert connection.execute(f"SELECT COUNT(*) FROM visits a WHERE {COMPARED} AND a.cost > 500").fetchall()


def test_a_query_has_a_time_limit(url: str) -> None:
    with connect(f"{url}%20-cstatement_timeout%3D300") as connection:
        engine = connection.session.environment.engine
        with pytest.raises(Exception, match="statement timeout"):
            engine.run("SELECT pg_sleep(20)")
        assert round(connection.execute("SELECT COUNT(*) FROM people").fetchall()[0][0]) == 300
    with connect(url) as connection:
        ((limit,),) = connection.session.environment.engine.run("SELECT current_setting('statement_timeout')").values()
        assert limit == "1h"


def test_a_table_that_changed_is_not_asked(url: str, execute: Callable[[str], Any]) -> None:
    with connect(url, {"parted": {"unit": "person", "columns": {"person": "integer"}}}) as connection:
        connection.execute("SELECT COUNT(*) FROM parted").fetchall()
        execute("ALTER TABLE parted ADD COLUMN more TEXT")
        with pytest.raises(dpsql.OperationalError, match="a declared table was changed"):
            connection.execute("SELECT COUNT(*) + 0 FROM parted")


def test_what_it_has_no_words_for_is_refused_before_the_charge(url: str) -> None:
    with connect(url, budget=1, query_epsilon=0.5) as connection:
        with pytest.raises(dpsql.Unsupported, match="on PostgreSQL REGEXP_MATCHES") as caught:
            connection.execute("SELECT COUNT(*) FROM visits WHERE REGEXP_MATCHES(code, '^k')")
        assert caught.value.hint
        assert connection.budget.spent.epsilon == 0


# -- rows that make it fail --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "condition",
    [
        "born - 3652058 IS NULL",
        "born + id * 100000000 IS NULL",
        "CAST(ROUND(share) AS VARCHAR) = ''",
        "mail NOT ILIKE 'P|%' ESCAPE '|'",
    ],
)
def test_a_question_is_answered_whoever_is_there(condition: str, url: str, execute: Callable[[str], Any]) -> None:
    execute("DROP TABLE IF EXISTS guests; CREATE TABLE guests (id BIGINT, born DATE, share NUMERIC(4, 2), mail TEXT)")
    execute("INSERT INTO guests VALUES (-1, '0001-01-01', 99.99, 'a')")
    columns = {"id": "integer", "born": "date", "share": "decimal(4,2)", "mail": "text"}
    ((n,),) = rows(
        url, f"SELECT COUNT(*) FROM guests WHERE {condition}", {"guests": {"unit": "id", "columns": columns}}
    )
    assert n == (0 if "CAST" in condition else 1)


def test_no_cast_of_the_owners_spells_an_enum(url: str, execute: Callable[[str], Any]) -> None:
    """It may fail for one value, or say something else."""
    execute("DROP TYPE IF EXISTS mood CASCADE; CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE DOMAIN felt AS mood")
    execute("""
        CREATE FUNCTION spelled(mood) RETURNS TEXT LANGUAGE plpgsql AS
            $$ BEGIN IF $1 = 'happy' THEN RAISE EXCEPTION 'happy'; END IF; RETURN 'unknown'; END $$
    """)
    execute("CREATE CAST (mood AS TEXT) WITH FUNCTION spelled(mood)")
    execute("CREATE TABLE moods (id BIGINT, mood mood, felt felt)")
    execute("INSERT INTO moods VALUES (1, 'sad', 'sad'), (2, 'happy', 'happy'), (3, NULL, NULL)")
    mood = {"type": "text", "values": ["sad", "happy"], "nullable": True}
    tables = {"moods": {"unit": "id", "columns": {"id": "integer", "mood": mood, "felt": mood}}}
    found = rows(url, "SELECT mood, felt, COUNT(*) AS n FROM moods GROUP BY ALL HAVING n > 0 ORDER BY mood", tables)
    assert found == [("happy", "happy", 1), ("sad", "sad", 1), (None, None, 1)]


def test_rows_of_other_servers_are_rows_of_no_table_however_deep(url: str, execute: Callable[[str], Any]) -> None:
    """A foreign table is a partition of a partition: no constraint holds for what another server sends."""
    execute("DROP FOREIGN DATA WRAPPER IF EXISTS elsewhere CASCADE; CREATE FOREIGN DATA WRAPPER elsewhere")
    execute("CREATE SERVER other FOREIGN DATA WRAPPER elsewhere")
    execute("CREATE TABLE far (id BIGINT NOT NULL) PARTITION BY RANGE (id)")
    execute("CREATE TABLE farther PARTITION OF far FOR VALUES FROM (0) TO (100) PARTITION BY RANGE (id)")
    execute("CREATE FOREIGN TABLE farthest PARTITION OF farther FOR VALUES FROM (0) TO (50) SERVER other")
    with pytest.raises(dpsql.SchemaError, match="a table with partitions on another server"):
        connect(url, {"far": {"unit": "id", "columns": {"id": "integer"}}})


# -- the command -------------------------------------------------------------------------------------------------------


def test_a_schema_is_begun_checked_and_asked(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        assert not ended.value.code, capsys.readouterr().err
        return capsys.readouterr().out

    run("init", url, "--unit", "people.id", "--unit", "visits.person", "--yes")
    begun = Path("postgres.yaml").read_text()
    assert "unique: true" in begun  # the primary key
    # A NUMERIC that has no digits of its own, NOT NULL and not, an enum with its labels, one table for its partitions.
    assert "cost: {type: 'decimal(18,2)', nullable: true}" in begun
    assert "ward: {type: text, values: [a, b, c], nullable: true}" in begun
    assert re.search(r"^      mail: text ", begun, re.MULTILINE)
    assert "if a row of a table with row level security follows" in begun
    assert "  parted:" in begun
    assert "parted_low" not in begun
    Path("people.yaml").write_text(json.dumps(SCHEMA))
    assert "is valid and matches" in run("check", "people.yaml", url)
    assert "exact and unprotected" in run("check", "people.yaml", url, "--data")
    options = ["--db", url, "--schema", "people.yaml", "--ledger", "people.ledger", "--epsilon", "1"]
    asked = run("query", "SELECT COUNT(*) AS n FROM people", *options, "--budget", "3", "--json")
    assert json.loads(asked)["rows"]
    assert "pg_catalog" not in run("explain", "SELECT COUNT(*) AS n FROM people", *options)


def test_a_schema_is_begun_with_what_the_role_may_read(url: str, execute: Callable[[str], Any]) -> None:
    from dpsql.engines.registry import describe

    execute("DO $$ BEGIN CREATE ROLE newcomer LOGIN; EXCEPTION WHEN duplicate_object THEN END $$")
    execute("GRANT USAGE ON SCHEMA clinic TO newcomer; GRANT SELECT (id, born) ON people TO newcomer")
    _, tables = describe(url.replace("owner@", "newcomer@"))
    assert {name: set(table.columns) for name, table in tables.items()} == {"people": {"id", "born"}}
    assert tables["people"].nullable >= {"born"}
    assert "id" not in tables["people"].nullable


# -- other front ends --------------------------------------------------------------------------------------------------


def test_sqlalchemy_asks_it_too(url: str, tmp_path: Path) -> None:
    """Its URL is the database of a URL of dpsql's own; the account is a file, or another schema of the server."""
    (tmp_path / "people.yaml").write_text(json.dumps(SCHEMA))
    options = {"schema": str(tmp_path / "people.yaml"), "budget": "100", "query_epsilon": "10"}
    for ledger in (str(tmp_path / "people.ledger"), f"{url.split('&options')[0]}&schema=sqlalchemy_ledger"):
        engine = sa.create_engine(sa.URL.create("dpsql", database=url, query=options | {"ledger": ledger}))
        assert sa.inspect(engine).get_table_names() == ["people", "visits"]
        with engine.connect() as connection:
            people = connection.execute(sa.text("SELECT COUNT(*) AS n FROM people")).scalar_one()
            assert abs(people - 300) < 20
            with pytest.raises(sa.exc.DBAPIError, match="REGEXP_MATCHES"):
                connection.execute(sa.text("SELECT COUNT(*) FROM visits WHERE REGEXP_MATCHES(code, '^k')"))
        engine.dispose()


def test_a_notebook_asks_it_too(ipython: InteractiveShell, url: str, tmp_path: Path) -> None:
    (tmp_path / "people.yaml").write_text(json.dumps(SCHEMA))
    ipython.run_line_magic("load_ext", "dpsql")
    options = f"--schema {tmp_path}/people.yaml --ledger {tmp_path}/people.ledger --budget 100 --as clinic"
    ipython.run_line_magic("dpsql", f"connect {url} {options}")
    with ipython.user_ns["clinic"]:
        shown = ipython.run_cell_magic("dpsql", "--epsilon 10", "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward")
        assert [row[0] for row in shown.fetchall()] == ["a", "b", None]
        assert "visits" in str(ipython.run_line_magic("dpsql", "tables"))


def test_a_version_that_is_not_certified_is_warned_of(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "CERTIFIED", (99,))
    with pytest.warns(UserWarning, match="dpsql is certified on PostgreSQL 99, but this is"):
        connect(url).close()
    monkeypatch.setattr(engine, "OLDEST", 99)
    with pytest.raises(dpsql.OperationalError, match="is too old"):
        connect(url)
