"""The table of options is the one that users type by, that docs/sql.md shows, and that stages read."""

from __future__ import annotations

import inspect
import re
import typing
from dataclasses import fields
from pathlib import Path

import pytest

import dpsql
from dpsql.options import CLAUSE_OPTIONS, OPTIONS, QueryOption, QueryOptions, QueryRequest

ROOT = Path(__file__).parents[2]
PAGE = (
    (ROOT / "docs" / "sql.md").read_text(encoding="utf-8").partition("## Options of execute")[2].partition("\n## ")[0]
)
ARCHITECTURE = (ROOT / "tests" / "whole" / "test_architecture.py").read_text(encoding="utf-8")


def test_the_page_says_what_each_option_means_and_where_it_is_given() -> None:
    meanings, places = re.findall(r"^\|---.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert re.findall(r"^\| `(\w+)` \|", meanings, re.MULTILINE) == ["parameters", *OPTIONS]
    assert places.splitlines() == [
        f"| `{name}` | {f'`{option.clause}`' if option.clause else ''} | `{option.flag}` | `{option.stage}` |"
        for name, option in OPTIONS.items()
    ]


@pytest.mark.parametrize("option", [*OPTIONS.values(), *CLAUSE_OPTIONS.values()], ids=lambda option: option.name)
def test_an_option_is_a_field_that_its_stage_reads(option: QueryOption) -> None:
    assert option.name in {field.name for field in fields(QueryRequest)}
    parts = re.findall(rf'"(\w+)": "{option.stage}"', ARCHITECTURE)
    files = [ROOT / "dpsql" / "pipeline" / f"{name}.py" for name in (option.stage, *parts)]
    assert any(re.search(rf"request\.{option.name}\b", file.read_text(encoding="utf-8")) for file in files)


@pytest.mark.parametrize("method", [dpsql.Connection.execute, dpsql.Connection.explain, dpsql.Cursor.execute])
def test_editors_complete_the_options(method: typing.Callable[..., object]) -> None:
    options = inspect.signature(method).parameters["options"]
    assert options.kind is options.VAR_KEYWORD
    assert options.annotation == "Unpack[QueryOptions]"
    assert set(typing.get_type_hints(QueryOptions)) == OPTIONS.keys()
    described = inspect.getdoc(QueryOptions) or ""
    assert all(re.search(rf"\b{name}\b", described) for name in OPTIONS)
