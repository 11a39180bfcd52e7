"""`dpsql init` and `dpsql check`: the owner's side."""

from pathlib import Path
from typing import Annotated

import typer

from dpsql.cli.errors import FAILED
from dpsql.cli.options import Form
from dpsql.cli.output import publish
from dpsql.errors import ProgrammingError

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
MaybeDatabase = Annotated[str | None, typer.Argument(metavar="[DB]", help="The data that it should fit.")]


def init(
    context: typer.Context, data: Data, out: Out = None, unit: Units = None, yes: Yes = False, form: Form = None
) -> None:
    """Begin a schema from the tables and types of a file; asks for units and bounds.

    No value is shown. How a CSV file is written is guessed from its rows, as its types are.
    """
    from dpsql.cli.begin_schema import begin_schema  # late: it loads the engine, and --help does not wait for it

    if context.args:
        raise ProgrammingError(
            f"a schema describes one source of data, and here are {1 + len(context.args)}",
            hint=f"make the files tables of one database: CREATE TABLE a AS FROM '{data}' in DuckDB; then init that",
        )
    publish(begin_schema(data, out, unit or [], asks=not yes and form is None), form)


def check(schema: SchemaArgument, db: MaybeDatabase = None, data: LookAtData = False, form: Form = None) -> None:
    """Check a schema, and that it fits the data if that is given; see what it allows.

    With --data, for the data owner alone: what is unreadable, off its list or beyond its bounds, and how many rows
    people have. These are exact counts and values, and nothing about them is private.
    """
    from dpsql.cli.check_schema import check_schema, look_at_data  # late: as above

    if not data:
        publish(check_schema(schema, db), form)
        return
    report, refused = look_at_data(schema, db)
    publish(report, form)
    if refused:
        raise typer.Exit(FAILED)
