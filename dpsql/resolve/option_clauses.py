"""SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(...): cut out of the tokens, and read.

One clause speaks for the whole question. Of several, each speaks for the aggregates of its SELECT and of those inside
that have none of their own.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

from sqlglot import Dialect, Token, TokenType, exp
from sqlglot.errors import ParseError

from dpsql.errors import SqlSyntaxError, UnknownName
from dpsql.expressions.parser_tree import nodes_of
from dpsql.resolve.tokens import MARK, NAME, argument_end, closing_of, instead, is_at, place_between
from dpsql.source import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dpsql.source import Place

DUCKDB = Dialect.get_or_raise("duckdb")
CLAUSE = MARK + "clause"
"""The function that marks a SELECT with a clause, and the note that it leaves on it."""
ARITHMETIC: dict[type[exp.Expr], Callable[[Fraction, Fraction], Fraction]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
    exp.Div: operator.truediv,
}
OPTIONS = (
    "epsilon",
    "delta",
    "max_groups_contributed",
    "max_rows_contributed",
    "privacy_unit_column",
    "group_selection_strategy",
    "min_privacy_units_per_group",
    "mechanism",
    "propose",
)
OLDER_NAMES = {"kappa": "max_groups_contributed", "k_threshold": "min_privacy_units_per_group"}
CLAUSES = {
    "DIFFERENTIAL_PRIVACY": {name: name for name in OPTIONS},
    "ANONYMIZATION": {name: name for name in OPTIONS} | OLDER_NAMES,
}


@dataclass(frozen=True)
class Option:
    name: str
    value: str
    at: Place


@dataclass(frozen=True)
class SqlOptions:
    """What the options clause says, if there is one."""

    options: tuple[Option, ...] = ()
    at: Place | None = None
    outermost: bool = True
    """Whether it stands in the outermost SELECT."""
    parameters: frozenset[str] = frozenset()
    """The parameters that stand in it."""

    def get(self, name: str) -> Option | None:
        return next((option for option in self.options if option.name == name), None)


NO_OPTIONS = SqlOptions()


def without_clauses(
    tokens: list[Token], text: str, parameters: Mapping[str, object]
) -> tuple[list[Token], tuple[SqlOptions, ...]]:
    """The tokens without the clauses, and what these say. Of several, marks say in which SELECT each was."""
    starts = [
        i for i in range(len(tokens)) if is_at(tokens, i, TokenType.SELECT) and is_at(tokens, i + 1, TokenType.WITH)
    ]
    kept: list[Token] = []
    clauses: list[SqlOptions] = []
    done = 0
    for start in starts:
        options, after = _clause_at(start + 1, tokens, text, parameters)
        kept += tokens[done : start + 1]
        done = after
        if len(starts) > 1:
            while is_at(tokens, done, TokenType.DISTINCT) or is_at(tokens, done, TokenType.ALL):
                kept.append(tokens[done])
                done += 1
            kept += _mark(len(clauses), tokens[start])
        clauses.append(options)
    return kept + tokens[done:], tuple(clauses)


def _mark(number: int, at: Token) -> list[Token]:
    """SELECT <clause>(0), region, ..."""
    parts = (
        (TokenType.VAR, CLAUSE),
        (TokenType.L_PAREN, "("),
        (TokenType.NUMBER, str(number)),
        (TokenType.R_PAREN, ")"),
        (TokenType.COMMA, ","),
    )
    return [instead(at, kind, word) for kind, word in parts]


def number_clauses(tree: exp.Expr | None) -> None:
    """Takes the marks out of the SELECT lists, and notes them on the SELECTs."""
    for select in nodes_of(tree, exp.Select) if tree is not None else ():
        first = select.expressions[0] if select.expressions else None
        if isinstance(first, exp.Anonymous) and first.name == CLAUSE:
            select.meta[CLAUSE] = int(first.expressions[0].name)
            first.pop()


def clause_of(select: exp.Expr) -> int | None:
    """The number of the clause that speaks for a SELECT: its own, or that of the nearest one around it."""
    around: exp.Expr | None = select
    while around is not None:
        if CLAUSE in around.meta:
            return int(around.meta[CLAUSE])
        around = around.parent
    return None


def _clause_at(first: int, tokens: list[Token], text: str, parameters: Mapping[str, object]) -> tuple[SqlOptions, int]:
    """What the clause says, and where the query goes on."""
    known = _clause_options(tokens, first, text)
    found, after = _listed(tokens, first + 2, known, text, parameters)
    depth = sum(is_at(tokens, i, TokenType.L_PAREN) - is_at(tokens, i, TokenType.R_PAREN) for i in range(first))
    used = frozenset(
        name.text for sign, name in pairwise(tokens[first:after]) if sign.token_type is TokenType.PARAMETER
    )
    given = tuple(option for option in found if option.value != "NULL")
    return SqlOptions(given, place_between(tokens[first], tokens[after - 1], text), depth == 0, used), after


def _clause_options(tokens: list[Token], start: int, text: str) -> dict[str, str]:
    """Which names the clause may use, and what they are called here."""
    word = tokens[start + 1] if start + 1 < len(tokens) else tokens[start]
    if word.text.upper() in CLAUSES and word.token_type == TokenType.VAR:
        return CLAUSES[word.text.upper()]
    raise SqlSyntaxError(
        f"there is no SELECT WITH {word.text}",
        at=place_between(tokens[start], word, text),
        hint=did_you_mean(word.text, map(str.lower, CLAUSES)),
    )


def _listed(
    tokens: list[Token], start: int, known: dict[str, str], text: str, parameters: Mapping[str, object]
) -> tuple[list[Option], int]:
    """OPTIONS(name = value, ...), and where the query goes on."""
    if not (is_at(tokens, start + 1, TokenType.L_PAREN) and tokens[start].text.upper() == "OPTIONS"):
        return [], start
    end = closing_of(tokens, start + 1, text)
    found: list[Option] = []
    position = start + 2
    while position < end:
        stop = argument_end(tokens, position, end)
        option = _option(tokens[position:stop], tokens[position], known, text, parameters)
        if any(option.name == other.name for other in found):
            raise SqlSyntaxError(f"{option.name} is given twice", at=option.at, hint="write it once")
        found.append(option)
        position = stop + 1
    return found, end + 1


def _option(
    part: list[Token], first: Token, known: dict[str, str], text: str, parameters: Mapping[str, object]
) -> Option:
    place = place_between(first, part[-1] if part else first, text)
    name = first.text.lower()
    if part and name not in known:
        raise UnknownName(
            f'there is no option "{first.text}"', at=place_between(first, first, text), hint=did_you_mean(name, known)
        )
    value = _value(part[2:], parameters) if is_at(part, 1, TokenType.EQ) else None
    if value is None:
        raise SqlSyntaxError(
            "an option is written  name = constant", at=place, hint="for example OPTIONS(epsilon = 0.2, delta = 1e-7)"
        )
    return Option(known[name], value, place)


def _value(tokens: list[Token], parameters: Mapping[str, object]) -> str | None:
    """A name or a text as it is; of numbers and parameters what they come to. None if it is neither."""
    written = "".join(token.text for token in tokens)
    if not tokens:
        return None
    if len(tokens) == 1 and tokens[0].token_type in (TokenType.STRING, TokenType.IDENTIFIER, TokenType.NUMBER):
        return written
    if NAME.fullmatch(written):
        return "NULL" if written.upper() == "NULL" else written
    try:
        tree = DUCKDB.parser().parse([*tokens], written)[0]
        number = None if tree is None else _computed(tree, parameters)
    except (ParseError, ArithmeticError, ValueError):
        return None
    return "NULL" if number is None else str(number)


def _computed(node: exp.Expr, parameters: Mapping[str, object]) -> Fraction | str | None:
    """The number that constants and parameters come to."""
    match node:
        case exp.Paren():
            return _computed(node.this, parameters)
        case exp.Neg():
            return -_number(node.this, parameters)
        case exp.Literal() if not node.is_string:
            return Fraction(node.this)
        case exp.Placeholder() | exp.Parameter() if node.name in parameters:
            value = parameters[node.name]
            return value if value is None or isinstance(value, str) else Fraction(str(value))
    if type(node) not in ARITHMETIC:
        raise ValueError
    return ARITHMETIC[type(node)](_number(node.this, parameters), _number(node.expression, parameters))


def _number(node: exp.Expr, parameters: Mapping[str, object]) -> Fraction:
    value = _computed(node, parameters)
    if not isinstance(value, Fraction):
        raise ValueError
    return value
