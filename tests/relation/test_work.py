"""How much work one person's rows can make: bounded before the charge, enforced before rows are multiplied."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.engines.duckdb.render import render
from dpsql.limits import FEWEST_ROWS_OF_ONE, MOST_COPIES, MOST_ROWS_OF_ONE
from dpsql.pipeline.stages import FREE
from dpsql.relation import work
from dpsql.relation.facts import facts_of
from dpsql.relation.relation import Filter, Join, LightUnits, Scan
from dpsql.relation.sql import relation_sql
from dpsql.relation.units import below, is_tracked, parts_of, reading_asked_units
from dpsql.relation.work import heaviest_counted

HEAVY, LIGHT = 600, 40
"""Rows of person 1, and of everybody else."""
SCHEMA: dict[str, Any] = {
    "dataset": "events",
    "contribution": {"max_groups": 1, "max_rows_per_group": 1_000_000},
    "tables": {
        "people": {"unit": "id", "unique": True, "columns": {"id": "integer", "born": "integer"}},
        "events": {
            "unit": "person",
            "columns": {
                "id": "integer",
                "person": "integer",
                "kind": {"type": "text", "values": ["a", "b"]},
                "n": {"type": "integer", "bounds": [0, 1000]},
            },
        },
        "notes": {
            "unit": {"through": "event", "to": "events.id"},
            "columns": {"event": "integer", "length": "integer"},
        },
        "kinds": {"public": True, "columns": {"kind": "text", "label": "text"}},
    },
}


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(
            f"""CREATE TABLE people (id INTEGER, born INTEGER);
                CREATE TABLE events (id INTEGER PRIMARY KEY, person INTEGER, kind VARCHAR, n INTEGER);
                CREATE TABLE notes (event INTEGER, length INTEGER);
                CREATE TABLE kinds (kind VARCHAR, label VARCHAR);
                INSERT INTO people SELECT i, 1990 FROM range(1, 6) t(i);
                INSERT INTO events SELECT row_number() OVER (), i, CASE WHEN j % 10 = 0 THEN 'a' ELSE 'b' END, j
                  FROM range(1, 6) t(i), range({HEAVY}) u(j) WHERE i = 1 OR j < {LIGHT};
                INSERT INTO notes SELECT id, n FROM events;
                INSERT INTO kinds SELECT kind, label FROM (VALUES ('a'), ('b')) k(kind), range(20) t(label)"""
        )
        yield connection


@pytest.fixture(scope="module")
def conn(database: duckdb.DuckDBPyConnection) -> Iterator[dpsql.Connection]:
    with dpsql.connect(database, schema=SCHEMA, budget=1e18, delta=1e-6, query_epsilon=1e12) as connection:
        yield connection


def limit(conn: dpsql.Connection, sql: str) -> int | None:
    """The number that the notes of explain() give."""
    found = [re.search(r"people with more than ([\d,]+) rows are left out", note) for note in conn.explain(sql).notes]
    numbers = [int(match[1].replace(",", "")) for match in found if match]
    return numbers[0] if numbers else None


ATTACK = """SELECT COUNT(*) FROM events CROSS JOIN RANGE(10000) a(x) CROSS JOIN RANGE(1000) b(y)
            CROSS JOIN RANGE(10000) c(z) WHERE events.person = 42 AND events.n >= 50"""


@pytest.mark.parametrize(
    "sql",
    [
        ATTACK,
        f"SELECT COUNT(*) FROM (SELECT DISTINCT * FROM ({ATTACK.replace('COUNT(*)', '*')}))",
        "SELECT COUNT(*) FROM events JOIN RANGE(10000) a(x) ON a.x >= n JOIN RANGE(1000) b(y) ON b.y >= n",
        "SELECT COUNT(*) FROM events WHERE EXISTS (SELECT 1 FROM RANGE(10000) a(x), RANGE(10000) b(y) WHERE x + y > n)",
        "SELECT COUNT(*) FROM events a " + " ".join(f"JOIN events b{i} ON a.person = b{i}.person" for i in range(5)),
        "SELECT COUNT(*) FROM kinds, kinds k2, kinds k3, kinds k4, events",
    ],
)
def test_work_beyond_the_limit_is_refused_before_the_charge(conn: dpsql.Connection, sql: str) -> None:
    spent = conn.budget.spent
    with pytest.raises(dpsql.Unsupported, match=r"of one person into|more than 10,000 rows") as caught:
        conn.execute(sql)
    assert caught.value.hint
    assert conn.budget.spent == spent


@pytest.mark.parametrize("source", ["p", "(SELECT id, MAX(s) AS s FROM p GROUP BY id) q"])
@pytest.mark.parametrize("lists", [(10_000, 10_000), (600, 600)])
def test_one_row_of_a_person_is_multiplied_no_more_than_many(source: str, lists: tuple[int, ...]) -> None:
    """Where the database guarantees one row per person too."""
    ranges = " ".join(f"CROSS JOIN RANGE({size}) r{size}_{i}(x{i})" for i, size in enumerate(lists))
    with duckdb.connect() as database:
        database.execute("CREATE TABLE p (id INTEGER PRIMARY KEY, s VARCHAR)")
        schema = {"dataset": "p", "tables": {"p": {"unit": "id", "columns": {"id": "integer", "s": "text"}}}}
        with dpsql.connect(database, schema=schema, budget=1.0, delta=1e-6, ledger=":memory:") as conn:
            with pytest.raises(dpsql.Unsupported, match="the limit is 262,144"):
                conn.explain(f"SELECT COUNT(*) FROM {source} {ranges} WHERE id = 42")
            exists = f"EXISTS (SELECT 1 FROM RANGE(1) e(x) {ranges} WHERE x0 > id + x1)"
            with pytest.raises(dpsql.Unsupported, match="the limit is 262,144"):
                conn.explain(f"SELECT COUNT(*) FROM {source} WHERE {exists}")
            explained = conn.explain(f"SELECT COUNT(*) FROM {source} CROSS JOIN RANGE(12) r(x)")
            assert "nth_value" not in explained.releases[0].sql
            assert not any("left out" in note for note in explained.notes)


SELF_JOIN = "SELECT COUNT(*) FROM events a JOIN events b ON a.person = b.person"
LIMITED = {
    SELF_JOIN: 512,
    f"{SELF_JOIN} AND a.n < b.n": 512,
    f"{SELF_JOIN} JOIN events c ON a.person = c.person": 64,
    f"{SELF_JOIN} CROSS JOIN RANGE(12) m(x)": 147,
    "SELECT COUNT(*) FROM events CROSS JOIN RANGE(3) m(x)": 87_381,
    "SELECT COUNT(*) FROM events CROSS JOIN RANGE(2) m(x) CROSS JOIN RANGE(2) o(y)": 65_536,
    "SELECT COUNT(*) FROM events CROSS JOIN RANGE(100) m(x)": 2_621,
    "SELECT COUNT(*) FROM events JOIN kinds USING (kind)": 13_107,
    "SELECT COUNT(*) FROM events a WHERE EXISTS (SELECT 1 FROM events b WHERE b.person = a.person AND b.n > a.n)": 512,
    "SELECT COUNT(*) FROM events a WHERE NOT EXISTS "
    "(SELECT 1 FROM events b WHERE b.person = a.person AND a.n > 5)": 512,
    "SELECT SUM(m) FROM (SELECT person, MAX(n) OVER (PARTITION BY person ORDER BY id ROWS BETWEEN CURRENT ROW AND "
    "UNBOUNDED FOLLOWING) AS m FROM events)": 512,
    "SELECT SUM(m) FROM (SELECT person, MAX(n) OVER (PARTITION BY person ORDER BY id ROWS BETWEEN 99 PRECEDING AND "
    "CURRENT ROW) AS m FROM events)": 2_621,
    "SELECT COUNT(*) FROM notes a JOIN notes b ON a.event = b.event": 512,
}
NOT_LIMITED = [
    "SELECT COUNT(*) FROM events",
    "SELECT COUNT(*) FROM events CROSS JOIN RANGE(2) m(x)",
    "SELECT COUNT(*) FROM notes JOIN events ON notes.event = events.id",
    "SELECT COUNT(*) FROM notes LEFT JOIN events ON notes.event = events.id",
    "SELECT COUNT(*) FROM events a JOIN (SELECT person, MAX(n) AS n FROM events GROUP BY person) b USING (person)",
    "SELECT COUNT(*) FROM events a JOIN (SELECT person, kind, MAX(n) AS m FROM events GROUP BY person, kind) b "
    "ON a.person = b.person AND a.kind = b.kind",
    "SELECT COUNT(*) FROM events a JOIN (SELECT DISTINCT person, kind FROM events) b "
    "ON a.person = b.person AND a.kind = b.kind",
    "SELECT COUNT(*) FROM events a WHERE EXISTS (SELECT 1 FROM events b WHERE b.person = a.person AND b.n = a.n + 1)",
    "SELECT COUNT(*) FROM events WHERE (person, n) IN (SELECT person, n FROM events WHERE kind = 'a')",
    "SELECT SUM(m) FROM (SELECT person, MAX(n) OVER (PARTITION BY person ORDER BY id) AS m FROM events)",
    "SELECT SUM(m) FROM (SELECT person, MAX(n) OVER (PARTITION BY person ORDER BY id ROWS BETWEEN 6 PRECEDING AND "
    "CURRENT ROW) AS m FROM events)",
    "SELECT COUNT(*) FROM events WHERE kind IN (SELECT kind FROM kinds)",
]


@pytest.fixture(scope="module")
def goods() -> Iterator[dpsql.Connection]:
    """Two public tables so long that nobody could walk through all their pairs."""
    columns = {"key": "integer", "name": "text", "place": "integer"}
    public = {name: {"public": True, "columns": columns} for name in ("parts", "makers", "places")}
    lines = {"unit": "person", "columns": {"person": "integer", "part": "integer", "maker": "integer"}}
    with duckdb.connect() as connection:
        connection.execute(
            """CREATE TABLE lines AS SELECT i % 100 AS person, i AS part, i AS maker FROM range(1000) r(i);
               CREATE TABLE parts AS SELECT i AS key, 'part' AS name, i % 9 AS place FROM range(300000) r(i);
               CREATE TABLE makers AS SELECT i AS key, 'maker' AS name, i % 9 AS place FROM range(300000) r(i);
               CREATE TABLE places AS SELECT i AS key, 'place' AS name, i AS place FROM range(9) r(i)"""
        )
        schema = {"tables": {"lines": lines, **public}}
        with dpsql.connect(connection, schema=schema, budget=1e18, delta=1e-6, query_epsilon=1e12) as opened:
            yield opened


@pytest.mark.parametrize(
    "source",
    [
        "parts p, makers m, lines l WHERE p.key = l.part AND m.key = l.maker",
        "parts p, makers m, places s, lines l WHERE p.key = l.part AND m.key = l.maker AND m.place = s.key",
        "lines JOIN (SELECT p.key AS part, m.key AS maker FROM parts p JOIN makers m USING (key)) USING (part, maker)",
        "lines l, parts p WHERE (p.key = l.part AND l.maker < 500) OR (p.key = l.part AND l.maker >= 500)",
        "lines l, parts p WHERE (p.key = l.part AND l.maker < 9) OR ((p.key = l.part AND l.maker > 9) "
        "OR (l.maker = 9 AND p.key = l.part))",
    ],
)
def test_each_public_table_is_counted_by_its_own_keys(source: str, goods: dpsql.Connection) -> None:
    assert limit(goods, f"SELECT COUNT(*) FROM {source}") is None
    assert goods.execute(f"SELECT COUNT(*) FROM {source}", max_rows_per_group=100).fetchall() == [(1000,)]


def test_public_tables_that_no_key_reaches_multiply(goods: dpsql.Connection) -> None:
    with pytest.raises(dpsql.Unsupported, match="the limit is 262,144"):
        goods.explain("SELECT COUNT(*) FROM parts p, makers m, lines l WHERE p.key = l.part")
    with pytest.raises(dpsql.Unsupported, match="the limit is 262,144"):
        goods.explain("SELECT COUNT(*) FROM lines l, parts p WHERE p.key = l.part OR l.maker < 500")


@pytest.mark.parametrize(("sql", "most"), LIMITED.items())
def test_people_whose_rows_would_be_multiplied_are_limited(conn: dpsql.Connection, sql: str, most: int) -> None:
    assert limit(conn, sql) == most
    notes = conn.execute(sql).notes
    assert any("are left out" in note for note in notes)
    assert not any("are NULL" in note for note in notes)


@pytest.mark.parametrize("sql", NOT_LIMITED)
def test_work_in_proportion_to_ones_own_rows_is_not(conn: dpsql.Connection, sql: str) -> None:
    assert limit(conn, sql) is None


def test_declared_rows_are_read_twice_over(conn: dpsql.Connection) -> None:
    """The table is declared unique, and the database does not guarantee it."""
    assert limit(conn, "SELECT COUNT(*) FROM events JOIN people ON events.person = people.id") == 2


@pytest.mark.parametrize("sql", [*LIMITED, *NOT_LIMITED])
def test_no_step_has_more_rows_of_one_person(
    sql: str, conn: dpsql.Connection, database: duckdb.DuckDBPyConnection
) -> None:
    """The claim itself, on every node of the relation, for somebody with many rows."""
    stage: Any = conn.session.request(sql, None)
    for free in FREE[:3]:
        stage = free(stage, conn.session.environment.public())
    (release,) = stage.releases
    for part in parts_of(release.aggregate.source):
        if is_tracked(part) and "_adaptive" not in repr(part):
            counts = f"SELECT count(*) AS n FROM ({render(relation_sql(part, ()))}) GROUP BY _unit"
            ((found,),) = database.execute(f"SELECT coalesce(max(n), 0) FROM ({counts})").fetchall()
            assert found <= max(MOST_ROWS_OF_ONE, MOST_COPIES * HEAVY)


@pytest.mark.parametrize("sql", LIMITED)
def test_everybody_else_is_answered_as_ever(
    sql: str, conn: dpsql.Connection, database: duckdb.DuckDBPyConnection
) -> None:
    """What plain DuckDB gives without those who are left out."""
    most = limit(conn, sql) or 0
    kept = f"(SELECT * FROM events WHERE person <> 1 OR {HEAVY} <= {most})"
    noted = f"(SELECT notes.* FROM notes JOIN {kept} e ON notes.event = e.id)"
    plain = re.sub(r"\bnotes (?=[ab] )", f"{noted} ", re.sub(r"\bevents\b(?!\.)", f"{kept} events", sql))
    plain = re.sub(r"events (?=[abc]\b)", "", plain)
    assert conn.execute(sql).fetchall() == database.execute(plain).fetchall()


@pytest.fixture(scope="module")
def gaps() -> Iterator[tuple[dpsql.Connection, duckdb.DuckDBPyConnection]]:
    """Events with NULL in every column, on which EXISTS and NOT EXISTS differ most easily."""
    values = {"kind": "text", "n": {"type": "integer", "bounds": [0, 9]}, "day": "date", "size": "double"}
    columns = {name: {**({"type": of} if isinstance(of, str) else of), "nullable": True} for name, of in values.items()}
    schema = {"tables": {"events": {"unit": "person", "columns": {"person": "integer", **columns}}}}
    with duckdb.connect() as database:
        database.execute(
            """CREATE TABLE events AS
               SELECT i % 97 AS person, ['a', 'B', NULL, 'b'][1 + (k % 4)::INTEGER] AS kind,
                      CASE WHEN m % 3 > 0 THEN m % 5 END AS n,
                      CASE WHEN d % 7 > 0 THEN DATE '2024-01-01' + (d % 2)::INTEGER END AS day,
                      CASE WHEN m % 4 > 0 THEN d % 3 END::DOUBLE AS size
               FROM (SELECT i, hash(i) >> 8 AS k, hash(i + 1000) >> 8 AS m, hash(i + 2000) >> 8 AS d
                     FROM range(400) r(i) WHERE i % 97 < 50 OR i < 97)"""
        )
        with dpsql.connect(database, schema=schema, budget=1e18, delta=1e-6, query_epsilon=1e12) as opened:
            yield opened, database


@pytest.mark.parametrize("word", ["EXISTS", "NOT EXISTS"])
@pytest.mark.parametrize("value", ["n", "kind", "day"])
@pytest.mark.parametrize(
    "test",
    [
        "b.{0} <> a.{0}",
        "a.{0} <> b.{0} AND b.kind = a.kind",
        "b.{0} <> a.{0} AND b.n = a.n AND b.day = a.day",
        "b.{0} <> a.{0} AND b.n > 1 AND b.kind <> 'a'",
    ],
)
def test_another_value_is_found_by_the_least_and_the_greatest(
    word: str, value: str, test: str, gaps: tuple[dpsql.Connection, duckdb.DuckDBPyConnection]
) -> None:
    conn, database = gaps
    sql = f"""SELECT COUNT(*), COUNT(n), COUNT(kind) FROM events a WHERE {word}
              (SELECT 1 FROM events b WHERE b.person = a.person AND {test.format(value)})"""
    assert limit(conn, sql) is None
    assert conn.execute(sql, max_rows_per_group=100).fetchall() == database.execute(sql).fetchall()


@pytest.mark.parametrize("test", ["b.size <> a.size", "b.n <> a.n AND b.day <> a.day", "b.n <> a.n AND b.day > a.day"])
def test_two_other_values_and_doubles_are_compared_row_by_row(
    test: str, gaps: tuple[dpsql.Connection, duckdb.DuckDBPyConnection]
) -> None:
    sql = f"SELECT COUNT(*) FROM events a WHERE EXISTS (SELECT 1 FROM events b WHERE b.person = a.person AND {test})"
    assert limit(gaps[0], sql) == 512
    assert gaps[0].execute(sql, max_rows_per_group=100).fetchall() == gaps[1].execute(sql).fetchall()


def test_conditions_of_one_side_are_applied_first(conn: dpsql.Connection, database: duckdb.DuckDBPyConnection) -> None:
    """Person 1 has 600 events and 60 of kind a: those are few enough."""
    sql = f"{SELF_JOIN} AND b.kind = 'a' WHERE a.kind = 'a'"
    assert limit(conn, sql) == 512
    assert conn.execute(sql).fetchall() == database.execute(sql).fetchall()


@pytest.mark.parametrize("kind", ["LEFT", "RIGHT", "FULL"])
def test_outer_joins_keep_their_rows(kind: str, conn: dpsql.Connection, database: duckdb.DuckDBPyConnection) -> None:
    """A condition on the side that may be missing is no reason to drop its rows beforehand."""
    small = "(SELECT * FROM events WHERE n < 100)"
    sql = f"""SELECT COUNT(*) FROM {small} a {kind} JOIN {small} b ON a.person = b.person AND a.n < 7 AND b.n > 3
              WHERE a.n IS NULL OR b.n IS NULL OR b.n < 20"""
    assert limit(conn, sql) == 512
    assert conn.execute(sql).fetchall() == database.execute(sql).fetchall()


PER_KIND = "(SELECT kind, AVG(n) AS mean FROM events GROUP BY kind)"


def test_an_answer_is_joined_by_its_key(conn: dpsql.Connection) -> None:
    sql = f"SELECT COUNT(*) FROM events e JOIN {PER_KIND} k ON e.kind = k.kind WHERE e.n > k.mean"
    assert conn.execute(sql).fetchall()[0][0] > 0


def test_an_answer_that_multiplies_rows_ends_the_question(conn: dpsql.Connection) -> None:
    """Its number of rows is known after the charge, and is noisy: nobody's row is behind the error."""
    many = "(SELECT n % 20 AS k, COUNT(*) AS c FROM events GROUP BY 1)"
    with pytest.raises(dpsql.OperationalError, match="more than 8 rows of the subquery's answer"):
        conn.execute(f"SELECT COUNT(*) FROM events CROSS JOIN {many} k")


