"""df.dp in pandas: the same answers as SQL, in pandas' words; one budget for all frames of the same people."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpsql
from dpsql.engines.duckdb import engine
from dpsql.engines.duckdb.sources import copy_table
from dpsql.frames import accessor
from dpsql.frames.vocabulary import Vocabulary

REGIONS = ["east", "north", "south", "west"]
BOUNDS = {"amount": (0, 500), "age": (0, 90)}
ENOUGH = {"budget": 1e12, "delta": 1e-6}
EXACTLY = {"epsilon": 1e9}
"""So much that there is no noise to speak of."""


def make_orders() -> pd.DataFrame:
    """400 customers with two orders each, in two regions."""
    number = np.arange(800)
    return pd.DataFrame(
        {
            "customer": number % 400,
            "region": np.array(REGIONS)[number % 4],
            "amount": (number % 2000) / 4.0,
            "age": number % 90,
            "weight": number / 7.0,
        }
    )


@pytest.fixture
def plain() -> pd.DataFrame:
    """Not protected."""
    return make_orders()


@pytest.fixture(scope="module")
def protected_orders() -> pd.DataFrame:
    frame = make_orders()
    frame.dp.protect(
        unit="customer", bounds=BOUNDS, values={"region": REGIONS}, max_groups=2, max_rows_per_group=2, **ENOUGH
    )
    return frame


@pytest.fixture
def orders(protected_orders: pd.DataFrame) -> pd.DataFrame:
    """Protected, with more budget than is ever needed."""
    return protected_orders.copy()


def make_people() -> pd.DataFrame:
    frame = make_orders()
    frame.dp.protect(unit="customer", bounds=BOUNDS, values={"region": REGIONS}, budget=2.0, delta=1e-6)
    return frame


@pytest.fixture
def people() -> pd.DataFrame:
    """Protected, with little budget and one row per group."""
    return make_people()


@pytest.fixture(scope="module")
def unspent() -> pd.DataFrame:
    """The same, for tests that spend nothing."""
    return make_people()


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Forgets all accessor, as a new process does."""
    return lambda: monkeypatch.setattr(accessor, "_accounts", {})


def spent(frame: pd.DataFrame) -> float:
    return float(frame.dp.budget.spent.epsilon)


# -- the answers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "truth"),
    [
        (lambda dp: dp.count(**EXACTLY), lambda df: len(df)),
        (lambda dp: dp.count("age", **EXACTLY), lambda df: df["age"].count()),
        (lambda dp: dp.sum("amount", **EXACTLY), lambda df: df["amount"].sum()),
        (lambda dp: dp.mean("amount", **EXACTLY), lambda df: df["amount"].mean()),
        (lambda dp: dp.size(**EXACTLY), lambda df: len(df)),
        (lambda dp: dp["amount"].mean(**EXACTLY), lambda df: df["amount"].mean()),
        (lambda dp: dp.corr("amount", "age", **EXACTLY), lambda df: df["amount"].corr(df["age"])),
        (lambda dp: dp.var("amount", **EXACTLY), lambda df: df["amount"].var()),
        (lambda dp: dp.std("amount", **EXACTLY), lambda df: df["amount"].std()),
        (lambda dp: dp.nunique("customer", **EXACTLY), lambda df: df["customer"].nunique()),
        (lambda dp: dp.sql("SELECT SUM(age) FROM df", **EXACTLY), lambda df: df["age"].sum()),
    ],
)  # fmt: skip
def test_one_number_is_what_pandas_says(
    orders: pd.DataFrame, ask: Callable[[Any], Any], truth: Callable[[pd.DataFrame], float]
) -> None:
    assert float(ask(orders.dp)) == pytest.approx(truth(orders), rel=1e-4)


@pytest.mark.parametrize(
    ("ask", "truth"),
    [
        (lambda dp: dp.groupby("region").count(**EXACTLY), lambda df: df.groupby("region").size()),
        (lambda dp: dp.groupby("region").mean("age", **EXACTLY), lambda df: df.groupby("region")["age"].mean()),
        (lambda dp: dp.groupby(["region"]).sum("age", **EXACTLY), lambda df: df.groupby("region")["age"].sum()),
        (lambda dp: dp.value_counts("region", **EXACTLY), lambda df: df["region"].value_counts()),
    ],
)  # fmt: skip
def test_groups_are_what_pandas_says(
    orders: pd.DataFrame, ask: Callable[[Any], Any], truth: Callable[[pd.DataFrame], Any]
) -> None:
    assert dict(ask(orders.dp).fetchall()) == pytest.approx(truth(orders).to_dict(), rel=1e-4)


