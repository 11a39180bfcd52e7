"""The output of commands: reports go to stdout as text, JSON or CSV; errors and progress go to stderr.

rich.progress is imported only where it draws, so a command with piped output does not wait for it.

An error is one sentence, a caret and a hint, or JSON; the exit code gives its kind.

| code | meaning |
|---|---|
| 0 | success |
| 1 | refused or failed; nothing was charged |
| 2 | usage error |
| 3 | the budget does not cover the query; nothing was charged |
| 4 | the query failed or timed out after the charge; repeating it costs again |
| 5 | suspended after an earlier failure, until the data owner resumes; nothing was charged |
| 130 | interrupted by Ctrl-C; the message says if it was charged |
| 143 | ended by SIGTERM; the same |
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

from dpsql.errors import (
    INTERRUPTED_AFTER_CHARGE,
    AccountSuspended,
    BudgetExhausted,
    Error,
    OperationalError,
    QueryTimeout,
    SchemaError,
    SealedExecutionError,
)
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
    """Hints use Python syntax; here options are written as on the command line.

    >>> drawn(Error("too much", hint="use epsilon=0.3 or less"))
    'Error: too much\\nhint: use --epsilon 0.3 or less'
    """
    problem.hint = _respelled(problem.hint, options, mark)
    return f"{type(problem).__name__}: {problem}"


def show_error(problem: Error, *, as_json: bool) -> None:
    print(json.dumps(_document(problem), ensure_ascii=False) if as_json else drawn(problem), file=sys.stderr)


def file_error(problem: OSError) -> OperationalError:
    """What the operating system refused, as an error of ours."""
    why = (problem.strerror or type(problem).__name__).lower()
    path = problem.filename
    told = f"{path}: {why}" if isinstance(path, str) else why
    return OperationalError(told, hint="check that the path and its folder exist, and that you may read or write there")


def after_interrupt(stopped: BaseException | None, where: str) -> str:
    """Whether what was interrupted had been charged, which the pipeline notes in the exception."""
    while stopped is not None and not isinstance(stopped, KeyboardInterrupt):
        stopped = stopped.__cause__ or stopped.__context__
    stands = INTERRUPTED_AFTER_CHARGE in getattr(stopped, "__notes__", ())
    return f" {INTERRUPTED_AFTER_CHARGE.capitalize()}: see {where}" * stands


def show_warning(message: Warning | str) -> None:
    """A user of the command line has no use for a line of our source."""
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
        name = f"{mark}{found[1].replace('_', '-')}"
        return name if found[3] == "True" else f"{name} {found[3]}"

    return hint and re.sub(rf'\b({options})=("?)([^\s,;"]+)\2', option, hint)


def respelled_note(note: str) -> str:
    """A note names an option that would tell more.

    >>> respelled_note("diagnose=True measures what these limits leave out")
    '--diagnose measures what these limits leave out'
    """
    return _respelled(note, "diagnose|empty_groups") or note


# -- output ------------------------------------------------------------------------------------------------------------

PATIENCE = 1.0
"""Seconds until a running query shows a spinner."""
UNLIMITED = 100_000
"""Piped output is not truncated to the width of a screen."""


@dataclass(frozen=True)
class CommandReport:
    """The result of a command, in its three forms."""

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
    """Terminals obey control characters, and names and values may contain any.

    >>> printable("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    return "".join(mark if mark.isprintable() else repr(mark)[1:-1] for mark in text)


def _plain(value: Any) -> Any:
    """JSON has neither infinity nor NaN."""
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[], None]]:
    """On a terminal, a progress bar that advances with each call of the given function."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=total)
        yield lambda: progress.advance(task)


@contextmanager
def counting_rows(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """On a terminal, a progress bar that advances by the given numbers of rows; it pulses if the total is unknown."""
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
    """On a terminal, show a spinner and the elapsed time after one second."""
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
