"""`dpsql budget`, and `dpsql ledger show` and `verify`."""

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from dpsql.accounting.ledger import Ledger
from dpsql.cli.options import Form, LedgerFile, ledger_path
from dpsql.cli.output import publish
from dpsql.cli.reports import account, entries, verified

AnyDatabase = Annotated[
    Path | None,
    typer.Option("--db", envvar="DPSQL_DB", help="The database whose ledger lies beside it.", show_default=False),
]
LedgerPath = Annotated[Path, typer.Argument(metavar="LEDGER", help="The account's file, such as shop.duckdb.ledger.")]

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
