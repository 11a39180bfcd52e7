"""Every mistake in a schema has its own message: where it is, what is wrong, what to write.

A case is a file and the pieces of its message: path, problem, hint.
"""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest

from dpsql.errors import ProgrammingError, SchemaError
from dpsql.schema import Column, Schema, Table, load_schema, parse_type


class Case(NamedTuple):
    file: str
    path: str
    problem: str
    hint: str
    line: int | None


def column(declaration: str, path: str, problem: str, hint: str) -> Case:
    """A mistake in the column x, on line 6 of an otherwise right file."""
    file = f"tables:\n  t:\n    unit: id\n    columns:\n      id: integer\n      x: {declaration}\n"
    return Case(file, f"tables.t.columns.{path}", problem, hint, 6)


def bounds(type_name: str, written: str, problem: str, hint: str) -> Case:
    return column(f"{{type: '{type_name}', bounds: {written}}}", "x.bounds", problem, hint)


def table(declaration: str, path: str, problem: str, hint: str) -> Case:
    """A mistake in the table t, on line 2; the tables `people` and `places` are right."""
    file = (
        f"tables:\n  t: {declaration}\n"
        "  people: {unit: id, columns: {id: integer, name: text}}\n"
        "  places: {public: true, columns: {id: integer}}\n"
    )
    return Case(file, f"tables.{path}", problem, hint, 2)


def path(unit: str, at: str, problem: str, hint: str) -> Case:
    """A mistake in how the table t reaches its unit."""
    return table(f"{{unit: {unit}, columns: {{p: integer}}}}", at, problem, hint)


def contribution(declaration: str, path: str, problem: str, hint: str) -> Case:
    file = f"contribution: {declaration}\ntables: {{t: {{unit: id, columns: {{id: integer}}}}}}\n"
    return Case(file, path, problem, hint, 1)


def csv(declaration: str, path: str, problem: str, hint: str) -> Case:
    file = f"csv: {declaration}\ntables: {{t: {{unit: id, columns: {{id: integer}}}}}}\n"
    return Case(file, f"csv{path}", problem, hint, 1)


BOUNDS = [
    bounds("double", "[5, 1.5]", "the lower bound 5 is above the upper bound 1.5", "[1.5, 5]"),
    bounds("date", "[2025-01-01, 2024-01-01]", "the lower bound 2025-01-01", "[2024-01-01, 2025"),
    bounds("double", "[.nan, 1]", "nan is not a finite number", "such as 500"),
    bounds("double", "[0, .inf]", "inf is not a finite number", "such as 500"),
    bounds("double", "[-1e999, 0]", "-inf is not a finite number", "such as 500"),
    bounds("double", "['0', '1']", '"0" is not a number', "without quotes"),
    bounds("double", "[false, true]", "false is not a number", "such as 12.5"),
    bounds("integer", "[0, 1.5]", "1.5 is not an integer", "whole number"),
    bounds("integer", "[false, 5]", "false is not an integer", "whole number"),
    bounds("integer", "[null, 5]", "null is not an integer", "whole number"),
    bounds("integer", "[2024-01-01, 2025-01-01]", "is not an integer", "whole number"),
    bounds("integer", "[0, 9223372036854775808]", "not a 64-bit integer", "9223372036854775807"),
    bounds("decimal(4,2)", "[0, 100]", "100 is not a decimal(4,2)", "2 digits before the point"),
    bounds("decimal(4,2)", "[0, 1.234]", "1.234 is not a", "2 digits after the point"),
    bounds("decimal(4,2)", "[0, lots]", '"lots" is not a number', "such as 12.50"),
    bounds("decimal(4,2)", "[0, true]", "true is not a number", "such as 12.50"),
    bounds("decimal(4,2)", "[0, .nan]", "nan is not a finite number", "such as 500"),
    bounds("date", "[0, 5]", "0 is not a date", "such as 2024-01-31"),
    bounds("date", "[2024-02-30, 2025-01-01]", '"2024-02-30" is not a date', "such as 2024-01-31"),
    bounds("date", "[2024-01-01 12:00:00, 2025-01-01]", "is not a date", "such as 2024-01-31"),
    bounds("timestamp", "[noon, midnight]", '"noon" is not a timestamp', "2024-01-31 12:30:00"),
    bounds("timestamp", "[2024-01-01, 2025-01-01T00:00:00Z]", "time zone", "drop the time zone"),
    bounds("text", "[a, z]", "a text column cannot have bounds", "values: [north, south]"),
    bounds("boolean", "[false, true]", "a boolean column cannot have bounds", "values: [false, true]"),
    bounds("integer", "5", "the lowest and the highest value", "bounds: [0, 100]"),
    bounds("date", "[2024-01-01]", "the lowest and the highest", "bounds: [2024-01-01, 2026-12-31]"),
]

