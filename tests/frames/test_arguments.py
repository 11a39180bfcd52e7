"""What people pass to `df.dp` by mistake, or by habit: no message shows a value, and each says what is taken."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import dpsql

PEOPLE = 600
SECRET, NUMBER = "SECRET", 98765


def frame() -> pd.DataFrame:
    made = pd.DataFrame(
        {
            "u": range(PEOPLE),
            "amount": [NUMBER * 1000 + i for i in range(PEOPLE)],
            "name": [f"{SECRET}{i}" for i in range(PEOPLE)],
            "day": pd.date_range("2024-01-01", periods=PEOPLE, freq="D"),
            "region": pd.Categorical(["north", "south"] * (PEOPLE // 2)),
            "kind": pd.array(["x", "y", "z"] * (PEOPLE // 3), dtype="string[pyarrow]"),
        }
    )
    made.dp.protect(
        unit="u",
        bounds={"amount": (0, 10), "day": ("2024-01-01", "2025-12-31")},
        values={"region": ["north", "south"], "kind": ["x", "y", "z"]},
        budget=1e9,
        delta=1e-6,
    )
    return made


@pytest.fixture
def df() -> pd.DataFrame:
    with pytest.warns(Warning, match="protects against little"):
        return frame()


ODD: dict[str, Callable[[pd.DataFrame], object]] = {
    "a column": lambda df: df["name"],
    "numbers": lambda df: df["amount"],
    "a frame": lambda df: df[["name"]],
    "an array": lambda df: df["name"].to_numpy(),
    "an index": lambda df: pd.Index(df["name"]),
    "a list": lambda df: list(df["name"][:5]),
    "a tuple": lambda df: tuple(df["name"][:5]),
    "bins of data": lambda df: pd.cut(df["amount"], 3),
    "categories": lambda df: df["name"].astype("category"),
    "a dict": lambda df: {"name": df["name"]},
    "a list of columns": lambda df: [df["name"]],
    "polars": lambda df: pl.Series("name", df["name"].tolist()),
    "nothing": lambda df: None,
    "a function": lambda df: len,
    "bytes": lambda df: b"abc",
}
USUAL: dict[str, Any] = {
    **dict.fromkeys(("column", "other"), "amount"),
    **dict.fromkeys(("keys", "rows", "columns"), "region"),
    "period": "MS",
    "on": "day",
    "query": "SELECT COUNT(*) FROM df",
    "unit": "u",
    "epsilon": 1.0,
}


def methods(target: Any) -> list[str]:
    names = [name for name in dir(target) if not name.startswith("_") and name != "budget"]
    return [name for name in names if callable(getattr(target, name))]


def told(call: Callable[[], object]) -> str:
    """What dpsql's error says, if there is one; any other error goes on."""
    try:
        call()
    except dpsql.Error as error:
        return str(error)
    return ""


def check_silent(call: Callable[[], object]) -> None:
    """Whatever goes wrong is an error of dpsql's that shows no row, and no name of its own insides."""
    found = told(call)
    assert not any(word in found for word in (SECRET, str(NUMBER), "Vocabulary", "PrivateFrame"))


METHODS = methods(pd.DataFrame().dp)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("grouped", [False, True])
def test_no_argument_is_shown(name: str, grouped: bool, df: pd.DataFrame) -> None:
    target = df.dp.groupby("region") if grouped else df.dp
    if name not in methods(target):
        return
    method = getattr(target, name)
    known = inspect.signature(method).parameters.values()
    takes = [one for one in known if one.kind is not one.VAR_KEYWORD]
    usual = {one.name: USUAL[one.name] for one in takes if one.default is one.empty and one.name in USUAL}
    for kind, make in ODD.items():
        odd = make(df)
        for one in takes:
            if one.name == "values" and kind in ("a list", "a tuple"):  # declared constants are public
                continue
            given = {**usual, one.name: odd}
            first = [given.pop(each.name) for each in takes if each.kind is each.POSITIONAL_ONLY and each.name in given]
            check_silent(lambda first=first, given=given: method(*first, **given))  # type: ignore[misc]
        check_silent(lambda odd=odd: method(odd, odd, odd, odd, odd))  # type: ignore[misc]
        if not {"epsilon", "column"} & {one.name for one in takes}:
            check_silent(lambda odd=odd: method(*usual.values(), epsilon=odd))  # type: ignore[misc]
    check_silent(method)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (
            lambda dp: dp.groupby("region", as_index=False),
            r"groupby\(\) has no argument as_index=\nhint: it is  groupby\(keys\)",
        ),
        (lambda dp: dp.groupby(), r"groupby\(\) takes keys"),
        (lambda dp: dp.describe(), r"describe\(\) takes column\nhint: it is  describe\(column, epsilon=0.1\)"),
        (lambda dp: dp.hist("amount", 3, 4), r"hist\(\) takes column, bins, and needs column"),
        (lambda dp: dp.mean("amount", True), r"mean\(\) takes column"),
        (lambda dp: dp["amount"].mean("amount"), r"mean\(\) takes column"),
        (lambda dp: dp.crosstab("region"), r"crosstab\(\) takes rows, columns"),
        (lambda dp: dp.protect("u"), r"protect\(\) takes unit, .*, and needs unit"),
        (lambda dp: dp.describe_schema(1), r"describe_schema\(\) takes nothing"),
        (lambda dp: dp.hist("amount", 10**9), r"equal bins"),
        (lambda dp: dp.hist("amount", range(10**9)), r"bins need 2 to 10,001 edges"),
        (lambda dp: dp.hist("amount", ["a", "b"]), 'the edges must be values of "amount", which is integer'),
    ],
)
def test_what_is_taken_is_said(ask: Callable[[Any], Any], words: str, df: pd.DataFrame) -> None:
    with pytest.raises(dpsql.ProgrammingError, match=words):
        ask(df.dp)


