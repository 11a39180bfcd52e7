"""The declared schema: which tables exist, which person each row belongs to, and what is public about the columns.

What is not declared does not exist. A `Schema` is validated when it is built and immutable afterwards. `SchemaError`
names everything that is wrong, with its path.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    ModelWrapValidatorHandler,
    PlainSerializer,
    PlainValidator,
    PrivateAttr,
    Tag,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from dpsql.errors import SchemaError, did_you_mean
from dpsql.schema.problems import (
    AUTO_BRANCH,
    COLUMN_BRANCH,
    NO_UNIT,
    NUMBER_BRANCH,
    PATH_BRANCH,
    Document,
    all_problems,
    complaint,
)
from dpsql.schema.types import (
    PLAIN_TYPES,
    Boolean,
    ColumnType,
    Decimal,
    Double,
    Integer,
    Text,
    Value,
    format_problem,
    misfit,
    parse_type,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# -- declared ----------------------------------------------------------------------------------------------------------
# What all parts of a schema file have in common: known keys, and names as SQL understands them.

AUTO: Literal["auto"] = "auto"


DeclaredPart = TypeVar("DeclaredPart", bound="Declared")


class Declared(BaseModel):
    """A part of the schema file: a mapping with known keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)
    sample: ClassVar[str]
    elsewhere: ClassVar[dict[str, str]] = {}
    """Keys that people look for here, and where they belong."""

    @model_validator(mode="before")
    @classmethod
    def _know_every_key(cls, data: object) -> object:
        if isinstance(data, cls):
            return data
        if not isinstance(data, dict):
            raise complaint(misfit(data, "a mapping", "").problem, hint=f"write  {cls.sample}")
        for key in map(str, data):
            if key not in cls.model_fields:
                raise complaint(
                    f'unknown key "{key}"', key, hint=cls.elsewhere.get(key) or did_you_mean(key, cls.model_fields)
                )
        return data


def _copied(part: DeclaredPart, **update: object) -> DeclaredPart:
    """A copy with other values, which does not inherit what was computed from those before."""
    copy = part.model_copy(update=update)
    for name in [name for name in vars(copy) if name not in type(part).model_fields]:
        del vars(copy)[name]
    return copy


class Named(Declared):
    """A part that is a named entry of a mapping, such as a column."""

    _name: str = PrivateAttr(default="")

    @property
    def name(self) -> str:
        return self._name

    def named(self, name: str) -> Self:
        copy = self.model_copy()
        copy._name = name
        return copy


def is_name(text: str) -> bool:
    return bool(text) and text == text.strip() and text.isprintable() and {".", '"'}.isdisjoint(text)


def check_names(names: Iterable[str], *, dots: int = 0) -> None:
    """A table may have the schema of the database in front: sales.orders."""
    seen: dict[str, str] = {}
    for name in names:
        if name.count(".") > dots or not all(map(is_name, name.split("."))):
            raise complaint(
                f"{name!r} is not a valid name",
                name,
                hint="a name cannot contain dots, double quotes or control characters, or begin or end with a blank"
                + ("; a table of another schema is declared as  sales.orders" if dots else ""),
            )
        twin = seen.setdefault(name.lower(), name)
        if twin != name:
            raise complaint(
                f'"{name}" and "{twin}" are the same name in SQL', name, hint="rename one; SQL ignores case"
            )


def spelled(kind: str, name: str, declared: Mapping[str, object], *at: str) -> str:
    """`name` as declared, so that all later code can compare names exactly."""
    for known in declared:
        if known.lower() == name.lower():
            return known
    raise complaint(f'there is no {kind} "{name}"', *at, hint=did_you_mean(name, declared))


ANALYSTS_JSON = {"type": ["array", "null"], "items": {"type": "string"}, "minItems": 1}


def read_analysts(names: object) -> tuple[str, ...] | None:
    """The names of analysts, as the ledger has them."""
    if names is None:
        return None
    if not isinstance(names, list | tuple) or not names or not all(isinstance(n, str) and n.strip() for n in names):
        raise complaint(
            "analysts must be a list of names", hint="write  analysts: [ada, bob]; names are compared as written"
        )
    return tuple(names)