VALUES = [
    column("{type: text, values: []}", "x.values", "at least one value", "values: [north, south]"),
    column("{type: text, values: north}", "x.values", "a list of at least one value", "values: [north, south]"),
    column("{type: text, values: [a, b, a]}", "x.values", "a is listed twice", "every value once"),
    column("{type: text, values: [1]}", "x.values", "1 is not text", 'put it in quotes: "1"'),
    column("{type: text, values: [true]}", "x.values", "true is not text", 'put it in quotes: "true"'),
    column(r'{type: text, values: ["\ud83d"]}', "x.values", "is not valid text", "write the whole character"),
    column("{type: integer, values: [one]}", "x.values", '"one" is not an integer', "whole number"),
    column("{type: boolean, values: [0, 1]}", "x.values", "0 is not a boolean", "true or false"),
    column("{type: double, values: [1.5]}", "x.values", "a double column cannot list its values", "bounds: [0, 500]"),
    column(
        "{type: integer, values: [1], bounds: [0, 1]}", "x.values", "bounds or values, not both", "remove the bounds"
    ),
]

KARY = "mechanism: kary, epsilon: 1.0"
COLLECTED = [
    column("{type: text, collected: {}}", "x.collected", '"mechanism" is missing', "mechanism: kary"),
    column("{type: text, collected: kary}", "x.collected", "is not a mapping", "collected: {mechanism: kary"),
    column(f"{{type: text, collected: {{{KARY}}}}}", "x.collected", '"values" is missing', "values: [never"),
    column(f"{{type: text, collected: {{{KARY}, values: [a]}}}}", "x.collected.values", "at least two", "values: ["),
    column(f"{{type: text, collected: {{{KARY}, values: [a, a]}}}}", "x.collected.values", "twice", "once"),
    column(f"{{type: text, collected: {{{KARY}, values: [1, 2]}}}}", "x.collected", "1 is not text", "in quotes"),
    column(f"{{type: text, collected: {{{KARY}, values: [a, null]}}}}", "x.collected", "null is not text", "in quotes"),
    column(
        "{type: text, collected: {mechanism: coins, epsilon: 1, values: [a, b]}}",
        "x.collected.mechanism",
        "Input should be",
        "mechanism: kary, randomized_response, rappor, oue or subset",
    ),
    *(
        column(
            f"{{type: text, collected: {{mechanism: kary, epsilon: {epsilon}, values: [a, b]}}}}",
            "x.collected.epsilon",
            "epsilon must be a number above 0",
            "epsilon: 1.0",
        )
        for epsilon in ("0", "-1", ".nan", ".inf", "true", "much")
    ),
    column(
        "{type: text, collected: {mechanism: randomized_response, epsilon: 1, values: [a, b, c]}}",
        "x.collected.values",
        "two values",
        "mechanism: kary",
    ),
    column(
        f"{{type: text, collected: {{{KARY}, values: [a, b], instantaneous: [0.5, 0.75]}}}}",
        "x.collected.instantaneous",
        "kary does not use instantaneous noise",
        "remove it",
    ),
    column(
        "{type: text, collected: {mechanism: rappor, epsilon: 1, values: [a, b], instantaneous: [0.75, 0.5]}}",
        "x.collected.instantaneous",
        "in increasing order",
        "instantaneous: [0.5, 0.75]",
    ),
    column(
        f"{{type: integer, collected: {{mechanism: oue, epsilon: 1, values: {list(range(64))}}}}}",
        "x.collected.values",
        "more than 63 bits",
        "mechanism: kary",
    ),
    column(
        f"{{type: integer, bounds: [1, 2], collected: {{{KARY}, values: [1, 2]}}}}",
        "x.collected",
        "no separate bounds",
        "remove bounds",
    ),
    column(
        f"{{type: text, values: [a, b], collected: {{{KARY}, values: [a, b]}}}}",
        "x.collected",
        "no separate values",
        "remove values",
    ),
    column(
        f"{{type: text, nullable: true, collected: {{{KARY}, values: [a, b]}}}}",
        "x.collected",
        "cannot be NULL",
        "remove nullable",
    ),
    column(
        f"{{type: double, collected: {{{KARY}, values: [a, b]}}}}",
        "x.collected",
        "a double column cannot be collected",
        "text, integer or boolean",
    ),
    table(
        f"{{unit: p, columns: {{p: {{type: integer, collected: {{{KARY}, values: [1, 2]}}}}}}}}",
        "t.unit",
        "leads to the person",
        "another column as the unit",
    ),
]

