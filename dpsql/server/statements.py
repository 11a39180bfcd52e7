"""What a client's text asks for, one statement after the other: a query of the data or the catalogue, or a word to us.

Tools send SET, SHOW, BEGIN, DEALLOCATE and COPY around their queries; these are answered here and reach no engine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlglot import Dialect, Token, TokenType, exp
from sqlglot.errors import SqlglotError

from dpsql.errors import ProgrammingError, did_you_mean, split_explain
from dpsql.limits import LONGEST_QUERY
from dpsql.options import OPTIONS
from dpsql.server.catalog import Reading, read_statement
from dpsql.server.protocol import (
    ARRAYS,
    BOOL,
    DATE,
    FLOAT8,
    INT8,
    NUMERIC,
    TEXT,
    TIMESTAMP,
    Refused,
    WireType,
    refused,
)
from dpsql.server.system_tables import setting_values
from dpsql.server.users import ChargePolicy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# -- one by one --------------------------------------------------------------------------------------------------------

NO_OPS = {
    "BEGIN": "BEGIN",
    "START": "START TRANSACTION",
    "COMMIT": "COMMIT",
    "END": "COMMIT",
    "ROLLBACK": "ROLLBACK",
    "ABORT": "ROLLBACK",
    "SAVEPOINT": "SAVEPOINT",
    "RELEASE": "RELEASE",
    "DEALLOCATE": "DEALLOCATE",
    "CLOSE": "CLOSE CURSOR",
    "LISTEN": "LISTEN",
    "UNLISTEN": "UNLISTEN",
}
"""Statements that change nothing here, and what PostgreSQL says when they are done."""
COPY = re.compile(r"\s*COPY\s*\((?P<query>.*)\)\s*TO\s+STDOUT\b(?P<options>.*)", re.IGNORECASE | re.DOTALL)
BLANKS = " \t\r\n;"
LONGEST_SETTING = 1_000
LONGEST_PARAMETER_NUMBER = 4
"""Digits of $1, $2, ...: each number up to the largest takes memory."""
FIRST = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*([A-Za-z]*)", re.DOTALL)


@dataclass(frozen=True)
class Statement:
    """One statement of a text, which begins at `start` there. `kind` names the method of wire.py that runs it."""

    kind: str
    sql: str
    start: int = 0
    reading: Reading = field(default=Reading(None, False), repr=False)
    copy: CopyFormat | None = None


@dataclass(frozen=True)
class CopyFormat:
    """How COPY writes rows."""

    name: str = "text"
    header: bool = False
    delimiter: str = "\t"
    null: str = "\\N"


@lru_cache(256)
def statements_of(text: str) -> tuple[Statement, ...]:
    """
    >>> [(part.kind, part.start) for part in statements_of("BEGIN; SELECT count(*) FROM orders; SHOW dpsql.budget")]
    [('no_op', 0), ('query', 6), ('show', 35)]
    """
    if len(text) > LONGEST_QUERY:
        raise refused("54000", f"the text is longer than {LONGEST_QUERY:,} characters", "split it into several queries")
    try:
        ends = _ends(text)
    except SqlglotError:
        return (Statement("query", text),)  # the pipeline says what is wrong
    found = []
    start = 0
    for end in (*ends, len(text)):
        part = text[start:end]
        if FIRST.sub("", part, count=1).strip() or FIRST.match(part)[1]:  # type: ignore[index]
            found.append(_classified(part, start))
        start = end + 1
    return tuple(found)


def without_comment(sql: str) -> str:
    """
    >>> without_comment("/* by a tool */ BEGIN")
    'BEGIN'
    """
    return sql[FIRST.match(sql).start(1) :]  # type: ignore[union-attr]


def _ends(text: str) -> list[int]:
    tokens = Dialect.get_or_raise("postgres").tokenize(text)
    return [token.start for token in tokens if token.token_type is TokenType.SEMICOLON]


def _classified(sql: str, start: int) -> Statement:
    word = FIRST.match(sql)[1].upper()  # type: ignore[index]
    if word in NO_OPS:
        return Statement("no_op", sql, start)
    if word in ("SET", "RESET", "DISCARD"):
        return Statement("set", sql, start)
    if word in ("SHOW", "DESCRIBE", "DESC"):
        return Statement("show", sql, start)
    if word == "EXPLAIN":
        return Statement("explain", split_explain(sql)[1], start)
    if word == "COPY" and (copy := COPY.fullmatch(sql.rstrip(BLANKS))) is not None:
        inner = " " * copy.start("query") + copy["query"]
        asked = _classified(inner, start)
        return Statement(asked.kind, inner, start, asked.reading, _copy_format(copy["options"]))
    reading = read_statement(sql)
    return Statement("catalog" if reading.is_catalog else "query", sql, start, reading)


def _copy_format(options: str) -> CopyFormat:
    words = options.upper()
    if "BINARY" in words:
        return CopyFormat("binary")
    header = re.search(r"HEADER(?!\s+(?:FALSE|OFF|0))", words) is not None
    delimiter = re.search(r"DELIMITER\s+(?:AS\s+)?'(.)'", options, re.IGNORECASE)
    if "CSV" in words:
        return CopyFormat("csv", header, delimiter[1] if delimiter else ",", "")
    return CopyFormat("text", header, delimiter[1] if delimiter else "\t")


def copied(row: Sequence[str | None], how: CopyFormat) -> bytes:
    """A row as COPY writes it, in text or CSV."""
    if how.name == "csv":
        cells = [how.null if cell is None else _csv(cell, how.delimiter) for cell in row]
    else:
        cells = [how.null if cell is None else cell.translate(ESCAPED) for cell in row]
    return (how.delimiter.join(cells) + "\n").encode("utf-8", "replace")


ESCAPED = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def _csv(cell: str, delimiter: str) -> str:
    if cell == "" or any(mark in cell for mark in (delimiter, '"', "\n", "\r")):
        return '"' + cell.replace('"', '""') + '"'
    return cell


def without_schema(sql: str, tables: Mapping[str, object]) -> str:
    """public.orders is orders: the schema's name becomes blanks, so that places in the text stay.

    >>> without_schema('SELECT * FROM "public".orders', {"orders": 1})
    'SELECT * FROM          orders'
    """
    if "public" in tables or "public" not in sql.lower():
        return sql
    try:
        tokens: Sequence[Token] = Dialect.get_or_raise("postgres").tokenize(sql)
    except SqlglotError:
        return sql
    text = sql
    for schema, dot, table in zip(tokens, tokens[1:], tokens[2:], strict=False):
        is_schema = schema.token_type in (TokenType.VAR, TokenType.IDENTIFIER) and schema.text.lower() == "public"
        if is_schema and dot.token_type is TokenType.DOT and table.text.lower() in tables:
            text = text[: schema.start] + " " * (dot.end + 1 - schema.start) + text[dot.end + 1 :]
    return text


# -- parameters --------------------------------------------------------------------------------------------------------

CASTS = {
    "INT": INT8,
    "SMALLINT": INT8,
    "BIGINT": INT8,
    "DOUBLE": FLOAT8,
    "FLOAT": FLOAT8,
    "DECIMAL": NUMERIC,
    "DATE": DATE,
    "TIMESTAMP": TIMESTAMP,
    "BOOLEAN": BOOL,
}
EXAMPLES: dict[int, Any] = {
    BOOL.oid: True,
    INT8.oid: 1,
    FLOAT8.oid: 1.0,
    NUMERIC.oid: Decimal(1),
    DATE.oid: date(2024, 1, 1),
    TIMESTAMP.oid: datetime(2024, 1, 1),
}


def parameter_types(statement: Statement, tables: Mapping[str, Mapping[str, WireType]]) -> list[WireType]:
    """The type of $1, $2, ...: of the column that each is compared with, or that it is cast to; else text."""
    if statement.reading.tree is None:
        numbers = [int(number) for number in re.findall(r"\$(\d{1,4})\b", statement.sql)]
        return [TEXT] * max(numbers, default=0)
    found: dict[int, WireType] = {}
    known = _columns(statement.reading.tree, tables)
    for node in statement.reading.tree.find_all(exp.Parameter):
        if node.name.isdecimal():
            if len(node.name) > LONGEST_PARAMETER_NUMBER:
                raise refused("42P02", f"there is no parameter ${node.name[:20]}", "number them $1, $2, ...")
            found[int(node.name)] = _type_of(node, known)
    return [found.get(number, TEXT) for number in range(1, max(found, default=0) + 1)]


def _columns(tree: exp.Expr, tables: Mapping[str, Mapping[str, WireType]]) -> dict[str, WireType]:
    """By name, and by alias and name."""
    known: dict[str, WireType] = {}
    for table in tree.find_all(exp.Table):
        for name, kind in tables.get(table.name.lower(), {}).items():
            known.setdefault(name, kind)
            known[f"{table.alias_or_name.lower()}.{name}"] = kind
    return known


def _type_of(node: exp.Expr, known: Mapping[str, WireType]) -> WireType:
    above = node.parent
    while isinstance(above, exp.Paren | exp.Neg | exp.Tuple):
        node, above = above, above.parent
    match above:
        case exp.Cast():
            return CASTS.get(getattr(above.to.this, "name", ""), TEXT)
        case exp.Limit() | exp.Offset():
            return INT8
        case exp.Any():
            element = _type_of(above, known)
            return ARRAYS.get(element.oid, ARRAYS[TEXT.oid])
        case exp.Binary() | exp.Between() | exp.In():
            others = [part for part in above.iter_expressions() if part is not node]
            return next((kind for part in others for kind in [_known_type(part, known)] if kind is not None), TEXT)
    return TEXT


def _known_type(node: exp.Expr, known: Mapping[str, WireType]) -> WireType | None:
    for column in node.find_all(exp.Column):
        name = f"{column.table.lower()}.{column.name.lower()}" if column.table else column.name.lower()
        if name in known:
            return known[name]
    if isinstance(node, exp.Literal) and not node.is_string:
        return INT8 if node.is_int else FLOAT8
    return None


def example(kind: WireType) -> Any:
    """A value of a type, for the description of a statement whose values are not known yet."""
    if kind.element is not None:
        return [example(kind.element)]
    return EXAMPLES.get(kind.oid, "a")


# -- settings ----------------------------------------------------------------------------------------------------------

SET = re.compile(
    r"\s*SET\s+(?:(?:SESSION|LOCAL)\s+)?(?P<name>[\w.]+)\s*(?:=|\bTO\b)(?P<value>.*)", re.IGNORECASE | re.DOTALL
)
SET_SPECIAL = re.compile(
    r"\s*SET\s+(?:(?:SESSION|LOCAL)\s+)?(?:CHARACTERISTICS|TRANSACTION|TIME\s+ZONE|NAMES|CONSTRAINTS)\b",
    re.IGNORECASE,
)
SET_NOBODY = re.compile(
    r"\s*SET\s+(?:(?:SESSION|LOCAL)\s+)?(?:ROLE\s+NONE|(?:SESSION\s+)?AUTHORIZATION\s+DEFAULT)", re.IGNORECASE
)
SET_NAME = re.compile(r"\s*SET\s+(?:(?:SESSION|LOCAL)\s+)?(?:ROLE|(?:SESSION\s+)?AUTHORIZATION)\b", re.IGNORECASE)
"""In whose name questions are asked is what the login says."""
SET_OURS_LOCAL = re.compile(r"\s*SET\s+LOCAL\s+dpsql\.", re.IGNORECASE)
RESET = re.compile(r"\s*(?:RESET|DISCARD)\s+(?P<name>[\w.]+)", re.IGNORECASE)
PREFIX = "dpsql."
OURS = ("intervals", "charge", *OPTIONS)
SWITCHES = {"on": True, "true": True, "1": True, "yes": True, "off": False, "false": False, "0": False, "no": False}
FIXED = {"client_encoding": ("utf8", "utf-8", "unicode", "sql_ascii"), "datestyle": ("iso",)}
"""Settings of PostgreSQL's that can only be these here."""


