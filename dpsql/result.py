"""What a query gives back: rows, their description, their error bars, and the receipt of what they cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dpsql.aggregates.estimate import Smooth
from dpsql.aggregates.release import LEVEL as TOTALS
from dpsql.display import numbers
from dpsql.display.html import MOST_ROWS, Cell, table
from dpsql.engines.results import plain_numbers
from dpsql.errors import NotSupportedError, ProgrammingError
from dpsql.intervals import NoisyColumns, for_all, half_width, interval
from dpsql.mechanisms.replay import around_all, replayed_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy as np
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from numpy.typing import NDArray

    from dpsql.accounting.budget import Budget
    from dpsql.accounting.privacy_loss import Cost
    from dpsql.aggregates.estimate import WithError
    from dpsql.engines.results import Cells

LEVEL = 0.95
TIMES = ("DATE", "TIMESTAMP")
NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "DOUBLE", "FLOAT", "DECIMAL")
UNKNOWN_NOTE = "± ?: how far off it may be is not known, as where noise is about as large as what it is computed from"


def is_number(kind: str) -> bool:
    """
    >>> is_number("DECIMAL(18,2)"), is_number("BIGINT[]"), is_number("VARCHAR")
    (True, False, False)
    """
    return kind.startswith(NUMBERS) and not kind.endswith("]")


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """What was charged, and for what."""

    cost: Cost
    mechanism: str
    recalled: bool
    """Whether the answer was drawn earlier and cost nothing now."""
    refused: bool
    """Whether a test refused some of the answer."""
    number: int | None
    """The ledger's entry."""
    bounds: tuple[str, ...] = ()
    """The bounds that the question found by itself, and what part of the cost that was."""
    budget: Budget = field(repr=False, compare=False)
    """As it was after the charge."""

    @property
    def remaining(self) -> Cost:
        """What was left of the session after this."""
        return self.budget.remaining

    @property
    def epsilon(self) -> float:
        return self.cost.epsilon

    @property
    def delta(self) -> float:
        return self.cost.delta

    def lines(self) -> Iterator[str]:
        if not self.mechanism:
            yield "free: nothing private was read"
        elif self.recalled:
            yield "recalled, free"
        else:
            delta = f", δ {self.delta:.3g}" if self.delta else ""
            yield f"cost ε {self.epsilon:.4g}{delta}"
        if self.refused:
            yield "a test refused to answer where NULL stands"
        yield f"{self.mechanism} noise, ± at 95 %" if self.mechanism else "± at 95 %"
        yield f"ε {self.remaining.epsilon:.4g} left"


@dataclass(frozen=True, kw_only=True)
class ResultColumn:
    name: str
    type: str
    estimate: WithError | None
    noises: NoisyColumns = field(repr=False)
    hidden: Mapping[str, int]
    """Where a row keeps the measures that this column's error depends on, and of which level of totals it is."""
    is_key: bool | None = None
    """Whether it is made of keys alone; None where that is not known."""
    chosen_from: int = 1
    """Where rows were chosen by their noise, so many there were: intervals hold for all of them at once."""
    levels: tuple[NoisyColumns, ...] = field(default=(), repr=False)
    """The noise in each level, where groups and totals stand below each other."""
    replicas: Callable[[tuple[Any, ...]], list[NDArray[np.float64]]] | None = field(default=None, repr=False)
    """Of a computed column what it became in a row when noise was drawn again, and in others that look the same."""
    lost: bool = False
    """Whether it is a noisy number, and nothing is known of its error."""

    @property
    def is_noisy(self) -> bool:
        return self.estimate is not None or self.replicas is not None or self.lost

    @property
    def half_width(self) -> float | None:
        """+- at 95 %, where it is the same for all rows."""
        if self.levels:
            return None
        return half_width(self.estimate, self.noises, for_all(LEVEL, self.chosen_from))

    def interval(self, row: tuple[Any, ...], value: Any, level: float) -> tuple[float, float] | None:
        if value is None:
            return None
        if self.replicas is not None:
            level = for_all(level, self.chosen_from)
            return around_all([replayed_interval(float(value), found, level) for found in self.replicas(row)])
        if self.estimate is None:
            return None
        measures = {name: row[position] for name, position in self.hidden.items()}
        noises = self.levels[row[self.hidden[TOTALS]]] if self.levels else self.noises
        return interval(self.estimate, float(value), measures, noises, for_all(level, self.chosen_from))

    def shown_ends(self, row: tuple[Any, ...], value: Any) -> numbers.Ends | None:
        """At 95 %; UNKNOWN where there is an error that is not known, as of a variance in a small group."""
        unknown = isinstance(self.estimate, Smooth) or self.replicas is not None or self.lost
        return self.interval(row, value, LEVEL) or (numbers.UNKNOWN if unknown and value is not None else None)