def test_rows_are_counted_by_a_window_that_no_plan_can_pass(
    conn: dpsql.Connection, database: duckdb.DuckDBPyConnection
) -> None:
    """An optimizer may move a join with the counts behind the join that multiplies; not a filter on a window."""
    sql = conn.explain(SELF_JOIN).releases[0].sql
    assert sql.count("nth_value(") == 2
    ((_, plan),) = database.execute(f"EXPLAIN {sql}").fetchall()
    first, last = plan.index("Join Type: INNER"), plan.rindex("Join Type: INNER")
    assert first == last < plan.index("nth_value")


@pytest.mark.parametrize(
    "rows",
    [
        "events CROSS JOIN RANGE(2) a(x) CROSS JOIN RANGE(200) b(y)",
        "events CROSS JOIN RANGE(200) a(x) CROSS JOIN RANGE(2) b(y)",
        "(SELECT * FROM events CROSS JOIN RANGE(2) a(x) WHERE n > x) e CROSS JOIN RANGE(200) b(y)",
        "(SELECT DISTINCT person, n, x FROM events CROSS JOIN RANGE(2) a(x)) e CROSS JOIN RANGE(200) b(y)",
        "(SELECT person, x, COUNT(*) AS c FROM events CROSS JOIN RANGE(2) a(x) GROUP BY person, x) e, RANGE(200) b(y)",
        "events CROSS JOIN RANGE(2) a(x) WHERE EXISTS (SELECT 1 FROM RANGE(200) b(y) WHERE y > n)",
    ],
)
def test_rows_are_counted_before_they_are_multiplied_at_all(rows: str, conn: dpsql.Connection) -> None:
    """Where two steps together are too many; a join that makes two rows of one gives the window twice the work."""
    (_, after) = relations(conn, f"SELECT COUNT(*) FROM {rows}")
    limited = [part for part in parts_of(after) if isinstance(part, LightUnits)]
    assert limited
    for light in limited:
        assert not any(isinstance(part, Join) for part in parts_of(light))
        assert 2 * 200 * light.most_rows <= MOST_ROWS_OF_ONE


