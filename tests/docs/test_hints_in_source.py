"""Every hint in the source is tried: commands, options, parameters, pages and schema fields exist, and its SQL runs.

What is filled in when a message is made stands as `x`. tests/sql/test_hints.py applies hints to questions, and compares
the answers.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest
import typer

import dpsql
from dpsql import local
from dpsql.cli.app import app
from dpsql.frames.accessor import PrivateFrame
from dpsql.options import QueryOptions
from dpsql.schema.model import Schema

ROOT = Path(dpsql.__file__).parent
DOCS = ROOT.parent / "docs"
SQL_CALL = re.compile(r"(?<![\w.])[A-Z][A-Z_0-9]+\(")


def hints() -> Iterator[str]:
    for path in sorted(ROOT.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        named = {
            target.id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            for keyword in node.keywords if isinstance(node, ast.Call) else ():
                if keyword.arg in ("hint", "way_out", "instead"):
                    yield from texts(keyword.value, named)


def texts(node: ast.expr, named: dict[str, ast.expr]) -> Iterator[str]:
    """The texts that an expression can be; of others what is written in it."""
    match node:
        case ast.Constant(str(text)):
            yield text
        case ast.Name(name) if name in named:
            yield from texts(named[name], {})
        case ast.JoinedStr(parts):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in parts)
        case ast.IfExp(_, body, otherwise):
            yield from texts(body, named)
            yield from texts(otherwise, named)
        case ast.BinOp(left, ast.Add(), right):
            yield from (first + second for first in texts(left, named) for second in texts(right, named))
        case ast.BoolOp(_, values):
            for value in values:
                yield from texts(value, named)


HINTS = sorted(set(hints()))
COMMAND = re.compile(r"(?<!%)dpsql ([a-z][a-z-]*(?: [^;,`]*?)?)(?=  |;|,|`|$)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
PARAMETER = re.compile(r"(?<![\w.])([a-z_]{2,})=(?![=>])")
FIELD = re.compile(r"(?<![\w'])([a-z_]+): (?=[\[{]|true\b|false\b|auto\b|trusted\b)")
PAGE = re.compile(r"\bdocs/\w+\.md")
SPOKEN = ("needs", "never", "version")
"""Words behind the name of dpsql that are no commands."""


def found(pattern: re.Pattern[str]) -> list[str]:
    return sorted({text.strip() for hint in HINTS for text in pattern.findall(hint)})


COMMANDS = [command for command in found(COMMAND) if command.split()[0] not in (*SPOKEN, "connect")]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_exist_with_their_options(command: str) -> None:
    below: Any = typer.main.get_command(app)
    words = command.split()
    while hasattr(below, "commands"):
        assert words[0] in below.commands, command
        below = below.commands[words.pop(0)]
    known = {option for parameter in below.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def options_of(command: Any) -> Iterator[str]:
    for parameter in command.params:
        yield from parameter.opts
    for below in getattr(command, "commands", {}).values():
        yield from options_of(below)


def test_options_of_the_command_line_exist() -> None:
    known = {*options_of(typer.main.get_command(app)), "--as"}  # of %%dpsql
    assert set(found(OPTION)) <= known


def test_parameters_exist() -> None:
    """Of dpsql's functions, of the options of a question, and of what pandas calls its own."""
    classes = [PrivateFrame, dpsql.Connection, dpsql.Cursor]
    functions = [dpsql.connect, *(value for name in local.__all__ if callable(value := vars(local)[name]))]
    functions += [one for kind in classes for _, one in inspect.getmembers(kind, inspect.isfunction)]
    known = {name for one in functions for name in inspect.signature(one).parameters}
    pandas = vars(pd.Grouper(key="day", freq="MS"))
    assert set(found(PARAMETER)) - known - set(QueryOptions.__annotations__) - set(pandas) == set()


def test_pages_and_fields_of_the_schema_exist() -> None:
    described = json.dumps(Schema.model_json_schema())
    assert [name for name in found(FIELD) if f'"{name}"' not in described] == ["orders"], "a table of an example"
    assert [page for page in found(PAGE) if not (DOCS.parent / page).exists()] == []


# -- SQL ---------------------------------------------------------------------------------------------------------------

