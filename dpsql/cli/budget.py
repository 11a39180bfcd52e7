"""`dpsql budget`: what may be spent, by all together and by each analyst. All but the first command are the owner's."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from dpsql.accounting.ledger.declaration import Declaration
from dpsql.accounting.ledger.ledger import Ledger
from dpsql.accounting.ledger.renewal import read_schedule
from dpsql.accounting.ledger.store import is_there
from dpsql.cli.options import Form, LedgerFile, ledger_path
from dpsql.cli.output import publish, show_warning
from dpsql.cli.query import account, listed_analysts
from dpsql.errors import LedgerError

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
AnySchema = Annotated[
    Path | None,
    typer.Option(
        "--schema", envvar="DPSQL_SCHEMA", help="The schema, for the first budget of a new ledger.", show_default=False
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Compare with other rules of composition.")]
Of = Annotated[str | None, typer.Option("--analyst", help="This analyst's limit; by default the dataset's budget.")]
Others = Annotated[
    bool, typer.Option("--others", help="The limit of each name that is not listed, and of queries without a name.")
]
OneQuery = Annotated[bool, typer.Option("--per-question", help="The most that a single query may cost, not the total.")]
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
Name = Annotated[str, typer.Argument(metavar="ANALYST", help="The analyst's name, as `dpsql budget list` shows it.")]
NOBODY_ELSE = "names that are not listed may spend nothing; to change that:  dpsql budget set EPSILON --others"

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
    """Show the budget, what is spent and what is left; change it, or say what each analyst may spend."""
    if context.invoked_subcommand is not None:
        context.obj = (db, ledger)
        return
    with closing(Ledger.at(ledger_path(db, ledger), analyst)) as opened:
        report = account(opened.dataset_budget if analyst is None else opened.analyst_budget or opened.budget, verbose)
    publish(report, form)


@budget_app.command("set")
def set_budget(
    context: typer.Context,
    epsilon: Total,
    delta: TotalDelta = None,
    analyst: Of = None,
    others: Others = False,
    schema: AnySchema = None,
    db: AnyDatabase = None,
    ledger: LedgerFile = None,
    form: Form = None,
) -> None:
    """Set the budget of the dataset, or the limit of one analyst, whatever it was. For the data owner.

    The first budget of a dataset needs its schema. The first analyst with a limit begins a list: names that are not on
    it may spend nothing.
    """
    path = ledger_path(*_named(context, db, ledger))
    if analyst is None and not others and not is_there(path):
        _begin(path, epsilon, delta, schema)
    with _changed(path, analyst, others, form) as opened:
        opened.set(epsilon, delta, analyst, others=others)


def _begin(path: str, epsilon: str, delta: str | None, schema: Path | None) -> None:
    """A new ledger, before the first question."""
    if schema is None:
        raise LedgerError(
            f"there is no ledger {path} yet, and a new one needs to know what is declared",
            hint="name the schema:  --schema shop.yaml;  or the ledger that is there:  --ledger shop.duckdb.ledger",
        )
    from dpsql.schema import load_schema  # late: it loads the parser of schemas

    loaded = load_schema(schema)
    declared = Declaration.of(loaded.on_record(), loaded.fingerprint)
    Ledger.open(path, dataset=loaded.dataset, epsilon=epsilon, delta=delta, declared=declared).close()


@budget_app.command()
def grant(
    context: typer.Context,
    epsilon: Total,
    delta: TotalDelta = None,
    analyst: Of = None,
    others: Others = False,
    db: AnyDatabase = None,
    ledger: LedgerFile = None,
    form: Form = None,
) -> None:
    """Raise the budget of the dataset, or of one analyst, to a new total. For the data owner.

    The ledger records it. Answers cannot be taken back, so grant a little at a time.
    """
    with _changed(ledger_path(*_named(context, db, ledger)), analyst, others, form) as opened:
        opened.grant(epsilon, delta, analyst, others=others)


@budget_app.command()
def limit(
    context: typer.Context,
    epsilon: Total,
    delta: TotalDelta = None,
    analyst: Of = None,
    others: Others = False,
    per_question: OneQuery = False,
    db: AnyDatabase = None,
    ledger: LedgerFile = None,
    form: Form = None,
) -> None:
    """Lower the budget, set an analyst's first limit, or limit what one query may cost. For the data owner.

    The dataset's budget still applies to all analysts together. An analyst's limit below what is spent means: no more.
    """
    if per_question and others:
        raise typer.BadParameter("a limit per question is for everybody, or for one analyst", param_hint="'--others'")
    with _changed(ledger_path(*_named(context, db, ledger)), analyst, others, form) as opened:
        if per_question:
            opened.limit_questions(epsilon, delta, analyst)
        else:
            opened.limit(epsilon, delta, analyst, others=others)


@budget_app.command()
def revoke(
    context: typer.Context, analyst: Name, db: AnyDatabase = None, ledger: LedgerFile = None, form: Form = None
) -> None:
    """End an analyst's account; an open session is refused at its next charge. For the data owner.

    `dpsql budget set EPSILON --analyst NAME` lifts it.
    """
    with _changed(ledger_path(*_named(context, db, ledger)), analyst, False, form) as opened:
        opened.revoke(analyst)


@budget_app.command()
def renew(
    context: typer.Context,
    every: Annotated[str | None, typer.Option("--every", help="day, week, month, quarter or year.")] = None,
    epsilon: Annotated[str | None, typer.Option("--epsilon", help="The budget of each term.")] = None,
    delta: Annotated[
        str | None, typer.Option("--delta", metavar="<float>", help="Its delta; by default as now.")
    ] = None,
    first: Annotated[str | None, typer.Option("--from", metavar="<day>", help="By default the next period.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="<day>", help="Renew no more from then on.")] = None,
    lifetime: Annotated[
        str | None, typer.Option("--lifetime", help="The most epsilon that all terms may spend together.")
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="End the schedule; the present term goes on.")] = False,
    db: AnyDatabase = None,
    ledger: LedgerFile = None,
    form: Form = None,
) -> None:
    """Have the budget begin anew each month, say, from the beginning of the next one. For the data owner.

    Answers of earlier terms stay known: to a person, all terms add up, unless a lifetime limits them.
    """
    with _changed(ledger_path(*_named(context, db, ledger)), None, False, form) as opened:
        if stop:
            opened.renew_no_more()
            return
        if every is None or epsilon is None:
            raise typer.BadParameter("say when and how much: --every month --epsilon 1", param_hint="'--every'")
        now = opened.dataset_budget.filter.delta
        opened.renew(read_schedule(every, epsilon, now if delta is None else delta, first, until), lifetime)


@budget_app.command("list")
def list_analysts(context: typer.Context, db: AnyDatabase = None, ledger: LedgerFile = None, form: Form = None) -> None:
    """List every analyst on record: the limit, what is spent and left, and who is suspended or revoked."""
    with closing(Ledger.at(ledger_path(*_named(context, db, ledger)))) as opened:
        report = listed_analysts(opened.analysts())
    publish(report, form)


def _named(context: typer.Context, db: str | None, ledger: str | None) -> tuple[str | None, str | None]:
    """The database or its ledger may be named before or after the subcommand."""
    before_db, before_ledger = context.obj
    return db or before_db, ledger or before_ledger


@contextmanager
def _changed(path: str, analyst: str | None, others: bool, form: bool | None) -> Iterator[Ledger]:
    """The ledger to change; afterwards the account that was changed is shown."""
    if others and analyst is not None:
        raise typer.BadParameter("name an analyst, or all others", param_hint="'--others'")
    with closing(Ledger.at(path, analyst)) as opened:
        listed = opened.keeps_a_list
        yield opened
        shown = opened.dataset_budget if analyst is None and not others else opened.analyst_budget
        report = account(shown) if shown else listed_analysts(opened.analysts())
        begins_a_list = opened.keeps_a_list and not listed and not others
    for warned in (*(shown.dangers if shown else ()), *[NOBODY_ELSE] * begins_a_list):
        show_warning(warned)
    publish(report, form)
