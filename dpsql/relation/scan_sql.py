"""A declared table as engine SQL, with its declared properties enforced.

Numbers and dates are clamped to their bounds. A text outside the declared values, NaN, infinity, and texts so long that
one row could slow a query down become NULL. Rows without a unit are left out: nobody could be protected.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, datetime
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import UNIT, all_of, apply, clamp, finite, finite_clamp, integer, one_zero, test, when
from dpsql.engine_sql.tree import Alias, Constant, Field, Joined, Select, Stored, Subquery, Table
from dpsql.errors import Unsupported
from dpsql.expressions.narrow import MIRRORED, conjuncts
from dpsql.expressions.properties import midnight
from dpsql.expressions.tree import Call, Column, Literal, names_read
from dpsql.relation.facts import facts_of
from dpsql.relation.relation import Filter, Join, Project, Relation, Scan, SemiJoin, StoredTest, Unit
from dpsql.relation.units import is_tracked, scans_of
from dpsql.schema.types import Boolean, Date, Decimal, Double, Integer, Text, Timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dpsql.engine_sql.tree import Query, Source, Term
    from dpsql.expressions.properties import Limit, Properties
    from dpsql.expressions.tree import Expression
    from dpsql.relation.relation import AsStored, ScanColumn
    from dpsql.schema.types import ColumnType

# -- as stored ---------------------------------------------------------------------------------------------------------
# Columns that are read as they are stored, since what is declared of them is made true above the scan anyway.
#
#     SELECT region, COUNT(*) ... GROUP BY region      joined to north, south, east, west: another region is no group
#     SELECT SUM(amount) ...                           every value that is summed is clamped where it is summed
#
# A look-up in a list of fifty takes longer than to count a row, a second clamp as long as to sum it. Nothing else may
# read the column: for all others a text that is not declared is NULL, and a number within its bounds. Where a unit's
# groups are ranked, rows with other texts are left out before that, else these would take the places of groups.


def listed_keys(relation: Relation, keys: tuple[Expression, ...], reading: Iterable[Expression]) -> list[str]:
    """The text keys with declared values that neither `reading` nor another key reads.

    The key must not be nullable: a NULL group would also collect the rows with undeclared texts.
    """
    listed = facts_of(relation).declared
    return [
        key.name
        for key in keys
        if isinstance(key, Column)
        and isinstance(key.type, Text)
        and listed[key.name].values is not None
        and not listed[key.name].nullable
        and key.name not in names_read(*reading, *(other for other in keys if other != key))
    ]


def as_stored(relation: Relation, names: Iterable[str], how: AsStored) -> Relation:
    """The relation, with these columns read as stored unless a step in between reads them."""
    return reduce(lambda found, name: _as_it_is(found, name, how) or found, names, relation)


def _as_it_is(relation: Relation, name: str, how: AsStored) -> Relation | None:
    """None if a step in between reads the column, or computes it."""
    match relation:
        case Scan(columns=columns):
            found = tuple(replace(part, as_stored=how) if part.name == name else part for part in columns)
            return replace(relation, columns=found)
        case Filter(condition=condition) | SemiJoin(condition=condition) if name not in names_read(condition):
            below = _as_it_is(relation.source, name, how)
            return None if below is None else replace(relation, source=below)
        case Join(condition=condition) if name not in names_read(condition):
            if name in facts_of(relation.left).any_row:
                left = _as_it_is(relation.left, name, how)
                return None if left is None else replace(relation, left=left)
            right = _as_it_is(relation.right, name, how)
            return None if right is None else replace(relation, right=right)
    return None


# -- write scan --------------------------------------------------------------------------------------------------------

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
    chosen = tuple(Alias(_column(found[name]), name) for name in names)
    where = [condition for name in names if (condition := _counts(found[name])) is not None]
    where += map(_stored_test_sql, scan.tests)
    if scan.unit is None:
        return Select(chosen, Table(scan.table, ROWS), all_of(where) if where else None)
    source, unit = _with_unit(scan.table, scan.unit)
    return Select((Alias(unit, UNIT), *chosen), source, all_of([test("is not null", unit), *where]))


def _column(column: ScanColumn) -> Term:
    if column.as_stored is None:
        return _declared(column.declared, column.properties)
    return _spelled(Stored(column.declared, ROWS, column.properties.type))


def _counts(column: ScanColumn) -> Term | None:
    """The rows that are in a listed group, for a key that is read as stored; long texts are in no group."""
    match column.as_stored:
        case "looked up later":
            return _is_short(column.declared)
        case "others left out":
            return _is_one_of(_column(column), column.properties)
    return None


def _stored_test_sql(compared: StoredTest) -> Term:
    stored = Stored(compared.declared, ROWS, compared.type)
    return test(compared.operator, stored, Constant(compared.constant, compared.type))


def _never_seen(answers: ScanColumn) -> Unsupported:
    return Unsupported(
        f'"{answers.declared}" holds randomised reports, which say nothing about a single row',
        hint=f"count, group by {answers.declared}, or compare it with constants, in the SELECT that aggregates the "
        "table",
    )


def _with_unit(table: str, unit: Unit) -> tuple[Source, Term]:
    """The FROM clause of a table, and each row's unit: its own column, or that of the row it refers to."""
    rows = Table(table, ROWS)
    if not unit.path:
        return rows, _typed(unit.column, unit.type, only_compared=True)
    hop = unit.path[0]
    meets = test("=", _typed(hop.column, hop.type), Field(KEY, OWNERS))
    return Joined("INNER", rows, Subquery(owners_sql(unit), OWNERS), meets), Field(UNIT, OWNERS)


