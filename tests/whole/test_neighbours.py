"""Nobody moves an answer further than is claimed.

For every case the release's SQL runs without noise on wild databases and on each of their neighbours (all rows of one
person gone, in every table). The difference must stay within the claimed l0, l1, l2 and linf of every measure, and
nothing else may tell the two apart: not the columns, their types, an error, nor, where keys are public, the groups.
docs/proofs/bounding.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dpsql
from dpsql.synthetic import QueryResult, answer
from dpsql.verification.audit import keys_of, moved_too_far, wrong_shape


@pytest.fixture(scope="module")
def releases_of(exact_session: Callable[[str], dpsql.Connection]) -> Callable[[Any], tuple[Any, ...]]:
    """The releases of a case, compiled once for all that is asked of them."""
    made: dict[tuple[str, str], tuple[Any, ...]] = {}

    def of(case: Any) -> tuple[Any, ...]:
        if (case.file, case.name) not in made:
            explained = exact_session(case.file).explain(case.sql, case.parameters, **case.options)
            made[case.file, case.name] = explained.releases
        return made[case.file, case.name]

    return of


def test_claims(sql_case: Any, releases_of: Callable[[Any], tuple[Any, ...]]) -> None:
    """The case file and explain() agree on keys, l0 and linf."""
    releases = sorted(releases_of(sql_case), key=lambda release: [measure.linf for measure in release.measures])
    claims = sorted(sql_case.releases, key=lambda claim: claim.linf or [])  # in which order they run does not matter
    assert len(releases) == len(claims)
    for release, claim in zip(releases, claims, strict=True):
        kind = ("public" if release.public_keys else "unknown") if release.keys else "none"
        assert kind == claim.keys
        assert (release.threshold is not None) == (claim.keys == "unknown")
        assert {measure.l0 for measure in release.measures} == {claim.l0}
        if claim.linf is not None:
            assert [measure.linf * measure.quantum for measure in release.measures] == pytest.approx(claim.linf)


def test_no_neighbour_moves_further(
    sql_case: Any, releases_of: Callable[[Any], tuple[Any, ...]], worlds: Callable[[str], Any]
) -> None:
    found = worlds(sql_case.file)
    for release in releases_of(sql_case):
        answers = [found.run(world.whole, release.sql) for world in found.found]
        check_shape(release, answers)
        for world, whole in zip(found.found, answers, strict=True):
            for neighbour in world.without:
                check_neighbour(release, whole, found.run(neighbour, release.sql))


def check_shape(release: Any, answers: list[QueryResult]) -> None:
    assert list(wrong_shape(release, answers)) == []


def check_neighbour(release: Any, whole: QueryResult, neighbour: QueryResult) -> None:
    assert list(moved_too_far(release, whole, neighbour)) == []


# -- data that hypothesis thinks of ----------------------------------------------------------------------------------

SHAPES = [
    "SELECT COUNT(*), SUM(amount), AVG(items) FROM orders",
    "SELECT region, COUNT(*), SUM(amount), COUNT(DISTINCT customer_id) FROM orders GROUP BY region",
    "SELECT note, COUNT(*), SUM(items * items) FROM orders GROUP BY note",
    "SELECT FLOOR(amount / 100) AS bin, SUM(CASE WHEN note = 'a' THEN items END) FROM orders GROUP BY bin",
    "SELECT weight > 0 AS heavy, YEAR(day) AS y, AVG(LEAST(GREATEST(weight, -1), 1)) FROM orders GROUP BY ALL",
]
people = st.one_of(st.none(), st.integers(1, 3))
orders = st.lists(
    st.tuples(
        people,
        st.one_of(st.none(), st.sampled_from(["north", "south", "east", "west", "nowhere", ""])),
        st.one_of(st.none(), st.floats()),
        st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(0, 20)),
        st.one_of(st.none(), st.floats()),
        st.one_of(st.none(), st.sampled_from(["a", "b", "c", "d", "e"])),
        st.one_of(st.none(), st.sampled_from(["2024-02-29", "infinity", "-infinity", "5874897-12-31", "0001-01-01"])),
    ),
    max_size=25,
)


@pytest.fixture(scope="module")
def raw() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.execute(
        "CREATE TABLE orders (customer_id BIGINT, region VARCHAR, amount DOUBLE, items BIGINT, weight DOUBLE,"
        " note VARCHAR, day DATE); CREATE TABLE customers (id BIGINT, age BIGINT)"
    )
    return connection


@pytest.fixture(scope="module")
def session(raw: duckdb.DuckDBPyConnection, small_shop_schema: dict[str, Any]) -> Iterator[dpsql.Connection]:
    with dpsql.connect(raw, schema=small_shop_schema, budget=1e6, delta=1e-6, query_epsilon=1) as connection:
        yield connection


@pytest.mark.parametrize("sql", SHAPES)
@settings(max_examples=20, derandomize=True, suppress_health_check=list(HealthCheck))
@given(rows=orders)
def test_hypothetical_neighbours(sql: str, raw: Any, session: dpsql.Connection, rows: list[tuple[Any, ...]]) -> None:
    raw.execute("DELETE FROM orders")
    (release,) = session.explain(sql).releases
    if rows:  # in one statement, which takes a quarter of the time
        raw.execute(f"INSERT INTO orders VALUES {', '.join(['(?, ?, ?, ?, ?, ?, ?)'] * len(rows))}", [*chain(*rows)])
    (statement,) = raw.extract_statements(release.sql)
    whole = answer(raw, statement)
    check_shape(release, [whole])
    for person in (1, 2, 3):
        raw.execute("BEGIN; DELETE FROM orders WHERE customer_id = ?", [person])
        check_neighbour(release, whole, answer(raw, statement))
        raw.execute("ROLLBACK")


# -- what no row may bring about -------------------------------------------------------------------------------------

FRAGILE = [
    # Constants are 32-bit integers to DuckDB unless they are cast, so arithmetic on them can overflow.
    "SELECT SUM(CASE WHEN amount > 100 THEN 2000000000 ELSE 0 END * 2) FROM orders",
    "SELECT COUNT(*) FROM orders WHERE CASE WHEN amount > 100 THEN 2147483647 ELSE 0 END + 1 > 5",
    "SELECT SUM(SIGN(amount) * 2000000000) FROM orders",
    "SELECT -CASE WHEN amount > 100 THEN -2147483647 - 1 ELSE 0 END AS k, COUNT(*) FROM orders GROUP BY k",
    # A text can name a date that no timestamp reaches, or that Python cannot show.
    "SELECT DATE_TRUNC('month', CAST(note AS DATE)) AS m, COUNT(*) FROM orders GROUP BY m",
    "SELECT CAST(note AS DATE) AS m, COUNT(*) FROM orders GROUP BY m",
    "SELECT CAST(note AS TIMESTAMP) AS m, COUNT(*) FROM orders GROUP BY m",
    "SELECT DATE_TRUNC('week', CAST(note AS TIMESTAMP)) AS m, COUNT(*) FROM orders GROUP BY m",
    "SELECT COUNT(*) FROM orders WHERE CAST(note AS DATE) < TIMESTAMP '2024-01-01 10:00:00'",
    "SELECT GREATEST(CAST(note AS DATE), CAST(note AS TIMESTAMP)) AS m, COUNT(*) FROM orders GROUP BY m",
    "SELECT YEAR(CAST(note AS DATE)) AS y, COUNT(*) FROM orders GROUP BY y",
    "SELECT DATE_TRUNC('week', day) AS w, COUNT(*) FROM orders GROUP BY w",
    "SELECT CAST(note AS DECIMAL(38, 10)) AS k, COUNT(*) FROM orders GROUP BY k",
    "SELECT SUM(LEAST(GREATEST(CAST(note AS DOUBLE), 0), 1)) FROM orders",
    "SELECT EXP(weight) - EXP(weight) AS k, COUNT(*) FROM orders GROUP BY k",
    # A column that should hold no NULL may hold one all the same, and LEAST passes over it: nothing caps the note then.
    "SELECT LEAST(GREATEST(CAST(note AS BIGINT), 0), items) + 1 AS k, COUNT(*) FROM orders GROUP BY k",
    "SELECT SUM(ABS(LEAST(GREATEST(CAST(note AS BIGINT), 0), COALESCE(items, 0)) * 1000000 - 5)) FROM orders",
]
ODD_NOTES = (
    "5874897-12-31",
    "5877642-06-25 (BC)",
    "infinity",
    "-infinity",
    "294247-01-10 04:00:54",
    "1e309",
    "nan",
    "",
)


@pytest.mark.parametrize("sql", FRAGILE)
def test_no_row_makes_the_query_fail(sql: str, raw: Any, session: dpsql.Connection) -> None:
    """Whether a query fails must not depend on anybody's row, in the engine or on the way back from it."""
    raw.execute("DELETE FROM orders")
    for note in ODD_NOTES:
        raw.execute("INSERT INTO orders VALUES (1, 'north', 400, 7, 1000, ?, '0001-01-01')", [note])
    raw.execute("INSERT INTO orders VALUES (1, 'north', NULL, NULL, NULL, '9223372036854775807', NULL)")
    (release,) = session.explain(sql).releases
    raw.execute(release.sql).fetchnumpy()
    session.execute(sql)
    assert session.session.environment.ledger.history()[-1].state == "released"


