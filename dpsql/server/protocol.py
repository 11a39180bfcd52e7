"""The messages and the values of PostgreSQL's protocol, version 3: bytes on one side, Python on the other.

A value of an answer arrives from the worker as JSON has it (numbers, texts; dates and decimals as text) with the name
of its DuckDB type. `WIRE_TYPES` says which PostgreSQL type that is; `encode` writes it as text or in binary, `decode`
reads what an analyst sends as a parameter.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from dpsql.errors import (
    AccountSuspended,
    BudgetExhausted,
    Error,
    LedgerError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    QueryTimeout,
    SealedExecutionError,
    SqlSyntaxError,
    UnknownName,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Sequence

PROTOCOL = 196608
SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102
LARGEST_MESSAGE = 4 << 20
"""Bytes. A query has at most 100,000 characters; its parameters are limited too."""
LARGEST_STARTUP = 10_000
TEXT_FORMAT, BINARY_FORMAT = 0, 1


class ProtocolViolation(Exception):
    """The client broke the protocol: it is told so, and the connection ends."""


# -- messages ----------------------------------------------------------------------------------------------------------


def message(kind: bytes, *parts: bytes) -> bytes:
    """
    >>> message(b"Z", b"I")
    b'Z\\x00\\x00\\x00\\x05I'
    """
    body = b"".join(parts)
    return kind + struct.pack("!i", len(body) + 4) + body


def c_string(text: str) -> bytes:
    return text.encode("utf-8", "replace").replace(b"\0", b"") + b"\0"


async def read_message(reader: asyncio.StreamReader, largest: int = LARGEST_MESSAGE) -> tuple[bytes, Body]:
    """The kind of the next message, and its body."""
    kind, length = struct.unpack("!ci", await reader.readexactly(5))
    if not 4 <= length <= largest:
        raise ProtocolViolation(f"a message of {length} bytes")
    return kind, Body(await reader.readexactly(length - 4))


async def read_startup(reader: asyncio.StreamReader) -> tuple[int, Body]:
    """The number of the request, and what follows it."""
    length, code = struct.unpack("!ii", await reader.readexactly(8))
    if not 8 <= length <= LARGEST_STARTUP:
        raise ProtocolViolation(f"a first message of {length} bytes")
    return code, Body(await reader.readexactly(length - 8))


class Body:
    """The body of a message, read from left to right; what is too short breaks the protocol."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        if count < 0 or self.at + count > len(self.data):
            raise ProtocolViolation("a message ends too early")
        self.at += count
        return self.data[self.at - count : self.at]

    def rest(self) -> bytes:
        return self.take(len(self.data) - self.at)

    def int16(self) -> int:
        return int(struct.unpack("!h", self.take(2))[0])

    def int32(self) -> int:
        return int(struct.unpack("!i", self.take(4))[0])

    def count(self) -> int:
        """How many fields follow."""
        number = self.int16()
        if number < 0:
            raise ProtocolViolation("a negative number of fields")
        return number

    def text(self) -> str:
        end = self.data.find(b"\0", self.at)
        if end < 0:
            raise ProtocolViolation("a text does not end")
        raw = self.take(end - self.at)
        self.take(1)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise ProtocolViolation("a text is not UTF-8") from None

    def formats(self) -> list[int]:
        found = [self.int16() for _ in range(self.count())]
        if any(number not in (TEXT_FORMAT, BINARY_FORMAT) for number in found):
            raise ProtocolViolation("an unknown format")
        return found

    def pairs(self) -> dict[str, str]:
        """The names and values of a startup message."""
        found = {}
        while self.at < len(self.data) and (name := self.text()):
            found[name] = self.text()
        return found


def format_of(formats: Sequence[int], position: int) -> int:
    """One format is for all fields, none is text for all."""
    if len(formats) <= 1:
        return formats[0] if formats else TEXT_FORMAT
    return formats[position] if position < len(formats) else TEXT_FORMAT


# -- errors ------------------------------------------------------------------------------------------------------------
# Our errors as PostgreSQL's: the sentence, the place in the SQL, the way out, and a code that programs understand.


class CostNotAllowed(OperationalError):
    """The query costs more than its login, or its session, spends on one. Nothing was charged."""


