"""Reads a schema from a YAML or JSON file, or from a dict.

Errors in a schema name the line. A file that is not a schema may be the data, passed by mistake, so nothing of it is
quoted.
"""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsql.errors import SchemaError
from dpsql.schema.model import Schema

if TYPE_CHECKING:
    from dpsql.schema.problems import Document

DATA = (".csv", ".tsv", ".gz", ".parquet", ".duckdb", ".db", ".xlsx")
# A file that cannot be parsed is taken for a schema if a line of it says so.
NAMES_TABLES = re.compile(r"""^[\s{]*["']?tables["']?\s*:""", re.MULTILINE)


def load_schema(source: str | os.PathLike[str] | dict[str, Any] | Schema) -> Schema:
    """
    >>> schema = load_schema({"tables": {"visits": {"unit": "person", "columns": {"person": "integer"}}}})
    >>> schema.table("VISITS").unit_column
    'person'
    """
    if isinstance(source, Schema):
        return source
    if isinstance(source, dict):
        return Schema.model_validate(source)
    if not isinstance(source, str | os.PathLike):
        raise SchemaError(
            f"a schema must be a path, a dict or a dpsql.Schema, not {type(source).__name__}",
            hint='pass schema="schemas/shop.yaml"',
        )
    data, document = _parsed(_read(Path(source)), str(source))
    if not _looks_like_a_schema(data):
        raise _no_schema(str(source))
    return Schema.model_validate(data, context=document)


def _parsed(text: str, file: str) -> tuple[object, Document]:

    from dpsql.schema.read_yaml import read_yaml  # here, so that a schema given as a dict does not wait for the parser

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