@dataclass
class SessionSettings:
    """What a session has set: the options of its questions, and PostgreSQL's settings, which do nothing here."""

    login: ChargePolicy
    options: dict[str, Any] = field(default_factory=dict)
    intervals: bool = False
    policy: ChargePolicy | None = None
    others: dict[str, str] = field(default_factory=dict)

    @property
    def charge(self) -> ChargePolicy:
        return self.policy or self.login

    def apply(self, sql: str) -> str:
        """Reads SET, RESET or DISCARD; returns what PostgreSQL says when it is done."""
        if SET_SPECIAL.match(sql) or SET_NOBODY.fullmatch(sql.rstrip(BLANKS)):
            return "SET"
        if SET_NAME.match(sql):
            raise _in_another_name()
        if SET_OURS_LOCAL.match(sql):
            raise refused("0A000", "transactions keep nothing here, so SET LOCAL has no end", "write SET, later RESET")
        if (reset := RESET.fullmatch(sql.rstrip(BLANKS))) is not None:
            self._reset(reset["name"].lower())
            return "DISCARD ALL" if sql.lstrip()[:7].upper() == "DISCARD" else "RESET"
        found = SET.fullmatch(sql.rstrip(BLANKS)) if len(sql) <= LONGEST_SETTING else None
        if found is None:
            raise refused("42601", "this SET cannot be read", "write SET dpsql.epsilon = 0.1")
        self.put(found["name"], _unquoted(found["value"].strip()))
        return "SET"

    def put(self, name: str, value: str) -> None:
        name = name.lower()
        try:
            if name.startswith(PREFIX):
                self._put_own(name.removeprefix(PREFIX), value)
                return
        except ProgrammingError as error:
            problem: Refused = refused("22023", error.problem, error.hint)
        else:
            if name in ("role", "session_authorization"):
                problem = _in_another_name()
            elif name in FIXED and not value.lower().startswith(FIXED[name]):
                problem = refused("22023", f"{name} cannot be {value[:40]} here", f"it is {FIXED[name][0]}")
            elif "." not in name and name not in setting_values():
                problem = refused("42704", f'unrecognized configuration parameter "{name[:60]}"')
            else:
                self.others[name] = value[:200]
                return
        raise problem

    def _put_own(self, name: str, value: str) -> None:
        if value.lower() == "default":
            self._reset(PREFIX + name)
        elif name == "intervals":
            self.intervals = _switched(name, value)
        elif name == "charge":
            self.policy = self.login.narrowed(ChargePolicy.parse(value))
        elif name in OPTIONS:
            option = OPTIONS[name]
            self.options[name] = _switched(name, value) if option.metavar is None else option.parse(value)
            if name in ("epsilon", "accuracy"):
                self.options.pop("accuracy" if name == "epsilon" else "epsilon", None)
        else:
            raise ProgrammingError(
                f"there is no setting {PREFIX}{name[:40]}",
                hint=did_you_mean(name, OURS) or f"there are {', '.join(OURS)}",
            )

    def _reset(self, name: str) -> None:
        if name == "all":
            self.options.clear()
            self.others.clear()
            self.intervals, self.policy = False, None
        own = name.removeprefix(PREFIX)
        self.options.pop(own, None)
        self.others.pop(name, None)
        self.intervals = self.intervals and own != "intervals"
        self.policy = None if own == "charge" else self.policy

    def shown(self, name: str) -> str:
        """The value of a setting."""
        own = name.removeprefix(PREFIX)
        if name.startswith(PREFIX) and own in OURS:
            known = {"intervals": "on" if self.intervals else "off", "charge": str(self.charge)}
            return known.get(own) or str(self.options.get(own, ""))
        if name in self.others or name in setting_values():
            return self.others.get(name) or setting_values()[name]
        raise refused("42704", f'unrecognized configuration parameter "{name[:60]}"', "SHOW ALL lists them")


