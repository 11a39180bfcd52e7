"""`dpsql init`: drafts a schema with names and types; what only the owner knows is left to be filled in."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpsql.engines.base import declared_type
from dpsql.schema.model import AUTO
from dpsql.schema.problems import Way, way_to_person
from dpsql.schema.types import parse_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dpsql.engines.tables import Described

PUBLIC = "-"
"""Stands for the unit of a table that is about nobody."""
PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
WHO = re.compile(r"(?i)person|patient|customer|user|client|member|household|employee|student|(^|_)id$")
"""Names of columns that often say who."""
KEY = re.compile(r"(?i)(^|_)id$|[a-z]Id$")
"""Names of columns that say which, and of which nobody wants the sum."""
READ_OTHERWISE = {"true", "false", "null"}
HEADER = """\
# What is public about this data. `dpsql init` filled in names and types. Fill in the rest from what you know about the
# subject, never by looking at the data. Delete the line of any column that nobody needs; queries see only what is
# declared. Where a cell may be empty, write {type: ..., nullable: true}; `dpsql check` counts empty cells.
"""
COUNTS = """\
# How much one person contributes: in how many groups of a GROUP BY they count, and with how many rows in each. With
# auto, each query finds the limits of least error for a tenth of its cost. Write numbers if you know what is usual.
"""


@dataclass(frozen=True)
class Chosen:
    """The owner's choices: units of tables, bounds of columns, and contribution bounds."""

    units: Mapping[str, str] = field(default_factory=dict)
    bounds: Mapping[tuple[str, str], str] = field(default_factory=dict)
    max_groups: int | str = AUTO
    max_rows_per_group: int | str = AUTO


def schema_text(dataset: str, tables: Mapping[str, Described], chosen: Chosen) -> str:
    lines = [
        HEADER,
        f"dataset: {_scalar(dataset)}\n",
        f"{COUNTS}contribution: {{max_groups: {chosen.max_groups}, max_rows_per_group: {chosen.max_rows_per_group}}}\n",
        "tables:",
    ]
    for name, table in tables.items():
        lines += [f"  {_scalar(name)}:", *_unit_lines(name, tables, chosen), *_source_lines(table), "    columns:"]
        lines += [f"      {line}" for line in _column_lines(name, table, chosen)]
        lines.append("")
    return "\n".join(lines)


def missing(tables: Mapping[str, Described], chosen: Chosen) -> list[str]:
    """The entries still to be filled in: queries need a unit, sums need bounds.

    A view must be vouched for.
    """
    units = [f"tables.{name}.unit" for name in tables if not _unit(name, tables, chosen)]
    bounds = [
        f"tables.{name}.columns.{column}.bounds"
        for name, table in tables.items()
        for column in measures(table, chosen.units.get(name))
        if (name, column) not in chosen.bounds
    ]
    views = [f"tables.{name}.view" for name, table in tables.items() if table.is_view]
    return units + views + bounds


def measures(table: Described, unit: str | None) -> list[str]:
    """The columns that can be summed once they have bounds; identifiers are excluded."""
    keys = {column for column in table.columns if KEY.search(column)}
    apart = {unit, *table.unique, *table.references, *keys} if unit != PUBLIC else set(table.columns)
    return [column for column, kind in table.columns.items() if column not in apart and _takes_bounds(kind)]


def _takes_bounds(kind: str) -> bool:
    declared = declared_type(kind)
    return declared is not None and parse_type(declared).takes_bounds


def _unit(name: str, tables: Mapping[str, Described], chosen: Chosen, *passed: str) -> str | None:
    """The value of `unit`: a column, or a declared reference that leads to a table with one."""
    if name in chosen.units:
        return _scalar(chosen.units[name])
    for column, (to_table, to_column) in tables[name].references.items():
        way = Way(column, to_table, to_column)
        if to_table not in tables or to_table in passed or not _is_sure(way, tables, chosen):
            continue
        if _is_owned(to_table, tables, chosen, *passed, name):
            return _way(way, chosen)
    return None


def _is_owned(name: str, tables: Mapping[str, Described], chosen: Chosen, *passed: str) -> bool:
    return chosen.units.get(name) != PUBLIC and _unit(name, tables, chosen, *passed) is not None