def test_the_limits_agree() -> None:
    assert FEWEST_ROWS_OF_ONE**4 <= MOST_ROWS_OF_ONE


def test_light_units_are_named_in_the_trace(conn: dpsql.Connection) -> None:
    assert "left out people with more than 512 rows" in str(conn.trace(SELF_JOIN))


SCAN = Scan(table="t", unit=None, columns=(), contribution=None, one_row_per_unit=False)  # type: ignore[arg-type]


def test_a_number_that_is_not_decided_yet_is_any_number() -> None:
    """What was limited before is met again when the steps below are limited earlier."""
    found = work._Bounding(lambda query: None).visit(LightUnits(SCAN, work.UNDECIDED), ())
    assert (found.growth, found.limited) == (work.OWN, True)


def test_heaviest_counted() -> None:
    assert heaviest_counted(SCAN) is None
    assert heaviest_counted(LightUnits(LightUnits(SCAN, 3), 5)) == 3


# -- bytes ------------------------------------------------------------------------------------------------------------

LONG = 60_000
TEXTS: dict[str, Any] = {
    "dataset": "texts",
    "tables": {
        "t": {
            "unit": "who",
            "columns": {
                "who": "text",
                "n": {"type": "integer", "bounds": [0, 9]},
                "s": "text",
            },
        }
    },
}
CROSSED = "t CROSS JOIN RANGE(10000) r(x)"
READ = [
    f"SELECT COUNT(*) FROM (SELECT DISTINCT who, s, x FROM {CROSSED} WHERE n = 5)",
    f"SELECT COUNT(*) FROM (SELECT DISTINCT who, s || x AS y FROM {CROSSED} WHERE n = 5)",
    f"SELECT COUNT(*) FROM (SELECT who, x, MAX(s) AS y FROM {CROSSED} WHERE n = 5 GROUP BY who, x) WHERE y > 'a'",
    f"SELECT COUNT(DISTINCT s || x) FROM {CROSSED} WHERE n = 5",
    "SELECT COUNT(*) FROM (SELECT who, MAX(s) OVER (PARTITION BY who ORDER BY x ROWS BETWEEN 99 PRECEDING AND CURRENT "
    "ROW) AS m FROM t CROSS JOIN RANGE(100) r(x) WHERE n = 5) WHERE m > 'a'",
]
COPIED = [sql.replace("FROM t ", "FROM (SELECT who, n, LEFT(s, 32) AS s FROM t) t ") for sql in READ]


