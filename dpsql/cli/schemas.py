"""`dpsql init` and `dpsql check`: draft a schema from the data, and check that it matches."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from pathlib import Path

import typer

from dpsql.cli.output import CommandReport, table
from dpsql.engines.base import declared_type
from dpsql.engines.registry import describe, kind_of, open_engine
from dpsql.engines.tables import Described
from dpsql.errors import OperationalError, SchemaError, UnknownName, did_you_mean, without_password
from dpsql.listing import counts, person_of
from dpsql.owner.check import (
    Finding,
    check_complete,
    check_copied,
    check_links,
    check_readable,
    inspect_rows,
    opener_as_written,
)
from dpsql.owner.scaffold import PUBLIC, Chosen, measures, missing, schema_text
from dpsql.schema import Schema, Table, load_schema, parse_type
from dpsql.schema.load import read_yaml
from dpsql.schema.model import AUTO


def begin_schema(data: str, out: Path | None, unit: list[str], *, asks: bool) -> CommandReport:
    path = Path(data)
    if path.name in ("", ".."):
        path = path.resolve()
    is_url = kind_of(data).is_url(data)
    name, tables = describe(data if is_url else str(path))
    target = out or (Path(f"{name}.yaml") if is_url else path.with_suffix(".yaml"))
    if target.exists():
        raise OperationalError(f"{target} already exists", hint=f"write to another file: --out new_{target.name}")
    _check_writable(target)
    units = _named_units(unit, tables)
    chosen = _ask(tables, units) if asks else Chosen(units)
    target.write_text(schema_text(name, tables, chosen), encoding="utf-8")
    return _begun(target, without_password(data), missing(tables, chosen))


def _check_writable(target: Path) -> None:
    """Before anything is asked."""
    if not target.parent.is_dir():
        raise OperationalError(f"there is no folder {target.parent}", hint="create it, or leave out --out")
    if not os.access(target.parent, os.W_OK):
        hint = f"write to another folder: --out ~/{target.name}"
        raise OperationalError(f"{target} cannot be written: nothing may be written in its folder", hint=hint)


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
    typer.echo("Choose from what you know about the subject. Press Enter to leave an item for later.")
    units = {name: answer for name, described in tables.items() if (answer := _ask_unit(name, described, units))}
    bounds = {
        (name, column): answer
        for name, described in tables.items()
        for column in measures(described, units.get(name))
        if (answer := _ask_bounds(name, column, described.columns[column]))
    }
    if all(unit == PUBLIC or unit in tables[name].unique for name, unit in units.items()):
        return Chosen(units, bounds)
    groups = _ask_count("In how many groups of a GROUP BY may one person count?")
    return Chosen(units, bounds, groups, _ask_count("With how many rows in each group?"))


def _ask_count(question: str) -> int | str:
    """A number, or "auto": each query finds it."""
    while True:
        answer = typer.prompt(question, default=AUTO)
        if answer == AUTO or (answer.isdecimal() and int(answer)):
            return AUTO if answer == AUTO else int(answer)
        typer.echo(f"  write a number, or {AUTO}: each query finds the limit of least error for a tenth of its cost")


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


def _begun(target: Path, data: str, to_fill_in: list[str]) -> CommandReport:
    todo = "".join(f"  {path}\n" for path in to_fill_in)
    text = (
        f"wrote {target}\n" + (f"Still to fill in:\n{todo}" if todo else "") + f"Then run: dpsql check {target} {data}"
    )
    return CommandReport(
        {"schema": str(target), "to_fill_in": to_fill_in}, ["to_fill_in"], [[p] for p in to_fill_in], text
    )


# -- check schema ------------------------------------------------------------------------------------------------------
# What `dpsql check` does: is the schema right, does it fit the data, and what do the rows look like?

NOT_PRIVATE = """\
These numbers and values are exact and unprotected. Do not share them.
The schema is public: choose bounds and limits from what you know about the subject, and use this
report only to check them."""


def check_schema(schema: Path, db: str | None) -> CommandReport:
    loaded = load_schema(schema)
    if db is not None:
        with closing(open_engine(db, loaded)) as engine:
            check_links(engine, loaded)
            as_written = opener_as_written(db, loaded)
            (check_copied if engine.copied else check_complete)(engine, loaded, as_written)
            if as_written is not None:
                check_readable(engine, loaded, as_written)
    fitting = "" if db is None else f" and matches {without_password(db)}"
    described = describe_schema(loaded)
    note = "\n".join([f"{schema} is valid{fitting}", *([described.note] if described.note else [])])
    return replace(described, note=note)


def look_at_data(schema: Path, db: str | None) -> tuple[CommandReport, bool]:
    """The findings in the rows, and whether any of them makes dpsql refuse the data."""
    loaded = load_schema(schema)
    if db is None:
        raise typer.BadParameter("name the data to read: dpsql check SCHEMA DATA --data", param_hint="'DATA'")
    as_written = opener_as_written(db, loaded)
    with ExitStack() as stack:
        engine = stack.enter_context(closing(open_engine(db, loaded)))
        text = None if as_written is None else stack.enter_context(closing(as_written()))
        findings = inspect_rows(engine, loaded, text)
    return _found(findings), any(finding.refused for finding in findings)


def _found(findings: list[Finding]) -> CommandReport:
    names = ("table", "column", "found", "suggestion")
    rows = [tuple(getattr(finding, name) for name in names) for finding in findings]
    document = {"private": False, "findings": [asdict(finding) for finding in findings]}
    return CommandReport(document, names, rows, table(names, rows), NOT_PRIVATE)


def describe_schema(schema: Schema) -> CommandReport:
    """For each table: its unit, its contribution bounds, and the columns without the bounds that a sum needs."""
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
    rules = list(_owners_rules(schema))
    tables = [dict(zip(names, row, strict=True)) for row in rows]
    document = {"dataset": schema.dataset, "tables": tables, "rules": rules}
    return CommandReport(document, names, rows, table(names, rows), "\n".join(rules))


def _owners_rules(schema: Schema) -> Iterator[str]:
    """What no question can loosen."""
    if schema.minimum_people is not None:
        yield f"rule: an answer about fewer than {schema.minimum_people} people is hidden, with 95 % certainty"
    if schema.accuracy == "required":
        yield "rule: each query states its accuracy"
    for name, declared in schema.tables.items():
        if declared.analysts is not None:
            yield f"rule: {name} is for {', '.join(declared.analysts)} only"
        for column in declared.columns.values():
            if not column.group_by:
                yield f"rule: {name}.{column.name} may be filtered, not grouped by"
            if column.analysts is not None:
                yield f"rule: {name}.{column.name} is for {', '.join(column.analysts)} only"


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
