"""`dpsql budget`, and `dpsql ledger show`, `verify` and `resume`."""

from contextlib import closing
from typing import Annotated

import typer

from dpsql.accounting.ledger.ledger import Ledger
from dpsql.cli.options import Form, LedgerFile, ledger_path
from dpsql.cli.output import publish
from dpsql.cli.reports import account, entries, resumed, verified

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
Analyst = Annotated[
    str | None, typer.Option("--analyst", help="Whose questions are answered again; those without a name if not given.")
]

ledger_app = typer.Typer(no_args_is_help=True, help="Look at the account of what was asked and spent.")


def budget(db: AnyDatabase = None, ledger: LedgerFile = None, form: Form = None) -> None:
    """See what may be spent, is spent and is left."""
    with closing(Ledger.at(ledger_path(db, ledger))) as opened:
        report = account(opened.budget)
    publish(report, form)


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
