"""`dpsql query`, `dpsql explain` and `dpsql shell`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from dpsql.cli.options import (
    Accuracy,
    Analyst,
    BudgetDelta,
    BudgetEpsilon,
    Database,
    Epsilon,
    Form,
    LedgerFile,
    MaxGroups,
    MaxRows,
    Mechanism,
    Propose,
    SchemaFile,
    Sql,
    open_session,
)
from dpsql.cli.output import publish, waiting
from dpsql.cli.reports import ask, explained

Fresh = Annotated[bool, typer.Option("--fresh", help="Draw new noise, and pay, for a question asked before.")]


def query(
    sql: Sql,
    db: Database,
    schema: SchemaFile,
    epsilon: Epsilon = None,
    budget: BudgetEpsilon = None,
    delta: BudgetDelta = None,
    ledger: LedgerFile = None,
    analyst: Analyst = None,
    accuracy: Accuracy = None,
    mechanism: Mechanism = None,
    propose: Propose = None,
    max_groups: MaxGroups = None,
    max_rows_per_group: MaxRows = None,
    fresh: Fresh = False,
    form: Form = None,
) -> None:
    """Ask a question, pay for it, and see the answer, with ± at 95 % where the error is known.

    EXPLAIN before the question shows what it would cost, free.
    """
    with (
        waiting("asking"),
        open_session(db, schema, budget=budget, delta=delta, ledger=ledger, analyst=analyst) as connection,
    ):
        report = ask(
            connection,
            _text(sql),
            epsilon=epsilon,
            accuracy=_accuracy(accuracy),
            mechanism=mechanism,
            propose=propose,
            max_groups=_count(max_groups),
            max_rows_per_group=_count(max_rows_per_group),
            fresh=fresh,
        )
    publish(report, form)


def explain(
    sql: Sql,
    db: Database,
    schema: SchemaFile,
    epsilon: Epsilon = None,
    budget: BudgetEpsilon = None,
    delta: BudgetDelta = None,
    ledger: LedgerFile = None,
    analyst: Analyst = None,
    accuracy: Accuracy = None,
    mechanism: Mechanism = None,
    propose: Propose = None,
    max_groups: MaxGroups = None,
    max_rows_per_group: MaxRows = None,
    form: Form = None,
) -> None:
    """See what a question would cost, how it would be answered and how exactly. Free."""
    with open_session(db, schema, budget=budget, delta=delta, ledger=ledger, analyst=analyst) as connection:
        report = explained(
            connection.explain(
                _text(sql),
                epsilon=epsilon,
                accuracy=_accuracy(accuracy),
                mechanism=mechanism,
                propose=propose,
                max_groups=_count(max_groups),
                max_rows_per_group=_count(max_rows_per_group),
            )
        )
    publish(report, form)


def _text(sql: str) -> str:
    return sys.stdin.read() if sql == "-" else sql


def _count(text: str | None) -> int | str | None:
    """A number as one; the session says what else there can be."""
    return int(text) if text is not None and text.isdecimal() else text


def _accuracy(asked: str | None) -> str | float | None:
    """A number where it is one; else the text, of which dpsql says what it should be."""
    try:
        return None if asked is None else float(asked)
    except ValueError:
        return asked


def shell(
    db: Database,
    schema: SchemaFile,
    epsilon: Epsilon = None,
    budget: BudgetEpsilon = None,
    delta: BudgetDelta = None,
    ledger: LedgerFile = None,
    analyst: Analyst = None,
) -> None:
    """Ask question after question, with completion, history and what is left in sight."""
    if not sys.stdin.isatty():
        raise typer.BadParameter("the shell needs a terminal; for a file use  dpsql query - < file.sql")
    # Late: what draws a prompt takes long to load, and other commands wait for nothing.
    from prompt_toolkit.history import FileHistory

    from dpsql.cli.shell import HISTORY, WELCOME, Shell

    history = Path.home() / HISTORY
    history.touch(mode=0o600)
    opened = open_session(db, schema, budget=budget, delta=delta, ledger=ledger, analyst=analyst, epsilon=epsilon)
    with opened as connection:
        print(WELCOME)
        Shell(connection, FileHistory(str(history))).run()
