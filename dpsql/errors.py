"""The errors that dpsql raises.

    Warning
    Error
    ├── InterfaceError             the connection or cursor was misused
    └── DatabaseError
        ├── DataError              required by PEP 249, never raised
        ├── IntegrityError         required by PEP 249, never raised
        ├── InternalError          dpsql refused to do what would have leaked: a bug, please report it
        ├── OperationalError
        │   ├── BudgetExhausted        the query costs more than is left
        │   ├── AccountSuspended       an earlier query ended without an answer; the data owner has to resume
        │   ├── LedgerError            the ledger cannot be read or written, or has another budget
        │   ├── QueryTimeout           the query took longer than the timeout; its charge stands
        │   └── SealedExecutionError   the query failed after its charge; the engine's message is withheld
        ├── ProgrammingError           an option or a parameter makes no sense
        │   ├── SqlSyntaxError         the SQL does not parse
        │   ├── UnknownName            a table, a column or a function is not declared
        │   ├── UnboundedColumn        a sum needs bounds on a column
        │   └── SchemaError            the declaration is wrong, or does not match the database
        └── NotSupportedError
            └── Unsupported            the query is valid but cannot be answered privately

An error is a value: one sentence that states the problem, the place in the SQL, and a hint with the way out. `str()`
renders it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context
from difflib import get_close_matches
from numbers import Number
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# What a hint says to ask for must fit: three digits, never more than is there.
DOWN = Context(prec=3, rounding=ROUND_FLOOR)


class Warning(UserWarning):  # noqa: A001 - the name is fixed by PEP 249
    """A caveat of a query or a budget that dpsql accepts all the same; see `Cursor.messages`."""


WHO_AND_SECRET = re.compile(r"(:/{1,2}[^:/@?\s]*):[^@/\s]*@")
SECRET_OPTION = re.compile(r"([?&;])(?:password|sslpassword|token)=[^&;\s'\"]*(&)?", re.IGNORECASE)


def without_password(text: str) -> str:
    """A text in which URLs may stand, as it may be shown and logged.

    >>> without_password("postgresql://me:secret@host/db"), without_password("sc://host/;token=secret;user_id=me")
    ('postgresql://me@host/db', 'sc://host/;user_id=me')
    >>> without_password("no ledger postgresql://host/db?password=secret&schema=shop")
    'no ledger postgresql://host/db?schema=shop'
    """
    return SECRET_OPTION.sub(lambda found: found[1] if found[2] else "", WHO_AND_SECRET.sub(r"\1@", text))


class Error(Exception):
    """The base class of all dpsql errors. `str()` shows the problem, its place in the SQL, and the hint."""

    problem: str
    """One sentence that says what is wrong."""
    at: Place | None
    """The place in the SQL, if there is one."""
    hint: str | None
    """The way out, if there is one."""

    def __init__(self, problem: str, *, at: Place | None = None, hint: str | None = None) -> None:
        problem = without_password(problem)
        super().__init__(problem)
        self.problem = problem
        self.at = at
        self.hint = None if hint is None else without_password(hint)

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: only the message, without a traceback; the cell still stops."""
        return [f"{type(self).__name__}: {self}"]

    def __str__(self) -> str:
        lines = [self.problem]
        if self.at is not None:
            lines.append(self.at.drawn())
        if self.hint is not None:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


class InterfaceError(Error):
    """The connection, the cursor or a frame was misused, for example after it was closed."""


class DatabaseError(Error):
    """The base class of errors about the query, the data or the budget."""


class DataError(DatabaseError):
    """Required by PEP 249; dpsql never raises it, because no error may depend on the data."""


class IntegrityError(DatabaseError):
    """Required by PEP 249; dpsql never raises it, because it never writes data."""


class InternalError(DatabaseError):
    """dpsql stopped before it would have read private rows for free. This is a bug; please report it."""


class OperationalError(DatabaseError):
    """The database, the ledger or the budget prevents the query; the query itself is valid."""


class ProgrammingError(DatabaseError):
    """The query, an option or a parameter is wrong."""


class NotSupportedError(DatabaseError):
    """dpsql does not do this, or an optional package is missing."""


