"""A relation as engine SQL: one SELECT whose first column, _unit, says whose each row is.

The scan makes the declared facts true: numbers and dates are clamped to their bounds, a text that is not among the
declared values is NULL, as are NaN and infinity. Rows whose unit is NULL belong to nobody that could be protected and
are left out.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.expressions.emit import emit
from dpsql.expressions.tree import columns_of
from dpsql.expressions.write import clamp, column, finite, literal, try_cast, when
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


def relation_sql(relation: Relation, needed: Iterable[str]) -> exp.Select:
    """The relation's `needed` columns, and _unit."""
    names = sorted(set(needed))
    match relation:
        case Scan():
            return _scan(relation, names)
        case Filter(source, condition):
            known = knowledge_of(source).always
            below = relation_sql(source, {*names, *(used.name for used in columns_of(condition))})
            return select([column(UNIT), *map(column, names)], below).where(emit(condition, known), copy=False)
        case Project(source, columns):
            known = knowledge_of(source).always
            kept = [(name, expression) for name, expression in columns if name in names]
            below = relation_sql(source, {used.name for _, expression in kept for used in columns_of(expression)})
            return select([column(UNIT), *(named(emit(expression, known), name) for name, expression in kept)], below)


def select(columns: list[exp.Expr], below: exp.Query) -> exp.Select:
    """SELECT columns FROM (below)."""
    source = exp.Subquery(this=below, alias=exp.TableAlias(this=exp.to_identifier("below", quoted=True)))
    return exp.Select(expressions=columns, from_=exp.From(this=source))


def named(sql: exp.Expr, name: str) -> exp.Expr:
    return exp.Alias(this=sql, alias=exp.to_identifier(name, quoted=True))


def _scan(scan: Scan, names: list[str]) -> exp.Select:
    found = {found.name: found for found in scan.columns}
    unit = column(scan.unit.column, _hop(len(scan.unit.path)))
    chosen = [named(_declared(column(found[name].declared, _hop(0)), found[name].facts), name) for name in names]
    query = exp.Select(expressions=[named(unit, UNIT), *chosen], from_=exp.From(this=_table(scan.table, 0)))
    for number, hop in enumerate(scan.unit.path):
        meets = exp.EQ(this=column(hop.column, _hop(number)), expression=column(hop.to_column, _hop(number + 1)))
        query.append("joins", exp.Join(this=_table(hop.to_table, number + 1), on=meets))
    return query.where(exp.Not(this=exp.Is(this=unit.copy(), expression=exp.Null())), copy=False)


def _hop(number: int) -> str:
    return f"hop_{number}"


def _table(name: str, number: int) -> exp.Table:
    alias = exp.TableAlias(this=exp.to_identifier(_hop(number), quoted=True))
    return exp.Table(this=exp.to_identifier(name, quoted=True), alias=alias)


def _declared(raw: exp.Expr, facts: Facts) -> exp.Expr:
    """The column as the schema declares it, whatever the row holds."""
    typed = try_cast(raw, facts.type)
    if facts.values is not None:
        if isinstance(facts.type, Boolean) and len(facts.values) == 2:
            return typed
        return when(
            exp.In(this=typed.copy(), expressions=[literal(value, facts.type) for value in facts.values]), typed
        )
    if isinstance(facts.type, Date | Timestamp) and facts.low is None:
        low, high = (FIRST_DAY, LAST_DAY) if isinstance(facts.type, Date) else (FIRST_MOMENT, LAST_MOMENT)
        inside = exp.Between(this=typed.copy(), low=literal(low, facts.type), high=literal(high, facts.type))
        return when(inside, typed)
    if isinstance(facts.type, Double):
        typed = finite(typed)
    if facts.low is None or facts.high is None:
        return typed
    return clamp(typed, literal(facts.low, facts.type), literal(facts.high, facts.type))
