"""The owner's commands: `init`, `check`, `budget grant` and `limit`, `ledger show`, `verify`, `resume` and more."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from dpsql.accounting.ledger.declaration import Declaration
from dpsql.accounting.ledger.ledger import Ledger
from dpsql.cli.options import Form, LedgerFile, ledger_path
from dpsql.cli.output import FAILED, publish, show_warning
from dpsql.cli.query import accepted, account, entries, resumed, verified
from dpsql.errors import ProgrammingError

# -- accounts ----------------------------------------------------------------------------------------------------------
# `dpsql budget`, `budget grant` and `budget limit`, and `dpsql ledger show`, `verify`, `resume` and
# `accept-schema`.

AnyDatabase = Annotated[
    str | None,
    typer.Option(
        "--db",
        envvar="DPSQL_DB",
        metavar="<path>",
        help="The database, if its ledger is the file next to it.",
        show_default=False,
    ),
]
LedgerPath = Annotated[
    str, typer.Argument(metavar="LEDGER", help="The ledger, a file such as shop.duckdb.ledger, or postgresql://...")
]
SchemaArgument = Annotated[Path, typer.Argument(metavar="SCHEMA", help="The schema's file.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Compare with other rules of composition.")]
Of = Annotated[str | None, typer.Option("--analyst", help="This analyst's limit; by default the dataset's budget.")]
Mine = Annotated[
    str | None,
    typer.Option(
        "--analyst",
        envvar="DPSQL_ANALYST",
        help="This analyst's account; by default the dataset's.",
        show_default=False,
    ),
]
Total = Annotated[str, typer.Argument(metavar="EPSILON", help="The new total, such as 2.")]
TotalDelta = Annotated[
    str | None, typer.Option("--delta", metavar="<float>", help="The new delta; unchanged if omitted.")
]
Analyst = Annotated[
    str | None,
    typer.Option("--analyst", help="The analyst to reinstate; by default, queries without an analyst's name."),
]

ledger_app = typer.Typer(no_args_is_help=True, help="Show what was asked and spent, or verify the ledger.")


budget_app = typer.Typer(invoke_without_command=True, help="Show or change the budget.")


@budget_app.callback()
def budget(
    context: typer.Context,
    db: AnyDatabase = None,
    ledger: LedgerFile = None,
    analyst: Mine = None,
    verbose: Verbose = False,
    form: Form = None,
) -> None:
    """Show the budget, what is spent and what is left; grant more, or set a limit."""
    if context.invoked_subcommand is not None:
        context.obj = (db, ledger)
        return
    with closing(Ledger.at(ledger_path(db, ledger), analyst)) as opened:
        report = account(opened.analyst_budget or opened.budget, verbose)
    publish(report, form)


@budget_app.command()
def grant(
    context: typer.Context,
    epsilon: Total,
    delta: TotalDelta = None,
    analyst: Of = None,
    db: AnyDatabase = None,
    ledger: LedgerFile = None,
    form: Form = None,
) -> None:
    """Raise the budget of the dataset, or of one analyst, to a new total. For the data owner.

    The ledger records it. Answers cannot be taken back, so grant a little at a time.
    """
    _change(context, Ledger.grant, epsilon, delta, analyst, (db, ledger), form)


@budget_app.command()
def limit(
    context: typer.Context,
    epsilon: Total,
    delta: TotalDelta = None,
    analyst: Of = None,
    db: AnyDatabase = None,
    ledger: LedgerFile = None,
    form: Form = None,
) -> None:
    """Lower the budget, or set an analyst's first limit. For the data owner.

    The dataset's budget still applies to all analysts together.
    """
    _change(context, Ledger.limit, epsilon, delta, analyst, (db, ledger), form)


def _change(
    context: typer.Context,
    change: Callable[[Ledger, str, str | None, str | None], None],
    epsilon: str,
    delta: str | None,
    analyst: str | None,
    named: tuple[str | None, str | None],
    form: bool | None,
) -> None:
    """The database or its ledger may be named before or after the subcommand."""
    db, ledger = (own or before for own, before in zip(named, context.obj, strict=True))
    with closing(Ledger.at(ledger_path(db, ledger), analyst)) as opened:
        change(opened, epsilon, delta, analyst)
        now = opened.analyst_budget or opened.budget
    for danger in now.dangers:
        show_warning(danger)
    publish(account(now), form)


@ledger_app.command()
def show(path: LedgerPath, form: Form = None) -> None:
    """List what was asked and what it cost."""
    with closing(Ledger.at(path)) as opened:
        report = entries(opened.history(), opened.budget)
    publish(report, form)


@ledger_app.command()
def verify(path: LedgerPath, form: Form = None) -> None:
    """Check every entry, hash and running total; exit code 1 if one is broken."""
    with closing(Ledger.at(path)) as opened:
        report = verified(opened.verify())
    publish(report, form)


@ledger_app.command()
def resume(path: LedgerPath, analyst: Analyst = None, form: Form = None) -> None:
    """Lift a suspension after a failed query; first find out why it failed.

    For the data owner: the failure itself may have revealed something about one person.
    """
    with closing(Ledger.at(path)) as opened:
        opened.resume(analyst)
        report = resumed(opened.budget)
    publish(report, form)


@ledger_app.command()
def accept_schema(path: LedgerPath, schema: SchemaArgument, form: Form = None) -> None:
    """Record a schema that changes what epsilon means: another unit, unique or public tables.

    For the data owner. Sessions with such a schema are refused before; later ones must match it.
    """
    from dpsql.schema import load_schema  # late: it loads the parser of schemas

    loaded = load_schema(schema)
    with closing(Ledger.at(path)) as opened:
        found = opened.accept(Declaration.of(loaded.on_record(), loaded.fingerprint), loaded.dataset)
    publish(accepted(found), form)


# -- schemas -----------------------------------------------------------------------------------------------------------
# `dpsql init` and `dpsql check`: the owner's side.

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="A DuckDB, Parquet or CSV file, a folder of these, postgresql://... or sc://... ."
    ),
]
Out = Annotated[Path | None, typer.Option("--out", help="The schema's file; by default DATA with the ending .yaml.")]
Units = Annotated[
    list[str] | None,
    typer.Option(
        "--unit",
        metavar="COLUMN",
        help="The column that identifies the person; table.column for a single table. Repeatable.",
    ),
]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not prompt (as with --json or --csv); leave bounds to be filled in.")
]
LookAtData = Annotated[
    bool, typer.Option("--data", help="Read the rows too and report what could be fixed. For the data owner only.")
]
MaybeDatabase = Annotated[str | None, typer.Argument(metavar="[DB]", help="The data that the schema should match.")]


def init(
    context: typer.Context, data: Data, out: Out = None, unit: Units = None, yes: Yes = False, form: Form = None
) -> None:
    """Draft a schema from table names, column names and types; asks for units and bounds.

    It copies no values. For CSV files, the format and the types are guessed from the rows.
    """

    from dpsql.cli.schemas import begin_schema  # late: it loads the engine, and --help does not wait for it

    if context.args:
        raise ProgrammingError(
            f"a schema describes one data source, but {1 + len(context.args)} are given",
            hint=f"load the files into one database with CREATE TABLE a AS FROM '{data}' in DuckDB, then init that",
        )
    publish(begin_schema(data, out, unit or [], asks=not yes and form is None), form)


def check(schema: SchemaArgument, db: MaybeDatabase = None, data: LookAtData = False, form: Form = None) -> None:
    """Check a schema, and that it matches the data if given; show what it allows.

    With --data, report unreadable cells, undeclared values, values out of bounds, and rows per person. These numbers
    and values are exact and unprotected, for the data owner only.
    """

    from dpsql.cli.schemas import check_schema, look_at_data  # late: as above

    if not data:
        publish(check_schema(schema, db), form)
        return
    report, refused = look_at_data(schema, db)
    publish(report, form)
    if refused:
        raise typer.Exit(FAILED)
