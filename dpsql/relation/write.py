"""A relation as engine SQL: one SELECT whose first column, _unit, says whose each row is.

The scan makes the declared facts true: numbers and dates are clamped to their bounds, a text that is not among the
declared values is NULL, as are NaN and infinity. Rows whose unit is NULL belong to nobody that could be protected and
are left out.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING

from dpsql.expressions.emit import emit
from dpsql.expressions.tree import columns_of
from dpsql.expressions.write import Sql, binary, clamp, column, finite, listed, literal, named, try_cast, when
from dpsql.relation.knowledge import knowledge_of
from dpsql.relation.relation import Filter, Project, Relation, Scan
from dpsql.schema.types import Boolean, Date, Double, Timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dpsql.expressions.facts import Facts

UNIT = "_unit"
# Years that Python can show; beyond them there is only "infinity", which is no date.
FIRST_DAY, LAST_DAY = date(1, 1, 1), date(9999, 12, 31)
FIRST_MOMENT, LAST_MOMENT = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59)


def relation_sql(relation: Relation, needed: Iterable[str]) -> Sql:
    """The relation's `needed` columns, and _unit."""
    names = sorted(set(needed))
    match relation:
        case Scan():
            return _scan(relation, names)
        case Filter(source, condition):
            known = knowledge_of(source).always
            below = relation_sql(source, {*names, *(used.name for used in columns_of(condition))})
            return Sql(f"{select([column(UNIT), *map(column, names)], below)} WHERE {emit(condition, known)}")
        case Project(source, columns):
            known = knowledge_of(source).always
            kept = [(name, expression) for name, expression in columns if name in names]
            below = relation_sql(source, {used.name for _, expression in kept for used in columns_of(expression)})
            return select([column(UNIT), *(named(emit(expression, known), name) for name, expression in kept)], below)


def select(columns: list[Sql], below: Sql) -> Sql:
    return Sql(f"SELECT {listed(columns)} FROM ({below}) AS below")


def _scan(scan: Scan, names: list[str]) -> Sql:
    found = {found.name: found for found in scan.columns}
    unit = column(scan.unit.column, _hop(len(scan.unit.path)))
    chosen = [named(_declared(column(found[name].declared, _hop(0)), found[name].facts), name) for name in names]
    source = named(column(scan.table), _hop(0))
    for number, hop in enumerate(scan.unit.path):
        meets = binary(column(hop.column, _hop(number)), "=", column(hop.to_column, _hop(number + 1)))
        source = Sql(f"{source} JOIN {named(column(hop.to_table), _hop(number + 1))} ON {meets}")
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