# -- column ------------------------------------------------------------------------------------------------------------
# A declared column: its type, and what everybody may know about its values.

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
    """A column of reports: people randomised their own answers before these reached the table (dpsql.local)."""

    sample = "collected: {mechanism: kary, epsilon: 1.0, values: [never, sometimes, daily]}"

    mechanism: Literal["randomized_response", "kary", "rappor", "oue", "subset"] = Field(
        description="How answers were randomised; rappor, oue and subset reports are one bit per value, stored as "
        "an integer"
    )
    epsilon: Annotated[float, WithJsonSchema({"type": "number", "exclusiveMinimum": 0})] = Field(
        description="The privacy loss of one report"
    )
    values: Annotated[tuple[Value, ...], WithJsonSchema(VALUES_JSON | {"minItems": 2})] = Field(
        description="All possible answers, in the order given to the mechanism"
    )
    instantaneous: tuple[float, float] | None = Field(
        default=None, description="For rappor: the probabilities that a permanent 0 and a permanent 1 are reported as 1"
    )

    @property
    def is_bits(self) -> bool:
        """Whether a report is a bit for each value, the first one lowest, and not a value."""
        return self.mechanism in ("rappor", "oue", "subset")

    @field_validator("epsilon", mode="plain")
    @classmethod
    def _read_epsilon(cls, epsilon: object) -> float:
        if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0 < epsilon < math.inf:
            raise complaint("epsilon must be a number above 0", hint="write  epsilon: 1.0")
        return float(epsilon)

    @field_validator("values", mode="plain")
    @classmethod
    def _list_values(cls, values: object) -> tuple[object, ...]:
        """Their type is that of the column."""
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
            raise complaint("randomized response needs exactly two values", "values", hint="write  mechanism: kary")
        if self.is_bits and len(self.values) > MOST_BITS:
            raise complaint(
                f"a report of more than {MOST_BITS} bits does not fit into a column of integers",
                "values",
                hint="estimate such reports with dpsql.local, or collect with  mechanism: kary",
            )
        if self.instantaneous is not None and self.mechanism != "rappor":
            raise complaint(f"{self.mechanism} does not use instantaneous noise", "instantaneous", hint="remove it")
        if self.instantaneous is not None and not 0 < self.instantaneous[0] < self.instantaneous[1] < 1:
            raise complaint(
                "these must be two probabilities, in increasing order",
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
    """A column: its type, and what is public about its values: bounds, a list of all values, or neither."""

    sample = "amount: double, or  amount: {type: double, bounds: [0, 500]}"
    elsewhere: ClassVar = {"unique": "write  unique: true  next to the table's unit, if each person has one row"}

    type: Annotated[
        ColumnType,
        PlainValidator(_read_type),
        PlainSerializer(lambda column_type: column_type.name),
        WithJsonSchema(TYPE_JSON),
    ] = Field(description="The type that queries see; a stored value that does not fit becomes NULL")
    bounds: Annotated[tuple[Value, Value] | None, WithJsonSchema(BOUNDS_JSON)] = Field(
        default=None,
        description="Lowest and highest value, chosen by the owner without looking at the data; or auto",
    )
    auto: bool = Field(default=False, description="Each query finds its own, narrower bounds, for part of its cost")
    values: Annotated[tuple[Value, ...] | None, WithJsonSchema(VALUES_JSON)] = Field(
        default=None, description="All possible values; groups are public, even empty ones"
    )
    nullable: bool = Field(default=False, description="Whether the column may be NULL; NULL is then a group of its own")
    collected: Collected | None = Field(
        default=None, description="The column holds randomised reports; `type` is the type of the answers"
    )
    group_by: bool = Field(
        default=True, description="Whether queries may group by it; if not, they may compare it with constants"
    )
    analysts: Annotated[tuple[str, ...] | None, WithJsonSchema(ANALYSTS_JSON)] = Field(
        default=None, description="The only analysts for whom the column exists; by default all"
    )

    _read_analysts = field_validator("analysts", mode="plain")(read_analysts)

    @property
    def stored_type(self) -> ColumnType:
        """The stored type: bit reports are integers, whatever the answers are."""
        return Integer() if self.collected is not None and self.collected.is_bits else self.type

    @model_validator(mode="before")
    @classmethod
    def _accept_a_bare_type(cls, data: object) -> object:
        if isinstance(data, str | ColumnType):
            return {"type": data}
        if isinstance(data, dict) and str(data.get("type")).startswith("decimal(") and ")" not in data["type"]:
            raise complaint(
                "inside braces, YAML splits the type at its comma",
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
                f"a {column_type.name} column cannot have bounds",
                hint=f"remove them, or list the public values:   values: {column_type.example}",
            )
        if not isinstance(bounds, list | tuple) or len(bounds) != 2:
            raise complaint(
                "bounds must be the lowest and the highest value", hint=f"write  bounds: {column_type.example}"
            )
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
                f"queries cannot find the bounds of a {column_type.name} column",
                hint="auto is only for numbers; remove it",
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
                "values must be a list of at least one value",
                hint=f"write  values: {column_type.example}, or remove the key",
            )
        if info.data.get("bounds") is not None or info.data.get("auto"):
            raise complaint(
                "a column can have bounds or values, not both", hint="remove the bounds; the values imply them"
            )
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
        for key, instead in (
            ("bounds", "the values imply them"),
            ("values", "its values are listed under `collected`"),
        ):
            if info.data.get(key) is not None:
                raise complaint(f"a collected column has no separate {key}", hint=f"remove {key}: {instead}")
        if info.data.get("nullable"):
            raise complaint(
                "a collected column cannot be NULL, because whether somebody answered is not randomised",
                hint='remove nullable, and make "no answer" one of the values, such as none',
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


# -- table -------------------------------------------------------------------------------------------------------------
# A declared table: whose rows it holds, how much of one person is looked at, and how its file is read.

# One ASCII character that neither ends a line nor belongs to a word.
Mark = Annotated[str, Field(pattern=r"^[\t !-/:-@\[-^`{-~]$")]
NoMark = Annotated[str, Field(pattern=r"^[\t !-/:-@\[-^`{-~]?$")]
# One person's rows and groups are counted in SQL integers.
Count = Annotated[int, Field(ge=1, lt=2**31)]
CountOrAuto = Annotated[
    Annotated[Count, Tag(NUMBER_BRANCH)] | Annotated[Literal["auto"], Tag(AUTO_BRANCH)],
    Discriminator(lambda bound: AUTO_BRANCH if bound == AUTO else NUMBER_BRANCH),
]


class Contribution(Declared):
    """Contribution bounds: how much of one person counts. What exceeds them is sampled or scaled down."""

    sample = "contribution: {max_groups: 4, max_rows_per_group: 5}"

    max_groups: CountOrAuto = Field(
        default=AUTO, description="In how many groups of a GROUP BY one person counts; auto: each query finds the bound"
    )
    max_rows_per_group: CountOrAuto = Field(
        default=AUTO, description="How many rows of one person count in each group; auto: each query finds the bound"
    )


class Csv(Declared):
    """How a text file is read. Nothing is guessed from its rows; missing keys have their defaults."""

    sample = 'csv: {delimiter: ";", encoding: latin-1}'

    delimiter: Mark | None = Field(
        default=None, description="The character between fields; by default a comma, or a tab for .tsv files"
    )
    quote: NoMark = Field(default='"', description="The character around quoted fields; empty if no field is quoted")
    escape: Mark | None = Field(
        default=None, description="The character before a quote inside quotes; by default the quote itself"
    )
    header: Literal[True] | tuple[str, ...] = Field(
        default=True, description="true if the first line names the columns; otherwise the list of names"
    )
    encoding: Literal["utf-8", "latin-1", "windows-1252"] = Field(
        default="utf-8", description="The encoding of the file"
    )
    line_breaks: bool = Field(default=False, description="Whether a quoted field may hold line breaks")
    date_format: str | None = Field(
        default=None, description="How dates are written, such as %d.%m.%Y; by default as 2024-01-31"
    )
    timestamp_format: str | None = Field(
        default=None,
        description="How timestamps are written, such as %d.%m.%Y %H:%M; by default as 2024-01-31 12:30:00",
    )
    decimal: Literal[".", ","] = Field(default=".", description="The character before the fraction of a number")

    @field_validator("header", mode="before")
    @classmethod
    def _read_header(cls, header: object) -> object:
        if header is True:
            return header
        if not isinstance(header, list | tuple) or not header or not all(isinstance(name, str) for name in header):
            raise complaint(
                "header must be true or the list of column names",
                hint="write  header: [person, age]  for a file whose first line is already a row",
            )
        check_names(header)
        return tuple(header)

    @field_validator("decimal", mode="before")
    @classmethod
    def _separate_a_fraction(cls, mark: object) -> object:
        if mark not in (".", ","):
            raise complaint("decimal must be a point or a comma", hint='write  decimal: ","  for numbers such as 7,25')
        return mark

    @field_validator("date_format", "timestamp_format")
    @classmethod
    def _read_whole_dates(cls, pattern: str | None, info: ValidationInfo) -> str | None:
        example = "%d.%m.%Y" if info.field_name == "date_format" else "%d.%m.%Y %H:%M"
        problem = None if pattern is None else format_problem(pattern)
        if problem is not None:
            raise complaint(
                f'"{shown(pattern)}" is no format: {problem}', hint=f'write  {info.field_name}: "{example}"'
            )
        return pattern

    @model_validator(mode="after")
    def _tell_marks_apart(self) -> Csv:
        if self.delimiter is not None and self.delimiter in (self.quote, self.escape):
            raise complaint(
                "the delimiter is also the quote or the escape character", "delimiter", hint="use different characters"
            )
        return self


class UnitPath(Declared):
    """A privacy unit over a foreign key: column `through` of this table refers to `to`, written table.column."""

    sample = "unit: {through: order_id, to: orders.id}"

    through: str = Field(description="The foreign key, a column of this table")
    to: str = Field(description="The column it refers to, as table.column", pattern=r"^[^.]+\.[^.]+(\.[^.]+)?$")

    @field_validator("to", mode="before")
    @classmethod
    def _be_a_column_of_a_table(cls, to: object) -> object:
        if isinstance(to, str) and not (to.count(".") in (1, 2) and all(to.split("."))):
            raise complaint(
                f'"{to}" is not a column of a table', hint="write  to: table.column, such as  to: orders.id"
            )
        return to

    @property
    def to_table(self) -> str:
        return self.to.rpartition(".")[0]

    @property
    def to_column(self) -> str:
        return self.to.rpartition(".")[2]


NAMES_JSON = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}


