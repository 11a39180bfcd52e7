"""What df.dp answers: a cursor that shows itself, each noisy value with its error."""

from __future__ import annotations

from typing import Any

from dpsql.dbapi import Cursor
from dpsql.errors import InterfaceError


class Answer(Cursor):
    """A table: `df()`, `pl()`, `arrow()`, `intervals()`, `receipt`, `plot()`. One number alone is `value`."""

    @property
    def value(self) -> Any:
        """The number, if the answer is one; its error is in `intervals()`."""
        rows = self.result.rows
        if len(rows) != 1 or len(rows[0]) != 1:
            raise InterfaceError(
                f"the answer is a table of {len(rows)} rows and {len(self.result.columns)} columns, not one number",
                hint="use df(), intervals() or fetchall()",
            )
        return rows[0][0]

    def __float__(self) -> float:
        return float(self.value)