@pytest.mark.parametrize(
    "asked",
    [
        {"total": ("age", "sum"), "mean": pd.NamedAgg("age", "mean")},
        {"by_column": {"age": ["sum", "mean"]}},
    ],
)
def test_several_aggregates_at_once(orders: pd.DataFrame, asked: dict[str, Any]) -> None:
    by_column = [asked.pop("by_column")] if "by_column" in asked else []
    answer = orders.dp.groupby("region").agg(*by_column, **asked, **EXACTLY).df()
    truth = orders.groupby("region")["age"].agg(["sum", "mean"])
    assert list(answer)[1:] == (list(asked) or ["age_sum", "age_mean"])
    assert answer.set_index("region").to_numpy() == pytest.approx(truth.to_numpy(), rel=1e-4)


def test_a_histogram_counts_as_numpy_does(orders: pd.DataFrame) -> None:
    answer = orders.dp.hist("age", bins=range(0, 100, 10), **EXACTLY).df()
    counts, edges = np.histogram(orders["age"], bins=range(0, 100, 10))
    assert answer["age"].tolist() == edges[:-1].tolist()
    assert answer["count"].tolist() == counts.tolist()


def test_a_number_of_bins_divides_the_declared_bounds(orders: pd.DataFrame) -> None:
    assert orders.dp.hist("amount", bins=4, **EXACTLY).df()["amount"].tolist() == [0, 125, 250, 375]


def test_rows_without_a_key_are_in_no_group(plain: pd.DataFrame) -> None:
    plain.loc[::2, "region"] = None
    plain.dp.protect(unit="customer", values={"region": REGIONS}, **ENOUGH)
    assert set(plain.dp.groupby("region").count(**EXACTLY).df()["region"]) == set(REGIONS)


def test_several_keys(orders: pd.DataFrame) -> None:
    answer = orders.dp.groupby(["region", "age"]).count(**EXACTLY).df()
    assert list(answer) == ["region", "age", "count"]
    assert len(answer) == len(REGIONS) * 91
    assert answer["count"].sum() == len(orders)


class Recorder(Vocabulary):
    """Writes down what would be asked."""

    def _check_columns(self, names: object) -> None: ...

    def _ask(self, sql: str, parameters: object, options: dict[str, Any]) -> Any:
        return sql

    _explain = _ask


@pytest.mark.parametrize(
    ("ask", "sql"),
    [
        (lambda v: v.count(), 'SELECT COUNT(*) AS "count" FROM df'),
        (lambda v: v.median("age"), 'SELECT MEDIAN("age") AS "age_median" FROM df'),
        (lambda v: v.quantile("age", 0.9), 'SELECT QUANTILE_CONT("age", 0.9) AS "age_quantile" FROM df'),
        (lambda v: v.agg({"age": "median"}), 'SELECT MEDIAN("age") AS "age_median" FROM df'),
        (lambda v: v.sum('a"; DROP TABLE df'), 'SELECT SUM("a""; DROP TABLE df") AS "a""; DROP TABLE df_sum" FROM df'),
    ],
)
def test_the_words_become_sql(ask: Callable[[Vocabulary], Any], sql: str) -> None:
    assert ask(Recorder()) == sql


def test_the_claims_are_those_of_sql(unspent: pd.DataFrame) -> None:
    schema = {
        "tables": {
            "df": {
                "unit": "customer",
                "columns": {
                    "customer": "integer",
                    "region": {"type": "text", "values": REGIONS, "nullable": True},
                    "amount": {"type": "double", "bounds": [0, 500], "nullable": True},
                },
            }
        }
    }
    sql = "SELECT region, SUM(amount) AS total FROM df WHERE region IS NOT NULL GROUP BY region"
    with dpsql.connect(unspent, schema=schema, budget=2.0, delta=1e-6) as conn:
        expected = conn.explain(sql, epsilon=0.3)
    explained = unspent.dp.groupby("region").explain(total=("amount", "sum"), epsilon=0.3)
    assert explained.cost == expected.cost == unspent.dp.explain(sql, epsilon=0.3).cost
    assert explained.columns == expected.columns
    # The engine SQL may be another: rows of a frame that is asked about are read anew for every question.
    own, others = ([replace(release, sql="") for release in found.releases] for found in (explained, expected))
    assert own == others
    assert spent(unspent) == 0


