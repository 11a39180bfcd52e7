"""Schema errors: the file, the place in it, what is wrong, and what to write instead.

A rule of the model raises `complaint(...)`, pydantic adds the path on the way up, `all_problems` makes the error:

    shop.yaml: tables.orders.columns.amount.bounds: the lower bound 500 is above the upper bound 0
    LINE 17:       amount: {type: double, bounds: [500, 0]}
                                          ^^^^^^^^^^^^^^^^
    hint: write  bounds: [0, 500]
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pydantic_core import ErrorDetails, PydanticCustomError

from dpsql.errors import SchemaError
from dpsql.schema.types import misfit, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pydantic import ValidationError

    from dpsql.errors import Place

# -- propose -----------------------------------------------------------------------------------------------------------
# The way that may lead from a table to its person: over a column that another table has too, or over `<table>_id`.


class Way(NamedTuple):
    through: str
    to_table: str
    to_column: str


def way_to_person(
    table: str,
    columns: Mapping[str, Collection[str]],
    units: Mapping[str, object],
    is_sure: Callable[[Way], bool] = lambda _: True,
) -> Way | None:
    """`units`: the units of tables that have one. A path that ends at a unit is preferred to one that continues.

    >>> columns = {"orders": ["id", "customer_id"], "lines": ["order_id", "sku"], "returns": ["order_id"]}
    >>> way_to_person("lines", columns, {"orders": "customer_id"})
    Way(through='order_id', to_table='orders', to_column='id')
    >>> way_to_person("returns", {**columns, "customers": ["id"]}, {"customers": "id"})
    """
    ways = [
        way
        for column, other in product(columns[table], units)
        if other != table and (way := _between(column, other, columns[other])) is not None and is_sure(way)
    ]
    return min(ways, key=lambda way: units[way.to_table] != way.to_column, default=None)


def _between(column: str, other: str, columns: Collection[str]) -> Way | None:
    if not column.lower().endswith("id"):
        return None
    if column in columns and column != "id":
        return Way(column, other, column)
    named_like_it = column in (f"{other}_id", f"{other.removesuffix('s')}_id")
    return Way(column, other, "id") if "id" in columns and named_like_it else None


def proposal(data: Any, table: str) -> str | None:
    """What may be written for the unit of a declared table that has none; None if nothing suggests itself.

    >>> orders = {"unit": "customer_id", "columns": {"id": "integer", "customer_id": "integer"}}
    >>> proposal({"tables": {"orders": orders, "lines": {"columns": {"order_id": "integer"}}}}, "lines")
    'unit: {through: order_id, to: orders.id}'
    """
    tables = {name: part for name, part in data["tables"].items() if isinstance(part, dict)}
    columns = {name: list(part["columns"]) for name, part in tables.items() if isinstance(part.get("columns"), dict)}
    units = {name: tables[name]["unit"] for name in columns if tables[name].get("unit")}
    way = way_to_person(table, columns, units) if table in columns else None
    if way is None:
        return None
    if tables[way.to_table]["unit"] == way.to_column:
        return f"unit: {way.through}"
    return f"unit: {{through: {way.through}, to: {way.to_table}.{way.to_column}}}"


# -- problems ----------------------------------------------------------------------------------------------------------

KeyPath: TypeAlias = tuple[str, ...]

# Pydantic names the branch of a union in its path; these are the branches of `unit` and of bounds that are numbers or
# found by each query, and no part of the file.
BRANCHES = COLUMN_BRANCH, PATH_BRANCH, NUMBER_BRANCH, AUTO_BRANCH = "<column>", "<path>", "<number>", "<auto>"

# Pydantic's words for a value of the wrong kind, in ours.
EXPECTED = {
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "greater_than_equal": "1 or more",
    "less_than": "a plausible number of rows for one person",
    "dict_type": "a mapping",
    "string_pattern_mismatch": "one ASCII character that is not a letter or digit",
}

# What to write under a key that is missing or holds a value of the wrong kind.
SAMPLES = {
    "dataset": "dataset: shop",
    "max_groups": "max_groups: 4",
    "max_rows_per_group": "max_rows_per_group: 5",
    "tables": "tables: {orders: {unit: customer_id, columns: {customer_id: integer}}}",
    "columns": "columns: {customer_id: integer, region: text}",
    "type": "type: integer",
    "nullable": "nullable: true",
    "group_by": "group_by: false",
    "analysts": "analysts: [ada, bob]",
    "minimum_people": "minimum_people: 20",
    "snapshot": "snapshot: load of 2026-11-20",
    "accuracy": "accuracy: required",
    "unit": "unit: customer_id",
    "through": "through: order_id",
    "to": "to: orders.id",
    "public": "public: true",
    "unique": "unique: true",
    "delimiter": 'delimiter: ";"',
    "quote": 'quote: "\'"',
    "escape": "escape: '\\\\'",
    "encoding": "encoding: utf-8, latin-1 or windows-1252",
    "line_breaks": "line_breaks: true",
    "view": "view: trusted",
    "mechanism": "mechanism: kary, randomized_response, rappor, oue or subset",
    "epsilon": "epsilon: 1.0",
    "values": "values: [never, sometimes, daily]",
    "instantaneous": "instantaneous: [0.5, 0.75]",
}


@dataclass(frozen=True)
class Document:
    """The source of a schema, and the position of each path in its text."""

    file: str | None = None
    places: Mapping[KeyPath, Place] = field(default_factory=dict)

    def error(self, path: KeyPath, problem: str, hint: str | None) -> SchemaError:
        address = [part for part in (self.file, ".".join(path)) if part]
        return SchemaError(shown(": ".join([*address, problem])), at=self._place(path), hint=hint)

    def _place(self, path: KeyPath) -> Place | None:
        """The place of `path`, or of the nearest enclosing entry: a missing key has no place."""
        return next((self.places[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self.places), None)


NO_UNIT = "the table is private but names no unit"


def complaint(problem: str, *at: str, hint: str | None) -> PydanticCustomError:
    """A broken rule, `at` a path below the part of the schema that is being validated."""
    return PydanticCustomError("schema", "a rule of dpsql", {"rule": (problem, at, hint)})


def all_problems(error: ValidationError, document: Document, data: object) -> SchemaError:
    return SchemaError.of([_problem(details, document, data) for details in error.errors(include_url=False)])


def _problem(details: ErrorDetails, document: Document, data: object) -> SchemaError:
    path = tuple(str(part) for part in details["loc"] if part not in BRANCHES)
    if details["type"] == "schema":
        problem, at, hint = details["ctx"]["rule"]
        way = proposal(data, path[-1]) if problem == NO_UNIT else None
        return document.error(
            (*path, *at), problem, hint if way is None else f"write  {way}  if that identifies the person"
        )
    return document.error(*_in_our_words(path, details))


def _in_our_words(path: KeyPath, details: ErrorDetails) -> tuple[KeyPath, str, str | None]:
    key = path[-1]
    if key == "[key]":
        return path[:-1], f"{shown(details['input'])} is not a name", f'put it in quotes: "{shown(details["input"])}"'
    hint = f"write  {SAMPLES[key]}" if key in SAMPLES else None
    if details["type"] == "missing":
        return path[:-1], f'"{key}" is missing', hint
    if expected := EXPECTED.get(details["type"]):
        return path, misfit(details["input"], expected, "").problem, hint
    return path, details["msg"], hint
