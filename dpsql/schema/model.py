"""The declared schema: which tables exist, whose rows they hold, and what everybody may know about their columns.

What is not declared does not exist. A `Schema` checks everything when it is built, and raises `SchemaError` with the
path of the first thing that is wrong; after that it does not change.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from dpsql.schema.declared import Declared, check_names, spelled
from dpsql.schema.problems import Document, all_problems, complaint
from dpsql.schema.table import Contribution, Csv, Hop, Table, UnitPath


class Schema(Declared):
    """Everything that may be asked about, and everything that is public about it."""

    sample = "tables: {orders: {unit: customer_id, columns: {customer_id: integer}}}"

    dataset: str = Field(default="data", description="What the whole is called")
    contribution: Contribution = Field(
        default_factory=Contribution, description="The bounds of every table that does not set its own"
    )
    csv: Csv = Field(default_factory=Csv, description="How the text files of all tables are read")
    tables: Mapping[str, Table]

    def table(self, name: str) -> Table | None:
        """The table of that name in any case, as SQL understands names."""
        return self._by_lower_name.get(name.lower())

    def unit_path(self, table_name: str) -> tuple[Hop, ...]:
        """The hops from a table to the one that holds its unit column; none for that one and for public tables."""
        hops = []
        table = self.table(table_name)
        while table is not None and isinstance(table.unit, UnitPath):
            hops.append(Hop(table.unit.through, table.unit.to_table, table.unit.to_column))
            table = self.table(table.unit.to_table)
        return tuple(hops)

    @cached_property
    def fingerprint(self) -> str:
        """Equal declarations have equal fingerprints, whatever the files look like."""
        canonical = json.dumps(self.model_dump(), sort_keys=True, default=str)
        return hashlib.sha256(canonical.encode()).hexdigest()

    @cached_property
    def _by_lower_name(self) -> dict[str, Table]:
        return {name.lower(): table for name, table in self.tables.items()}

    @field_validator("tables")
    @classmethod
    def _resolve_tables(cls, tables: Mapping[str, Table], info: ValidationInfo) -> Mapping[str, Table]:
        if not tables:
            raise complaint(
                "the schema has no tables", hint="declare at least one: what is not declared does not exist"
            )
        check_names(tables, dots=1)
        defaults = info.data.get("contribution", Contribution())
        dialect = info.data.get("csv", Csv())
        resolved = {
            name: table.model_copy(
                update={
                    "unit": _resolved_unit(name, tables),
                    "contribution": _resolved_contribution(table, defaults),
                    "csv": dialect.model_copy(update=table.csv.model_dump(exclude_unset=True)),
                }
            ).named(name)
            for name, table in tables.items()
        }
        for name in resolved:
            _check_path_ends(name, resolved)
        return resolved

    @model_validator(mode="wrap")
    @classmethod
    def _explain_problems(cls, data: Any, handler: ModelWrapValidatorHandler[Schema], info: ValidationInfo) -> Schema:
        try:
            return handler(data)
        except ValidationError as error:
            problem = all_problems(error, info.context or Document(), data)
        raise problem


def _resolved_contribution(table: Table, defaults: Contribution) -> Contribution:
    """A unique table needs bounds too: a join may give a unit more rows than its table has."""
    if table.public:
        return Contribution()
    return defaults.model_copy(update=table.contribution.model_dump(exclude_unset=True))


def _resolved_unit(name: str, tables: Mapping[str, Table]) -> str | UnitPath | None:
    """The unit with its `to` as declared, once it is known to lead to a column that it can be compared with."""
    table = tables[name]
    unit = table.unit
    if not isinstance(unit, UnitPath):
        return unit
    at = (name, "unit", "to")
    to_table = spelled("table", unit.to_table, tables, *at)
    to_column = spelled("column", unit.to_column, tables[to_table].columns, *at)
    if tables[to_table].columns[to_column].collected is not None:
        raise complaint(f'"{to_table}.{to_column}" holds randomised reports', *at, hint="lead the path to a key")
    if tables[to_table].public:
        raise complaint(
            f'the path ends nowhere: "{to_table}" is public and has no unit', *at, hint="lead it to a private table"
        )
    here, there = table.columns[unit.through].type, tables[to_table].columns[to_column].type
    if here != there:
        raise complaint(
            f'"{unit.through}" is {here.name} and "{to_table}.{to_column}" is {there.name}: they cannot be equal',
            *at,
            hint="declare both columns with the same type",
        )
    return unit.model_copy(update={"to": f"{to_table}.{to_column}"})


def _check_path_ends(name: str, tables: Mapping[str, Table]) -> None:
    seen = [name]
    unit = tables[name].unit
    while isinstance(unit, UnitPath):
        seen.append(unit.to_table)
        if unit.to_table in seen[:-1]:
            raise complaint(
                f"the path goes round in a circle: {' -> '.join(seen)}",
                name,
                "unit",
                hint="give one of these tables a unit column of its own, such as  unit: customer_id",
            )
        unit = tables[unit.to_table].unit
