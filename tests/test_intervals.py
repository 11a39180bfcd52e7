"""Error bars of whole numbers that were rounded, of quotients, and of many rows at once."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.aggregates.estimate import Linear, Ratio
from dpsql.intervals import ends, half_width
from dpsql.mechanisms import combined
from dpsql.mechanisms.laplace import LaplaceNoise

GROUPS = 300
SCHEMA: dict[str, Any] = {
    "contribution": {"max_groups": 1, "max_rows_per_group": 1},
    "tables": {
        "t": {
            "unit": "u",
            "columns": {
                "u": "integer",
                "k": {"type": "integer", "bounds": [0, GROUPS - 1]},
                "x": {"type": "double", "bounds": [0, 100]},
            },
        }
    },
}


@pytest.fixture(scope="module")
def few() -> dpsql.Connection:
    """Groups of four people, whose noisy counts are often 0."""
    raw = duckdb.connect()
    raw.execute(
        f"CREATE TABLE t AS SELECT i AS u, i % {GROUPS} AS k, (i * 7 % 101)::DOUBLE AS x"
        f" FROM range({4 * GROUPS}) AS r(i)"
    )
    return dpsql.connect(raw, schema=SCHEMA, budget=1e6, delta=1e-6)


def in_halves(scale: float) -> tuple[Linear, dict[str, Any]]:
    """A count that is half of a measure, as it is shown: rounded."""
    shown = Linear((("m", Fraction(1, 2)),), rounding=Fraction(1, 2), is_whole=True)
    return shown, {"m": (LaplaceNoise(Fraction(scale)), 1)}


@pytest.mark.parametrize("scale", [1, 2, 2.3, 2.7, 3.1, 5, 40])
def test_a_rounded_count_is_as_near_as_its_interval_says(scale: float) -> None:
    """Counted exactly, over all values of the noise."""
    shown, noises = in_halves(scale)
    width = half_width(shown, noises, 0.95)
    assert width is not None
    assert width == int(width)
    steps = np.arange(1, 4000)
    at_least = noises["m"][0].survival(steps.astype(np.float64))
    masses = np.append(at_least[:-1] - at_least[1:], at_least[-1])
    near = np.abs([round(step / 2) for step in steps.tolist()]) <= width
    assert 1 - 2 * masses[~near].sum() >= 0.95


def test_rounding_is_kept_through_arithmetic() -> None:
    shown, noises = in_halves(40)
    plain = half_width(Linear(shown.weights), noises, 0.95)
    assert plain is not None
    assert half_width(shown.times(Fraction(-1)), noises, 0.95) == half_width(shown, noises, 0.95)
    assert half_width(shown.times(Fraction(1, 4)), noises, 0.95) == pytest.approx(plain / 4 + 1 / 8)
    assert half_width(shown.plus(shown), noises, 0.95) == pytest.approx(2 * plain + 1)
    ((low, high),) = [found for found in ends(shown, [{"m": 7}], noises, 0.95) if found]
    assert (low + high) / 2 == 4


@pytest.mark.parametrize("quotient", ["SUM(x) / COUNT(*)", "1 / COUNT(*)", "COUNT_IF(x < 50) / (COUNT(*) + 0)"])
def test_a_quotient_over_a_noisy_nothing_is_null(few: dpsql.Connection, quotient: str) -> None:
    sql = f"SELECT k, COUNT(*) AS n, {quotient} AS q FROM t GROUP BY k"
    frame = few.execute(sql, epsilon=1, fresh=True).intervals()
    assert (frame.n == 0).any()
    assert frame.q[frame.n == 0].isna().all()
    assert frame.q[frame.n != 0].map(math.isfinite).all()
    assert frame.q_low.isna().equals(frame.q.isna())


@pytest.mark.parametrize("quotient", ["1 / n", "1 / m", "SUM(x) % n", "100 // m", "n % COUNT(*)", "k + 1 // COUNT(*)"])
def test_so_is_one_over_an_alias_and_a_remainder(few: dpsql.Connection, quotient: str) -> None:
    """A quotient of doubles would be infinite, and the engine raises at one of whole numbers."""
    sql = f"SELECT k, COUNT(*) AS n, n + 0 AS m, {quotient} AS q FROM t GROUP BY k"
    frame = few.execute(sql, epsilon=1, fresh=True).intervals()
    assert (frame.n == 0).any()
    assert frame.q[frame.n == 0].isna().all()
    assert frame.q[frame.n != 0].map(math.isfinite).all()


def test_a_divisor_that_the_analyst_guards_has_the_same_error_bar(few: dpsql.Connection) -> None:
    sql = "SELECT SUM(x) / NULLIF(COUNT(*), 0) AS guarded, SUM(x) / COUNT(*) AS plain FROM t"
    frame = few.execute(sql, epsilon=1).intervals()
    assert frame.guarded_low[0] == frame.plain_low[0]
    assert frame.guarded_high[0] == frame.plain_high[0]


@pytest.mark.parametrize(("above", "below"), [(0, 1000), (500, 1000), (1, 49), (10**15 + 1, 49)])
@pytest.mark.parametrize("scale", [Fraction(1, 10**9), Fraction(1, 100), Fraction(1, 5)])
def test_a_quotient_of_what_has_next_to_no_noise_is_itself(above: int, below: int, scale: Fraction) -> None:
    """Noise that is nearly always 0 has no width, and a quotient times its divisor is rounded by more than that."""
    quotient = Ratio(Linear((("a", Fraction(1)),)), Linear((("b", Fraction(1)),)))
    noises: dict[str, Any] = {name: (LaplaceNoise(scale), 1) for name in ("a", "b")}
    (found,) = ends(quotient, [{"a": above, "b": below}], noises, 0.95)
    assert found is not None
    assert found[0] <= above / below <= found[1]
    assert found == pytest.approx((above / below, above / below), rel=1e-6 if scale < Fraction(1, 5) else 1, abs=1e-2)


@pytest.mark.parametrize(
    ("total", "low", "high"),
    [(-6000, 0.0, 1.87), (1500, 1.25, 1.8), (9000, 0.23, 3.0)],
    ids=["below", "within", "above"],
)
def test_an_average_that_noise_moved_out_of_its_range_has_an_interval_in_it_too(
    total: int, low: float, high: float
) -> None:
    """As wide as it was: what is shown is the end of the range, and not because that is sure."""
    average = Ratio(Linear((("s", Fraction(1)),)), Linear((("n", Fraction(1)),)), Fraction(0), Fraction(3))
    noises: dict[str, Any] = {name: (LaplaceNoise(Fraction(50)), 1) for name in ("s", "n")}
    assert list(ends(average, [{"s": total, "n": 1000}], noises, 0.95)) == [pytest.approx((low, high), abs=0.05)]


def test_many_rows_need_few_quantiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Averages of two thousand groups, each at another place of the range."""
    computed = []

    def counted(terms: Any, level: float) -> float:
        computed.append(terms)
        return sum(abs(weight) * noise.std for weight, noise in terms)

    monkeypatch.setattr(combined, "half_width", counted)
    noises = {"s": (LaplaceNoise(Fraction(1013, 10)), 1), "n": (LaplaceNoise(Fraction(71, 10)), 1)}
    average = Ratio(Linear((("s", Fraction(1)), ("n", Fraction(50)))), Linear((("n", Fraction(1)),)), 0, 100)  # type: ignore[arg-type]
    rows = [{"s": 50 * number - 50_000, "n": 1000} for number in range(2000)]
    assert all(found and found[0] < found[1] for found in ends(average, rows, noises, 0.95))
    assert len(computed) <= 250