COLUMNS = [
    column("{type: double, bound: [0, 1]}", "x.bound", 'unknown key "bound"', 'did you mean "bounds"?'),
    column("{type: text, unique: true}", "x.unique", 'unknown key "unique"', "unique: true  next to the table's unit"),
    column("{bounds: [0, 1]}", "x", '"type" is missing', "type: integer"),
    column("intger", "x.type", 'unknown type "intger"', 'did you mean "integer"?'),
    column("varchar(20)", "x.type", 'unknown type "varchar(20)"', "write text"),
    column("decimal", "x.type", 'unknown type "decimal"', "write decimal(18,2)"),
    column("decimal(39,2)", "x.type", "not a valid decimal", "p from 1 to 38"),
    column("decimal(2,3)", "x.type", "not a valid decimal", "s of them after the point"),
    column("{type: decimal(10,2), bounds: [0, 1]}", "x.type", "splits the type at its comma", '"decimal(18,2)"'),
    column("{type: 5}", "x.type", "5 is not a type", "type: integer"),
    column("[integer]", "x", "is not a mapping", "amount: double, or  amount: {type: double, bounds: [0, 500]}"),
    column("{type: text, nullable: yes}", "x.nullable", '"yes" is not true or false', "nullable: true"),
    column("text\n      X: text", "X", '"X" and "x" are the same name', "rename one")._replace(line=7),
    column("text\n      x: text", "x", '"x" appears twice', "the other is on line 6")._replace(line=7),
    column("text\n      a.b: text", "a.b", "'a.b' is not a valid name", "cannot contain dots")._replace(line=7),
    column("text\n      '': text", "", "'' is not a valid name", "cannot contain dots")._replace(line=7),
    column("text\n      ' y': text", " y", "' y' is not a valid name", "begin or end with a blank")._replace(line=7),
    column("text\n      7: text", "7", "7 is not a name", 'put it in quotes: "7"')._replace(line=7),
]

