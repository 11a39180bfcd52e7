"""The public groups as engine SQL: the keys over all combinations of the sources' values, made by the engine itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from functools import reduce
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import all_of, apply, cast, integer, select
from dpsql.engine_sql.tree import Constant, Derived, Field, Joined, Named, Select, Series, SetOperation, Short, Values
from dpsql.expressions.emit import emit, emit_value
from dpsql.expressions.tree import names_read
from dpsql.relation.domain import Domain, ListedKeys, source_name
from dpsql.relation.knowledge import Knowledge, knowledge_of
from dpsql.relation.write import relation_sql
from dpsql.relation.write_tests import test_sql
from dpsql.schema.types import Integer

if TYPE_CHECKING:
    from dpsql.engine_sql.tree import Query, Source
    from dpsql.expressions.facts import Facts
    from dpsql.expressions.tree import Expression, Known
    from dpsql.relation.relation import Relation


NUMBER = "number"


def domain_sql(domain: Domain | ListedKeys, key_names: list[str]) -> Query:
    """SELECT DISTINCT keys FROM source CROSS JOIN source ... WHERE conditions."""
    if isinstance(domain, ListedKeys):
        return listed_keys_sql(domain.relation, domain.keys, key_names)
    known: Known = {source_name(number): facts for number, facts in enumerate(domain.sources)}
    keys = tuple(Named(emit(key, known), name) for key, name in zip(domain.keys, key_names, strict=True))
    sources: list[Source] = [Derived(_values(facts, name), name) for name, facts in known.items()]
    conditions = [emit(condition, known) for condition in domain.conditions]
    conditions += [test_sql(test, Knowledge(known, known, known), relation_sql) for test in domain.tests]
    source = reduce(lambda left, right: Joined("CROSS", left, right), sources) if sources else None
    return Select(keys, source, all_of(conditions) if conditions else None, distinct=True)


def listed_keys_sql(relation: Relation, keys: tuple[Expression, ...], key_names: list[str]) -> Query:
    known = knowledge_of(relation).always
    values = [Named(emit_value(key, known), name) for key, name in zip(keys, key_names, strict=True)]
    return replace(select(values, relation_sql(relation, names_read(*keys))), distinct=True)


def _values(facts: Facts, name: str) -> Query:
    """One column with every value that the source can have, NULL among them if it can be NULL."""
    if facts.values is not None:
        values = (*facts.values, *([None] if facts.nullable else []))
        return Values((name,), (facts.type,), tuple((value,) for value in values))
    missing = Select((Named(Constant(None, facts.type), name),))
    return SetOperation("UNION ALL", _range(facts, name), missing) if facts.nullable else _range(facts, name)


def _range(facts: Facts, name: str) -> Query:
    count = (facts.size or 0) - facts.nullable
    number = Field(NUMBER, kind=Integer())
    if isinstance(facts.low, date):
        value = apply("date + days", Constant(facts.low, facts.type), cast(number, Short(32)), kind=facts.type)
    else:
        assert facts.low is not None
        value = apply("+", number, integer(int(facts.low)))
    return select([Named(cast(value, facts.type), name)], Series(count, NUMBER))
