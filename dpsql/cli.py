"""The `dpsql` command. So far it looks after ledgers:

dpsql ledger verify shop.duckdb.ledger     checks every entry, seal and running sum; exit code 1 if one is broken
dpsql ledger show shop.duckdb.ledger       lists what was asked and what it cost
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from dpsql.accounting.ledger import Ledger
from dpsql.errors import Error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.accounting.entries import Entry


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    try:
        ledger = Ledger.at(asked.path)
        try:
            asked.command(ledger)
        finally:
            ledger.close()
    except Error as problem:
        print(f"{type(problem).__name__}: {problem}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dpsql", description="Differentially private SQL.")
    topics = parser.add_subparsers(required=True, metavar="topic")
    ledger = topics.add_parser("ledger", help="the account of what was asked and spent")
    actions = ledger.add_subparsers(required=True, metavar="action")
    for name, command, what in (
        ("verify", _verify, "check every entry, seal and running sum"),
        ("show", _show, "list what was asked and what it cost"),
    ):
        action = actions.add_parser(name, help=what)
        action.add_argument("path", help="the ledger's file")
        action.set_defaults(command=command)
    return parser


def _verify(ledger: Ledger) -> None:
    print(ledger.verify())


def _show(ledger: Ledger) -> None:
    for entry in ledger.history():
        print(_line(entry))
    print(ledger.budget)


def _line(entry: Entry) -> str:
    asked = " ".join((entry.sql or "").split())
    what = f"epsilon {float(entry.epsilon):.4g} delta {float(entry.delta):.3g}" if entry.epsilon else ""
    return f"{entry.number:>5}  {entry.time}  {entry.state:<8}  {what}  {asked}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