def texts(*people: tuple[str, str]) -> duckdb.DuckDBPyConnection:
    database = duckdb.connect(config={"max_temp_directory_size": "0B", "threads": 1})
    database.execute("CREATE TABLE t AS SELECT 'p' || i AS who, 0 AS n, 'a' AS s FROM range(1000) r(i)")
    database.executemany("INSERT INTO t VALUES (?, 5, ?)", [("q", "a"), *people])
    return database


def connected(database: duckdb.DuckDBPyConnection) -> dpsql.Connection:
    return dpsql.connect(database, schema=TEXTS, budget=1e9, delta=1e-6, query_epsilon=1e6, ledger=":memory:")


@pytest.mark.parametrize("sql", [COPIED[0], *(pytest.param(sql, marks=pytest.mark.long) for sql in COPIED[1:])])
def test_no_long_text_is_held_many_times(sql: str) -> None:
    """Nor are units of long names."""
    peaks = []
    for people in [(), (("somebody", "x" * LONG),), (("x" * LONG, "a"),)]:
        with texts(*people) as database, connected(database) as conn:
            written = conn.explain(sql).releases[0].sql
            database.execute("PRAGMA enable_profiling='no_output'")
            database.execute(written).fetchall()
            peaks.append(json.loads(database.get_profiling_information("json"))["system"]["peak_buffer_memory"])
    assert max(peaks) < 3 * peaks[0] + 50 * 2**20


