"""A declared table: whose rows it holds, how much of one person is looked at, and how its file is read."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Literal, NamedTuple

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator, model_validator

from dpsql.schema.column import Column
from dpsql.schema.declared import AUTO, Declared, Named, check_names, spelled
from dpsql.schema.problems import AUTO_BRANCH, COLUMN_BRANCH, NO_UNIT, NUMBER_BRANCH, PATH_BRANCH, complaint

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
    """How much of one person is looked at: what exceeds it is sampled or scaled down, never refused."""

    sample = "contribution: {max_groups: 4, max_rows_per_group: 5}"

    max_groups: CountOrAuto = Field(
        default=1, description="Groups of one GROUP BY that one person's rows may reach; auto: each query finds it"
    )
    max_rows_per_group: CountOrAuto = Field(
        default=1, description="Rows of one person that count within one group; auto: each query finds it"
    )


class Csv(Declared):
    """How a text file is read. Nothing is guessed from its rows: what is not said here is the constant beside it."""

    sample = 'csv: {delimiter: ";", encoding: latin-1}'

    delimiter: Mark | None = Field(
        default=None, description="Between fields: a comma if not given, a tab for .tsv files"
    )
    quote: NoMark = Field(
        default='"', description="Around fields that hold a delimiter; empty where no field is ever quoted"
    )
    escape: Mark | None = Field(default=None, description="Before a quote within quotes: the quote itself if not given")
    header: Literal[True] | tuple[str, ...] = Field(
        default=True, description="true: the first line names the columns; a list of names where no line does"
    )
    encoding: Literal["utf-8", "latin-1", "windows-1252"] = Field(
        default="utf-8", description="What the bytes stand for"
    )
    line_breaks: bool = Field(default=False, description="Whether a quoted field may hold line breaks")

    @field_validator("header", mode="before")
    @classmethod
    def _read_header(cls, header: object) -> object:
        if header is True:
            return header
        if not isinstance(header, list | tuple) or not header or not all(isinstance(name, str) for name in header):
            raise complaint(
                "the header is true, or the list of the columns' names",
                hint="write  header: [person, age]  for a file whose first line is a row already",
            )
        check_names(header)
        return tuple(header)

    @model_validator(mode="after")
    def _tell_marks_apart(self) -> Csv:
        if self.delimiter is not None and self.delimiter in (self.quote, self.escape):
            raise complaint(
                "the delimiter is the quote or the escape too", "delimiter", hint="each needs a character of its own"
            )
        return self


class UnitPath(Declared):
    """The person is found over a foreign key: column `through` of this table equals `to`, written table.column."""

    sample = "unit: {through: order_id, to: orders.id}"

    through: str = Field(description="The foreign key column of this table")
    to: str = Field(description="What it refers to, as table.column", pattern=r"^[^.]+\.[^.]+(\.[^.]+)?$")

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


class Hop(NamedTuple):
    """One step from a row towards its person: `column` equals `to_table.to_column`."""

    column: str
    to_table: str
    to_column: str


def _unit_branch(unit: object) -> str:
    return PATH_BRANCH if isinstance(unit, dict | UnitPath) else COLUMN_BRANCH


class Table(Named):
    """A private table, whose every row belongs to one unit, or a public one that belongs to nobody."""

    sample = "orders: {unit: customer_id, columns: {customer_id: integer}}"

    columns: Mapping[str, Column] = Field(description="Name: type, or name: {type: ..., bounds or values, nullable}")
    unit: (
        Annotated[
            Annotated[str, Tag(COLUMN_BRANCH)] | Annotated[UnitPath, Tag(PATH_BRANCH)], Discriminator(_unit_branch)
        ]
        | None
    ) = Field(default=None, description="The column that identifies the person, or the foreign key that leads there")
    public: bool = Field(default=False, description="The table is about nobody and may be shown as it is")
    unique: bool = Field(default=False, description="One row per unit")
    contribution: Contribution = Field(
        default_factory=Contribution, description="This table's own bounds; what they leave out is the schema's"
    )
    csv: Csv = Field(default_factory=Csv, description="How this table's text file is read, where it comes from one")
    view: Literal["trusted"] | None = Field(
        default=None,
        description="Vouches for a view or computed columns: a row follows from one person's rows and cannot fail",
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

    def column(self, name: str) -> Column | None:
        """The column of that name in any case, as SQL understands names."""
        return self._by_lower_name.get(name.lower())

    @cached_property
    def _by_lower_name(self) -> dict[str, Column]:
        return {name.lower(): column for name, column in self.columns.items()}

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

    @model_validator(mode="after")
    def _belong_to_a_unit_or_to_nobody(self) -> Table:
        if self.public:
            for key in ("unit", "unique", "contribution"):
                if key in self.model_fields_set and getattr(self, key):
                    raise complaint(
                        f'a public table has no "{key}"',
                        key,
                        hint=f"remove {key} if the rows are about nobody, or  public: true  if they are about people",
                    )
        elif self.unit is None:
            raise complaint(
                NO_UNIT,
                hint=f"write  unit: {next(iter(self.columns))}  if that column identifies the person; a table without "
                "one may reach it:  unit: {through: order_id, to: orders.id}",
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
    def _leave_unique_alone(self) -> Table:
        if self.unique and isinstance(self.unit, UnitPath):
            raise complaint(
                "a table that reaches its unit over a path cannot be unique",
                "unique",
                hint="remove unique, or declare a column of this table as its unit",
            )
        if self.unique and "contribution" in self.model_fields_set:
            raise complaint(
                "a table with one row per unit has no contribution to bound",
                "contribution",
                hint="remove contribution, or  unique: true; where a join multiplies its rows, the schema's own holds",
            )
        return self