def test_text_cannot_be_blown_up(raw: Any, shop_schema: dict[str, Any]) -> None:
    """Ten letters for one, again and again: a single row would take gigabytes, and everybody sees the time it takes."""
    grown = "note"
    for _ in range(7):
        grown = f"REPLACE({grown}, 'a', 'aaaaaaaaaa')"
    raw.execute("DELETE FROM orders; INSERT INTO orders (customer_id, note) VALUES (1, 'a')")
    with dpsql.connect(raw, schema=shop_schema, budget=1) as connection:
        try:
            (release,) = connection.explain(f"SELECT SUM(LEAST(LENGTH({grown}), 100000000)) FROM orders").releases
        except dpsql.Error:
            return
    assert raw.execute(release.sql).fetchone()[0] <= 1_000_000


# -- what the database promises, and does not ------------------------------------------------------------------------

PEOPLE = {
    "dataset": "people",
    "contribution": {"max_groups": 2, "max_rows_per_group": 2},
    "tables": {"visits": {"unit": "person", "view": "trusted", "columns": {"person": "integer"}}},
}


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("CREATE TABLE visits (person BIGINT)", "there is no constraint"),
        ("CREATE TABLE visits (person BIGINT, day DATE, PRIMARY KEY (person, day))", "the key is wider"),
        (
            "ATTACH ':memory:' AS other; CREATE TABLE other.main.visits (person BIGINT PRIMARY KEY);"
            "CREATE TABLE visits (person BIGINT)",
            "the constraint belongs to a table of another database",
        ),
        (
            "CREATE TABLE visits (person BIGINT PRIMARY KEY); CREATE TEMP TABLE visits (person BIGINT)",
            "a temporary table hides the one with the constraint",
        ),
        (
            "CREATE TABLE kept (person BIGINT PRIMARY KEY);CREATE VIEW visits AS SELECT k.person FROM kept k, range(9)",
            "a view promises nothing",
        ),
        (
            "CREATE SCHEMA other; CREATE TABLE other.visits (person BIGINT PRIMARY KEY);"
            "CREATE TABLE visits (person BIGINT)",
            "the constraint belongs to a table of another schema",
        ),
    ],
    ids=lambda value: value if " " in str(value) and "CREATE" not in str(value) else "",
)
def test_rows_are_bounded_unless_the_very_table_is_unique(script: str, why: str) -> None:
    raw = duckdb.connect()
    raw.execute(script)
    if "VIEW" in script:
        raw.execute("INSERT INTO kept VALUES (1)")
    elif "day" in script:
        raw.execute("INSERT INTO visits SELECT 1, DATE '2024-01-01' + i::INTEGER FROM range(9) AS r(i)")
    else:
        raw.execute("INSERT INTO visits SELECT 1 FROM range(9)")
    with dpsql.connect(raw, schema=PEOPLE, budget=1e12, query_epsilon=1e9) as connection:
        (release,) = connection.explain("SELECT COUNT(*) FROM visits").releases
        (measure,) = release.measures
        ((found,),) = connection.execute("SELECT COUNT(*) FROM visits").fetchall()
    assert found <= measure.linf, why