def _in_another_name() -> Refused:
    return refused("0A000", "a session asks in the name of its login", "sign in with another login")


def _unquoted(value: str) -> str:
    """
    >>> _unquoted("'up-to 0.1'"), _unquoted("0.1")
    ('up-to 0.1', '0.1')
    """
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1].replace(value[0] * 2, value[0])
    return value


def _switched(name: str, value: str) -> bool:
    if value.lower() not in SWITCHES:
        raise ProgrammingError(f"{name} is on or off, not {value[:40]}", hint=f"SET {PREFIX}{name} = on")
    return SWITCHES[value.lower()]


OPTION_IN_HINT = re.compile(rf'\b({"|".join(OPTIONS)})=("?)([^\s,;"]+)\2')

SHOW_INTERVALS = f"SET {PREFIX}intervals = on shows it"
CALL = re.compile(r"([a-z_]\w*)\(.*\)", re.DOTALL)


def for_sql(hint: str | None) -> str | None:
    """Hints name options as Python does; here they are settings.

    >>> for_sql("use epsilon=0.3 or less")
    "use SET dpsql.epsilon = '0.3' or less"
    """
    return hint and OPTION_IN_HINT.sub(rf"SET {PREFIX}\1 = '\3'", hint).replace("see intervals()", SHOW_INTERVALS)


def output_name(name: str) -> str:
    """What PostgreSQL calls a column without an alias: by its function.

    >>> output_name("count_star()"), output_name("avg(age)"), output_name("n")
    ('count', 'avg', 'n')
    """
    found = CALL.fullmatch(name)
    return name if found is None else found[1].removesuffix("_star")