SQLSTATES: tuple[tuple[type[Error], str], ...] = (
    (SqlSyntaxError, "42601"),
    (UnknownName, "42704"),
    (CostNotAllowed, "53400"),
    (BudgetExhausted, "53400"),
    (AccountSuspended, "55000"),
    (QueryTimeout, "57014"),
    (SealedExecutionError, "58000"),
    (LedgerError, "58030"),
    (NotSupportedError, "0A000"),
    (ProgrammingError, "22023"),
    (Error, "58000"),
)
UNKNOWN = (("table", "42P01"), ("column", "42703"), ("function", "42883"))
CANCELED, TOO_MANY, PROTOCOL_ERROR, SHUTTING_DOWN = "57014", "53300", "08P01", "57P01"
WRONG_PASSWORD, NO_DATABASE = "28P01", "3D000"


@dataclass(frozen=True)
class Problem:
    """An error on its way to a client; `position` counts characters of the query from 0."""

    state: str
    text: str
    hint: str | None = None
    position: int | None = None
    severity: str = "ERROR"

    def moved(self, start: int) -> Problem:
        """The same in a text in which the statement begins at `start`."""
        position = None if self.position is None else self.position + start
        return Problem(self.state, self.text, self.hint, position, self.severity)

    def encoded(self) -> bytes:
        fields = [("S", self.severity), ("V", self.severity), ("C", self.state), ("M", self.text)]
        fields += [("H", self.hint)] if self.hint else []
        fields += [("P", str(self.position + 1))] if self.position is not None else []
        return message(b"E", *(key.encode() + c_string(value) for key, value in fields), b"\0")


class Refused(Exception):
    """A statement ends with a problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.text)
        self.problem = problem


def refused(state: str, text: str, hint: str | None = None, position: int | None = None) -> Refused:
    return Refused(Problem(state, text, hint, position))


def sqlstate(error: Error) -> str:
    """
    >>> sqlstate(UnknownName('there is no column "amuont"'))
    '42703'
    """
    if isinstance(error, UnknownName):
        return next((state for word, state in UNKNOWN if word in error.problem.partition('"')[0]), "42704")
    return next(state for kind, state in SQLSTATES if isinstance(error, kind))


def notice(text: str) -> bytes:
    fields = (("S", "NOTICE"), ("V", "NOTICE"), ("C", "00000"), ("M", text))
    return message(b"N", *(key.encode() + c_string(value) for key, value in fields), b"\0")


# -- types -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WireType:
    """A type of PostgreSQL's: its number, its size (-1: it varies), and of an array, its elements."""

    oid: int
    name: str
    size: int
    element: WireType | None = None
    modifier: int = -1


BOOL = WireType(16, "bool", 1)
BYTEA = WireType(17, "bytea", -1)
INT8 = WireType(20, "int8", 8)
INT2 = WireType(21, "int2", 2)
INT4 = WireType(23, "int4", 4)
TEXT = WireType(25, "text", -1)
JSON = WireType(114, "json", -1)
FLOAT4 = WireType(700, "float4", 4)
FLOAT8 = WireType(701, "float8", 8)
DATE = WireType(1082, "date", 4)
TIME = WireType(1083, "time", 8)
TIMESTAMP = WireType(1114, "timestamp", 8)
NUMERIC = WireType(1700, "numeric", -1)
ARRAYS = {
    element.oid: WireType(oid, f"_{element.name}", -1, element)
    for oid, element in (
        (1000, BOOL),
        (1005, INT2),
        (1007, INT4),
        (1009, TEXT),
        (1016, INT8),
        (1021, FLOAT4),
        (1022, FLOAT8),
        (1115, TIMESTAMP),
        (1182, DATE),
        (1231, NUMERIC),
    )
}
WIRE_TYPES = {
    "BOOLEAN": BOOL,
    "TINYINT": INT2,
    "SMALLINT": INT2,
    "UTINYINT": INT2,
    "INTEGER": INT4,
    "USMALLINT": INT4,
    "BIGINT": INT8,
    "UINTEGER": INT8,
    "HUGEINT": NUMERIC,
    "UBIGINT": NUMERIC,
    "FLOAT": FLOAT4,
    "DOUBLE": FLOAT8,
    "DATE": DATE,
    "TIME": TIME,
    "TIMESTAMP": TIMESTAMP,
    "VARCHAR": TEXT,
    "JSON": JSON,
}
"""PostgreSQL's types by DuckDB's names; all others travel as text."""
UNKNOWN_TYPE = 705
TEXTS = {TEXT.oid, UNKNOWN_TYPE, 0, 19, 18, 1042, 1043, 2950}
BY_OID = {kind.oid: kind for kind in (*WIRE_TYPES.values(), BYTEA, *ARRAYS.values())}
DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
EPOCH, EPOCH_TIME = date(2000, 1, 1), datetime(2000, 1, 1)


