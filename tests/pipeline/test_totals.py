"""ROLLUP, CUBE, GROUPING SETS: totals are measured, of everybody, agree with groups, and say how exact they are."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.aggregates.estimate import Linear
from dpsql.aggregates.release import LEVEL
from dpsql.intervals import ends
from dpsql.mechanisms.laplace import LaplaceNoise
from dpsql.options import QueryRequest
from dpsql.pipeline.add_noise import noised, with_noise, with_totals
from dpsql.pipeline.calibrate_noise import CalibratedRelease
from dpsql.pipeline.estimate_answers import agreeing, levels_noises, levels_thresholds
from dpsql.pipeline.stages import compile_question

PUBLIC: dict[str, Any] = {
    "dataset": "visits",
    "contribution": {"max_groups": 3, "max_rows_per_group": 2},
    "tables": {
        "visits": {
            "unit": "person",
            "columns": {
                "person": "integer",
                "ward": {"type": "text", "values": ["a", "b", "c"], "nullable": True},
                "day": {"type": "date", "bounds": ["2024-01-01", "2024-01-04"]},
                "kind": {"type": "integer", "bounds": [0, 3]},
                "cost": {"type": "double", "bounds": [-10, 90], "nullable": True},
                "fee": {"type": "decimal(9, 2)", "bounds": [0, 100]},
            },
        }
    },
}
UNKNOWN = copy.deepcopy(PUBLIC)
UNKNOWN["tables"]["visits"]["columns"] |= {"ward": {"type": "text", "nullable": True}, "day": "date"}
TOTALS = [
    "ROLLUP (ward, day)",
    "CUBE (ward, kind)",
    "CUBE (ward, day, kind)",
    "GROUPING SETS ((ward), (day), (ward))",
    "GROUPING SETS ((day, kind), (ward, kind), ())",
    "ward, ROLLUP (kind)",
    "ROLLUP (CASE WHEN kind < 2 THEN 'few' END, kind)",
]
MEASURES = (
    "COUNT(*) AS n, COUNT(cost) AS m, SUM(fee) AS s, AVG(cost) AS c, COUNT_IF(kind = 0) AS o, COUNT_IF(kind = 1) AS i"
)


@pytest.fixture(scope="module")
def raw() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("""
            SET threads = 1;
            CREATE TABLE visits (person BIGINT, ward VARCHAR, day DATE, kind BIGINT, cost DOUBLE, fee DECIMAL(9, 2));
            INSERT INTO visits SELECT i // 2, [NULL, 'a', 'b', 'c'][1 + (i // 2) % 4],
                DATE '2024-01-01' + CAST((i // 2) % 3 AS INTEGER), (i // 2) % 5 % 4,
                CASE WHEN i % 7 THEN i * 13 % 101 - 10 END, (i % 9000) / 100 FROM range(4000) AS r(i)""")
        yield connection


def keys_of(totals: str) -> list[str]:
    return [key for key in ("ward", "day", "kind") if key in totals.replace("CASE WHEN kind", "")]


@pytest.mark.parametrize("schema", [PUBLIC, UNKNOWN], ids=["public", "unknown"])
@pytest.mark.parametrize("totals", TOTALS)
def test_without_noise_they_are_those_of_duckdb(raw: duckdb.DuckDBPyConnection, schema: Any, totals: str) -> None:
    keys = ", ".join(f"{key}, GROUPING({key})" for key in keys_of(totals))
    sql = f"SELECT {keys}, {MEASURES} FROM visits GROUP BY {totals}"
    expected = [row for row in raw.execute(sql).fetchall() if row[-6]]
    with dpsql.connect(raw, schema=schema, budget=1e12, delta=1e-6) as connection:
        found = [row for row in connection.execute(sql, epsilon=1e8).fetchall() if row[-6]]
    for row, wanted in zip(sorted(found, key=repr), sorted(expected, key=repr), strict=True):
        assert row[:-6] == wanted[:-6]
        assert [float(cell) for cell in row[-6:]] == pytest.approx([float(cell) for cell in wanted[-6:]], abs=1e-4)


# -- how far one person moves each level ------------------------------------------------------------------------------


def calibrated(connection: dpsql.Connection, sql: str, epsilon: float = 1, **options: Any) -> CalibratedRelease:
    request = QueryRequest(sql=sql, epsilon=Fraction(str(epsilon)), **options)
    (release,) = compile_question(request, connection.session.environment.public()).releases
    return release


def exact(raw: duckdb.DuckDBPyConnection, release: CalibratedRelease) -> dict[str, Any]:
    return dict(raw.execute(release.sql).fetchnumpy())


def levels(raw: duckdb.DuckDBPyConnection, release: CalibratedRelease) -> dict[tuple[Any, ...], list[int]]:
    """By level and keys the measures as they are before noise."""
    plan = release.planned.release
    found = with_totals(exact(raw, release), plan, lambda summed, *_: summed)
    names = [LEVEL, *plan.key_names]
    found = found | {LEVEL: found[LEVEL] % len(plan.levels)}  # without noise, all totals have a group that is shown
    keys = zip(*(found[name].tolist() for name in names), strict=True)
    return dict(zip(keys, zip(*(found[part.column].tolist() for part in plan.measures), strict=True), strict=True))


@pytest.mark.parametrize("schema", [PUBLIC, UNKNOWN], ids=["public", "unknown"])
@pytest.mark.parametrize("totals", TOTALS)
def test_nobody_moves_a_level_further_than_is_claimed(schema: Any, totals: str) -> None:
    """Heavy people: in many groups, with many rows in each."""
    sql = f"SELECT {MEASURES} FROM visits GROUP BY {totals}"
    with duckdb.connect() as raw:
        raw.execute("""
            SET threads = 1;
            CREATE TABLE visits (person BIGINT, ward VARCHAR, day DATE, kind BIGINT, cost DOUBLE, fee DECIMAL(9, 2));
            INSERT INTO visits SELECT i % 4, [NULL, 'a', 'b', 'c', 'd'][1 + i * 3 % 5],
                DATE '2024-01-01' + CAST(i * 7 % 5 AS INTEGER), i * 11 % 4,
                CASE WHEN i % 5 THEN i * 7919 % 300 - 100 END, i % 101 FROM range(400) AS r(i)""")
        with dpsql.connect(raw, schema=schema, budget=1, delta=1e-6) as connection:
            release = calibrated(connection, sql)
        whole, plan = levels(raw, release), release.planned.release
        for person in range(4):
            raw.execute(f"BEGIN; DELETE FROM visits WHERE person = {person}")
            without = levels(raw, release)
            raw.execute("ROLLBACK")
            nothing = [0] * len(plan.measures)
            for number, level in enumerate(plan.levels):
                rows = [row for row in {**whole, **without} if row[0] == number]
                moved = np.array(
                    [np.subtract(whole.get(row, nothing), without.get(row, nothing)) for row in rows], dtype=float
                )
                for measure, steps in zip(level.measures, moved.T, strict=True):
                    assert np.abs(steps).sum() <= measure.l1
                    assert np.sqrt((steps**2).sum()) <= measure.l2 * (1 + 1e-12)


def test_totals_that_are_rounded_move_no_further() -> None:
    """On a coarse grid each of the totals that a person is in may move by one more step."""
    most, keys = 1_000_001, 50
    schema: Any = {
        "dataset": "wards",
        "contribution": {"max_groups": keys, "max_rows_per_group": 1},
        "tables": {
            "t": {
                "unit": "person",
                "columns": {
                    "person": "integer",
                    "ward": {"type": "integer", "values": list(range(keys))},
                    "kind": {"type": "text", "values": ["x"]},
                    "cost": {"type": "integer", "bounds": [-most, most]},
                },
            }
        },
    }
    sql = "SELECT SUM(cost) AS s FROM t GROUP BY ROLLUP (ward, kind)"
    with duckdb.connect() as raw:
        raw.execute("CREATE TABLE t (person BIGINT, ward BIGINT, kind VARCHAR, cost BIGINT)")
        with dpsql.connect(raw, schema=schema, budget=1, delta=1e-6) as connection:
            release = calibrated(connection, sql, 1e-4, mechanism="laplace")
        by_ward = release.planned.release.levels[1].measures[0].column
        (measure,) = (part for part in release.measures if part.bounded.column == by_ward)
        assert measure.shift
        raw.execute(f"INSERT INTO t SELECT 100 + i, i, 'x', {(1 << measure.shift >> 1) - 1} FROM range({keys}) AS r(i)")
        without = levels(raw, release)
        raw.execute(f"INSERT INTO t SELECT 1, i, 'x', {most} FROM range({keys}) AS r(i)")
        no_noise = {by_ward: replace(measure, noise=LaplaceNoise(Fraction(0)))}
        before, after = (
            noised({by_ward: np.array([sums for (level, *_), (sums,) in found.items() if level == 1])}, no_noise)
            for found in (without, levels(raw, release))
        )
    moved = int(np.abs(after[by_ward] - before[by_ward]).sum()) >> measure.shift
    assert isinstance(measure.noise, LaplaceNoise)
    assert moved / measure.noise.scale <= measure.alone.epsilon


# -- what people see --------------------------------------------------------------------------------------------------


def test_a_total_is_of_everybody() -> None:
    """Half of the people are in groups of two, none of which is shown."""
    schema = {
        "dataset": "towns",
        "tables": {"t": {"unit": "u", "unique": True, "columns": {"u": "integer", "k": "text"}}},
    }
    with duckdb.connect() as raw:
        raw.execute("""CREATE TABLE t (u BIGINT PRIMARY KEY, k VARCHAR); INSERT INTO t
            SELECT i, CASE WHEN i < 5000 THEN 'town ' || i % 10 ELSE 'hamlet ' || i // 2 END
            FROM range(10000) AS r(i)""")
        with dpsql.connect(raw, schema=schema, budget=10, delta=1e-6) as connection:
            rows = connection.execute("SELECT k, COUNT(*) FROM t GROUP BY ROLLUP (k)", epsilon=1).fetchall()
    shown = {key: number for key, number in rows if key is not None}
    assert set(shown) == {f"town {number}" for number in range(10)}
    assert dict(rows)[None] == pytest.approx(10_000, abs=150)


@pytest.fixture(scope="module")
def towns() -> Iterator[tuple[duckdb.DuckDBPyConnection, dpsql.Connection]]:
    """Ten counties: half of them of two large towns, the others of hamlets alone."""
    schema = {
        "dataset": "towns",
        "contribution": {"max_groups": 3, "max_rows_per_group": 1},
        "tables": {"t": {"unit": "u", "columns": {"u": "integer", "county": "text", "town": "text"}}},
    }
    with duckdb.connect() as raw:
        raw.execute("""CREATE TABLE t (u BIGINT, county VARCHAR, town VARCHAR); INSERT INTO t
            SELECT i, 'c' || i % 10, 'c' || i % 10 || ' ' || CASE WHEN i % 10 < 5 THEN i // 10 % 2 ELSE i // 10 END
            FROM range(1200) AS r(i)""")
        with dpsql.connect(raw, schema=schema, budget=1e6, delta=1e-6) as connection:
            yield raw, connection


def test_a_group_that_is_shown_shows_the_totals_that_it_is_in(towns: Any) -> None:
    """Towns of 60 people are shown and counties of 120 are, which by themselves would need more."""
    sql = "SELECT county, town, COUNT(*) AS n FROM t GROUP BY CUBE (county, town)"
    result = towns[1].execute(sql, epsilon=2)
    found = {row[:2] for row in result.fetchall()}
    large = {county for county, town in found if county and town}
    assert large == {f"c{number}" for number in range(5)}
    assert {county for county, town in found if county and not town} >= large
    assert {town for county, town in found if town and not county} == {
        town for county, town in found if county and town
    }
    assert (None, None) in found
    least = [note for note in result.notes if "are not shown" in note]
    assert len(least) == 3, least
    assert [" unless a group in them is shown" in note for note in least] == [False, True, True]


def test_no_total_is_shown_for_nothing(towns: Any) -> None:
    """What a shown group does not name passes its own threshold."""
    raw, connection = towns
    release = calibrated(connection, "SELECT county, town, COUNT(*) FROM t GROUP BY ROLLUP (county, town)", 2)
    measured, plan = exact(raw, release), release.planned.release
    (count,) = plan.levels[1].measures
    for _ in range(40):
        found = with_noise(measured, release)
        rows = list(zip(*(found[name].tolist() for name in (LEVEL, "_k0", "_k1", "m0")), strict=True))
        named = {county for level, county, *_ in rows if level == 0}
        for level, county, _, number in rows:
            assert {0: True, 1: number >= release.thresholds[count.column], 4: county in named, 2: True}[level]
            assert level != 1 or county not in named


@pytest.mark.parametrize(("mechanism", "epsilon"), [("laplace", 3), ("gaussian", 2)])
def test_intervals_hold_for_totals_that_are_named(towns: Any, mechanism: str, epsilon: float) -> None:
    """They are shown whatever their own noise is, so it is not conditional on being large."""
    raw, connection = towns
    sql = "SELECT county, town, COUNT(*) AS n FROM t GROUP BY ROLLUP (county, town)"
    release = calibrated(connection, sql, epsilon, mechanism=mechanism)
    (output,) = (output for output in release.planned.release.answers)
    assert isinstance(output.estimate, Linear)
    measured, hits = exact(raw, release), []
    noises, thresholds = levels_noises(release), levels_thresholds(release)
    for _ in range(400):
        found = with_noise(measured, release)
        for level, key, number in zip(*(found[name].tolist() for name in (LEVEL, "_k0", "m0")), strict=True):
            if level == 4:
                (end,) = ends(output.estimate, [{"m0": number}], noises[level], 0.95, thresholds[level])
                assert end is not None
                assert key is not None
                hits.append(end[0] <= 120 <= end[1])
    assert len(hits) > 500
    assert np.mean(hits) > 0.93


@pytest.fixture(scope="module")
def wide() -> Iterator[tuple[duckdb.DuckDBPyConnection, dpsql.Connection]]:
    """20 x 20 groups of 25 people each."""
    schema = {
        "dataset": "wide",
        "tables": {
            "t": {
                "unit": "u",
                "unique": True,
                "columns": {
                    "u": "integer",
                    "a": {"type": "integer", "bounds": [0, 19]},
                    "b": {"type": "integer", "bounds": [0, 19]},
                    "x": {"type": "double", "bounds": [0, 10]},
                },
            }
        },
    }
    with duckdb.connect() as raw:
        raw.execute("""CREATE TABLE t (u BIGINT PRIMARY KEY, a BIGINT, b BIGINT, x DOUBLE);
            INSERT INTO t SELECT i, i % 20, i // 20 % 20, i % 10 FROM range(10000) AS r(i)""")
        with dpsql.connect(raw, schema=schema, budget=1e9, delta=1e-6) as connection:
            yield raw, connection


def coverage(wide: Any, mechanism: str, totals: str, epsilon: float, times: int) -> tuple[dict[Any, float], float]:
    """How often intervals of COUNT and SUM hold at each level; the error of the last total beside that of a group."""
    raw, connection = wide
    sql = f"SELECT COUNT(*), SUM(x) FROM t GROUP BY {totals}"
    release = calibrated(connection, sql, epsilon, mechanism=mechanism)
    plan, measured = release.planned.release, exact(raw, release)
    truth = with_totals(measured, plan, lambda summed, *_: summed)
    rows = [int(np.flatnonzero(truth[LEVEL] == number)[0]) for number in range(len(plan.levels))]
    held: dict[tuple[int, int], list[bool]] = {}
    errors = []
    for _ in range(times):
        found, noises = agreeing(with_noise(measured, release), release)
        errors.append(float(found["m0"][-1] - truth["m0"][-1]))
        for number, row in enumerate(rows):
            tables = ({part.column: int(table[part.column][row]) for part in plan.measures} for table in (found, truth))
            here, there = tables
            for position, answer in enumerate(plan.answers):
                estimate = answer.estimate
                assert isinstance(estimate, Linear)
                value = float(sum(weight * there[name] for name, weight in estimate.weights))
                (interval,) = ends(estimate, [here], noises[number], 0.95)
                assert interval is not None
                held.setdefault((number, position), []).append(interval[0] - 1e-6 <= value <= interval[1] + 1e-6)
    return {place: float(np.mean(share)) for place, share in held.items()}, float(np.std(errors)) / release.measures[
        0
    ].std


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize(("totals", "epsilon"), [("ROLLUP (a, b)", 1), ("CUBE (a, b)", 0.1), ("ROLLUP (a)", 0.1)])
def test_intervals_hold_at_every_level(wide: Any, mechanism: str, totals: str, epsilon: float) -> None:
    """And a total is far more exact than the sum of 400 groups, whose error is 20 times that of one."""
    held, total = coverage(wide, mechanism, totals, epsilon, 100)
    assert min(held.values()) >= 0.86
    assert total < (9 if totals != "ROLLUP (a)" else 4.5)


@pytest.mark.long
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("totals", ["ROLLUP (a, b)", "CUBE (a, b)", "GROUPING SETS (a, b)"])
@pytest.mark.parametrize("epsilon", [0.1, 1])
def test_intervals_hold_as_often_as_they_say(wide: Any, mechanism: str, totals: str, epsilon: float) -> None:
    held, _ = coverage(wide, mechanism, totals, epsilon, 2000)
    print(held)
    assert all(0.935 <= share <= 0.968 for share in held.values())


def test_rows_of_a_rollup_add_up(wide: Any) -> None:
    _, connection = wide
    for mechanism in ("laplace", "gaussian"):
        rows = connection.execute(
            "SELECT a, b, COUNT(*), SUM(x) FROM t GROUP BY ROLLUP (a, b)", epsilon=0.3, mechanism=mechanism
        ).fetchall()
        for place in (2, 3):
            by_a = {a: row[place] for row in rows for a, b in [row[:2]] if a is not None and b is None}
            for a, total in by_a.items():
                assert sum(row[place] for row in rows if row[0] == a and row[1] is not None) == pytest.approx(total)
            assert sum(by_a.values()) == pytest.approx(rows[-1][place])


def test_explain_says_how_exact_each_level_is(wide: Any) -> None:
    _, connection = wide
    text = str(connection.explain("SELECT a, COUNT(*) AS n FROM t GROUP BY ROLLUP (a)", epsilon=1, mechanism="laplace"))
    assert "column     n: at most, at 95 %: ± 3 by a; ± 21 overall" in text
    assert "total      of all groups: measured separately; noise with standard deviations 9.891" in text


def test_the_same_question_is_the_same_answer_and_another_one_is_not(wide: Any) -> None:
    _, connection = wide
    sql = "SELECT a, COUNT(*) FROM t GROUP BY {}"
    for one, other in pairwise(["a", "ROLLUP (a)", "GROUPING SETS ((), (a), (a))"]):
        first = connection.execute(sql.format(one), epsilon=0.1)
        assert connection.execute(sql.format(one), epsilon=0.1).fetchall() == first.fetchall()
        assert not connection.execute(sql.format(other), epsilon=0.1).receipt.recalled


def test_people_in_several_groups_are_not_counted_for_a_least_number(raw: duckdb.DuckDBPyConnection) -> None:
    sql = (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (min_privacy_units_per_group = 50) ward, COUNT(*)"
        " FROM visits GROUP BY ROLLUP (ward)"
    )
    with (
        dpsql.connect(raw, schema=UNKNOWN, budget=1, delta=1e-6) as connection,
        pytest.raises(dpsql.Unsupported, match="minimum number of people does not work with totals"),
    ):
        connection.execute(sql)
