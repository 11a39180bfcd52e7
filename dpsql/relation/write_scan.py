"""A declared table as engine SQL, with its declared properties made true.

Numbers and dates are clamped to their bounds, a text that is not among the declared values is NULL, as are NaN and
infinity, and a text so long that one row could make a question slow. Rows whose unit is NULL belong to nobody that
could be protected and are left out.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import UNIT, all_of, apply, clamp, finite, finite_clamp, integer, one_zero, test, when
from dpsql.engine_sql.tree import Blank, Constant, Derived, Field, Fold, Joined, Named, Select, Stored, Table
from dpsql.errors import Unsupported
from dpsql.expressions.tree import Unseen
from dpsql.schema.types import Boolean, Date, Double, Text, Timestamp

if TYPE_CHECKING:
    from dpsql.engine_sql.tree import Source, Term
    from dpsql.expressions.properties import Properties
    from dpsql.relation.relation import Scan, ScanColumn, StoredTest, Unit
    from dpsql.schema.types import ColumnType

KEY = "_key"
ROWS = "_rows"
OWNERS = "_owners"
LONGEST_TEXT = 1 << 16
"""Bytes. What functions make of a text grows with it, in time and memory, so a longer one is no value."""
# Years that Python can show; beyond them there is only "infinity", which is no date.
FIRST_DAY, LAST_DAY = date(1, 1, 1), date(9999, 12, 31)
FIRST_MOMENT, LAST_MOMENT = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59)


def scan_sql(scan: Scan, names: list[str]) -> Select:
    found = {found.name: found for found in scan.columns}
    for name in names:
        if found[name].collected is not None:
            raise _never_seen(found[name])
    chosen = tuple(Named(_column(found[name]), name) for name in names)
    where = [condition for name in names if (condition := _counts(found[name])) is not None]
    where += map(_stored_test, scan.tests)
    if scan.unit is None:
        return Select(chosen, Table(scan.table, ROWS), all_of(where) if where else None)
    source, unit = _with_unit(scan.table, scan.unit)
    return Select((Named(unit, UNIT), *chosen), source, all_of([test("is not null", unit), *where]))


def _column(column: ScanColumn) -> Term:
    if column.as_stored is None:
        return _declared(column.declared, column.properties)
    return _spelled(Stored(column.declared, ROWS, column.properties.type))


def _counts(column: ScanColumn) -> Term | None:
    """Which rows are in a group that is shown, of a key that is read as it is stored; long texts are in none."""
    match column.as_stored:
        case "looked up later":
            return _is_short(column.declared)
        case "others left out":
            return _is_one_of(_column(column), column.properties)
    return None


def _stored_test(compared: StoredTest) -> Term:
    stored = Stored(compared.declared, ROWS, compared.type)
    if isinstance(compared.constant, Unseen):
        return test(compared.operator, stored, Blank(compared.constant.name, compared.type))
    return test(compared.operator, stored, Constant(compared.constant, compared.type))


def _never_seen(answers: ScanColumn) -> Unsupported:
    return Unsupported(
        f'"{answers.declared}" holds randomised reports, which tell of many people together and of no row by itself',
        hint=f"count, group by {answers.declared}, or compare it with values, in the SELECT that aggregates the table",
    )


def _with_unit(table: str, unit: Unit) -> tuple[Source, Term]:
    """FROM a table, and the expression that gives each row's unit: its own column, or that of the row it refers to."""
    rows = Table(table, ROWS)
    if not unit.path:
        return rows, _typed(unit.column, unit.type, only_compared=True)
    hop = unit.path[0]
    meets = test("=", _typed(hop.column, hop.type), Field(KEY, OWNERS))
    return Joined("INNER", rows, Derived(owners_sql(unit), OWNERS), meets), Field(UNIT, OWNERS)


def owners_sql(unit: Unit) -> Select:
    """The unit of every key that a foreign key may refer to. A key that several units share belongs to the least."""
    hop, *rest = unit.path
    source, owner = _with_unit(hop.to_table, replace(unit, path=tuple(rest)))
    key = _typed(hop.to_column, hop.type)
    known = test("is not null", owner)
    if hop.unique:
        return Select((Named(key, KEY), Named(owner, UNIT)), source, known)
    return Select((Named(key, KEY), Named(Fold("min", (owner,)), UNIT)), source, known, (key,))


def _typed(column: str, kind: ColumnType, *, only_compared: bool = False) -> Term:
    """The column as its declared type, NULL where it does not fit.

    A collation of the column would make one group of several spellings, shown as one person's: texts are equal if they
    are spelled alike.
    """
    typed = Stored(column, ROWS, kind, only_compared)
    if not isinstance(kind, Text):
        return typed
    return _spelled(when(_is_short(column), typed))


def _is_short(column: str) -> Term:
    return test("<=", apply("bytes", Stored(column, ROWS, Text())), integer(LONGEST_TEXT))


def _spelled(value: Term) -> Term:
    return apply("by code points", value, kind=Text()) if isinstance(value.kind, Text) else value


def _declared(column: str, properties: Properties) -> Term:
    """The column as the schema declares it, whatever the row holds."""
    if properties.values is not None:
        value = _spelled(Stored(column, ROWS, properties.type))
        return value if _is_any(properties) else when(_is_one_of(value, properties), value)
    typed = _typed(column, properties.type)
    if isinstance(properties.type, Date | Timestamp) and properties.low is None:
        ends = (FIRST_DAY, LAST_DAY) if isinstance(properties.type, Date) else (FIRST_MOMENT, LAST_MOMENT)
        return when(test("between", typed, *(Constant(end, properties.type) for end in ends)), typed)
    if isinstance(properties.type, Double):
        typed = one_zero(typed)
    if properties.low is None or properties.high is None:
        return finite(typed) if isinstance(properties.type, Double) else typed
    least, most = Constant(properties.low, properties.type), Constant(properties.high, properties.type)
    if isinstance(properties.type, Date | Timestamp):
        # DuckDB looks ahead with the extremes of a column, and some date functions fail on those of a stray date; these
        # two hide them.
        capped = apply("least", typed, most, kind=properties.type)
        return when(test("is not null", typed), apply("greatest", capped, least, kind=properties.type))
    return (finite_clamp if isinstance(properties.type, Double) else clamp)(typed, least, most)


def _is_any(properties: Properties) -> bool:
    return isinstance(properties.type, Boolean) and len(properties.values or ()) == 2


def _is_one_of(value: Term, properties: Properties) -> Term:
    return test("in", value, *(Constant(possible, properties.type) for possible in properties.values or ()))
