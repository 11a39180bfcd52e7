"""A schema that is right loads, in every form it may be written in, and answers what the pipeline asks of it."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date, datetime
from decimal import Decimal as Number
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from dpsql.schema import (
    Boolean,
    Column,
    ColumnType,
    Contribution,
    Date,
    Decimal,
    Double,
    Hop,
    Integer,
    Schema,
    Table,
    Text,
    Timestamp,
    UnitPath,
    load_schema,
    parse_type,
)
from dpsql.schema.model import AUTO

SHOP = Path(__file__).parents[2] / "schemas" / "shop.yaml"


def one_column(declaration: Any) -> Column:
    schema = load_schema({"tables": {"t": {"unit": "id", "columns": {"id": "integer", "x": declaration}}}})
    return schema.tables["t"].columns["x"]


@pytest.fixture(scope="module")
def shop() -> Schema:
    return load_schema(SHOP)


def test_the_shop_is_what_it_says(shop: Schema) -> None:
    assert shop.dataset == "shop"
    assert list(shop.tables) == ["customers", "orders", "order_lines", "regions"]
    orders = shop.tables["orders"]
    assert orders.name == "orders"
    assert orders.columns["day"].bounds == (date(2024, 1, 1), date(2026, 12, 31))
    assert orders.columns["amount"].bounds == (0.0, 500.0)
    assert orders.columns["amount"].nullable
    assert not orders.columns["id"].nullable
    assert shop.tables["customers"].columns["region"].values == ("north", "south", "east", "west")
    product = shop.tables["order_lines"].columns["product"]
    assert (product.name, product.type, product.bounds, product.values) == ("product", Text(), None, None)


def test_names_are_found_in_any_case_and_keep_their_spelling() -> None:
    columns = {"Person": "integer", "Amount": "double"}
    schema = load_schema({"tables": {"Orders": {"unit": "PERSON", "columns": columns}}})
    orders = schema.table("oRDERS")
    assert orders is schema.tables["Orders"]
    assert orders.name == "Orders"
    assert orders.unit_column == "Person"
    amount = orders.column("AMOUNT")
    assert amount is orders.columns["Amount"]
    assert amount.name == "Amount"
    assert schema.table("nobody") is None
    assert orders.column("nothing") is None


def test_units(shop: Schema) -> None:
    units = {name: (table.is_public, table.unit_column) for name, table in shop.tables.items()}
    assert units == {
        "customers": (False, "id"),
        "orders": (False, "customer_id"),
        "order_lines": (False, None),
        "regions": (True, None),
    }


def test_a_path_is_walked_to_its_end_in_the_declared_spelling() -> None:
    schema = load_schema(
        {
            "tables": {
                "returns": {"unit": {"through": "LINE", "to": "Order_Lines.ID"}, "columns": {"line": "integer"}},
                "order_lines": {
                    "unit": {"through": "order_id", "to": "ORDERS.id"},
                    "columns": {"id": "integer", "order_id": "text"},
                },
                "orders": {"unit": "person", "columns": {"id": "text", "person": "integer"}},
                "regions": {"public": True, "columns": {"region": "text"}},
            }
        }
    )
    assert schema.unit_path("Returns") == (Hop("line", "order_lines", "id"), Hop("order_id", "orders", "id"))
    assert schema.unit_path("orders") == ()
    assert schema.unit_path("regions") == ()


def test_contribution_comes_from_the_table_then_the_schema_then_auto() -> None:
    columns = {"id": "integer"}
    tables = {
        "plain": {"unit": "id", "columns": columns},
        "own": {"unit": "id", "columns": columns, "contribution": {"max_groups": 2}},
        "single": {"unit": "id", "unique": True, "columns": columns},
        "free": {"public": True, "columns": columns},
    }

    def bounds(schema: Schema) -> dict[str, tuple[int | str, int | str]]:
        return {
            name: (table.contribution.max_groups, table.contribution.max_rows_per_group)
            for name, table in schema.tables.items()
        }

    declared = load_schema({"contribution": {"max_groups": 4, "max_rows_per_group": 5}, "tables": tables})
    assert bounds(declared) == {"plain": (4, 5), "own": (2, 5), "single": (4, 5), "free": (AUTO, AUTO)}
    silent = load_schema({"tables": tables})
    assert bounds(silent) == dict.fromkeys(("plain", "single", "free"), (AUTO, AUTO)) | {"own": (2, AUTO)}


@pytest.mark.parametrize(
    ("text", "expected", "name"),
    [
        ("integer", Integer(), "integer"),
        ("Double", Double(), "double"),
        ("decimal(10,2)", Decimal(10, 2), "decimal(10,2)"),
        (" DECIMAL( 38 , 0 ) ", Decimal(38, 0), "decimal(38,0)"),
        ("text", Text(), "text"),
        ("boolean", Boolean(), "boolean"),
        ("date", Date(), "date"),
        ("timestamp", Timestamp(), "timestamp"),
    ],
)
def test_types(text: str, expected: ColumnType, name: str) -> None:
    assert parse_type(text) == expected
    assert parse_type(text).name == name
    assert parse_type(name) == expected


@pytest.mark.parametrize(
    ("type_name", "written", "read"),
    [
        ("integer", [-(2**63), 2**63 - 1], (-(2**63), 2**63 - 1)),
        ("integer", (np.int64(0), np.int32(5)), (0, 5)),
        ("double", [0, 0.5], (0.0, 0.5)),
        ("double", [np.float32(0.5), Number("1.5")], (0.5, 1.5)),
        ("double", [3, 3], (3.0, 3.0)),
        ("decimal(4,2)", [0, 99.99], (Number(0), Number("99.99"))),
        ("decimal(38,2)", ["0", "999999999999999999999999999999999999.99"], (0, Number("9" * 36 + ".99"))),
        ("date", ["2024-01-01", date(2024, 12, 31)], (date(2024, 1, 1), date(2024, 12, 31))),
        ("timestamp", ["2024-01-01", datetime(2024, 1, 1, 12)], (datetime(2024, 1, 1), datetime(2024, 1, 1, 12))),
        (
            "timestamp",
            ["2024-01-01 10:30", pd.Timestamp(2025, 1, 1)],
            (datetime(2024, 1, 1, 10, 30), datetime(2025, 1, 1)),
        ),
    ],
)
def test_bounds_have_the_type_of_their_column(type_name: str, written: Any, read: tuple[Any, Any]) -> None:
    bounds = one_column({"type": type_name, "bounds": written}).bounds
    assert bounds == read
    assert [type(bound) for bound in bounds] == [type(one_column(type_name).type.read(bound)) for bound in bounds]


@pytest.mark.parametrize(
    ("type_name", "values"),
    [
        ("text", ["a", "A", ""]),
        ("integer", [3, 1, 2]),
        ("boolean", [True, False]),
        ("date", [date(2024, 1, 1), date(2024, 2, 1)]),
    ],
)
def test_values_keep_their_order(type_name: str, values: list[Any]) -> None:
    assert one_column({"type": type_name, "values": values}).values == tuple(values)


def test_bounds_left_empty_are_undeclared() -> None:
    assert one_column({"type": "double", "bounds": None}).bounds is None


def test_yaml_means_what_it_looks_like(tmp_path: Path) -> None:
    file = tmp_path / "plain.yaml"
    file.write_text(
        "\ufefftables:\n"
        "  t:\n"
        "    unit: id\n"
        "    columns:\n"
        "      id: integer\n"
        "      country: {type: text, values: [de, no, on, 01234, 2024-01-01, 12:30, ä]}\n"
        "      big: {type: double, bounds: [-1e6, +1.5E+6]}\n"
        '      price: {type: "decimal(10,2)", nullable: True}\n',
        encoding="utf-8",
    )
    columns = load_schema(file).tables["t"].columns
    assert columns["country"].values == ("de", "no", "on", "01234", "2024-01-01", "12:30", "ä")
    assert columns["big"].bounds == (-1e6, 1.5e6)
    assert columns["price"].type == Decimal(10, 2)


@pytest.mark.parametrize("indent", [2, "\t", None])
def test_json_and_dict_say_the_same_as_yaml(shop: Schema, tmp_path: Path, indent: int | str | None) -> None:
    data = yaml.safe_load(SHOP.read_text(encoding="utf-8"))
    assert load_schema(data) == shop
    file = tmp_path / "shop.json"
    file.write_text(json.dumps(data, indent=indent, default=str), encoding="utf-8")
    assert load_schema(str(file)) == shop


def test_json_may_escape_what_it_says(tmp_path: Path) -> None:
    file = tmp_path / "emoji.json"
    tables = {"t": {"unit": "id", "columns": {"id": "integer", "😀": {"type": "text", "values": ["😀", "a/b\n"]}}}}
    file.write_text(json.dumps({"tables": tables}))
    assert load_schema(file).tables["t"].columns["😀"].values == ("😀", "a/b\n")


def test_a_schema_can_be_built_in_python() -> None:
    person = Column(type="integer")
    schema = Schema(
        tables={
            "a": Table(unit="id", columns={"id": person, "twin": person}, contribution=Contribution(max_groups=3)),
            "b": Table(unit=UnitPath(through="a_id", to="a.id"), columns={"a_id": Column(type=Integer())}),
        }
    )
    assert load_schema(schema) is schema
    assert [column.name for column in schema.tables["a"].columns.values()] == ["id", "twin"]
    assert schema.tables["a"].contribution == Contribution(max_groups=3, max_rows_per_group=AUTO)


def test_a_schema_does_not_change(shop: Schema) -> None:
    with pytest.raises(ValueError, match="frozen"):
        shop.tables["orders"].columns["amount"].bounds = (0.0, 1e9)


def test_the_fingerprint_follows_the_content(shop: Schema) -> None:
    data = yaml.safe_load(SHOP.read_text(encoding="utf-8"))
    assert len(shop.fingerprint) == 64
    data["tables"]["orders"]["columns"] = dict(reversed(data["tables"]["orders"]["columns"].items()))
    assert load_schema(data).fingerprint == shop.fingerprint
    data["tables"]["orders"]["columns"]["amount"]["bounds"] = [0, 501]
    assert load_schema(data).fingerprint != shop.fingerprint


def test_the_import_is_light() -> None:
    program = "import sys, dpsql.schema; print({'pandas', 'duckdb', 'sqlglot', 'numpy', 'yaml'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
