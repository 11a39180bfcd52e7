"""What is wrong with a schema: which file, where in it, what, and what to write instead.

A rule of the model raises `complaint(...)`, pydantic adds the path on the way up, `all_problems` makes the error:

    shop.yaml: tables.orders.columns.amount.bounds: the lower bound 500 is above the upper bound 0
    LINE 17:       amount: {type: double, bounds: [500, 0]}
                                          ^^^^^^^^^^^^^^^^
    hint: write  bounds: [0, 500]
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from pydantic_core import ErrorDetails, PydanticCustomError

from dpsql.errors import SchemaError
from dpsql.schema.propose import proposal
from dpsql.schema.types import misfit, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import ValidationError

    from dpsql.source import Place

Path: TypeAlias = tuple[str, ...]

# Pydantic names the branch of a union in its path; these are the branches of `unit` and of bounds that are numbers or
# found by each query, and no part of the file.
BRANCHES = COLUMN_BRANCH, PATH_BRANCH, NUMBER_BRANCH, AUTO_BRANCH = "<column>", "<path>", "<number>", "<auto>"

# Pydantic's words for a value of the wrong kind, in ours.
EXPECTED = {
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "greater_than_equal": "1 or more",
    "less_than": "a number of rows that one person could have",
    "dict_type": "a mapping",
    "string_pattern_mismatch": "one ASCII character that is no letter or digit",
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
    """Where a schema was read from, and where in the text each of its paths is."""

    file: str | None = None
    places: Mapping[Path, Place] = field(default_factory=dict)

    def error(self, path: Path, problem: str, hint: str | None) -> SchemaError:
        address = [part for part in (self.file, ".".join(path)) if part]
        return SchemaError(shown(": ".join([*address, problem])), at=self._place(path), hint=hint)

    def _place(self, path: Path) -> Place | None:
        """The place of `path`, or of the nearest thing around it: what is missing has none of its own."""
        return next((self.places[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self.places), None)


NO_UNIT = "the table is private and names no unit"


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
        return document.error((*path, *at), problem, hint if way is None else f"write  {way}  if that is the person")
    return document.error(*_in_our_words(path, details))


def _in_our_words(path: Path, details: ErrorDetails) -> tuple[Path, str, str | None]:
    key = path[-1]
    if key == "[key]":
        return path[:-1], f"{shown(details['input'])} is not a name", f'put it in quotes: "{shown(details["input"])}"'
    hint = f"write  {SAMPLES[key]}" if key in SAMPLES else None
    if details["type"] == "missing":
        return path[:-1], f'"{key}" is missing', hint
    if expected := EXPECTED.get(details["type"]):
        return path, misfit(details["input"], expected, "").problem, hint
    return path, details["msg"], hint