PATH = {
    "dataset": "people",
    "contribution": {"max_groups": 2, "max_rows_per_group": 2},
    "tables": {
        "visits": {"unit": "person", "columns": {"person": "integer", "id": "text"}},
        "bills": {"unit": {"through": "visit", "to": "visits.id"}, "columns": {"visit": "text"}},
    },
}


TWO_OWNERS = """
    CREATE TABLE visits (person BIGINT, id VARCHAR{key});
    INSERT INTO visits SELECT i, {id} FROM range(50) AS r(i);
    CREATE TABLE bills (visit VARCHAR);
    INSERT INTO bills SELECT {id} FROM range(50) AS r(i)
"""
"""Fifty people: as a key of their own each, or one key of all of them, over which the bills would go from person to
person as people are taken out."""
OWN, SHARED = "'v' || i", "'v'"


@pytest.fixture(params=["open connection", "DuckDB file", "frames", "CSV files", "Parquet files"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., object]:
    """The two tables, with the given ids and constraint, as a database, as frames or as files."""

    def made(identifier: str, key: str = "") -> object:
        path = tmp_path / "clinic.duckdb"
        raw = duckdb.connect(str(path) if request.param == "DuckDB file" else ":memory:")
        raw.execute(TWO_OWNERS.format(key=key, id=identifier))
        match request.param:
            case "DuckDB file":
                raw.close()
                return path
            case "frames":
                return {name: raw.table(name).df() for name in PATH["tables"]}
            case "CSV files" | "Parquet files":
                kind = request.param.partition(" ")[0].lower()
                for name in PATH["tables"]:
                    raw.execute(f"COPY {name} TO '{tmp_path / name}.{kind}'")
                return {name: tmp_path / f"{name}.{kind}" for name in PATH["tables"]}
        return raw

    return made


def test_a_row_that_leads_to_several_people_is_refused(source: Callable[..., object]) -> None:
    """Whose would it be? Without one of them it would be another's, or nobody's."""
    with pytest.raises(dpsql.SchemaError, match=r"visits\.id|visits\.columns\.id") as caught:
        dpsql.connect(source(SHARED), schema=PATH, budget=1, ledger=":memory:")
    assert caught.value.hint
    assert "'v'" not in str(caught.value)


def test_a_row_that_leads_to_one_person_goes_with_that_person(
    source: Callable[..., object], request: pytest.FixtureRequest
) -> None:
    """By a constraint; in files and frames by a look at them, since nobody changes them any more."""
    copied = isinstance(database := source(OWN, "" if "files" in request.node.name else " UNIQUE"), dict)
    with dpsql.connect(database, schema=PATH, budget=1e9, query_epsilon=1e6, ledger=":memory:") as connection:
        assert connection.session.environment.engine.copied is copied
        assert connection.execute("SELECT COUNT(*) FROM bills").fetchall() == [(50,)]


def test_a_key_that_is_unique_by_chance_is_refused_where_it_can_change() -> None:
    raw = duckdb.connect()
    raw.execute(TWO_OWNERS.format(key="", id=OWN))
    with pytest.raises(dpsql.SchemaError, match=r'bills\.unit: nothing enforces that "visits\.id" is unique') as caught:
        dpsql.connect(raw, schema=PATH, budget=1)
    assert "ALTER TABLE visits ADD PRIMARY KEY (id)" in str(caught.value.hint)
    raw.execute(str(caught.value.hint).partition(";")[0])
    with dpsql.connect(raw, schema=PATH, budget=1) as connection:
        raw.execute("CREATE TABLE kept AS FROM visits; DROP TABLE visits; ALTER TABLE kept RENAME TO visits")
        with pytest.raises(dpsql.OperationalError, match="changed"):
            connection.execute("SELECT COUNT(*) FROM bills")


def test_a_view_leads_to_nobody() -> None:
    raw = duckdb.connect()
    raw.execute(TWO_OWNERS.format(key=" UNIQUE", id=OWN))
    raw.execute("ALTER TABLE visits RENAME TO kept; CREATE VIEW visits AS FROM kept")
    tables = PATH["tables"] | {"visits": PATH["tables"]["visits"] | {"view": "trusted"}}  # type: ignore[operator,index]
    with pytest.raises(dpsql.SchemaError, match="nothing enforces"):
        dpsql.connect(raw, schema=PATH | {"tables": tables}, budget=1)


def test_a_path_between_types_that_need_a_cast() -> None:
    """A text that is no UUID must not make the join of the path fail."""
    raw = duckdb.connect()
    raw.execute("CREATE TABLE visits (person BIGINT, id UUID UNIQUE); INSERT INTO visits VALUES (1, uuid())")
    raw.execute("CREATE TABLE bills (visit VARCHAR); INSERT INTO bills VALUES ('no uuid')")
    try:
        connection = dpsql.connect(raw, schema=PATH, budget=1)
        (release,) = connection.explain("SELECT COUNT(*) FROM bills").releases
    except dpsql.Error:
        return
    assert raw.execute(release.sql).fetchall() == [(0,)]


SPELLINGS = {
    "a column that ignores case": ("text", "VARCHAR COLLATE NOCASE", ("'FLU'", "'flu'")),
    "a zero with a sign": ("double", "DOUBLE", ("CAST('-0.0' AS DOUBLE)", "CAST('0.0' AS DOUBLE)")),
}


@pytest.mark.parametrize(("declared", "kind", "spellings"), SPELLINGS.values(), ids=SPELLINGS)
def test_a_group_does_not_show_how_one_person_spells_it(declared: str, kind: str, spellings: tuple[str, str]) -> None:
    """What is equal is one group, shown as one of its rows spells it: that must not be one person's own way."""
    schema = {
        "dataset": "people",
        "contribution": {"max_groups": 3, "max_rows_per_group": 2},
        "tables": {"visits": {"unit": "person", "columns": {"person": "integer", "why": declared}}},
    }
    raw = duckdb.connect()
    raw.execute(f"SET threads = 1; CREATE TABLE visits (person BIGINT, why {kind})")
    for person, spelling in enumerate(spellings):
        raw.execute(f"INSERT INTO visits VALUES ({person}, {spelling})")
    try:
        connection = dpsql.connect(raw, schema=schema, budget=1, delta=1e-6)
    except dpsql.SchemaError:
        return  # such a column may be refused
    (release,) = connection.explain("SELECT why, COUNT(*) FROM visits GROUP BY why").releases
    whole = answer(raw, release.sql)
    for person in (0, 1):
        raw.execute(f"BEGIN; DELETE FROM visits WHERE person = {person}")
        shown = set(keys_of(release, answer(raw, release.sql)))
        assert shown <= set(keys_of(release, whole)), "the group would change its name with one person"
        raw.execute("ROLLBACK")