def wire_type(name: str) -> WireType:
    """
    >>> wire_type("DECIMAL(18,2)").modifier, wire_type("BIGINT[]").name
    (1179654, '_int8')
    """
    if name.endswith("[]"):
        return ARRAYS.get(wire_type(name[:-2]).oid, TEXT)
    if found := DECIMAL.fullmatch(name):
        return WireType(NUMERIC.oid, NUMERIC.name, -1, modifier=(int(found[1]) << 16 | int(found[2])) + 4)
    return WIRE_TYPES.get(name, TEXT)


def row_description(columns: Iterable[tuple[str, WireType]], formats: Sequence[int] = ()) -> bytes:
    fields = [
        c_string(name) + struct.pack("!ihihih", 0, 0, _signed(kind.oid), kind.size, kind.modifier, code)
        for position, (name, kind) in enumerate(columns)
        for code in [format_of(formats, position)]
    ]
    return message(b"T", struct.pack("!h", len(fields)), *fields)


def _signed(oid: int) -> int:
    return oid if oid < 2**31 else oid - 2**32


def data_row(row: Sequence[Any], kinds: Sequence[WireType], formats: Sequence[int] = ()) -> bytes:
    return message(b"D", fields_of(row, kinds, formats))


def fields_of(row: Sequence[Any], kinds: Sequence[WireType], formats: Sequence[int]) -> bytes:
    parts = [struct.pack("!h", len(row))]
    for position, (value, kind) in enumerate(zip(row, kinds, strict=True)):
        if value is None:
            parts.append(b"\xff\xff\xff\xff")
            continue
        encoded = encode(value, kind, format_of(formats, position))
        parts.append(struct.pack("!i", len(encoded)) + encoded)
    return b"".join(parts)


# -- values out --------------------------------------------------------------------------------------------------------


def encode(value: Any, kind: WireType, code: int) -> bytes:
    """
    >>> encode(12, INT4, BINARY_FORMAT), encode(True, BOOL, TEXT_FORMAT), encode([1, None], ARRAYS[20], TEXT_FORMAT)
    (b'\\x00\\x00\\x00\\x0c', b't', b'{1,NULL}')
    """
    if code == TEXT_FORMAT:
        return _as_text(value, kind).encode("utf-8", "replace")
    return _as_binary(value, kind)


def _as_text(value: Any, kind: WireType) -> str:
    if kind.element is not None:
        return "{" + ",".join(_quoted(part, kind.element) for part in value) + "}"
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, list | dict):
        return str(value)
    return str(value)


def _float_text(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value).removesuffix(".0")


def _quoted(value: Any, kind: WireType) -> str:
    if value is None:
        return "NULL"
    text = _as_text(value, kind)
    if kind is TEXT:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f'"{text}"' if " " in text else text


