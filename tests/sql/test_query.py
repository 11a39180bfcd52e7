"""What the resolver makes of a query: a node for each subquery, conditions that are conditions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlglot

import dpsql
from dpsql.expressions.tree import AdaptiveConstant
from dpsql.options import QueryRequest
from dpsql.pipeline.parse_sql import parse_sql
from dpsql.pipeline.resolve_names import resolve_names
from dpsql.relation.relation import Filter, Join, Mark, PerUnit, SemiJoin
from dpsql.sql.per_key import free_columns
from dpsql.sql.syntax import DUCKDB

Connect = Callable[[str], dpsql.Connection]


# -- subqueries --------------------------------------------------------------------------------------------------------

SUBQUERIES = {
    "p.pid IN (SELECT person FROM visits)": [SemiJoin],
    "EXISTS (SELECT 1 FROM visits v WHERE v.person = p.pid)": [SemiJoin],
    "age > 3 OR p.pid IN (SELECT person FROM visits)": [Filter, Mark],
    "age > (SELECT COUNT(*) FROM visits v WHERE v.person = p.pid)": [Filter, Join],
    "age > (SELECT COUNT(*) FROM visits v WHERE v.person = pid)": [Filter, Join],
    "age > (SELECT AVG(minutes) FROM visits)": [Filter],
    "age > (SELECT AVG(minutes) FROM visits p WHERE p.person > 3)": [Filter],
}


@pytest.mark.parametrize(("condition", "nodes"), SUBQUERIES.items(), ids=SUBQUERIES)
def test_a_subquery_is_what_it_looks_like(condition: str, nodes: list[type], connected: Connect) -> None:
    public = connected("people").session.environment.public()
    sql = f"SELECT COUNT(*) FROM persons p WHERE {condition}"
    resolved = resolve_names(parse_sql(QueryRequest(sql=sql), public), public)
    relation: Any = resolved.releases[-1].source
    for node in nodes:
        assert type(relation) is node
        above, relation = relation, getattr(relation, "source", None) or relation.left
    if nodes == [Filter]:
        assert isinstance(above.condition.arguments[1], AdaptiveConstant)
    if nodes[-1] is Join:
        assert isinstance(above.right, PerUnit)


def test_a_refusal_leaves_no_release_behind(connected: Connect) -> None:
    """A correlated subquery is known as one before anything in it is asked, so it takes no number of its own."""
    public = connected("people").session.environment.public()
    sql = "SELECT COUNT(*) FROM persons p WHERE age > (SELECT COUNT(*) FROM visits v WHERE v.person = p.pid)"
    resolved = resolve_names(parse_sql(QueryRequest(sql=sql), public), public)
    assert (len(resolved.releases), resolved.adaptive) == (1, ())


FREE = {
    "SELECT 1 FROM visits v WHERE v.person = p.pid": ["p.pid"],
    "SELECT 1 FROM visits WHERE person = pid": ["pid"],
    "SELECT 1 FROM visits WHERE person = minutes": [],
    "SELECT 1 FROM visits p WHERE p.person = p.pid": ["p.pid"],
    "SELECT minutes AS pid FROM visits WHERE pid > 3": [],
    "SELECT 1 FROM (SELECT person AS pid FROM visits) WHERE pid = age": ["age"],
    "SELECT 1 FROM (SELECT * EXCLUDE (place) FROM visits) WHERE place = minutes": ["place"],
    "SELECT 1 FROM visits AS v(a, b) WHERE a = id AND minutes = v.b": ["id"],
    "WITH w AS (SELECT v.* FROM visits v, persons) SELECT 1 FROM w WHERE minutes = age": ["age"],
    "WITH w(age) AS (SELECT pid FROM persons) SELECT age FROM w UNION SELECT city FROM visits": ["city"],
    "SELECT 1 FROM visits v WHERE EXISTS (SELECT 1 FROM places q WHERE q.place = v.place AND seats > age)": ["age"],
    "SELECT unknown FROM UNNEST([1, 2]) t": [],
    "SELECT 1 FROM visits JOIN places ON p.city = kind": ["p.city"],
}


@pytest.mark.parametrize(("query", "columns"), FREE.items(), ids=FREE)
def test_free_columns(query: str, columns: list[str], connected: Connect) -> None:
    tree = sqlglot.parse_one(query, read=DUCKDB)
    found = free_columns(tree, {}, connected("people").session.environment.schema)
    assert [column.sql() for column in found] == columns


# -- conditions --------------------------------------------------------------------------------------------------------

CONDITIONS = {
    "WHERE": "SELECT COUNT(*) FROM visits v WHERE {}",
    "WHERE, one of several": "SELECT COUNT(*) FROM visits v WHERE minutes > 3 AND {}",
    "ON": "SELECT COUNT(*) FROM visits v JOIN places q ON {}",
    "ON of an outer join": "SELECT COUNT(*) FROM visits v LEFT JOIN places q ON {}",
    "ON and the unit": "SELECT COUNT(*) FROM visits v JOIN persons p ON v.person = p.pid AND {}",
    "QUALIFY": "SELECT COUNT(*) FROM (SELECT minutes FROM visits v QUALIFY {})",
    "HAVING within a person": "SELECT COUNT(*) FROM (SELECT person FROM visits v GROUP BY person HAVING MAX({}))",
    "EXISTS": "SELECT COUNT(*) FROM persons p WHERE EXISTS (SELECT 1 FROM visits v WHERE v.person = p.pid AND {})",
    "ON in EXISTS": "SELECT COUNT(*) FROM persons p WHERE EXISTS (SELECT 1 FROM visits v JOIN places q ON {} WHERE "
    "v.person = p.pid)",
    "a value": "SELECT COUNT(*) FROM persons p WHERE 1 < (SELECT COUNT(*) FROM visits v WHERE v.person = p.pid AND {})",
    "IN": "SELECT COUNT(*) FROM persons p WHERE pid IN (SELECT person FROM visits v WHERE {})",
    "ANTI JOIN": "SELECT COUNT(*) FROM persons p ANTI JOIN visits v ON v.person = p.pid AND {}",
    "FILTER": "SELECT COUNT(*) FILTER (WHERE {}) FROM visits v",
    "CASE": "SELECT SUM(CASE WHEN {} THEN 1 END) FROM visits v",
}


@pytest.mark.parametrize("column", ["v.place", "v.minutes", "v.cost", "v.day"])
@pytest.mark.parametrize("sql", CONDITIONS.values(), ids=CONDITIONS)
def test_what_is_no_condition_is_refused(sql: str, column: str, connected: Connect) -> None:
    """An engine would cast it, and fail on the text of one person: 'zoo' is neither true nor false."""
    people = connected("people")
    with pytest.raises(dpsql.ProgrammingError, match="condition"):
        people.explain(sql.format(column))
