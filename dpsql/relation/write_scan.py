"""A declared table as engine SQL, with its declared facts made true.

Numbers and dates are clamped to their bounds, a text that is not among the declared values is NULL, as are NaN and
infinity. Rows whose unit is NULL belong to nobody that could be protected and are left out.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING

from dpsql.expressions.write import Sql, binary, clamp, column, finite, listed, literal, named, try_cast, when
from dpsql.schema.types import Boolean, Date, Double, Timestamp

if TYPE_CHECKING:
    from dpsql.expressions.facts import Facts
    from dpsql.relation.relation import Scan

UNIT = "_unit"
# Years that Python can show; beyond them there is only "infinity", which is no date.
FIRST_DAY, LAST_DAY = date(1, 1, 1), date(9999, 12, 31)
FIRST_MOMENT, LAST_MOMENT = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59)


def scan_sql(scan: Scan, names: list[str]) -> Sql:
    found = {found.name: found for found in scan.columns}
    chosen = [named(_declared(column(found[name].declared, _hop(0)), found[name].facts), name) for name in names]
    source = named(column(scan.table), _hop(0))
    if scan.unit is None:
        return Sql(f"SELECT {listed(chosen) or '1'} FROM {source}")
    for number, hop in enumerate(scan.unit.path):
        meets = binary(column(hop.column, _hop(number)), "=", column(hop.to_column, _hop(number + 1)))
        source = Sql(f"{source} JOIN {named(column(hop.to_table), _hop(number + 1))} ON {meets}")
    unit = column(scan.unit.column, _hop(len(scan.unit.path)))
    return Sql(f"SELECT {listed([named(unit, UNIT), *chosen])} FROM {source} WHERE {unit} IS NOT NULL")


def _hop(number: int) -> str:
    return f"hop_{number}"


def _declared(raw: Sql, facts: Facts) -> Sql:
    """The column as the schema declares it, whatever the row holds."""
    typed = try_cast(raw, facts.type)
    if facts.values is not None:
        if isinstance(facts.type, Boolean) and len(facts.values) == 2:
            return typed
        values = listed([literal(value, facts.type) for value in facts.values])
        return when(binary(typed, "IN", Sql(f"({values})")), typed)
    if isinstance(facts.type, Date | Timestamp) and facts.low is None:
        low, high = (FIRST_DAY, LAST_DAY) if isinstance(facts.type, Date) else (FIRST_MOMENT, LAST_MOMENT)
        return when(Sql(f"{typed} BETWEEN {literal(low, facts.type)} AND {literal(high, facts.type)}"), typed)
    if isinstance(facts.type, Double):
        typed = finite(typed)
    if facts.low is None or facts.high is None:
        return typed
    return clamp(typed, literal(facts.low, facts.type), literal(facts.high, facts.type))
