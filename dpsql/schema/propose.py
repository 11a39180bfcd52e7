"""The way that may lead from a table to its person: over a column that another table has too, or over `<table>_id`."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class Way(NamedTuple):
    through: str
    to_table: str
    to_column: str


def way_to_person(table: str, columns: Mapping[str, Collection[str]], units: Mapping[str, object]) -> Way | None:
    """`units` are those of the tables that have one; a way that ends at a unit is better than one that goes on.

    >>> columns = {"orders": ["id", "customer_id"], "lines": ["order_id", "sku"], "returns": ["order_id"]}
    >>> way_to_person("lines", columns, {"orders": "customer_id"})
    Way(through='order_id', to_table='orders', to_column='id')
    >>> way_to_person("returns", {**columns, "customers": ["id"]}, {"customers": "id"})
    """
    ways = [
        way
        for column, other in product(columns[table], units)
        if other != table and (way := _between(column, other, columns[other])) is not None
    ]
    return min(ways, key=lambda way: units[way.to_table] != way.to_column, default=None)


def _between(column: str, other: str, columns: Collection[str]) -> Way | None:
    if not column.lower().endswith("id"):
        return None
    if column in columns and column != "id":
        return Way(column, other, column)
    named_like_it = column in (f"{other}_id", f"{other.removesuffix('s')}_id")
    return Way(column, other, "id") if "id" in columns and named_like_it else None


def proposal(data: Any, table: str) -> str | None:
    """What may be written for the unit of a declared table that has none; None if nothing suggests itself.

    >>> orders = {"unit": "customer_id", "columns": {"id": "integer", "customer_id": "integer"}}
    >>> proposal({"tables": {"orders": orders, "lines": {"columns": {"order_id": "integer"}}}}, "lines")
    'unit: {through: order_id, to: orders.id}'
    """
    tables = {name: part for name, part in data["tables"].items() if isinstance(part, dict)}
    columns = {name: list(part["columns"]) for name, part in tables.items() if isinstance(part.get("columns"), dict)}
    units = {name: tables[name]["unit"] for name in columns if tables[name].get("unit")}
    way = way_to_person(table, columns, units) if table in columns else None
    if way is None:
        return None
    if tables[way.to_table]["unit"] == way.to_column:
        return f"unit: {way.through}"
    return f"unit: {{through: {way.through}, to: {way.to_table}.{way.to_column}}}"