def owners_sql(unit: Unit) -> Select:
    """The unit of every key that a foreign key may refer to, as a query."""
    hop, *rest = unit.path
    source, owner = _with_unit(hop.to_table, replace(unit, path=tuple(rest)))
    key = _typed(hop.to_column, hop.type)
    return Select((Alias(key, KEY), Alias(owner, UNIT)), source, test("is not null", owner))


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
    """The column with its declared properties enforced, whatever the row holds."""
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


# -- links -------------------------------------------------------------------------------------------------------------
# Privacy units over a foreign key, looked up for keys and not for rows: there are fewer keys.
#
#     lines, whose order_id refers to orders.id; the unit of an order is its customer_id
#
#     as it is   _unit is customer_id, by a join of every line to its order
#     linked     the rows, lines alone, whose _unit is order_id
#                the owners: _key, an order's id, and _unit, its customer_id
#
# So rows have a stand-in for their unit, by which units cannot be compared: only a relation whose every row is made of
# one row of people, beside public ones, can be linked. A row whose key leads nowhere is among the rows and has no
# owner: whoever looks the owners up has to leave it out.


@dataclass(frozen=True)
class Linked:
    """Rows that carry a foreign key in place of their unit, and the query that maps keys to units."""

    rows: Relation
    """The rows, whose _unit is the foreign key."""
    owners: Query
    """_key and _unit, for every key that has one."""


def linked(relation: Relation) -> Linked | None:
    """The rows by foreign key, and the owners of keys. None if the unit is in the row itself, if private rows are
    joined, or if a view maps keys to units, because it need not read the same twice.
    """
    rows = with_key(relation)
    if rows is None or any(scan.is_view for scan in scans_of(relation)):
        return None
    (unit,) = (scan.unit for scan in scans_of(relation) if scan.unit is not None)
    return Linked(rows, owners_sql(unit))


def with_key(relation: Relation) -> Relation | None:
    """The same relation, with the foreign key in place of the unit."""
    match relation:
        case Scan(unit=Unit(path=(hop, *_))):
            return replace(relation, unit=Unit((), relation.table, hop.column, hop.type))
        case Filter(source) | Project(source):
            below = with_key(source)
            return None if below is None else replace(relation, source=below)
        case SemiJoin(source, other) if not is_tracked(other):
            below = with_key(source)
            return None if below is None else replace(relation, source=below)
        case Join(left, right, "INNER" | "LEFT") if not is_tracked(right):
            below = with_key(left)
            return None if below is None else replace(relation, left=below)
        case Join(left, right, "INNER" | "RIGHT") if not is_tracked(left):
            below = with_key(right)
            return None if below is None else replace(relation, right=below)
    return None


