"""The shape of a question: what is left of it without its literals, or without the values of its parameters.

    SELECT COUNT(*) FROM orders WHERE region = 'north' AND quantity > 10
    SELECT COUNT(*) FROM orders WHERE region = ''      AND quantity >           'north', 10

It is found without parsing, and is no more than a key: text and literals make up the question again, and what is cut
out where no literal stands (in a comment, say) counts as a part of the shape.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpsql.resolve.inert_literals import WrittenLiteral

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from dpsql.options import QueryRequest
    from dpsql.resolve.inert_literals import Places

PIECE = re.compile(
    r'"[^"]*"'  # a name
    r"|(?<![\w'&])(?P<text>'[^'\\]*')(?!')"
    r"|(?<![\w.])(?P<number>[0-9]{1,18}(?:\.[0-9]{1,18})?)(?![\w.])"
    r"|(?P<stray>['\"])"
)
"""Texts with quotes or backslashes inside, and numbers with an exponent, are not looked at."""
CUT = "\0"
"""In no question that can be read: the shape of one with parameters is never that of one with literals."""


@dataclass(frozen=True)
class Shape:
    key: str
    values: Mapping[str, object]
    """The literals, or parameters, by their number."""
    places: Places
    """Where literals stand in the text."""

    def without(self, names: Collection[str]) -> str:
        """The shape with all values but those of these names, each by its name: questions of one shape may leave others
        out. 1, 1.0 and True are equal, and not the same."""
        return f"{self.key} { ({name: value for name, value in self.values.items() if name not in names})!r}"


def shape_of(request: QueryRequest, session: str) -> Shape | None:
    """In a session that counts like this. None where there is nothing to cut out, or nobody knows where texts begin."""
    if request.dialect != "duckdb" or CUT in request.sql:
        return None
    if request.parameters:
        given = {str(number): value for number, value in enumerate(request.parameters)}
        return Shape(f"{len(given)} {_key(request, session, request.sql)}", given, {})
    found = list(PIECE.finditer(request.sql))
    literals = [match for match in found if match.lastgroup in ("text", "number")]
    if not literals or any(match.lastgroup == "stray" for match in found):
        return None
    places = {(match.start(), match.end() - 1): str(number) for number, match in enumerate(literals)}
    values = {name: WrittenLiteral(request.sql[first : last + 1]) for (first, last), name in places.items()}
    return Shape(_key(request, session, PIECE.sub(_cut, request.sql)), values, places)


def _key(request: QueryRequest, session: str, sql: str) -> str:
    return f"{session} {replace(request, sql=sql, parameters=())!r}"


def _cut(match: re.Match[str]) -> str:
    """A text leaves its quotes behind."""
    return match[0] if match.lastgroup is None else CUT if match.lastgroup == "number" else f"'{CUT}'"
