"""Rendering: engine SQL as text, as far as all engines agree. Subclasses add their own spellings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, assert_never

from dpsql.engine_sql.build import NULL
from dpsql.engine_sql.tree import (
    OPERATIONS,
    AggFunc,
    Alias,
    AroundRank,
    Blank,
    Case,
    Cast,
    Constant,
    Exists,
    Field,
    Func,
    Joined,
    Let,
    Materialized,
    Operand,
    Ordered,
    Scalar,
    Select,
    Series,
    SetOperation,
    Stored,
    Subquery,
    Table,
    TryCast,
    Values,
    WindowFunc,
    With,
)
from dpsql.errors import Unsupported
from dpsql.limits import LONGEST_ENGINE_SQL
from dpsql.schema.types import Decimal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from dpsql.engine_sql.tree import CTE, Kind, Query, Source, Term
    from dpsql.schema.types import ColumnType

# -- quoting -----------------------------------------------------------------------------------------------------------
# Names and texts inside SQL that dpsql writes: quoted here, and nowhere else.


def quoted(name: str) -> str:
    """
    >>> quoted('odd"name')
    '"odd""name"'
    """
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """
    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


# -- blanks ------------------------------------------------------------------------------------------------------------
# A blank without a value stays open in the text. No text or name in a query has a NUL in it, so none looks like one.


def left_open(blank: str) -> str:
    return f"\0{blank}\0"


def filled(sql: str, blank: str, value: int) -> str:
    """
    >>> filled(f"SELECT {left_open('salt')}", "salt", 7)
    'SELECT 7'
    """
    if value < 0:
        raise ValueError("a negative number is written in another way on each engine")
    return sql.replace(left_open(blank), str(value))


# -- render ------------------------------------------------------------------------------------------------------------

