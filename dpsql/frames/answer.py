"""What df.dp answers: a cursor that shows itself, each noisy value with its error."""

from __future__ import annotations

from typing import Any

from dpsql.dbapi import Cursor
from dpsql.errors import InterfaceError
from dpsql.result import LEVEL, with_error


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

    def __repr__(self) -> str:
        if self._result is None:  # EXPLAIN answers in lines
            return "\n".join(line for (line,) in self._rows())
        table = [self.result.names]
        for row in self.result.full_rows:
            cells = zip(row, self.result.columns, strict=False)
            table.append([with_error(value, column.interval(row, value, LEVEL)) for value, column in cells])
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        return "\n".join("  ".join(map(str.rjust, line, widths)) for line in table)