def _is_sure(way: Way, tables: Mapping[str, Described], chosen: Chosen) -> bool:
    """Whether a row has one person over it: the column is the unit there, or the database keeps it unique."""
    return chosen.units.get(way.to_table) == way.to_column or way.to_column in tables[way.to_table].unique


def _way(way: Way, chosen: Chosen) -> str:
    """Where the way ends at the unit itself, the column is the unit here too."""
    if chosen.units.get(way.to_table) == way.to_column:
        return _scalar(way.through)
    return f"{{through: {_scalar(way.through)}, to: {_scalar(f'{way.to_table}.{way.to_column}')}}}"


def _unit_lines(name: str, tables: Mapping[str, Described], chosen: Chosen) -> Iterator[str]:
    unit = _unit(name, tables, chosen)
    if chosen.units.get(name) == PUBLIC:
        yield "    public: true"
    elif unit is None:
        yield f"    # FILL IN  unit: {_guess(name, tables, chosen)}"
    else:
        yield f"    unit: {unit}"
        if chosen.units.get(name) in tables[name].unique:
            yield "    unique: true             # the database has one row per person"


def _guess(name: str, tables: Mapping[str, Described], chosen: Chosen) -> str:
    """A suggestion in words: a path through a shared column, or a column that may identify the person."""
    columns = {other: list(described.columns) for other, described in tables.items()}
    owned = [other for other in tables if _is_owned(other, tables, chosen)]
    units = {other: chosen.units.get(other) for other in owned}
    way = way_to_person(name, columns, units, lambda way: _is_sure(way, tables, chosen))
    if way is not None:
        return f"{_way(way, chosen)}, if that leads to the person"
    likely = [column for column in columns[name] if WHO.search(column)]
    person = "the column that identifies the person" + (f": {' or '.join(likely[:2])}?" if likely else "")
    return f"{person}; or  public: true  for a table about nobody"


def _source_lines(table: Described) -> Iterator[str]:
    said = table.csv.model_dump(exclude_defaults=True)
    if said:
        yield f"    csv: {json.dumps(said, ensure_ascii=False)}"
    for key, others in table.ambiguous.items():
        yield f"    # CHECK {key}: the first rows could also be read as {' or '.join(others)}"
    if table.is_view:
        yield f"    # FILL IN  view: trusted  if a row of {table.what} follows from one person's rows alone,"
        yield "    # and none can make it fail"


def _column_lines(name: str, table: Described, chosen: Chosen) -> Iterator[str]:
    to_bound = measures(table, chosen.units.get(name))
    for column, kind in table.columns.items():
        declared = declared_type(kind)
        shown = _scalar(column)
        if declared is None or column != column.strip() or not {".", '"'}.isdisjoint(column):
            why = (
                f"{kind} columns cannot be used"
                if declared is None
                else "a name cannot contain dots or quotes, or begin or end with a blank"
            )
            yield f"# {shown}: {why}"
            continue
        # A row without a unit, or whose way to it leads nowhere, is nobody's and does not count.
        is_key = column in (chosen.units.get(name), *table.references)
        nullable = ", nullable: true" * (column in table.nullable and not is_key)
        plain = f"{{type: {_scalar(declared)}{nullable}}}" if nullable else declared
        if (name, column) in chosen.bounds:
            yield f"{shown}: {{type: {_scalar(declared)}, bounds: {chosen.bounds[name, column]}{nullable}}}"
        elif column in table.values and not is_key:
            listed = ", ".join(map(_scalar, table.values[column]))
            yield f"{shown}: {{type: text, values: [{listed}]{nullable}}}"
        elif column in to_bound:
            use = "group by it" if declared in ("date", "timestamp") else "sum it"
            example = f"{{type: {_scalar(declared)}, bounds: {parse_type(declared).example}{nullable}}}"
            yield f"{f'{shown}: {plain}':<24} # to {use}: {example}, with your own"
        elif declared == "text" and not is_key:
            yield f"{f'{shown}: {plain}':<24} # to see every group: {{type: text, values: [one, another]{nullable}}}"
        else:
            yield f"{shown}: {plain}"


def _scalar(text: str) -> str:
    """Quoted where YAML would read something else than this text.

    >>> _scalar("region"), _scalar("null"), _scalar("decimal(18,2)")
    ('region', "'null'", "'decimal(18,2)'")
    """
    if PLAIN_NAME.fullmatch(text) and text.lower() not in READ_OTHERWISE:
        return text
    return "'" + text.replace("'", "''") + "'"