@dataclass(frozen=True)
class Result:
    columns: tuple[ResultColumn, ...]
    cells: Cells = field(repr=False)
    """With hidden measures behind the visible columns."""
    receipt: Receipt
    notes: tuple[str, ...] = ()
    """What the analyst should know: of the question, what bounding left out, which columns are mostly noise."""
    faint: frozenset[str] = frozenset()
    """The columns that are mostly noise."""

    @property
    def full_rows(self) -> list[tuple[Any, ...]]:
        """Rows with hidden measures behind the visible columns."""
        return self.cells.rows

    @cached_property
    def rows(self) -> list[tuple[Any, ...]]:
        return self.cells.of_first(len(self.columns))

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def df(self) -> pd.DataFrame:
        import pandas as pd

        frame = self._plain_frame()
        for position, column in enumerate(self.columns):
            if column.type.startswith(TIMES):
                frame.isetitem(position, pd.to_datetime(frame.iloc[:, position]).array)
        return frame

    def _plain_frame(self) -> pd.DataFrame:
        import pandas as pd

        columns = self.cells.columns
        if columns is None or not len(columns[0]):
            return pd.DataFrame.from_records(self.rows, columns=self.names)
        parts = {position: _values(pd, columns[position]) for position in range(len(self.columns))}
        return pd.DataFrame(parts).set_axis(self.names, axis="columns")

    def pl(self) -> pl.DataFrame:
        try:
            import polars as pl
        except ImportError:
            raise NotSupportedError("polars is not installed", hint="pip install polars pyarrow") from None

        return pl.DataFrame(self.arrow())

    def arrow(self) -> pa.Table:
        try:
            import pyarrow as pa
        except ImportError:
            raise NotSupportedError("Arrow tables need pyarrow", hint="pip install pyarrow") from None
        arrays = [
            pa.array(values, _arrow_type(pa, column.type))
            for values, column in zip(self.cells.lists(len(self.columns)), self.columns, strict=True)
        ]
        return pa.Table.from_arrays(arrays, names=self.names)

    def intervals(self, level: float = LEVEL) -> pd.DataFrame:
        """Every column, and beside each noisy one the ends of its interval: name_low, name_high."""
        import pandas as pd

        _check_level(level)
        data: list[tuple[str, list[Any]]] = []
        for position, column in enumerate(self.columns):
            data.append((column.name, [row[position] for row in self.full_rows]))
            if column.is_noisy:
                found = [column.interval(row, row[position], level) or (None, None) for row in self.full_rows]
                data.append((f"{column.name}_low", [low for low, _ in found]))
                data.append((f"{column.name}_high", [high for _, high in found]))
        frame = pd.DataFrame({position: values for position, (_, values) in enumerate(data)})
        return frame.set_axis([name for name, _ in data], axis="columns")

    def cells_with_ends(self, rows: int | None = None) -> list[list[tuple[Any, numbers.Ends | None]]]:
        """So many rows, each value with the ends of its interval."""
        return [
            [(value, column.shown_ends(row, value)) for value, column in zip(row, self.columns, strict=False)]
            for row in self.full_rows[:rows]
        ]

    def notes_below(self, rows: list[list[tuple[Any, numbers.Ends | None]]]) -> tuple[str, ...]:
        """The notes, and what `± ?` means where it stands in these rows; of lost columns a note speaks already."""
        unknown = any(
            ends is numbers.UNKNOWN and not column.lost
            for row in rows
            for (_, ends), column in zip(row, self.columns, strict=True)
        )
        return (*self.notes, UNKNOWN_NOTE) if unknown else self.notes

    def __str__(self) -> str:
        """Each value with its error; of many rows the first."""
        rows = self.cells_with_ends(MOST_ROWS)
        lines = [self.names, *([with_error(*cell) for cell in row] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        more = [f"... {len(self.full_rows):,} rows in all"] if len(self.full_rows) > MOST_ROWS else []
        return "\n".join([*("  ".join(map(str.rjust, line, widths)) for line in lines), *more, *self.notes_below(rows)])

    def _repr_html_(self) -> str:
        rows = self.cells_with_ends(MOST_ROWS)
        cells = [
            [Cell(*cell, column.name in self.faint) for cell, column in zip(row, self.columns, strict=True)]
            for row in rows
        ]
        return table(self.names, cells, len(self.full_rows), [*self.receipt.lines(), *self.notes_below(rows)])


def with_error(value: Any, ends: tuple[float, float] | None) -> str:
    """
    >>> with_error(1204, (1180.0, 1228.0))
    '1,204 ± 24'
    """
    return " ".join(filter(None, numbers.with_error(value, ends)))


def _check_level(level: float) -> None:
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise ProgrammingError(
            f"a confidence level lies between 0 and 1, unlike {level!r}", hint="write intervals(0.95)"
        )


def _values(pd: Any, column: np.ndarray) -> Any:
    """Numbers as they are; at other values pandas looks one by one, as if they stood in rows."""
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
