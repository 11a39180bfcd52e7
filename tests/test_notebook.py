"""%dpsql in a real IPython shell, as somebody would type it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest
import yaml
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell

import dpsql
from dpsql.demo import save_shop
from dpsql.explain import Explanation
from dpsql.promise import Promise

SCHEMA = {
    "tables": {
        "people": {
            "unit": "id",
            "unique": True,
            "columns": {"id": "integer", "town": {"type": "text", "values": ["here", "there"]}},
        }
    }
}
BY_TOWN = "SELECT town, COUNT(*) AS n FROM people GROUP BY town"


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("notebook") / "people.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute("CREATE TABLE people (id INTEGER, town VARCHAR)")
        database.execute("INSERT INTO people SELECT i, if(i % 4 = 0, 'here', 'there') FROM range(1000) AS r(i)")
    return path


@pytest.fixture
def shell(ipython: InteractiveShell, people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InteractiveShell:
    """A fresh notebook in a directory with people.duckdb and people.yaml."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(people, "people.duckdb")
    Path("people.yaml").write_text(yaml.safe_dump(SCHEMA))
    ipython.reset(new_session=True)
    dpsql.load_ipython_extension(ipython)
    return ipython


@pytest.fixture
def connected(shell: InteractiveShell) -> InteractiveShell:
    run(shell, "%dpsql connect people.duckdb --schema people.yaml --budget 10 --ledger :memory: --as conn")
    return shell


def run(shell: InteractiveShell, cell: str) -> Any:
    ran: ExecutionResult = shell.run_cell(cell)
    ran.raise_error()
    return ran.result


def spent(shell: InteractiveShell) -> float:
    conn: dpsql.Connection = shell.user_ns["conn"]
    return conn.budget.spent.epsilon


def test_the_extension_is_the_package(shell: InteractiveShell) -> None:
    run(shell, "%reload_ext dpsql")
    assert {"dpsql"} <= shell.magics_manager.magics["cell"].keys() & shell.magics_manager.magics["line"].keys()


def test_a_cell_is_a_question(connected: InteractiveShell) -> None:
    answer = run(connected, f"%%dpsql --epsilon 2 --as result\n{BY_TOWN}\nORDER BY n DESC")
    assert answer is connected.user_ns["result"]
    assert [town for town, _ in answer.fetchall()] == ["there", "here"]
    assert answer.receipt.epsilon == 2.0
    assert "± " in answer._repr_html_()


def test_a_line_is_a_question(connected: InteractiveShell) -> None:
    connected.user_ns["x"] = "replaced"
    answer = run(connected, "%dpsql --epsilon=5 --fresh SELECT COUNT(*) AS n, '{x}  $x' AS words FROM people")
    ((count, words),) = answer.fetchall()
    assert count == pytest.approx(1000, abs=20)
    assert words == "{x}  $x", "what is written in SQL stays as it is"


def test_options_are_those_of_execute(connected: InteractiveShell) -> None:
    answer = run(connected, f"%%dpsql --epsilon 1 --mechanism laplace --max-groups 1\n{BY_TOWN}")
    assert answer.receipt.mechanism == "laplace"


def test_explain_is_free(connected: InteractiveShell) -> None:
    shown = run(connected, f"%%dpsql --explain --epsilon 2\n{BY_TOWN}")
    assert isinstance(shown, Explanation)
    assert spent(connected) == 0
    assert run(connected, f"%dpsql EXPLAIN {BY_TOWN}")._repr_html_().startswith('<div class="dpsql">')
    assert spent(connected) == 0


def test_the_budget_and_what_it_means(connected: InteractiveShell) -> None:
    run(connected, f"%dpsql --epsilon 1 {BY_TOWN}")
    assert run(connected, "%dpsql budget").queries == 1
    assert isinstance(run(connected, "%dpsql promise"), Promise)