class Reference(Declared):
    """A foreign key of a table to another one, or several columns that are one together.

    Rows of equal keys belong to the same person. Whether that is true is not relied on: a join compares the persons.
    """

    sample = "references: [{through: order_id, to: orders.id}]"

    through: Annotated[tuple[str, ...], WithJsonSchema(NAMES_JSON)] = Field(
        description="The foreign key: a column of this table, or a list of columns"
    )
    to: Annotated[tuple[str, ...], WithJsonSchema(NAMES_JSON)] = Field(
        description="What it refers to, as table.column, or a list as long; equal keys are one person's"
    )

    @field_validator("through", "to", mode="plain")
    @classmethod
    def _list_names(cls, names: object) -> tuple[str, ...]:
        listed = (names,) if isinstance(names, str) else tuple(names) if isinstance(names, list | tuple) else ()
        if not listed or not all(isinstance(name, str) and name for name in listed):
            raise complaint("this must be a column, or a list of columns", hint=f"write  {cls.sample}")
        if len({name.lower() for name in listed}) < len(listed):
            raise complaint("a column is listed twice", hint="list every column once")
        return listed

    @field_validator("to")
    @classmethod
    def _be_columns_of_one_table(cls, to: tuple[str, ...]) -> tuple[str, ...]:
        if not all(name.count(".") in (1, 2) and all(name.split(".")) for name in to):
            raise complaint(
                f'"{", ".join(to)}" is not a column of a table', hint="write  to: table.column, such as  to: orders.id"
            )
        if len({name.rpartition(".")[0].lower() for name in to}) > 1:
            raise complaint("the columns are of several tables", hint="write a reference for each table")
        return to

    @model_validator(mode="after")
    def _pair_columns(self) -> Reference:
        if len(self.through) != len(self.to):
            raise complaint(
                f"{len(self.through)} columns refer to {len(self.to)}", "to", hint="list one for each column"
            )
        return self

    @property
    def to_table(self) -> str:
        return self.to[0].rpartition(".")[0]

    @property
    def to_columns(self) -> tuple[str, ...]:
        return tuple(name.rpartition(".")[2] for name in self.to)


