"""A bound lives as long as what it was proven of: a subquery that changes that is measured anew.

Every case has a query whose bound is proven, and a subquery that takes the ground of it away: another value under the
old name, groups merged, rows multiplied, another column under the unit's name. Person 1 leaves the database. What is
released moves no further than is claimed then, and without the new measure the old claim would have been broken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import duckdb
import pytest

import dpsql

SCHEMA = {
    "dataset": "clubs",
    "contribution": {"max_groups": 3, "max_rows_per_group": 9},
    "tables": {
        "persons": {
            "unit": "pid",
            "unique": True,
            "columns": {
                "pid": "integer",
                "city": {"type": "text", "values": ["rome", "oslo"]},
                "age": {"type": "integer", "bounds": [0, 99]},
            },
        },
        "visits": {
            "unit": "person",
            "columns": {
                "person": "integer",
                "id": "integer",
                "place": "text",
                "minutes": {"type": "integer", "bounds": [0, 60]},
            },
        },
        "tags": {"public": True, "columns": {"city": {"type": "text", "values": ["rome", "oslo"]}, "tag": "text"}},
    },
}
# Person 1 has nine visits, three in each place, and a city of five tags.
DATA = """
    SET threads = 1;
    CREATE TABLE persons (pid BIGINT PRIMARY KEY, city VARCHAR, age INTEGER);
    INSERT INTO persons VALUES (1, 'rome', 90), (2, 'oslo', 20), (3, 'rome', 30);
    CREATE TABLE visits (person BIGINT, id BIGINT, place VARCHAR, minutes INTEGER);
    INSERT INTO visits SELECT 1, i, ['gym', 'bar', 'zoo'][1 + i % 3], 50 FROM range(9) AS r(i);
    INSERT INTO visits VALUES (2, 90, 'gym', 10), (3, 91, 'bar', 20);
    CREATE TABLE tags (city VARCHAR, tag VARCHAR);
    INSERT INTO tags SELECT 'rome', 't' || i FROM range(5) AS r(i)"""
LEAVE = "DELETE FROM persons WHERE pid = 1; DELETE FROM visits WHERE person = 1"


@dataclass(frozen=True)
class Club:
    raw: duckdb.DuckDBPyConnection
    session: dpsql.Connection

    def release(self, sql: str, **options: Any) -> Any:
        (found,) = self.session.explain(sql, **options).releases
        return found

    def differences(self, sql: str, keys: int) -> dict[tuple[Any, ...], int]:
        """How much the first column after the keys moves in each group when person 1 leaves."""
        whole = self.by_key(sql, keys)
        self.raw.execute(f"BEGIN; {LEAVE}")
        left = self.by_key(sql, keys)
        self.raw.execute("ROLLBACK")
        moved = {key: abs(whole.get(key, 0) - left.get(key, 0)) for key in {**whole, **left}}
        return {key: difference for key, difference in moved.items() if difference}

    def by_key(self, sql: str, keys: int) -> dict[tuple[Any, ...], int]:
        return {row[:keys]: row[keys] or 0 for row in self.raw.execute(sql).fetchall()}


@pytest.fixture(scope="module")
def club() -> Iterator[Club]:
    with duckdb.connect() as raw:
        raw.execute(DATA)
        with dpsql.connect(raw, schema=SCHEMA, budget=1, delta=1e-6) as session:
            yield Club(raw, session)


# -- how far one person moves one number ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Died:
    proven: str
    changed: str
    claimed: int
    options: dict[str, int]


def died(proven: str, changed: str, claimed: int, **options: int) -> Died:
    return Died(proven, changed, claimed, options)


PER_PERSON = "(SELECT person, LEAST(COUNT(*), 9) AS n FROM visits GROUP BY person)"
PER_PLACE = "(SELECT person, place, LEAST(COUNT(*), 9) AS n FROM visits GROUP BY person, place)"
DIED = {
    # -- another value under the old name
    "a value scaled under its own name": died(
        "SELECT SUM(age) FROM persons",
        "SELECT SUM(age) FROM (SELECT pid, age * 1000 AS age FROM persons)",
        99_000,
    ),
    "a value moved after WHERE had narrowed it": died(
        "SELECT SUM(minutes) FROM (SELECT person, minutes FROM visits WHERE minutes < 55)",
        "SELECT SUM(minutes) FROM (SELECT person, minutes + 1000 AS minutes FROM visits WHERE minutes < 55)",
        9 * 1054,
    ),
    "a value replaced in some rows": died(
        "SELECT SUM(age) FROM persons",
        "SELECT SUM(age) FROM (SELECT pid, CASE WHEN city = 'rome' THEN 500 ELSE age END AS age FROM persons)",
        500,
    ),
    "another column under the name of a bounded one": died(
        "SELECT SUM(age) FROM persons",
        "SELECT SUM(age) FROM (SELECT pid, age * minutes AS age FROM persons JOIN visits ON person = pid)",
        9 * 99 * 60,
    ),
    # -- groups merged
    "one row per person, then one per person and place": died(
        f"SELECT COUNT(*) FROM {PER_PERSON}", f"SELECT COUNT(*) FROM {PER_PLACE}", 9
    ),
    "sums of one row per person, then of several": died(
        f"SELECT SUM(LEAST(n, 2)) FROM {PER_PERSON}", f"SELECT SUM(LEAST(n, 2)) FROM {PER_PLACE}", 18
    ),
    # -- rows multiplied
    "a public table with several rows for each": died(
        "SELECT COUNT(*) FROM persons",
        "SELECT COUNT(*) FROM persons JOIN tags ON persons.city = tags.city",
        5,
        max_rows_per_group=5,
    ),
    "a public table on the kept side": died(
        "SELECT COUNT(*) FROM persons",
        "SELECT COUNT(*) FROM persons LEFT JOIN tags USING (city)",
        5,
        max_rows_per_group=5,
    ),
    "all rows of a public table, as many as it has": died(
        "SELECT COUNT(*) FROM persons", "SELECT COUNT(*) FROM persons CROSS JOIN tags", 5
    ),
    "values of a public join": died(
        "SELECT SUM(age) FROM persons",
        "SELECT SUM(age) FROM (SELECT pid, age, tag FROM persons, tags)",
        5 * 99,
        max_rows_per_group=5,
    ),
    "a join with one's own rows": died(
        "SELECT COUNT(*) FROM visits", "SELECT COUNT(*) FROM visits a JOIN visits b ON a.person = b.person", 9
    ),
    "rows of both sides that do not match": died(
        "SELECT COUNT(*) FROM persons",
        "SELECT COUNT(*) FROM persons a FULL JOIN persons b ON a.pid = b.pid AND a.age < b.age",
        2,
        max_rows_per_group=2,
    ),
    "the same rows twice": died(
        "SELECT COUNT(*) FROM persons",
        "SELECT COUNT(*) FROM (SELECT pid FROM persons UNION ALL SELECT pid FROM persons)",
        2,
        max_rows_per_group=2,
    ),
    # -- another column under the unit's name
    "an alias that is the unit's name": died(
        "SELECT COUNT(DISTINCT person) FROM visits",
        "SELECT COUNT(DISTINCT person) FROM (SELECT id AS person FROM visits)",
        9,
    ),
    "arithmetic on the unit": died(
        "SELECT COUNT(DISTINCT person) FROM visits",
        "SELECT COUNT(DISTINCT person) FROM (SELECT person * 100 + id AS person FROM visits)",
        9,
    ),
    "a union of the unit with another column": died(
        "SELECT COUNT(DISTINCT u) FROM (SELECT pid AS u FROM persons UNION ALL SELECT person FROM visits)",
        "SELECT COUNT(DISTINCT u) FROM (SELECT pid AS u FROM persons UNION ALL SELECT id + 500 FROM visits)",
        9,
    ),
    "the unit of some rows only": died(
        "SELECT COUNT(DISTINCT person) FROM visits",
        "SELECT COUNT(DISTINCT u) FROM (SELECT CASE WHEN place = 'gym' THEN person ELSE id + 500 END AS u FROM visits)",
        9,
    ),
}


@pytest.mark.parametrize("case", DIED.values(), ids=DIED)
def test_the_claim_is_made_anew(case: Died, club: Club) -> None:
    (old,) = club.release(case.proven).measures
    (move,) = club.differences(club.release(case.proven).sql, 0).values()
    assert move <= old.linf, "the proven query keeps its claim"
    release = club.release(case.changed, **case.options)
    (new,) = release.measures
    assert new.linf * new.quantum == case.claimed
    (move,) = club.differences(release.sql, 0).values()
    assert move <= new.linf
    (unbounded,) = club.differences(case.changed, 0).values()
    assert unbounded > old.linf * old.quantum, "else the old claim would have done"


# -- how many groups one person moves ---------------------------------------------------------------------------------

GROUPS = {
    "a key with the row's number in it": (
        "SELECT place, COUNT(*) FROM visits GROUP BY place",
        "SELECT place, COUNT(*) FROM (SELECT person, place || id AS place FROM visits) GROUP BY place",
    ),
    "a key from a public table": (
        "SELECT city, COUNT(*) FROM persons GROUP BY city",
        "SELECT city, COUNT(*) FROM (SELECT pid, tag AS city FROM persons JOIN tags USING (city)) GROUP BY city",
    ),
    "a key that takes the place of the unit": (
        "SELECT n, COUNT(*) FROM (SELECT person, COUNT(*) AS n FROM visits GROUP BY person) GROUP BY n",
        "SELECT n, COUNT(*) FROM (SELECT person, id AS n, COUNT(*) AS m FROM visits GROUP BY person, id) GROUP BY n",
    ),
    "a key with a union behind it": (
        "SELECT k, COUNT(*) FROM (SELECT pid, city AS k FROM persons) GROUP BY k",
        "SELECT k, COUNT(*) FROM (SELECT pid, city AS k FROM persons UNION ALL SELECT person, place FROM visits)"
        " GROUP BY k",
    ),
}


@pytest.mark.parametrize(("proven", "changed"), GROUPS.values(), ids=GROUPS)
def test_groups_are_counted_anew(proven: str, changed: str, club: Club) -> None:
    reached = len(club.differences(proven, 1))
    release = club.release(changed)
    assert len(club.differences(release.sql, 1)) <= release.measures[0].l0
    assert len(club.differences(changed, 1)) > max(reached, release.measures[0].l0), "else nothing had to be dropped"


def test_public_groups_die_with_their_values(club: Club) -> None:
    """A text made of a public one and a person's own is the person's own: it is shown above a threshold only."""
    assert club.release("SELECT city, COUNT(*) FROM persons GROUP BY city").public_keys
    redefined = club.release("SELECT city, COUNT(*) FROM (SELECT pid, city || pid AS city FROM persons) GROUP BY city")
    assert not redefined.public_keys
    assert redefined.threshold is not None
    merged = club.release("SELECT c, COUNT(*) FROM (SELECT pid, city = 'rome' AS c FROM persons) GROUP BY c")
    assert merged.public_keys, "what is computed from public values alone stays public"


def test_groups_of_another_column_are_no_persons(club: Club) -> None:
    """GROUP BY a column that only has the unit's name is a release of its own, with keys that are selected."""
    inner = "SELECT COUNT(*) FROM (SELECT {0} AS person, COUNT(*) AS n FROM visits GROUP BY {0})"
    assert club.release(inner.format("person")).keys == ()
    assert club.release(inner.format("person + 0")).keys == (), "one to one with the unit"
    for other in ("id", "person % 2"):
        release = club.release(inner.format(other))
        assert len(release.keys) == 1
        assert max(club.differences(release.sql, 1).values()) <= release.measures[0].linf