def test_connecting_tells_what_is_left(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    run(shell, "%dpsql connect people.duckdb --schema people.yaml --budget 3")
    run(shell, f"%dpsql --epsilon 1 {BY_TOWN}")
    run(shell, "%dpsql connect people.duckdb --schema people.yaml")
    assert "epsilon 1 of 3 spent" in capsys.readouterr().out, "the ledger beside the file was found again"


def test_variables_are_databases_and_schemas(shell: InteractiveShell) -> None:
    shell.user_ns["frame"] = pd.DataFrame({"id": range(100), "town": ["here", "there"] * 50})
    shell.user_ns["declared"] = SCHEMA
    run(shell, "%dpsql connect frame --schema declared --budget 10 --as conn")
    run(shell, f"%dpsql --epsilon 5 {BY_TOWN}")
    assert spent(shell) == 5
    shell.user_ns["tables"] = {"people": shell.user_ns["frame"]}
    run(shell, "%dpsql connect tables --schema declared --budget 7")
    assert run(shell, "%dpsql budget").epsilon == 7
    run(shell, "%dpsql connect conn")
    assert run(shell, "%dpsql budget").epsilon == 10, "an open connection is used as it is"


@pytest.mark.parametrize(
    ("cell", "name", "words"),
    [
        ("%%dpsql\nSELECT nonsense FROM people", "UnknownName", "^^^^^^^^"),
        (f"%dpsql --epsilon 11 {BY_TOWN}", "BudgetExhausted", "use epsilon=10 or less"),
        (f"%dpsql --epsilom 1 {BY_TOWN}", "ProgrammingError", "there is no option --epsilom\nhint: did you mean"),
        (f"%dpsql --as 1st {BY_TOWN}", "ProgrammingError", "not the name of a variable"),
        ("%dpsql --epsilon", "ProgrammingError", "--epsilon needs a value"),
        ("%dpsql", "ProgrammingError", "there is no query"),
        ("%dpsql connect", "ProgrammingError", "connect needs a database"),
        ("%dpsql connect people.duckdb --budget 1", "ProgrammingError", "connect needs a schema"),
        ("%dpsql connect people.duckdb people.yaml", "ProgrammingError", "does not understand 'people.yaml'"),
        ("%dpsql connect people.duckdb --schema none.yaml", "SchemaError", "none.yaml"),
    ],
)
def test_errors_are_short_stop_the_cell_and_cost_nothing(
    connected: InteractiveShell, capsys: pytest.CaptureFixture[str], cell: str, name: str, words: str
) -> None:
    capsys.readouterr()
    ran = connected.run_cell(cell)
    captured = capsys.readouterr()
    shown = (captured.out + captured.err).strip()
    assert isinstance(ran.error_in_exec, dpsql.Error)
    assert shown.startswith(f"{name}: ")
    assert words in shown
    assert "Traceback" not in shown
    assert "notebook.py" not in shown
    assert spent(connected) == 0


IN_JUPYTER = """
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
InteractiveShell.instance().config["IPKernelApp"] = Config()  # what the engine takes for Jupyter, when it is loaded
import dpsql
conn = dpsql.connect("people.duckdb", schema="people.yaml", budget=1)
print(conn.execute("SELECT COUNT(*) FROM people").rowcount)
"""


def test_jupyter_needs_no_widgets(shell: InteractiveShell) -> None:
    """DuckDB refuses to switch its progress bar off where ipywidgets are missing."""
    ran = subprocess.run([sys.executable, "-c", IN_JUPYTER], capture_output=True, text=True, check=True)
    assert ran.stdout == "1\n"


def test_without_a_connection(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(shell.run_cell(f"%dpsql {BY_TOWN}").error_in_exec, dpsql.InterfaceError)
    assert "%dpsql connect shop.duckdb" in capsys.readouterr().out


def test_the_page_can_be_followed(shell: InteractiveShell) -> None:
    """docs/notebooks.md, cell by cell; a line that begins with % is one of its own."""
    page = (Path(__file__).parents[1] / "docs" / "notebooks.md").read_text(encoding="utf-8")
    save_shop(Path())
    blocks = re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    cells = [cell for block in blocks for cell in ([block] if block.startswith("%%") else block.splitlines())]
    assert len(cells) == 7
    for cell in cells:
        asked = shell.run_cell(cell)
        assert asked.success, cell
