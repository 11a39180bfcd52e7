"""The declaration of the data owner: tables, units, types, bounds. See schemas/shop.yaml for an example."""

from dpsql.schema.load import load_schema
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