WITH = "WITH "
STANDARD_INFIX = {
    **{symbol: symbol for symbol in ("=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "%", "&", "|", "||")},
    "same": "IS NOT DISTINCT FROM",
    "different": "IS DISTINCT FROM",
}
STANDARD: dict[str, Callable[..., str]] = {
    "and": lambda *parts: f"({' AND '.join(parts)})",
    "or": lambda *parts: f"({' OR '.join(parts)})",
    "not": lambda part: f"(NOT {part})",
    "negate": lambda part: f"(-{part})",
    "is null": lambda part: f"({part} IS NULL)",
    "is not null": lambda part: f"({part} IS NOT NULL)",
    "is not false": lambda part: f"({part} IS NOT FALSE)",
    "in": lambda value, *choices: f"({value} IN ({', '.join(choices)}))",
    "between": lambda value, low, high: f"({value} BETWEEN {low} AND {high})",
}
"""Operations that engines spell alike."""


def quanta_in_one(fold: AggFunc) -> Constant:
    """The number of quanta, units of the last digit, in 1: a sum of decimals times this is a whole number."""
    (value,) = fold.arguments
    assert isinstance(value.kind, Decimal)
    return Constant(10**value.kind.scale, Decimal(value.kind.scale + 1, 0))


class Renderer(ABC):
    """Renders one query; `blanks` are the values of what it leaves open, those that are known by now."""

    def __init__(self, blanks: Mapping[str, int] | None = None) -> None:
        self.blanks = blanks or {}
        self.parts: set[str] = set()

    # -- what engines say differently ---------------------------------------------------------------------------------

    @abstractmethod
    def quoted(self, name: str) -> str: ...

    @abstractmethod
    def type_name(self, kind: Kind) -> str: ...

    @abstractmethod
    def constant(self, constant: Constant) -> str: ...

    @abstractmethod
    def apply(self, operation: str, arguments: list[str], node: Func) -> str: ...

    @abstractmethod
    def try_cast(self, cast: TryCast) -> str: ...

    @abstractmethod
    def stored(self, column: Stored) -> str: ...

    @abstractmethod
    def let(self, let: Let) -> str: ...

    @abstractmethod
    def operand(self, operand: Operand) -> str: ...

    @abstractmethod
    def fold(self, fold: AggFunc) -> str: ...

    @abstractmethod
    def series(self, series: Series) -> str: ...

    @abstractmethod
    def around_rank(self, profile: AroundRank) -> str: ...

    # -- values -------------------------------------------------------------------------------------------------------

    def term(self, value: Term) -> str:
        match value:
            case Func(operation, arguments):
                assert operation in OPERATIONS, operation
                return self.apply(operation, [self.term(argument) for argument in arguments], value)
            case Field(name, table):
                return self.quoted(name) if table is None else f"{self.quoted(table)}.{self.quoted(name)}"
            case Constant():
                return self.constant(value)
            case Operand():
                return self.operand(value)
            case TryCast():
                return self.try_cast(value)
            case Cast():
                return self.cast(value)
            case Case():
                return self.case(value)
            case Stored():
                return self.stored(value)
            case Let():
                return self.let(value)
            case AggFunc():
                return self.fold(value)
            case WindowFunc():
                return self.over(value)
            case Blank(name):
                return self.constant(Constant(self.blanks[name])) if name in self.blanks else left_open(name)
            case Exists(query):
                return f"EXISTS ({self.query(query)})"
            case Scalar(query):
                return f"({self.query(query)})"
        assert_never(value)

    def case(self, case: Case) -> str:
        whens = " ".join(f"WHEN {self.term(test)} THEN {self.term(then)}" for test, then in case.branches)
        last = "" if case.otherwise == NULL else f" ELSE {self.term(case.otherwise)}"
        return f"CASE {whens}{last} END"

    def cast(self, cast: Cast) -> str:
        return f"CAST({self.term(cast.value)} AS {self.type_name(cast.kind)})"

    def listed(self, values: Iterable[Term]) -> str:
        return ", ".join(map(self.term, values))

    def ordered(self, order: Iterable[Ordered]) -> str:
        return ", ".join(
            f"{self.term(part.value)}{' DESC' * part.descending} NULLS {'FIRST' if part.nulls_first else 'LAST'}"
            for part in order
        )

    def over(self, window: WindowFunc) -> str:
        partition = f"PARTITION BY {self.listed(window.partition_by)}"
        order = f" ORDER BY {self.ordered(window.order_by)}" if window.order_by else ""
        frame = f" {window.frame}" if window.frame else ""
        return f"{self.folded(window.fold)} OVER ({partition}{order}{frame})"

    def folded(self, fold: AggFunc) -> str:
        """The fold as a single call, which OVER can follow."""
        return self.fold(fold)

    # -- queries ------------------------------------------------------------------------------------------------------

    def query(self, query: Query) -> str:
        sql = self._query(query)
        if len(sql) > LONGEST_ENGINE_SQL:
            raise Unsupported(
                f"the engine SQL would be longer than {LONGEST_ENGINE_SQL:,} characters",
                hint="read fewer tables and columns with long lists of declared values, or split the query",
            )
        return sql

    def _query(self, query: Query) -> str:
        match query:
            case Select():
                return self.select(query)
            case SetOperation(kind, left, right):
                return f"({self.query(left)}) {kind} ({self.query(right)})"
            case With(parts, last):
                self.parts.update(part.name for part in parts)
                before = ", ".join(map(self.part, parts))
                rest = self.query(last)
                # One that has a WITH clause of its own has these in front.
                return (
                    f"{WITH}{before}, {rest.removeprefix(WITH)}" if rest.startswith(WITH) else f"{WITH}{before} {rest}"
                )
            case Values():
                return self.values(query)
            case Series():
                return self.series(query)
            case AroundRank():
                return self.around_rank(query)
            case Materialized(materialized):
                return self.query(materialized)
        assert_never(query)

    def part(self, part: CTE) -> str:
        kept = {None: "", True: "MATERIALIZED ", False: "NOT MATERIALIZED "}[part.kept]
        return f"{self.quoted(part.name)} AS {kept}({self.query(part.query)})"

    def values(self, values: Values) -> str:
        names = ", ".join(map(self.quoted, values.names))
        if not values.rows:
            columns = zip(values.names, values.kinds, strict=True)
            empty = (f"{self.typed_null(kind)} AS {self.quoted(name)}" for name, kind in columns)
            return f"SELECT {', '.join(empty)} WHERE false"
        rows = ([Constant(*cell) for cell in zip(row, values.kinds, strict=True)] for row in values.rows)
        listed = ", ".join(f"({self.listed(row)})" for row in rows)
        return f"SELECT {names} FROM (VALUES {listed}) AS listed({names})"

    def select(self, select: Select) -> str:
        columns = ", ".join(map(self.named, select.columns)) or "1"
        sql = f"SELECT {'DISTINCT ' if select.distinct else ''}{columns}"
        if select.source is not None:
            sql += f" FROM {self.source(select.source)}"
        if select.where is not None:
            sql += f" WHERE {self.term(select.where)}"
        if select.group_by:
            sql += f" GROUP BY {self.listed(select.group_by)}"
        if select.order_by:
            sql += f" ORDER BY {self.ordered(select.order_by)}"
        return sql

    def named(self, column: Alias) -> str:
        value = column.value
        if isinstance(value, Field) and value.name == column.name:
            return self.term(value)
        return f"{self.term(value)} AS {self.quoted(column.name)}"

    def source(self, source: Source) -> str:
        match source:
            case Table():
                return self.table(source)
            case Subquery(query, alias):
                return f"({self.query(query)}) AS {self.quoted(alias)}"
            case Joined(kind, left, right, on):
                meets = "" if on is None else f" ON {self.term(on)}"
                return f"{self.source(left)} {kind} JOIN {self.source(right)}{meets}"
        assert_never(source)

    def table(self, table: Table) -> str:
        """A declared table has an alias, a part of the query has none."""
        if table.alias is not None and table.name.lower() in self.parts:
            raise Unsupported(
                f'"{table.name}" clashes with a name that dpsql uses in engine SQL',
                hint="ask the data owner to give the table another name, or to declare a view of it",
            )
        name = self.quoted(table.name)
        return name if table.alias is None else f"{name} AS {self.quoted(table.alias)}"

    def typed_null(self, kind: ColumnType) -> str:
        return f"CAST(NULL AS {self.type_name(kind)})"
