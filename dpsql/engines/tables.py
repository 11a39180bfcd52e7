"""Checks that a table of the database matches its declaration, and writes the SELECT of its columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpsql.engines.base import SHORTER, declared_type, engine_type, fits, is_total, read_as, valid_text
from dpsql.engines.render import literal, quoted
from dpsql.errors import SchemaError, did_you_mean
from dpsql.schema.model import Csv
from dpsql.schema.types import Date, Decimal, Double, Integer, Timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpsql.schema.model import Column, Table
    from dpsql.schema.types import ColumnType

DATE_FORMATS: tuple[str | None, ...] = (
    None,
    *("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d"),
    *("%d %b %Y", "%d-%b-%Y", "%b %d, %Y", "%d %B %Y", "%B %d, %Y"),
    *("%d.%m.%y", "%m/%d/%y", "%d/%m/%y", "%d-%b-%y"),
)
"""How people write dates, the usual way first, which has no name."""
TIMES = ("%H:%M:%S", "%H:%M", "%H:%M:%S.%f", "%I:%M:%S %p", "%I:%M %p")
TIMESTAMP_FORMATS: tuple[str | None, ...] = (
    None,
    *("%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M"),
    *(f"{day} {time}" for time in TIMES for day in DATE_FORMATS if day is not None),
)
DELIMITER = (
    "each line was read as a single field; if the fields are not separated by commas, declare it in the schema:  "
    'csv: {delimiter: ";"}'
)
TRUST = (
    "if each of its rows depends on one person's rows only, and no row can make it fail, write  view: trusted  "
    "in {}; docs/owners.md says why"
)


WHOLE_WITH_GAPS = (
    "; or, if pandas turned integers into doubles because some are missing, connect to df.convert_dtypes()"
)


@dataclass(frozen=True, kw_only=True)
class FoundTable:
    """A table as its source has it."""

    name: str
    columns: Mapping[str, str]
    """Name -> the engine's type."""
    is_view: bool = False
    what: str = "a view"
    """What has such rows, in words."""
    computed: frozenset[str] = frozenset()
    """Columns whose values are computed whenever they are read."""
    unique: frozenset[str] = frozenset()
    """Columns that a constraint keeps unique: as long as it is there, a unit known by one has one row."""
    required: frozenset[str] = frozenset()
    """Columns that a constraint keeps from being NULL."""
    is_text: bool = False
    """From a file or frame, where a text may stand for any type."""
    csv: Csv = field(default_factory=Csv)
    """How a text file writes dates and numbers."""
    names_are_public: bool = True
    """False for a text file: where its header is missing, what look like names are somebody's values."""

    def column(self, name: str) -> str | None:
        """The column's own spelling of its name."""
        return next((own for own in self.columns if own.lower() == name.lower()), None)