# -- what needs the unit itself ----------------------------------------------------------------------------------------

NO_UNIT = {
    "a join on an alias": "SELECT COUNT(*) FROM (SELECT id AS person FROM visits) v JOIN persons p ON v.person = p.pid",
    "USING an alias": "SELECT COUNT(*) FROM (SELECT age AS pid FROM persons) a JOIN persons b USING (pid)",
    "a natural join": "SELECT COUNT(*) FROM (SELECT id AS pid FROM visits) NATURAL JOIN persons",
    "a join on arithmetic": "SELECT COUNT(*) FROM (SELECT pid % 2 AS pid FROM persons) a JOIN persons b USING (pid)",
    "a join on the unit plus nothing": "SELECT COUNT(*) FROM persons a JOIN persons b ON a.pid + 0 = b.pid",
    "a join on a union": "SELECT COUNT(*) FROM (SELECT pid AS u FROM persons UNION ALL SELECT id FROM visits) t"
    " JOIN persons p ON t.u = p.pid",
    "IN over an alias": "SELECT COUNT(*) FROM persons WHERE pid IN (SELECT id AS pid FROM visits)",
    "EXISTS over an alias": "SELECT COUNT(*) FROM persons p WHERE EXISTS"
    " (SELECT 1 FROM (SELECT id AS pid FROM visits) v WHERE v.pid = p.pid)",
    "a window over an alias": "SELECT COUNT(*) FROM (SELECT RANK() OVER (PARTITION BY person ORDER BY m) AS r"
    " FROM (SELECT id AS person, minutes AS m FROM visits)) WHERE r = 1",
    "UNION of different columns": "SELECT COUNT(*) FROM (SELECT pid AS u FROM persons UNION SELECT id FROM visits)",
    "EXCEPT of different columns": "SELECT COUNT(*) FROM (SELECT pid AS u FROM persons EXCEPT SELECT id FROM visits)",
}


@pytest.mark.parametrize("sql", NO_UNIT.values(), ids=NO_UNIT)
def test_another_column_is_not_taken_for_the_unit(sql: str, club: Club) -> None:
    """It would meet rows of other people: refused, and the hint speaks of the unit."""
    with pytest.raises(dpsql.Unsupported) as caught:
        club.session.explain(sql)
    assert "unit" in (caught.value.hint or "")