class Hop(NamedTuple):
    """One step from a row towards its person: `column` equals `to_table.to_column`."""

    column: str
    to_table: str
    to_column: str


def _unit_branch(unit: object) -> str:
    return PATH_BRANCH if isinstance(unit, dict | UnitPath) else COLUMN_BRANCH


class Table(Named):
    """A private table, where each row belongs to one person, or a public table, which is not about people."""

    sample = "orders: {unit: customer_id, columns: {customer_id: integer}}"

    columns: Mapping[str, Column] = Field(description="Name: type, or name: {type: ..., and other keys of a column}")
    unit: (
        Annotated[
            Annotated[str, Tag(COLUMN_BRANCH)] | Annotated[UnitPath, Tag(PATH_BRANCH)], Discriminator(_unit_branch)
        ]
        | None
    ) = Field(default=None, description="The column that identifies the person, or the foreign key that leads to one")
    references: tuple[Reference, ...] = Field(
        default=(), description="Foreign keys to tables of people: a row and the one that it refers to are one person's"
    )
    public: bool = Field(default=False, description="The table is not about people; queries may show its rows")
    unique: bool = Field(default=False, description="Each person has at most one row")
    contribution: Contribution = Field(
        default_factory=Contribution, description="This table's contribution bounds; by default the schema's"
    )
    csv: Csv = Field(
        default_factory=Csv, description="How this table's text file is read; by default as the schema says"
    )
    analysts: Annotated[tuple[str, ...] | None, WithJsonSchema(ANALYSTS_JSON)] = Field(
        default=None, description="The only analysts for whom the table exists; by default all"
    )
    view: Literal["trusted"] | None = Field(
        default=None,
        description="Vouches for a view or computed columns: each row depends on one person's rows only, and none "
        "can fail",
    )

    @property
    def place(self) -> tuple[str | None, str]:
        """The schema of the database in which it is, where it names one (sales.orders), and what it is called there."""
        place, _, name = self.name.rpartition(".")
        return place or None, name

    @property
    def is_public(self) -> bool:
        return self.public

    @property
    def unit_column(self) -> str | None:
        """The column that holds the unit; None when the table is public or reaches its unit over a path."""
        return self.unit if isinstance(self.unit, str) else None

    def seeing(self, columns: Mapping[str, Column]) -> Table:
        """The table with these of its columns alone."""
        return _copied(self, columns=columns)

    def referring_to(self, tables: Mapping[str, Table]) -> Table:
        """The table with the references whose columns are all seen."""

        def is_seen(one: Reference) -> bool:
            target = tables.get(one.to_table)
            return (
                self.columns.keys() >= {*one.through}
                and target is not None
                and target.columns.keys() >= {*one.to_columns}
            )

        return _copied(self, references=tuple(one for one in self.references if is_seen(one)))

    def column(self, name: str) -> Column | None:
        """The column of that name in any case, as SQL understands names."""
        return self._by_lower_name.get(name.lower())

    @cached_property
    def _by_lower_name(self) -> dict[str, Column]:
        return {name.lower(): column for name, column in self.columns.items()}

    _read_analysts = field_validator("analysts", mode="plain")(read_analysts)

    @field_validator("columns")
    @classmethod
    def _name_columns(cls, columns: Mapping[str, Column]) -> Mapping[str, Column]:
        if not columns:
            raise complaint("the table has no columns", hint="write  columns: {customer_id: integer, region: text}")
        check_names(columns)
        return {name: column.named(name) for name, column in columns.items()}

    @field_validator("unit")
    @classmethod
    def _spell_unit_as_declared(cls, unit: str | UnitPath | None, info: ValidationInfo) -> str | UnitPath | None:
        columns = info.data.get("columns")
        if columns is None or unit is None:
            return unit
        if isinstance(unit, str):
            return spelled("column", unit, columns)
        return unit.model_copy(update={"through": spelled("column", unit.through, columns, "through")})

    @field_validator("references", mode="before")
    @classmethod
    def _list_references(cls, references: object) -> object:
        return tuple(references) if isinstance(references, list) else references

    @field_validator("references")
    @classmethod
    def _spell_keys_as_declared(cls, references: tuple[Reference, ...], info: ValidationInfo) -> tuple[Reference, ...]:
        columns = info.data.get("columns")
        if columns is None:
            return references
        return tuple(
            reference.model_copy(
                update={
                    "through": tuple(
                        spelled("column", name, columns, str(place), "through") for name in reference.through
                    )
                }
            )
            for place, reference in enumerate(references)
        )

    @model_validator(mode="after")
    def _belong_to_a_unit_or_to_nobody(self) -> Table:
        if self.public:
            for key in ("unit", "unique", "contribution", "references"):
                if key in self.model_fields_set and getattr(self, key):
                    raise complaint(
                        f'a public table cannot have "{key}"',
                        key,
                        hint=f"remove {key} if the rows are not about people, or  public: true  if they are",
                    )
        elif self.unit is None:
            raise complaint(
                NO_UNIT,
                hint=f"write  unit: {next(iter(self.columns))}  if that column identifies the person; a table without "
                "one may reach it:  unit: {through: order_id, to: orders.id}; or write  public: true  if it is about "
                "nobody",
            )
        return self

    @model_validator(mode="after")
    def _know_people_by_what_is_true(self) -> Table:
        leading = self.unit.through if isinstance(self.unit, UnitPath) else self.unit
        if leading is not None and self.columns[leading].collected is not None:
            raise complaint(
                f'"{leading}" leads to the person and cannot be randomised',
                "unit",
                hint="remove collected, or name another column as the unit",
            )
        return self

    @model_validator(mode="after")
    def _restrict_what_can_be(self) -> Table:
        leading = self.unit.through if isinstance(self.unit, UnitPath) else self.unit
        for name, column in self.columns.items():
            if not column.group_by and (self.public or name == leading or column.collected is not None):
                raise complaint(
                    f'"{name}" cannot be kept from GROUP BY: '
                    + (
                        "everybody may see the rows of a public table"
                        if self.public
                        else "it leads to the person"
                        if name == leading
                        else "its reports are counted by value"
                    ),
                    "columns",
                    name,
                    "group_by",
                    hint="remove group_by",
                )
            if column.analysts is not None and name == leading:
                raise complaint(
                    f'"{name}" leads to the person, and cannot be for some analysts only',
                    "columns",
                    name,
                    "analysts",
                    hint="write analysts next to the table's unit, for the whole table",
                )
        return self

    @model_validator(mode="after")
    def _leave_unique_alone(self) -> Table:
        if self.unique and isinstance(self.unit, UnitPath):
            raise complaint(
                "a table that reaches its unit through another table cannot be unique",
                "unique",
                hint="remove unique, or declare a column of this table as its unit",
            )
        if self.unique and "contribution" in self.model_fields_set:
            raise complaint(
                "a table with one row per person has no contribution to bound",
                "contribution",
                hint="remove contribution or  unique: true; where a join multiplies its rows, the schema's "
                "contribution applies",
            )
        return self


