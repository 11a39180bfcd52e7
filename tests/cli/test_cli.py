"""The dpsql command, as a person or a program would type it."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest
import typer
import yaml
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

import dpsql
from dpsql.cli import output
from dpsql.cli.app import app, main
from dpsql.cli.shell import Shell, SqlCompleter
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.owner.check import check_copied, inspect_rows
from dpsql.schema import load_schema

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"
SCHEMA = {
    "dataset": "people",
    "tables": {
        "people": {
            "unit": "id",
            "unique": True,
            "columns": {
                "id": "integer",
                "town": {"type": "text", "values": ["Oslo", "Rome"]},
                "age": {"type": "integer", "bounds": [0, 120]},
                "weight": "double",
            },
        }
    },
}
BY_TOWN = "SELECT town, COUNT(*) AS n, AVG(age) AS mean FROM people GROUP BY town ORDER BY town"


class Ran(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def ran(*arguments: object) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        return Ran(int(ended.value.code or 0), *capsys.readouterr())

    return ran


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """people.duckdb and people.yaml, in the working directory and named by the environment."""
    with duckdb.connect(str(tmp_path / "people.duckdb")) as database:
        database.execute(
            "CREATE TABLE people AS SELECT i::INTEGER AS id, ['Oslo', 'Rome'][1 + i % 2] AS town, "
            "(i % 90)::INTEGER AS age, i / 7 AS weight FROM range(2000) AS r(i)"
        )
    (tmp_path / "people.yaml").write_text(yaml.safe_dump(SCHEMA, sort_keys=False))
    monkeypatch.chdir(tmp_path)
    for name, value in (("DB", "people.duckdb"), ("SCHEMA", "people.yaml"), ("BUDGET", "2"), ("DELTA", "1e-6")):
        monkeypatch.setenv(f"DPSQL_{name}", value)
    return tmp_path


@pytest.fixture
def connection(folder: Path) -> Iterator[dpsql.Connection]:
    with dpsql.connect("people.duckdb", schema="people.yaml", budget=2, delta=1e-6) as opened:
        yield opened


# -- query and explain -------------------------------------------------------------------------------------------------


def test_an_answer_has_its_errors_and_its_receipt(run: Run, folder: Path) -> None:
    ran = run("query", BY_TOWN, "--epsilon", 0.5)
    assert ran.code == 0
    head, oslo, rome, receipt = ran.out.splitlines()
    assert head.split() == ["town", "n", "mean"]
    assert oslo.split()[0] == "Oslo"
    assert rome.count("±") == 2
    assert receipt.startswith("cost: epsilon 0.5")
    assert receipt.endswith("of 2")
    assert ran.err == ""


def test_an_answer_as_json(run: Run, folder: Path) -> None:
    document = json.loads(run("query", BY_TOWN, "--epsilon", 0.5, "--json").out)
    assert [column["name"] for column in document["columns"]] == ["town", "n", "mean"]
    (town, count, _), _ = document["rows"]
    key, (low, high), _ = document["intervals"][0]
    assert (town, key) == ("Oslo", None)
    assert low < count < high
    assert document["receipt"]["epsilon"] == 0.5
    assert document["receipt"]["recalled"] is False
    assert 0 < document["remaining"]["epsilon"] < 2


def test_an_answer_as_csv(run: Run, folder: Path) -> None:
    head, *rows = csv.reader(io.StringIO(run("query", BY_TOWN, "--csv").out))
    assert head == ["town", "n", "n_low", "n_high", "mean", "mean_low", "mean_high"]
    assert [row[0] for row in rows] == ["Oslo", "Rome"]
    assert all(float(row[2]) < float(row[1]) < float(row[3]) for row in rows)


def test_null_and_infinity_in_every_form(run: Run, folder: Path) -> None:
    sql = "SELECT town, NULL AS nothing, AVG(age) AS a FROM people WHERE age > 119 GROUP BY town"
    document = json.loads(run("query", sql, "--json").out)
    assert document["rows"][0][1] is None
    assert [row[1] for row in list(csv.reader(io.StringIO(run("query", sql, "--csv").out)))[1:]] == ["", ""]
    assert "NULL" in run("query", sql).out


def test_the_same_question_again_is_free(run: Run, folder: Path) -> None:
    first, second = (run("query", BY_TOWN) for _ in range(2))
    assert "free: asked on" in second.out
    assert first.out.splitlines()[:-1] == second.out.splitlines()[:-1]
    assert "cost: epsilon" in run("query", BY_TOWN, "--fresh").out


def test_a_question_from_stdin(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT COUNT(*) AS n\nFROM people"))
    assert run("query", "-").out.split()[0] == "n"


@pytest.mark.parametrize("arguments", [("explain", BY_TOWN), ("query", f"EXPLAIN {BY_TOWN}")])
def test_explain_is_free(arguments: tuple[str, str], run: Run, folder: Path) -> None:
    assert run(*arguments).out.startswith("cost ")
    assert json.loads(run(*arguments, "--epsilon", 0.5, "--json").out)["cost"]["epsilon"] == 0.5
    assert next(csv.reader(io.StringIO(run(*arguments, "--csv").out))) == ["what", "how"]
    assert json.loads(run("budget", "--json").out)["spent"]["epsilon"] == 0


def test_options_reach_the_question(run: Run, folder: Path) -> None:
    explained = json.loads(run("explain", BY_TOWN, "--mechanism", "laplace", "--json").out)
    assert explained["mechanism"] == "laplace"


# -- errors ------------------------------------------------------------------------------------------------------------


def test_errors_have_a_caret_and_a_hint(run: Run, folder: Path) -> None:
    ran = run("query", "SELECT COUNT(*) FROM peopel")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.splitlines() == [
        'UnknownName: there is no table "peopel"',
        "LINE 1: SELECT COUNT(*) FROM peopel",
        "                             ^^^^^^",
        'hint: did you mean "people"?',
    ]


def test_errors_as_json(run: Run, folder: Path) -> None:
    ran = run("query", "SELECT COUNT(*) FROM peopel", "--json")
    assert (ran.code, ran.out) == (1, "")
    assert json.loads(ran.err) == {
        "error": "UnknownName",
        "problem": 'there is no table "peopel"',
        "hint": 'did you mean "people"?',
        "line": 1,
        "column": 22,
    }


def test_too_much_epsilon(run: Run, folder: Path) -> None:
    ran = run("query", BY_TOWN, "--epsilon", 50)
    assert ran.code == 3
    assert "hint: use --epsilon 2 or less" in ran.err
    known = json.loads(run("query", BY_TOWN, "--epsilon", 50, "--json").err)
    assert (known["requested"], known["remaining"]) == (50, 2)


def test_what_the_hint_says_can_be_asked(run: Run, folder: Path) -> None:
    """Rounded up, it would be refused again."""
    run("query", BY_TOWN, "--epsilon", 0.7)
    hint = run("query", BY_TOWN, "--epsilon", 50).err.splitlines()[-1]
    assert run("query", "SELECT COUNT(*) FROM people", "--epsilon", hint.split()[3]).code == 0


def test_a_failure_after_the_charge_has_a_code_of_its_own(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise duckdb.Error("alice's row is odd")

    monkeypatch.setattr("dpsql.engines.duckdb.engine.DuckDBEngine.run", fail)
    ran = run("query", BY_TOWN)
    assert ran.code == 4
    assert "alice" not in ran.err


MISTAKES = {
    "no budget": (("query", BY_TOWN), {"DPSQL_BUDGET": None}, 1, "--budget 1.0 --delta 1e-6"),
    "no bounds": (("query", "SELECT SUM(weight) FROM people"), {}, 1, "bounds: [0, 500]"),
    "no such column": (("query", "SELECT AVG(aeg) FROM people"), {}, 1, 'did you mean "age"?'),
    "no such file": (("query", BY_TOWN), {"DPSQL_DB": "poeple.duckdb"}, 1, "there is no database poeple.duckdb"),
    "no such CSV file": (("query", BY_TOWN), {"DPSQL_DB": "poeple.csv"}, 1, "there is no file "),
    "no such schema": (("query", BY_TOWN), {"DPSQL_SCHEMA": "no.yaml"}, 1, "no such file"),
    "a schema as data": (("query", BY_TOWN), {"DPSQL_DB": "people.yaml"}, 1, "people.yaml is apparently a schema"),
    "data as a schema": (("query", BY_TOWN), {"DPSQL_SCHEMA": "people.duckdb"}, 1, "people.duckdb is data"),
    "no question": (("query", "people.duckdb"), {}, 1, "this is not a query"),
    "no data named": (("query", BY_TOWN), {"DPSQL_DB": None}, 2, "--db"),
    "no number": (("query", BY_TOWN, "--epsilon", "much"), {}, 2, "Invalid value for '--epsilon'"),
    "no ledger": (("budget",), {}, 1, "there is no ledger people.duckdb.ledger"),
    "no account named": (("budget",), {"DPSQL_DB": None}, 2, "name the database or its ledger"),
    "no such command": (("ask",), {}, 2, "No such command"),
    "no terminal": (("shell",), {}, 2, "dpsql query - < file.sql"),
}


@pytest.mark.parametrize(("arguments", "variables", "code", "said"), MISTAKES.values(), ids=MISTAKES)
def test_every_mistake_says_what_to_do(
    arguments: tuple[str, ...],
    variables: dict[str, str | None],
    code: int,
    said: str,
    run: Run,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)
    ran = run(*arguments)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err
    assert "Traceback" not in ran.err


FILES = {
    "a spreadsheet": ("visits.xlsx", "PK", "save the sheet as a CSV file"),
    "an empty file": ("visits.csv", "", "visits.csv is empty"),
    "another delimiter": ("visits.csv", "id;day\n1;2024-05-03\n", 'csv: {delimiter: ";"}'),
    "other dates": ("visits.csv", "id,day\n1,03.05.2024\n", 'csv: {date_format: "%d.%m.%Y"}  in'),
}


@pytest.mark.parametrize(("name", "text", "said"), FILES.values(), ids=FILES)
def test_every_file_that_does_not_fit_says_why(
    name: str, text: str, said: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(text)
    Path("visits.yaml").write_text("tables: {visits: {unit: id, columns: {id: integer, day: date}}}")
    ran = run("check", "visits.yaml", name)
    assert ran.code == 1
    assert said in ran.err


def test_what_is_declared_is_listed_for_free(run: Run, folder: Path) -> None:
    assert run("query", "SHOW TABLES", "--csv").out.splitlines()[0] == "table,person,counts,columns"
    described = run("query", "DESCRIBE people")
    assert described.out.split()[:3] == ["column", "type", "declared"]
    assert "identifies the person" in described.out
    assert json.loads(run("budget", "--json").out)["queries"] == 0


def test_the_version(run: Run) -> None:
    assert run("--version").out == f"dpsql {version('dpsql')}\n"


def test_the_shop_is_saved_once(run: Run, tmp_path: Path) -> None:
    assert run("demo", "--save", str(tmp_path)).out.startswith("wrote ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shop.duckdb", "shop.yaml"]
    assert run("check", str(tmp_path / "shop.yaml"), str(tmp_path / "shop.duckdb")).code == 0
    assert run("demo", "--save", str(tmp_path)).code == 1


def test_what_the_system_refuses_is_said_without_a_traceback(
    run: Run, csv_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = run("init", "visits.csv", "--unit", "person", "--yes", "--out", "missing/visits.yaml")
    assert missing.code == 1
    assert missing.err == "OperationalError: there is no folder missing\nhint: create it, or leave out --out\n"
    (csv_folder / "file").write_text("no folder")
    assert "file: file exists" in run("demo", "--save", "file").err
    with monkeypatch.context() as denied:
        denied.setattr("os.access", lambda path, mode: str(path).endswith(".yaml"))
        init = run("init", "visits.csv", "--unit", "person", "--yes")
        assert init.code == 1
        assert "visits.csv may not be read" in init.err
        assert "visits.csv may not be read" in run("check", _schema(csv_folder), "visits.csv").err
    with monkeypatch.context() as denied:
        denied.setattr("os.access", lambda path, mode: mode == os.R_OK)
        init = run("init", "visits.csv", "--unit", "person", "--yes", "--json")
        assert init.code == 1
        assert json.loads(init.err)["problem"] == "visits.yaml cannot be written: nothing may be written in its folder"
    with monkeypatch.context() as denied:
        denied.setattr("pathlib.Path.is_file", _denied)
        assert "visits.csv may not be read" in run("init", "visits.csv", "--unit", "person", "--yes").err
    with monkeypatch.context() as denied:
        denied.setattr("pathlib.Path.write_text", _denied)
        init = run("init", "visits.csv", "--unit", "person", "--yes")
        assert init.code == 1
        assert init.err.startswith("OperationalError: visits.yaml: permission denied\nhint: check that the path")
    assert not (csv_folder / "visits.yaml").exists()
    asked = (
        "query",
        "SELECT COUNT(*) FROM visits",
        "--db",
        "visits.csv",
        "--schema",
        _schema(csv_folder),
        "--budget",
        1,
    )
    ledger = run(*asked, "--ledger", "missing/visits.ledger")
    assert (ledger.code, ledger.err.splitlines()[0]) == (
        1,
        "LedgerError: the ledger missing/visits.ledger cannot be opened",
    )


def _schema(folder: Path) -> Path:
    path = folder / "public.yaml"
    path.write_text("dataset: d\ntables: {visits: {unit: person, columns: {person: text, age: integer}}}\n")
    return path


def _denied(path: Path, *_: object, **__: object) -> Any:
    raise PermissionError(errno.EACCES, "Permission denied", str(path))


def _interrupted(*_: object, **__: object) -> Any:
    raise RuntimeError("Query interrupted")  # as DuckDB says it


def test_an_interrupt_while_a_file_is_read_charges_nothing(
    run: Run, csv_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = _schema(csv_folder)
    asked = ("query", "SELECT COUNT(*) FROM visits", "--db", "visits.csv", "--schema", schema, "--budget", 1)
    for place, command in (
        ("sources._copy_csv", ("check", schema, "visits.csv")),
        ("sources._copy_csv", ("check", schema, "visits.csv", "--data")),
        ("sources._copy_csv", asked),
        ("catalog._describe_text", ("init", "visits.csv", "--unit", "person", "--yes")),
    ):
        with monkeypatch.context() as stopped:
            stopped.setattr(f"dpsql.engines.duckdb.{place}", _interrupted)
            ran = run(*command)
        assert (ran.code, ran.out, ran.err) == (130, "", "Interrupted.\n"), command
    with monkeypatch.context() as stopped:
        stopped.setattr("dpsql.engines.duckdb.sources._copy_csv", _interrupted)
        with pytest.raises(KeyboardInterrupt) as caught:
            dpsql.connect("visits.csv", schema=schema, budget=1)
        assert caught.value.__cause__ is None


def test_an_interrupt_after_the_charge_says_that_it_stands(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(DuckDBEngine, "run", stop)
    ran = run("query", BY_TOWN, "--epsilon", 0.1)
    assert (ran.code, ran.err) == (130, "Interrupted. The charge stands: see dpsql budget\n")


# -- what stands on a terminal -----------------------------------------------------------------------------------------


def test_control_characters_stay_harmless(run: Run, folder: Path) -> None:
    ran = run("query", 'SELECT COUNT(*) AS "a\x1b[2J", \'[red]x\x1b[2J\ny\' AS "[b]" FROM people')
    assert "\x1b" not in ran.out
    assert len(ran.out.splitlines()) == 3
    assert "[red]x\\x1b[2J\\ny" in ran.out


def test_a_long_wait_is_seen_on_a_terminal_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Timer:
        """Its time is up when `end` is called."""

        def __init__(self, seconds: float, end: Callable[[], None]) -> None:
            assert seconds == output.PATIENCE
            self.end = end
            timers.append(self)

        def start(self) -> None: ...
        def cancel(self) -> None: ...
        def join(self) -> None: ...

    def wait(*, long: bool) -> str:
        timers.clear()
        with output.waiting("asking"):
            for timer in timers if long else ():
                timer.end()
        shown = capsys.readouterr()
        assert shown.out == ""
        return shown.err

    timers: list[Timer] = []
    monkeypatch.setattr("threading.Timer", Timer)
    assert wait(long=True) == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    assert wait(long=False) == ""
    assert "asking" in wait(long=True)


# -- init and check ----------------------------------------------------------------------------------------------------

PEOPLE_CSV = "person,town,age,spent,joined\n" + "".join(
    f"p{i},{('Oslo', 'Rome')[i % 2]},{20 + i % 60},{i % 97}.5,2024-01-{1 + i % 28:02}\n" for i in range(3000)
)


@pytest.fixture
def csv_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "visits.csv").write_text(PEOPLE_CSV)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_from_a_csv_to_a_private_answer(run: Run, csv_folder: Path) -> None:
    """The first five minutes: begin, see what is missing, fill it in, ask."""
    begun = run("init", "visits.csv", "--unit", "person", "--yes")
    assert "tables.visits.columns.spent.bounds" in begun.out
    assert "Then run: dpsql check visits.yaml visits.csv" in begun.out
    asking = ("query", "SELECT AVG(spent) AS a FROM visits", "--db", "visits.csv", "--schema", "visits.yaml")
    assert run("check", "visits.yaml", "visits.csv").out.endswith("visits.yaml is valid and matches visits.csv\n")
    assert "--budget" in run(*asking).err
    assert "UnboundedColumn" in run(*asking, "--budget", 1).err
    schema = csv_folder / "visits.yaml"
    (line,) = (line for line in schema.read_text().splitlines() if line.strip().startswith("spent"))
    schema.write_text(schema.read_text().replace(line, "      spent: {type: double, bounds: [0, 100]}"))
    assert "±" in run(*asking, "--budget", 1).out


def test_init_asks(run: Run, csv_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = ["prson", "person", "0 120", "100 0", "[0, 100]", "", "3", "2"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(answers) + "\n"))
    asked = run("init", "visits.csv")
    assert 'did you mean "person"?' in asked.out
    assert "the lower bound 100 is above the upper bound 0" in asked.out
    schema = load_schema(csv_folder / "visits.yaml")
    assert schema.dataset == "visits"
    assert schema.contribution.max_groups == 3
    assert schema.contribution.max_rows_per_group == 2
    table = schema.tables["visits"]
    assert table.unit_column == "person"
    assert {name: column.type.name for name, column in table.columns.items()} == {
        "person": "text",
        "town": "text",
        "age": "integer",
        "spent": "double",
        "joined": "date",
    }
    assert [table.columns[name].bounds for name in ("age", "spent", "joined")] == [(0, 120), (0, 100), None]


def test_several_files_are_tables_of_one_database(run: Run, csv_folder: Path) -> None:
    (csv_folder / "more.csv").write_text("person,paid\np1,3\n")
    refused = run("init", "visits.csv", "more.csv")
    assert refused.code == 1
    assert "CREATE TABLE a AS FROM 'visits.csv'" in refused.err
    with duckdb.connect("both.duckdb") as database:
        database.execute("CREATE TABLE a AS FROM 'visits.csv'; CREATE TABLE b AS FROM 'more.csv'")
    run("init", "both.duckdb", "--unit", "person", "--yes")
    assert set(load_schema(csv_folder / "both.yaml").tables) == {"a", "b"}


def test_init_leaves_to_the_owner_what_only_he_knows(run: Run, csv_folder: Path) -> None:
    begun = json.loads(run("init", "visits.csv", "--json").out)
    assert begun["schema"] == "visits.yaml"
    assert begun["to_fill_in"] == [
        "tables.visits.unit",
        *(f"tables.visits.columns.{name}.bounds" for name in ("age", "spent", "joined")),
    ]
    checked = run("check", "visits.yaml")
    assert checked.code == 1
    assert "names no unit" in checked.err
    assert "visits" not in run("init", "visits.csv", "--out", "other.yaml", "--csv").err
    # No value of the data, only names and types.
    text = (csv_folder / "visits.yaml").read_text()
    assert not any(value in text for value in ("Oslo", "Rome", "p17", "96.5"))


def test_init_reads_constraints_and_odd_names(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with duckdb.connect("clinic.duckdb") as database:
        database.execute("""
            CREATE TABLE patients (id INTEGER PRIMARY KEY, "true" DECIMAL(18, 2), photo BLOB, "a.b" INT, "o'k" TEXT);
            CREATE TABLE visits (patient INTEGER REFERENCES patients (id), cost HUGEINT, moment TIMESTAMP);
            CREATE TABLE wards (name TEXT)""")
    begun = run("init", "clinic.duckdb", "--unit", "patients.id", "--yes")
    assert "tables.wards.unit" in begun.out
    text = (tmp_path / "clinic.yaml").read_text()
    assert "# photo: BLOB columns cannot be used" in text
    (tmp_path / "clinic.yaml").write_text(text.replace("    # FILL IN", "    public: true #"))
    assert run("check", "clinic.yaml", "clinic.duckdb").code == 0
    schema = load_schema("clinic.yaml")
    assert schema.tables["patients"].unique
    assert set(schema.tables["patients"].columns) == {"id", "true", "o'k"}
    assert schema.tables["visits"].unit == "patient"


def test_init_leads_only_to_keys_that_are_there_once(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wards are many people's: a ward is no way from its name to a patient, and no constraint says that it were."""
    monkeypatch.chdir(tmp_path)
    with duckdb.connect("clinic.duckdb") as database:
        database.execute("""
            CREATE TABLE wards (ward_id INTEGER PRIMARY KEY, name TEXT);
            CREATE TABLE patients (id INTEGER PRIMARY KEY, ward_id INTEGER REFERENCES wards (ward_id))""")
    run("init", "clinic.duckdb", "--unit", "patients.id", "--yes")
    text = (tmp_path / "clinic.yaml").read_text()
    assert "through" not in text
    found = re.sub("# FILL IN  unit: .*", "unit: {through: ward_id, to: patients.ward_id}", text)
    (tmp_path / "clinic.yaml").write_text(found)
    for look in ((), ("--data",)):
        checked = run("check", "clinic.yaml", "clinic.duckdb", *look)
        assert checked.code == 1
        assert 'tables.wards.unit: nothing enforces that "patients.ward_id" is unique' in checked.err


