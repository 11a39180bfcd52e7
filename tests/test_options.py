"""Every option of execute() means the same wherever it is given; nothing else is an option."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from dpsql.options import OPTIONS, read_options
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