@pytest.mark.parametrize(
    ("expression", "said"),
    [("MEDIAN(x)", "off by at most"), ("MIN(x)", "short of the extreme"), ("MAX(x)", "it is the median")],
)
def test_what_has_no_interval_says_its_error(few: dpsql.Connection, expression: str, said: str) -> None:
    answer = few.execute(f"SELECT {expression} AS m FROM t", epsilon=1)
    assert any(note.startswith("m: ") and said in note for note in answer.notes)


# -- all cells of an answer at once ------------------------------------------------------------------------------------


def test_simultaneous_intervals_hold_for_a_whole_answer() -> None:
    """Of 60 answers of 20 cells each, at 80 %: one at a time hardly any holds in all cells."""
    raw = duckdb.connect()
    raw.execute("CREATE TABLE t AS SELECT i AS u, i % 10 AS k, (i * 7 % 101)::DOUBLE AS x FROM range(5000) AS r(i)")
    sql = "SELECT k, COUNT(*) AS n, SUM(x) AS total FROM t WHERE k < 10 GROUP BY k ORDER BY k"
    truth = raw.sql(sql).df()
    runs, together, alone = 60, 0, 0
    with dpsql.connect(raw, schema=SCHEMA, budget=1e6, delta=1e-6) as conn:
        for _ in range(runs):
            cursor = conn.execute(sql, epsilon=1, fresh=True)
            together += holds(cursor.intervals(0.8, simultaneous=True), truth)
            alone += holds(cursor.intervals(0.8), truth)
    assert together >= 36  # four standard deviations below 48
    assert alone <= 8


