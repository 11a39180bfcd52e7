"""Questions that try everything a schema declares, for an owner who brings none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.engines.quoting import quoted
from dpsql.expressions.facts import NUMBERS
from dpsql.schema.types import Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpsql.schema.model import Schema, Table


def default_questions(schema: Schema) -> list[str]:
    private = {name: table for name, table in schema.tables.items() if not table.is_public}
    # A column that leads to a person is no group of people.
    paths = [schema.unit_path(name) for name in private]
    leading = {end for path in paths for hop in path for end in (hop.column, hop.to_column)}
    return [sql for name, table in private.items() for sql in _about(quoted(name), table, leading)]


def _about(name: str, table: Table, leading: set[str]) -> Iterator[str]:
    yield f"SELECT COUNT(*) FROM {name}"
    columns = [
        part
        for part in table.columns.values()
        if part.name not in (table.unit_column, *leading) and part.collected is None
    ]
    numbers = [quoted(part.name) for part in columns if isinstance(part.type, NUMBERS) and part.bounds]
    public = [quoted(part.name) for part in columns if part.values is not None]
    texts = [quoted(part.name) for part in columns if isinstance(part.type, Text) and part.values is None]
    for number in numbers:
        yield f"SELECT SUM({number}), AVG({number}) FROM {name}"
        yield f"SELECT MEDIAN({number}) FROM {name}"
    for key in public:
        totals = "".join(f", SUM({number})" for number in numbers[:1])
        yield f"SELECT {key}, COUNT(*){totals} FROM {name} GROUP BY {key}"
        yield f"SELECT MODE({key}) FROM {name}"
    for key in texts:
        yield f"SELECT {key}, COUNT(*) FROM {name} GROUP BY {key}"
