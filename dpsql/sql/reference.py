"""Writes the lists of functions in docs/sql.md: python -m dpsql.sql.reference docs/sql.md"""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from dpsql.expressions import arithmetic, date_arithmetic, dates, logic, math, patterns, text
from dpsql.expressions.date_arithmetic import TO_SPANS
from dpsql.expressions.dates import UNITS
from dpsql.expressions.derived import CODES, SPECIAL, WORDS
from dpsql.sql.dialects import DIALECTS, FORMATS, NAMES
from dpsql.sql.dialects import WORDS as OTHER_WORDS
from dpsql.sql.syntax import UNTRANSLATED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dpsql.expressions.tree import Function

BEGIN = "<!-- words: written by `make reference` -->\n"
END = "<!-- end of words -->"
FUNCTIONS = "<!-- functions: written by `make reference` -->\n"
END_OF_FUNCTIONS = "<!-- end of functions -->"
PAGE: dict[str, Any] = {"width": 120, "subsequent_indent": "  ", "break_long_words": False, "break_on_hyphens": False}
BY_TITLE: dict[str, tuple[Function, ...]] = {
    "arithmetic": arithmetic.FUNCTIONS,
    "comparison and logic": logic.COMPARISONS_AND_LOGIC,
    "patterns": patterns.FUNCTIONS,
    "choice": logic.CONDITIONALS,
    "numbers": math.FUNCTIONS,
    "text": text.FUNCTIONS,
    "dates": (*dates.PARTS_OF_DATES, *date_arithmetic.FUNCTIONS, *dates.DATES_AS_TEXT),
}
OPERATORS: dict[type[exp.Expr], str] = {
    exp.BitwiseLeftShift: "a << 3",
    exp.BitwiseRightShift: "a >> 3",
    exp.DateBin: "TIME_BUCKET",
    exp.UnixToTime: "EPOCH_MS",
}
LENGTHS = ("AGE(a, b) > INTERVAL 1 YEAR", "EXTRACT(year FROM AGE(a, b))", "seen::TIME < '12:00'")


def functions() -> str:
    """Every scalar function, as its file says what it takes."""
    return "".join(_listed(title, [function.takes for function in found]) for title, found in BY_TITLE.items())


def _listed(title: str, words: Iterable[str]) -> str:
    return fill(f"- {title}: {', '.join(f'`{word}`' for word in words)}", **PAGE) + "\n"


def reference() -> str:
    ours = {*WORDS, *TO_SPANS, *(OPERATORS.get(kind, _word(kind)) for kind in SPECIAL), *LENGTHS}
    others = {name for name in NAMES if not name.startswith(UNTRANSLATED)}
    lines = {
        "dialects": DIALECTS,
        "words of other databases": sorted({*others, *OTHER_WORDS}),
        "more words of DuckDB": sorted(ours),
        "codes of STRFTIME": CODES,
        "codes of TO_CHAR": FORMATS,
        "units of time": UNITS,
    }
    return "\n" + "".join(_listed(what, words) for what, words in lines.items())


def _word(kind: type[exp.Expr]) -> str:
    return kind.sql_names()[0] if issubclass(kind, exp.Func) else kind.key.upper()


def with_reference(page: str) -> str:
    for begin, end, written in ((BEGIN, END, reference()), (FUNCTIONS, END_OF_FUNCTIONS, functions())):
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = f"{before}{begin}{written}{end}{after}"
    return page


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_reference(path.read_text(encoding="utf-8")), encoding="utf-8")
