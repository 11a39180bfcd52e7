"""Small pieces of engine SQL: literals, casts, clamps. What reaches an engine is built from nodes, never from text."""

from __future__ import annotations

from datetime import date, datetime
from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.schema.types import Boolean, Date, Decimal, Double, Integer, Text, Timestamp

if TYPE_CHECKING:
    from dpsql.expressions.facts import Value
    from dpsql.schema.types import ColumnType

ENGINE_TYPES: dict[type, str] = {
    Integer: "BIGINT",
    Double: "DOUBLE",
    Text: "VARCHAR",
    Boolean: "BOOLEAN",
    Date: "DATE",
    Timestamp: "TIMESTAMP",
}


def column(name: str, table: str | None = None) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True), table=table and exp.to_identifier(table, quoted=True))


def engine_type(kind: ColumnType) -> exp.DataType:
    if isinstance(kind, Decimal):
        return exp.DataType.build(f"DECIMAL({kind.precision}, {kind.scale})", dialect="duckdb")
    return exp.DataType.build(ENGINE_TYPES[type(kind)], dialect="duckdb")


HUGEINT = exp.DataType.build("HUGEINT", dialect="duckdb")


def cast(sql: exp.Expr, kind: ColumnType) -> exp.Expr:
    """A cast that cannot fail because every value fits."""
    return exp.Cast(this=sql, to=engine_type(kind))


def try_cast(sql: exp.Expr, kind: ColumnType) -> exp.Expr:
    """A cast that gives NULL where a value does not fit."""
    return exp.TryCast(this=sql, to=engine_type(kind), safe=True)


def huge(sql: exp.Expr) -> exp.Expr:
    """128 bits, so that sums and products of 64-bit integers cannot overflow."""
    return exp.Cast(this=sql, to=HUGEINT.copy())


def integer(value: int) -> exp.Expr:
    literal: exp.Expr = exp.Literal.number(abs(value))
    if value < 0:
        literal = exp.Paren(this=exp.Neg(this=literal))
    return (
        literal
        if abs(value) < 2**31
        else exp.Cast(this=literal, to=HUGEINT.copy() if abs(value) >= 2**63 else engine_type(Integer()))
    )


def literal(value: Value | None, kind: ColumnType) -> exp.Expr:
    """A constant of exactly this type."""
    if value is None:
        return cast(exp.Null(), kind)
    if isinstance(kind, Boolean):
        return exp.Boolean(this=bool(value))
    if isinstance(kind, Integer):
        assert isinstance(value, int)
        return integer(value)
    if isinstance(kind, Double):
        # repr is the shortest text that reads back as the same double
        assert isinstance(value, int | Fraction)
        return cast(exp.Literal.string(repr(float(value))), kind)
    if isinstance(kind, Decimal):
        assert isinstance(value, int | Fraction)
        scaled = round(Fraction(value) * 10**kind.scale)
        digits = f"{abs(scaled):0{kind.scale + 1}d}"
        whole, fraction = digits[: len(digits) - kind.scale], digits[len(digits) - kind.scale :]
        return cast(
            exp.Literal.string(("-" if scaled < 0 else "") + whole + ("." + fraction if fraction else "")), kind
        )
    if isinstance(kind, Date | Timestamp):
        assert isinstance(value, date | datetime)
        return cast(exp.Literal.string(value.isoformat(*([" "] if isinstance(value, datetime) else []))), kind)
    return exp.Literal.string(str(value))


def when(condition: exp.Expr, then: exp.Expr, otherwise: exp.Expr | None = None) -> exp.Expr:
    """CASE WHEN condition THEN then [ELSE otherwise] END."""
    return exp.Case(ifs=[exp.If(this=condition, true=then)], default=otherwise)


def clamp(sql: exp.Expr, low: exp.Expr, high: exp.Expr) -> exp.Expr:
    """The value moved into [low, high]; NULL stays NULL (LEAST and GREATEST would turn it into a bound)."""
    return exp.Case(
        ifs=[
            exp.If(this=exp.LT(this=sql.copy(), expression=low), true=low.copy()),
            exp.If(this=exp.GT(this=sql.copy(), expression=high), true=high.copy()),
        ],
        default=sql,
    )


def finite(sql: exp.Expr) -> exp.Expr:
    """NaN and the infinities become NULL: they are no values that a sum could take."""
    return when(exp.Anonymous(this="isfinite", expressions=[sql.copy()]), sql)


def least(*choices: exp.Expr) -> exp.Expr:
    """The least value that is not NULL, as the engine's own LEAST understands it."""
    return exp.Anonymous(this="least", expressions=list(choices))


def greatest(*choices: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="greatest", expressions=list(choices))
