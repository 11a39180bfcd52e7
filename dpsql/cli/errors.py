"""Errors at the edge: one sentence, the caret and the hint, or JSON; and the exit code that says which kind it was.

| code | meaning |
|---|---|
| 0 | done |
| 1 | refused or failed; nothing was charged |
| 2 | the command line is wrong |
| 3 | the budget does not cover the query; nothing was charged |
| 4 | the query failed after it was charged: asking again costs again |
| 5 | an earlier query failed so, and the data owner has not looked yet; nothing was charged |
"""

from __future__ import annotations

import json
import re
import sys

from dpsql.errors import AccountSuspended, BudgetExhausted, Error, SchemaError, SealedExecutionError

FAILED = 1
CODES: dict[type[Error], int] = {BudgetExhausted: 3, SealedExecutionError: 4, AccountSuspended: 5}
OPTIONS = "epsilon|delta|accuracy|mechanism|propose|max_groups|max_rows_per_group"


def exit_code(problem: Error) -> int:
    return CODES.get(type(problem), FAILED)


def drawn(problem: Error, options: str = OPTIONS, mark: str = "--") -> str:
    """Hints speak Python; here an option is written otherwise.

    >>> drawn(Error("too much", hint="ask with epsilon=0.3 or less"))
    'Error: too much\\nhint: ask with --epsilon 0.3 or less'
    """
    problem.hint = _respelled(problem.hint, options, mark)
    return f"{type(problem).__name__}: {problem}"


def show_error(problem: Error, *, as_json: bool) -> None:
    print(json.dumps(_document(problem), ensure_ascii=False) if as_json else drawn(problem), file=sys.stderr)


def show_warning(message: Warning | str) -> None:
    """Who types a command has no use for a line of our source."""
    print(f"warning: {message}", file=sys.stderr)


def _document(problem: Error) -> dict[str, object]:
    known = {name: getattr(problem, name) for name in ("requested", "remaining") if hasattr(problem, name)}
    place = {} if problem.at is None else {"line": problem.at.line, "column": problem.at.column}
    return {
        "error": type(problem).__name__,
        "problem": problem.problem,
        "hint": _respelled(problem.hint),
        **place,
        **known,
        **({"also": [other.problem for other in problem.others]} if isinstance(problem, SchemaError) else {}),
    }


def _respelled(hint: str | None, options: str = OPTIONS, mark: str = "--") -> str | None:
    def option(found: re.Match[str]) -> str:
        return f"{mark}{found[1].replace('_', '-')} {found[3]}"

    return hint and re.sub(rf'\b({options})=("?)([^\s,;"]+)\2', option, hint)
