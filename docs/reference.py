"""What the code says of itself, for people and for editors: `make reference` runs this.

The lists in docs/sql.md follow from the tables of aggregates, functions and words, the help in docs/cli.md from the
commands, the tables of keys in docs/schema.md from the schema model, as does the JSON Schema that lets an editor
complete a schema file whose first line is `# yaml-language-server: $schema=dpsql.schema.json`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from dpsql.aggregates.table import AGGREGATES
from dpsql.expressions import arithmetic, date_arithmetic, dates, logic, math, patterns, text
from dpsql.expressions.date_arithmetic import TO_SPANS
from dpsql.expressions.dates import UNITS
from dpsql.expressions.derived import CODES, SPECIAL, WORDS
from dpsql.schema.model import TYPE_JSON, Schema
from dpsql.sql.dialects import DIALECTS, FORMATS, NAMES
from dpsql.sql.dialects import WORDS as OTHER_WORDS
from dpsql.sql.syntax import UNTRANSLATED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from dpsql.aggregates.function import AggregateFunction
    from dpsql.expressions.tree import Function

ROOT = Path(__file__).parents[1]

# -- aggregates --------------------------------------------------------------------------------------------------------


def aggregates() -> str:
    """A row for each family: aggregates of the same things, with the same error bars."""
    families = groupby(AGGREGATES.values(), key=lambda function: (function.of, function.error))
    rows = [" | ".join(_cells(list(family))) for _, family in families]
    return "\n".join(("", "| aggregate | of | error bars |", "|---|---|---|", *(f"| {row} |" for row in rows), ""))


def _cells(family: list[AggregateFunction]) -> Iterator[str]:
    yield ", ".join(" or ".join(f"`{name}`" for name in function.names) for function in family)
    spelled = ", ".join(f"`{spelling}`" for function in family for spelling in function.spellings)
    yield family[0].of + (f"; also {spelled}" if spelled else "")
    yield family[0].error.value


# -- functions and words -----------------------------------------------------------------------------------------------

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


def words() -> str:
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


# -- keys of a schema --------------------------------------------------------------------------------------------------

SECTIONS = {
    "Table": "A table",
    "UnitPath": "`unit` over a foreign key",
    "Reference": "`references`",
    "Column": "A column",
    "Contribution": "`contribution`",
    "Csv": "`csv`",
    "Collected": "`collected`",
}
OWN_KINDS = {
    "bounds": "[low, high] or `auto`",
    "type": "`integer`, `double`, `decimal(p,s)`, `text`, `boolean`, `date` or `timestamp`",
    "instantaneous": "[number, number]",
}
"""Kinds that JSON Schema says less clearly."""


def exported() -> dict[str, Any]:
    found = Schema.model_json_schema()
    found["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    # A column may be written in full or as its type alone; the model only knows the full form.
    columns = found["$defs"]["Table"]["properties"]["columns"]
    columns["additionalProperties"] = {"anyOf": [TYPE_JSON, columns["additionalProperties"]]}
    return found


def export_json_schema() -> str:
    return json.dumps(exported(), indent=2) + "\n"


def keys() -> str:
    """A table of keys for the file as a whole, and for each of its parts."""
    whole = exported()
    parts = [("The file", whole), *((title, whole["$defs"][name]) for name, title in SECTIONS.items())]
    return "".join(f"\n## {title}\n\n{keys_of(part)}\n" for title, part in parts) + "\n"


def keys_of(part: Mapping[str, Any]) -> str:
    required = part.get("required", ())
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for name, key in part["properties"].items():
        default = "required" if name in required else default_of(key)
        cells = f"`{name}`", OWN_KINDS.get(name) or " or ".join(kinds_of(key)), default, key["description"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def default_of(key: Mapping[str, Any]) -> str:
    """
    >>> default_of({"default": False}), default_of({"default": None}), default_of({"default": '"'})
    ('`false`', '', '`"`')
    """
    default = key.get("default")
    return "" if default is None else f"`{default if isinstance(default, str) else json.dumps(default)}`"


def kinds_of(key: Mapping[str, Any]) -> Iterator[str]:
    """
    >>> list(kinds_of({"anyOf": [{"type": "integer"}, {"const": "auto", "type": "string"}, {"type": "null"}]}))
    ['integer', '`auto`']
    """
    for branch in (*key.get("anyOf", ()), *key.get("oneOf", ())):
        yield from kinds_of(branch)
    if "$ref" in key:
        title = SECTIONS[key["$ref"].rpartition("/")[2]].replace("`", "")
        yield f"[{title[0].lower()}{title[1:]}](#{re.sub('[^a-z]+', '-', title.lower())})"
    elif "const" in key:
        yield f"`{key['const'] if isinstance(key['const'], str) else json.dumps(key['const'])}`"
    elif "enum" in key:
        yield ", ".join(f"`{value}`" for value in key["enum"])
    elif isinstance(key.get("additionalProperties"), dict):
        yield "mapping"
    else:
        named = [key["type"]] if isinstance(key.get("type"), str) else key.get("type", ())
        yield from ("list" if kind == "array" else kind for kind in named if kind != "null")


# -- pages -------------------------------------------------------------------------------------------------------------


def with_reference(page: str) -> str:
    """The page with each list that it has a place for: <!-- aggregates: written by `make reference` -->."""
    for name, write in (("aggregates", aggregates), ("functions", functions), ("words", words), ("keys", keys)):
        begin, end = f"<!-- {name}: written by `make reference` -->\n", f"<!-- end of {name} -->"
        if begin in page:
            before, _, rest = page.partition(begin)
            page = f"{before}{begin}{write()}{end}{rest.partition(end)[2]}"
    return page


# -- help --------------------------------------------------------------------------------------------------------------

HELP = re.compile(r"(?<=^### dpsql)( ?[^\n]*)\n\n```text\n.*?```$", re.MULTILINE | re.DOTALL)


def with_help(page: str) -> str:
    """The page, in which each command shows its help of today."""
    return HELP.sub(lambda found: f"{found[1]}\n\n```text\n{_help(*found[1].split())}```", page)


def _help(*command: str) -> str:
    asked, wide = [Path(sys.executable).with_name("dpsql"), *command, "--help"], {**os.environ, "COLUMNS": "100"}
    return subprocess.run(asked, env=wide, capture_output=True, text=True, check=True).stdout


def main() -> None:
    commands = ROOT / "docs" / "cli.md"
    commands.write_text(with_help(commands.read_text("utf-8")), "utf-8")
    for page in (ROOT / "docs" / "sql.md", ROOT / "docs" / "schema.md"):
        page.write_text(with_reference(page.read_text("utf-8")), "utf-8")
    (ROOT / "schemas" / "dpsql.schema.json").write_text(export_json_schema(), "utf-8")


if __name__ == "__main__":
    main()