TEXT_FILES = [
    csv("';'", "", "is not a mapping", "csv: {delimiter"),
    csv("{delimter: ;}", ".delimter", "unknown key", "delimiter"),
    csv("{delimiter: ab}", ".delimiter", '"ab" is not one ASCII character', 'delimiter: ";"'),
    csv("{quote: é}", ".quote", "is not one ASCII character", "quote:"),
    csv("{delimiter: '|', escape: '|'}", ".delimiter", "also the quote or the escape", "different characters"),
    csv('{date_format: "%d.%m."}', ".date_format", "does not say the year", 'date_format: "%d.%m.%Y"'),
    csv('{date_format: "%d.%m.%Q"}', ".date_format", "is no format: it may have %Y", 'date_format: "%d.%m.%Y"'),
    csv('{timestamp_format: "%d.%m.%y %Y"}', ".timestamp_format", "the year twice", "%H:%M"),
    csv("{decimal: ;}", ".decimal", "a point or a comma", 'decimal: ","'),
    csv("{header: false}", ".header", "true or the list", "header: [person, age]"),
    csv("{encoding: ebcdic}", ".encoding", "utf-8", "latin-1"),
    csv("{line_breaks: 1}", ".line_breaks", "is not true or false", "line_breaks: true"),
]
TABLES = [
    table("{columns: {id: integer}}", "t", "is private but names no unit", "unit: id  if"),
    table("{columns: {id: integer}}", "t", "is private but names no unit", "public: true  if it is about nobody"),
    table("{public: true, unit: id, columns: {id: integer}}", "t.unit", 'cannot have "unit"', "remove unit"),
    table("{public: true, unique: true, columns: {id: integer}}", "t.unique", 'cannot have "unique"', "remove unique"),
    table(
        "{public: true, contribution: {}, columns: {id: text}}",
        "t.contribution",
        'cannot have "contribution"',
        "remove",
    ),
    table("{unit: idd, columns: {id: integer}}", "t.unit", 'no column "idd"', '"id"'),
    table("{unit: 5, columns: {id: integer}}", "t.unit", "5 is not text", "unit: customer_id"),
    table("{unit: id}", "t", '"columns" is missing', "columns: {customer_id: integer"),
    table("{unit: id, columns: {}}", "t.columns", "the table has no columns", "columns: {customer_id: integer"),
    table("{unit: id, columns: [id]}", "t.columns", "is not a mapping", "columns: {customer_id: integer"),
    table("", "t", "null is not a mapping", "unit: customer_id"),
    table("{unit: id, unique: 1, columns: {id: integer}}", "t.unique", "1 is not true or false", "unique: true"),
    table("{unit: id, public: 'no', columns: {id: integer}}", "t.public", '"no" is not true or false', "public: true"),
    table("{unit: id, colums: {id: integer}}", "t.colums", 'unknown key "colums"', 'did you mean "columns"?'),
    table(
        "{unit: id, unique: true, contribution: {max_groups: 2}, columns: {id: integer}}",
        "t.contribution",
        "no contribution to bound",
        "remove contribution",
    ),
    table(
        "{unit: id, contribution: {max_groups: 0}, columns: {id: text}}", "t.contribution.max_groups", "0 is not", "4"
    ),
    Case(
        "tables:\n  t: {public: true, columns: {a: text}}\n  T: {public: true, columns: {a: text}}",
        "tables.T",
        '"T" and "t" are the same name',
        "rename one",
        3,
    ),
]


def reference(declaration: str, at: str, problem: str, hint: str) -> Case:
    """A mistake in what the rows of t refer to."""
    columns = "{u: integer, p: integer, q: integer}"
    return table(f"{{unit: u, references: [{declaration}], columns: {columns}}}", f"t.references.0{at}", problem, hint)


