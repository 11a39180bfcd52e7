"""Query parameters: values for the placeholders of a query. A value becomes a literal of the tree, never text.

WHERE x > ?             [10]             in order
WHERE x > $1            [10]             by number
WHERE x > $low          {"low": 10}      by name; :low and @low are the same
WHERE x IN ?            [[1, 2]]         a list behind IN; IN (?) and = ANY (?) are the same
WHERE x > NOW()                          the time of asking, which the front end reads
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import count, zip_longest
from typing import TYPE_CHECKING

from sqlglot import Token, TokenType, exp

from dpsql.display.numbers import several
from dpsql.errors import ProgrammingError, SqlSyntaxError, shown_argument
from dpsql.expressions.lower import place_of
from dpsql.expressions.parser_tree import nodes_of
from dpsql.limits import LONGEST_LIST, LONGEST_NUMBER, LONGEST_PARAMETER, LONGEST_PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence


MARK = "?"
LARGEST_BITS = 1024
ONE_WAY = "write all of them as ?, all as $1, or all as $name"


def marked(tokens: Sequence[Token], names: Collection[str]) -> Iterator[Token]:
    """The tokens with every parameter as $name; `names` are those that values were given for.

    ? is $?0, $?1, ...: in the tree they no longer stand in the order of the text (LIMIT comes before WHERE). @name is
    a parameter where a value of that name is given, and else what it is in DuckDB: the absolute value.
    """
    number = count()
    for token, following in zip_longest(tokens, tokens[1:]):
        place = (token.line, token.col, token.start, token.end)
        if token.token_type is TokenType.PLACEHOLDER:
            yield Token(TokenType.PARAMETER, "$", *place)
            yield Token(TokenType.VAR, f"{MARK}{next(number)}", *place)
        elif token.text == "@" and following is not None and following.text in names:
            yield Token(TokenType.PARAMETER, "$", *place)
        else:
            yield token


@dataclass(frozen=True)
class Parameters:
    """The values that were given, in order, and their names where they have any."""

    values: tuple[object, ...]
    names: tuple[str, ...] = ()

    @property
    def by_any_name(self) -> dict[str, object]:
        """The values by all that a query may call them."""
        if self.names:
            return dict(zip(self.names, self.values, strict=True))
        numbered = enumerate(self.values)
        return {name: value for number, value in numbered for name in (f"{MARK}{number}", str(number + 1))}


def bind(tree: exp.Query, parameters: Parameters, elsewhere: Collection[str], text: str) -> None:
    """Inserts the values; parameters used `elsewhere`, in the options clause, are also allowed."""
    marks = nodes_of(tree, exp.Placeholder, exp.Parameter)
    given = _by_name(parameters, {*elsewhere, *(node.name for node in marks)})
    for node in marks:
        if node.name not in given:
            raise ProgrammingError(
                f"the parameter {_shown(node.name)} has no value",
                at=place_of(node, text),
                hint="give one value for each parameter",
            )
        _put(node, given[node.name], text)


def _by_name(parameters: Parameters, names: set[str]) -> dict[str, object]:
    """The values by what the query calls them."""
    values, given = parameters.values, parameters.names
    ways = {MARK if name.startswith(MARK) else "$1" if name.isdigit() else "$name" for name in names}
    if len(ways) > 1:
        raise ProgrammingError(f"parameters are either {' or '.join(sorted(ways))}, not both", hint=ONE_WAY)
    if given:
        if ways - {"$name"}:
            raise ProgrammingError("the values have names, but the parameters do not", hint="write $name in the query")
        for name in given:
            if name not in names:
                raise ProgrammingError(f"the query has no parameter {_shown(name)}", hint="omit its value")
        return dict(zip(given, values, strict=True))
    if ways == {"$name"}:
        raise ProgrammingError("the parameters have names, but the values do not", hint='give them as {"name": value}')
    wanted = max(map(int, names)) if ways == {"$1"} else len(names)
    if len(values) > wanted or (len(values) < wanted and ways != {"$1"}):
        wants, got = several(wanted, "parameter", "parameters"), several(len(values), "value was", "values were")
        raise ProgrammingError(f"the query has {wants}, but {got} given", hint="give one value for each")
    first = 1 if ways == {"$1"} else 0
    return {f"{'' if first else MARK}{number}": value for number, value in enumerate(values, first)}


def _shown(name: str) -> str:
    return name if name.isdigit() else f'"{name}"'


# -- values ------------------------------------------------------------------------------------------------------------


def _put(node: exp.Expr, value: object, text: str) -> None:
    if not isinstance(value, tuple):
        node.replace(literal(value))
        return
    above = node.parent
    while isinstance(above, exp.Paren | exp.Tuple | exp.Subquery) and len(list(above.iter_expressions())) == 1:
        above = above.parent
    if len(value) > LONGEST_LIST:
        raise ProgrammingError(
            f"a list has more than {LONGEST_LIST:,} values",
            hint="put them in a public table, and write IN (SELECT x FROM that_table)",
        )
    if any(part is None for part in value):
        raise ProgrammingError(
            "NULL is not among the values of a list", at=place_of(node, text), hint="write x IN ? OR x IS NULL"
        )
    values = [literal(part) for part in value]
    if isinstance(above, exp.In) and node.find_ancestor(exp.In) is above and above.this is not node:
        _into_in(above, values)
    elif isinstance(above, exp.Any | exp.All | exp.Unnest | exp.Explode):
        node.replace(exp.Array(expressions=values))
    else:
        raise ProgrammingError("a list can only follow IN", at=place_of(node, text), hint="write x IN ?, or = ANY (?)")


def _into_in(node: exp.In, values: list[exp.Expr]) -> None:
    if not values:
        # IN () is no SQL: nothing is among no values.
        node.replace(exp.false())
        return
    node.set("field", None)
    node.set("query", None)
    node.set("expressions", values)


def check_parameters(parameters: Sequence[object]) -> None:
    values = [part for value in parameters for part in (value if isinstance(value, list | tuple) else [value])]
    lengths = [len(value) for value in values if isinstance(value, str)]
    if max(lengths, default=0) > LONGEST_PARAMETER:
        raise ProgrammingError(
            f"a parameter is longer than {LONGEST_PARAMETER:,} characters", hint="compare with a shorter string"
        )
    if sum(lengths) > LONGEST_PARAMETERS:
        raise ProgrammingError(
            f"all parameters together are longer than {LONGEST_PARAMETERS:,} characters",
            hint="split it into several queries",
        )


def check_text(text: str) -> None:
    """Refuses what no database could read: half characters, and the character that ends texts in C."""
    problem = None
    try:
        text.encode()
        if "\0" in text:
            problem = "the string contains a NUL character"
    except UnicodeEncodeError:
        problem = "the string contains half of a character (a lone surrogate)"
    if problem is not None:
        raise SqlSyntaxError(problem, hint="write the whole character")


def literal(value: object) -> exp.Expr:
    match value:
        case None:
            return exp.Null()
        case bool():
            return exp.Boolean(this=value)
        case str():
            check_text(value)
            return exp.Literal.string(value)
        case datetime():
            return exp.cast(exp.Literal.string(value.isoformat(" ")), "TIMESTAMP")
        case date():
            return exp.cast(exp.Literal.string(value.isoformat()), "DATE")
        case int() | float() | Decimal() if _is_writable(value):
            number = exp.Literal.number(_digits(value))
            return exp.Paren(this=exp.Neg(this=number)) if value < 0 else number
    raise ProgrammingError(
        f"a parameter cannot be {shown_argument(value)}",
        hint="pass numbers, strings, booleans, dates, timestamps or None",
    )


def _is_writable(value: int | float | Decimal) -> bool:
    """Whether the number has few enough digits to be written down."""
    if isinstance(value, int):
        return value.bit_length() < LARGEST_BITS
    return math.isfinite(value) and len(str(value)) <= LONGEST_NUMBER


def _digits(value: int | float | Decimal) -> str:
    """The number without its sign, as a literal of its own type: floats have an exponent, decimals have none."""
    if isinstance(value, float):
        digits = repr(abs(float(value)))
        return digits if "e" in digits else f"{digits}e0"
    return format(value.copy_abs(), "f") if isinstance(value, Decimal) else str(abs(value))


# -- the time of asking ------------------------------------------------------------------------------------------------
# CURRENT_DATE and NOW() are one moment in the whole question, in UTC and without a time zone. A front end reads the
# clock once and passes it in, so that all free stages stay pure; the moment is a constant of the question then, and
# the same words on another day are another question, with an answer of its own.

CLOCKS: dict[type[exp.Expr], type[date]] = {
    exp.CurrentDate: date,
    exp.CurrentTimestamp: datetime,
    exp.CurrentDatetime: datetime,
    exp.Localtimestamp: datetime,
}
CLOCK_NAMES = {
    **dict.fromkeys(("TODAY", "AGE"), date),
    **dict.fromkeys(("NOW", "GET_CURRENT_TIMESTAMP", "TRANSACTION_TIMESTAMP", "STATEMENT_TIMESTAMP"), datetime),
    **dict.fromkeys(("GETDATE", "SYSDATE"), datetime),
}
"""Those that the parser leaves as they are, with how much of the clock they read. AGE(x) is AGE(CURRENT_DATE, x)."""
READS_DAY = frozenset({"CURRENT_DATE", "TODAY", "AGE"})
READS_CLOCK = READS_DAY | CLOCK_NAMES.keys() | {"CURRENT_TIMESTAMP", "CURRENT_DATETIME", "LOCALTIMESTAMP"}
READS_CLOCK |= {"CURRENT_LOCALTIMESTAMP"}


WHILE_RUNNING: tuple[type[exp.Expr], ...] = (
    *(exp.CurrentTime, exp.Localtime, exp.UtcDate, exp.UtcTime, exp.UtcTimestamp),
)
WHILE_RUNNING_NAMES = frozenset(
    {
        *("CURRENT_LOCALTIME", "AGO", "UUIDV7", "PG_CONF_LOAD_TIME", "PG_POSTMASTER_START_TIME"),
        *("TXID_CURRENT", "CURRENT_TRANSACTION_ID", "CURRENT_QUERY_ID", "CURRENT_CONNECTION_ID"),
        *("SLEEP_MS", "WRITE_LOG"),
    }
)
"""What DuckDB would evaluate after people's rows were read: the clock then, which tells how long that took; counters,
which tell what others ask; and what does something else than to compute a value."""


QUOTED_CLOCKS = frozenset({"CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP"})
"""DuckDB reads its clock for a quoted name too, where there is no column of that name."""


def tells_time_taken(node: exp.Expr) -> bool:
    if isinstance(node, exp.Column):
        return not node.table and node.name.upper() in QUOTED_CLOCKS
    if isinstance(node, exp.Anonymous):
        return node.name.upper() in WHILE_RUNNING_NAMES
    return isinstance(node, WHILE_RUNNING)


def clock_for(sql: str, now: datetime) -> datetime | None:
    """As much of the clock as the words of the query may read, so that the question is the same all day if it can be.

    >>> noon = datetime(2026, 11, 20, 12, 0)
    >>> clock_for("... WHERE day < CURRENT_DATE", noon), clock_for("... WHERE items > 3", noon)
    (datetime.datetime(2026, 11, 20, 0, 0), None)
    """
    words = READS_CLOCK & {word.upper() for word in re.findall(r"\w+", sql)}
    if not words:
        return None
    return now if words - READS_DAY else datetime.combine(now, datetime.min.time())


def reads_clock(node: exp.Expr) -> bool:
    if isinstance(node, exp.Anonymous):
        return node.name.upper() in CLOCK_NAMES and len(node.expressions) == (node.name.upper() == "AGE")
    return type(node) in CLOCKS


def at_time(node: exp.Expr, now: datetime) -> exp.Expr:
    """The constant that a word of the clock stands for."""
    named = isinstance(node, exp.Anonymous)
    kind = CLOCK_NAMES[node.name.upper()] if named else CLOCKS[type(node)]
    moment = literal(now if kind is datetime else now.date())
    return exp.Anonymous(this=node.name, expressions=[moment, *node.expressions]) if node.expressions else moment


def clock_note(now: datetime) -> str:
    """
    >>> clock_note(datetime(2026, 11, 20))
    'CURRENT_DATE is 2026-11-20, the day of asking in UTC'
    """
    if now.time() == datetime.min.time():
        return f"CURRENT_DATE is {now:%Y-%m-%d}, the day of asking in UTC"
    return f"NOW() is {now:%Y-%m-%d %H:%M:%S}, the time of asking in UTC"