# -- model -------------------------------------------------------------------------------------------------------------


class Schema(Declared):
    """The whole declaration: tables, columns, persons, and what is public about them.

    `dpsql.connect` accepts a YAML or JSON file, a dict or a `Schema`; `Schema.model_validate` builds one from a dict.

    >>> columns = {"customer": "integer", "amount": {"type": "double", "bounds": [0, 500]}}
    >>> schema = Schema.model_validate({"tables": {"orders": {"unit": "customer", "columns": columns}}})
    >>> schema.tables["orders"].columns["amount"].bounds
    (0.0, 500.0)

    Raises:
        SchemaError: the declaration is wrong.
    """

    sample = "tables: {orders: {unit: customer_id, columns: {customer_id: integer}}}"

    dataset: str = Field(default="data", description="The name of the dataset; the ledger's account has the same")
    contribution: Contribution = Field(
        default_factory=Contribution, description="The contribution bounds of tables that set none"
    )
    csv: Csv = Field(default_factory=Csv, description="How the text files of all tables are read")
    empty_groups: Literal["show", "hide"] = Field(
        default="show", description="Whether answers show public groups that look empty; a query may say otherwise"
    )
    snapshot: str | None = Field(
        default=None, description="The owner's name of the data as they are now, such as a load; the ledger notes it"
    )
    minimum_people: Annotated[int, Field(ge=2, lt=2**31)] | None = Field(
        default=None,
        description="A group of fewer people is shown with a probability of at most 5 %, whatever is asked",
    )
    accuracy: Literal["optional", "required"] = Field(
        default="optional", description="Whether each query has to state its accuracy, and so pays for no more"
    )
    tables: Mapping[str, Table] = Field(
        description="Name: table; sales.orders for a table in another schema of the database"
    )

    def table(self, name: str) -> Table | None:
        """The table of that name, whatever its case; None if it is not declared.

        Args:
            name: the name as a query writes it.
        """
        return self._by_lower_name.get(name.lower())

    def unit_path(self, table_name: str) -> tuple[Hop, ...]:
        """The foreign keys that lead from a table to its person; empty if the table has the person, or is public.

        Args:
            table_name: the table to start from.
        """
        hops = []
        table = self.table(table_name)
        while table is not None and isinstance(table.unit, UnitPath):
            hops.append(Hop(table.unit.through, table.unit.to_table, table.unit.to_column))
            table = self.table(table.unit.to_table)
        return tuple(hops)

    def seen_by(self, analyst: str | None) -> Schema:
        """The part of the schema that exists for an analyst; None has what everybody has.

        Args:
            analyst: the name, compared as written.
        """

        def sees(part: Table | Column) -> bool:
            return part.analysts is None or analyst in part.analysts

        if all(sees(table) and all(map(sees, table.columns.values())) for table in self.tables.values()):
            return self
        tables = {
            name: table.seeing({key: column for key, column in table.columns.items() if sees(column)})
            for name, table in self.tables.items()
            if sees(table)
        }
        return _copied(self, tables={name: table.referring_to(tables) for name, table in tables.items()})

    def links(self, table_name: str) -> tuple[Hop, ...]:
        """The columns of a table that each refer to a row of the same person: its way to the person, and references.

        Args:
            table_name: the table that refers.
        """
        table = self.table(table_name)
        single = [one for one in (table.references if table is not None else ()) if len(one.through) == 1]
        return (
            *self.unit_path(table_name)[:1],
            *(Hop(one.through[0], one.to_table, one.to_columns[0]) for one in single),
        )

    def without_rules(self) -> Schema:
        """The schema without the rules about which questions are answered: privacy does not rest on them."""
        tables = {
            name: _copied(
                table,
                analysts=None,
                columns={key: _copied(column, analysts=None, group_by=True) for key, column in table.columns.items()},
            )
            for name, table in self.tables.items()
        }
        return _copied(self, tables=tables, minimum_people=None, accuracy="optional", snapshot=None)

    def link_targets(self, table_name: str) -> frozenset[str]:
        """The columns of a table that foreign keys of other tables refer to.

        Args:
            table_name: the table that is referred to.
        """
        links = (table.unit for table in self.tables.values() if isinstance(table.unit, UnitPath))
        return frozenset(link.to_column for link in links if link.to_table.lower() == table_name.lower())

    @cached_property
    def fingerprint(self) -> str:
        """A SHA-256 hash of the declaration: equal declarations have equal fingerprints, however they are written."""
        canonical = json.dumps(self.model_dump(), sort_keys=True, default=str)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def on_record(self) -> dict[str, Any]:
        """What the ledger keeps of the declaration: by table, the keys that are not at their defaults.

        Of a list of values it keeps the length and a hash.
        """
        dumped = {name: table.model_dump(exclude_defaults=True) for name, table in self.tables.items()}
        plain: dict[str, Any] = json.loads(json.dumps(dumped, default=str))
        for table in plain.values():
            for column in table["columns"].values():
                for part in (column, column.get("collected", {})):
                    if "values" in part:
                        digest = hashlib.sha256(json.dumps(part["values"]).encode()).hexdigest()
                        part["values"] = f"{len(part['values'])} values ({digest[:8]})"
        return plain

    @cached_property
    def _by_lower_name(self) -> dict[str, Table]:
        return {name.lower(): table for name, table in self.tables.items()}

    @field_validator("snapshot")
    @classmethod
    def _name_a_snapshot(cls, name: str | None) -> str | None:
        if name is not None and (not name.strip() or not name.isprintable()):
            raise complaint("a snapshot needs a name of one line", hint="write  snapshot: load of 2026-11-20")
        return name

    @field_validator("tables")
    @classmethod
    def _resolve_tables(cls, tables: Mapping[str, Table], info: ValidationInfo) -> Mapping[str, Table]:
        if not tables:
            raise complaint("the schema has no tables", hint="declare at least one; queries see only declared tables")
        check_names(tables, dots=1)
        defaults = info.data.get("contribution", Contribution())
        dialect = info.data.get("csv", Csv())
        resolved = {
            name: table.model_copy(
                update={
                    "unit": _resolved_unit(name, tables),
                    "references": tuple(_resolved_references(name, tables)),
                    "contribution": _resolved_contribution(table, defaults),
                    "csv": dialect.model_copy(update=table.csv.model_dump(exclude_unset=True)),
                }
            ).named(name)
            for name, table in tables.items()
        }
        for name in resolved:
            _check_path_ends(name, resolved)
            _check_path_is_seen(name, resolved)
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
        raise complaint(f'"{to_table}.{to_column}" holds randomised reports', *at, hint="make the path refer to a key")
    if tables[to_table].public:
        raise complaint(
            f'the path ends nowhere: "{to_table}" is public and has no unit',
            *at,
            hint="make it refer to a private table",
        )
    here, there = table.columns[unit.through].type, tables[to_table].columns[to_column].type
    if here != there:
        raise complaint(
            f'"{unit.through}" is {here.name} and "{to_table}.{to_column}" is {there.name}: they cannot be equal',
            *at,
            hint="declare both columns with the same type",
        )
    return unit.model_copy(update={"to": f"{to_table}.{to_column}"})