COLUMNS: dict[str, Any] = {
    **{name: {"type": "double", "bounds": [1, 100], "nullable": True} for name in ("x", "y", "age", "amount")},
    "text": "text",
    "day": {"type": "date", "bounds": ["2024-01-01", "2024-12-31"], "nullable": True},
    "seen": {"type": "timestamp", "bounds": ["2024-01-01", "2024-12-31"], "nullable": True},
}
TABLES = {
    "t": {"unit": "id", "unique": True, "columns": {"id": "integer", **COLUMNS}},
    "words": {"unit": "id", "unique": True, "columns": {"id": "integer", "x": "text"}},
    "that_table": {"public": True, "columns": {"x": "double"}},
}
FORMS = [
    "SELECT {} FROM t AS v",
    "SELECT {} FROM words AS v",
    "SELECT COUNT(*) FROM t WHERE {} IS NOT NULL",
    "SELECT COUNT(*) FROM t WHERE {} > INTERVAL 1 YEAR",
    "SELECT id, LAST(n) FROM (SELECT id, {} OVER (PARTITION BY id ORDER BY day) AS n FROM t) GROUP BY id",
    "SELECT COUNT(n) FROM (SELECT {} OVER (PARTITION BY id ORDER BY day) AS n FROM t)",
    "SELECT WITH DIFFERENTIAL_PRIVACY {} COUNT(*) FROM t",
    "SELECT COUNT(CAST(x AS {})) FROM t",
    "SELECT COUNT(*) FROM t WHERE x {}",
]
"""Where a call can stand."""


def calls(hint: str) -> Iterator[str]:
    """COUNT_IF(x) and IN (1, 2), up to the bracket that closes them."""
    for start in SQL_CALL.finditer(hint):
        depth = 0
        for end in range(start.end() - 1, len(hint)):
            depth += {"(": 1, ")": -1}.get(hint[end], 0)
            if not depth:
                yield hint[start.start() : end + 1]
                break


CALLS = sorted({call for hint in HINTS for call in calls(hint) if "SELECT " not in call and "..." not in call})
FILLED = {
    "DECIMAL(p, s)": "DECIMAL(18, 2)",
    "SUM(x, x => (0, 500))": "SUM(x, contribution_bounds_per_row => (0, 500))",
    "LEFT(text, x)": "LEFT(text, 3)",
    "COUNT_IF(x)": "COUNT_IF(x > 2)",
}
"""What stands for a number or a name."""


@pytest.fixture(scope="module")
def session() -> Iterator[dpsql.Connection]:
    with duckdb.connect() as raw:
        types = ", ".join(f"{name} DOUBLE" for name in ("x", "y", "age", "amount"))
        raw.execute(f"CREATE TABLE t (id BIGINT, {types}, text VARCHAR, day DATE, seen TIMESTAMP)")
        raw.execute("INSERT INTO t SELECT i, 2, 3, NULL, 5, 'a', '2024-02-03', '2024-02-03 04:05' FROM range(50) r(i)")
        raw.execute("CREATE TABLE words AS SELECT i AS id, 'a' AS x FROM range(50) r(i)")
        raw.execute("CREATE TABLE that_table AS SELECT 2.0::DOUBLE AS x")
        with dpsql.connect(raw, schema={"tables": TABLES}, budget=1000, delta=1e-4) as connection:
            yield connection


@pytest.mark.parametrize("call", CALLS)
def test_calls_in_sql_run(call: str, session: dpsql.Connection) -> None:
    said = []
    for form in FORMS:
        try:
            session.execute(form.format(FILLED.get(call, call)), **({} if "epsilon" in call else {"epsilon": 1}))
        except dpsql.Error as error:
            said.append(str(error))
        else:
            return
    raise AssertionError("\n".join(said))


def test_queries_run(session: dpsql.Connection) -> None:
    for query in ("SELECT COUNT(*) FROM a_table", "SELECT COUNT(*) FROM customers"):
        assert any(query in hint for hint in HINTS)
        session.execute(re.sub(r"\w+$", "t", query), epsilon=1)
    assert any("IN (SELECT x FROM that_table)" in hint for hint in HINTS)
    session.execute("SELECT COUNT(*) FROM t WHERE x IN (SELECT x FROM that_table)", epsilon=1)
