"""Privacy options in SQL, as BigQuery and GoogleSQL write them: read off the tokens, before the parser sees them.

    SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.2) region, ...   ->  SELECT region, ...  and the options
    SUM(x, contribution_bounds_per_group => (0, 600))                     ->  SUM(<per group>(x, 0, 600))
    ANON_AVG(x CLAMPED BETWEEN 0 AND 500)                                 ->  AVG(<per row>(x, 0, 500))
    COUNT(*, report_format => JSON)                                       ->  <report>(COUNT(*))

Tokens keep their offsets, so carets still point into the analyst's text. The names of the wrapping functions start with
a character that no query may contain, so nobody else can write them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import Token, TokenType

from dpsql.aggregates.function import Bounds
from dpsql.aggregates.table import AGGREGATES
from dpsql.errors import SqlSyntaxError, UnknownName, Unsupported
from dpsql.resolve.option_clauses import without_clauses
from dpsql.resolve.tokens import MARK, NAME, argument_end, closing_of, instead, is_at, opening_of, place_between
from dpsql.source import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpsql.resolve.option_clauses import SqlOptions

PER_GROUP = MARK + Bounds.PER_GROUP.value
PER_ROW = MARK + Bounds.PER_ROW.value
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
            "CLAMPED BETWEEN cannot be read here",
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
            f"{name.text} cannot be read here", at=place, hint=f"write SUM(x, {name.text} => (0, 500))"
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


# -- reports ----------------------------------------------------------------------------------------------------------


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
            tokens = _report_at(tokens, position, end + 1, tokens[end - 1], text)
        position += 1
    return tokens


def _report_at(tokens: list[Token], start: int, end: int, form: Token, text: str) -> list[Token]:
    """The call around a position in a report, without what asks for it."""
    opening = opening_of(tokens, start)
    if form.text.upper() != "JSON" or opening < 1:
        raise Unsupported(
            "a report is given as JSON", at=place_between(form, form, text), hint="write report_format => JSON"
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
                f"{name} cannot be asked",
                at=place_between(token, token, text),
                hint="these can: " + ", ".join(ANONYMIZED),
            )
    return renamed
