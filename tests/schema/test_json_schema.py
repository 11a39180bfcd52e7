"""The JSON Schema that editors use is the one that the code means."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

from dpsql.schema import Column, Contribution, Csv, Schema, Table, UnitPath

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "schemas" / "dpsql.schema.json"
export_json_schema = runpy.run_path(str(ROOT / "docs" / "reference.py"))["export_json_schema"]


def test_the_published_file_is_up_to_date() -> None:
    assert PUBLISHED.read_text(encoding="utf-8") == export_json_schema(), "run `make reference`"


def test_every_key_is_there_and_no_other_is_allowed() -> None:
    exported = json.loads(export_json_schema())
    parts = {
        model.__name__: exported["$defs"][model.__name__] for model in (Column, Contribution, Csv, Table, UnitPath)
    }
    parts["Schema"] = exported
    for model in (Column, Contribution, Csv, Schema, Table, UnitPath):
        part = parts[model.__name__]
        assert set(part["properties"]) == set(model.model_fields)
        assert part["additionalProperties"] is False


def test_both_forms_of_a_column_and_of_a_unit_are_offered() -> None:
    table = json.loads(export_json_schema())["$defs"]["Table"]["properties"]
    short, full = table["columns"]["additionalProperties"]["anyOf"]
    assert "integer" in short["anyOf"][0]["enum"]
    assert full == {"$ref": "#/$defs/Column"}
    assert table["unit"]["anyOf"][0]["oneOf"] == [{"type": "string"}, {"$ref": "#/$defs/UnitPath"}]
