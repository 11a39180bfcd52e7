"""The declaration of the data owner: tables, units, types, bounds. See schemas/shop.yaml for an example."""

from __future__ import annotations

import os
from typing import Any

from dpsql.errors import SchemaError
from dpsql.schema.model import Collected, Column, Contribution, Csv, Hop, Schema, Table, UnitPath
from dpsql.schema.types import Boolean, ColumnType, Date, Decimal, Double, Integer, Text, Timestamp, Value, parse_type

__all__ = [
    "Boolean",
    "Collected",
    "Column",
    "ColumnType",
    "Contribution",
    "Csv",
    "Date",
    "Decimal",
    "Double",
    "Hop",
    "Integer",
    "Schema",
    "Table",
    "Text",
    "Timestamp",
    "UnitPath",
    "Value",
    "load_schema",
    "parse_type",
]


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
    from dpsql.schema.load import schema_in  # here, so that a schema given as a dict does not wait for the parser

    return schema_in(source)
