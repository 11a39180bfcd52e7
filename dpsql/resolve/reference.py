"""The lists of words in docs/sql.md, as the tables say them: python -m dpsql.resolve.reference docs/sql.md"""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from dpsql.expressions import arithmetic, bits, comparison, conditional, mathematics, patterns, rounding, text
from dpsql.expressions.lower_words import SPECIAL, WORDS
from dpsql.expressions.temporal import arithmetic as temporal_arithmetic
from dpsql.expressions.temporal import buckets, difference, making, parts
from dpsql.expressions.temporal import text as temporal_text
from dpsql.expressions.temporal.formats import CODES
from dpsql.expressions.temporal.intervals import TO_SPANS
from dpsql.expressions.temporal.units import UNITS
from dpsql.resolve.date_formats import FORMATS
from dpsql.resolve.other_words import DIALECTS, NAMES
from dpsql.resolve.other_words import WORDS as OTHER_WORDS
from dpsql.resolve.syntax import UNTRANSLATED

if TYPE_CHECKING:
    from collections.abc import Iterable

BEGIN = "<!-- words: written by `make reference` -->\n"
END = "<!-- end of words -->"
FUNCTIONS = "<!-- functions: written by `make reference` -->\n"
END_OF_FUNCTIONS = "<!-- end of functions -->"
PAGE: dict[str, Any] = {"width": 120, "subsequent_indent": "  ", "break_long_words": False, "break_on_hyphens": False}
BY_TITLE: dict[str, tuple[Any, ...]] = {
    "arithmetic": (arithmetic, bits),
    "comparison and logic": (comparison,),
    "patterns": (patterns,),
    "choice": (conditional,),
    "numbers": (mathematics, rounding),
    "text": (text,),
    "dates": (parts, temporal_arithmetic, difference, making, buckets, temporal_text),
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
    lines = {
        title: [function.takes for module in modules for function in module.FUNCTIONS]
        for title, modules in BY_TITLE.items()
    }
    return "".join(_listed(title, takes) for title, takes in lines.items())


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
