"""Units with few rows count in full, wherever these are. docs/proofs/light_units.md."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import chain
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dpsql
from dpsql.accounting.events import Parallel, PureRelease, Repeated
from dpsql.accounting.privacy_loss import privacy_loss
from dpsql.aggregates import heavy_units
from dpsql.aggregates.measure import CountRows, CountUnits
from dpsql.mechanisms.additive import Allowance, Share
from dpsql.mechanisms.k_norm import KNormMechanism
from dpsql.mechanisms.laplace import LaplaceMechanism
from dpsql.pipeline.choose_mechanism import coarse
from dpsql.synthetic import answer
from dpsql.verification.audit import moved_too_far, wrong_shape

WARDS = list("abcdefgh")


def schema(groups: int, rows: int) -> Any:
    return {
        "dataset": "wards",
        "contribution": {"max_groups": groups, "max_rows_per_group": rows},
        "tables": {
            "visits": {
                "unit": "person",
                "columns": {
                    "person": "integer",
                    "ward": {"type": "text", "values": WARDS},
                    "kind": {"type": "text", "values": ["x", "y"]},
                    "cost": {"type": "double", "bounds": [0, 100]},
                    "days": {"type": "integer", "bounds": [-3, 7]},
                },
            },
            "people": {
                "unit": "id",
                "unique": True,
                "columns": {"id": "integer", "town": {"type": "text", "values": ["u", "v"]}},
            },
        },
    }


SHAPES = {
    "count": "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward",
    "sums": "SELECT ward, COUNT(*) AS n, SUM(cost) AS s, SUM(days) AS d FROM visits GROUP BY ward",
    "averages": "SELECT ward, AVG(cost) AS a, COUNT(days) AS n FROM visits GROUP BY ward",
    "two keys": "SELECT ward, kind, COUNT(*) AS n, SUM(cost) AS s FROM visits GROUP BY ward, kind",
    "computed keys": "SELECT CASE WHEN ward < 'd' THEN 'low' ELSE ward END AS w, COUNT(*) AS n FROM visits GROUP BY w",
    "joined": "SELECT town, COUNT(*) AS n, SUM(days) AS d FROM visits JOIN people ON person = id GROUP BY town",
    "exclusive": "SELECT ward, COUNT_IF(kind = 'x') AS x, COUNT_IF(kind = 'y') AS y FROM visits GROUP BY ward",
    "exclusive sums": """
        SELECT ward, SUM(cost) FILTER (WHERE kind = 'x') AS x, SUM(days) FILTER (WHERE kind = 'y') AS y,
        COUNT(cost) FILTER (WHERE kind = 'x') AS n FROM visits GROUP BY ward""",
    "totals": "SELECT ward, kind, COUNT(*) AS n FROM visits GROUP BY ROLLUP (ward, kind)",
    "a median beside": "SELECT ward, COUNT(*) AS n, MEDIAN(cost) AS m FROM visits GROUP BY ward",
}
BOUNDS = [(2, 2), (3, 1), (8, 1), (1, 3), (8, 3)]
LONG = [pytest.mark.long]


@pytest.fixture(autouse=True)
def always_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heavy_units, "LEAST", 1)


@pytest.fixture(scope="module")
def raw() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("""
            SET threads = 1;
            CREATE TABLE visits (person BIGINT, ward VARCHAR, kind VARCHAR, cost DOUBLE, days BIGINT);
            CREATE TABLE people (id BIGINT PRIMARY KEY, town VARCHAR);
            INSERT INTO people VALUES (1, 'u'), (2, 'v'), (3, 'v')""")
        yield connection


def fill(raw: duckdb.DuckDBPyConnection, rows: list[tuple[Any, ...]]) -> None:
    raw.execute("DELETE FROM visits")
    if rows:  # in one statement, which takes a quarter of the time
        raw.execute(f"INSERT INTO visits VALUES {', '.join(['(?, ?, ?, ?, ?)'] * len(rows))}", [*chain(*rows)])


def session(raw: duckdb.DuckDBPyConnection, groups: int, rows: int, delta: float = 1e-6) -> dpsql.Connection:
    options: Any = {"budget": 1e13, "delta": delta, "query_epsilon": 1e9, "ledger": ":memory:"}
    return dpsql.connect(raw, schema=schema(groups, rows), **options)


visits = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.one_of(st.none(), st.sampled_from([*WARDS, "elsewhere"])),
        st.sampled_from(["x", "y"]),
        st.one_of(st.none(), st.floats()),
        st.one_of(st.none(), st.integers(-10, 10)),
    ),
    max_size=30,
)


@pytest.mark.parametrize(("groups", "rows"), BOUNDS)
def test_few_is_the_most_that_noise_hides(groups: int, rows: int) -> None:
    few = heavy_units.light_rows(groups, rows, [CountRows()])
    assert few is not None
    assert few**2 <= groups * rows**2 < (few + 1) ** 2


def test_people_are_not_counted_by_their_rows() -> None:
    assert heavy_units.light_rows(3, 5, [CountRows(), CountUnits()]) is None
    assert heavy_units.light_rows(3, 5, [CountRows(most=2)]) is None
    assert heavy_units.light_rows(3, 5, []) is None


def crossed(*bounds: tuple[int, int]) -> Any:
    """Every shape with the first of these bounds and with one of the others in turn; with the rest behind `long`."""
    return pytest.mark.parametrize(
        ("sql", "groups", "rows"),
        [
            pytest.param(
                sql, *pair, id=f"{name}-{pair}", marks=[] if number in (0, 1 + place % (len(bounds) - 1)) else LONG
            )
            for place, (name, sql) in enumerate(SHAPES.items())
            for number, pair in enumerate(bounds)
        ],
    )


@crossed(*BOUNDS)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(found=visits)
def test_nobody_moves_further(
    raw: duckdb.DuckDBPyConnection, sql: str, groups: int, rows: int, found: list[tuple[Any, ...]]
) -> None:
    check_neighbours(raw, explained(raw, sql, groups, rows, 1e-6), found)


@crossed((2, 2), (1, 1), (8, 1))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(found=visits)
def test_nobody_moves_further_in_parts(
    raw: duckdb.DuckDBPyConnection, sql: str, groups: int, rows: int, found: list[tuple[Any, ...]]
) -> None:
    check_neighbours(raw, explained(raw, sql, groups, rows, 0), found)


@cache
def explained(raw: duckdb.DuckDBPyConnection, sql: str, groups: int, rows: int, delta: float) -> Any:
    """The release, once for all rows that it is asked of."""
    (release,) = kept_session(raw, groups, rows, delta).explain(sql).releases
    return release


@cache
def kept_session(raw: duckdb.DuckDBPyConnection, groups: int, rows: int, delta: float) -> dpsql.Connection:
    """One for all that is only explained."""
    return session(raw, groups, rows, delta)


@cache
def parsed(raw: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    """The SQL of a release, read once: that takes a third of the time."""
    (statement,) = raw.extract_statements(sql)
    return statement


def check_neighbours(raw: duckdb.DuckDBPyConnection, release: Any, found: list[tuple[Any, ...]]) -> None:
    fill(raw, found)
    statement = parsed(raw, release.sql)
    whole = answer(raw, statement)
    assert not list(wrong_shape(release, [whole]))
    for person in {row[0] for row in found}:  # without anybody else the table is the same
        raw.execute(f"BEGIN; DELETE FROM visits WHERE person = {person}")
        others = answer(raw, statement)
        raw.execute("ROLLBACK")
        assert not list(moved_too_far(release, whole, others))


def test_who_has_few_rows_counts_in_full(raw: duckdb.DuckDBPyConnection) -> None:
    """Six rows are few where 3 groups of 4 rows count: 6^2 <= 3 * 4^2. Eight are not: 3 wards of theirs count."""
    of_few = [(1, "a", "x", 1.0, 1)] * 5 + [(1, "b", "x", 2.0, 1)]
    of_many = [(2, ward, "y", 4.0, 1) for ward in WARDS]
    fill(raw, [*of_few, *of_many])
    with session(raw, 3, 4) as connection:
        question = "SELECT ward, COUNT(*) AS n, SUM(cost) AS s FROM visits WHERE kind = ? GROUP BY ward ORDER BY ward"
        few = connection.execute(question, ["x"]).fetchall()
        many = connection.execute(question, ["y"]).fetchall()
    assert [row[1] for row in few] == [5, 1, 0, 0, 0, 0, 0, 0]
    assert [row[2] for row in few] == pytest.approx([5, 2, 0, 0, 0, 0, 0, 0], abs=1e-3)
    assert sorted(row[1] for row in many) == [0] * 5 + [1] * 3


@pytest.mark.parametrize("ward", ["elsewhere", None, "long" * 20_000], ids=["undeclared", "null", "too long"])
def test_undeclared_keys_are_rows_too(raw: duckdb.DuckDBPyConnection, ward: str | None) -> None:
    """A unit has many rows whatever their groups are: 4 of 8 count, and half of them are nowhere."""
    fill(raw, [(1, "a", "x", 1.0, 1)] * 4 + [(1, ward, "x", 1.0, 1)] * 4)
    with session(raw, 1, 4) as connection:
        answer = connection.execute("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward ORDER BY ward").fetchall()
    assert answer[0] == ("a", 2)


@pytest.mark.parametrize(("groups", "rows", "delta"), [(1, 20, 0), (3, 10, 1e-6)])
def test_rows_are_counted_as_they_are_summed(groups: int, rows: int, delta: float) -> None:
    """A view that draws a sample whenever it is read has other rows each time; those that count are one of these."""
    with duckdb.connect() as raw:
        raw.execute("SET threads = 1; CREATE TABLE all_visits AS SELECT 1 AS person, 'a' AS ward FROM range(36)")
        raw.execute("CREATE VIEW visits AS SELECT * FROM all_visits WHERE random() < 0.5")
        columns = {"person": "integer", "ward": {"type": "text", "values": WARDS}}
        tables = {"visits": {"unit": "person", "view": "trusted", "columns": columns}}
        own = schema(groups, rows) | {"tables": tables}
        with dpsql.connect(raw, schema=own, budget=1, delta=delta, ledger=":memory:") as connection:
            (release,) = connection.explain("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward").releases
        found = [raw.execute(release.sql).fetchall()[0][1] for _ in range(100)]
    assert max(found) <= release.measures[0].linf


def test_every_row_counts_for_a_part(raw: duckdb.DuckDBPyConnection) -> None:
    """Of 8 rows 2 groups of 2 count: each row for a half. NULL is no value in any part; averages are weighted means."""
    fill(raw, [(1, ward, "x", 10.0 * place, None) for place, ward in enumerate(WARDS)] + [(2, "a", "x", 30.0, 1)])
    question = "SELECT ward, COUNT(*) AS n, SUM(cost) AS s, COUNT(days) AS d, AVG(cost) AS a FROM visits GROUP BY ward"
    with session(raw, 2, 2, delta=0) as connection:
        cursor = connection.execute(f"{question} ORDER BY ward")
        answer = cursor.fetchall()
        assert "anyone with more than 4 rows is scaled down to count as 4" in cursor.notes
    assert [row[2] for row in answer] == pytest.approx([30, 5, 10, 15, 20, 25, 30, 35], abs=1e-3)
    assert [row[3] for row in answer] == [1, 0, 0, 0, 0, 0, 0, 0]
    assert [row[4] for row in answer][:3] == pytest.approx([20, 10, 20], abs=1e-3)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(1, 5), st.integers(1, 5))
def test_parts_leave_no_less(counts: list[int], groups: int, rows: int) -> None:
    """However many rows a unit has in each group, and even if its best groups were the ones to count."""
    by_groups = sum(sorted((min(number, rows) for number in counts), reverse=True)[:groups])
    assert by_groups <= min(sum(counts), groups * rows)


@pytest.mark.parametrize("kind", [LaplaceMechanism(), KNormMechanism()], ids=["laplace", "knorm"])
def test_pure_noise_costs_the_dearer_of_two(kind: Any) -> None:
    """A unit moves 3 groups by 10 rows, or has 17 rows wherever they are."""
    allowance = Allowance(Fraction(3, 10), Fraction(0), None)  # type: ignore[arg-type]
    _, event = kind.calibrate(allowance, [Share(3, Fraction(1), times_alone=Fraction(17, 10))])
    (share,) = event.events
    assert isinstance(share, Parallel)
    in_groups, alone = Repeated((PureRelease(Fraction(1, 10)),), Fraction(3)), PureRelease(Fraction(17, 100))
    for name in ("epsilon", "rho", "mu_squared", "smoothed", "headroom"):
        dearer = max(getattr(privacy_loss(part), name) for part in (in_groups, alone))
        assert getattr(privacy_loss(event), name) == dearer


@pytest.mark.parametrize("sums", ["SUM(cost), SUM(0 * days)", "SUM(0 * days), SUM(cost)"])
def test_what_nobody_moves_makes_nothing_cheaper(raw: duckdb.DuckDBPyConnection, sums: str) -> None:
    """A measure that is always 0 shares the box of others, and not what it costs."""
    losses = []
    for asked in ("SUM(cost)", sums):
        with session(raw, 5, 10) as connection:
            connection.execute(f"SELECT ward, {asked} FROM visits GROUP BY ward", mechanism="knorm", epsilon=0.01)
            losses.append(connection.session.budget.tally.totals.headroom)
    assert losses[0] == losses[1] > 0


@given(st.lists(st.integers(0, 9), max_size=8), st.integers(1, 1 << 20), st.integers(0, 12), st.randoms())
def test_rounded_sums_move_no_further(counts: list[int], most: int, shift: int, random: Any) -> None:
    """One unit's rows in each group, each with a value of at most `most`, beside sums of whatever size."""
    rows, moved = sum(counts), []
    for number in counts:
        others = random.randrange(-(2**40), 2**40)
        own = sum(random.randint(-most, most) for _ in range(number))
        rounded = [(value + (1 << shift >> 1)) >> shift for value in (others, others + own)]
        moved.append(abs(rounded[1] - rounded[0]))
    assert sum(moved) <= coarse(rows * most, shift, max(rows, 1))
    assert math.hypot(*moved) <= coarse(rows * most, shift, max(rows, 1)) + 1e-9