# -- stored tests ------------------------------------------------------------------------------------------------------
# Comparisons with a constant that the scan makes on what is stored, since the column's clamp does not change them.
#
#     WHERE day >= '2024-03-01'        day is clamped to the year 2024
#
# A clamp keeps the order, and moves no value past a constant within its bounds: what is later than March before it is
# so after it, and NULL stays NULL. So an engine compares the column itself, skips blocks by its own statistics, and
# clamps the rows that are kept. Doubles are compared as they are clamped: there NaN and the infinities are no values.

MOMENTS, EXACT = (Date, Timestamp), (Integer, Decimal)


def with_stored_tests(relation: Relation, condition: Expression) -> tuple[Relation, list[Expression]]:
    """The relation whose scans evaluate what they can of the condition, and the remaining parts."""
    left = []
    for part in conjuncts(condition):
        tested = _tested(relation, *found) if (found := _comparison(part)) is not None else None
        if tested is None:
            left.append(part)
        else:
            relation = tested
    return relation, left


def _comparison(part: Expression) -> tuple[str, str, Literal] | None:
    """The comparison as column, operator, constant; None if it has another form."""
    match part:
        case Call(function, (Column(name, _), Literal() as literal), _) if function.name in MIRRORED:
            return name, function.name, literal
        case Call(function, (Literal() as literal, Column(name, _)), _) if function.name in MIRRORED:
            return name, MIRRORED[function.name], literal
    return None


def _tested(relation: Relation, name: str, operator: str, literal: Literal) -> Relation | None:
    """The comparison as a test on a stored column; None if it is not one."""
    match relation:
        case Scan(columns=columns):
            column = next(found for found in columns if found.name == name)
            test = _stored_test(column, operator, literal)
            return None if test is None else replace(relation, tests=(*relation.tests, test))
        case Filter() | SemiJoin():
            below = _tested(relation.source, name, operator, literal)
            return None if below is None else replace(relation, source=below)
        case Join(kind="INNER"):
            if name in facts_of(relation.left).any_row:
                left = _tested(relation.left, name, operator, literal)
                return None if left is None else replace(relation, left=left)
            right = _tested(relation.right, name, operator, literal)
            return None if right is None else replace(relation, right=right)
    return None


def _stored_test(column: ScanColumn, operator: str, literal: Literal) -> StoredTest | None:
    declared, low, high = column.properties, column.properties.low, column.properties.high
    if declared.values is not None or low is None or high is None or column.collected is not None:
        return None
    compared = _as_type(declared.type, operator, literal)
    if compared is None:
        return None
    operator, constant = compared
    above_low = constant > low if operator in ("<", ">=", "=") else constant >= low  # type: ignore[operator]
    below_high = constant < high if operator in ("<=", ">", "=") else constant <= high  # type: ignore[operator]
    return StoredTest(column.declared, operator, constant, declared.type) if above_low and below_high else None


def _as_type(kind: ColumnType, operator: str, literal: Literal) -> tuple[str, Limit] | None:
    """The same comparison with a constant of the column's type, if there is one."""
    value = literal.value
    if isinstance(kind, EXACT) and isinstance(literal.type, EXACT) and isinstance(value, int | Fraction):
        if isinstance(kind, Integer):
            return (operator, int(value)) if value == int(value) else None
        return (operator, value) if (Fraction(value) * 10**kind.scale).denominator == 1 else None
    if not (isinstance(kind, MOMENTS) and isinstance(literal.type, MOMENTS)) or value is None:
        return None
    return _day(operator, midnight(value)) if isinstance(kind, Date) else (operator, midnight(value))


def _day(operator: str, moment: datetime) -> tuple[str, Limit] | None:
    """A date compared with a timestamp is its midnight: dates before noon of a day are those up to that day."""
    day = moment.date()
    if moment == midnight(day):
        return operator, day
    return {"<": ("<=", day), "<=": ("<=", day), ">": (">", day), ">=": (">", day)}.get(operator)
