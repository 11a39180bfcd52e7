"""Everything that dpsql raises on purpose.

    Warning
    Error
    ├── InterfaceError             the connection or cursor was misused
    └── DatabaseError
        ├── DataError
        ├── IntegrityError
        ├── InternalError
        ├── OperationalError
        │   ├── BudgetExhausted        the query costs more than is left
        │   ├── AccountSuspended       an earlier question ended without an answer; the data owner has to look
        │   ├── LedgerError            the budget's file cannot be read or written
        │   ├── QueryTimeout           the session's time limit ended the question; its charge stands
        │   └── SealedExecutionError   the engine failed after the charge; its words stay inside
        ├── ProgrammingError
        │   ├── SqlSyntaxError
        │   ├── UnknownName
        │   ├── UnboundedColumn
        │   └── SchemaError
        └── NotSupportedError
            └── Unsupported            understood, and cannot (yet) be answered privately

An error is a value: one sentence that states the problem, the place in the text, and a hint that leads out. It is drawn
once, by `str()`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# What a hint says to ask for must fit: three digits, never more than is there.
DOWN = Context(prec=3, rounding=ROUND_FLOOR)


class Warning(UserWarning):  # noqa: A001 - the name is fixed by PEP 249
    """What somebody should know about a question or a budget that is accepted all the same; see Cursor.messages."""


class Error(Exception):
    """The root of all dpsql errors."""

    def __init__(self, problem: str, *, at: Place | None = None, hint: str | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.at = at
        self.hint = hint

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the error's own words say enough, and the cell stops all the same."""
        return [f"{type(self).__name__}: {self}"]

    def __str__(self) -> str:
        lines = [self.problem]
        if self.at is not None:
            lines.append(self.at.drawn())
        if self.hint is not None:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


class InterfaceError(Error):
    pass


class DatabaseError(Error):
    pass


class DataError(DatabaseError):
    pass


class IntegrityError(DatabaseError):
    pass


class InternalError(DatabaseError):
    pass


class OperationalError(DatabaseError):
    pass


class ProgrammingError(DatabaseError):
    pass


class NotSupportedError(DatabaseError):
    pass


class BudgetExhausted(OperationalError):
    """The question costs more than is left. Nothing was charged."""

    def __init__(self, requested: float, remaining: float, *, hint: str | None = None) -> None:
        fitting = float(DOWN.create_decimal(repr(remaining)))
        way_out = (
            f"ask with epsilon={fitting:g} or less" if fitting else "ask again what was asked before, which is free"
        )
        super().__init__(
            f"the query asks for epsilon {requested:.6g}, and {remaining:.6g} is left",
            hint=hint or f"{way_out}; or ask the data owner for more",
        )
        self.requested = requested
        self.remaining = remaining
        self.fitting = fitting


class AccountSuspended(OperationalError):
    """An earlier question ended without an answer: nothing new is answered until the owner resumes. Nothing charged."""


class LedgerError(OperationalError):
    pass


class SealedExecutionError(OperationalError):
    """The engine failed after the charge. What it said may quote a person's data, so it is not repeated."""


class QueryTimeout(OperationalError):
    """The session's time limit ended the question. The charge stands, and too many in a day suspend."""


class SqlSyntaxError(ProgrammingError):
    pass


class UnknownName(ProgrammingError):
    pass


class UnboundedColumn(ProgrammingError):
    """`columns` are those whose bounds would help."""

    def __init__(
        self, problem: str, *, at: Place | None = None, hint: str | None = None, columns: tuple[str, ...] = ()
    ) -> None:
        super().__init__(problem, at=at, hint=hint)
        self.columns = columns


class SchemaError(ProgrammingError):
    """`others` are what else is wrong, so that an owner can mend all of it at once."""

    others: tuple[SchemaError, ...] = ()

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *map(self._beside, self.others)])

    def _beside(self, other: SchemaError) -> str:
        """Another problem on one line, with its own way out if it has one."""
        return f"also: {other.problem}" + (f"; hint: {other.hint}" if other.hint not in (None, self.hint) else "")

    @classmethod
    def of(cls, problems: Iterable[SchemaError]) -> SchemaError:
        first, *others = problems
        first.others = tuple(others)
        return first


class Unsupported(NotSupportedError):
    pass


# -- source ------------------------------------------------------------------------------------------------------------
# Offsets in the analyst's text, turned into a line with a caret under the offending piece.

WIDEST_LINE = 160
LEADING_EXPLAIN = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*explain\b", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Place:
    """The characters `start` to `end` (both included, from 0) of `text`."""

    text: str
    start: int
    end: int

    @property
    def marked(self) -> str:
        return self.text[self.start : self.end + 1]

    @property
    def line(self) -> int:
        return self.text.count("\n", 0, self.start) + 1

    @property
    def column(self) -> int:
        return self.start - self._line_start + 1

    @property
    def _line_start(self) -> int:
        return self.text.rfind("\n", 0, self.start) + 1

    def drawn(self) -> str:
        """
        >>> print(Place("SELECT SUM(x)", 11, 11).drawn())
        LINE 1: SELECT SUM(x)
                           ^
        """
        line_end = self.text.find("\n", self.start)
        line = self.text[self._line_start : None if line_end < 0 else line_end]
        first = self.start - self._line_start
        width = max(1, min(self.end, self._line_start + len(line) - 1) - self.start + 1)
        # A very long line is cut so that the caret stays in sight.
        cut = max(0, min(first - WIDEST_LINE // 2, len(line) - WIDEST_LINE))
        shown = line[cut : cut + WIDEST_LINE].replace("\t", " ")
        label = f"LINE {self.line}: "
        carets = "^" * min(width, max(1, len(shown) - (first - cut)))
        return f"{label}{shown}\n{' ' * (len(label) + first - cut)}{carets}"


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A hint that names the closest known names, or all of them when there are few.

    >>> did_you_mean("amuont", ["amount", "region"])
    'did you mean "amount"?'
    """
    names = sorted(known)
    close = get_close_matches(name.lower(), names, n=3, cutoff=0.6)
    if close:
        return "did you mean " + " or ".join(f'"{match}"' for match in close) + "?"
    if names and len(names) <= 12:
        return "there is " + ", ".join(f'"{known_name}"' for known_name in names)
    return None


def split_explain(sql: str) -> tuple[bool, str]:
    """Whether the text is EXPLAIN <query>, and the query; blanks keep its places as they are in the text.

    >>> split_explain("EXPLAIN SELECT 1")
    (True, '        SELECT 1')
    """
    found = LEADING_EXPLAIN.match(sql)
    if found is None:
        return False, sql
    blank = re.sub(r"[^\n]", " ", sql[: found.end()])
    return True, (blank + sql[found.end() :])
