"""A declared column: its type, and what everybody may know about its values."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from dpsql.errors import SchemaError
from dpsql.schema.declared import AUTO, Declared, Named
from dpsql.schema.problems import complaint
from dpsql.schema.types import (
    PLAIN_TYPES,
    Boolean,
    ColumnType,
    Decimal,
    Double,
    Integer,
    Text,
    Value,
    misfit,
    parse_type,
    shown,
)

TYPE_JSON: dict[str, Any] = {
    "anyOf": [
        {"enum": list(PLAIN_TYPES)},
        {"type": "string", "pattern": r"^decimal\(\s*\d+\s*,\s*\d+\s*\)$"},
    ]
}
BOUNDS_JSON: dict[str, Any] = {
    "anyOf": [
        {"type": ["array", "null"], "items": {"type": ["number", "string"]}, "minItems": 2, "maxItems": 2},
        {"const": AUTO},
    ]
}
VALUES_JSON = {"type": ["array", "null"], "items": {"type": ["string", "integer", "boolean"]}, "minItems": 1}
# Bits of a report that fit into a column of 64-bit integers.
MOST_BITS = 63


class Collected(Declared):
    """The column holds reports: people randomised their own answers before these reached the table (dpsql.local)."""

    sample = "collected: {mechanism: kary, epsilon: 1.0, values: [never, sometimes, daily]}"

    mechanism: Literal["randomized_response", "kary", "rappor", "oue", "subset"] = Field(
        description="How answers were randomised; rappor, oue and subset report a bit for each value, as one integer"
    )
    epsilon: Annotated[float, WithJsonSchema({"type": "number", "exclusiveMinimum": 0})] = Field(
        description="No two answers make a report more than e^epsilon times as likely"
    )
    values: Annotated[tuple[Value, ...], WithJsonSchema(VALUES_JSON | {"minItems": 2})] = Field(
        description="Every value that an answer can have, in the order in which the mechanism was given them"
    )
    instantaneous: tuple[float, float] | None = Field(
        default=None, description="For rappor: how often a permanent 0 and a permanent 1 are reported as 1"
    )

    @property
    def is_bits(self) -> bool:
        """Whether a report is a bit for each value, the first one lowest, and not a value."""
        return self.mechanism in ("rappor", "oue", "subset")

    @field_validator("epsilon", mode="plain")
    @classmethod
    def _read_epsilon(cls, epsilon: object) -> float:
        if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0 < epsilon < math.inf:
            raise complaint("epsilon is a number above 0", hint="write  epsilon: 1.0")
        return float(epsilon)

    @field_validator("values", mode="plain")
    @classmethod
    def _list_values(cls, values: object) -> tuple[object, ...]:
        """What type they are of is the column's to say."""
        if not isinstance(values, list | tuple) or len(values) < 2:
            raise complaint("an answer has at least two possible values", hint=f"write  {cls.sample}")
        return tuple(values)

    @field_validator("instantaneous", mode="before")
    @classmethod
    def _list_probabilities(cls, pair: object) -> object:
        return tuple(pair) if isinstance(pair, list) else pair

    @model_validator(mode="after")
    def _fit_the_mechanism(self) -> Collected:
        if self.mechanism == "randomized_response" and len(self.values) != 2:
            raise complaint("randomized response is for two values", "values", hint="write  mechanism: kary")
        if self.is_bits and len(self.values) > MOST_BITS:
            raise complaint(
                f"a report of more than {MOST_BITS} bits does not fit into a column of integers",
                "values",
                hint="estimate such reports with dpsql.local, or collect with  mechanism: kary",
            )
        if self.instantaneous is not None and self.mechanism != "rappor":
            raise complaint(f"{self.mechanism} has no instantaneous noise", "instantaneous", hint="leave it out")
        if self.instantaneous is not None and not 0 < self.instantaneous[0] < self.instantaneous[1] < 1:
            raise complaint(
                "these are two probabilities, of which the second is larger",
                "instantaneous",
                hint="write  instantaneous: [0.5, 0.75]",
            )
        return self


def _read_type(text: object) -> ColumnType:
    if isinstance(text, ColumnType):
        return text
    try:
        if not isinstance(text, str):
            raise misfit(text, "a type", "write  type: integer")
        return parse_type(text)
    except SchemaError as error:
        raise complaint(error.problem, hint=error.hint) from None