def test_check_counts_keys_that_lead_to_several_people(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "visits.csv").write_text("visit,person\n1,7\n1,8\n2,9\n")
    (tmp_path / "visits.yaml").write_text(
        "tables:\n"
        "  visits: {unit: {through: visit, to: visits2.visit}, columns: {visit: integer}}\n"
        "  visits2: {unit: person, columns: {visit: integer, person: integer}}\n"
    )
    engine = DuckDBEngine.open(
        dict.fromkeys(("visits", "visits2"), tmp_path / "visits.csv"), schema := load_schema("visits.yaml")
    )
    with closing(engine), pytest.raises(dpsql.SchemaError, match="3 rows have 2 different keys"):
        check_copied(engine, schema)
    engine = DuckDBEngine.open(dict.fromkeys(("visits", "visits2"), tmp_path / "visits.csv"), schema)
    with closing(engine):
        (finding,) = [one for one in inspect_rows(engine, schema, None) if one.refused]
    assert (finding.table, finding.column) == ("visits2", "visit")


def test_init_and_check_propose_the_way_to_the_person(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By foreign keys it is written down, over several tables; by equal names it is proposed."""
    monkeypatch.chdir(tmp_path)
    with duckdb.connect("store.duckdb") as database:
        database.execute("""
            CREATE TABLE users (user_id INTEGER PRIMARY KEY);
            CREATE TABLE purchases (id INTEGER PRIMARY KEY, user_id INTEGER REFERENCES users (user_id));
            CREATE TABLE items (purchase INTEGER REFERENCES purchases (id), sku TEXT);
            CREATE TABLE returns (purchase_id INTEGER, user_id INTEGER);
            CREATE TABLE refunds (purchase_id INTEGER, amount DOUBLE)""")
    run("init", "store.duckdb", "--unit", "users.user_id", "--yes")
    text = (tmp_path / "store.yaml").read_text()
    units = re.findall(r"^  (\w+):\n    (?:# FILL IN  )?(unit: .*)$", text, re.MULTILINE)
    assert dict(units) == {
        "users": "unit: user_id",
        "purchases": "unit: user_id",
        "items": "unit: {through: purchase, to: 'purchases.id'}",
        "returns": "unit: user_id, if that leads to the person",
        "refunds": "unit: {through: purchase_id, to: 'purchases.id'}, if that leads to the person",
    }
    checked = run("check", "store.yaml", "store.duckdb")
    assert "unit: {through: purchase_id, to: purchases.id}  if that identifies the person" in checked.err
    assert "write  unit: user_id  if that identifies the person" in checked.err
    assert "public: true" not in checked.err + text
    (tmp_path / "store.yaml").write_text(re.sub("# FILL IN  (unit: .*), if that .*", r"\1", text))
    assert run("check", "store.yaml", "store.duckdb").code == 0


CLINIC = """
    dataset: clinic
    contribution: {max_groups: 1, max_rows_per_group: 2}
    tables:
      visits:
        unit: patient
        columns:
          patient: text
          day: date
          ward: {type: text, values: [A, Emergency Room, C]}
          cost: {type: double, bounds: [0, 100]}
          age: integer
"""
VISITS = """\
patient,day,ward,cost,age
p1,2024-01-01,A,10,30
p1,2024-01-02,emergency room,10,30
p1,2024-01-03,C,250,30
p1,03/01/2024,C,-5,30
p2,2024-01-01,C,n/a,
,2024-01-01,A,10,50
"""


def test_check_data_shows_the_owner_what_does_not_fit(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "visits.csv").write_text(VISITS)
    (tmp_path / "visits.yaml").write_text(CLINIC)
    shown = run("check", "visits.yaml", "visits.csv", "--data")
    assert shown.code == 1  # it could not be opened as it is
    assert "exact and unprotected" in shown.out
    findings = json.loads(run("check", "visits.yaml", "visits.csv", "--data", "--json").out)["findings"]
    assert [(one["column"], one["found"]) for one in findings] == [
        ("", "5 rows of 2 people"),
        ("patient", "1 row: the unit is NULL, or leads to no person"),
        ("day", "1 cell holds no date, and would be NULL"),
        ("ward", "1 value is not on the list: 'emergency room' 1 time (did you mean \"Emergency Room\"?)"),
        ("cost", "1 cell holds no double, and would be NULL"),
        ("cost", "1 value of 4 below 0, which would count as 0"),
        ("cost", "1 value of 4 above 100, which would count as 100"),
        ("age", "1 cell is empty"),
        ("", "1 of 2 people have more than 2 rows: if all rows were in one group, 2 would not count"),
        ("ward", "1 of 2 people are in more than 1 group of it"),
    ]
    assert all(one["suggestion"] for one in findings[1:])
    text = re.sub("(day|age): (date|integer)", r"\1: {type: \2, nullable: true}", CLINIC)
    text = text.replace("Room, C]", "Room, C], nullable: true").replace("100]", "100], nullable: true")
    (tmp_path / "visits.yaml").write_text(text.replace("max_rows_per_group: 2", "max_rows_per_group: 4"))
    assert run("check", "visits.yaml", "visits.csv", "--data").code == 0
    assert run("check", "visits.yaml", "visits.csv").code == 0


def test_check_data_of_a_database(run: Run, folder: Path) -> None:
    (people,) = json.loads(run("check", "people.yaml", "people.duckdb", "--data", "--json").out)["findings"]
    assert people["found"] == "2,000 rows of 2,000 people"
    with duckdb.connect("people.duckdb") as database:
        database.execute("INSERT INTO people VALUES (1, 'rome', 200, 1)")
    found = run("check", "people.yaml", "people.duckdb", "--data").out
    assert "1 person has more than one row" in found
    assert "'rome' 1 time (did you mean \"Rome\"?)" in found
    assert "1 value of 2,001 above 120" in found
    assert run("check", "people.yaml", "--data").code == 2


def test_init_never_overwrites(run: Run, folder: Path) -> None:
    before = (folder / "people.yaml").read_text()
    ran = run("init", "people.duckdb", "--yes")
    assert ran.code == 1
    assert "--out new_people.yaml" in ran.err
    assert (folder / "people.yaml").read_text() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("none.csv",), "there is no file none.csv"),
        (("none.duckdb",), "there is no database none.duckdb"),
        (("notes.parquet",), "it must be a .parquet file"),
        (("visits.csv", "--unit", "prson"), 'did you mean "person"?'),
    ],
)
def test_init_of_what_is_not_there(arguments: tuple[str, ...], said: str, run: Run, csv_folder: Path) -> None:
    (csv_folder / "notes.parquet").write_text("no parquet")
    ran = run("init", *arguments, "--yes")
    assert ran.code == 1
    assert said in ran.err
    assert not list(csv_folder.glob("*.yaml"))


def test_init_says_how_a_csv_is_written(run: Run, csv_folder: Path) -> None:
    """Guessed once, by the owner's command, and fixed from then on."""
    lines = "".join(f"{i};Orl\xe9ans;{i % 7}.5\n" for i in range(60))
    (csv_folder / "french.csv").write_bytes(f"person;ville;x\n{lines}".encode("latin-1"))
    (csv_folder / "bare.csv").write_text(lines.replace(";", ",").replace("\xe9", "e"))
    for name, options in (
        ("french", 'csv: {"delimiter": ";", "encoding": "windows-1252"}'),
        ("bare", 'csv: {"header": ["column0", "column1", "column2"]}'),
    ):
        unit = "person" if name == "french" else "column0"
        assert run("init", f"{name}.csv", "--unit", unit, "--yes").code == 0
        assert options in (csv_folder / f"{name}.yaml").read_text()
        assert run("check", f"{name}.yaml", f"{name}.csv").code == 0


GERMAN = "person;tag;um;betrag\n" + "".join(
    f"p{i};{day};{day} {i % 24:02}:{i % 60:02};{i},{i % 10}\n"
    for i in range(600)
    for day in [f"{1 + i % 28:02}.{1 + i % 12:02}.2024"]
)
FORMATS = 'csv: {date_format: "%d.%m.%Y", timestamp_format: "%d.%m.%Y %H:%M", decimal: ","}'


def test_init_writes_the_formats_by_which_cells_are_read(run: Run, csv_folder: Path) -> None:
    (csv_folder / "german.csv").write_text(GERMAN)
    assert run("init", "german.csv", "--unit", "person", "--yes").code == 0
    written = (csv_folder / "german.yaml").read_text()
    for line in (
        'csv: {"delimiter": ";", "date_format": "%d.%m.%Y", "timestamp_format": "%d.%m.%Y %H:%M", "decimal": ","}',
        "tag: date",
        "um: timestamp",
        "betrag: double",
    ):
        assert line in written
    assert run("check", "german.yaml", "german.csv").code == 0
    with dpsql.connect("german.csv", schema="german.yaml", budget=1e9, query_epsilon=1e6) as conn:
        ((n, months, total),) = conn.execute(
            "SELECT COUNT(tag), COUNT(*) FILTER (WHERE MONTH(um) = 2), "
            "SUM(CASE WHEN betrag BETWEEN 0 AND 1000 THEN betrag END) FROM german"
        ).fetchall()
    assert (n, months) == (600, 50)
    assert total == pytest.approx(sum(i + i % 10 / 10 for i in range(600)), rel=1e-3)


@pytest.mark.parametrize(
    ("cells", "column", "said"),
    [
        (["31/12/2024", "01/02/2024"], "day: date", '"date_format": "%d/%m/%Y"'),
        (["12/31/2024", "01/02/2024"], "day: date", '"date_format": "%m/%d/%Y"'),
        (["01/02/2024"], "day: date", "# CHECK date_format: the first rows could also be read as %d/%m/%Y"),
        (["01.02.24", "28.02.24"], "day: date", '"date_format": "%d.%m.%y"'),  # not the year 24
        (["2024-02-01"], "day: date", "tables"),
        (["01.02.2024", "n/a"], "day: text", "tables"),
        (["01.02.2024 10:00 PM"], "day: timestamp", '"timestamp_format": "%d.%m.%Y %I:%M %p"'),
        (["2024-02-01T10:00:00"], "day: timestamp", "tables"),
        (["1.234,5", "7,25"], "day: text", "tables"),
        (["7,25", "8"], "day: double", '"decimal": ","'),
        (["7.25", "8"], "day: double", "tables"),
    ],
)
def test_no_column_is_called_what_its_cells_are_not(
    run: Run, csv_folder: Path, cells: list[str], column: str, said: str
) -> None:
    rows = "".join(f"p{i};{cells[i % len(cells)]}\n" for i in range(200))
    (csv_folder / "t.csv").write_text(f"person;day\n{rows}")
    assert run("init", "t.csv", "--unit", "person", "--yes").code == 0
    written = (csv_folder / "t.yaml").read_text()
    assert column in written
    assert said in written
    assert run("check", "t.yaml", "t.csv").code == 0


def test_formats_that_differ_between_files_are_texts(run: Run, csv_folder: Path) -> None:
    folder = csv_folder / "days"
    folder.mkdir()
    for name, day in (("a", "31.12.2024"), ("b", "2024-12-31")):
        (folder / f"{name}.csv").write_text("person,day\n" + f"p,{day}\n" * 50)
    assert run("init", folder, "--unit", "person", "--yes").code == 0
    assert "day: text" in (csv_folder / "days.yaml").read_text()


@pytest.mark.parametrize("nullable", [False, True])
def test_dates_that_cannot_be_read_are_answered_with_their_format(run: Run, csv_folder: Path, nullable: bool) -> None:
    """Not with `nullable: true`, by which every date would be NULL, and `check` would find nothing wrong."""
    (csv_folder / "german.csv").write_text(GERMAN)
    kinds = {"tag": "date", "um": "timestamp", "betrag": "double"}
    columns = {name: {"type": kind, "nullable": nullable} for name, kind in kinds.items()}
    table = {"unit": "person", "columns": {"person": "text", **columns}}
    schema = {"dataset": "d", "csv": {"delimiter": ";"}, "tables": {"german": table}}
    (csv_folder / "german.yaml").write_text(yaml.safe_dump(schema, sort_keys=False))
    checked = run("check", "german.yaml", "german.csv")
    assert checked.code == 1
    assert "600" in checked.err
    assert f"{FORMATS}  in tables.german" in checked.err
    assert "nullable" not in checked.err
    looked = json.loads(run("check", "german.yaml", "german.csv", "--data", "--json").out)["findings"]
    assert [one["suggestion"] for one in looked if one["column"] == "tag"] == [
        'say how the file writes them:  csv: {date_format: "%d.%m.%Y"}  in tables.german'
    ]
    if not nullable:
        with pytest.raises(dpsql.SchemaError) as opened:
            dpsql.connect("german.csv", schema=schema, budget=1)
        assert FORMATS in str(opened.value)
        assert "nullable" not in str(opened.value)
        with pytest.raises(dpsql.SchemaError, match="say how the file writes them"):
            dpsql.connect({"german": "german.csv"}, schema=schema, budget=1, ledger=":memory:")
    table["csv"] = yaml.safe_load(FORMATS)["csv"]
    (csv_folder / "german.yaml").write_text(yaml.safe_dump(schema, sort_keys=False))
    assert run("check", "german.yaml", "german.csv").code == 0


def test_a_format_that_is_not_certain_is_not_given_as_one(run: Run, csv_folder: Path) -> None:
    (csv_folder / "t.csv").write_text("person,day\n" + "p,03/05/2024\n" * 50)
    (csv_folder / "t.yaml").write_text("dataset: d\ntables: {t: {unit: person, columns: {person: text, day: date}}}\n")
    checked = run("check", "t.yaml", "t.csv").err
    assert 'csv: {date_format: "%m/%d/%Y"}  in tables.t' in checked
    assert '; or is it  date_format: "%d/%m/%Y"?' in checked


def test_a_few_cells_that_cannot_be_read_are_named_apart_from_empty_ones(run: Run, csv_folder: Path) -> None:
    (csv_folder / "t.csv").write_text("person,day,age\n" + "p,2024-01-31,3\n" * 50 + "p,soon,\n")
    (csv_folder / "t.yaml").write_text(
        "dataset: d\ntables: {t: {unit: person, columns: {person: text, day: date, age: integer}}}\n"
    )
    checked = run("check", "t.yaml", "t.csv").err
    assert "columns.day: 1 of 51 rows have no date there, and 1 cell cannot be read as one" in checked
    assert "columns.age: 1 of 51 rows have no integer there\n" in checked
    assert "correct the cells that cannot be read, or declare the column as text" in checked
    assert "nullable: true  where a cell may be empty" in checked
    assert "soon" not in checked


def test_check_tells_counts_and_no_values(run: Run, csv_folder: Path) -> None:
    run("init", "visits.csv", "--unit", "person", "--yes")
    with (csv_folder / "visits.csv").open("a") as file:
        file.write("999999,secret,1,2,3,4,5,6\n")
    checked = run("check", "visits.yaml", "visits.csv")
    assert checked.code == 1
    assert "lines have more fields than columns" in checked.err
    assert "secret" not in checked.err


def test_init_of_a_folder_with_two_tables_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("person,age\n1,30\n")
    (tmp_path / "visits.csv").write_text("person,day\n1,2024-01-01\n")
    refused = run("init", tmp_path, "--unit", "person", "--yes")
    assert refused.code != 0
    assert "visits.csv has different columns than people.csv" in refused.err
    assert "CREATE TABLE visits AS FROM 'visits.csv'" in refused.err


def test_init_of_the_folder_one_is_in(run: Run, csv_folder: Path) -> None:
    assert run("init", ".", "--unit", "person", "--yes").code == 0
    assert f"dataset: {csv_folder.name}\n" in csv_folder.with_suffix(".yaml").read_text()


def test_init_leaves_a_view_to_be_vouched_for(run: Run, tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "v.duckdb")) as raw:
        raw.execute("CREATE TABLE t (u BIGINT); CREATE VIEW seen AS FROM t")
    begun = run("init", str(tmp_path / "v.duckdb"), "--unit", "u", "--yes")
    assert "tables.seen.view" in begun.out


