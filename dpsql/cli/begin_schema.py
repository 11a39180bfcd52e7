"""What `dpsql init` does: a schema is begun from the tables and types of the data, and from what the owner answers."""

from pathlib import Path

import typer

from dpsql.cli.output import Report
from dpsql.cli.scaffold import PUBLIC, Chosen, measures, missing, schema_text
from dpsql.engines.duckdb.describe import Described, describe
from dpsql.engines.duckdb.types import declared_type
from dpsql.engines.opened import describe_server, names_server, without_password
from dpsql.errors import OperationalError, SchemaError, UnknownName
from dpsql.schema import Schema, parse_type
from dpsql.schema.read_yaml import read_yaml
from dpsql.source import did_you_mean


def begin_schema(data: str, out: Path | None, unit: list[str], *, asks: bool) -> Report:
    described = describe_server(data) if names_server(data) else None
    path = Path(data)
    if path.name in ("", ".."):
        path = path.resolve()
    target = out or (path.with_suffix(".yaml") if described is None else Path(f"{described[0]}.yaml"))
    if target.exists():
        raise OperationalError(f"{target} is there already", hint=f"write to another file: --out new_{target.name}")
    name, tables = described or (path.stem, describe(path))
    units = _named_units(unit, tables)
    chosen = _ask(tables, units) if asks else Chosen(units)
    target.write_text(schema_text(name, tables, chosen), encoding="utf-8")
    return _begun(target, without_password(data), missing(tables, chosen))


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
