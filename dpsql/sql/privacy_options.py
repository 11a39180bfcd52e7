"""Privacy options in SQL, as BigQuery and GoogleSQL write them, read from the tokens before parsing.

    SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.2) region, ...   ->  SELECT region, ...  and the options
    SUM(x, contribution_bounds_per_group => (0, 600))                     ->  SUM(<per group>(x, 0, 600))
    ANON_AVG(x CLAMPED BETWEEN 0 AND 500)                                 ->  AVG(<per row>(x, 0, 500))
    COUNT(*, report_format => JSON)                                       ->  <report>(COUNT(*))

Tokens keep their offsets, so carets still point into the analyst's text. The names of the wrapping functions start with
a character that no query may contain, so nobody else can write them.
"""

from __future__ import annotations

import operator
import re
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

from sqlglot import Dialect, Token, TokenType, exp
from sqlglot.errors import ParseError

from dpsql.aggregates.function import BoundsRule
from dpsql.aggregates.table import AGGREGATES
from dpsql.errors import Place, SqlSyntaxError, UnknownName, Unsupported, did_you_mean
from dpsql.expressions.parser_tree import nodes_of
from dpsql.options import CLAUSE_OPTIONS, CONFIRMING, SqlOption, SqlOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# -- tokens ------------------------------------------------------------------------------------------------------------
# Tokens as the parser will see them: which stand together, and others in their place.

MARK = "\0"
"""Before the names of functions that nobody else can write: no query may contain it."""
NAME = re.compile(r"[^\W\d][\w.]*")


def place_between(first: Token, last: Token, text: str) -> Place:
    return Place(text, first.start, last.end)


def is_at(tokens: list[Token], position: int, kind: TokenType) -> bool:
    return 0 <= position < len(tokens) and tokens[position].token_type == kind


def instead(token: Token, kind: TokenType, text: str) -> Token:
    """Another token at the same place."""
    return Token(kind, text, token.line, token.col, token.start, token.end)


def opening_of(tokens: list[Token], position: int) -> int:
    """The parenthesis around a position; -1 if there is none."""
    depth = 0
    for i in range(position - 1, -1, -1):
        depth += is_at(tokens, i, TokenType.R_PAREN) - is_at(tokens, i, TokenType.L_PAREN)
        if depth < 0:
            return i
    return -1


def closing_of(tokens: list[Token], opening: int, text: str) -> int:
    depth = 0
    for i in range(opening, len(tokens)):
        depth += is_at(tokens, i, TokenType.L_PAREN) - is_at(tokens, i, TokenType.R_PAREN)
        if depth == 0:
            return i
    place = place_between(tokens[opening], tokens[opening], text)
    raise SqlSyntaxError("the parenthesis is never closed", at=place, hint="close it")


def argument_end(tokens: list[Token], start: int, end: int) -> int:
    """The end of the argument that begins there: the next comma outside parentheses."""
    depth = 0
    for i in range(start, end):
        depth += is_at(tokens, i, TokenType.L_PAREN) - is_at(tokens, i, TokenType.R_PAREN)
        if depth == 0 and is_at(tokens, i, TokenType.COMMA):
            return i
    return end


# -- option clauses ----------------------------------------------------------------------------------------------------
# SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(...): cut out of the tokens, and read.
#
# One clause speaks for the whole question. Of several, each speaks for the aggregates of its SELECT and of those inside
# that have none of their own.

DUCKDB = Dialect.get_or_raise("duckdb")
CLAUSE = MARK + "clause"
"""The function that marks a SELECT with a clause, and the note that it leaves on it."""
ARITHMETIC: dict[type[exp.Expr], Callable[[Fraction, Fraction], Fraction]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
    exp.Div: operator.truediv,
}
NAMES = {name: name for name in (*CLAUSE_OPTIONS, *CONFIRMING)}
OLDER_NAMES = {"kappa": "max_groups_contributed", "k_threshold": "min_privacy_units_per_group"}
CLAUSES = {
    "DIFFERENTIAL_PRIVACY": NAMES,
    "ANONYMIZATION": NAMES | OLDER_NAMES,
}


def without_clauses(
    tokens: list[Token], text: str, parameters: Mapping[str, object]
) -> tuple[list[Token], tuple[SqlOptions, ...]]:
    """The tokens without the clauses, and the clauses. If there are several, marks record the SELECT of each."""
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
    """The number of the clause that applies to a SELECT: its own, or that of the nearest enclosing SELECT."""
    around: exp.Expr | None = select
    while around is not None:
        if CLAUSE in around.meta:
            return int(around.meta[CLAUSE])
        around = around.parent
    return None