NOTES, LISTS = "(SELECT * FROM t WHERE {}) u", "CROSS JOIN RANGE(9) r(x)"
LONG_TEXTS = {
    f"t {LISTS} WHERE LENGTH(s) = 129 AND n + x > 6": True,
    f"t {LISTS} WHERE LENGTH(s) > 120 + x": False,
    f"(SELECT t.*, x FROM t {LISTS}) u WHERE x > 3": True,
    f"(SELECT t.*, x FROM t {LISTS}) u WHERE LENGTH(s) = 129": False,
    f"{NOTES.format('LENGTH(s) = 129')} {LISTS}": True,
    f"(SELECT LENGTH(s) AS n FROM t) u {LISTS} WHERE n > 120 + x": True,
    f"(SELECT LEFT(s, 32) AS s FROM t) u {LISTS} WHERE s || x > 'b'": True,
    f"(SELECT LEFT(s, 33) AS s FROM t) u {LISTS} WHERE s || x > 'b'": False,
    f"(SELECT n::VARCHAR || '!' AS s FROM t) u {LISTS} WHERE s || x > '5'": True,
    f"(SELECT who, MAX(s) AS s FROM t GROUP BY who) u {LISTS} WHERE LENGTH(s) = 129": True,
    f"(SELECT who, MAX(s) AS s FROM t GROUP BY who) u {LISTS} WHERE LENGTH(s) > x": False,
    "t a JOIN t b ON a.who = b.who AND LENGTH(b.s) = 129 AND a.n <= b.n": True,
    "t a JOIN t b ON a.who = b.who AND a.s = b.s": False,
    "t a JOIN t b ON a.who = b.who JOIN t c ON a.who = c.who WHERE LENGTH(a.s) > 1 AND LENGTH(c.s) > 1": True,
    "t a LEFT JOIN t b ON a.who = b.who AND LENGTH(b.s) = 129 AND a.n <= b.n WHERE a.n = 5": True,
    "t a LEFT JOIN t b ON a.who = b.who AND a.n <= b.n AND LENGTH(b.s) > 1 WHERE LENGTH(b.s) > 1": False,
    "t a FULL JOIN t b ON a.who = b.who AND LENGTH(b.s) = 129 AND a.n <= b.n": False,
    "t a WHERE a.n = 5 AND EXISTS (SELECT 1 FROM t b WHERE a.who = b.who AND LENGTH(b.s) = 129 AND b.n >= a.n)": True,
    "t a WHERE a.n = 5 AND NOT EXISTS (SELECT 1 FROM t b WHERE a.who = b.who AND LENGTH(b.s) > 9 AND b.n >= a.n)": True,
}