REFERENCES = [
    reference("{through: r, to: people.id}", ".through", 'no column "r"', '"u"'),
    reference("{through: p, to: peple.id}", ".to", 'no table "peple"', '"people"'),
    reference("{through: p, to: people.idd}", ".to", 'no column "idd"', '"id"'),
    reference("{through: p, to: people}", ".to", "not a column of a table", "to: orders.id"),
    reference("{through: [p, q], to: [people.id, t.u]}", ".to", "several tables", "a reference for each"),
    reference("{through: [p, q], to: people.id}", ".to", "2 columns refer to 1", "list one for each"),
    reference("{through: [p, p], to: people.id}", ".through", "listed twice", "once"),
    reference("{through: 3, to: people.id}", ".through", "a list of columns", "through: order_id"),
    reference("{through: p, to: places.id}", ".to", "is public", "remove the reference"),
    reference("{through: p, to: people.name}", ".to", "cannot be equal", "the same type"),
    reference("{through: p, to: people.id}", ".to", "is the person itself", "as the unit"),
    reference("{through: u, to: t.q}", ".to", "already leads to the person", "remove the reference"),
    table(
        "{unit: u, references: [{through: p, to: t.q}, {through: p, to: t.q}], columns: {u: text, p: text, q: text}}",
        "t.references.1.to",
        "already leads to the person",
        "remove the reference",
    ),
    table(
        "{public: true, references: [{through: p, to: t.p}], columns: {p: integer}}", "t.references", "public table", ""
    ),
]

PATHS = [
    table("{unit: {through: p, to: people.id}, columns: {q: integer}}", "t.unit.through", 'no column "p"', '"q"'),
    path("{through: p, to: peple.id}", "t.unit.to", 'no table "peple"', '"people"'),
    path("{through: p, to: people.idd}", "t.unit.to", 'no column "idd"', '"id"'),
    path("{through: p, to: people}", "t.unit.to", "not a column of a table", "to: orders.id"),
    path("{through: p, to: a.b.c.d}", "t.unit.to", "not a column of a table", "to: orders.id"),
    path("{through: p}", "t.unit", '"to" is missing', "to: orders.id"),
    path("{thru: p, to: people.id}", "t.unit.thru", 'unknown key "thru"', '"through"'),
    path("{through: p, to: places.id}", "t.unit.to", "ends nowhere", "a private table"),
    path("{through: p, to: people.name}", "t.unit.to", "cannot be equal", "the same type"),
    path("{through: p, to: t.p}", "t.unit", "a cycle: t -> t", "a unit column of its own"),
    table(
        "{unit: {through: p, to: people.id}, unique: true, columns: {p: integer}}",
        "t.unique",
        "through another table cannot be unique",
        "remove unique",
    ),
    Case(
        "tables:\n"
        "  a: {unit: {through: x, to: b.x}, columns: {x: integer}}\n"
        "  b: {unit: {through: x, to: c.x}, columns: {x: integer}}\n"
        "  c: {unit: {through: x, to: b.x}, columns: {x: integer}}\n",
        "tables.a.unit",
        "a cycle: a -> b -> c -> b",
        "a unit column of its own",
        2,
    ),
]

CONTRIBUTIONS = [
    contribution("{max_groups: 0}", "contribution.max_groups", "0 is not 1 or more", "max_groups: 4"),
    contribution("{max_groups: -3}", "contribution.max_groups", "-3 is not 1 or more", "max_groups: 4"),
    contribution("{max_groups: true}", "contribution.max_groups", "true is not a whole number", "max_groups: 4"),
    contribution("{max_rows_per_group: 1.5}", "contribution.max_rows_per_group", "1.5 is not a whole", "per_group: 5"),
    contribution("{max_rows_per_group: '5'}", "contribution.max_rows_per_group", '"5" is not a whole', "per_group: 5"),
    contribution("{max_groups: 2147483648}", "contribution.max_groups", "plausible number of rows", "max_groups: 4"),
    contribution("{groups: 4}", "contribution.groups", 'unknown key "groups"', 'did you mean "max_groups"'),
    contribution("5", "contribution", "5 is not a mapping", "contribution: {max_groups: 4"),
]

