"""The result of a query: rows, column descriptions, error bars, and the receipt."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dpsql.aggregates.estimate import Linear, Ratio, SmoothFunction
from dpsql.aggregates.release import LEVEL as TOTALS
from dpsql.display import numbers
from dpsql.display.html import MOST_ROWS, Cell, table
from dpsql.engines.results import plain_numbers
from dpsql.errors import NotSupportedError, ProgrammingError
from dpsql.intervals import (
    NO_THRESHOLDS,
    NoisyColumns,
    Thresholds,
    for_all,
    half_width,
    interval,
    interval_with_left_out,
)
from dpsql.mechanisms.bootstrap import around_all, bootstrap_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping
    from datetime import datetime

    import numpy as np
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from numpy.typing import NDArray

    from dpsql.accounting.budget import Budget
    from dpsql.accounting.privacy_loss import Cost
    from dpsql.aggregates.estimate import WithError
    from dpsql.engines.results import Cells
    from dpsql.mechanisms.left_out import LeftOut

LEVEL = 0.95
TIMES = ("DATE", "TIMESTAMP")
NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "DOUBLE", "FLOAT", "DECIMAL")
NOISE_ONLY = "± noise only"
UNKNOWN_NOTE = "± ?: the error is unknown, for example because the noise is as large as the value it affects"


def asked_on(time: datetime | None) -> str:
    """
    >>> from datetime import UTC, datetime
    >>> asked_on(datetime(2026, 11, 18, 9, 30, tzinfo=UTC)), asked_on(None)
    ('asked on 2026-11-18 09:30 UTC', 'asked before')
    """
    return "asked before" if time is None else f"asked on {time:%Y-%m-%d %H:%M} UTC"


def is_number(kind: str) -> bool:
    """
    >>> is_number("DECIMAL(18,2)"), is_number("BIGINT[]"), is_number("VARCHAR")
    (True, False, False)
    """
    return kind.startswith(NUMBERS) and not kind.endswith("]")


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """The cost of an answer, and the budget left.

    >>> receipt = conn.execute("SELECT COUNT(*) FROM orders", epsilon=0.25).receipt
    >>> receipt.epsilon, receipt.mechanism, receipt.remaining.epsilon
    (0.25, 'laplace', 0.75)
    """

    cost: Cost
    """The epsilon and the delta that were charged; zero if the answer was recalled."""
    mechanism: str
    """The additive mechanism, such as "laplace"; empty if nothing private was read."""
    recalled: bool
    """Whether this is a stored answer, which costs nothing."""
    asked: datetime | None = None
    """When the stored answer, or the oldest stored part of it, was drawn; None if all is new, or there is no date."""
    data: tuple[str, ...] = ()
    """The owner's names of the data that the answer is of; several if stored parts are of older data."""
    clock: datetime | None = None
    """The time of asking, in UTC, that CURRENT_DATE and NOW() stood for; None if the question does not read it."""
    refused: bool
    """Whether a private test withheld a part of the answer, which is NULL then and partly refunded."""
    number: int | None
    """The number of the charge in the ledger."""
    bounds: tuple[str, ...] = ()
    """The bounds that `bounds="auto"` found, and their part of the cost."""
    budget: Budget = field(repr=False, compare=False)
    """The budget right after the charge."""

    @property
    def remaining(self) -> Cost:
        """What was left of the session's budget after the charge."""
        return self.budget.remaining

    @property
    def epsilon(self) -> float:
        """The epsilon that was charged."""
        return self.cost.epsilon

    @property
    def delta(self) -> float:
        """The delta that was charged."""
        return self.cost.delta

    def lines(self) -> Iterator[str]:
        """The receipt in short lines, as notebooks show it below an answer."""
        if not self.mechanism:
            yield "free: nothing private was read"
        elif self.recalled:
            yield f"free: {asked_on(self.asked)}"
        else:
            delta = f", δ {self.delta:.3g}" if self.delta else ""
            yield f"cost ε {self.epsilon:.4g}{delta}"
        if self.refused:
            yield "NULL: a private test refused to answer"
        yield f"{self.mechanism} noise, ± at 95 %" if self.mechanism else "± at 95 %"
        yield f"ε {self.remaining.epsilon:.4g} left"