def test_check(run: Run, folder: Path) -> None:
    (table,) = json.loads(run("check", "people.yaml", "people.duckdb", "--json").out)["tables"]
    assert table == {
        "table": "people",
        "unit": "id",
        "counts": "one row per person",
        "columns": "id, town, age, weight",
        "unbounded": "weight",
    }
    with duckdb.connect("people.duckdb") as database:
        database.execute("ALTER TABLE people DROP COLUMN age")
    ran = run("check", "people.yaml", "people.duckdb")
    assert ran.code == 1
    assert 'the database has no column "age"' in ran.err


# -- the account -------------------------------------------------------------------------------------------------------


@pytest.fixture
def ledger(connection: dpsql.Connection, folder: Path) -> Path:
    """The ledger that a session on a file database leaves beside it."""
    connection.execute("SELECT COUNT(*) FROM people", epsilon=0.25)
    return folder / "people.duckdb.ledger"


def test_budget(run: Run, ledger: Path) -> None:
    assert "0.25 of 2 spent in 1 query" in run("budget").out
    assert json.loads(run("budget", "--json").out)["queries"] == 1
    rows = {row["of"]: float(row["epsilon"]) for row in csv.DictReader(io.StringIO(run("budget", "--csv").out))}
    assert rows["budget"] == 2
    assert rows["spent"] == pytest.approx(0.25)


