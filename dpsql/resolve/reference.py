"""The lists of words in docs/sql.md, as the tables say them: python -m dpsql.resolve.reference docs/sql.md"""

from __future__ import annotations

import sys
from pathlib import Path

from sqlglot import exp

from dpsql.expressions.lower_words import SPECIAL, WORDS
from dpsql.expressions.temporal.formats import CODES
from dpsql.expressions.temporal.intervals import TO_SPANS
from dpsql.expressions.temporal.units import UNITS
from dpsql.resolve.date_formats import FORMATS
from dpsql.resolve.other_words import DIALECTS, NAMES
from dpsql.resolve.other_words import WORDS as OTHER_WORDS
from dpsql.resolve.syntax import UNTRANSLATED

BEGIN = "<!-- words: written by `make reference` -->\n"
END = "<!-- end of words -->"
OPERATORS: dict[type[exp.Expr], str] = {
    exp.BitwiseLeftShift: "a << 3",
    exp.BitwiseRightShift: "a >> 3",
    exp.DateBin: "TIME_BUCKET",
    exp.UnixToTime: "EPOCH_MS",
}
LENGTHS = ("AGE(a, b) > INTERVAL 1 YEAR", "EXTRACT(year FROM AGE(a, b))", "seen::TIME < '12:00'")


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
    return "".join(f"\n- {what}: {', '.join(f'`{word}`' for word in words)}" for what, words in lines.items()) + "\n"


def _word(kind: type[exp.Expr]) -> str:
    return kind.sql_names()[0] if issubclass(kind, exp.Func) else kind.key.upper()


def with_reference(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{reference()}{END}{after}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_reference(path.read_text(encoding="utf-8")), encoding="utf-8")
