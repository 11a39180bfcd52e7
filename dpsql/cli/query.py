"""How answers, explanations and accounts are shown on the command line."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

import typer

from dpsql.accounting.ledger.journal import SHOWN
from dpsql.cli.options import (
    Analyst,
    BudgetDelta,
    BudgetEpsilon,
    Database,
    Form,
    LedgerFile,
    SchemaFile,
    Sql,
    Timeout,
    open_session,
    read_texts,
    with_query_options,
)
from dpsql.cli.output import CommandReport, publish, respelled_note, table, waiting
from dpsql.errors import split_explain
from dpsql.listing import list_asked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dpsql.accounting.budget import Budget
    from dpsql.accounting.ledger.chain import VerifyReport
    from dpsql.accounting.ledger.declaration import Declaration
    from dpsql.accounting.ledger.journal import Entry
    from dpsql.accounting.ledger.ledger import AnalystAccount
    from dpsql.connection import Connection
    from dpsql.explain import Explanation
    from dpsql.listing import Listing
    from dpsql.options import QueryOptions
    from dpsql.result import Receipt, Result, ResultColumn

LIMITS = ("budget", "default limit", "question limit")
"""The states of entries whose 0 means: nothing may be spent."""
WIDEST_CELL = 200
"""A text is cut after so many characters in a table; JSON and CSV have all of it."""


def ask(connection: Connection, sql: str, **options: Unpack[QueryOptions]) -> CommandReport:
    """The answer, after its charge; EXPLAIN, SHOW TABLES and DESCRIBE are free."""
    listing = list_asked(sql, connection.session.environment.schema)
    if listing is not None:
        return listed(listing)
    if split_explain(sql)[0]:
        return explained(connection.explain(sql, **options))
    return answered(connection.execute(sql, **options).result, connection.budget)


def listed(listing: Listing) -> CommandReport:
    document = {"rows": [dict(zip(listing.names, row, strict=True)) for row in listing]}
    return CommandReport(document, listing.names, listing.rows, table(listing.names, listing.rows))


def answered(result: Result, budget: Budget) -> CommandReport:
    from dpsql.result import LEVEL, with_error  # late: it loads the pipeline, and --help does not wait for it

    ends = [
        [column.interval(row, value, LEVEL) for value, column in zip(row, result.columns, strict=False)]
        for row in result.full_rows
    ]
    rows = result.cells_with_ends()
    cells = [[with_error(*cell) for cell in row] for row in rows]
    notes = result.notes_below(rows)
    noisy = [column.is_noisy for column in result.columns]
    names = [name for column in result.columns for name in _with_ends(column.name, column.is_noisy)]
    document = {
        "columns": [
            {
                "name": column.name,
                "type": column.type,
                "noise_only": column.noise_only,
                "left_out": column.not_counted,
            }
            for column in result.columns
        ],
        "rows": result.rows,
        "intervals": ends,
        "level": LEVEL,
        "receipt": {
            "epsilon": result.receipt.epsilon,
            "delta": result.receipt.delta,
            "mechanism": result.receipt.mechanism,
            "recalled": result.receipt.recalled,
            "asked": result.receipt.asked,
            "data": result.receipt.data,
            "refused": result.receipt.refused,
            "entry": result.receipt.number,
        },
        "notes": notes,
        "remaining": budget.remaining,
    }
    return CommandReport(
        document,
        names,
        [list(_flat(row, pairs, noisy)) for row, pairs in zip(result.rows, ends, strict=True)],
        table(result.headings, cells, numbers=map(_is_number, result.columns)),
        "\n".join((paid(result.receipt, budget), *map(respelled_note, notes))),
    )


def _is_number(column: ResultColumn) -> bool:
    """Keys are labels, so numeric keys are left-aligned, like text."""
    from dpsql.connection import NUMBER  # late, as above

    return column.is_noisy or (not column.is_key and column.type == NUMBER)


def _with_ends(name: str, noisy: bool) -> tuple[str, ...]:
    return (name, f"{name}_low", f"{name}_high") if noisy else (name,)


def _flat(row: Iterable[Any], pairs: Iterable[tuple[float, float] | None], noisy: Iterable[bool]) -> Iterator[Any]:
    for value, pair, has_ends in zip(row, pairs, noisy, strict=True):
        yield value
        if has_ends:
            yield from pair or (None, None)


def paid(receipt: Receipt, budget: Budget) -> str:
    from dpsql.result import asked_on  # late, as above

    cost = f"cost: epsilon {receipt.epsilon:.4g}, {receipt.mechanism} noise"
    return f"{f'free: {asked_on(receipt.asked)}' if receipt.recalled else cost}; left: {left(budget)}"


def left(budget: Budget) -> str:
    return f"epsilon {budget.remaining.epsilon:.4g} of {budget.epsilon:.4g}"


def explained(explanation: Explanation, *, sql: bool = False) -> CommandReport:
    lines = list(explanation.lines(sql=sql))
    rows = [line.split(maxsplit=1) for line in lines]
    return CommandReport(asdict(explanation), ("what", "how"), rows, "\n".join(lines))


def account(budget: Budget, verbose: bool = False) -> CommandReport:
    document = {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "queries": budget.queries,
        "spent": budget.spent,
        "remaining": budget.remaining,
        "suspended": [suspension._asdict() for suspension in budget.suspended],
        **({"one_query": {k: float(v) for k, v in budget.question._asdict().items()}} if budget.question else {}),
        **({"over_time": (budget.dataset or budget).over_time} if (budget.dataset or budget).over_time else {}),
        **({"lifetime": _lifetime(budget)} if (budget.dataset or budget).lifetime else {}),
        **({"basic": budget.basic, "advanced": budget.advanced} if verbose else {}),
    }
    names = ("of", "epsilon", "delta")
    rows = [
        ("budget", budget.epsilon, budget.delta),
        ("spent", *budget.spent),
        ("remaining", *budget.remaining),
    ]
    return CommandReport(document, names, rows, f"{budget}\n{budget.comparison()}" if verbose else str(budget))


def _lifetime(budget: Budget) -> dict[str, object]:
    most = (budget.dataset or budget).lifetime
    assert most is not None
    return {"epsilon": most.epsilon, "delta": most.delta, "spent": most.spent}


def listed_analysts(accounts: Sequence[AnalystAccount]) -> CommandReport:
    """Everyone on record, then the names that are not listed and questions without a name."""
    names = ("analyst", "limit", "spent", "left", "queries", "one query", "state")
    rows = [
        (
            one.analyst,
            None if one.allowed.own is None else one.budget.epsilon,
            one.budget.spent.epsilon,
            0.0 if one.allowed.revoked else one.budget.remaining.epsilon,
            one.budget.queries,
            None if one.allowed.question is None else float(one.allowed.question.epsilon),
            _standing(one),
        )
        for one in accounts
    ]
    cells = [
        ("(no name)" if row[0] is None else row[0], *("" if cell is None else _figure(cell) for cell in row[1:]))
        for row in rows
    ]
    document = {"analysts": [dict(zip(names, row, strict=True)) for row in rows]}
    return CommandReport(document, names, rows, table(names, cells, numbers=[False, *[True] * 5, False]))


def _figure(cell: object) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _standing(one: AnalystAccount) -> str:
    if one.allowed.revoked is not None:
        return "revoked"
    if one.suspended:
        return "suspended"
    if one.allowed.is_listed:
        return "listed"
    return "without a limit" if one.allowed.own is None else "not listed"


def entries(history: list[Entry], budget: Budget) -> CommandReport:
    seen = [entry.shown() for entry in history]
    rows = [list(entry.values()) for entry in seen]
    document = {"entries": seen, "budget": account(budget).document}
    names = [name for name in SHOWN if name != "analyst" or any(entry.analyst for entry in history)]
    cells = [[_cell(name, entry[name], is_limit=entry["state"] in LIMITS) for name in names] for entry in seen]
    numbers = [name in ("number", "epsilon", "delta") for name in names]
    return CommandReport(document, SHOWN, rows, table(names, cells, numbers=numbers), str(budget))


def _cell(name: str, value: Any, *, is_limit: bool) -> str:
    if name in ("epsilon", "delta"):
        return f"{value:.4g}" if value or is_limit else ""
    text = " ".join(str("" if value is None else value).split())
    return text if len(text) <= WIDEST_CELL else f"{text[: WIDEST_CELL - 3]}..."


def resumed(budget: Budget) -> CommandReport:
    report = account(budget)
    still = "".join(f"\nstill suspended: {suspension}" for suspension in budget.suspended)
    return replace(report, text=f"resumed and recorded{still}")


def accepted(declared: Declaration | None) -> CommandReport:
    changes = () if declared is None else declared.changed
    text = "already on record" if declared is None else f"accepted and recorded: {declared}"
    return CommandReport({"changes": changes}, ("change",), [(change,) for change in changes], text)


def verified(found: VerifyReport) -> CommandReport:
    document = asdict(found)
    return CommandReport(document, list(document), [list(document.values())], str(found))


def with_roles(report: CommandReport, roles: Mapping[str, str]) -> CommandReport:
    return replace(
        report,
        document=report.document | {"roles": dict(roles)},
        text="\n".join([str(report.text), *described_roles(roles)]),
    )


def described_roles(roles: Mapping[str, str]) -> list[str]:
    words = {"owns": "owns the ledger, and may change budgets", "asks": "asks, and cannot change budgets"}
    return [f"role {role}: {words[kind]}" for role, kind in roles.items()]


# -- questions ---------------------------------------------------------------------------------------------------------
# `dpsql query`, `dpsql explain` and `dpsql shell`.


@with_query_options
def query(
    sql: Sql,
    db: Database,
    schema: SchemaFile,
    budget: BudgetEpsilon = None,
    session_delta: BudgetDelta = None,
    ledger: LedgerFile = None,
    analyst: Analyst = None,
    timeout: Timeout = None,
    form: Form = None,
    **options: Any,
) -> None:
    """Run a query, charge the budget, and show the answer, with ± at 95 % where known.

    Prefix the query with EXPLAIN to see its cost, free.
    """
    with (
        waiting("asking"),
        open_session(
            db, schema, budget=budget, delta=session_delta, ledger=ledger, analyst=analyst, timeout=timeout
        ) as connection,
    ):
        report = ask(connection, _text(sql), **read_texts(options))
    publish(report, form)


@with_query_options
def explain(
    sql: Sql,
    db: Database,
    schema: SchemaFile,
    budget: BudgetEpsilon = None,
    session_delta: BudgetDelta = None,
    ledger: LedgerFile = None,
    analyst: Analyst = None,
    show_sql: Annotated[bool, typer.Option("--sql", help="Also show the SQL that would run on the data.")] = False,
    form: Form = None,
    **options: Any,
) -> None:
    """Show a query's cost, plan and accuracy. Free."""
    with open_session(db, schema, budget=budget, delta=session_delta, ledger=ledger, analyst=analyst) as connection:
        report = explained(connection.explain(_text(sql), **read_texts(options)), sql=show_sql)
    publish(report, form)


def _text(sql: str) -> str:
    return sys.stdin.read() if sql == "-" else sql


@with_query_options
def shell(
    db: Database,
    schema: SchemaFile,
    budget: BudgetEpsilon = None,
    session_delta: BudgetDelta = None,
    ledger: LedgerFile = None,
    analyst: Analyst = None,
    timeout: Timeout = None,
    **options: Any,
) -> None:
    """Run queries interactively, with completion, history and the remaining budget."""
    if not sys.stdin.isatty():
        raise typer.BadParameter("the shell needs a terminal; to run a file, use  dpsql query - < file.sql")
    # Late: what draws a prompt takes long to load, and other commands wait for nothing.
    from prompt_toolkit.history import FileHistory

    from dpsql.cli.shell import HISTORY, WELCOME, Shell

    history = Path.home() / HISTORY
    history.touch(mode=0o600)
    opened = open_session(
        db, schema, budget=budget, delta=session_delta, ledger=ledger, analyst=analyst, timeout=timeout
    )
    with opened as connection:
        print(WELCOME)
        Shell(connection, read_texts(options), FileHistory(str(history))).run()