@pytest.mark.parametrize("rows", LONG_TEXTS)
def test_long_texts_are_read_before_rows_are_multiplied_or_not_at_all(rows: str) -> None:
    """None is silently NULL: the answer is that of plain SQL, or none."""
    sql = f"SELECT COUNT(*) FROM {rows}"
    with texts(("long", "x" * 129), ("short", "x" * 128)) as database, connected(database) as conn:
        if LONG_TEXTS[rows]:
            assert conn.execute(sql, max_rows_per_group=100).fetchall() == database.execute(sql).fetchall()
        else:
            with pytest.raises(dpsql.Unsupported, match="reads a text that may have more than 128 bytes"):
                conn.execute(sql)


@pytest.mark.parametrize("sql", READ)
def test_where_a_long_text_would_be_read_is_shown(sql: str) -> None:
    with texts() as database, connected(database) as conn:
        with pytest.raises(dpsql.Unsupported, match="more than 128 bytes") as caught:
            conn.explain(sql)
        assert "LEFT(text, 32)" in str(caught.value)
        assert conn.explain(COPIED[READ.index(sql)]).releases


MUCH, LONGER = "||".join(["s"] * 40), "||".join(["s"] * 9)
SHORT = CROSSED.replace("t ", "(SELECT who, LEFT(s, 32) AS s FROM t) t ", 1)
WIDE = ", ".join(f"x + {number} AS c{number}" for number in range(65))
TOO_MUCH = {
    f"SELECT COUNT(*) FROM t WHERE LENGTH({MUCH}) > 1 AND LENGTH({MUCH} || '!') > 1": "made of one row",
    f"SELECT COUNT(DISTINCT {MUCH}) FROM t WHERE LENGTH({MUCH} || '!') > 1": "made of one row",
    f"SELECT COUNT(*) FROM (SELECT who, LENGTH({MUCH}) AS n FROM t) WHERE n + n > 1": "made of one row",
    f"SELECT COUNT(*) FROM (SELECT DISTINCT who, {WIDE} FROM {CROSSED})": "more than 1,024 bytes",
    f"SELECT COUNT(*) FROM (SELECT DISTINCT who, x, '{'!' * 1_100}' AS y FROM {CROSSED})": "more than 1,024 bytes",
    f"SELECT COUNT(*) FROM (SELECT DISTINCT who, x, y FROM {CROSSED}, (VALUES ('{'!' * 1_100}')) v(y))": "1,024 bytes",
    f"SELECT COUNT(*) FROM (SELECT DISTINCT who, x, {LONGER} FROM {SHORT}) ": "1,024",
    f"SELECT COUNT(DISTINCT {LONGER}) FROM {SHORT}": "1,024 bytes",
}


