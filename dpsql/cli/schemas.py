"""`dpsql init` and `dpsql check`: the owner's side."""

from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from dpsql.cli.errors import FAILED
from dpsql.cli.options import Form
from dpsql.cli.output import Report, publish, table
from dpsql.cli.scaffold import PUBLIC, Chosen, measures, missing, schema_text
from dpsql.completeness import check_complete
from dpsql.engines.duckdb.describe import Described, describe
from dpsql.engines.duckdb.files import is_text
from dpsql.engines.duckdb.types import declared_type
from dpsql.engines.opened import describe_server, names_server, open_engine, without_password
from dpsql.errors import OperationalError, SchemaError, UnknownName
from dpsql.inspection import Finding, as_text, inspect_rows
from dpsql.listing import counts, person_of
from dpsql.schema import Schema, Table, load_schema, parse_type
from dpsql.schema.read_yaml import read_yaml
from dpsql.source import did_you_mean

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="A DuckDB, Parquet or CSV file, a folder of such, postgresql://... or sc://... ."
    ),
]
Out = Annotated[Path | None, typer.Option("--out", help="The schema's file; DATA with .yaml at its end if not given.")]
Units = Annotated[
    list[str] | None,
    typer.Option(
        "--unit",
        metavar="COLUMN",
        help="The column that identifies the person; table.column for one table alone. Repeatable.",
    ),
]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Ask nothing, as with --json or --csv: leave bounds to be filled in.")
]
SchemaArgument = Annotated[Path, typer.Argument(metavar="SCHEMA", help="The schema's file.")]
LookAtData = Annotated[
    bool, typer.Option("--data", help="Look at the rows too, and say what may be mended. For the data owner alone.")
]
NOT_PRIVATE = """\
These are exact counts and values of people's rows. Nothing about them is private: they are for the data owner alone.
The schema is public: choose bounds and numbers from what you know of the subject, and see here whether they fit."""
MaybeDatabase = Annotated[str | None, typer.Argument(metavar="[DB]", help="The data that it should fit.")]


def init(data: Data, out: Out = None, unit: Units = None, yes: Yes = False, form: Form = None) -> None:
    """Begin a schema from the tables and types of a file; asks for units and bounds.

    No value is shown. How a CSV file is written is guessed from its rows, as its types are.
    """
    described = describe_server(data) if names_server(data) else None
    target = out or (Path(data).with_suffix(".yaml") if described is None else Path(f"{described[0]}.yaml"))
    if target.exists():
        raise OperationalError(f"{target} is there already", hint=f"write to another file: --out new_{target.name}")
    name, tables = described or (Path(data).stem, describe(Path(data)))
    units = _named_units(unit or [], tables)
    chosen = Chosen(units) if yes or form is not None else _ask(tables, units)
    target.write_text(schema_text(name, tables, chosen), encoding="utf-8")
    publish(_begun(target, without_password(data), missing(tables, chosen)), form)


def _named_units(names: list[str], tables: dict[str, Described]) -> dict[str, str]:
    units: dict[str, str] = {}
    for name in names:
        table_name, dot, column = name.rpartition(".")
        found = [key for key in tables if column in tables[key].columns and (not dot or key == table_name)]
        if not found:
            known = {known for described in tables.values() for known in described.columns}
            raise UnknownName(f'--unit: there is no column "{name}"', hint=did_you_mean(column, known))
        units |= dict.fromkeys(found, column)
    return units


def _ask(tables: dict[str, Described], units: dict[str, str]) -> Chosen:
    typer.echo("Choose from what you know about the subject. Enter leaves a thing to be filled in later.")
    units = {name: answer for name, described in tables.items() if (answer := _ask_unit(name, described, units))}
    bounds = {
        (name, column): answer
        for name, described in tables.items()
        for column in measures(described, units.get(name))
        if (answer := _ask_bounds(name, column, described.columns[column]))
    }
    if all(unit == PUBLIC or unit in tables[name].unique for name, unit in units.items()):
        return Chosen(units, bounds)
    groups = typer.prompt("In how many groups of one GROUP BY may a person count?", default=1, type=int)
    rows = typer.prompt("And with how many rows in each?", default=1, type=int)
    return Chosen(units, bounds, max(1, groups), max(1, rows))


