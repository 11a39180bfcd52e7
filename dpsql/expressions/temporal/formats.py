"""STRFTIME with all codes of DuckDB but those below a second: what is more than digits is put together.

'%a %-d'   ->   LEFT(DAYNAME(day), 3) || ' ' || CAST(DAY(day) AS VARCHAR)
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import ProgrammingError
from dpsql.expressions.casts import cast_to
from dpsql.expressions.lower_words import builder
from dpsql.expressions.temporal.text import PARTS
from dpsql.schema.types import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dpsql.expressions.lower import Lowering
    from dpsql.expressions.lower_words import Build
    from dpsql.expressions.tree import Expression

CODE = re.compile(r"%-?.|[^%]+|%", re.DOTALL)
WHOLE = {"%x": "%Y-%m-%d", "%X": "%H:%M:%S", "%c": "%Y-%m-%d %H:%M:%S"}
"""Codes that stand for several."""
WORDS: dict[str, Callable[[Build, Expression], Expression]] = {
    "%A": lambda build, day: build("DAYNAME", day),
    "%a": lambda build, day: build("LEFT", build("DAYNAME", day), 3),
    "%B": lambda build, day: build("MONTHNAME", day),
    "%b": lambda build, day: build("LEFT", build("MONTHNAME", day), 3),
    "%p": lambda build, day: build("CASE", build("<", build("HOUR", day), 12), "AM", "PM"),
}
NUMBERS: dict[str, tuple[int, Callable[[Build, Expression], Expression]]] = {
    "y": (2, lambda build, day: build("%", build("YEAR", day), 100)),
    "m": (2, lambda build, day: build("MONTH", day)),
    "d": (2, lambda build, day: build("DAY", day)),
    "H": (2, lambda build, day: build("HOUR", day)),
    "I": (2, lambda build, day: build("+", build("%", build("+", build("HOUR", day), 11), 12), 1)),
    "M": (2, lambda build, day: build("MINUTE", day)),
    "S": (2, lambda build, day: build("SECOND", day)),
    "j": (3, lambda build, day: build("DAYOFYEAR", day)),
    "u": (1, lambda build, day: build("ISODOW", day)),
    "w": (1, lambda build, day: build("DAYOFWEEK", day)),
    "U": (2, lambda build, day: _week(build, day, build("DAYOFWEEK", day))),
    "W": (2, lambda build, day: _week(build, day, build("-", build("ISODOW", day), 1))),
    "V": (2, lambda build, day: build("WEEK", day)),
    "G": (4, lambda build, day: build("ISOYEAR", day)),
}
"""Numbers, and up to how many digits they are filled with zeros; %-d is the number as it is."""
CODES = (*PARTS, *WHOLE, *WORDS, *(f"%{letter}" for letter in NUMBERS if f"%{letter}" not in PARTS), "%-d", "%%")


def _week(build: Build, day: Expression, since: Expression) -> Expression:
    """The weeks of the year that have begun, by the days since the one on which weeks begin."""
    return build("//", build("-", build("+", build("DAYOFYEAR", day), 6), since), 7)


def lower_format(lowering: Lowering, node: exp.Expr) -> Expression:
    """STRFTIME takes the format first or last."""
    lowering.only(node, ("this", "format"))
    moment, form = node.this, node.args["format"]
    if isinstance(moment, exp.Literal) and not isinstance(form, exp.Literal):
        moment, form = form, moment
    if not (isinstance(form, exp.Literal) and form.is_string):
        return lowering.call("STRFTIME", node, (moment, form))

    build = builder(lowering, node)
    day = lowering.lower(moment)
    joined: Expression | None = None
    for piece in _pieces(form.name, build, day, lowering, node):
        joined = piece if joined is None else build("||", joined, piece)
    return joined if joined is not None else build("STRFTIME", day, "")


def _pieces(form: str, build: Build, day: Expression, lowering: Lowering, node: exp.Expr) -> Iterator[Expression]:
    """What the codes say, one after the other; digits and plain text that stand together are one piece."""
    plain = ""
    for code in CODE.findall(re.sub("%[xXc]", lambda found: WHOLE[found[0]], form)):
        special = _special(code, build, day)
        if special is None:
            plain += code
            if code.startswith("%") and code not in PARTS:
                raise ProgrammingError(
                    f"STRFTIME does not know {code}",
                    at=lowering.place(node),
                    hint=f"it knows {' '.join(CODES)}, and plain text",
                )
            continue
        if plain:
            yield build("STRFTIME", day, plain)
        plain = ""
        yield special
    if plain:
        yield build("STRFTIME", day, plain)


def _special(code: str, build: Build, day: Expression) -> Expression | None:
    """What is no part of the formats that engines share; None for those that are."""
    if code in WORDS:
        return WORDS[code](build, day)
    if code == "%%":
        # Where there is no date there is no text either.
        return build("CASE", build("IS NULL", day), None, "%")
    filled = not code.startswith("%-")
    if code in PARTS or not code.startswith("%") or code[-1] not in NUMBERS:
        return None
    digits, number = NUMBERS[code[-1]]
    text = build(cast_to(Text()), number(build, day))
    return build("LPAD", text, digits, "0") if filled and digits > 1 else text
