"""What a query over private tables can be: rows that still belong to people, or an answer made of releases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from dpsql.expressions.facts import Facts, bounded, exact_value, fact_of, one_of
from dpsql.expressions.tree import Column
from dpsql.relation.relation import Relation, Scan, ScanColumn, Unit

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlglot import exp

    from dpsql.schema.model import Column as DeclaredColumn
    from dpsql.schema.model import Schema, Table


@dataclass(frozen=True)
class Rows:
    """Rows that belong to units, under the names that a query sees: lower case, with and without the table's alias."""

    relation: Relation
    columns: Mapping[str, Column]
    unit_columns: frozenset[str]
    """The inner names of the columns that are the unit itself."""

    def called(self, alias: str) -> Rows:
        """The same rows under an alias: each column is known by its name, and by alias.name."""
        plain = {name: column for name, column in self.columns.items() if "." not in name}
        qualified = {f"{alias.lower()}.{name}": column for name, column in plain.items()}
        return Rows(self.relation, plain | qualified, self.unit_columns)


@dataclass(frozen=True)
class Answer:
    """A query over releases only: all of SQL may be used on it."""

    tree: exp.Query


Named: TypeAlias = Mapping[str, Rows | None]
"""The names that WITH defines: private rows, or None for an answer, which keeps its name in the finish."""


def inner_name(name: str) -> str:
    """A column's name in the engine SQL. Names of our own start with one underscore, so nobody else's may.

    >>> inner_name("amount"), inner_name("_unit")
    ('amount', '__unit')
    """
    return f"_{name}" if name.startswith("_") else name


def declared_rows(table: Table, schema: Schema, is_unique: Callable[[str, str], bool]) -> Rows:
    """A private table as declared. Its unit is a column of its own, or is reached over foreign keys."""
    path = schema.unit_path(table.name)
    owner = schema.table(path[-1].to_table) if path else table
    assert owner is not None
    assert owner.unit_column is not None
    unit = Unit(path, owner.name, owner.unit_column)
    scan = Scan(
        table.name,
        unit,
        tuple(ScanColumn(inner_name(name), name, declared_facts(column)) for name, column in table.columns.items()),
        table.contribution,
        one_row_per_unit=not path and is_unique(table.name, unit.column),
    )
    columns = {column.declared.lower(): Column(column.name, column.facts.type) for column in scan.columns}
    return Rows(scan, columns, frozenset() if path else frozenset({inner_name(unit.column)}))


def declared_facts(column: DeclaredColumn) -> Facts:
    """What the schema says of a column; the scan makes it true."""
    if column.values is not None:
        return one_of(column.type, (exact_value(value) for value in column.values), nullable=column.nullable)
    if column.bounds is not None:
        low, high = (exact_value(end) for end in column.bounds)
        return bounded(column.type, low, high, nullable=column.nullable)  # type: ignore[arg-type]
    return fact_of(column.type, nullable=column.nullable)