def test_the_owner_grants_and_limits(run: Run, ledger: Path) -> None:
    assert "of 3 spent in 1 query" in run("budget", "grant", 3).out
    assert "0 of 0.5 spent in 0 queries" in run("budget", "limit", 0.5, "--analyst", "ada").out
    assert json.loads(run("budget", "--analyst", "ada", "--json").out)["epsilon"] == 0.5
    assert json.loads(run("budget", "--json").out)["epsilon"] == 3
    refused = run("budget", "--ledger", ledger, "grant", 1)
    assert (refused.code, refused.out) == (1, "")
    assert f"to lower it: dpsql budget limit 1 --ledger {ledger}" in refused.err
    assert "analyst" in run("ledger", "show", ledger).out.splitlines()[0]


def test_an_analyst_asks_within_a_limit(run: Run, ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "not listed may spend nothing" in run("budget", "limit", 0.5, "--analyst", "ada").err
    assert run("query", BY_TOWN, "--epsilon", 0.3, "--analyst", "ada").code == 0
    monkeypatch.setenv("DPSQL_ANALYST", "ada")
    refused = run("query", "SELECT COUNT(*) FROM people", "--epsilon", 0.6)
    assert refused.code == 3
    of_bob = ("query", "SELECT COUNT(*) FROM people", "--epsilon", 0.6, "--analyst", "bob")
    assert "not on the data owner's list" in run(*of_bob).err
    assert run("budget", "set", 1, "--others").err == ""
    assert run(*of_bob).code == 0
    listed = json.loads(run("budget", "list", "--json").out)["analysts"]
    assert [(row["analyst"], row["limit"], row["queries"], row["state"]) for row in listed] == [
        ("ada", 0.5, 1, "listed"),
        ("bob", 1.0, 1, "not listed"),
        (None, 1.0, 1, "not listed"),
    ]


def test_hints_name_the_option(run: Run, folder: Path) -> None:
    assert "hint: write --budget 0.1" in run("query", BY_TOWN, "--budget", -1).err


def test_the_way_to_a_delta_is_open(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget without a delta is on record: to connect with one is refused, so the owner's command is named."""
    monkeypatch.delenv("DPSQL_DELTA")
    asking = ("query", "SELECT ROUND(weight) AS kilos, COUNT(*) AS n FROM people GROUP BY kilos", "--epsilon", 0.5)
    refused = run(*asking)
    assert refused.code == 1
    command = re.search(r"dpsql (budget grant \S+ --delta 1e-6)", refused.err)
    assert command, refused.err
    assert run(*command[1].split()).code == 0
    monkeypatch.delenv("DPSQL_BUDGET")
    assert run(*asking).code == 0


def test_a_session_names_the_budget_on_record_or_none(run: Run, ledger: Path) -> None:
    refused = run("query", BY_TOWN, "--budget", 5)
    assert refused.code == 1
    assert "a budget of epsilon 2 at delta 1e-06 on record" in refused.err
    assert "dpsql budget grant 5 --ledger people.duckdb.ledger" in refused.err


@pytest.mark.filterwarnings("always::dpsql.Warning")
def test_a_dangerous_budget_warns(run: Run, folder: Path) -> None:
    ran = run("query", BY_TOWN, "--budget", 100, "--delta", 0.1)
    assert ran.code == 0
    little, unprotected = ran.err.splitlines()
    assert little.startswith("warning: a budget of epsilon 100 protects against little")
    assert unprotected.startswith("warning: delta 0.1 is the probability")


def test_verify(run: Run, ledger: Path) -> None:
    assert "1 charge, intact" in run("ledger", "verify", ledger).out
    assert json.loads(run("ledger", "verify", ledger, "--json").out)["charges"] == 1


def test_show(run: Run, ledger: Path) -> None:
    shown = run("ledger", "show", ledger).out
    assert "SELECT COUNT(*) FROM people" in shown
    assert "0.25 of 2 spent" in shown
    entries = json.loads(run("ledger", "show", ledger, "--json").out)["entries"]
    assert [entry["state"] for entry in entries] == ["budget", "charged", "released"]
    _, charged, _ = csv.DictReader(io.StringIO(run("ledger", "show", ledger, "--csv").out))
    assert charged["epsilon"] == "0.25"


def test_a_limit_of_nothing_is_a_zero(run: Run, ledger: Path) -> None:
    run("budget", "set", 0.5, "--analyst", "ada")
    (line,) = (line for line in run("ledger", "show", ledger).out.splitlines() if "default limit" in line)
    assert line.split("default limit")[1].split()[0] == "0"


def test_a_long_question_does_not_widen_the_list(run: Run, ledger: Path, connection: dpsql.Connection) -> None:
    connection.execute("SELECT COUNT(*) FROM people WHERE " + " OR ".join(["age = 7"] * 90 + ["age = 89"]), epsilon=0.1)
    assert max(map(len, run("ledger", "show", ledger).out.splitlines())) < 400
    assert "age = 89" in run("ledger", "show", ledger, "--json").out


def test_a_changed_entry_is_found(run: Run, ledger: Path) -> None:
    with sqlite3.connect(ledger) as file:
        for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            file.execute(f"DROP TRIGGER {name}")
        file.execute("UPDATE entries SET epsilon = '1/100' WHERE state = 'charged'")
    file.close()
    ran = run("ledger", "verify", ledger)
    assert ran.code == 1
    assert "LedgerError" in ran.err


# -- the shell ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def typed(connection: dpsql.Connection, capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """What the shell prints when this is typed; the keys end with Ctrl-D."""

    def shown(keys: str) -> str:
        with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
            pipe.send_text(keys + "\x04")
            Shell(connection).run()
        return capsys.readouterr().out

    return shown


def test_the_shell_answers(typed: Callable[[str], str], connection: dpsql.Connection) -> None:
    shown = typed(f".epsilon 0.5\r{BY_TOWN};\r")
    assert "from now on: epsilon 0.5" in shown
    assert "Oslo" in shown
    assert "cost: epsilon 0.5" in shown
    assert connection.budget.spent.epsilon == pytest.approx(0.5)


def test_a_question_goes_on_until_its_semicolon(typed: Callable[[str], str]) -> None:
    assert "±" in typed("SELECT COUNT(*) AS n\rFROM people\r;\r")


def test_free_commands(typed: Callable[[str], str], connection: dpsql.Connection) -> None:
    shown = typed(f".help\r.budget\r.tables\r.explain {BY_TOWN}\rEXPLAIN {BY_TOWN};\r\r")
    for piece in ("run the query and pay for it", "0 of 2 spent", "one row per person"):
        assert piece in shown
    assert shown.count("10.00% of the budget") == 2
    assert connection.budget.queries == 0


def test_errors_are_short_and_the_shell_goes_on(typed: Callable[[str], str]) -> None:
    shown = typed(".epsilom\r.epsilon 50\rSELECT COUNT(*) FROM people;\rSELECT x FROM people;\r.epsilon x\r.budget\r")
    assert 'did you mean ".epsilon"?' in shown
    assert "hint: use .epsilon 2 or less" in shown
    assert "UnknownName" in shown
    assert "Traceback" not in shown
    assert "0 of 2 spent" in shown


def test_quit_and_interrupt(typed: Callable[[str], str]) -> None:
    assert typed("SELECT 1\x03.quit\r.budget\r") == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT to", {"town"}),
        ("SELECT people.a", {"age"}),
        ("SELECT PEO", {"people"}),
        ("SELECT stdd", {"STDDEV", "STDDEV_POP", "STDDEV_SAMP"}),
        ("SELECT medi", {"MEDIAN"}),
        ("SELECT x FROM people WHERE coal", {"COALESCE"}),
        ("SELECT undeclared.", set()),
        (".bu", {".budget"}),
        ("SELECT .bu", set()),
    ],
)
def test_completion(text: str, expected: set[str]) -> None:
    completer = SqlCompleter(load_schema(SCHEMA), [".budget"])
    assert {found.text for found in completer.get_completions(Document(text), CompleteEvent())} == expected


