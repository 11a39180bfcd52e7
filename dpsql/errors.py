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
        │   ├── AccountSuspended       an earlier question failed after its charge; the data owner has to look
        │   ├── LedgerError            the budget's file cannot be read or written
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

from decimal import ROUND_FLOOR, Context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dpsql.source import Place

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
    """An earlier question failed after its charge: nothing new is answered until the owner resumes. Nothing charged."""


class LedgerError(OperationalError):
    pass


class SealedExecutionError(OperationalError):
    """The engine failed after the charge. What it said may quote a person's data, so it is not repeated."""


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
