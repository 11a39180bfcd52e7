"""CURRENT_DATE and NOW(): the time of asking, which the session reads once and everything else is told."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import duckdb
import pytest

import dpsql
from dpsql.session import Session
from dpsql.sql.parameters import READS_CLOCK, WHILE_RUNNING_NAMES

SCHEMA = {
    "dataset": "clock",
    "contribution": {"max_groups": 1, "max_rows_per_group": 1},
    "tables": {
        "visits": {
            "unit": "person",
            "unique": True,
            "columns": {
                "person": "integer",
                "day": {"type": "date", "bounds": [date(2026, 1, 1), date(2026, 12, 31)]},
                "came": "timestamp",
            },
        }
    },
}
NOON = datetime(2026, 6, 10, 12, 30, 15, 250_000)
BEFORE = [
    # Who was there since: a day each, person 0 on the tenth of June, person 1 on the ninth, ...
    ("day >= CURRENT_DATE", 1),
    ("day >= CURRENT_DATE - 30", 31),
    ("day > TODAY() - INTERVAL 1 WEEK", 7),
    ("day = NOW()::DATE", 1),
    ("day < NOW()", 100),
    ("came >= NOW() - INTERVAL 2 DAY", 2),
    ("came > CURRENT_TIMESTAMP", 0),
    ("came <= LOCALTIMESTAMP AND day = CURRENT_DATE()", 1),
    ("DATE_DIFF('hour', came, NOW()) < 24", 1),
    ("AGE(day) < INTERVAL 3 DAY", 3),
    ("day >= (SELECT CURRENT_DATE - 4)", 5),
    ("EXTRACT(month FROM day) = EXTRACT(month FROM CURRENT_DATE)", 10),
]


class Clock:
    def __init__(self) -> None:
        self.now, self.read = NOON, 0

    def __call__(self) -> datetime:
        self.read += 1
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(Session, "clock", staticmethod(found))
    return found


@pytest.fixture
def conn(clock: Clock) -> dpsql.Connection:
    database = duckdb.connect()
    database.execute("SET TimeZone = 'Pacific/Auckland'")  # it decides nothing
    database.execute("CREATE TABLE visits (person INTEGER PRIMARY KEY, day DATE, came TIMESTAMP)")
    database.execute(
        "INSERT INTO visits SELECT i, DATE '2026-06-10' - i::INTEGER, TIMESTAMP '2026-06-10 00:00:01' - i * "
        "INTERVAL 1 DAY FROM range(100) AS r(i)"
    )
    with pytest.warns(dpsql.errors.Warning):
        return dpsql.connect(database, schema=SCHEMA, budget=1e12, query_epsilon=1e6)


@pytest.mark.parametrize(("condition", "people"), BEFORE, ids=[condition for condition, _ in BEFORE])
def test_the_time_of_asking_in_utc(conn: dpsql.Connection, condition: str, people: int) -> None:
    assert conn.execute(f"SELECT COUNT(*) FROM visits WHERE {condition}").fetchone() == (people,)


def test_one_moment_in_the_whole_question_below_and_above(conn: dpsql.Connection, clock: Clock) -> None:
    cursor = conn.execute(
        "SELECT NOW() AS asked, CURRENT_DATE, CURRENT_DATE + 1, COUNT(*) FROM visits WHERE came < NOW() "
        "HAVING NOW() > '2026-01-01'"
    )
    assert cursor.fetchall() == [(NOON, NOON.date(), NOON.date() + timedelta(days=1), 100)]
    assert [item[0] for item in cursor.description or ()][:3] == ["asked", "CURRENT_DATE", "CURRENT_DATE + 1"]
    assert [item[1] for item in cursor.description or ()][:2] == ["TIMESTAMP", "DATE"]
    assert clock.read == 1


def test_another_day_is_another_question(conn: dpsql.Connection, clock: Clock) -> None:
    question = "SELECT COUNT(*) FROM visits WHERE day > CURRENT_DATE - 5"
    assert conn.execute(question).fetchone() == (5,)
    clock.now += timedelta(hours=11)
    again = conn.execute(question)
    assert again.fetchone() == (5,)
    assert again.receipt.recalled, "all day it is the same question"
    clock.now += timedelta(hours=1)
    tomorrow = conn.execute(question)
    assert tomorrow.fetchone() == (4,)
    assert not tomorrow.receipt.recalled
    assert conn.execute("SELECT COUNT(*) FROM visits WHERE day > DATE '2026-06-06'").receipt.recalled


def test_a_second_later_now_is_another_question(conn: dpsql.Connection, clock: Clock) -> None:
    question = "SELECT COUNT(*) FROM visits WHERE came > NOW() - INTERVAL 5 DAY"
    conn.execute(question)
    assert conn.execute(question).receipt.recalled
    clock.now += timedelta(seconds=1)
    assert not conn.execute(question).receipt.recalled


def test_the_time_is_on_record(conn: dpsql.Connection) -> None:
    day = conn.execute("SELECT COUNT(*) FROM visits WHERE day > CURRENT_DATE - 5")
    assert day.receipt.clock == datetime(2026, 6, 10)
    assert "CURRENT_DATE is 2026-06-10, the day of asking in UTC" in day.notes
    moment = "SELECT COUNT(*) FROM visits WHERE came < NOW()"
    assert conn.execute(moment).receipt.clock == NOON
    assert "NOW() is 2026-06-10 12:30:15, the time of asking in UTC" in str(conn.explain(moment))
    for plain in ("SELECT COUNT(*) FROM visits", "SELECT COUNT(*) AS today FROM visits"):
        assert conn.execute(plain).receipt.clock is None


def test_a_plan_has_one_time_for_all_its_questions(conn: dpsql.Connection, clock: Clock) -> None:
    plan = conn.plan([f"SELECT NOW() AS t, COUNT(*) FROM visits WHERE day < CURRENT_DATE - {days}" for days in (1, 2)])
    clock.now += timedelta(days=1)
    assert [answer.fetchall() for answer in plan.execute()] == [[(NOON, 98)], [(NOON, 97)]]


WHILE_RUNNING = [
    *("CURRENT_TIME", "LOCALTIME", "GET_CURRENT_TIME()", "CURRENT_LOCALTIME()", "UTC_TIMESTAMP()", "UUIDV7()"),
    *('"uuidv7"()', "LIST_TRANSFORM([1], LAMBDA x: UUIDV7())", "AGO(INTERVAL 1 DAY)", "PG_CONF_LOAD_TIME()"),
    *("PG_POSTMASTER_START_TIME()", "TXID_CURRENT()", "CURRENT_QUERY_ID()", "SLEEP_MS(1)", "WRITE_LOG('x')"),
    *('"localtimestamp"', '"LocalTime"', '"current_timestamp"', '"current_time"', '"current_date"'),
]


@pytest.mark.parametrize("word", WHILE_RUNNING)
def test_no_answer_tells_when_it_was_ready(conn: dpsql.Connection, word: str) -> None:
    """It would tell how long a question took, to the microsecond: a server holds answers back until the next tick."""
    for question in (
        f"SELECT n, {word} FROM (SELECT COUNT(*) AS n FROM visits)",
        f"SELECT COUNT(*) AS n FROM visits HAVING {word} IS NOT NULL",
        f"SELECT {word}",
    ):
        with pytest.raises(dpsql.Unsupported, match="it depends on when a part of the query runs"):
            conn.explain(question)
    assert conn.execute("SELECT NOW()::TIME AS t, COUNT(*) FROM visits").fetchone() == (NOON.time(), 100)


def test_each_function_that_is_not_constant_is_known() -> None:
    """DuckDB says which functions have another value each time: those that tell a time or a count are refused."""
    found = duckdb.sql(
        "SELECT DISTINCT upper(function_name) FROM duckdb_functions() WHERE stability <> 'CONSISTENT'"
    ).fetchall()
    by_chance = {"RANDOM", "SETSEED", "UUID", "UUIDV4", "GEN_RANDOM_UUID"}
    of_the_session = {"CURRENT_DATABASE", "CURRENT_SCHEMA", "CURRENT_SCHEMAS", "IN_SEARCH_PATH", "CURRENT_SETTING"}
    of_the_session |= {"GETVARIABLE", "CURRENT_QUERY", "CURRVAL", "NEXTVAL", "SETVAL"}
    of_the_value = {"ERROR", "STATS", "VECTOR_TYPE"}
    known = by_chance | of_the_session | of_the_value | READS_CLOCK | WHILE_RUNNING_NAMES | {"GET_CURRENT_TIME"}
    assert {name for (name,) in found} - known == set()


def test_time_zones_are_refused(conn: dpsql.Connection) -> None:
    for moment in ("CURRENT_DATE('Asia/Tokyo')", "CURRENT_TIMESTAMP(3)"):
        with pytest.raises(dpsql.Error, match="microseconds and no time zone"):
            conn.execute(f"SELECT COUNT(*) FROM visits WHERE came < {moment}")


def test_the_clock_is_read_in_utc() -> None:
    assert abs(Session.clock() - datetime.now(UTC).replace(tzinfo=None)) < timedelta(minutes=1)
