"""Writes the JSON Schema that lets an editor complete and check a schema file: `python -m dpsql.schema.export FILE`.

A YAML file asks for it with a first line such as
`# yaml-language-server: $schema=dpsql.schema.json`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from dpsql.schema.model import TYPE_JSON, Schema


def export_json_schema() -> str:
    exported = Schema.model_json_schema()
    exported["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    # A column may be written in full or as its type alone; the model only knows the full form.
    columns = exported["$defs"]["Table"]["properties"]["columns"]
    columns["additionalProperties"] = {"anyOf": [TYPE_JSON, columns["additionalProperties"]]}
    return json.dumps(exported, indent=2) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(export_json_schema(), encoding="utf-8")
