"""Reads a schema from a YAML or JSON file, or from a dict."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from dpsql.errors import SchemaError
from dpsql.schema.model import Schema


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
            f"a schema is a path, a dict or a dpsql.Schema, not {type(source).__name__}",
            hint='pass schema="schemas/shop.yaml"',
        )
    from dpsql.schema.read_yaml import read_yaml  # here, so that a schema given as a dict does not wait for the parser

    data, document = read_yaml(_read(Path(source)), str(source))
    return Schema.model_validate(data, context=document)


def _read(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise SchemaError(f"{path}: there is no such file", hint="pass the path of a YAML or JSON schema") from None
    except UnicodeDecodeError:
        raise SchemaError(f"{path}: the file is not UTF-8 text", hint="save the schema as UTF-8") from None
    except (OSError, ValueError) as error:
        raise SchemaError(
            f"{path}: the file cannot be read ({error})", hint="pass the path of a YAML or JSON schema"
        ) from None
    # JSON is YAML, except that it may be indented with tabs; inside its strings a tab is always escaped.
    return text.replace("\t", " ") if path.suffix.lower() == ".json" else text
