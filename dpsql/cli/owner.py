"""The owner's commands: `init` and `check`, `budget grant` and `limit`, `ledger show`, `verify` and `resume`."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from dpsql.accounting.ledger.ledger import Ledger
from dpsql.cli.options import Form, LedgerFile, ledger_path
from dpsql.cli.output import FAILED, publish, show_warning
from dpsql.cli.query import account, entries, resumed, verified
from dpsql.errors import ProgrammingError

# -- accounts ----------------------------------------------------------------------------------------------------------
# `dpsql budget`, `budget grant` and `budget limit`, and `dpsql ledger show`, `verify` and `resume`.

AnyDatabase = Annotated[
    str | None,
    typer.Option(
        "--db",
        envvar="DPSQL_DB",
        metavar="<path>",
        help="The database whose ledger lies beside it.",
        show_default=False,
    ),
]
LedgerPath = Annotated[
    str, typer.Argument(metavar="LEDGER", help="The account's file, such as shop.duckdb.ledger, or postgresql://...")
]
Of = Annotated[str | None, typer.Option("--analyst", help="Of this analyst; the dataset's if not given.")]
Total = Annotated[str, typer.Argument(metavar="EPSILON", help="The new total, such as 2.")]
TotalDelta = Annotated[
    str | None, typer.Option("--delta", metavar="<float>", help="The new delta; as on record if not given.")
]
Analyst = Annotated[
    str | None, typer.Option("--analyst", help="Whose questions are answered again; those without a name if not given.")
]

ledger_app = typer.Typer(no_args_is_help=True, help="Look at the account of what was asked and spent.")


budget_app = typer.Typer(invoke_without_command=True, help="See what may be spent, is spent and is left; change it.")


@budget_app.callback()
def budget(
    context: typer.Context, db: AnyDatabase = None, ledger: LedgerFile = None, analyst: Of = None, form: Form = None
) -> None:
    """See what may be spent, is spent and is left; grant more, or set a limit."""
    if context.invoked_subcommand is not None:
        context.obj = (db, ledger)
        return
    with closing(Ledger.at(ledger_path(db, ledger), analyst)) as opened:
        report = account(opened.analyst_budget or opened.budget)
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
    """Raise the budget to a new total: the dataset's, or that of one analyst. For the data owner.

    It goes on record in the ledger. What was answered cannot be taken back, so grant a little at a time.
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
    """Lower the budget, or say for the first time what one analyst may spend of it. For the data owner.

    The budget still limits all analysts together.
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
    """The database or its ledger may be named before the word or after it."""
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
    """Check every entry, seal and running sum; exit code 1 if one is broken."""
    with closing(Ledger.at(path)) as opened:
        report = verified(opened.verify())
    publish(report, form)


@ledger_app.command()
def resume(path: LedgerPath, analyst: Analyst = None, form: Form = None) -> None:
    """Lift the suspension that a failed question left behind; first find out why it failed.

    The owner's word: whether it failed may have told something of one person.
    """
    with closing(Ledger.at(path)) as opened:
        opened.resume(analyst)
        report = resumed(opened.budget)
    publish(report, form)


# -- schemas -----------------------------------------------------------------------------------------------------------
# `dpsql init` and `dpsql check`: the owner's side.

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

    from dpsql.cli.schemas import begin_schema  # late: it loads the engine, and --help does not wait for it

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

    from dpsql.cli.schemas import check_schema, look_at_data  # late: as above

    if not data:
        publish(check_schema(schema, db), form)
        return
    report, refused = look_at_data(schema, db)
    publish(report, form)
    if refused:
        raise typer.Exit(FAILED)