# -- keys --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "groups"),
    [
        (lambda df: df["region"], 2),
        (lambda df: df["kind"], 3),
        (lambda df: [df["region"], "kind"], 6),
        (lambda df: pd.Grouper(key="day", freq="MS"), 24),
        (lambda df: pd.Grouper(key="day", freq="ME"), 24),
        (lambda df: pd.Grouper(key="day", freq="QS"), 8),
        (lambda df: pd.Grouper(key="day", freq="YE"), 2),
        (lambda df: pd.Grouper(key="day", freq="W"), 105),
        (lambda df: [pd.Grouper(key="day", freq="YS"), df["region"]], 4),
        (lambda df: pd.Grouper(key="region"), 2),
    ],
)
def test_keys_as_pandas_names_them(keys: Callable[[pd.DataFrame], Any], groups: int, df: pd.DataFrame) -> None:
    assert len(df.dp.groupby(keys(df)).count(epsilon=1).df()) == groups


@pytest.mark.parametrize(
    ("keys", "hint"),
    [
        (lambda df: df["amount"] // 10, 'write groupby("region")'),  # still called "amount"
        (lambda df: df["kind"].str.upper(), 'write groupby("region")'),
        (lambda df: df["region"][::-1], 'write groupby("region")'),
        (lambda df: df["region"].reset_index(drop=True).set_axis(df.index[::-1]), 'write groupby("region")'),
        (lambda df: df["region"].iloc[:100], 'write groupby("region")'),
        (lambda df: df["region"].cat.rename_categories(["a", "b"]), 'write groupby("region")'),
        (lambda df: df["region"].rename("kind"), 'write groupby("region")'),
        (lambda df: pd.cut(df["amount"], 3), "hist("),
        (lambda df: pd.Grouper(key="day", freq="3D"), "write day, week, month, quarter or year"),
        (lambda df: pd.Grouper(key="day", freq="W-MON"), "write day, week, month, quarter or year"),
        (lambda df: pd.Grouper(key="day", freq="MS", closed="right"), "pd.Grouper(key="),
        (lambda df: pd.Grouper(level=0), "pd.Grouper(key="),
        (lambda df: np.arange(PEOPLE), 'write groupby("region")'),
        (lambda df: [], 'write groupby("region")'),
    ],
)
def test_a_key_that_is_no_column_is_refused(keys: Callable[[pd.DataFrame], Any], hint: str, df: pd.DataFrame) -> None:
    with pytest.raises(dpsql.ProgrammingError) as caught:
        df.dp.groupby(keys(df))
    assert hint in str(caught.value.hint)
    assert SECRET not in str(caught.value)
    assert str(NUMBER) not in str(caught.value)


def test_polars_names_a_column_by_an_expression() -> None:
    made = pl.DataFrame({"u": range(300), "kind": ["x", "y", "z"] * 100})
    made.dp.protect(unit="u", values={"kind": ["x", "y", "z"]}, budget=10)
    assert len(made.dp.group_by(pl.col("kind")).count(epsilon=1).df()) == 3
    with pytest.raises(dpsql.ProgrammingError, match="groupby takes column names, not an Expr"):
        made.dp.group_by(pl.col("kind").str.to_uppercase())


def test_the_note_about_sql_for_bins_is_sql(df: pd.DataFrame) -> None:
    with pytest.raises(dpsql.ProgrammingError) as caught:
        df.dp.groupby(pd.cut(df["amount"], 3))
    sql = str(caught.value.hint).partition('df.dp.sql("')[2].removesuffix('")')
    assert df.dp.explain(sql.replace("AVG(age)", "COUNT(*)"), epsilon=1)
