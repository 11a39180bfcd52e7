"""docs/mechanisms.md is true: its SQL and Python run, and its plots are those of the benchmark."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import dpsql
from dpsql.demo import save_shop

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "mechanisms.md"
TEXT = PAGE.read_text(encoding="utf-8")
LARGEST_PICTURE = 60_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `dpsql demo --save` writes, which is the page's first command."""
    made = tmp_path_factory.mktemp("mechanisms")
    save_shop(made)
    return made


def test_the_python_runs_as_shown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)
    assert tried > 15
    assert failed == 0


@pytest.mark.parametrize("sql", re.findall(r"^```sql\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL))
def test_the_sql_is_answered(sql: str, folder: Path) -> None:
    shop, schema = folder / "shop.duckdb", ROOT / "schemas" / "shop.yaml"
    with dpsql.connect(shop, schema=schema, budget=100, delta=1e-6, ledger=":memory:") as conn:
        assert conn.execute(sql).fetchall()


def test_the_plots_are_those_of_the_benchmark() -> None:
    shown = set(re.findall(r"\(images/mechanisms_(\w+)\.png\)", TEXT))
    drawn = re.findall(r'^    "(\w+)": \(\1, "', (ROOT / "benchmarks" / "plot_mechanisms.py").read_text(), re.MULTILINE)
    assert shown == set(drawn)
    pictures = [ROOT / "docs" / "images" / f"mechanisms_{name}.png" for name in drawn]
    assert max(picture.stat().st_size for picture in pictures) < LARGEST_PICTURE
