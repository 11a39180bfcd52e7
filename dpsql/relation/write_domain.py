"""The public groups as engine SQL: the keys over all combinations of the sources' values, made by the engine itself."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from dpsql.expressions.emit import emit, emit_value
from dpsql.expressions.tree import names_read
from dpsql.expressions.write import Sql, binary, call, cast, column, integer, listed, literal, named
from dpsql.relation.domain import Domain, ListedKeys, source_name
from dpsql.relation.knowledge import Knowledge, knowledge_of
from dpsql.relation.write import relation_sql, test_sql

if TYPE_CHECKING:
    from dpsql.expressions.facts import Facts
    from dpsql.expressions.tree import Expression, Known
    from dpsql.relation.relation import Relation


def domain_sql(domain: Domain | ListedKeys, key_names: list[str]) -> Sql:
    """SELECT DISTINCT keys FROM source CROSS JOIN source ... WHERE conditions."""
    if isinstance(domain, ListedKeys):
        return listed_keys_sql(domain.relation, domain.keys, key_names)
    known: Known = {source_name(number): facts for number, facts in enumerate(domain.sources)}
    keys = listed([named(emit(key, known), name) for key, name in zip(domain.keys, key_names, strict=True)])
    sources = [f"({_values(facts, name)}) AS {column(name)}" for name, facts in known.items()]
    conditions = [emit(condition, known) for condition in domain.conditions]
    conditions += [test_sql(test, Knowledge(known, known, known)) for test in domain.tests]
    query = f"SELECT DISTINCT {keys}"
    if sources:
        query += f" FROM {' CROSS JOIN '.join(sources)}"
    if conditions:
        query += f" WHERE {' AND '.join(conditions)}"
    return Sql(query)


def listed_keys_sql(relation: Relation, keys: tuple[Expression, ...], key_names: list[str]) -> Sql:
    known = knowledge_of(relation).always
    values = [named(emit_value(key, known), name) for key, name in zip(keys, key_names, strict=True)]
    below = relation_sql(relation, names_read(*keys))
    return Sql(f"SELECT DISTINCT {listed(values)} FROM ({below}) AS _below")


def _values(facts: Facts, name: str) -> Sql:
    """One column with every value that the source can have, NULL among them if it can be NULL."""
    query = _range(facts, name) if facts.values is None else _list(facts, name)
    return Sql(f"{query} UNION ALL SELECT {literal(None, facts.type)}") if facts.nullable else query


def _list(facts: Facts, name: str) -> Sql:
    values = [f"({literal(value, facts.type)})" for value in facts.values or ()]
    if not values:
        return Sql(f"SELECT {named(literal(None, facts.type), name)} WHERE false")
    return Sql(f"SELECT {column(name)} FROM (VALUES {', '.join(values)}) AS listed({column(name)})")


def _range(facts: Facts, name: str) -> Sql:
    count = (facts.size or 0) - facts.nullable
    number = column("number", "numbers")
    if isinstance(facts.low, date):
        value = binary(literal(facts.low, facts.type), "+", Sql(f"CAST({number} AS INTEGER)"))
    else:
        assert facts.low is not None
        value = binary(number, "+", integer(int(facts.low)))
    numbers = f"{call('range', integer(0), integer(count))} AS numbers(number)"
    return Sql(f"SELECT {named(cast(value, facts.type), name)} FROM {numbers}")
