"""Every option of execute() means the same wherever it is given; nothing else is an option."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterator
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

import dpsql
from dpsql.cli.app import main
from dpsql.cli.shell import Shell
from dpsql.options import CLAUSE_OPTIONS, OPTIONS, QueryOption, QueryOptions, QueryRequest, read_options
from dpsql.session import Session

SQL = "SELECT COUNT(*) FROM t"
# option -> the text that a front end is given, and the value that Python is given
VALUES: dict[str, tuple[str, object]] = {
    "epsilon": ("1/3", Fraction(1, 3)),
    "delta": ("1e-7", 1e-7),
    "accuracy": ("5%", "5%"),
    "mechanism": ("gaussian", "gaussian"),
    "propose": ("20", 20),
    "max_groups": ("4", 4),
    "max_rows_per_group": ("auto", "auto"),
    "bounds": ("auto", "auto"),
    "bounding": ("l2_clip", "l2_clip"),
    "weights": ("n=2,total=0.5", {"n": 2, "total": 0.5}),
    "diagnose": ("", True),
    "empty_groups": ("hide", "hide"),
    "fresh": ("", True),
}
Asked = Callable[[], dict[str, Any]]


@pytest.fixture
def connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dpsql.Connection]:
    pd.DataFrame({"id": range(10)}).to_csv(tmp_path / "t.csv", index=False)
    monkeypatch.chdir(tmp_path)
    Path("t.yaml").write_text("tables:\n  t:\n    unit: id\n    columns: {id: integer}\n")
    with dpsql.connect("t.csv", schema="t.yaml", budget=1, delta=1e-6, ledger="t.ledger") as opened:
        yield opened


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The fields of the request that the last question came to. It is not asked."""
    found: list[dict[str, Any]] = []

    def refuse(session: Session, sql: str, parameters: object, options: dict[str, object]) -> None:
        found.append(read_options(options, Fraction(1, 10**6)))
        raise dpsql.Unsupported("enough")

    monkeypatch.setattr(Session, "execute", refuse)
    return lambda: found[-1]


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_means_the_same_everywhere(name: str, connection: dpsql.Connection, asked: Asked) -> None:
    text, value = VALUES[name]
    meant = read_options({name: value}, Fraction(1, 10**6))
    assert meant.keys() == {name}

    given = [OPTIONS[name].flag, text] if text else [OPTIONS[name].flag]
    with pytest.raises(SystemExit):
        main(["query", SQL, "--db", "t.csv", "--schema", "t.yaml", "--ledger", "t.ledger", *given])
    assert asked() == meant

    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        pipe.send_text(f".{name} {text}\r{SQL};\r\x04")
        Shell(connection).run()
    assert asked() == meant

    shell = InteractiveShell()
    shell.run_line_magic("load_ext", "dpsql")
    shell.user_ns["conn"] = connection
    shell.run_cell(f"%dpsql connect conn\n%dpsql --{name.replace('_', '-')} {text} {SQL}")
    assert asked() == meant


def test_an_option_of_the_shell_has_its_default_again(connection: dpsql.Connection, asked: Asked) -> None:
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        pipe.send_text(f".fresh\r.max_groups 3\r.max_groups\r.fresh\r.fresh no\r.weights n\r{SQL};\r\x04")
        Shell(connection).run()
    assert asked() == {}


def test_what_is_no_option_is_refused_with_the_nearest(connection: dpsql.Connection) -> None:
    with pytest.raises(dpsql.ProgrammingError, match="no option epsilom=") as caught:
        connection.execute(SQL, epsilom=1)  # type: ignore[call-arg]
    assert caught.value.hint == 'did you mean "epsilon"?'
    with pytest.raises(dpsql.ProgrammingError, match="no option budget="):
        connection.explain(SQL, budget=1)  # type: ignore[call-arg]


def test_the_older_name_of_l2_clipping_is_understood_and_reported_where_it_stands() -> None:
    with pytest.warns(DeprecationWarning, match='now called bounding="l2_clip"') as caught:
        assert read_options({"bounding": "scale"}, Fraction(0)) == {"bounding": "l2_clip"}
    assert [warning.filename for warning in caught] == [__file__]


def test_results_have_public_names() -> None:
    for name in ("Budget", "Explanation", "Plan", "Promise", "QueryOptions", "Receipt", "Result", "Trace"):
        assert getattr(dpsql, name).__name__ == name
        assert name in dpsql.__all__
    with pytest.raises(AttributeError):
        dpsql.Answers  # noqa: B018


# -- the table of options is the one that docs/sql.md shows, and that stages read --------------------------------------

ROOT = Path(__file__).parents[1]
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
