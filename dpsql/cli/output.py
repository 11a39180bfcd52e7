"""How a command speaks: reports on stdout for people, as JSON or as CSV; errors and waiting on stderr.

rich.progress is imported by what draws with it: a command whose output is piped does not wait for it.

Errors are one sentence, the caret and the hint, or JSON; the exit code says which kind it was.

| code | meaning |
|---|---|
| 0 | done |
| 1 | refused or failed; nothing was charged |
| 2 | the command line is wrong |
| 3 | the budget does not cover the query; nothing was charged |
| 4 | the query failed or timed out after it was charged: asking again costs again |
| 5 | an earlier query failed so, and the data owner has not looked yet; nothing was charged |
"""

from __future__ import annotations

import csv
import json
import math
import re
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dpsql.errors import AccountSuspended, BudgetExhausted, Error, QueryTimeout, SchemaError, SealedExecutionError
from dpsql.options import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

# -- errors ------------------------------------------------------------------------------------------------------------

FAILED = 1
CODES: dict[type[Error], int] = {BudgetExhausted: 3, SealedExecutionError: 4, QueryTimeout: 4, AccountSuspended: 5}
IN_HINTS = "|".join(("budget", "timeout", *OPTIONS))


def exit_code(problem: Error) -> int:
    return CODES.get(type(problem), FAILED)


def drawn(problem: Error, options: str = IN_HINTS, mark: str = "--") -> str:
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


def _respelled(hint: str | None, options: str = IN_HINTS, mark: str = "--") -> str | None:
    def option(found: re.Match[str]) -> str:
        return f"{mark}{found[1].replace('_', '-')} {found[3]}"

    return hint and re.sub(rf'\b({options})=("?)([^\s,;"]+)\2', option, hint)


# -- output ------------------------------------------------------------------------------------------------------------

PATIENCE = 1.0
"""Seconds before a query shows that it is still running."""
UNLIMITED = 100_000
"""What is piped into a file or a program is not cut to the width of a screen."""


@dataclass(frozen=True)
class CommandReport:
    """What a command found out, in its three forms."""

    document: dict[str, Any]
    names: Sequence[str]
    rows: Sequence[Sequence[object]]
    text: Table | str
    note: str = ""
    """A line below the text."""


def publish(report: CommandReport, form: bool | None) -> None:
    """`form` is the choice of options.Form."""
    if form is True:
        print(json.dumps(_plain(report.document), ensure_ascii=False, default=str))
    elif form is False:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(report.names)
        writer.writerows(report.rows)
    else:
        _show(report)


def _show(report: CommandReport) -> None:
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = UNLIMITED
    # Lines of text are left as they are: a terminal wraps them, and what is copied from it is what was printed.
    console.print(report.text, soft_wrap=isinstance(report.text, str))
    if report.note:
        console.print(Text(report.note, style="dim"), soft_wrap=True)


def table(names: Iterable[str], rows: Iterable[Iterable[object]], *, numbers: Iterable[bool] = ()) -> Table:
    """A table of cells; columns of `numbers` are aligned to the right."""
    right = list(numbers)
    drawn = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for position, name in enumerate(names):
        is_number = position < len(right) and right[position]
        drawn.add_column(Text(printable(name)), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(printable(str(cell))) for cell in row))
    return drawn


def printable(text: str) -> str:
    """A terminal obeys control characters, and names and values may hold any.

    >>> printable("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    return "".join(mark if mark.isprintable() else repr(mark)[1:-1] for mark in text)


def _plain(value: Any) -> Any:
    """JSON has no infinity, and nothing that is not a number."""
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[], None]]:
    """On a terminal, a bar that grows with every call of what is given."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=total)
        yield lambda: progress.advance(task)


@contextmanager
def counting_rows(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """On a terminal, a bar that grows by as many rows as it is told; one that only moves where the total is unknown."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} rows"),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=total)
        yield lambda rows: progress.advance(task, rows)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """On a terminal, what takes longer than a second shows a spinner and the time."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    progress = Progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console)
    progress.live.transient = True
    progress.add_task(what, total=None)
    timer = threading.Timer(PATIENCE, progress.start)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # a start under way is over before the stop
        progress.stop()
