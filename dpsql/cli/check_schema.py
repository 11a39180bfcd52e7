"""What `dpsql check` does: is the schema right, does it fit the data, and what do the rows look like?"""

from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from pathlib import Path

import typer

from dpsql.cli.output import Report, table
from dpsql.completeness import check_complete
from dpsql.engines.duckdb.files import is_text
from dpsql.engines.opened import names_server, open_engine, without_password
from dpsql.inspection import Finding, as_text, inspect_rows
from dpsql.listing import counts, person_of
from dpsql.schema import Schema, Table, load_schema

NOT_PRIVATE = """\
These are exact counts and values of people's rows. Nothing about them is private: they are for the data owner alone.
The schema is public: choose bounds and numbers from what you know of the subject, and see here whether they fit."""


def check_schema(schema: Path, db: str | None) -> Report:
    loaded = load_schema(schema)
    if db is not None:
        with closing(open_engine(db, loaded)) as engine:
            check_complete(engine, loaded)
    fitting = "" if db is None else f", and fits {without_password(db)}"
    return replace(describe_schema(loaded), note=f"{schema} is right{fitting}")


def look_at_data(schema: Path, db: str | None) -> tuple[Report, bool]:
    """What was found in the rows, and whether some of it makes dpsql refuse them."""
    loaded = load_schema(schema)
    if db is None:
        raise typer.BadParameter("name the data to look at: dpsql check SCHEMA DATA --data", param_hint="'DATA'")
    written = not names_server(db) and is_text(db)
    with ExitStack() as stack:
        engine = stack.enter_context(closing(open_engine(db, loaded)))
        text = stack.enter_context(closing(open_engine(db, as_text(loaded)))) if written else None
        findings = inspect_rows(engine, loaded, text)
    return _found(findings), any(finding.refused for finding in findings)


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