def _clause_at(first: int, tokens: list[Token], text: str, parameters: Mapping[str, object]) -> tuple[SqlOptions, int]:
    """The options of the clause, and the position after it."""
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
) -> tuple[list[SqlOption], int]:
    """OPTIONS(name = value, ...), and where the query goes on."""
    if not (is_at(tokens, start + 1, TokenType.L_PAREN) and tokens[start].text.upper() == "OPTIONS"):
        return [], start
    end = closing_of(tokens, start + 1, text)
    found: list[SqlOption] = []
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
) -> SqlOption:
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
    return SqlOption(known[name], value, place)


def _value(tokens: list[Token], parameters: Mapping[str, object]) -> str | None:
    """A name or text unchanged, the value of a number or parameter, or None for anything else."""
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


# -- options -----------------------------------------------------------------------------------------------------------

PER_GROUP = MARK + BoundsRule.PER_GROUP.value
PER_ROW = MARK + BoundsRule.PER_ROW.value
REPORT = MARK + "report"
ARGUMENTS = {name.removeprefix(MARK): name for name in (PER_GROUP, PER_ROW)}
REPORT_FORMAT = "report_format"
# A function of the older dialect -> ours, and what CLAMPED BETWEEN holds there.
ANONYMIZED = {
    f"ANON_{name}": (name, MARK + function.clamped.value)
    for name, function in AGGREGATES.items()
    if function.clamped is not None
} | {
    "ANON_PERCENTILE_CONT": ("PERCENTILE_CONT", PER_ROW),
    "ANON_QUANTILES": ("APPROX_QUANTILES", PER_ROW),
}
VALUE_ENDS = (TokenType.IDENTIFIER, TokenType.R_PAREN, TokenType.STAR, TokenType.NUMBER, TokenType.R_BRACKET)
BEFORE_A_VALUE = frozenset(
    (
        *("SELECT", "DISTINCT", "WHERE", "HAVING", "QUALIFY", "ON", "BY", "AND", "OR", "NOT", "IN", "LIKE", "IS"),
        *("BETWEEN", "CASE", "WHEN", "THEN", "ELSE"),
    )
)
"""Words behind which a value begins."""


def read_options(
    tokens: list[Token], text: str, parameters: Mapping[str, object]
) -> tuple[list[Token], tuple[SqlOptions, ...]]:
    """The tokens that the stock parser understands, and the clauses that were cut out of them."""
    tokens, clauses = without_clauses(tokens, text, parameters)
    tokens = _clamped(_reported(tokens, text), text)
    tokens = _with_arguments(tokens, text)
    return _renamed(tokens, text), clauses


# -- bounds of an aggregate --------------------------------------------------------------------------------------------


def _clamped(tokens: list[Token], text: str) -> list[Token]:
    for position in reversed(range(1, len(tokens))):
        # Behind a value it is a word of ours; anywhere else it is a column of that name.
        behind = tokens[position].text.upper() == "CLAMPED" and _ends_value(tokens[position - 1])
        if behind and is_at(tokens, position + 1, TokenType.BETWEEN):
            tokens = _clamped_at(position, tokens, text)
    return tokens


def _clamped_at(position: int, tokens: list[Token], text: str) -> list[Token]:
    """x CLAMPED BETWEEN a AND b  ->  <wrapper>(x, a, b)"""
    word, opening = tokens[position], opening_of(tokens, position)
    closing = closing_of(tokens, opening, text) if opening >= 0 else position
    middle = next((i for i in range(position, closing) if is_at(tokens, i, TokenType.AND)), None)
    function = tokens[opening - 1].text.upper() if opening > 0 else ""
    if function not in ANONYMIZED or middle is None:
        raise SqlSyntaxError(
            "CLAMPED BETWEEN is not allowed here",
            at=place_between(word, tokens[position + 1], text),
            hint="write ANON_SUM(x CLAMPED BETWEEN 0 AND 500)",
        )
    low, high = tokens[position + 2 : middle], tokens[middle + 1 : closing]
    arguments = tokens[opening + 1 : position]
    return [
        *_wrapped(tokens, opening, ANONYMIZED[function][1], arguments, (low, high), word),
        *tokens[closing:],
    ]


def _with_arguments(tokens: list[Token], text: str) -> list[Token]:
    position = 0
    while position + 1 < len(tokens):
        if is_at(tokens, position + 1, TokenType.FARROW):
            tokens = _with_argument_at(position, tokens, text)
        position += 1
    return tokens


