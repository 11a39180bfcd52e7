"""Listings of the schema, which are public and free: SHOW TABLES, DESCRIBE, `conn.tables`, `conn.schema`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpsql.display.html import card, words
from dpsql.display.numbers import plain
from dpsql.errors import UnknownName, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pandas as pd

    from dpsql.schema.model import Column, Schema, Table

TABLES = ("table", "person", "counts", "columns")
COLUMNS = ("column", "type", "declared")
SHOWN_VALUES = 12
"""So many declared values are listed; of more, the first ones and their number."""
NAME = r'"?(?P<table>[^\s";]+?)"?'
SHOW = re.compile(
    rf"\s*(?:show\s+(?:all\s+)?tables|(?:describe|desc|show\s+columns\s+(?:from|in))\s+(?:table\s+)?{NAME}|describe)"
    r"\s*;?\s*",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Listing:
    """A small public table of text. It prints itself in a console and in a notebook."""

    title: str
    names: tuple[str, ...]
    """The names of the columns."""
    rows: tuple[tuple[str, ...], ...]
    """All rows."""

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def df(self) -> pd.DataFrame:
        """The listing as a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame(list(self.rows), columns=list(self.names))

    def __str__(self) -> str:
        lines = [self.names, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join("   ".join(map(str.ljust, line, widths)).rstrip() for line in lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return card(self.title, words(self.names, self.rows))


def list_asked(sql: Any, schema: Schema) -> Listing | None:
    """The listing for SHOW TABLES, DESCRIBE or DESCRIBE visits; None for any other text."""
    found = SHOW.fullmatch(sql) if isinstance(sql, str) else None
    if found is None:
        return None
    return list_tables(schema) if found["table"] is None else list_columns(schema, found["table"])


def list_tables(schema: Schema) -> Listing:
    rows = ((name, person_of(schema, name), counts(table), ", ".join(table.columns)) for name, table in _tables(schema))
    return Listing(f"The tables of {schema.dataset}", TABLES, tuple(rows))


def list_columns(schema: Schema, name: str) -> Listing:
    table = schema.table(name)
    if table is None:
        raise UnknownName(f'there is no table "{name}"', hint=did_you_mean(name, schema.tables))
    return Listing(f"The columns of {table.name}", COLUMNS, tuple(_described(table)))


def list_schema(schema: Schema) -> Listing:
    """Every column of every table."""
    rows = ((name, *row) for name, table in _tables(schema) for row in _described(table))
    return Listing(f"The declared schema of {schema.dataset}", ("table", *COLUMNS), tuple(rows))


def person_of(schema: Schema, name: str) -> str:
    """The column that identifies the person of a row, or the path to it."""
    hops = schema.unit_path(name)
    last = schema.table(hops[-1].to_table if hops else name)
    steps = [f"{hop.column} -> {hop.to_table}" for hop in hops]
    return " -> ".join([*steps, (last and last.unit_column) or "public"])


def counts(table: Table) -> str:
    """The contribution bounds of a table, in words."""
    from dpsql.schema.model import AUTO  # late: it loads pydantic, which `import dpsql` does not wait for

    if table.is_public:
        return "everything"
    if table.unique:
        return "one row per person"
    groups, rows = table.contribution.max_groups, table.contribution.max_rows_per_group
    counted = "as many rows as each query finds" if rows == AUTO else f"{rows} row{'s' * (rows > 1)}"
    if groups == AUTO:
        return f"{counted} in as many groups{' as each query finds' * (rows != AUTO)}"
    return f"{counted} in {'each of ' * (groups > 1)}{groups} group{'s' * (groups > 1)}"


def _tables(schema: Schema) -> Iterable[tuple[str, Table]]:
    return schema.tables.items()


def _described(table: Table) -> Iterator[tuple[str, str, str]]:
    for column in table.columns.values():
        yield column.name, column.type.name, declared_facts(table, column)


def declared_facts(table: Table, column: Column) -> str:
    """All that is known of a column besides its type."""
    return "; ".join(_facts(table, column))


def _facts(table: Table, column: Column) -> Iterator[str]:
    if column.name == table.unit_column:
        yield "identifies the person"
    elif table.unit is not None and not isinstance(table.unit, str) and column.name == table.unit.through:
        yield f"leads to {table.unit.to}"
    if column.values is not None:
        yield _listed(column.values)
    if column.bounds is not None:
        low, high = map(plain, column.bounds)
        yield f"from {low} to {high}"
    if column.auto:
        yield "each query finds its own clip bounds"
    if column.collected is not None:
        yield f"randomised reports ({column.collected.mechanism}, epsilon {column.collected.epsilon:g})"
    if column.nullable:
        yield "may be NULL"
    if not column.group_by:
        yield "may be filtered, not grouped by"
    for part in (table, column):
        if part.analysts is not None:
            yield f"for {', '.join(part.analysts)}"


def _listed(values: tuple[object, ...]) -> str:
    """
    >>> _listed(("north", "south")), _listed((1, 2))
    ("'north', 'south'", '1, 2')
    """
    shown = ", ".join(f"'{value}'" if isinstance(value, str) else str(value) for value in values[:SHOWN_VALUES])
    return shown if len(values) <= SHOWN_VALUES else f"{shown}, ... ({len(values):,} values)"