def _as_binary(value: Any, kind: WireType) -> bytes:
    match kind.name:
        case "bool":
            return b"\x01" if value else b"\x00"
        case "int2":
            return struct.pack("!h", int(value))
        case "int4":
            return struct.pack("!i", int(value))
        case "int8":
            return struct.pack("!q", int(value))
        case "float4":
            return struct.pack("!f", float(value))
        case "float8":
            return struct.pack("!d", float(value))
        case "date":
            return struct.pack("!i", (date.fromisoformat(value) - EPOCH).days)
        case "timestamp":
            return struct.pack("!q", (datetime.fromisoformat(value) - EPOCH_TIME) // timedelta(microseconds=1))
        case "time":
            moment = datetime.fromisoformat(f"2000-01-01T{value}")
            return struct.pack("!q", (moment - EPOCH_TIME) // timedelta(microseconds=1))
        case "numeric":
            return numeric_binary(Decimal(str(value)))
    if kind.element is not None:
        return _array_binary(value, kind.element)
    return _as_text(value, kind).encode("utf-8", "replace")


def numeric_binary(value: Decimal) -> bytes:
    """
    >>> numeric_binary(Decimal("12345.678")).hex()
    '0003000100000003000109291a7c'
    """
    if not value.is_finite():
        return struct.pack("!hhHh", 0, 0, 0xC000 if value.is_nan() else 0xD000 if value > 0 else 0xF000, 0)
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    number = int("".join(map(str, digits))) * 10 ** max(0, exponent)
    # Groups of four digits, aligned at the point.
    number *= 10 ** (-scale % 4)
    groups: list[int] = []
    while number:
        number, group = divmod(number, 10_000)
        groups.append(group)
    groups.reverse()
    weight = len(groups) - (scale + 3) // 4 - 1
    while groups and groups[-1] == 0:
        groups.pop()
    head = struct.pack("!hhHh", len(groups), weight if groups else 0, 0x4000 if sign and groups else 0, scale)
    return head + struct.pack(f"!{len(groups)}H", *groups)


def _array_binary(values: Sequence[Any], kind: WireType) -> bytes:
    if not values:
        return struct.pack("!iii", 0, 0, kind.oid)
    parts = [struct.pack("!iiiii", 1, int(None in values), kind.oid, len(values), 1)]
    for value in values:
        encoded = b"" if value is None else _as_binary(value, kind)
        parts.append(struct.pack("!i", -1 if value is None else len(encoded)) + encoded)
    return b"".join(parts)


# -- values in ---------------------------------------------------------------------------------------------------------


def decode(raw: bytes, oid: int, code: int) -> Any:
    """The value of a parameter, as Python has it.

    >>> decode(b"12.50", NUMERIC.oid, TEXT_FORMAT), decode(b"{1,2}", 1016, TEXT_FORMAT)
    (Decimal('12.50'), [1, 2])
    """
    kind = BY_OID.get(oid, TEXT)
    if kind is TEXT and oid not in TEXTS:
        raise refused("0A000", f"parameters of type {oid} are not supported", "pass numbers, texts, dates or arrays")
    try:
        return _from_text(raw.decode("utf-8"), kind) if code == TEXT_FORMAT else _from_binary(raw, kind)
    except (ValueError, InvalidOperation, OverflowError, struct.error, ProtocolViolation):
        problem = refused("22P02", f"a parameter is not a valid {kind.name}", "check the values that you pass")
    raise problem


def _from_text(text: str, kind: WireType) -> Any:
    if kind.element is not None:
        return [None if part is None else _from_text(part, kind.element) for part in _array_parts(text)]
    match kind.name:
        case "bool":
            if text.lower() not in ("t", "f", "true", "false", "1", "0", "on", "off", "yes", "no"):
                raise ValueError(text)
            return text.lower() in ("t", "true", "1", "on", "yes")
        case "int2" | "int4" | "int8":
            return int(text)
        case "float4" | "float8":
            return float(text)
        case "numeric":
            return Decimal(text)
        case "date":
            return date.fromisoformat(text)
        case "timestamp":
            return datetime.fromisoformat(text)
    return text


ARRAY_PART = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,{}"]+)', re.DOTALL)


def _array_parts(text: str) -> list[str | None]:
    if not (text.startswith("{") and text.endswith("}")) or "{" in ARRAY_PART.sub("", text[1:]):
        raise ValueError(text)
    found = ARRAY_PART.finditer(text[1:-1])
    return [
        re.sub(r"\\(.)", r"\1", part[1]) if part[1] is not None else None if part[2].upper() == "NULL" else part[2]
        for part in found
    ]


def _from_binary(raw: bytes, kind: WireType) -> Any:
    if kind.element is not None:
        return _array_from_binary(Body(raw), kind.element)
    match kind.name:
        case "bool":
            return raw != b"\x00"
        case "int2" | "int4" | "int8":
            return int.from_bytes(raw, "big", signed=True)
        case "float4" | "float8":
            return float(struct.unpack("!f" if len(raw) == 4 else "!d", raw)[0])
        case "numeric":
            return _numeric_from_binary(Body(raw))
        case "date":
            return EPOCH + timedelta(days=struct.unpack("!i", raw)[0])
        case "timestamp":
            return EPOCH_TIME + timedelta(microseconds=struct.unpack("!q", raw)[0])
    return raw.decode("utf-8")


def _numeric_from_binary(body: Body) -> Decimal:
    count, weight, sign, scale = struct.unpack("!hhHh", body.take(8))
    if sign not in (0, 0x4000):
        return Decimal("NaN")
    number = 0
    for _ in range(count):
        number = number * 10_000 + body.int16()
    value = Decimal(number).scaleb(4 * (weight - count + 1))
    exact = value.quantize(Decimal(1).scaleb(-scale)) if scale >= 0 else value
    return -exact if sign else exact


def _array_from_binary(body: Body, kind: WireType) -> list[Any]:
    dimensions, _, _ = body.int32(), body.int32(), body.int32()
    if dimensions == 0:
        return []
    if dimensions != 1:
        raise ValueError("nested arrays")
    count, _ = body.int32(), body.int32()
    found: list[Any] = []
    while len(found) < count:
        length = body.int32()
        found.append(None if length < 0 else _from_binary(body.take(length), kind))
    return found