@pytest.mark.parametrize("sql", TOO_MUCH)
def test_what_one_row_can_become_has_a_limit(sql: str) -> None:
    with texts() as database, connected(database) as conn:
        with pytest.raises(dpsql.Unsupported, match=TOO_MUCH[sql]):
            conn.execute(sql)
        assert conn.budget.spent.epsilon == 0


# -- conditions on the person -----------------------------------------------------------------------------------------

BOTH = "events a {} JOIN events b ON a.person = b.person"
FEW, MANY = "(SELECT * FROM events WHERE n < 7)", "(SELECT * FROM events WHERE n > 5)"
RESTRICTED = [
    f"{BOTH.format('')} AND a.n < b.n WHERE a.person = 2",
    f"{BOTH.format('')} AND a.n < b.n AND b.person = 2",
    f"{BOTH.format('')} WHERE (a.person = 2 AND a.n < 9) OR (b.person = 3 AND b.n < 9)",
    f"{BOTH.format('')} WHERE a.person % 2 = 0 AND a.n < b.n",
    f"{BOTH.format('LEFT')} AND a.n = b.n + 1 WHERE a.person IN (2, 3)",
    f"{BOTH.format('LEFT')} AND a.n = b.n + 1 WHERE b.person + 0 = 2",
    f"{FEW} a FULL JOIN {MANY} b USING (person) WHERE person = 2",
    f"{FEW} a FULL JOIN {MANY} b ON a.person = b.person AND a.n = b.n WHERE COALESCE(a.person, b.person) = 2",
    "events a WHERE EXISTS (SELECT 1 FROM events b WHERE b.person = a.person AND b.n = a.n + 1 AND b.person = 2)",
    "events a WHERE NOT EXISTS (SELECT 1 FROM events b WHERE b.person = a.person AND b.n > a.n) AND a.person = 2",
    "events WHERE (person, n) IN (SELECT person, n FROM events WHERE kind = 'a' AND person = 2)",
    "(SELECT person, n FROM events UNION SELECT person, n + 3 FROM events) u WHERE person = 2",
    "(SELECT person, n FROM events WHERE person = 2 EXCEPT SELECT person, n + 3 FROM events) u",
    "(SELECT person, n FROM events INTERSECT SELECT person, n + 3 FROM events WHERE person = 2) u",
    "(SELECT person, MAX(n) OVER (PARTITION BY person ORDER BY id) AS m FROM events) w WHERE person = 2 AND m > 3",
    "(SELECT DISTINCT person, kind FROM events) d JOIN people ON people.id = d.person WHERE d.person = 2",
    "events a JOIN (SELECT person, COUNT(*) AS c FROM events GROUP BY person HAVING person = 2) b USING (person)",
]
RESTRICTED_ON_ONE_SIDE = [
    f"{BOTH.format('LEFT')} AND a.n = b.n + 1 AND b.person = 2 WHERE a.n < 9",
    f"{BOTH.format('LEFT')} AND a.n = b.n + 1 AND a.person = 2 WHERE a.n < 9",
    f"{BOTH.format('RIGHT')} AND a.n = b.n + 1 AND a.person = 2 WHERE b.n < 9",
    "events a WHERE NOT EXISTS (SELECT 1 FROM events b WHERE b.person = a.person AND b.n = a.n + 1 AND a.person = 2)",
    "events WHERE (person, n) NOT IN (SELECT person, n FROM events WHERE kind = 'a' AND person = 2)",
    "(SELECT person, n FROM events EXCEPT SELECT person, n FROM events WHERE person = 2) u",
    "(SELECT person, n FROM events UNION ALL SELECT person, n FROM events WHERE person = 2) u",
]
NOT_RESTRICTED = [
    f"{BOTH.format('LEFT')} AND a.n = b.n + 1 WHERE b.person IS NULL OR b.person = 2",
    f"{BOTH.format('LEFT')} AND a.n = b.n + 1 WHERE COALESCE(b.person, 2) = 2",
    f"{FEW} a FULL JOIN {MANY} b ON a.person = b.person AND a.n = b.n AND a.person = 2 WHERE a.n < 9 OR b.n < 9",
    f"{BOTH.format('')} WHERE a.person = 2 OR a.n < 9",
    f"{BOTH.format('')} WHERE a.person + a.n = 2",
    "(SELECT person, n FROM events WHERE person = 2 UNION ALL SELECT person, n FROM events WHERE person = 3) u",
]


