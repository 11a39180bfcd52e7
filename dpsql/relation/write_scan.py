"""A declared table as engine SQL, with its declared facts made true.

Numbers and dates are clamped to their bounds, a text that is not among the declared values is NULL, as are NaN and
infinity, and a text so long that one row could make a question slow. Rows whose unit is NULL belong to nobody that
could be protected and are left out.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING

from dpsql.errors import Unsupported
from dpsql.expressions.write import (
    Sql,
    binary,
    call,
    clamp,
    column,
    finite,
    finite_clamp,
    listed,
    literal,
    named,
    try_cast,
    when,
)
from dpsql.schema.types import Boolean, Date, Double, Text, Timestamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.expressions.facts import Facts, Value
    from dpsql.relation.relation import Scan, ScanColumn, Unit, UnitHop
    from dpsql.schema.types import ColumnType

UNIT = "_unit"
KEY = "_key"
ROWS = "_rows"
OWNERS = "_owners"
LONGEST_TEXT = 1 << 16
"""Bytes. What functions make of a text grows with it, in time and memory, so a longer one is no value."""
# Years that Python can show; beyond them there is only "infinity", which is no date.
FIRST_DAY, LAST_DAY = date(1, 1, 1), date(9999, 12, 31)
FIRST_MOMENT, LAST_MOMENT = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59)


def scan_sql(scan: Scan, names: list[str]) -> Sql:
    found = {found.name: found for found in scan.columns}
    for name in names:
        if found[name].collected is not None:
            raise _never_seen(found[name])
    chosen = [named(_declared(column(found[name].declared, ROWS), found[name].facts), name) for name in names]
    if scan.unit is None:
        return Sql(f"SELECT {listed(chosen) or '1'} FROM {named(column(scan.table), ROWS)}")
    source, unit = _with_unit(scan.table, scan.unit.path, scan.unit)
    return Sql(f"SELECT {listed([named(unit, UNIT), *chosen])} FROM {source} WHERE {unit} IS NOT NULL")


def _never_seen(answers: ScanColumn) -> Unsupported:
    return Unsupported(
        f'"{answers.declared}" holds randomised reports, which tell of many people together and of no row by itself',
        hint=f"count, group by {answers.declared}, or compare it with values, in the SELECT that aggregates the table",
    )


def _with_unit(table: str, path: tuple[UnitHop, ...], unit: Unit) -> tuple[Sql, Sql]:
    """FROM a table, and the expression that gives each row's unit: its own column, or that of the row it refers to."""
    rows = named(column(table), ROWS)
    if not path:
        return rows, _typed(column(unit.column, ROWS), unit.type)
    hop, *rest = path
    meets = binary(_typed(column(hop.column, ROWS), hop.type), "=", column(KEY, OWNERS))
    return Sql(f"{rows} JOIN ({_owners(hop, tuple(rest), unit)}) AS {OWNERS} ON {meets}"), column(UNIT, OWNERS)


def _owners(hop: UnitHop, rest: tuple[UnitHop, ...], unit: Unit) -> Sql:
    """The unit of every key that a foreign key may refer to. A key that several units share belongs to the least."""
    source, owner = _with_unit(hop.to_table, rest, unit)
    key = _typed(column(hop.to_column, ROWS), hop.type)
    known = f"FROM {source} WHERE {owner} IS NOT NULL"
    if hop.unique:
        return Sql(f"SELECT {named(key, KEY)}, {named(owner, UNIT)} {known}")
    return Sql(f"SELECT {named(key, KEY)}, {named(call('min', owner), UNIT)} {known} GROUP BY {key}")


def _typed(raw: Sql, kind: ColumnType) -> Sql:
    """The column as its declared type, NULL where it does not fit.

    A collation of the column would make one group of several spellings, shown as one person's: texts are equal if they
    are spelled alike.
    """
    typed = try_cast(raw, kind)
    return _spelled(when(Sql(f"strlen({typed}) <= {LONGEST_TEXT}"), typed)) if isinstance(kind, Text) else typed


def _spelled(text: Sql) -> Sql:
    return Sql(f"({text} COLLATE C)")


def _declared(raw: Sql, facts: Facts) -> Sql:
    """The column as the schema declares it, whatever the row holds."""
    if facts.values is not None:
        return _one_of(raw, facts.type, facts.values)
    typed = _typed(raw, facts.type)
    if isinstance(facts.type, Date | Timestamp) and facts.low is None:
        low, high = (FIRST_DAY, LAST_DAY) if isinstance(facts.type, Date) else (FIRST_MOMENT, LAST_MOMENT)
        return when(Sql(f"{typed} BETWEEN {literal(low, facts.type)} AND {literal(high, facts.type)}"), typed)
    if isinstance(facts.type, Double):
        typed = binary(typed, "+", literal(0, facts.type))  # one spelling of zero
    if facts.low is None or facts.high is None:
        return finite(typed) if isinstance(facts.type, Double) else typed
    least, most = literal(facts.low, facts.type), literal(facts.high, facts.type)
    if isinstance(facts.type, Date | Timestamp):
        # DuckDB looks ahead with the extremes of a column, and some date functions fail on those of a stray date; these
        # two hide them.
        return when(Sql(f"{typed} IS NOT NULL"), call("greatest", call("least", typed, most), least))
    return (finite_clamp if isinstance(facts.type, Double) else clamp)(typed, least, most)


def _one_of(raw: Sql, kind: ColumnType, values: Sequence[Value]) -> Sql:
    typed = try_cast(raw, kind)
    if isinstance(kind, Boolean) and len(values) == 2:
        return typed
    spelled = _spelled(typed) if isinstance(kind, Text) else typed
    return when(binary(spelled, "IN", Sql(f"({listed([literal(value, kind) for value in values])})")), spelled)
