"""Tokens as the parser will see them: which stand together, and others in their place."""

from __future__ import annotations

import re

from sqlglot import Token, TokenType

from dpsql.errors import SqlSyntaxError
from dpsql.source import Place

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
    """Where the argument that begins there ends: at the next comma that stands in no parentheses."""
    depth = 0
    for i in range(start, end):
        depth += is_at(tokens, i, TokenType.L_PAREN) - is_at(tokens, i, TokenType.R_PAREN)
        if depth == 0 and is_at(tokens, i, TokenType.COMMA):
            return i
    return end