FILES = [
    Case("", "", "the file is empty", "at least one table", None),
    Case("# nothing yet\n", "", "the file is empty", "at least one table", None),
    Case("- a\n- b\n", "", "this is not a schema", "tables: {orders:", None),
    Case("just words", "", "this is not a schema", "tables: {orders:", None),
    Case("dataset: x", "", '"tables" is missing', "tables: {orders:", None),
    Case("tables: {}", "tables", "the schema has no tables", "only declared tables", 1),
    Case("tables: [a]", "tables", "is not a mapping", "tables: {orders:", 1),
    Case("dataset: 5\ntables: {}", "dataset", "5 is not text", "dataset: shop", 1),
    Case("tabels: {}", "tabels", 'unknown key "tabels"', 'did you mean "tables"?', 1),
    Case("tables:\n  t: [", "", "not valid YAML", "check the indentation", 2),
    Case("tables:\n  a: b: c\n", "", "not valid YAML: mapping values are not allowed here", "check the indentation", 2),
    Case("tables:\n\tt: 5\n", "", "not valid YAML", "check the indentation", 2),
    Case("tables: 1\n---\nb: 2\n", "", "not valid YAML", "check the indentation", 2),
    Case("tables: !!python/object:os.system x", "", "not valid YAML", "check the indentation", 1),
    Case("a: !!int x", "", "a !!tag does not match", "leave the tags out", None),
    Case("tables: {}\n? [a]\n: b\n", "", "cannot be a key", "write a name", 2),
    Case("a: &a {b: *a}", "", "nested too deeply", "six levels", None),
    Case("[" * 5000, "", "nested too deeply", "six levels", None),
    Case("a: \x07", "", "not valid YAML", "plain text", None),
]


@pytest.mark.parametrize(
    "case",
    [*BOUNDS, *VALUES, *COLLECTED, *COLUMNS, *TABLES, *PATHS, *REFERENCES, *CONTRIBUTIONS, *FILES, *TEXT_FILES],
)
def test_the_message_says_where_what_and_what_to_write(case: Case, tmp_path: Path) -> None:
    file = tmp_path / "schema.yaml"
    file.write_text(case.file, encoding="utf-8")
    with pytest.raises(SchemaError) as caught:
        load_schema(file)
    error = caught.value
    where = f"{file}: {case.path}: " if case.path else f"{file}: "
    assert error.problem.startswith(where)
    assert case.problem in error.problem.removeprefix(where)
    assert case.hint in (error.hint or "")
    assert (error.at and error.at.line) == case.line
    assert len([line for line in str(error).splitlines() if not line.startswith("also: ")]) <= 5


def test_the_whole_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shop.yaml").write_text(
        "tables:\n  orders:\n    unit: id\n    columns:\n      id: integer\n"
        "      amount: {type: double, bounds: [500, 0], nullable: true}\n"
    )
    with pytest.raises(SchemaError) as caught:
        load_schema("shop.yaml")
    assert str(caught.value).splitlines() == [
        "shop.yaml: tables.orders.columns.amount.bounds: the lower bound 500 is above the upper bound 0",
        "LINE 6:       amount: {type: double, bounds: [500, 0], nullable: true}",
        "                                     ^^^^^^^^^^^^^^^^",
        "hint: write  bounds: [0, 500]",
    ]


def test_a_dict_has_a_path_and_no_file() -> None:
    with pytest.raises(SchemaError) as caught:
        load_schema({"tables": {"t": {"unit": "nobody", "columns": {"id": "integer"}}}})
    assert caught.value.problem == 'tables.t.unit: there is no column "nobody"'
    assert caught.value.at is None


def test_python_gets_the_same_errors() -> None:
    with pytest.raises(ProgrammingError, match=re.escape('tables.t.unit.to: there is no table "u"')):
        Schema(tables={"t": Table(unit={"through": "x", "to": "u.x"}, columns={"x": Column(type="text")})})