def holds(frame: Any, truth: Any) -> bool:
    return all(
        ((frame[f"{name}_low"] <= truth[name]) & (truth[name] <= frame[f"{name}_high"])).all()
        for name in ("n", "total")
    )


@pytest.mark.parametrize("cells", [2, 20, 2000])
def test_the_union_bound_is_nearly_that_of_independent_cells(cells: int) -> None:
    noise = LaplaceNoise(Fraction(1000))
    assert noise.half_width(1 - 0.05 / cells) <= 1.01 * noise.half_width(0.95 ** (1 / cells))


def test_rows_that_were_chosen_by_their_noise_are_not_widened_twice(few: dpsql.Connection) -> None:
    cursor = few.execute("SELECT k, COUNT(*) AS n FROM t GROUP BY k ORDER BY n DESC LIMIT 5", epsilon=1)
    assert cursor.intervals(simultaneous=True).equals(cursor.intervals())


MIDDLE, SCALES = 50, {"n": 20, "t": 50}
"""Values from 0 to 100 are summed from the middle; so large is the noise of a count and a centred sum."""
AVERAGE = Ratio(
    Linear((("t", Fraction(1)), ("n", Fraction(MIDDLE)))), Linear((("n", Fraction(1)),)), Fraction(0), Fraction(100)
)


def averages(rows: float, mean: float, number: int) -> list[tuple[float, float] | None]:
    """The intervals of the average of so many rows, None where it is NULL, under new noise each time."""
    random = np.random.default_rng(int(rows + mean))
    noises: Any = {name: (LaplaceNoise(Fraction(scale)), 1) for name, scale in SCALES.items()}
    exact = {"n": round(rows), "t": round(rows * (mean - MIDDLE))}
    drawn = {
        name: exact[name] + np.subtract(*(random.geometric(1 - math.exp(-1 / scale), number) for _ in range(2)))
        for name, scale in SCALES.items()
    }
    rows_drawn = [dict(zip(drawn, map(int, row), strict=True)) for row in zip(*drawn.values(), strict=True)]
    return list(ends(AVERAGE, rows_drawn, noises, 0.95))


def test_an_average_over_nobody_is_null() -> None:
    """But for one in thirty, of which nothing is said."""
    shown = [found for found in averages(0, MIDDLE, 4000) if found is not None]
    assert len(shown) <= 0.035 * 4000
    assert shown.count((0, 100)) >= 0.9 * len(shown)


@pytest.mark.parametrize("mean", [20, 45, 100])
@pytest.mark.parametrize("deviations", [0.5, 1.5, 2, 2.5, 3, 4, 5, 8])
def test_an_average_that_is_shown_is_within_its_interval(deviations: float, mean: float) -> None:
    """Also near the least count with which it is shown: docs/proofs/average.md."""
    rows = round(deviations * math.sqrt(2) * SCALES["n"])
    shown = [found for found in averages(rows, mean, 800) if found is not None]
    held = sum(low <= mean <= high for low, high in shown)
    assert held >= (0.9475 - 4 * math.sqrt(0.05 * 0.95 / len(shown))) * len(shown)
