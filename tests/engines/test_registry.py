"""Which engine is asked: ours by what they are given, and those of installed packages for what none of ours opens."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pytest

import dpsql
from dpsql.cli.app import main
from dpsql.engines.duckdb import KIND
from dpsql.engines.registry import GROUP, OURS, kind_of, kinds

ROOT = Path(__file__).parents[2]
SCHEME = "duck://"
SCHEMA: dict[str, Any] = {"tables": {"t": {"unit": "id", "columns": {"id": "integer"}}}}
DUCK = replace(
    KIND,
    name="Duck",
    schemes=(SCHEME,),
    accepts=lambda database: isinstance(database, frozenset),
    open=lambda url, schema: KIND.open(url.removeprefix(SCHEME), schema),
    describe=lambda url: KIND.describe(url.removeprefix(SCHEME)),
    has_own_ledger=False,
    reads_rows=lambda url: False,
    reads_text=lambda url: False,
)
"""A DuckDB that another package opens by URLs of its own."""


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("duck", f"{__name__}:DUCK", GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda self: DUCK)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda *, group: [point] if group == GROUP else [])


@pytest.mark.parametrize(
    ("database", "name"),
    [
        ("postgresql://me@host/shop", "PostgreSQL"),
        ("postgres://me@host/shop", "PostgreSQL"),
        ("sc://host:15002", "Spark"),
        ("shop.duckdb", "DuckDB"),
        (Path("orders.csv"), "DuckDB"),
        (["a.csv", "b.csv"], "DuckDB"),
        ({"t": "t.parquet"}, "DuckDB"),
        (pd.DataFrame({"id": [1]}), "DuckDB"),
        (pl.DataFrame({"id": [1]}), "DuckDB"),
        (duckdb.sql("SELECT 1 AS id"), "DuckDB"),
    ],
)
def test_ours_are_known_by_what_they_are_given(database: object, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other package is asked, nor looked for."""
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: pytest.fail("they are looked for"))
    assert kind_of(database).name == name


def test_nobody_else_is_given_what_one_of_ours_opens(installed: None) -> None:
    assert [kind.name for kind in kinds()] == ["PostgreSQL", "Spark", "DuckDB", "Duck"]
    assert kind_of("shop.duckdb").name == "DuckDB"
    assert kind_of(frozenset()).name == "Duck"
    assert kind_of(object()).name == "DuckDB", "what nobody opens is its to complain of"
    with pytest.raises(dpsql.Error):
        dpsql.connect("other://host", schema=SCHEMA, budget=1, ledger=":memory:")


def test_the_engine_of_another_package(
    installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From `dpsql init` to an answer: all that we ask an engine goes through its kind."""
    monkeypatch.chdir(tmp_path)
    with duckdb.connect("t.db") as raw:
        raw.execute("CREATE TABLE t AS SELECT range AS id FROM range(50)")
    url = f"{SCHEME}t.db"
    with dpsql.connect(url, schema=SCHEMA, budget=1e6, ledger="t.ledger") as connection:
        assert connection.execute("SELECT COUNT(*) FROM t", epsilon=1e5).fetchall() == [(50,)]
    with pytest.raises(dpsql.InterfaceError, match="explicit ledger"):
        dpsql.connect(url, schema=SCHEMA, budget=1)
    account = ["--ledger", "cli.ledger", "--budget", "1"]
    for command in (
        ["init", url, "--out", "t.yaml", "--unit", "id", "--yes"],
        ["check", "t.yaml", url],
        ["query", "SELECT COUNT(*) FROM t", "--db", url, "--schema", "t.yaml", *account],
    ):
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert ended.value.code in (None, 0), capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["certify", "--engine", url])
    assert "no other engine can be certified" in capsys.readouterr().err


def test_a_driver_that_is_missing_is_named() -> None:
    with pytest.raises(dpsql.InterfaceError, match="the driver for Duck is not installed") as caught:
        replace(DUCK, driver="no_such_package").check_driver()
    assert caught.value.hint == "install no_such_package"


@pytest.mark.parametrize("module", OURS)
def test_each_folder_has_the_same_files(module: str) -> None:
    files = {path.stem for path in (ROOT / module.replace(".", "/")).glob("*.py")}
    assert {"__init__", "engine", "catalog", "render"} <= files
    assert ("scalars" in files) == (module != OURS[-1])


def test_nothing_else_asks_which_engine_it_is() -> None:
    """Outside their folders no URL of an engine is looked at, and no module of a server is imported."""
    for path in (ROOT / "dpsql").rglob("*.py"):
        if ROOT / "dpsql" / "engines" in path.parents or "ledger" in path.parts:
            continue
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"engines\.(postgresql|spark)|startswith\(.*://|is_spark", text), path