@pytest.mark.parametrize(
    ("type_name", "bound"),
    [
        ("date", pd.NaT),
        ("timestamp", pd.NaT),
        ("date", pd.Timestamp(2024, 1, 1)),
        ("double", Decimal("NaN")),
        ("double", 10**400),
        ("decimal(4,2)", Decimal("sNaN")),
        ("decimal(4,2)", "1e999999999"),
        ("integer", object()),
        ("timestamp", object()),
        ("double", 1j),
    ],
)
def test_odd_python_values_are_refused_kindly(type_name: str, bound: Any) -> None:
    with pytest.raises(SchemaError, match="is not a"):
        parse_type(type_name).read(bound)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"nowhere\.yaml: no such file"):
        load_schema(tmp_path / "nowhere.yaml")
    with pytest.raises(SchemaError, match="the file cannot be read"):
        load_schema(tmp_path)
    with pytest.raises(SchemaError, match="the file cannot be read"):
        load_schema("null\0byte.yaml")
    latin = tmp_path / "latin.yaml"
    latin.write_bytes("dataset: Läden".encode("latin-1"))
    with pytest.raises(SchemaError, match="not UTF-8"):
        load_schema(latin)


@pytest.mark.parametrize("source", [None, 5, ["tables"], b"shop.yaml"])
def test_what_is_no_schema_at_all(source: Any) -> None:
    with pytest.raises(SchemaError, match="a path, a dict or a dpsql"):
        load_schema(source)


def test_the_engine_room_does_not_show(tmp_path: Path) -> None:
    """No pydantic or YAML exception hangs behind the message."""
    for text in ("tables: {}", "tables: ["):
        file = tmp_path / "schema.yaml"
        file.write_text(text)
        with pytest.raises(SchemaError) as caught:
            load_schema(file)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__ or caught.value.__context__ is None


SECRET = "alice-4711"
DATA = {
    "csv": f"id,name,amount\n1,{SECRET},5\n2,bob,7\n",
    "csv with colons": f"id: name\n1: {SECRET}\n",
    "csv with broken quotes": f'id,name\n1,"{SECRET}\n"2: x: {SECRET}\n',
    "semicolons and times": f"id;at;name\n1;12:30:00;{SECRET}\n2: ; 5: {SECRET}\n",
    "rows as json": f'[{{"id": 1, "name": "{SECRET}"}}]',
    "one row as json": f'{{"id": 1, "name": "{SECRET}"}}',
    "json lines": f'{{"id": 1, "name": "{SECRET}"}}\n{{"id": 2, "name": "bob"}}\n',
    "a row that has tables": f'{{"tables": 5, "name": "{SECRET}"}}',
    "a key twice": f"{SECRET}: 1\n{SECRET}: 2\n",
    "an alias": f"id: *{SECRET}\n",
    "a tag": f"id: !{SECRET} 5\n",
    "tabs": f"id\tname\n1\t{SECRET}\n\t{SECRET}: 5\n",
    "one number": "4711",
    "parquet": f"PAR1\x00{SECRET}\x00PAR1",
}


@pytest.mark.parametrize("text", DATA.values(), ids=DATA)
@pytest.mark.parametrize("suffix", [".csv", ".json", ".yaml"])
def test_data_in_the_place_of_a_schema_is_not_repeated(text: str, suffix: str, tmp_path: Path) -> None:
    """`dpsql check data.csv schema.yaml`: a person's row must not be in the error, nor in what it hangs on to."""
    file = tmp_path / f"data{suffix}"
    file.write_text(text)
    with pytest.raises(SchemaError) as caught:
        load_schema(file)
    assert (
        "4711" not in f"{caught.value} {vars(caught.value)!r} {caught.value.__cause__!r} {caught.value.__context__!r}"
    )
    assert caught.value.hint


def test_all_that_is_wrong_is_said_at_once() -> None:
    columns = {"id": "int", "age": {"type": "integer", "bounds": [9, 0]}, "town": "text"}
    with pytest.raises(SchemaError) as caught:
        load_schema({"tables": {"t": {"unit": "id", "columns": columns}}})
    first, *_, last = str(caught.value).splitlines()
    assert first == 'tables.t.columns.id.type: unknown type "int"'
    problem = "also: tables.t.columns.age.bounds: the lower bound 9 is above the upper bound 0"
    assert last == f"{problem}; hint: write  bounds: [0, 9]"
