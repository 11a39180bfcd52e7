"""The owner's commands: `init`, `check`, `ledger show`, `verify`, `resume` and `accept-schema`."""

import json
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from dpsql.accounting.ledger.declaration import Declaration
from dpsql.accounting.ledger.ledger import Ledger
from dpsql.accounting.ledger.store import is_server
from dpsql.cli.budget import AnyDatabase
from dpsql.cli.options import Form, LedgerFile, ledger_path
from dpsql.cli.output import FAILED, CommandReport, publish
from dpsql.cli.query import accepted, described_roles, entries, resumed, verified, with_roles
from dpsql.errors import ProgrammingError

# -- the ledger --------------------------------------------------------------------------------------------------------
# `dpsql ledger show`, `verify`, `resume` and `accept-schema`.

LedgerPath = Annotated[
    str, typer.Argument(metavar="LEDGER", help="The ledger, a file such as shop.duckdb.ledger, or postgresql://...")
]
AskingRole = Annotated[str, typer.Argument(metavar="ROLE", help="A role of the PostgreSQL server.")]
SchemaArgument = Annotated[Path, typer.Argument(metavar="SCHEMA", help="The schema's file.")]
Analyst = Annotated[
    str | None,
    typer.Option("--analyst", help="The analyst to reinstate; by default, queries without an analyst's name."),
]

Head = Annotated[
    str | None, typer.Option("--head", metavar="<hash>", help="A head that was noted elsewhere, to notice an old copy.")
]
PublicKey = Annotated[
    Path | None, typer.Option("--key", metavar="<file>", help="The owner's public key, to check the seals.")
]
Whose = Annotated[str | None, typer.Option("--analyst", help="Only the entries of this analyst.")]

ledger_app = typer.Typer(no_args_is_help=True, help="Show what was asked and spent, or verify the ledger.")


@ledger_app.command()
def show(path: LedgerPath, analyst: Whose = None, form: Form = None) -> None:
    """List what was asked and what it cost."""
    with closing(Ledger.at(path, analyst)) as opened:
        report = entries(
            opened.history(analyst=analyst),
            opened.dataset_budget if analyst is None else opened.analyst_budget or opened.budget,
        )
    publish(report, form)


@ledger_app.command()
def verify(path: LedgerPath, head: Head = None, key: PublicKey = None, form: Form = None) -> None:
    """Check every entry, hash and running total, and on a server the roles; exit code 1 if one is broken.

    With --head also that this is no older copy, with --key the seals.
    """
    with closing(Ledger.at(path)) as opened:
        report = verified(opened.verify(head, key))
    if is_server(path):
        from dpsql.accounting.ledger.postgres import roles_of  # late: it loads the driver

        report = with_roles(report, roles_of(path))
    publish(report, form)


@ledger_app.command("key")
def make_key(path: Annotated[Path, typer.Argument(metavar="FILE", help="The private key, such as owner.key.")]) -> None:
    """Make an Ed25519 key to seal entries with, and FILE.pub for those who verify them. For the data owner."""
    from dpsql.accounting.ledger import seal  # late: it loads cryptography

    public = seal.make_key(path)
    print(f"wrote {path}, which is secret, and {public} for everybody")


@ledger_app.command()
def seal(
    path: LedgerPath,
    key: Annotated[Path, typer.Option("--key", metavar="<file>", help="The private key, of dpsql ledger key.")],
) -> None:
    """Sign every entry that is not signed yet. For the data owner.

    The key is needed here alone: keep it where no questions are asked.
    """
    with closing(Ledger.at(path)) as opened:
        last = opened.seal(key)
    print(f"sealed up to entry {last}")


@ledger_app.command()
def receipt(
    path: LedgerPath, number: Annotated[int, typer.Argument(metavar="ENTRY", help="The entry's number.")]
) -> None:
    """Print one entry and its seal as JSON, for dpsql verify."""
    with closing(Ledger.at(path)) as opened:
        print(json.dumps(opened.receipt(number), ensure_ascii=False))


@ledger_app.command()
def export(path: LedgerPath) -> None:
    """Print all entries, seals and the head as JSON lines, for auditors and dpsql verify."""
    with closing(Ledger.at(path)) as opened:
        for line in opened.export():
            print(line)


def verify_offline(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A receipt or an export.")],
    head: Head = None,
    key: PublicKey = None,
    form: Form = None,
) -> None:
    """Check a receipt or an export of a ledger, without the ledger; exit code 1 if it was changed."""
    from dpsql.accounting.ledger import seal  # late, as above

    checked = seal.verify_file(file, None if key is None else seal.public_key(key), head)
    document = checked._asdict()
    publish(CommandReport(document, list(document), [list(document.values())], str(checked)), form)


@ledger_app.command("grant")
def grant_role(path: LedgerPath, role: AskingRole) -> None:
    """Let a role of the server ask and be charged; it cannot change budgets, resume or accept a schema.

    For the role that owns the ledger, which keeps these to itself.
    """
    if not is_server(path):
        raise ProgrammingError("a file has no roles", hint="who may write the file may change it: use a server instead")
    from dpsql.accounting.ledger.postgres import grant_asking, roles_of  # late: it loads the driver

    grant_asking(path, role)
    print("\n".join(described_roles(roles_of(path))))


@ledger_app.command()
def resume(path: LedgerPath, analyst: Analyst = None, form: Form = None) -> None:
    """Lift a suspension after a failed query; first find out why it failed.

    For the data owner: the failure itself may have revealed something about one person.
    """
    with closing(Ledger.at(path)) as opened:
        opened.resume(analyst)
        report = resumed(opened.dataset_budget)
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


def disclose(
    schema: Annotated[Path, typer.Option("--schema", envvar="DPSQL_SCHEMA", help="The schema.", show_default=False)],
    db: AnyDatabase = None,
    ledger: LedgerFile = None,
    style: Annotated[str, typer.Option("--format", metavar="<style>", help="markdown, json or html.")] = "markdown",
) -> None:
    """Print what is promised, to whom, and how: a page to publish. Nothing in it is private.

    Every number follows from the ledger, which is verified first. For the data owner.
    """
    from dpsql.cli import disclosure  # late: it loads the schema's parser
    from dpsql.schema import load_schema

    if style not in ("markdown", "json", "html"):
        raise typer.BadParameter("write markdown, json or html", param_hint="'--format'")
    with closing(Ledger.at(ledger_path(db, ledger))) as opened:
        document = disclosure.disclosed(opened, load_schema(schema))
    if style == "json":
        print(json.dumps(document, ensure_ascii=False, indent=2))
    else:
        print({"markdown": disclosure.as_markdown, "html": disclosure.as_html}[style](document), end="")


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