class Column(Named):
    """A column's type and what is public about its values: either bounds, or the list of all values, or neither."""

    sample = "amount: double, or  amount: {type: double, bounds: [0, 500]}"
    elsewhere: ClassVar = {"unique": "write  unique: true  beside the table's unit, if a unit has one row there"}

    type: Annotated[
        ColumnType,
        PlainValidator(_read_type),
        PlainSerializer(lambda column_type: column_type.name),
        WithJsonSchema(TYPE_JSON),
    ]
    bounds: Annotated[tuple[Value, Value] | None, WithJsonSchema(BOUNDS_JSON)] = Field(
        default=None,
        description="Lowest and highest value, chosen by the owner and never read off the data; auto: as  auto: true",
    )
    auto: bool = Field(
        default=False, description="Each query finds its own clip, within the bounds, for a part of its cost"
    )
    values: Annotated[tuple[Value, ...] | None, WithJsonSchema(VALUES_JSON)] = Field(
        default=None, description="Every value that the column can have: its groups are public"
    )
    nullable: bool = Field(default=False, description="Whether NULL is among its values, and a group of its own")
    collected: Collected | None = Field(
        default=None, description="The column holds randomised reports; the type is that of the answers"
    )

    @property
    def stored_type(self) -> ColumnType:
        """What the table holds: reports of bits are integers, whatever the answers are."""
        return Integer() if self.collected is not None and self.collected.is_bits else self.type

    @model_validator(mode="before")
    @classmethod
    def _accept_a_bare_type(cls, data: object) -> object:
        if isinstance(data, str | ColumnType):
            return {"type": data}
        if isinstance(data, dict) and str(data.get("type")).startswith("decimal(") and ")" not in data["type"]:
            raise complaint(
                "inside braces YAML splits the type at its comma",
                "type",
                hint='put it in quotes:  type: "decimal(18,2)"',
            )
        if isinstance(data, dict) and data.get("bounds") == AUTO:
            return {**data, "bounds": None, "auto": True}
        return data

    @field_validator("bounds", mode="plain")
    @classmethod
    def _read_bounds(cls, bounds: object, info: ValidationInfo) -> tuple[Value, Value] | None:
        column_type: ColumnType | None = info.data.get("type")
        if bounds is None or column_type is None:
            return None
        if not column_type.takes_bounds:
            raise complaint(
                f"a {column_type.name} column has no bounds",
                hint=f"leave them out, or list the public values:  values: {column_type.example}",
            )
        if not isinstance(bounds, list | tuple) or len(bounds) != 2:
            raise complaint("bounds are the lowest and the highest value", hint=f"write  bounds: {column_type.example}")
        low, high = _read_all(column_type, bounds)
        if low > high:  # type: ignore[operator]  # both are of the column's type
            raise complaint(
                f"the lower bound {bounds[0]} is above the upper bound {bounds[1]}",
                hint=f"write  bounds: [{bounds[1]}, {bounds[0]}]",
            )
        return low, high

    @field_validator("auto")
    @classmethod
    def _find_bounds_of_numbers(cls, auto: bool, info: ValidationInfo) -> bool:
        column_type: ColumnType | None = info.data.get("type")
        if auto and column_type is not None and not isinstance(column_type, Integer | Double | Decimal):
            raise complaint(
                f"bounds of a {column_type.name} column cannot be found by queries",
                hint="that is for numbers: leave auto out",
            )
        return auto

    @field_validator("values", mode="plain")
    @classmethod
    def _read_values(cls, values: object, info: ValidationInfo) -> tuple[Value, ...] | None:
        column_type: ColumnType | None = info.data.get("type")
        if values is None or column_type is None:
            return None
        if not column_type.takes_values:
            raise complaint(
                f"a {column_type.name} column cannot list its values", hint=f"write  bounds: {column_type.example}"
            )
        if not isinstance(values, list | tuple) or not values:
            raise complaint(
                "values are a list of at least one value",
                hint=f"write  values: {column_type.example}, or leave them out",
            )
        if info.data.get("bounds") is not None or info.data.get("auto"):
            raise complaint("a column has either bounds or values", hint="leave the bounds out: the values say more")
        read = _read_all(column_type, values)
        seen: set[Value] = set()
        for value in read:
            if value in seen:
                raise complaint(f"{shown(value)} is listed twice", hint="list every value once")
            seen.add(value)
        return read

    @field_validator("collected")
    @classmethod
    def _collect_answers_alone(cls, collected: Collected | None, info: ValidationInfo) -> Collected | None:
        column_type: ColumnType | None = info.data.get("type")
        if collected is None or column_type is None:
            return collected
        for key, instead in (("bounds", "the values say more"), ("values", "its values are those of `collected`")):
            if info.data.get(key) is not None:
                raise complaint(f"a collected column has no {key} beside it", hint=f"leave the {key} out: {instead}")
        if info.data.get("nullable"):
            raise complaint(
                "a collected column holds no NULL: whether somebody answered is not randomised",
                hint="leave nullable out, and let no answer be one of the values, such as none",
            )
        if not isinstance(column_type, Text | Integer | Boolean):
            raise complaint(
                f"a {column_type.name} column cannot be collected", hint="collect text, integer or boolean answers"
            )
        values = _read_all(column_type, collected.values)
        if len({*values}) < len(values):
            raise complaint("a value is listed twice", "values", hint="list every value once")
        return collected.model_copy(update={"values": values})


def _read_all(column_type: ColumnType, values: list[object] | tuple[object, ...]) -> tuple[Value, ...]:
    try:
        return tuple(column_type.read(value) for value in values)
    except SchemaError as error:
        raise complaint(error.problem, hint=error.hint) from None