def test_the_noise_is_as_claimed(people: pd.DataFrame) -> None:
    (measure,) = people.dp.explain("SELECT COUNT(*) FROM df", epsilon=0.01, mechanism="laplace").releases[0].measures
    errors = [people.dp.count(epsilon=0.01, mechanism="laplace").value - 400 for _ in range(60)]
    assert abs(np.mean(errors)) < 6 * measure.std / math.sqrt(len(errors))
    assert 0.4 < np.std(errors) / measure.std < 2.2


# -- how answers look -------------------------------------------------------------------------------------------------


def test_an_answer_shows_its_error(people: pd.DataFrame) -> None:
    answer = people.dp.groupby("region").count(epsilon=1.0)
    assert repr(answer).splitlines()[0].split() == ["region", "count"]
    assert all(" ± " in line for line in repr(answer).splitlines()[1 : 1 + len(answer.intervals())])
    assert list(answer.intervals()) == ["region", "count", "count_low", "count_high"]
    assert answer.receipt.epsilon == 1.0


def test_a_table_is_no_number(orders: pd.DataFrame) -> None:
    with pytest.raises(dpsql.InterfaceError, match="a table of 4 rows and 2 columns"):
        float(orders.dp.groupby("region").count())


def test_explain_in_sql(unspent: pd.DataFrame) -> None:
    assert "epsilon 0.25" in repr(unspent.dp.sql("EXPLAIN SELECT COUNT(*) FROM df", epsilon=0.25))
    assert spent(unspent) == 0


# -- one budget -------------------------------------------------------------------------------------------------------


def through_pickle(frame: pd.DataFrame) -> pd.DataFrame:
    return pickle.loads(pickle.dumps(frame))


def through_parquet(frame: pd.DataFrame) -> pd.DataFrame:
    file = BytesIO()
    frame.to_parquet(file)
    return pd.read_parquet(file)


WAYS: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "copy": lambda df: df.copy(),
    "filter": lambda df: df[df["age"] > 30],
    "query": lambda df: df.query("age > 30"),
    "columns": lambda df: df[["customer", "age"]],
    "assign": lambda df: df.assign(double=2 * df["age"]),
    "concat": lambda df: pd.concat([df[df["age"] > 30], df[df["age"] <= 30]]),
    "pickle": through_pickle,
    "parquet": through_parquet,
}


@pytest.mark.parametrize("way", WAYS)
def test_frames_made_from_a_frame_share_its_budget(orders: pd.DataFrame, way: str) -> None:
    other, before = WAYS[way](orders), spent(orders)
    other.dp.count(**EXACTLY)
    assert spent(other) == spent(orders) > before


def test_together_they_cannot_spend_more_than_one(people: pd.DataFrame) -> None:
    people[people["age"] > 30].dp.count(epsilon=1.5)
    with pytest.raises(dpsql.BudgetExhausted):
        through_pickle(people).dp.count(epsilon=1.5)


def test_a_filter_is_asked_about_its_own_rows(orders: pd.DataFrame) -> None:
    some = orders[orders["age"] > 30]
    assert orders.dp.count(**EXACTLY).value == len(orders)
    assert some.dp.count(**EXACTLY).value == len(some)


def test_a_change_in_place_is_seen(orders: pd.DataFrame) -> None:
    before = orders.dp.sum("amount", **EXACTLY)
    orders.loc[:, "amount"] = 1.0
    assert float(before) > 1000
    assert float(orders.dp.sum("amount", **EXACTLY)) == pytest.approx(800)


def test_the_same_question_again_is_paid_again(people: pd.DataFrame) -> None:
    receipts = [people.dp.count(epsilon=0.2).receipt for _ in range(2)]
    assert [(receipt.recalled, receipt.epsilon) for receipt in receipts] == [(False, 0.2), (False, 0.2)]
    with pytest.raises(dpsql.ProgrammingError, match="run afresh"):
        people.dp.count(fresh=False)


