"""Whether every row has a value where the schema says so: looked at when an owner opens or checks a source.

A column that is not declared `nullable` should have a value in every row, and of a copied source that is relied on:
COUNT(x) is COUNT(*) then, which saves noise. So it is counted once, in what questions will read: rows without a unit
left out, and as NULL whatever is not of its type, or not among the declared values. Counts are told, never values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.engine_sql.build import count, select
from dpsql.engine_sql.tree import Field, Named
from dpsql.errors import SchemaError
from dpsql.relation.relation import Scan
from dpsql.relation.write_scan import scan_sql
from dpsql.resolve.rows import declared_rows

if TYPE_CHECKING:
    from dpsql.engines.engine import Engine
    from dpsql.schema.model import Schema
    from dpsql.schema.table import Table


def check_complete(engine: Engine, schema: Schema) -> None:
    """Raises SchemaError if a column that is not declared nullable is NULL in some row."""
    gaps = [gap for table in schema.tables.values() for gap in _gaps(engine, schema, table)]
    if gaps:
        raise SchemaError(
            "; ".join(gaps),
            hint="write  nullable: true  where a cell may be empty, or hold what is not of its type or values; in text "
            "files a date is written 2024-01-31 and a number 1234.5: declare what is written otherwise as text; "
            "dpsql check --data shows the data owner more",
        )


def _gaps(engine: Engine, schema: Schema, table: Table) -> list[str]:
    scan = declared_rows(table, schema, engine.guarantees).relation
    assert isinstance(scan, Scan)
    # The reports of a collected column are a column of their own; the answers that they stand for are nowhere.
    promised = [part for part in scan.columns if not part.properties.nullable and part.collected is None]
    counts = [Named(count(Field(part.name)), f"_c{number}") for number, part in enumerate(promised)]
    if not promised:
        return []
    rows = scan_sql(scan, [part.name for part in promised])
    found = engine.run(engine.render(select([Named(count(), "_n"), *counts], rows)))
    whole = int(found["_n"][0])
    missing = {part.declared: whole - int(found[f"_c{number}"][0]) for number, part in enumerate(promised)}
    return [
        f"tables.{table.name}.columns.{name}: {gap:,} of {whole:,} rows have no {table.columns[name].type.name} there"
        + " that is declared" * (table.columns[name].values is not None or table.columns[name].collected is not None)
        for name, gap in missing.items()
        if gap
    ]