def _check_path_is_seen(name: str, tables: Mapping[str, Table]) -> None:
    """Whoever sees a table also sees the way to its person."""
    unit = tables[name].unit
    if not isinstance(unit, UnitPath):
        return
    target = tables[unit.to_table]
    for part, key in ((target, unit.to_table), (target.columns[unit.to_column], unit.to)):
        seers = tables[name].analysts
        if part.analysts is not None and (seers is None or not {*seers} <= {*part.analysts}):
            raise complaint(
                f'the path leads over "{key}", which some analysts of this table do not see',
                name,
                "analysts",
                hint=f"write  analysts: [{', '.join(part.analysts)}]  here too, or fewer of them",
            )


def _resolved_references(name: str, tables: Mapping[str, Table]) -> Iterator[Reference]:
    """The foreign keys with their targets as declared, once each can be compared with its own."""
    table, seen = tables[name], set[tuple[str, ...]]()
    for place, reference in enumerate(table.references):
        at = (name, "references", str(place), "to")
        to_table = spelled("table", reference.to_table, tables, *at)
        target = tables[to_table]
        to_columns = tuple(spelled("column", column, target.columns, *at) for column in reference.to_columns)
        if target.public:
            raise complaint(
                f'"{to_table}" is public', *at, hint="remove the reference: any join with a public table is possible"
            )
        leading = table.unit.through if isinstance(table.unit, UnitPath) else table.unit
        if to_columns == (target.unit,) or reference.through == (leading,) or reference.through in seen:
            raise complaint(
                f'"{", ".join(reference.through)}" already leads to the person'
                if to_columns != (target.unit,)
                else f'"{to_table}.{to_columns[0]}" is the person itself',
                *at,
                hint="remove the reference, or declare the way to the person as the unit of the table",
            )
        seen.add(reference.through)
        for mine, its in zip(reference.through, to_columns, strict=True):
            _check_comparable(table, mine, to_table, target, its, at)
        yield reference.model_copy(update={"to": tuple(f"{to_table}.{column}" for column in to_columns)})


def _check_comparable(table: Table, mine: str, to_table: str, target: Table, its: str, at: tuple[str, ...]) -> None:
    here, there = table.columns[mine], target.columns[its]
    for column, shown_as in ((here, mine), (there, f"{to_table}.{its}")):
        if column.collected is not None:
            raise complaint(f'"{shown_as}" holds randomised reports', *at, hint="make the path refer to a key")
    if here.type != there.type:
        raise complaint(
            f'"{mine}" is {here.type.name} and "{to_table}.{its}" is {there.type.name}: they cannot be equal',
            *at,
            hint="declare both columns with the same type",
        )


def _check_path_ends(name: str, tables: Mapping[str, Table]) -> None:
    seen = [name]
    unit = tables[name].unit
    while isinstance(unit, UnitPath):
        seen.append(unit.to_table)
        if unit.to_table in seen[:-1]:
            raise complaint(
                f"the path is a cycle: {' -> '.join(seen)}",
                name,
                "unit",
                hint="give one of these tables a unit column of its own, such as  unit: customer_id",
            )
        unit = tables[unit.to_table].unit