def test_protecting_again_keeps_what_is_spent(people: pd.DataFrame) -> None:
    people.dp.count(epsilon=0.5)
    for budget in ({"budget": 2.0, "delta": 1e-6}, {}):
        people.dp.protect(unit="customer", bounds={"weight": (0, 120)}, **budget)
        assert spent(people) == 0.5
    people.dp.mean("weight", epsilon=0.5)
    with pytest.raises(dpsql.UnboundedColumn):
        people.dp.mean("amount")


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"unit": "customer", "budget": 3.0, "delta": 1e-6}, "has epsilon 2 and delta 1e-06"),
        ({"unit": "customer", "budget": 2.0, "delta": 0}, "has epsilon 2 and delta 1e-06"),
        ({"unit": "age"}, 'counts people by "customer"'),
        ({"unit": "customer", "ledger": "other.ledger"}, "is in :memory:"),
    ],
)
def test_protecting_again_cannot_change_the_account(unspent: pd.DataFrame, other: dict[str, Any], words: str) -> None:
    with pytest.raises(dpsql.LedgerError, match=words):
        unspent.dp.protect(**other)


def test_a_frame_that_lost_its_note_can_take_it_over(people: pd.DataFrame) -> None:
    merged = people.merge(pd.DataFrame({"region": REGIONS, "tax": [0.1, 0.2, 0.3, 0.4]}), on="region")
    with pytest.raises(dpsql.InterfaceError, match="protect_like"):
        merged.dp.count()
    merged.dp.protect_like(people)
    merged.dp.count(epsilon=0.5)
    assert spent(people) == 0.5
    people.dp.protect(unit="customer", bounds={"weight": (0, 120)})
    merged.dp.protect_like(people)
    assert merged.dp.mean("weight", epsilon=0.5).receipt.epsilon == 0.5
    with pytest.raises(dpsql.LedgerError, match="its own account"):
        merged.dp.protect_like(make_people())


# -- another process --------------------------------------------------------------------------------------------------


def test_a_budget_in_memory_is_not_begun_again(people: pd.DataFrame, elsewhere: Callable[[], None]) -> None:
    stored = pickle.dumps(people)
    elsewhere()
    frame = pickle.loads(stored)
    for ask in (
        lambda: frame.dp.count(),
        lambda: frame.dp.budget,
        lambda: frame.dp.protect(unit="customer", budget=2.0, delta=1e-6),
    ):
        with pytest.raises(dpsql.LedgerError, match="in the memory of another process"):
            ask()


