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
from dpsql.relation.relation import Distinct
from dpsql.relation.write import relation_sql
from dpsql.relation.write_tests import test_sql
from dpsql.schema.types import Integer

if TYPE_CHECKING:
    from dpsql.engine_sql.tree import Query, Source
    from dpsql.expressions.properties import Properties
    from dpsql.expressions.tree import Expression, Known
    from dpsql.relation.relation import Relation


NUMBER = "number"


def domain_sql(domain: Domain | ListedKeys, key_names: list[str]) -> Query:
    """SELECT DISTINCT keys FROM source CROSS JOIN source ... WHERE conditions."""
    if isinstance(domain, ListedKeys):
        return listed_keys_sql(domain.relation, domain.keys, key_names)
    known: Known = {source_name(number): properties for number, properties in enumerate(domain.sources)}
    keys = tuple(Named(emit(key, known), name) for key, name in zip(domain.keys, key_names, strict=True))
    sources: list[Source] = [Derived(_values(properties, name), name) for name, properties in known.items()]
    conditions = [emit(condition, known) for condition in domain.conditions]
    conditions += [test_sql(test, Knowledge(known, known, known), relation_sql) for test in domain.tests]
    source = reduce(lambda left, right: Joined("CROSS", left, right), sources) if sources else None
    return Select(keys, source, all_of(conditions) if conditions else None, distinct=True)


def listed_keys_sql(relation: Relation, keys: tuple[Expression, ...], key_names: list[str]) -> Query:
    known = knowledge_of(relation).properties
    values = [Named(emit_value(key, known), name) for key, name in zip(keys, key_names, strict=True)]
    listed = select(values, relation_sql(relation, names_read(*keys)))
    columns = {value.value.name for value in values if isinstance(value.value, Field)}
    is_listed_once = isinstance(relation, Distinct) and len(columns) == len(values) and columns == known.keys()
    return replace(listed, distinct=not is_listed_once)


def _values(properties: Properties, name: str) -> Query:
    """One column with every value that the source can have, NULL among them if it can be NULL."""
    if properties.values is not None:
        values = (*properties.values, *([None] if properties.nullable else []))
        return Values((name,), (properties.type,), tuple((value,) for value in values))
    missing = Select((Named(Constant(None, properties.type), name),))
    return (
        SetOperation("UNION ALL", _range(properties, name), missing)
        if properties.nullable
        else _range(properties, name)
    )


def _range(properties: Properties, name: str) -> Query:
    count = (properties.size or 0) - properties.nullable
    number = Field(NUMBER, kind=Integer())
    if isinstance(properties.low, date):
        value = apply(
            "date + days", Constant(properties.low, properties.type), cast(number, Short(32)), kind=properties.type
        )
    else:
        assert properties.low is not None
        value = apply("+", number, integer(int(properties.low)))
    return select([Named(cast(value, properties.type), name)], Series(count, NUMBER))