@dataclass
class Described:
    """A table as input for drafting a schema: the engine's names and types, but no values."""

    columns: dict[str, str]
    unique: set[str] = field(default_factory=set)
    """Columns without duplicates."""
    references: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Columns that refer to a column of another table."""
    csv: Csv = field(default_factory=Csv)
    """How a text file is written, as far as that is not the usual way."""
    ambiguous: dict[str, list[str]] = field(default_factory=dict)
    """Keys of `csv` -> other values by which its sample could be read as well."""
    is_view: bool = False
    what: str = "a view"
    """What has such rows, in words."""
    nullable: set[str] = field(default_factory=set)
    """Columns of which the database says that they may be NULL."""
    values: dict[str, list[str]] = field(default_factory=dict)
    """Columns whose type lists all their values."""


def check_table(table: Table, found: FoundTable) -> None:
    """Raises SchemaError unless every declared column is there, with a type that fits, and may be relied on."""
    path = f"tables.{table.name}"
    if found.is_view and table.view is None:
        raise SchemaError(
            f"{path}: it is {found.what}, whose rows may depend on several people",
            hint=f"declare the tables it reads instead; or, {TRUST.format(path)}",
        )
    problems = [_problem(f"{path}.columns.{name}", table, name, found) for name in table.columns]
    if wrong := [problem for problem in problems if problem is not None]:
        raise SchemaError.of(wrong)


def _problem(path: str, table: Table, name: str, found: FoundTable) -> SchemaError | None:
    declared, own = table.columns[name].stored_type, found.column(name)
    if own is None:
        guess = did_you_mean(name, found.columns) if found.names_are_public else None
        if not found.names_are_public and len(found.columns) == 1 and len(table.columns) > 1:
            guess = DELIMITER
        return SchemaError(f'{path}: the database has no column "{name}"', hint=guess or "check its spelling")
    if own in found.computed and table.view is None:
        return SchemaError(
            f"{path}: its values are computed when read, and computing one may fail",
            hint=f"remove it; or, {TRUST.format(f'tables.{table.name}')}",
        )
    stored = found.columns[own]
    if not (fits(declared, stored) or (found.is_text and stored == "VARCHAR")):
        # The name of an ENUM lists what the column holds.
        kind = stored if stored.startswith("DECIMAL") else stored.partition("(")[0]
        gaps = WHOLE_WITH_GAPS if found.is_text and isinstance(declared, Integer) and kind == "DOUBLE" else ""
        return SchemaError(
            f"{path}: declared as {declared.name}, but the database has {kind}", hint=_type_hint(kind, path) + gaps
        )
    return None


def _type_hint(kind: str, path: str) -> str:
    fitting = declared_type(kind)
    return f"write  type: {fitting}  in {path}" if fitting else f"remove {path}: {kind} columns are not supported"


def is_present(column: Column, found: FoundTable) -> bool:
    """Whether the database itself guarantees that every row has a value there, which the declaration leaves a value."""
    own = found.column(column.name)
    return (
        own in found.required
        and not found.is_view
        and column.values is None
        and is_total(column.type, found.columns[own], bounded=column.bounds is not None)
    )


def declared_columns(table: Table, found: FoundTable, *, copied: bool) -> str:
    """The declared columns as a SELECT list; what is copied is stored as its declared type and as valid text.

    A unit that is a shorter whole number stays one.
    """
    return ", ".join(
        f"{_read(found, table, column, copied)} AS {quoted(column.name)}" for column in table.columns.values()
    )


def _read(found: FoundTable, table: Table, column: Column, copied: bool) -> str:
    own, declared = found.column(column.name) or column.name, column.stored_type
    sql, stored = quoted(own), found.columns[own]
    is_short_unit = column.name == table.unit_column and isinstance(declared, Integer) and stored in SHORTER
    if is_short_unit or (stored == "VARCHAR" and not copied):
        return sql
    return written_as(valid_text(sql), declared, found.csv) if stored == "VARCHAR" else read_as(sql, stored, declared)


def written_as(text: str, declared: ColumnType, csv: Csv) -> str:
    """A text as the declared type, by the formats of its file, or NULL; it fails for no text."""
    pattern = csv.date_format if isinstance(declared, Date) else csv.timestamp_format
    if isinstance(declared, Date | Timestamp) and pattern is not None:
        # Without a digit there are "epoch" and "infinity", which the engine takes for moments whatever the format; and
        # with two it takes 24 for the year 24.
        digits = "[0-9]{4}" if "%Y" in pattern else "[0-9]"
        moment = f"CASE WHEN regexp_matches({text}, '{digits}') THEN try_strptime({text}, {literal(pattern)}) END"
        return f"TRY_CAST({moment} AS {engine_type(declared)})"
    if isinstance(declared, Integer | Double | Decimal) and csv.decimal != ".":
        # With a point it may be a number with its thousands apart, a thousand times as large.
        number = f"CASE WHEN NOT contains({text}, '.') THEN replace({text}, {literal(csv.decimal)}, '.') END"
        return f"TRY_CAST({number} AS {engine_type(declared)})"
    return read_as(text, "VARCHAR", declared)
