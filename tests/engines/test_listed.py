"""Public groups without joins to their list: what becomes of a tree, and that Spark gives the same numbers for it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

import dpsql
from dpsql.engine_sql.build import all_of, apply, count, fields, integer, select, total
from dpsql.engine_sql.build import test as condition
from dpsql.engine_sql.tree import Alias, Field, Joined, Ordered, Select, Subquery, Table, Values, With
from dpsql.engines.spark.engine import own_session
from dpsql.engines.spark.public_groups import looked_up, with_all_groups
from dpsql.engines.spark.render import render
from dpsql.schema.types import Double, Text
from dpsql.verification.audit import moved_too_far

# -- trees ------------------------------------------------------------------------------------------------------------


def values(name: str, *listed: Any, kind: Any = None) -> Subquery:
    return Subquery(Values((name,), (kind or Text(),), tuple((value,) for value in listed)), name)


def listing(source: Any, **keys: str) -> Select:
    """SELECT DISTINCT the values of sources as keys."""
    return Select(tuple(Alias(Field(of), key) for key, of in keys.items()), source, distinct=True)


def same(names: list[str], left: str, right: str) -> Any:
    return all_of([condition("same", Field(name, left), Field(name, right)) for name in names])


def inner(listed: Select, names: list[str]) -> Select:
    columns = tuple(Alias(Field(name, "_below"), name) for name in (*names, "m"))
    joined = Joined(
        "INNER",
        Subquery(Select((), Table("found")), "_below"),
        Subquery(listed, "_listed"),
        same(names, "_below", "_listed"),
    )
    return Select(columns, joined)


def test_partials_are_looked_up_in_listed_values() -> None:
    both = Joined("CROSS", values("_s0", "a", "b"), values("_s1", "x", None))
    sql = render(looked_up(inner(listing(both, k="_s0", l="_s1"), ["k", "l"])))
    assert "JOIN" not in sql
    assert sql.endswith("WHERE ((`_below`.`k` IN ('a', 'b')) AND ((`_below`.`l` IN ('x')) OR (`_below`.`l` IS NULL)))")


def test_partials_are_counted_before_they_are_looked_up() -> None:
    """Spark takes a condition on a key alone to the rows below, of which there are more."""
    asked = inner(listing(values("_s0", "a"), k="_s0"), ["k"])
    assert isinstance(asked.source, Joined)
    partials = select([*fields(["k"]), Alias(count(), "m")], Select((), Table("rows")), group_by=[Field("k")])
    sql = render(looked_up(replace(asked, source=replace(asked.source, left=Subquery(partials, "_below")))))
    assert sql.endswith("WHERE CASE WHEN (`_below`.`m` >= 0) THEN (`_below`.`k` IN ('a')) END")


def test_null_alone_may_be_listed() -> None:
    sql = render(looked_up(inner(listing(values("_s0", None), k="_s0"), ["k"])))
    assert sql.endswith("WHERE (`_below`.`k` IS NULL)")


ALONE = values("_s0", "a", "b")
LEFT_AS_THEY_ARE = {
    "one value for two keys": (listing(Joined("CROSS", ALONE, values("_s1", "x")), k="_s0", l="_s0"), ["k", "l"]),
    "some combinations": (
        Select((Alias(Field("_s0"), "k"),), ALONE, condition("is not null", Field("_s0")), distinct=True),
        ["k"],
    ),
    "computed": (Select((Alias(apply("upper", Field("_s0")), "k"),), ALONE, distinct=True), ["k"]),
    "no value": (listing(values("_s0"), k="_s0"), ["k"]),
    "two zeros": (listing(values("_s0", 0, kind=Double()), k="_s0"), ["k"]),
    "a table": (listing(Table("towns"), k="_s0"), ["k"]),
}


@pytest.mark.parametrize(("listed", "names"), LEFT_AS_THEY_ARE.values(), ids=LEFT_AS_THEY_ARE)
def test_other_lists_are_joined(listed: Select, names: list[str]) -> None:
    asked = inner(listed, names)
    assert looked_up(asked) is asked


def left(sums: Any, names: list[str]) -> Select:
    listed = Subquery(listing(values("_s0", "a", "b"), k="_s0"), "found_0")
    joined = Joined("LEFT", listed, Subquery(sums, "found_1"), same(names, "found_0", "found_1"))
    columns = (Alias(Field("k", "found_0"), "k"), Alias(apply("coalesce", Field("m"), integer(0)), "m"))
    return Select(columns, joined, order_by=(Ordered(Field("k", "found_0")),))


def sums_of(value: Any, kind: Any = None) -> Select:
    below = Select(tuple(fields(["k", "v"])), Table("rows"))
    return select(
        [*fields(["k"]), Alias(value, "m")], below, condition("is not null", Field("v")), [Field("k", kind=kind)]
    )


def test_the_list_is_grouped_with_the_rows() -> None:
    sql = render(with_all_groups(left(With((), sums_of(total(Field("v")))), ["k"])))
    assert sql == (
        "SELECT /*+ COALESCE(1) */ `k`, coalesce(`m`, 0) AS `m` FROM ("
        "SELECT `k`, sum(CAST(`v` AS DECIMAL(38, 0))) AS `m`, max(`_listed`) AS `_listed` FROM ("
        "(SELECT `k`, `v`, 0 AS `_listed` FROM (SELECT `k`, `v` FROM `rows`) AS `_below` WHERE (`v` IS NOT NULL))"
        " UNION ALL (SELECT `k`, NULL AS `v`, 1 AS `_listed` FROM (SELECT `_s0` AS `k` FROM"
        " (SELECT `_s0` FROM (VALUES ('a'), ('b')) AS listed(`_s0`)) AS `_s0`) AS `_below`)"
        ") AS `_below` GROUP BY `k`) AS `_below` WHERE (`_listed` = 1) ORDER BY `k` NULLS LAST"
    )


@pytest.mark.parametrize(
    "sums",
    [
        sums_of(count()),
        sums_of(apply("coalesce", total(Field("v")), count())),
        sums_of(total(apply("coalesce", Field("v"), integer(1)))),
        sums_of(total(Field("v")), Double()),
        select([*fields(["k"]), Alias(Field("v"), "m")], Select(tuple(fields(["k", "v"])), Table("rows"))),
    ],
    ids=["rows", "rows too", "nothing counts", "two zeros", "no sums"],
)
def test_what_would_see_the_list_is_joined(sums: Select) -> None:
    asked = left(sums, ["k"])
    assert with_all_groups(asked) is asked


# -- numbers ----------------------------------------------------------------------------------------------------------

WARDS, FLOORS = list("abcdefgh"), [1, 2, 3]
GROUPS, ROWS, FEW = 3, 10, 17
SCHEMA: dict[str, Any] = {
    "dataset": "wards",
    "contribution": {"max_groups": GROUPS, "max_rows_per_group": ROWS},
    "tables": {
        "stays": {
            "unit": "person",
            "columns": {
                "person": "integer",
                "ward": {"type": "text", "values": WARDS},
                "floor": {"type": "integer", "bounds": [1, 3], "nullable": True},
                "kind": {"type": "text", "values": ["x", "y"]},
                "cost": {"type": "double", "bounds": [0, 100], "nullable": True},
            },
        }
    },
}
NAN = float("nan")
STAYS = [
    *[(1, "a", 1, "x", 1.0)] * 5,
    *[(1, "b", None, "y", NAN)] * 2,  # few rows: all of them count
    *[(2, ward, 2, "x", 10.0) for ward in "abc" for _ in range(12)],  # 10 of 12 rows in each of 3 wards
    *[(3, f"not listed {number}", 9, "z", -5.0) for number in range(40)],  # take no place of the three that follow
    *[(3, ward, None, "y", None) for ward in "def"],
    *[(4, None, 3, None, 500.0)] * 20,
    *[(5, ward, 3, "xy"[place % 2], 99.0) for place, ward in enumerate(WARDS * 4)],  # 8 wards, of which 3 count
    (None, "a", 1, "x", 1.0),
]
QUESTIONS = {
    "listed": "SELECT ward, COUNT(*) AS n, SUM(cost) AS s FROM stays GROUP BY ward",
    "two lists": "SELECT ward, kind, COUNT(*) AS n FROM stays GROUP BY ward, kind",
    "a list and numbers": "SELECT ward, floor, COUNT(cost) AS n FROM stays GROUP BY ward, floor",
    "computed": "SELECT CASE WHEN ward < 'd' THEN 'low' ELSE ward END AS w, AVG(cost) AS a FROM stays GROUP BY w",
    "people": "SELECT ward, COUNT(DISTINCT person) AS n FROM stays GROUP BY ward",
}


@pytest.fixture(scope="module")
def lake(spark: Any) -> Any:
    spark.sql("CREATE DATABASE IF NOT EXISTS listed")
    spark.sql("USE listed")
    columns = "person BIGINT, ward STRING, floor BIGINT, kind STRING, cost DOUBLE"
    spark.createDataFrame(STAYS, columns).write.saveAsTable("stays")
    yield spark
    spark.sql("USE default")
    spark.sql("DROP DATABASE listed CASCADE")


def connect(source: Any) -> dpsql.Connection:
    options: Any = {"budget": 1e13, "delta": 1e-6, "query_epsilon": 1e9, "ledger": ":memory:"}
    return dpsql.connect(source, schema=SCHEMA, **options)


@pytest.mark.spark
def test_bounds_are_those_of_the_definition(lake: Any) -> None:
    with connect(lake) as connection:
        answer = connection.execute(f"{QUESTIONS['listed']} ORDER BY ward").fetchall()
        others = connection.execute("SELECT ward, COUNT(*) FROM stays WHERE person <> 5 GROUP BY ward ORDER BY ward")
        known = dict(others.fetchall())
    in_full = Counter({"a": 5, "b": 2})
    cut = Counter(dict.fromkeys("abc", 10)) + Counter(dict.fromkeys("def", 1))
    assert known == {ward: pytest.approx((in_full + cut)[ward], abs=1e-3) for ward in WARDS}
    more = [row[1] - known[row[0]] for row in answer]
    assert sorted(map(round, more)) == [0] * 5 + [4] * 3
    assert [row[2] for row in answer][6:] == pytest.approx([99.0 * round(n) for n in more[6:]], abs=1e-3)


@pytest.mark.spark
@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_nobody_moves_further(lake: Any, question: str) -> None:
    with connect(lake) as connection:
        (release,) = connection.explain(question).releases
    own, place = own_session(lake)
    stored = f"{place.table('stays')} AS _stored"
    assert stored in release.sql

    def asked(person: int) -> Any:
        others = f"(SELECT * FROM {place.table('stays')} WHERE person IS NULL OR person <> {person}) AS _stored"
        frame = own.sql(release.sql.replace(stored, others))
        return frame.dtypes, [tuple(row) for row in frame.collect()]

    whole = asked(0)
    assert [row[: len(release.keys)] for row in whole[1]] == sorted(
        {row[: len(release.keys)] for row in whole[1]}, key=lambda keys: [(key is None, key) for key in keys]
    )
    for person in range(1, 6):
        assert not list(moved_too_far(release, whole, asked(person)))


@pytest.mark.spark
def test_nothing_is_joined_but_people_with_many_rows(lake: Any) -> None:
    """Once to leave them out of the light rows, and once to sum theirs; and what is sent."""
    with connect(lake) as connection:
        (release,) = connection.explain(QUESTIONS["listed"]).releases
    ((plan,),) = lake.sql(f"EXPLAIN {release.sql}").collect()
    assert plan.count("Join ") == 2
    assert plan.count("Exchange hashpartitioning") == 6
    (looked_up_at,) = (line for line in plan.splitlines() if " IN (" in line or " INSET " in line)
    assert "Filter" in looked_up_at, "groups of heavy units are looked up among the declared ones, and nowhere else"
