"""The public groups as engine SQL: the keys over all combinations of the sources' values, made by the engine itself."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.expressions.emit import emit
from dpsql.expressions.write import cast, column, integer, literal
from dpsql.relation.domain import Domain, source_name
from dpsql.relation.write import named
from dpsql.schema.types import Date

if TYPE_CHECKING:
    from dpsql.expressions.facts import Facts
    from dpsql.expressions.tree import Known


def domain_sql(domain: Domain, key_names: list[str]) -> exp.Select:
    """SELECT DISTINCT keys FROM source CROSS JOIN source ... WHERE conditions."""
    known: Known = {source_name(number): facts for number, facts in enumerate(domain.sources)}
    keys = [named(emit(key, known), name) for key, name in zip(domain.keys, key_names, strict=True)]
    query = exp.Select(expressions=keys, distinct=exp.Distinct())
    for number, facts in enumerate(domain.sources):
        source = exp.Subquery(
            this=_values(facts, source_name(number)),
            alias=exp.TableAlias(this=exp.to_identifier(f"source_{number}", quoted=True)),
        )
        if number == 0:
            query.set("from_", exp.From(this=source))
        else:
            query.append("joins", exp.Join(this=source, kind="CROSS"))
    for condition in domain.conditions:
        query.where(emit(condition, known), copy=False)
    return query


def _values(facts: Facts, name: str) -> exp.Query:
    """One column with every value that the source can have, NULL among them if it can be NULL."""
    query = _range(facts, name) if facts.values is None else _list(facts, name)
    if not facts.nullable:
        return query
    null = exp.Select(expressions=[named(literal(None, facts.type), name)])
    return exp.Union(this=query, expression=null, distinct=False)


def _list(facts: Facts, name: str) -> exp.Select:
    rows = [exp.Tuple(expressions=[literal(value, facts.type)]) for value in facts.values or ()]
    if not rows:
        empty = exp.Select(expressions=[named(literal(None, facts.type), name)])
        return empty.where(exp.Boolean(this=False), copy=False)
    values = exp.Values(expressions=rows, alias=_column_alias(name))
    return exp.Select(expressions=[column(name)], from_=exp.From(this=values))


def _range(facts: Facts, name: str) -> exp.Select:
    count = (facts.size or 0) - facts.nullable
    first = facts.low
    numbers = exp.Table(
        this=exp.Anonymous(this="range", expressions=[integer(0), integer(count)]), alias=_column_alias("_n")
    )
    if isinstance(first, date):
        value = exp.Add(
            this=literal(first, Date()), expression=exp.Cast(this=column("_n"), to=exp.DataType.build("INT"))
        )
    else:
        assert first is not None
        value = exp.Add(this=column("_n"), expression=integer(int(first)))
    typed = cast(exp.Paren(this=value), facts.type)
    return exp.Select(expressions=[named(typed, name)], from_=exp.From(this=numbers))


def _column_alias(name: str) -> exp.TableAlias:
    return exp.TableAlias(this=exp.to_identifier("listed", quoted=True), columns=[exp.to_identifier(name, quoted=True)])