# -- the command itself ------------------------------------------------------------------------------------------------


def test_the_command_is_installed() -> None:
    command = Path(sys.executable).with_name("dpsql")
    shown = subprocess.run([command, "ledger", "--help"], capture_output=True, text=True, check=True).stdout
    assert "verify" in shown


PAGES = re.findall(r"^### dpsql ?([^\n]*)\n\n```text\n(.*?)```$", DOCS.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("command", "page"), PAGES, ids=[command or "dpsql" for command, _ in PAGES])
def test_the_help_is_that_of_the_docs(command: str, page: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert run(*command.split(), "--help").out == page


def test_the_docs_have_every_command() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    inner = {f"{name} {word}" for name, group in commands.items() for word in getattr(group, "commands", ())}
    assert {command for command, _ in PAGES} == {"", *commands, *inner}


def test_the_docs_have_every_variable_and_exit_code() -> None:
    text = DOCS.read_text()
    help_pages = "".join(page for _, page in PAGES)
    assert set(re.findall(r"`(DPSQL_\w+)`", text)) == set(re.findall(r"env var:\s+(DPSQL_\w+)", help_pages))
    table = re.findall(r"^\| \d+ \| .* \|$", output.__doc__ or "", re.MULTILINE)
    assert re.findall(r"^\| \d+ \| .* \|$", text, re.MULTILINE) == table


def test_the_demo_is_a_command_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it prints is compared with the README."""
    monkeypatch.setattr("dpsql.demo.main", lambda: print("the demo"))
    assert run("demo").out == "the demo\n"


def test_the_process_says_all_and_ends_with_its_code(tmp_path: Path) -> None:
    """It ends at once, after what others left to be done at the end."""
    code = "import atexit; atexit.register(lambda: print('at the end')); import dpsql.cli.app as it; it.main()"

    def ended(*arguments: str) -> tuple[int, str, str]:
        found = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=tmp_path)
        return found.returncode, found.stdout, found.stderr

    number, said, complaint = ended("--version")
    assert (number, said.splitlines()[-1], complaint) == (0, "at the end", "")
    assert said.startswith("dpsql ")
    number, said, complaint = ended("check", "no_such_file.yaml")
    assert (number, said) == (1, "at the end\n")
    assert "no_such_file.yaml" in complaint
    assert ended("--no-such-option")[0] == 2


def test_importing_dpsql_loads_no_part_of_the_command() -> None:
    code = "import sys, dpsql; print({'typer', 'rich', 'prompt_toolkit', 'sqlalchemy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


@pytest.mark.parametrize("asked", ["--version", "--help", "query --help", "check --help"])
def test_help_waits_for_neither_the_pipeline_nor_the_engine(asked: str) -> None:
    heavy = "{'numpy', 'sqlglot', 'duckdb', 'yaml', 'dpsql.session', 'dpsql.pipeline'} & set(sys.modules)"
    code = f"import atexit, sys; atexit.register(lambda: print({heavy})); import dpsql.cli.app as it; it.main()"
    printed = subprocess.run([sys.executable, "-c", code, *asked.split()], capture_output=True, text=True).stdout
    assert printed.endswith("\nset()\n")


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ("1,5\n2,6,7\n", "1 of 2 lines"),
        ("1,5\n2,6\n3,\n", "1 of 3 rows have no integer"),
        ('1,5\n"2,6\n', "not well formed"),
    ],
)
def test_an_analyst_is_told_one_text_of_a_file_that_does_not_fit(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: str, why: str
) -> None:
    """Opening is the owner's act, whose error depends on rows; `query` opens a file for the analyst too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "visits.csv").write_text(f"person,spent\n{rows}")
    (tmp_path / "visits.yaml").write_text(
        "dataset: d\ntables: {visits: {unit: person, columns: {person: integer, spent: integer}}}\n"
    )
    asked = run(
        "query", "SELECT COUNT(spent) FROM visits", "--db", "visits.csv", "--schema", "visits.yaml", "--budget", "1"
    )
    assert asked.err.splitlines() == [
        "OperationalError: visits.csv does not match visits.yaml",
        "hint: the data owner can find out why with:  dpsql check visits.yaml visits.csv",
    ]
    assert why in run("check", "visits.yaml", "visits.csv").err
