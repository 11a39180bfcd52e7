"""`dpsql shell`: a prompt that completes names, remembers what was typed, and always shows what is left."""

import sys
from pathlib import Path

import typer

from dpsql.cli.options import BudgetDelta, BudgetEpsilon, Database, Epsilon, LedgerFile, SchemaFile, open_session

HISTORY = ".dpsql_history"
WELCOME = "A question ends with a semicolon. EXPLAIN before it is free. Tab completes, .help helps, .quit leaves."


def shell(
    db: Database,
    schema: SchemaFile,
    epsilon: Epsilon = None,
    budget: BudgetEpsilon = None,
    delta: BudgetDelta = 0.0,
    ledger: LedgerFile = None,
) -> None:
    """Ask question after question, with completion, history and what is left in sight."""
    if not sys.stdin.isatty():
        raise typer.BadParameter("the shell needs a terminal; for a file use  dpsql query - < file.sql")
    from prompt_toolkit.history import FileHistory

    from dpsql.cli.prompt import Shell  # late, for only the shell needs the parser's names

    history = Path.home() / HISTORY
    history.touch(mode=0o600)
    with open_session(db, schema, budget=budget, delta=delta, ledger=ledger, epsilon=epsilon) as connection:
        print(WELCOME)
        Shell(connection, FileHistory(str(history))).run()