@dataclass(frozen=True, kw_only=True)
class ResultColumn:
    """A column of an answer: its name and type, and how its error follows from the noise."""

    name: str
    type: str
    estimate: WithError | None
    noises: NoisyColumns = field(repr=False)
    hidden: Mapping[str, int]
    """Positions, within a full row, of the measures that the error depends on and of the level of totals."""
    is_key: bool | None = None
    """Whether only group keys enter the column; None if unknown."""
    chosen_from: int = 1
    """The number of rows that ORDER BY ... LIMIT or HAVING chose from: intervals hold for all of them at once."""
    levels: tuple[NoisyColumns, ...] = field(default=(), repr=False)
    """The noise at each level of ROLLUP or CUBE."""
    thresholds: tuple[Thresholds, ...] = field(default=(NO_THRESHOLDS,), repr=False)
    """Of each level, the thresholds of the counts that select its groups; of the only one without ROLLUP."""
    replicates: Callable[[tuple[Any, ...]], list[NDArray[np.float64]]] | None = field(default=None, repr=False)
    """Parametric bootstrap replicas of a computed column in a row, and in the rows that look the same."""
    lost: bool = False
    """Whether the column is noisy and its error is unknown."""
    noise_only: bool = False
    """Whether its error is that of the noise alone: contribution bounds, which the notes tell, may leave out more."""
    left_out: LeftOut | None = field(default=None, repr=False)
    """What contribution bounds may leave out, if it is known; then intervals include it."""

    @property
    def not_counted(self) -> float | None:
        """How much, at 95 %, contribution bounds may leave out of a cell; None if unknown, or of an average."""
        if self.left_out is None or not isinstance(self.estimate, Linear):
            return None
        rows = self.left_out.most(for_all(for_all(LEVEL, self.chosen_from), 4))
        return rows * max(-self.left_out.low, self.left_out.high)

    @property
    def caveat(self) -> str:
        """What ± lacks, in short; empty if nothing."""
        if self.noise_only:
            return NOISE_ONLY
        return f"+ up to {numbers.rounded_up(self.not_counted)} not counted" if self.not_counted else ""

    @property
    def is_noisy(self) -> bool:
        """Whether noise enters the column."""
        return self.estimate is not None or self.replicates is not None or self.lost

    @property
    def half_width(self) -> float | None:
        """The half-width of the 95 % interval for the noise, if all rows share it; else None."""
        if self.levels:
            return None
        return half_width(self.estimate, self.noises, for_all(LEVEL, self.chosen_from))

    def interval(self, row: tuple[Any, ...], value: Any, level: float) -> tuple[float, float] | None:
        """The interval around a value; None if the column has no noise, or its error is unknown.

        It includes what contribution bounds leave out where that is known (`left_out`), and else is that of the noise.

        Args:
            row: the full row, with its hidden measures.
            value: the value of this column in it.
            level: the probability that the interval contains the answer of plain SQL, or else the noise-free value.
        """
        if value is None or self.left_out is None or not isinstance(self.estimate, Linear | Ratio):
            return self._of_noise(row, value, level)
        measures, noises, thresholds = self._drawn(row)
        level = for_all(level, self.chosen_from)
        return interval_with_left_out(self.estimate, float(value), measures, noises, level, thresholds, self.left_out)

    def _of_noise(self, row: tuple[Any, ...], value: Any, level: float) -> tuple[float, float] | None:
        if value is None:
            return None
        level = for_all(level, self.chosen_from)
        if self.replicates is not None:
            return around_all([bootstrap_interval(float(value), found, level) for found in self.replicates(row)])
        if self.estimate is None:
            return None
        measures, noises, thresholds = self._drawn(row)
        return interval(self.estimate, float(value), measures, noises, level, thresholds)

    def _drawn(self, row: tuple[Any, ...]) -> tuple[Mapping[str, Any], NoisyColumns, Thresholds]:
        """The measures of a row, and the noises and thresholds of its level of totals."""
        measures = {name: row[position] for name, position in self.hidden.items()}
        number = row[self.hidden[TOTALS]] if self.levels else 0
        return measures, self.levels[number] if self.levels else self.noises, self.thresholds[number]

    def shown_ends(self, row: tuple[Any, ...], value: Any) -> numbers.Ends | None:
        """The 95 % interval; UNKNOWN if the error is unknown, for example of a variance in a small group.

        Args:
            row: the full row, with its hidden measures.
            value: the value of this column in it.
        """
        unknown = isinstance(self.estimate, SmoothFunction) or self.replicates is not None or self.lost
        # Of a count or a sum, what is left out is the same in every row: the heading tells it.
        found = self._of_noise if isinstance(self.estimate, Linear) else self.interval
        return found(row, value, LEVEL) or (numbers.UNKNOWN if unknown and value is not None else None)