def _ask_unit(name: str, described: Described, units: dict[str, str]) -> str:
    question = f"{name}: the column that identifies the person, or {PUBLIC} if the table is about nobody"
    while True:
        answer = _prompt(question, units.get(name, ""))
        if answer in ("", PUBLIC, *described.columns):
            return answer
        typer.echo(f'  there is no column "{answer}"; {did_you_mean(answer, described.columns) or ""}')


def _ask_bounds(name: str, column: str, kind: str) -> str:
    declared = parse_type(str(declared_type(kind)))
    while True:
        answer = _prompt(f"{name}.{column} ({declared.name}): bounds, such as {declared.example}", "")
        bounds = answer if not answer or answer.startswith("[") else f"[{', '.join(answer.replace(',', ' ').split())}]"
        try:
            if bounds:
                _check_bounds(name, column, declared.name, bounds)
            return bounds
        except SchemaError as problem:
            typer.echo(f"  {problem.problem}; {problem.hint}")


def _check_bounds(table_name: str, column: str, declared: str, bounds: str) -> None:
    read, _ = read_yaml(f"{{type: '{declared}', bounds: {bounds}}}", "bounds")
    Schema.model_validate({"tables": {table_name: {"public": True, "columns": {column: read}}}})


def _prompt(question: str, default: str) -> str:
    return str(typer.prompt(question, default=default, show_default=bool(default))).strip()


def _begun(target: Path, data: str, to_fill_in: list[str]) -> Report:
    todo = "".join(f"  {path}\n" for path in to_fill_in)
    text = f"wrote {target}\n" + (f"still to fill in:\n{todo}" if todo else "") + f"then: dpsql check {target} {data}"
    return Report({"schema": str(target), "to_fill_in": to_fill_in}, ["to_fill_in"], [[p] for p in to_fill_in], text)


def check(schema: SchemaArgument, db: MaybeDatabase = None, data: LookAtData = False, form: Form = None) -> None:
    """Check a schema, and that it fits the data if that is given; see what it allows.

    With --data, for the data owner alone: what is unreadable, off its list or beyond its bounds, and how many rows
    people have. These are exact counts and values, and nothing about them is private.
    """
    loaded = load_schema(schema)
    if data:
        _look_at_data(loaded, db, form)
        return
    if db is not None:
        with closing(open_engine(db, loaded)) as engine:
            check_complete(engine, loaded)
    fitting = "" if db is None else f", and fits {without_password(db)}"
    publish(replace(describe_schema(loaded), note=f"{schema} is right{fitting}"), form)


def _look_at_data(schema: Schema, db: str | None, form: bool | None) -> None:
    if db is None:
        raise typer.BadParameter("name the data to look at: dpsql check SCHEMA DATA --data", param_hint="'DATA'")
    written = not names_server(db) and is_text(db)
    with ExitStack() as stack:
        engine = stack.enter_context(closing(open_engine(db, schema)))
        text = stack.enter_context(closing(open_engine(db, as_text(schema)))) if written else None
        findings = inspect_rows(engine, schema, text)
    publish(_found(findings), form)
    if any(finding.refused for finding in findings):
        raise typer.Exit(FAILED)


def _found(findings: list[Finding]) -> Report:
    names = ("table", "column", "found", "suggestion")
    rows = [tuple(getattr(finding, name) for name in names) for finding in findings]
    document = {"private": False, "findings": [asdict(finding) for finding in findings]}
    return Report(document, names, rows, table(names, rows), NOT_PRIVATE)


def describe_schema(schema: Schema) -> Report:
    """Each table: whose rows, how many of one person count, and which columns lack the bounds that a sum needs."""
    names = ("table", "unit", "counts", "columns", "unbounded")
    rows = [
        (
            name,
            person_of(schema, name),
            counts(declared),
            ", ".join(declared.columns),
            ", ".join(_unbounded(declared)),
        )
        for name, declared in schema.tables.items()
    ]
    document = {"dataset": schema.dataset, "tables": [dict(zip(names, row, strict=True)) for row in rows]}
    return Report(document, names, rows, table(names, rows))


def _unbounded(declared: Table) -> list[str]:
    return [
        column.name
        for column in declared.columns.values()
        if column.type.takes_bounds
        and column.bounds is None
        and column.values is None
        and column.collected is None
        and not declared.is_public
        and column.name != declared.unit_column
    ]
