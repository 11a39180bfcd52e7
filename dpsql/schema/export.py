"""What the schema model says, for editors and for people: `python -m dpsql.schema.export FILE`.

A file that ends in .json becomes the JSON Schema that lets an editor complete and check a schema file, if that file's
first line is `# yaml-language-server: $schema=dpsql.schema.json`. A page that ends in .md, such as docs/schema.md, gets
its tables of keys.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsql.schema.model import TYPE_JSON, Schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def exported() -> dict[str, Any]:
    found = Schema.model_json_schema()
    found["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    # A column may be written in full or as its type alone; the model only knows the full form.
    columns = found["$defs"]["Table"]["properties"]["columns"]
    columns["additionalProperties"] = {"anyOf": [TYPE_JSON, columns["additionalProperties"]]}
    return found


def export_json_schema() -> str:
    return json.dumps(exported(), indent=2) + "\n"


# -- the page of all keys ----------------------------------------------------------------------------------------------

BEGIN = "<!-- keys: written by `make reference` -->\n"
END = "<!-- end of keys -->"
SECTIONS = {
    "Table": "A table",
    "UnitPath": "`unit` over a foreign key",
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


def reference() -> str:
    """A table of keys for the file as a whole, and for each of its parts."""
    whole = exported()
    parts = [("The file", whole), *((title, whole["$defs"][name]) for name, title in SECTIONS.items())]
    return "".join(f"\n## {title}\n\n{keys_of(part)}\n" for title, part in parts)


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


def with_reference(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{reference()}\n{END}{after}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    is_page = path.suffix == ".md"
    path.write_text(with_reference(path.read_text(encoding="utf-8")) if is_page else export_json_schema(), "utf-8")
