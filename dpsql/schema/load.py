"""Reads a schema from a YAML or JSON file.

Errors in a schema name the line. A file that is not a schema may be the data, passed by mistake, so nothing of it is
quoted. Of YAML only null, true, false and numbers are special, so that a region called `no`, the postcode 01234 and a
date stay what they are; and a key that stands twice is an error, not a value lost.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from dpsql.errors import Place, SchemaError
from dpsql.schema.model import Schema
from dpsql.schema.problems import Document, KeyPath

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

DATA = (".csv", ".tsv", ".gz", ".parquet", ".duckdb", ".db", ".xlsx")
# A file that cannot be parsed is taken for a schema if a line of it says so.
NAMES_TABLES = re.compile(r"""^[\s{]*["']?tables["']?\s*:""", re.MULTILINE)


def schema_in(file: str | os.PathLike[str]) -> Schema:
    data, document = _parsed(_read(Path(file)), str(file))
    if not _looks_like_a_schema(data):
        raise _no_schema(str(file))
    return Schema.model_validate(data, context=document)


def _parsed(text: str, file: str) -> tuple[object, Document]:
    try:
        return read_yaml(text, file)
    except SchemaError as error:
        problem = error if error.at is None or NAMES_TABLES.search(text) else _no_schema(file)
    raise problem


def _looks_like_a_schema(data: object) -> bool:
    """Whether it has tables, or only keys that a schema might have."""
    if not isinstance(data, dict):
        return False
    keys = (str(key) for key in data)
    return isinstance(data.get("tables"), dict) or all(get_close_matches(key, Schema.model_fields) for key in keys)


def _no_schema(file: str) -> SchemaError:
    if file.lower().endswith(DATA):
        return SchemaError(
            f"{file} is data, but a schema was expected here",
            hint="the schema is a YAML file: connect(DATA, schema=SCHEMA), --db DATA --schema SCHEMA, "
            "dpsql check SCHEMA DATA",
        )
    return SchemaError(
        f'{file}: this is not a schema; a schema is a mapping with the key "tables"',
        hint="write  tables: {orders: {unit: customer_id, columns: {customer_id: integer}}};  if this is the data, "
        "note that the schema comes first:  dpsql check SCHEMA DATA, connect(DATA, schema=SCHEMA)",
    )


def _read(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise SchemaError(f"{path}: no such file", hint="pass the path of a YAML or JSON schema") from None
    except UnicodeDecodeError:
        if path.name.lower().endswith(DATA):
            raise _no_schema(str(path)) from None
        raise SchemaError(f"{path}: the file is not UTF-8 text", hint="save the schema as UTF-8") from None
    except (OSError, ValueError) as error:
        raise SchemaError(
            f"{path}: the file cannot be read ({error})", hint="pass the path of a YAML or JSON schema"
        ) from None
    # JSON is YAML, except that it may be indented with tabs; inside its strings a tab is always escaped.
    return text.replace("\t", " ") if path.suffix.lower() == ".json" else text


# -- YAML --------------------------------------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - filled below, in place of YAML 1.1's

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> str:
        # JSON may write an emoji as the escapes of two halves, which YAML leaves apart.
        halves = super().construct_scalar(node).encode("utf-16-le", "surrogatepass")
        return halves.decode("utf-16-le", "surrogatepass")


for tag, pattern, first_characters in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9]{0,99})", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+", list("-+.0123456789")),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", list("-+.")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), first_characters)


def read_yaml(text: str, file: str) -> tuple[object, Document]:
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            raise SchemaError(f"{file}: the file is empty", hint="declare at least one table")
        document = Document(file, dict(_places(node, (), text, file)))
        return loader.construct_document(node), document
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = None if mark is None else Place(text, mark.index, mark.index)
        raise SchemaError(
            f"{file}: not valid YAML: {error.problem}",
            at=at,
            hint="check the indentation, colons and quotes on this line",
        ) from None
    except yaml.YAMLError as error:
        raise SchemaError(f"{file}: not valid YAML: {error}", hint="save the schema as plain text") from None
    except (ValueError, LookupError, AttributeError):
        raise SchemaError(
            f"{file}: not valid YAML: a !!tag does not match its value", hint="leave the tags out"
        ) from None
    except RecursionError:
        raise SchemaError(f"{file}: the file is nested too deeply", hint="a schema is six levels deep") from None


def _places(node: yaml.Node, path: KeyPath, text: str, file: str) -> Iterator[tuple[KeyPath, Place]]:
    """Every path of the file with its place: `key: value` if it is one line, otherwise just the key."""
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, Place] = {}
        for key, value in node.value:
            end = value if value.end_mark.line == key.start_mark.line else key
            place = Place(text, key.start_mark.index, end.end_mark.index - 1)
            if not isinstance(key, yaml.ScalarNode):
                raise SchemaError(f"{file}: a list or a mapping cannot be a key", at=place, hint="write a name")
            here = (*path, key.value)
            if key.value in seen:
                raise SchemaError(
                    f'{file}: {".".join(here)}: "{key.value}" appears twice',
                    at=place,
                    hint=f"keep one; the other is on line {seen[key.value].line}",
                )
            seen[key.value] = place
            yield here, place
            yield from _places(value, here, text, file)