def relations(conn: dpsql.Connection, sql: str) -> tuple[Any, Any]:
    """The relation of a question, and the one that the engine is asked about."""
    stage: Any = conn.session.request(sql, None)
    for free in FREE[:3]:
        stage = free(stage, conn.session.environment.public())
    (release,) = stage.releases
    return release.aggregate.source, reading_asked_units(release.aggregate.source)


def rows_read(relation: Any, database: duckdb.DuckDBPyConnection) -> list[int]:
    """How many rows of people each table gives, after the filters right above it."""
    match relation:
        case Scan(unit=None):
            return []
        case Scan() | Filter(Scan()):
            ((found,),) = database.execute(f"SELECT count(*) FROM ({render(relation_sql(relation, ()))})").fetchall()
            return [found]
    return [found for part in below(relation) for found in rows_read(part, database)]


@pytest.mark.parametrize("rows", [*RESTRICTED, *RESTRICTED_ON_ONE_SIDE, *NOT_RESTRICTED])
def test_a_condition_on_the_person_changes_no_row(
    rows: str, conn: dpsql.Connection, database: duckdb.DuckDBPyConnection
) -> None:
    before, after = relations(conn, f"SELECT COUNT(*) FROM {rows}")
    names = facts_of(before).any_row.keys()
    found = [
        sorted(database.execute(render(relation_sql(part, names))).fetchall(), key=str) for part in (before, after)
    ]
    assert found[0] == found[1]
    assert facts_of(after).any_row == facts_of(before).any_row


@pytest.mark.parametrize("rows", RESTRICTED)
def test_it_is_applied_to_every_table(rows: str, conn: dpsql.Connection, database: duckdb.DuckDBPyConnection) -> None:
    _, after = relations(conn, f"SELECT COUNT(*) FROM {rows}")
    assert max(rows_read(after, database)) <= 2 * LIGHT


@pytest.mark.parametrize("rows", RESTRICTED_ON_ONE_SIDE)
def test_it_is_applied_to_what_it_filters_alone(
    rows: str, conn: dpsql.Connection, database: duckdb.DuckDBPyConnection
) -> None:
    _, after = relations(conn, f"SELECT COUNT(*) FROM {rows}")
    least, most = sorted(rows_read(after, database))
    assert least <= LIGHT < most


@pytest.mark.parametrize("rows", NOT_RESTRICTED)
def test_what_says_nothing_of_the_person_is_applied_nowhere(rows: str, conn: dpsql.Connection) -> None:
    before, after = relations(conn, f"SELECT COUNT(*) FROM {rows}")
    assert after == before


def test_a_stored_answer_is_found_without_it(
    monkeypatch: pytest.MonkeyPatch, database: duckdb.DuckDBPyConnection
) -> None:
    """The identity of an answer is what was asked, and not how the engine is asked."""
    sql = f"SELECT COUNT(*) FROM {RESTRICTED[0]}"
    with dpsql.connect(database, schema=SCHEMA, budget=1.0, delta=1e-6, ledger=":memory:") as conn:
        with monkeypatch.context() as patched:
            patched.setattr("dpsql.aggregates.release_sql.reading_asked_units", lambda relation: relation)
            without = conn.explain(sql).releases[0].sql
            found, spent = conn.execute(sql).fetchall(), conn.budget.spent
        assert conn.explain(f"{sql} ").releases[0].sql != without
        assert conn.execute(f"{sql} ").fetchall() == found
        assert conn.budget.spent == spent


def test_a_long_key_is_cut_and_a_long_text_is_counted() -> None:
    """Neither needs the whole text; a note says so."""
    sql = f"SELECT s, COUNT(s) AS n FROM t {LISTS} GROUP BY s"
    with texts(*((f"long {i}", "x" * 128 + str(i)) for i in range(100))) as database, connected(database) as conn:
        answer = conn.execute(sql, max_rows_per_group=9)
        assert sorted(answer.fetchall()) == [("a", 9 * 1001), ("x" * 32, 9 * 100)]
        assert "keys of more than 128 bytes are cut to 32 letters, because the query multiplies rows" in answer.notes