class BudgetExhausted(OperationalError):
    """The query costs more than is left of the budget. Nothing was charged."""

    requested: float
    """The epsilon of the query."""
    remaining: float
    """The largest epsilon that still fits."""
    fitting: float
    """The same, rounded down to three digits."""

    def __init__(
        self, requested: float, remaining: float, *, problem: str | None = None, hint: str | None = None
    ) -> None:
        fitting = float(DOWN.create_decimal(repr(remaining)))
        way_out = f"use epsilon={fitting:g} or less" if fitting else "repeat earlier queries, which is free"
        super().__init__(
            problem or f"the query costs epsilon {requested:.6g}, but only {remaining:.6g} is left",
            hint=hint or f"{way_out}; or ask the data owner for more",
        )
        self.requested = requested
        self.remaining = remaining
        self.fitting = fitting


class AccountSuspended(OperationalError):
    """The account is suspended, revoked or not on the owner's list. Nothing new is answered or charged."""


class LedgerError(OperationalError):
    """The ledger cannot be read or written, was changed, or has another budget on record."""


class SealedExecutionError(OperationalError):
    """The query failed after its charge. The engine's message may quote a person's data, so it is withheld."""


class QueryTimeout(OperationalError):
    """The query took longer than the timeout. The charge stands, and too many in a day suspend the analyst."""


class SqlSyntaxError(ProgrammingError):
    """The SQL does not parse. Nothing was charged."""


class UnknownName(ProgrammingError):
    """The query names a table, a column or a function that is not declared. Nothing was charged."""


class UnboundedColumn(ProgrammingError):
    """A sum or an average needs bounds, so that one person's contribution is limited. Nothing was charged."""

    columns: tuple[str, ...]
    """The columns whose bounds would help."""

    def __init__(
        self, problem: str, *, at: Place | None = None, hint: str | None = None, columns: tuple[str, ...] = ()
    ) -> None:
        super().__init__(problem, at=at, hint=hint)
        self.columns = columns


class SchemaError(ProgrammingError):
    """The declaration is wrong, or does not match the database."""

    others: tuple[SchemaError, ...] = ()
    """Everything else that is wrong, so that the owner can fix all of it at once."""

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *map(self._beside, self.others)])

    def _beside(self, other: SchemaError) -> str:
        """Another problem on one line, with its own way out if it has one."""
        return f"also: {other.problem}" + (f"; hint: {other.hint}" if other.hint not in (None, self.hint) else "")

    @classmethod
    def of(cls, problems: Iterable[SchemaError]) -> SchemaError:
        """The first problem, with all others attached."""
        first, *others = problems
        first.others = tuple(others)
        return first


class Unsupported(NotSupportedError):
    """The query is valid but cannot be answered privately; the hint says what to write instead."""


LONGEST_SHOWN = 40
INTERRUPTED_AFTER_CHARGE = "the charge stands"
"""The note of a KeyboardInterrupt that came after the charge."""


def shown_argument(value: object) -> str:
    """A wrong argument as an error shows it: a short word or a number itself, else its type, because it may hold rows.

    >>> shown_argument("amount"), shown_argument(["amount"])
    ("'amount'", 'a list')
    """
    if value is None or isinstance(value, str | Number):
        text = repr(value)
        if len(text) <= LONGEST_SHOWN:
            return text
    kind = type(value).__name__
    return f"{'an' if kind[0].lower() in 'aeio' else 'a'} {kind}"


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
    >>> did_you_mean("fare eur", ["Fare EUR", "minutes"])
    'did you mean "Fare EUR"?'
    """
    names = sorted(known)
    spelt = {known_name.lower(): known_name for known_name in names}
    close = [spelt[match] for match in get_close_matches(name.lower(), spelt, n=3, cutoff=0.6)]
    if close:
        return "did you mean " + " or ".join(f'"{match}"' for match in close) + "?"
    if names and len(names) <= 12:
        return "available: " + ", ".join(f'"{known_name}"' for known_name in names)
    return None


def split_explain(sql: str) -> tuple[bool, str]:
    """Whether the text is EXPLAIN <query>, and the query, padded with blanks to preserve positions.

    >>> split_explain("EXPLAIN SELECT 1")
    (True, '        SELECT 1')
    """
    found = LEADING_EXPLAIN.match(sql)
    if found is None:
        return False, sql
    blank = re.sub(r"[^\n]", " ", sql[: found.end()])
    return True, (blank + sql[found.end() :])