def _with_argument_at(position: int, tokens: list[Token], text: str) -> list[Token]:
    """x, contribution_bounds_per_group => (a, b)  ->  <wrapper>(x, a, b)"""
    name, opening = tokens[position], opening_of(tokens, position)
    place = place_between(name, tokens[position + 1], text)
    if name.text.lower() not in ARGUMENTS:
        raise UnknownName(f'there is no argument "{name.text}"', at=place, hint=did_you_mean(name.text, ARGUMENTS))
    behind = opening > 0 and is_at(tokens, position - 1, TokenType.COMMA)
    if not behind or not is_at(tokens, position + 2, TokenType.L_PAREN):
        raise SqlSyntaxError(
            f"{name.text} is not allowed here", at=place, hint=f"write SUM(x, {name.text} => (0, 500))"
        )
    end = closing_of(tokens, position + 2, text)
    middle = argument_end(tokens, position + 3, end)
    pair = tokens[position + 3 : middle], tokens[middle + 1 : end]
    arguments = tokens[opening + 1 : position - 1]
    return [*_wrapped(tokens, opening, ARGUMENTS[name.text.lower()], arguments, pair, name), *tokens[end + 1 :]]


def _wrapped(
    tokens: list[Token],
    opening: int,
    wrapper: str,
    arguments: list[Token],
    pair: tuple[list[Token], list[Token]],
    at: Token,
) -> list[Token]:
    """The tokens up to a call's arguments, and these: the first in the wrapper, with its bounds, but for DISTINCT."""
    outside = arguments[:1] if is_at(arguments, 0, TokenType.DISTINCT) else []
    comma, (low, high) = instead(at, TokenType.COMMA, ","), pair
    end = argument_end(arguments, len(outside), len(arguments))
    call = [instead(at, TokenType.VAR, wrapper), instead(at, TokenType.L_PAREN, "(")]
    value, rest = arguments[len(outside) : end], arguments[end:]
    bounds = [comma, *low, comma, *high, instead(at, TokenType.R_PAREN, ")")]
    return [*tokens[: opening + 1], *outside, *call, *value, *bounds, *rest]


def _ends_value(token: Token) -> bool:
    """Whether a value may end there; a column may be called like a type."""
    word = NAME.fullmatch(token.text) is not None and token.text.upper() not in BEFORE_A_VALUE
    return word or token.token_type in VALUE_ENDS


# -- reports -----------------------------------------------------------------------------------------------------------


def _reported(tokens: list[Token], text: str) -> list[Token]:
    """COUNT(*, report_format => JSON) and ANON_COUNT(* WITH REPORT(FORMAT = JSON)) -> <report>(COUNT(*))"""
    position = 0
    while position < len(tokens):
        named = tokens[position].text.lower() == REPORT_FORMAT and is_at(tokens, position + 1, TokenType.FARROW)
        older = is_at(tokens, position, TokenType.WITH) and tokens[position + 1 : position + 2]
        if named and position + 2 < len(tokens):
            tokens = _report_at(tokens, position - 1, position + 3, tokens[position + 2], text)
        elif older and older[0].text.upper() == "REPORT" and is_at(tokens, position + 2, TokenType.L_PAREN):
            end = closing_of(tokens, position + 2, text)
            _check_report(tokens[position : end + 1], text)
            tokens = _report_at(tokens, position, end + 1, tokens[end - 1], text)
        position += 1
    return tokens


def _check_report(clause: list[Token], text: str) -> None:
    """WITH REPORT (FORMAT = JSON) is all that there is; its last word is looked at with those of report_format."""
    inside = clause[3:-1]
    if len(inside) != 3 or inside[0].text.upper() != "FORMAT" or not is_at(inside, 1, TokenType.EQ):
        raise SqlSyntaxError(
            "a report takes its format and nothing else",
            at=place_between(clause[0], clause[-1], text),
            hint="write WITH REPORT (FORMAT = JSON)",
        )


def _report_at(tokens: list[Token], start: int, end: int, form: Token, text: str) -> list[Token]:
    """The call around a position in a report, without the report option."""
    opening = opening_of(tokens, start)
    if form.text.upper() != "JSON" or opening < 1:
        raise Unsupported(
            "reports are only available as JSON", at=place_between(form, form, text), hint="write report_format => JSON"
        )
    closing = closing_of(tokens, opening, text)
    report = [instead(form, TokenType.VAR, REPORT), instead(form, TokenType.L_PAREN, "(")]
    call = [*tokens[opening - 1 : start], *tokens[end : closing + 1]]
    return [*tokens[: opening - 1], *report, *call, instead(form, TokenType.R_PAREN, ")"), *tokens[closing + 1 :]]


def _renamed(tokens: list[Token], text: str) -> list[Token]:
    """ANON_COUNT is COUNT: every aggregate over people is private here."""
    renamed = []
    for position, token in enumerate(tokens):
        name = token.text.upper()
        if not (name.startswith("ANON_") and token.token_type == TokenType.VAR) or not is_at(
            tokens, position + 1, TokenType.L_PAREN
        ):
            renamed.append(token)
        elif name in ANONYMIZED:
            renamed.append(instead(token, TokenType.VAR, ANONYMIZED[name][0]))
        else:
            raise Unsupported(
                f"{name} is not supported",
                at=place_between(token, token, text),
                hint="these can: " + ", ".join(ANONYMIZED),
            )
    return renamed
