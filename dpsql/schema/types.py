"""The column types of a schema: integer, double, decimal(p,s), text, boolean, date, timestamp.

A type reads a value as it stands in YAML, JSON or Python and gives the one form that the rest of dpsql works with:

>>> parse_type("decimal(10,2)").read(12.5)
Decimal('12.50')
"""

from __future__ import annotations

import decimal
import math
import re
from dataclasses import dataclass
from datetime import date, datetime
from numbers import Integral, Real
from typing import ClassVar, TypeAlias

from dpsql.errors import SchemaError, did_you_mean

Value: TypeAlias = int | float | decimal.Decimal | str | bool | date | datetime

WIDEST_DECIMAL = 38
# Wide enough to compare any decimal(38,s) exactly, whatever context the caller has set.
EXACT = decimal.Context(prec=2 * WIDEST_DECIMAL)


@dataclass(frozen=True)
class Integer:
    name: ClassVar[str] = "integer"
    takes_bounds: ClassVar[bool] = True
    takes_values: ClassVar[bool] = True
    example: ClassVar[str] = "[0, 100]"

    def read(self, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise misfit(value, "an integer", "write a whole number without a decimal point, such as 100")
        number = int(value)
        if not -(2**63) <= number < 2**63:
            raise misfit(value, "a 64-bit integer", "stay between -9223372036854775808 and 9223372036854775807")
        return number


@dataclass(frozen=True)
class Double:
    name: ClassVar[str] = "double"
    takes_bounds: ClassVar[bool] = True
    takes_values: ClassVar[bool] = False
    example: ClassVar[str] = "[0, 500]"

    def read(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, Real | decimal.Decimal):
            raise misfit(value, "a number", "write a number without quotes, such as 12.5")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise misfit(value, "a finite number", "write a public number, such as 500")
        return number


@dataclass(frozen=True)
class Decimal:
    precision: int
    scale: int
    takes_bounds: ClassVar[bool] = True
    takes_values: ClassVar[bool] = False
    example: ClassVar[str] = "[0, 500]"

    @property
    def name(self) -> str:
        return f"decimal({self.precision},{self.scale})"

    def read(self, value: object) -> decimal.Decimal:
        number = self._number(value)
        if not number.is_finite():
            raise misfit(value, "a finite number", "write a public number, such as 500")
        whole_digits = self.precision - self.scale
        if number.copy_abs() >= 10**whole_digits:  # abs() would round to the context
            raise misfit(value, f"a {self.name}", f"it has room for {whole_digits} digits before the point")
        fitted = number.quantize(decimal.Decimal((0, (1,), -self.scale)), context=EXACT)
        if fitted != number:
            raise misfit(value, f"a {self.name}", f"it has room for {self.scale} digits after the point")
        return fitted

    @staticmethod
    def _number(value: object) -> decimal.Decimal:
        # Text is welcome here: YAML and JSON have no other way to write a long decimal exactly.
        if isinstance(value, str | decimal.Decimal) or (isinstance(value, Integral) and not isinstance(value, bool)):
            try:
                return decimal.Decimal(str(value))
            except decimal.InvalidOperation:
                pass
        elif isinstance(value, Real) and not isinstance(value, bool):
            return decimal.Decimal(repr(float(value)))
        raise misfit(value, "a number", "write a number, such as 12.50")


@dataclass(frozen=True)
class Text:
    name: ClassVar[str] = "text"
    takes_bounds: ClassVar[bool] = False
    takes_values: ClassVar[bool] = True
    example: ClassVar[str] = "[north, south]"

    def read(self, value: object) -> str:
        if not isinstance(value, str):
            raise misfit(value, "text", f'put it in quotes: "{shown(value)}"')
        if shown(value) != value:
            raise misfit(
                value, "valid text", "it contains half of a character (a lone surrogate); write the whole character"
            )
        if "\0" in value:
            raise misfit(value, "valid text", "it contains a NUL character; remove the value")
        return value


@dataclass(frozen=True)
class Boolean:
    name: ClassVar[str] = "boolean"
    takes_bounds: ClassVar[bool] = False
    takes_values: ClassVar[bool] = True
    example: ClassVar[str] = "[false, true]"

    def read(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise misfit(value, "a boolean", "write true or false, without quotes")
        return value


@dataclass(frozen=True)
class Date:
    name: ClassVar[str] = "date"
    takes_bounds: ClassVar[bool] = True
    takes_values: ClassVar[bool] = True
    example: ClassVar[str] = "[2024-01-01, 2026-12-31]"

    def read(self, value: object) -> date:
        if isinstance(value, date) and not isinstance(value, datetime):
            return value
        if isinstance(value, str):
            try:
                return date.fromisoformat(value)
            except ValueError:
                pass
        raise misfit(value, "a date", "write year, month and day, such as 2024-01-31")


@dataclass(frozen=True)
class Timestamp:
    name: ClassVar[str] = "timestamp"
    takes_bounds: ClassVar[bool] = True
    takes_values: ClassVar[bool] = False
    example: ClassVar[str] = "[2024-01-01 00:00:00, 2026-12-31 23:59:59]"

    def read(self, value: object) -> datetime:
        # A date is its midnight; pandas' timestamps become plain ones, and its NaT does not parse.
        text = value.isoformat() if isinstance(value, date) else value
        try:
            moment = datetime.fromisoformat(text) if isinstance(text, str) else None
        except ValueError:
            moment = None
        if moment is None:
            raise misfit(value, "a timestamp", "write it like 2024-01-31 12:30:00")
        if moment.tzinfo is not None:
            raise misfit(
                value, "a timestamp without a time zone", "drop the time zone; write the time as it is in the table"
            )
        return moment


ColumnType: TypeAlias = Integer | Double | Decimal | Text | Boolean | Date | Timestamp

PLAIN_TYPES: dict[str, ColumnType] = {
    plain.name: plain for plain in (Integer(), Double(), Text(), Boolean(), Date(), Timestamp())
}
TYPE_NAMES = (*PLAIN_TYPES, "decimal(p,s)")
DECIMAL = re.compile(r"decimal\(\s*(\d{1,3})\s*,\s*(\d{1,3})\s*\)")
# What people write who come from a particular database; dpsql has one name for each type.
FOREIGN_NAMES = {
    **dict.fromkeys(("int", "bigint", "smallint", "tinyint", "hugeint", "int32", "int64", "long"), "integer"),
    **dict.fromkeys(("float", "real", "float4", "float8", "float32", "float64", "number"), "double"),
    **dict.fromkeys(("decimal", "numeric", "money"), "decimal(18,2)"),
    **dict.fromkeys(("string", "str", "varchar", "char", "object", "uuid", "enum"), "text"),
    "bool": "boolean",
    **dict.fromkeys(("datetime", "timestamptz", "datetime64"), "timestamp"),
}


def parse_type(text: str) -> ColumnType:
    """
    >>> parse_type("decimal(10,2)")
    Decimal(precision=10, scale=2)
    """
    name = text.strip().lower()
    if name in PLAIN_TYPES:
        return PLAIN_TYPES[name]
    if sizes := DECIMAL.fullmatch(name):
        precision, scale = int(sizes[1]), int(sizes[2])
        if not (1 <= precision <= WIDEST_DECIMAL and scale <= precision):
            raise SchemaError(
                f"{name} is not a valid decimal",
                hint=f"write decimal(p,s) with p from 1 to {WIDEST_DECIMAL} digits, s of them after the point",
            )
        return Decimal(precision, scale)
    familiar = FOREIGN_NAMES.get(name.partition("(")[0].strip())
    hint = f"write {familiar}" if familiar else did_you_mean(name, TYPE_NAMES)
    raise SchemaError(f'unknown type "{text}"', hint=hint)


FORMAT_CODES = {
    **dict.fromkeys("Yy", "year"),
    **dict.fromkeys("mbB", "month"),
    "d": "day",
    **dict.fromkeys("HI", "hour"),
    "p": "half of the day",
    "M": "minute",
    "S": "second",
    "f": "microsecond",
}
"""The codes of a format by which texts are read as dates, %Y and so on, and what each says."""


def format_problem(pattern: str, *, whole: bool = True) -> str | None:
    """Why texts cannot be read as moments by this format: it has other codes, or leaves the day open, if that matters.

    >>> format_problem("%d.%m.%Y"), format_problem("%d.%m.")
    (None, 'it does not say the year')
    """
    codes = [code[1:] for code in re.findall(r"%.?", pattern, re.DOTALL)]
    if "\0" in pattern or any(code not in FORMAT_CODES for code in codes):
        return f"it may have {' '.join(f'%{code}' for code in FORMAT_CODES)} and plain text"
    said = [FORMAT_CODES[code] for code in codes]
    if twice := [part for part in dict.fromkeys(said) if said.count(part) > 1]:
        return f"it says the {twice[0]} twice"
    missing = [part for part in ("year", "month", "day") if whole and part not in said]
    return f"it does not say the {' and the '.join(missing)}" if missing else None


def shown(value: object) -> str:
    """A value as the schema's author would write it, fit to be printed anywhere."""
    text = str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)
    return text.encode(errors="backslashreplace").decode()


def misfit(value: object, wanted: str, hint: str) -> SchemaError:
    """The error that says `value` is not what the column's type wants."""
    quoted = f'"{shown(value)}"' if isinstance(value, str) else shown(value)
    return SchemaError(f"{quoted} is not {wanted}", hint=hint)
