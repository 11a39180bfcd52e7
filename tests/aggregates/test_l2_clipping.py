"""bounding="l2_clip": a unit in too many public groups counts in all of them for a part. docs/proofs/l2_clipping.md."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain, pairwise
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dpsql
from dpsql.aggregates.measure import WHOLE, ClippedInL2, CountRows
from dpsql.mechanisms.gaussian import GaussianNoise
from dpsql.pipeline.stages import compile_question

WARDS = list("abcdefgh")
SCHEMA: Any = {
    "dataset": "wards",
    "contribution": {"max_groups": 2, "max_rows_per_group": 2},
    "tables": {
        "visits": {
            "unit": "person",
            "columns": {
                "person": "integer",
                "ward": {"type": "text", "values": WARDS},
                "kind": {"type": "text", "values": ["x", "y"]},
                "free": "text",
                "cost": {"type": "double", "bounds": [0, 100]},
                "days": {"type": "integer", "bounds": [-3, 7]},
            },
        }
    },
}
SHAPES = {
    "count": "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward",
    "count and sums": "SELECT ward, COUNT(*) AS n, SUM(cost) AS s, SUM(days) AS d FROM visits GROUP BY ward",
    "averages": "SELECT ward, AVG(cost) AS a, COUNT(days) AS n, STDDEV(cost) AS d FROM visits GROUP BY ward",
    "people": "SELECT ward, COUNT(DISTINCT person) AS p, COUNT(*) AS n, SUM(days) AS d FROM visits GROUP BY ward",
    "two keys": "SELECT ward, kind, COUNT(*) AS n, SUM(cost) AS s FROM visits GROUP BY ward, kind",
    "computed keys": "SELECT CASE WHEN ward < 'd' THEN 'low' ELSE ward END AS w, COUNT(*) AS n FROM visits GROUP BY w",
    "distinct beside": "SELECT ward, COUNT(DISTINCT days) AS v, COUNT(*) AS n FROM visits GROUP BY ward",
    "exclusive": "SELECT ward, COUNT_IF(kind = 'x') AS x, COUNT_IF(kind = 'y') AS y FROM visits GROUP BY ward",
}


@pytest.fixture(scope="module")
def raw() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("""
            SET threads = 1;
            CREATE TABLE visits (
                person BIGINT, ward VARCHAR, kind VARCHAR, free VARCHAR, cost DOUBLE, days BIGINT)""")
        yield connection


@pytest.fixture(scope="module")
def session(raw: duckdb.DuckDBPyConnection) -> Iterator[dpsql.Connection]:
    with dpsql.connect(raw, schema=SCHEMA, budget=1e13, delta=1e-6, query_epsilon=1, ledger=":memory:") as connection:
        yield connection


def fill(raw: duckdb.DuckDBPyConnection, rows: list[tuple[Any, ...]]) -> None:
    raw.execute("DELETE FROM visits")
    if rows:  # in one statement, which takes a quarter of the time
        raw.execute(f"INSERT INTO visits VALUES {', '.join(['(?, ?, ?, ?, ?, ?)'] * len(rows))}", [*chain(*rows)])


visits = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.one_of(st.none(), st.sampled_from([*WARDS, "elsewhere"])),
        st.sampled_from(["x", "y"]),
        st.just("f"),
        st.one_of(st.none(), st.floats()),
        st.one_of(st.none(), st.integers(-10, 10)),
    ),
    max_size=60,
)


@pytest.mark.parametrize("sql", SHAPES.values(), ids=list(SHAPES))
@settings(max_examples=8, derandomize=True, suppress_health_check=list(HealthCheck))
@given(rows=visits)
def test_nobody_moves_a_column_further_in_l2(
    sql: str, raw: duckdb.DuckDBPyConnection, session: dpsql.Connection, rows: list[tuple[Any, ...]]
) -> None:
    """In whole numbers: the squares of what one person moves add up to at most g linf^2, whatever the rows are."""
    fill(raw, rows)
    (release,) = session.explain(sql, bounding="l2_clip").releases
    assert "_scale" in release.sql
    keys = len(release.keys)
    (statement,) = raw.extract_statements(release.sql)
    whole = {row[:keys]: row[keys:] for row in raw.execute(statement).fetchall()}
    for person in (1, 2, 3):
        raw.execute("BEGIN; DELETE FROM visits WHERE person = ?", [person])
        without = {row[:keys]: row[keys:] for row in raw.execute(statement).fetchall()}
        raw.execute("ROLLBACK")
        assert without.keys() == whole.keys()
        for place, measure in enumerate(release.measures):
            moves = [whole[key][place] - without[key][place] for key in whole]
            assert max(map(abs, moves)) <= measure.linf
            assert sum(move * move for move in moves) <= 2 * measure.linf**2
            assert measure.l2 == pytest.approx(math.sqrt(2) * measure.linf)
            assert sum(map(abs, moves)) <= measure.l1


def test_the_bound_is_reached(raw: duckdb.DuckDBPyConnection, session: dpsql.Connection) -> None:
    """Somebody with two rows in each of eight wards: half of what is there, instead of a quarter."""
    fill(raw, [(1, ward, "x", "f", 100.0, 7) for ward in WARDS for _ in range(2)])
    (release,) = session.explain(SHAPES["count"], bounding="l2_clip").releases
    (measure,) = release.measures
    counts = [row[1] for row in raw.execute(release.sql).fetchall()]
    assert counts == [measure.linf // 2] * 8
    assert sum(count**2 for count in counts) == 2 * measure.linf**2


@pytest.mark.parametrize(("groups", "all_groups"), [(1, 2), (2, 8), (5, 10), (7, 3000), (1, 10**5)])
def test_no_part_is_too_large(groups: int, all_groups: int) -> None:
    histogram = ClippedInL2(CountRows(), groups, all_groups, 1).histogram
    assert histogram[0] == (groups, WHOLE)
    assert histogram[-1][0] > 2 * all_groups
    assert len(histogram) < 250
    for most, part in histogram:
        assert part**2 * most <= WHOLE**2 * groups
        assert part >= WHOLE * math.sqrt(groups / most) - 1
    for (before, _), (most, _) in pairwise(histogram):
        assert before < most <= max(before + 1, before * 17 / 16)


def filled(raw: duckdb.DuckDBPyConnection) -> None:
    """A hundred people in one ward, twenty in all of them, whose visits cost more."""
    few = [(person, WARDS[person % 8], "x", "f", 10.0, 1) for person in range(100)]
    many = [(1000 + person, ward, "y", "f", 90.0, 3) for person in range(20) for ward in WARDS]
    fill(raw, few + many)


@pytest.mark.parametrize("sql", SHAPES.values(), ids=list(SHAPES))
def test_who_is_in_few_groups_counts_in_full(
    raw: duckdb.DuckDBPyConnection, session: dpsql.Connection, sql: str
) -> None:
    fill(raw, [(person, WARDS[(person + i) % 8], "xy"[i], "f", 10.0 * i, i) for person in range(50) for i in range(2)])
    scaled, plain = (
        session.execute(sql, epsilon=1e10, fresh=True, mechanism="gaussian", bounding=bounding).fetchall()
        for bounding in ("l2_clip", "sample")
    )
    for row, other in zip(sorted(scaled), sorted(plain), strict=True):
        for mine, its in zip(row, other, strict=True):
            assert mine == its if isinstance(its, str) else mine == pytest.approx(its, rel=1e-3, abs=0.02)


def test_averages_are_weighted_means(raw: duckdb.DuckDBPyConnection, session: dpsql.Connection) -> None:
    """Twenty people count for a half each: counts and sums are of the same people, so averages are between."""
    filled(raw)
    asked = "SELECT ward, COUNT(*) AS n, SUM(cost) AS s, AVG(cost) AS a FROM visits GROUP BY ward ORDER BY ward"
    few = [13, 13, 13, 13, 12, 12, 12, 12]
    for (_, n, s, a), there in zip(
        session.execute(asked, epsilon=1e10, fresh=True, bounding="l2_clip").fetchall(), few, strict=True
    ):
        assert n == there + 10
        assert s == pytest.approx(there * 10 + 10 * 90, rel=1e-3)
        assert a == pytest.approx(s / n, rel=1e-3)


def test_more_is_left_at_the_same_noise(raw: duckdb.DuckDBPyConnection, session: dpsql.Connection) -> None:
    filled(raw)
    left = {}
    for bounding in ("sample", "l2_clip"):
        options: dict[str, Any] = {"bounding": bounding, "mechanism": "gaussian"}
        left[bounding] = sum(
            n for _, n in session.execute(SHAPES["count"], epsilon=1e10, fresh=True, **options).fetchall()
        )
    assert left == {"sample": 140, "l2_clip": 180}
    widths = [
        session.explain(SHAPES["count"], bounding=bounding, mechanism="gaussian").columns[1].half_width
        for bounding in ("sample", "l2_clip")
    ]
    assert widths[0] == pytest.approx(widths[1], abs=1)


def test_what_is_scaled_is_not_rounded(raw: duckdb.DuckDBPyConnection, session: dpsql.Connection) -> None:
    """On a coarse grid each of the groups, which are more than g, could move by up to a step more."""
    fill(raw, [(1, ward, "x", "f", 100.0, 7) for ward in WARDS[:5] for _ in range(2)])
    request = session.session.request(SHAPES["count and sums"], None, epsilon=1e-4, bounding="l2_clip")
    (release,) = compile_question(request, session.session.environment.public()).releases
    found = raw.execute(release.sql).fetchnumpy()
    for measure in release.measures:
        steps = [-(-abs(int(moved)) >> measure.shift) for moved in found[measure.bounded.column]]
        linf = -(-measure.bounded.linf >> measure.shift)
        assert sum(step * step for step in steps) <= 2 * linf**2


def test_pure_noise_does_not_fit(raw: duckdb.DuckDBPyConnection, session: dpsql.Connection) -> None:
    """Only what is bounded in L1 may have it; here it is not."""
    sql = SHAPES["count and sums"]
    calibrated = compile_question(
        session.session.request(sql, None, epsilon=1e6, bounding="l2_clip"), session.session.environment.public()
    )
    assert all(isinstance(measure.noise, GaussianNoise) for measure in calibrated.releases[0].measures)
    for mechanism in ("laplace", "knorm"):
        with pytest.raises(dpsql.ProgrammingError, match="not enough for"):
            session.explain(sql, bounding="l2_clip", mechanism=mechanism)
    without = dpsql.connect(raw, schema=SCHEMA, budget=1, ledger=":memory:")
    with without, pytest.raises(dpsql.ProgrammingError, match="needs Gaussian noise"):
        without.explain(sql, bounding="l2_clip")
    assert session.explain(sql, accuracy=5000, bounding="l2_clip").mechanism == "gaussian"


@pytest.mark.parametrize(
    ("sql", "options", "said"),
    [
        ("SELECT free, COUNT(*) FROM visits GROUP BY free", {}, "the groups are not public"),
        ("SELECT ward, kind, COUNT(*) FROM visits GROUP BY ROLLUP (ward, kind)", {}, "totals add up"),
        (SHAPES["count"], {"diagnose": True}, "what bounding leaves out"),
        (SHAPES["count"], {"max_groups": "auto"}, "finds max_groups itself"),
        (SHAPES["count"], {"mechanism": "ptr", "propose": 1}, "exceed the proposal"),
    ],
)
def test_what_does_not_go_together_is_refused(
    session: dpsql.Connection, sql: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(dpsql.Unsupported, match=said):
        session.explain(sql, bounding="l2_clip", **options)


def test_words(session: dpsql.Connection) -> None:
    with pytest.raises(dpsql.ProgrammingError, match="too many groups") as caught:
        session.explain(SHAPES["count"], bounding="half")
    assert 'bounding="l2_clip"' in str(caught.value)
    notes = session.execute(SHAPES["count"], epsilon=1, bounding="l2_clip").notes
    assert "anyone in n > 2 groups counts sqrt(2 / n) in each of them" in notes
    assert "_scale" not in session.explain("SELECT COUNT(*) FROM visits", bounding="l2_clip").releases[0].sql
    assert "_scale" not in session.explain(SHAPES["count"], bounding="l2_clip", max_groups=8).releases[0].sql