@dataclass(frozen=True)
class Result:
    """A private answer: rows, columns, receipt and notes. `print` shows each value with its error."""

    columns: tuple[ResultColumn, ...]
    """Name, type and noise of each column."""
    cells: Cells = field(repr=False)
    """The cells of the visible columns, followed by hidden measures that error bars need."""
    receipt: Receipt
    """What the answer cost."""
    notes: tuple[str, ...] = ()
    """Caveats: contribution bounds, thresholds, columns that are mostly noise."""
    faint: frozenset[str] = frozenset()
    """The names of columns that are mostly noise."""

    @property
    def full_rows(self) -> list[tuple[Any, ...]]:
        """All rows, each with its hidden measures after the visible columns."""
        return self.cells.rows

    @cached_property
    def rows(self) -> list[tuple[Any, ...]]:
        """All rows of the answer."""
        return self.cells.of_first(len(self.columns))

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    @property
    def headings(self) -> list[str]:
        """The names of the columns; a name is marked if its error covers the noise alone, or the cells lack rows."""
        return [f"{column.name} ({column.caveat})" if column.caveat else column.name for column in self.columns]

    def df(self) -> pd.DataFrame:
        """The answer as a pandas DataFrame; dates and timestamps become datetime64.

        `attrs` has the notes, the names of the columns whose error is that of the noise alone (`noise_only`), and how
        much bounds may leave out of each cell of a column where that is known (`left_out`).
        """
        import pandas as pd

        frame = self._plain_frame()
        frame.attrs = self._caveats
        for position, column in enumerate(self.columns):
            if column.type.startswith(TIMES):
                frame.isetitem(position, pd.to_datetime(frame.iloc[:, position]).array)
        return frame

    @property
    def _caveats(self) -> dict[Hashable | None, Any]:
        noise_only = [column.name for column in self.columns if column.noise_only]
        left_out = {column.name: column.not_counted for column in self.columns if column.not_counted is not None}
        return {"noise_only": noise_only, "left_out": left_out, "notes": list(self.notes)}

    def _plain_frame(self) -> pd.DataFrame:
        import pandas as pd

        columns = self.cells.columns
        if columns is None or not len(columns[0]):
            return pd.DataFrame.from_records(self.rows, columns=self.names)
        parts = {position: _values(pd, columns[position]) for position in range(len(self.columns))}
        return pd.DataFrame(parts).set_axis(self.names, axis="columns")

    def pl(self) -> pl.DataFrame:
        """The answer as a polars DataFrame.

        Raises:
            NotSupportedError: polars or pyarrow is not installed.
        """
        try:
            import polars as pl
        except ImportError:
            raise NotSupportedError("polars is not installed", hint="pip install polars pyarrow") from None

        return pl.DataFrame(self.arrow())

    def arrow(self) -> pa.Table:
        """The answer as an Arrow table.

        Raises:
            NotSupportedError: pyarrow is not installed.
        """
        try:
            import pyarrow as pa
        except ImportError:
            raise NotSupportedError("Arrow tables need pyarrow", hint="pip install pyarrow") from None
        arrays = [
            pa.array(values, _arrow_type(pa, column.type))
            for values, column in zip(self.cells.lists(len(self.columns)), self.columns, strict=True)
        ]
        return pa.Table.from_arrays(arrays, names=self.names)

    def intervals(self, level: float = LEVEL, *, simultaneous: bool = False) -> pd.DataFrame:
        """The answer as a pandas DataFrame, with columns `x_low` and `x_high` for each noisy column `x`.

        Where it is known what contribution bounds may leave out (`attrs["left_out"]`), the interval includes it, and so
        is wider on one side. `attrs` has the notes, and the names of the columns whose interval is that of the noise
        alone.

        Args:
            level: the probability that an interval contains the answer of plain SQL, or else the noise-free value.
            simultaneous: whether all intervals hold at once with this probability, which makes them wider.

        Raises:
            ProgrammingError: the level is not between 0 and 1.
        """
        import pandas as pd

        _check_level(level)
        if simultaneous:
            level = for_all(level, sum(column.is_noisy for column in self.columns))
        data: list[tuple[str, list[Any]]] = []
        for position, column in enumerate(self.columns):
            data.append((column.name, [row[position] for row in self.full_rows]))
            if column.is_noisy:
                # Where rows were chosen by their noise, the column's intervals hold for all rows anyway.
                here = for_all(level, len(self.full_rows)) if simultaneous and column.chosen_from == 1 else level
                found = [column.interval(row, row[position], here) or (None, None) for row in self.full_rows]
                data.append((f"{column.name}_low", [low for low, _ in found]))
                data.append((f"{column.name}_high", [high for _, high in found]))
        frame = pd.DataFrame({position: values for position, (_, values) in enumerate(data)})
        frame = frame.set_axis([name for name, _ in data], axis="columns")
        frame.attrs = self._caveats
        return frame

    def cells_with_ends(self, rows: int | None = None) -> list[list[tuple[Any, numbers.Ends | None]]]:
        """The first rows, each value paired with the ends of its 95 % interval.

        Args:
            rows: how many rows. Default: all.
        """
        return [
            [(value, column.shown_ends(row, value)) for value, column in zip(row, self.columns, strict=False)]
            for row in self.full_rows[:rows]
        ]

    def notes_below(self, rows: list[list[tuple[Any, numbers.Ends | None]]]) -> tuple[str, ...]:
        """The notes, and an explanation of `± ?` if these rows show it.

        Args:
            rows: what `cells_with_ends` returned.
        """
        unknown = any(
            ends is numbers.UNKNOWN and not column.lost
            for row in rows
            for (_, ends), column in zip(row, self.columns, strict=True)
        )
        return (*self.notes, UNKNOWN_NOTE) if unknown else self.notes

    def __str__(self) -> str:
        """The first rows, each noisy value with its error, and the notes below."""
        rows = self.cells_with_ends(MOST_ROWS)
        marks = [column.caveat for column in self.columns]
        lines = [self.names, *([marks] if any(marks) else []), *([with_error(*cell) for cell in row] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        more = [f"... {len(self.full_rows):,} rows in all"] if len(self.full_rows) > MOST_ROWS else []
        return "\n".join([*("  ".join(map(str.rjust, line, widths)) for line in lines), *more, *self.notes_below(rows)])

    def _repr_html_(self) -> str:
        rows = self.cells_with_ends(MOST_ROWS)
        cells = [
            [Cell(*cell, column.name in self.faint) for cell, column in zip(row, self.columns, strict=True)]
            for row in rows
        ]
        return table(self.headings, cells, len(self.full_rows), [*self.receipt.lines(), *self.notes_below(rows)])


def with_error(value: Any, ends: tuple[float, float] | None) -> str:
    """
    >>> with_error(1204, (1180.0, 1228.0))
    '1,204 ± 24'
    """
    return " ".join(filter(None, numbers.with_error(value, ends)))


def _check_level(level: float) -> None:
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise ProgrammingError(
            f"a confidence level must lie between 0 and 1, not {level!r}", hint="write intervals(0.95)"
        )


def _values(pd: Any, column: np.ndarray) -> Any:
    """Numbers unchanged; other values as objects, because pandas inspects them one by one."""
    found = plain_numbers(column)
    return pd.Series(column.tolist()) if found is None else found


def _arrow_type(pa: Any, kind: str) -> Any:
    """The Arrow type of an engine's type; None lets Arrow look at the values."""
    simple = {
        "BIGINT": pa.int64(),
        "INTEGER": pa.int32(),
        "DOUBLE": pa.float64(),
        "VARCHAR": pa.string(),
        "BOOLEAN": pa.bool_(),
        "DATE": pa.date32(),
        "TIMESTAMP": pa.timestamp("us"),
    }
    if kind.startswith("DECIMAL"):
        precision, scale = kind.removeprefix("DECIMAL(").rstrip(")").split(",")
        return pa.decimal128(int(precision), int(scale))
    return simple.get(kind)