def test_a_budget_in_a_file_is_found_again(
    plain: pd.DataFrame, elsewhere: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plain["day"] = pd.Timestamp("2024-05-01")
    bounds = {**BOUNDS, "day": ("2024-01-01", pd.Timestamp("2024-12-31"))}
    plain.dp.protect(unit="customer", bounds=bounds, budget=2.0, delta=1e-6, ledger="orders.ledger")
    plain.dp.count(epsilon=0.5)
    declared = accessor.find(plain.attrs["dpsql"], [], list).schema
    stored = pickle.dumps(plain[["customer", "age"]])
    elsewhere()
    monkeypatch.chdir(os.sep)
    frame = pickle.loads(stored)
    assert spent(frame) == 0.5
    frame.dp.mean("age", epsilon=0.5)
    assert spent(frame) == spent(plain) > 0.5
    assert accessor.find(plain.attrs["dpsql"], [], list).schema.fingerprint == declared.fingerprint


def test_public_tables_stay_behind(plain: pd.DataFrame, elsewhere: Callable[[], None], tmp_path: Path) -> None:
    regions = pd.DataFrame({"region": REGIONS, "country": ["A", "B", "A", "B"]})
    ledger = tmp_path / "orders.ledger"
    plain.dp.protect(unit="customer", public={"regions": regions}, budget=2.0, delta=1e-6, ledger=ledger)
    elsewhere()
    with pytest.raises(dpsql.LedgerError, match="public tables"):
        plain.dp.count()


def test_another_process_and_either_order_of_imports(people: pd.DataFrame, tmp_path: Path) -> None:
    people.to_pickle(tmp_path / "people.pkl")
    script = (
        "import sys, dpsql; assert 'pandas' not in sys.modules\n"
        "import pandas\n"
        "try: pandas.read_pickle(sys.argv[1]).dp.count()\n"
        "except dpsql.LedgerError as error: print(error.problem)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "people.pkl"], capture_output=True, text=True, check=True
    )
    assert "memory of another process" in ran.stdout
    assert ran.stderr == ""


# -- what can go wrong ------------------------------------------------------------------------------------------------


def test_before_protect(plain: pd.DataFrame) -> None:
    with pytest.raises(dpsql.InterfaceError, match=r"not protected\nhint: a frame made from .*df.dp.protect\(unit="):
        plain.dp.count()


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({"unit": "custmer"}, dpsql.UnknownName, 'no column "custmer"\nhint: did you mean "customer"'),
        ({"unit": ["customer"]}, dpsql.UnknownName, "no column"),
        ({"bounds": {"amuont": (0, 1)}}, dpsql.UnknownName, 'did you mean "amount"'),
        ({"bounds": {"amount": (500, 0)}}, dpsql.SchemaError, r"bounds\['amount'\]: the lower bound 500 is above"),
        ({"bounds": {"amount": 500}}, dpsql.SchemaError, r'hint: write bounds={"amount": \(0, 500\)}'),
        ({"bounds": {"amount": (0, math.inf)}}, dpsql.SchemaError, "finite"),
        ({"bounds": {"amount": ("a", "b")}}, dpsql.SchemaError, '"a" is not a number'),
        ({"bounds": [0, 500]}, dpsql.ProgrammingError, "bounds= is a dict"),
        (
            {"bounds": {"region": (0, 1)}},
            dpsql.SchemaError,
            r'is text, which takes no bounds\nhint: write values={"region".*; or convert it to dates or numbers before',
        ),
        ({"values": {"amount": [1.5]}}, dpsql.SchemaError, r'takes no values\nhint: write bounds={"amount".*"Int64"'),
        ({"values": {"age": ["x"]}}, dpsql.SchemaError, r'write values={"age": \[1, 2, 3\]}'),
        ({"values": {"region": "north"}}, dpsql.SchemaError, "a list of at least one value"),
        ({"values": {"age": [1]}, "bounds": {"age": (0, 1)}}, dpsql.SchemaError, "bounds or values, not both"),
        ({"max_groups": 0}, dpsql.SchemaError, "max_groups: 0 is not 1 or more"),
        ({"budget": None}, dpsql.LedgerError, "budget=1.0, delta=1e-6"),
        ({"budget": 0}, dpsql.ProgrammingError, "budget must be above 0"),
        ({"public": {"df": pd.DataFrame()}}, dpsql.ProgrammingError, 'names other than "df"'),
        ({"public": {"regions": 5}}, dpsql.ProgrammingError, "it is int"),
        ({"public": [1]}, dpsql.ProgrammingError, "public= is a dict"),
    ],
)
def test_what_protect_refuses(plain: pd.DataFrame, wrong: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        plain.dp.protect(**{"unit": "customer", "budget": 1.0, **wrong})
    assert "dpsql" not in plain.attrs


def test_a_hint_about_days_has_days(plain: pd.DataFrame) -> None:
    frame = plain.assign(day=pd.Timestamp("2024-05-01"))
    with pytest.raises(dpsql.SchemaError, match=r'write bounds={"day": \("2024-01-01", "2024-12-31"\)} in protect'):
        frame.dp.protect(unit="customer", bounds={"day": ("01.01.2024", "31.12.2024")}, budget=1.0)


@pytest.mark.parametrize(
    ("ask", "error", "words"),
    [
        (lambda dp: dp.sum("weight"), dpsql.UnboundedColumn, r'hint: write bounds={"weight": \(0, 500\)} in protect'),
        (lambda dp: dp.sql("SELECT AVG(weight) FROM df"), dpsql.UnboundedColumn, r'hint: write bounds={"weight"'),
        (lambda dp: dp.sum("amuont"), dpsql.UnknownName, 'hint: did you mean "amount"'),
        (lambda dp: dp.groupby("regin").count(), dpsql.UnknownName, 'hint: did you mean "region"'),
        (lambda dp: dp.sum(["amount"]), dpsql.ProgrammingError, "must be a string"),
        (lambda dp: dp.value_counts(["region"]), dpsql.UnknownName, "no column"),
        (lambda dp: dp.groupby(5), dpsql.ProgrammingError, "groupby takes column names"),
        (lambda dp: dp.agg("sum"), dpsql.ProgrammingError, r'write agg\(total=\("amount", "sum"\)\)'),
        (lambda dp: dp.agg({"amount": "first"}), dpsql.Unsupported, "unknown aggregate 'first'"),
        (
            lambda dp: dp.agg(total=pd.NamedAgg("amount", "sum", min_count=1)),
            dpsql.ProgrammingError,
            "a column and a function",
        ),
        (lambda dp: dp.agg(total=("amount",)), dpsql.ProgrammingError, "total= takes a column and a function"),
        (lambda dp: dp.agg(), dpsql.ProgrammingError, "at least one aggregate"),
        (lambda dp: dp.quantile("age", 90), dpsql.ProgrammingError, "between 0 and 1"),
        (lambda dp: dp.hist("age", bins=[10, 0]), dpsql.ProgrammingError, "in increasing order"),
        (lambda dp: dp.hist("age", bins="many"), dpsql.ProgrammingError, "edges or a number"),
        (lambda dp: dp.hist("region", bins=3), dpsql.ProgrammingError, "3 equal bins"),
        (lambda dp: dp.hist("weight", bins=3), dpsql.UnboundedColumn, r'hint: write bounds={"weight"'),
        (lambda dp: dp.sql("SELECT COUNT(*) FROM orders"), dpsql.UnknownName, 'available: "df"'),
        (lambda dp: dp.count(epsilom=0.1), dpsql.ProgrammingError, 'did you mean "epsilon"'),
        (lambda dp: dp.count(epsilon=5), dpsql.BudgetExhausted, "2 is left"),
        (lambda dp: dp.protect_like(5), dpsql.ProgrammingError, "not a frame"),
    ],
)
def test_what_questions_are_refused(
    unspent: pd.DataFrame, ask: Callable[[Any], Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        ask(unspent.dp)
    assert spent(unspent) == 0


def test_what_protect_has_not_seen_does_not_exist(people: pd.DataFrame) -> None:
    people["tip"] = 1.0
    for ask in (lambda: people.dp.sum("tip"), lambda: people.dp.sql("SELECT SUM(tip) FROM df")):
        with pytest.raises(dpsql.UnknownName, match="protect\\(\\) did not declare it"):
            ask()
    people.dp.protect(unit="customer", bounds={"tip": (0, 10)}, max_rows_per_group=1)
    assert float(people.dp.sum("tip", epsilon=1)) == pytest.approx(400, abs=300)


def test_the_unit_must_stay(unspent: pd.DataFrame) -> None:
    for lost in (unspent[["age"]], unspent.set_index("customer")):
        with pytest.raises(dpsql.UnknownName, match=r'its unit column "customer"\nhint: .*reset_index'):
            lost.dp.count()


def test_a_column_of_another_type_is_refused_without_a_word_of_what_it_holds(people: pd.DataFrame) -> None:
    people["age"] = pd.to_timedelta([1234, 5678] * 400, unit="s")
    with pytest.raises(dpsql.SchemaError, match="no longer matches its declaration") as caught:
        people.dp.count()
    assert "20:34" not in str(caught.value)


# -- what pandas can hold ---------------------------------------------------------------------------------------------

KINDS: dict[str, Any] = {
    "int64": np.array([1, 2, 3, 4]),
    "uint8": np.array([1, 2, 3, 4], dtype="uint8"),
    "masked": pd.array([1, 2, 3, None], dtype="Int64"),
    "int64[pyarrow]": pd.array([1, 2, 3, None], dtype="int64[pyarrow]"),
    "float32": np.array([1, 2, 3, np.nan], dtype="float32"),
    "bool": np.array([True, True, True, False]),
    "boolean": pd.array([True, True, True, None], dtype="boolean"),
    "str": pd.Series(["a", "b", "c", None]),
    "string[pyarrow]": pd.array(["a", "b", "c", None], dtype="string[pyarrow]"),
    "category": pd.Categorical(["a", "b", "c", None]),
    "datetime64": pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-03", None]),
}


def test_columns_of_every_kind_are_read() -> None:
    frame = pd.DataFrame({"person": range(4), **KINDS})
    frame.dp.protect(unit="person", **ENOUGH)
    answer = frame.dp.agg(dict.fromkeys(KINDS, "count"), **EXACTLY).fetchone()
    assert dict(zip(KINDS, answer, strict=True)) == frame[list(KINDS)].count().to_dict()


def test_objects_are_text_and_arrow_columns_stand_apart_from_them() -> None:
    frame = pd.DataFrame({"person": range(3), "note": pd.Series(["a", 1, None], dtype=object)})
    frame.dp.protect(unit="person", **ENOUGH)
    assert frame.dp.count("note", **EXACTLY).value == 2
    beside = frame.assign(number=pd.array([1, 2, 3], dtype="int64[pyarrow]"))
    assert beside.dp.count(**EXACTLY).value == 3
    with pytest.raises(dpsql.UnknownName, match="note"):
        beside.dp.count("note")


def test_what_sql_cannot_hold_or_name_is_left_out() -> None:
    frame = pd.DataFrame(
        {
            "person": range(3),
            "month": pd.period_range("2024-01", periods=3, freq="M"),
            "zone": pd.date_range("2024-01-01", periods=3, tz="UTC"),
            "a.b": 1,
            "twin": 1,
            "TWIN": 2,
            7: 1,
        }
    )
    frame = pd.concat([frame, frame[["a.b"]]], axis="columns")
    frame.dp.protect(unit="person", **ENOUGH)
    assert frame.dp.count(**EXACTLY).value == 3
    assert frame.dp.count("zone", **EXACTLY).value == 3  # a moment, in UTC
    for name in ("month", "twin"):
        with pytest.raises(dpsql.UnknownName):
            frame.dp.count(name)
        with pytest.raises(dpsql.SchemaError, match="cannot be used"):
            frame.dp.protect(unit="person", bounds={name: (0, 1)})


def test_no_column_is_copied(orders: pd.DataFrame) -> None:
    chosen = orders.dp._chosen(["customer", "amount"])
    assert np.shares_memory(chosen["amount"].to_numpy(), orders["amount"].to_numpy())


def test_public_frames_can_be_joined(plain: pd.DataFrame) -> None:
    regions = pd.DataFrame({"region": REGIONS, "country": ["A", "B", "A", "B"]})
    plain.dp.protect(
        unit="customer", values={"region": REGIONS}, public={"regions": regions}, max_rows_per_group=2, **ENOUGH
    )
    sql = "SELECT country, COUNT(*) AS n FROM df JOIN regions USING (region) GROUP BY country ORDER BY country"
    assert plain.dp.sql(sql, **EXACTLY).fetchall() == [("A", 400), ("B", 400)]


@pytest.mark.parametrize("ask", ["explain", "sql"])
def test_no_row_of_people_is_read_before_the_charge(
    ask: str, plain: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Public rows are: here they are counted, since the outer join makes groups of them."""
    regions = pd.DataFrame({"region": REGIONS})
    plain.dp.protect(unit="customer", public={"regions": regions}, **ENOUGH)
    read: list[tuple[str, int, float]] = []

    def watched(connection: Any, table: Any, source: Any) -> None:
        read.append((table.name, len(source), plain.dp.budget.spent.epsilon))
        copy_table(connection, table, source)

    monkeypatch.setattr(engine, "copy_table", watched)
    getattr(plain.dp, ask)("SELECT region, COUNT(customer) FROM regions LEFT JOIN df USING (region) GROUP BY region")
    assert ("regions", len(REGIONS), 0.0) in read
    people = [(rows, spent) for name, rows, spent in read if name == "df" and rows]
    assert all(spent > 0 for _, spent in people)
    assert len(people) == (ask == "sql")


def test_every_frame_is_read_in_a_locked_engine(orders: pd.DataFrame) -> None:
    engine = orders.dp._session().environment.engine
    settings = ("enable_external_access", "python_enable_replacements", "error_on_division_by_zero")
    asked = engine._connection.execute(f"SELECT {', '.join(f'current_setting({name!r})' for name in settings)}")
    assert asked.fetchall() == [(False,) * 3]
    with pytest.raises(Exception, match="configuration has been locked"):
        engine._connection.execute("SET enable_external_access = true")


# -- more words --------------------------------------------------------------------------------------------------------


def test_a_column_of_groups(orders: pd.DataFrame) -> None:
    found = orders.dp.groupby("region")["amount"].mean(**EXACTLY).df().set_index("region")["amount_mean"]
    truth = orders.groupby("region")["amount"].mean()
    assert found.to_dict() == pytest.approx(truth.to_dict(), rel=1e-3)


def test_describe(orders: pd.DataFrame) -> None:
    found, truth = orders.dp.describe("amount", **EXACTLY).df().iloc[0], orders["amount"].describe()
    assert list(found.index) == list(truth.index)
    assert found["mean"] == pytest.approx(truth["mean"], rel=1e-3)
    assert found["50%"] == pytest.approx(truth["50%"], abs=1)


def test_several_quantiles_and_a_table_of_two_columns(orders: pd.DataFrame) -> None:
    assert list(orders.dp.quantile("amount", [0.1, 0.9], **EXACTLY).df()) == ["amount_0.1", "amount_0.9"]
    assert list(orders.dp.crosstab("region", "age", **EXACTLY).df()) == ["region", "age", "count"]


def test_periods() -> None:
    days = pd.date_range("2024-01-01", "2024-03-31")
    frame = pd.DataFrame({"person": range(len(days)), "day": days})
    frame.dp.protect(unit="person", bounds={"day": ("2024-01-01", "2024-03-31")}, **ENOUGH)
    found = frame.dp.resample("MS", on="day").count(**EXACTLY).df()
    assert found["count"].tolist() == [31, 29, 31]
    assert found["day"].tolist() == list(pd.date_range("2024-01-01", periods=3, freq="MS"))
    with pytest.raises(dpsql.ProgrammingError, match="day, week, month, quarter or year"):
        frame.dp.resample("3 moons", on="day")


PERIODS_OF_PANDAS = ["h", "D", "W", "W-SUN", "MS", "ME", "QS", "QE", "QE-DEC", "YS", "YE"]


@pytest.mark.parametrize("period", PERIODS_OF_PANDAS)
def test_periods_begin_and_are_called_as_in_pandas(period: str) -> None:
    times = pd.date_range("2023-11-20 05:30", periods=60, freq="11h" if period == "h" else "8D")
    frame = pd.DataFrame({"person": range(len(times)), "day": times})
    truth = frame.resample(period, on="day")["person"].count()
    frame.dp.protect(unit="person", bounds={"day": ("2023-11-20", str(times[-1]))}, **ENOUGH)
    asked = [
        frame.dp.resample(period, on="day").count(**EXACTLY).df(),
        frame.dp.groupby(pd.Grouper(key="day", freq=period)).count(**EXACTLY).df(),
    ]
    for found in asked:
        found = found[found["count"] > 0].set_index("day")["count"]
        assert found.to_dict() == truth[truth > 0].to_dict()


def test_a_word_that_is_not_there_is_answered_with_those_that_are(orders: pd.DataFrame) -> None:
    with pytest.raises(AttributeError, match=r"df\.dp has no method 'head'; available: agg, budget, corr, count"):
        orders.dp.head()
    with pytest.raises(AttributeError, match='did you mean "median"'):
        orders.dp.meadian("age")


def test_the_accessor_says_what_it_is(plain: pd.DataFrame, unspent: pd.DataFrame) -> None:
    assert "not protected yet: df.dp.protect(" in repr(plain.dp)
    assert repr(unspent.dp) == '<df.dp: people by "customer", epsilon 2 of 2 left>'
    assert ("customer", "integer", "identifies the person; may be NULL") in list(unspent.dp.describe_schema())


def test_nothing_left_is_said_as_it_is(people: pd.DataFrame) -> None:
    people.dp.count(epsilon=2, mechanism="laplace")
    with pytest.raises(dpsql.BudgetExhausted, match="keep the answers you have"):
        people.dp.count(epsilon=1)


def test_one_row_per_person_is_declared() -> None:
    frame = pd.DataFrame({"person": range(200), "town": ["Oslo", "Rome"] * 100})
    frame.dp.protect(unit="person", unique=True, values={"town": ["Oslo", "Rome"]}, budget=1e6)
    cursor = frame.dp.groupby("town").count(epsilon=1e5)
    assert cursor.fetchall() == [("Oslo", 100), ("Rome", 100)]
    assert "noise only" not in str(cursor)
    with pytest.raises(dpsql.ProgrammingError, match="unique= is True or False"):
        frame.dp.protect(unit="person", unique="yes", budget=1e6)
