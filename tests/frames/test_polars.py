"""df.dp in polars: as in pandas, on frames and lazy frames; the note stays on the object."""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import dpsql

REGIONS = ["east", "north", "south", "west"]
ENOUGH = {"budget": 1e12, "delta": 1e-6}
EXACTLY = {"epsilon": 1e9}
PROTECT = {
    "unit": "customer",
    "bounds": {"age": (0, 90), "day": ("2024-01-01", "2024-12-31")},
    "values": {"region": REGIONS},
    "max_groups": 2,
    "max_rows_per_group": 2,
}


def make_orders() -> pl.DataFrame:
    """400 customers with two orders each, in two regions."""
    return pl.DataFrame(
        {
            "customer": [number % 400 for number in range(800)],
            "region": [REGIONS[number % 4] for number in range(800)],
            "age": [number % 90 for number in range(800)],
            "day": [datetime.date(2024, 1, 1) + datetime.timedelta(days=number % 300) for number in range(800)],
        }
    )


@pytest.fixture(params=["eager", "lazy"])
def orders(request: pytest.FixtureRequest) -> Any:
    """A frame, and a lazy one, with more budget than is ever needed."""
    frame: Any = make_orders() if request.param == "eager" else make_orders().lazy()
    frame.dp.protect(**PROTECT, **ENOUGH)
    return frame


def test_answers_are_what_polars_says(orders: Any) -> None:
    truth = orders.lazy().collect()
    assert orders.dp.count(**EXACTLY).value == len(truth)
    assert float(orders.dp.mean("age", **EXACTLY)) == pytest.approx(truth["age"].mean(), rel=1e-4)
    by_region = dict(truth.group_by("region").agg(pl.col("age").sum()).iter_rows())
    assert dict(orders.dp.groupby("region").sum("age", **EXACTLY).fetchall()) == pytest.approx(by_region, rel=1e-4)
    old = orders.dp.sql("SELECT COUNT(*) AS n FROM df WHERE age > 50", **EXACTLY).pl()
    assert old["n"].item() == len(truth.filter(pl.col("age") > 50))


def test_bins_of_days(orders: Any) -> None:
    edges = [datetime.date(2024, month, 1) for month in (1, 4, 7)]
    answer = orders.dp.hist("day", bins=edges, **EXACTLY).pl()
    days = orders.lazy().collect()["day"]
    assert answer["day"].to_list() == edges[:-1]
    assert answer["count"].sum() == days.is_between(edges[0], edges[-1]).sum()


@pytest.mark.parametrize(
    "way",
    [
        lambda df: df.filter(pl.col("age") > 30),
        lambda df: df.clone(),
        lambda df: df.lazy(),
        lambda df: pickle.loads(pickle.dumps(df)),
    ],
)
def test_a_frame_made_from_another_asks_for_its_account(way: Callable[[pl.DataFrame], Any]) -> None:
    orders: Any = make_orders()
    orders.dp.protect(**PROTECT, budget=2.0, delta=1e-6)
    other = way(orders)
    with pytest.raises(dpsql.InterfaceError, match="takes over its account"):
        other.dp.count()
    other.dp.protect_like(orders)
    other.dp.count(epsilon=0.5)
    assert orders.dp.budget.spent == other.dp.budget.spent
    assert orders.dp.budget.spent.epsilon == 0.5


def test_protecting_again_keeps_the_account() -> None:
    orders: Any = make_orders()
    orders.dp.protect(**PROTECT, budget=2.0, delta=1e-6)
    orders.dp.count(epsilon=0.5)
    orders.dp.protect(unit="customer")
    assert orders.dp.budget.spent.epsilon == 0.5
    with pytest.raises(dpsql.LedgerError, match="does not reset"):
        orders.dp.protect(**PROTECT, budget=5.0)


def test_a_lazy_frame_runs_after_the_charge_and_its_errors_are_sealed() -> None:
    runs = []

    def fail(frame: pl.DataFrame) -> pl.DataFrame:
        runs.append(len(frame))
        raise ValueError("alice")

    lazy: Any = make_orders().lazy().map_batches(fail, schema=make_orders().schema)
    lazy.dp.protect(**PROTECT, budget=2.0, delta=1e-6)
    lazy.dp.explain("SELECT COUNT(*) FROM df")
    assert runs == []
    with pytest.raises(dpsql.SealedExecutionError) as caught:
        lazy.dp.count(epsilon=0.5)
    assert runs
    assert "alice" not in str(caught.value)
    assert caught.value.__context__ is None
    assert lazy.dp.budget.spent.epsilon == 0.5


def test_kinds_of_columns() -> None:
    frame: Any = pl.DataFrame(
        {
            "person": range(4),
            "text": ["a", "b", "c", None],
            "enum": pl.Series(["a", "b", "a", None], dtype=pl.Enum(["a", "b"])),
            "category": pl.Series(["a", "b", "a", None], dtype=pl.Categorical),
            "decimal": pl.Series(["1.20", "2.20", "3.20", None]).cast(pl.Decimal(10, 2)),
            "moment": [datetime.datetime(2024, 1, 1)] * 3 + [None],
            "truth": [True, False, True, None],
            "list": [[1], [2], [3], [4]],
        }
    )
    frame.dp.protect(unit="person", **ENOUGH)
    kinds = ["text", "enum", "category", "decimal", "moment", "truth"]
    assert frame.dp.agg(dict.fromkeys(kinds, "count"), **EXACTLY).fetchone() == (3,) * len(kinds)
    with pytest.raises(dpsql.UnknownName, match="type that SQL supports"):
        frame.dp.count("list")


def test_public_frames_can_be_joined() -> None:
    orders: Any = make_orders()
    regions = pl.LazyFrame({"region": REGIONS, "country": ["A", "B", "A", "B"]})
    orders.dp.protect(**PROTECT, public={"regions": regions}, **ENOUGH)
    sql = "SELECT country, COUNT(*) AS n FROM df JOIN regions USING (region) GROUP BY country ORDER BY country"
    assert orders.dp.sql(sql, **EXACTLY).fetchall() == [("A", 400), ("B", 400)]


def test_the_words_of_polars(orders: Any) -> None:
    truth = orders.lazy().collect()
    assert orders.dp.len(**EXACTLY).value == len(truth)
    assert orders.dp.n_unique("region", **EXACTLY).value == truth["region"].n_unique()
    assert orders.dp.group_by("region").count(**EXACTLY).df()["count"].sum() == len(truth)
    assert orders.dp.group_by("region").len(**EXACTLY).df()["count"].sum() == len(truth)
    assert orders.dp.group_by("region").n_unique("region", **EXACTLY).df()["region_nunique"].tolist() == [1] * len(
        REGIONS
    )
    with pytest.raises(dpsql.UnknownName):
        orders.dp.group_by_dynamic("dya", every="1mo").count()
