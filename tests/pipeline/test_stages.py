"""The stages before the charge: each is pure, can be read, and has no way to rows of people."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import sqlglot
import yaml
from sqlglot import exp

import dpsql
from dpsql.engine_sql.build import count, select
from dpsql.engine_sql.tree import Alias
from dpsql.pipeline import stages
from dpsql.pipeline.environment import EnginePublicRows
from dpsql.relation.relation import Relation
from dpsql.relation.sql import relation_sql

if TYPE_CHECKING:
    from dpsql.pipeline.environment import PublicEnvironment

HERE = Path(__file__).parents[1]
FILES = ("clinic", "people", "shop")
FREE = [stage.__name__ for stage in stages.FREE]


def corpus(name: str) -> list[str]:
    topics = yaml.safe_load((HERE / "corpus" / f"{name}.yaml").read_text(encoding="utf-8"))
    return [entry if isinstance(entry, str) else entry["sql"] for entries in topics.values() for entry in entries]


# -- a stage run twice gives the same, and asks the engine for nothing but public rows ---------------------------------


class Watching:
    """The engine, and what it was asked before the charge and after it."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.free: list[str] = []
        self.paid: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def run_public(self, sql: str) -> Mapping[str, np.ndarray]:
        self.free.append(sql)
        found: Mapping[str, np.ndarray] = self._engine.run_public(sql)
        return found

    def run(self, sql: str, materialized: Any = None) -> Mapping[str, np.ndarray]:
        self.paid.append(sql)
        found: Mapping[str, np.ndarray] = self._engine.run(sql, materialized)
        return found


def outcome(stage: Callable[[Any, Any], Any], value: object, public: PublicEnvironment) -> tuple[Any, str | None]:
    """What the stage gives, or the words in which it refuses."""
    try:
        return stage(value, public), None
    except dpsql.Error as refusal:
        return None, f"{type(refusal).__name__}: {refusal}"


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", FILES)
def test_a_free_stage_that_runs_twice_gives_the_same(
    name: str, part: int, connected: Callable[[str], dpsql.Connection]
) -> None:
    """Over the corpus, every other query at a time, up to the stage that refuses: again in the same words."""
    session = connected(name).session
    watching = Watching(session.environment.engine)
    public = dataclasses.replace(session.environment, engine=watching).public()
    for sql in corpus(name)[part::2]:
        value: Any = session.request(sql, None)
        for stage in stages.FREE:
            before = str(value)
            first, refusal = outcome(stage, value, public)
            assert outcome(stage, value, public) == (first, refusal), f"{stage.__name__} of {sql}"
            assert str(value) == before, f"{stage.__name__} changed its input: {sql}"
            if refusal is not None:
                break
            value = first
    assert watching.paid == []
    read = {table.name for sql in watching.free for table in sqlglot.parse_one(sql, read="duckdb").find_all(exp.Table)}
    private = {table.name for table in session.environment.schema.tables.values() if not table.is_public}
    assert not read & private
    assert read or name == "clinic" or (name, part) == ("shop", 0), "public rows are joined in the others"


def test_what_stages_give_is_compared_with_its_trees(shop: dpsql.Connection) -> None:
    """Or else a tree that a stage takes apart would not be noticed above."""
    public = shop.session.environment.public()
    parsed = stages.parse_sql(shop.session.request("SELECT COUNT(*) FROM orders", None), public)
    assert parsed == stages.parse_sql(parsed.request, public)
    assert parsed != dataclasses.replace(parsed, tree=parsed.tree.limit(1))


# -- a stage can be read -----------------------------------------------------------------------------------------------

ROWS = {
    "SELECT region, COUNT(*) FROM orders JOIN customers ON customer_id = id WHERE age >= 18 GROUP BY region": (
        "Aggregate[region](Filter[age >= 18](Join[customer_id = id](Scan orders, Scan customers)))"
    ),
    "SELECT COUNT(*) FROM orders WHERE NOT (note LIKE 'g%' OR items IN (1, 2, 3, 4, 5, 6, 7))": (
        "Aggregate(Filter[NOT (note LIKE 'g%' OR items IN (1, 2, 3, 4, 5, ... 2 more))](Scan orders))"
    ),
    "SELECT COUNT(*) FROM orders WHERE day + INTERVAL 1 MONTH > '2024-02-01' AND 2 * (3 + items) > -amount": (
        "Aggregate(\n"
        "  Filter[day + INTERVAL 1 MONTH > '2024-02-01 00:00:00' AND 2 * (3 + items) > -amount](Scan orders)\n"
        ")"
    ),
    "SELECT SUM(n) FROM (SELECT customer_id, COUNT(*) AS n FROM orders GROUP BY customer_id)": (
        "Aggregate(\n"
        "  Project[_k0 AS customer_id, _a0 AS n](PerUnit[customer_id AS _k0, COUNT(*) AS _a0](Scan orders))\n"
        ")"
    ),
    "SELECT COUNT(*) FROM customers WHERE id NOT IN (SELECT customer_id FROM orders)": (
        "Aggregate(AntiJoin[id = customer_id](Scan customers, Project[customer_id](Scan orders)))"
    ),
    "SELECT COUNT(*) FROM orders LEFT JOIN customers ON customer_id = id": (
        "Aggregate(LeftJoin[customer_id = id](Scan orders, Scan customers))"
    ),
    "SELECT COUNT(*) FROM (SELECT DISTINCT customer_id, region FROM orders)": (
        "Aggregate(Distinct(Project[customer_id, region](Scan orders)))"
    ),
    "SELECT CASE WHEN items > 3 THEN 'many' ELSE UPPER(note) END, COUNT(*) FROM orders GROUP BY 1": (
        "Aggregate[CASE WHEN items > 3 THEN 'many' ELSE UPPER(note) END](Scan orders)"
    ),
}


@pytest.mark.parametrize("sql", ROWS)
def test_a_relation_can_be_read(sql: str, shop: dpsql.Connection) -> None:
    text = dict(shop.trace(sql).stages)["resolve_names"]
    shown = ROWS[sql].replace("\n", "\n" + " " * 17)
    assert text.startswith(f"release 0        {shown}\n")


def test_every_stage_says_what_it_found(shop: dpsql.Connection) -> None:
    trace = shop.trace("SELECT note, SUM(amount) AS total FROM orders WHERE items > 3 GROUP BY note", epsilon=0.5)
    stages = dict(trace.stages)
    assert list(stages) == FREE
    assert stages["parse_sql"].splitlines()[-1] == "asked            epsilon 0.5"
    assert stages["resolve_names"].splitlines() == [
        "release 0        Aggregate[note](Filter[items > 3](Scan orders))",
        "                 SUM(amount)",
        'post-processing  SELECT "_k0" AS "note", _a0 AS "total" FROM _release_0',
    ]
    assert stages["track_units"].splitlines() == [
        "release 0        person   orders.customer_id",
        "                 rows     any number per person",
        "                 groups   people's own",
        "                 column   amount: double, 0 to 500, or NULL",
        "                 column   note: text, or NULL",
    ]
    assert stages["infer_sensitivity"].splitlines() == [
        "release 0        bounds   groups per person: 3, rows per group: 2",
        "                 measure  m0 = sum of amount clamped to [0, 500], in steps of 1/2097152, centred",
        "                          one person moves a group by 500, all groups together by 1500",
        "                 measure  m1 = people",
        "                          one person moves a group by 1, all groups together by 3",
        "                 answer   SUM(amount) = 1/2097152 * m0 + 500 * m1",
        "                 groups   selected by m1",
    ]
    sql = "SELECT note, SUM(amount) AS total FROM orders WHERE items > 3 GROUP BY note"
    explained = shop.explain(sql, epsilon=0.5, diagnose=False)
    (release,) = explained.releases
    assert f"release 0        {release.sql}" in stages["plan_query"]
    priced = stages["calibrate_noise"].splitlines()
    assert priced[0] == f"cost             epsilon 0.5, delta {explained.cost.delta:.3g}"
    assert priced[1] == f"noise            {explained.mechanism}: {explained.reason}"
    assert priced[-1] == f"                 groups   shown if m1 >= {release.threshold}"
    total, units = release.measures
    for measure in (total, units):
        assert f"standard deviation {measure.std * measure.quantum:.6g}" in stages["calibrate_noise"]


def test_a_trace_is_printed_one_stage_below_the_other(shop: dpsql.Connection) -> None:
    printed = str(shop.trace("SELECT COUNT(*) FROM orders"))
    assert [line for line in printed.splitlines() if line and not line.startswith(" ")] == FREE
    assert repr(shop.trace("SELECT COUNT(*) FROM orders")) == printed


def test_a_trace_is_free(shop: dpsql.Connection) -> None:
    shop.trace("SELECT region, COUNT(*), MEDIAN(amount) FROM orders GROUP BY region", epsilon=5)
    assert shop.budget.spent.epsilon == 0
    assert [entry.state for entry in shop.session.environment.ledger.history()] == ["budget"]


def test_a_refusal_ends_the_trace(shop: dpsql.Connection) -> None:
    trace = shop.trace("SELECT SUM(weight) FROM orders")
    assert [name for name, _ in trace.stages] == FREE[: FREE.index("infer_sensitivity") + 1]
    assert isinstance(trace.refusal, dpsql.UnboundedColumn)
    assert trace.stages[-1][1] == f"refused: {trace.refusal}"
    with pytest.raises(dpsql.ProgrammingError, match="there is no option"):
        shop.trace("SELECT COUNT(*) FROM orders", epsilom=1)


def test_a_question_about_public_rows_alone_has_no_release(shop: dpsql.Connection) -> None:
    assert dict(shop.trace("SELECT 1 + 1").stages)["track_units"] == "releases         none"


def test_numbers_that_are_searched_for_are_in_the_trace(shop: dpsql.Connection) -> None:
    stages = dict(shop.trace("SELECT COUNT(*) FROM orders", accuracy=50).stages)
    assert stages["parse_sql"].endswith("asked            ± 50")
    assert "the least cost for ± 50" in stages["calibrate_noise"]


# -- a stage has no way to rows of people ------------------------------------------------------------------------------


def test_rows_of_people_are_not_counted(
    shop: dpsql.Connection, relation_of: Callable[[dpsql.Connection, str], Relation]
) -> None:
    """Whatever stands around them: a query with a table of people in it does not get to the engine."""
    watching = Watching(shop.session.environment.engine)
    rows = EnginePublicRows(watching, shop.session.environment.schema)
    for sql in (
        "SELECT COUNT(*) FROM orders",
        "SELECT COUNT(*) FROM customers WHERE id IN (SELECT customer_id FROM orders)",
    ):
        query = select([Alias(count(), "n")], relation_sql(relation_of(shop, sql), set()))
        with pytest.raises(dpsql.InternalError, match="before the charge"):
            rows.number(query, [])
    assert watching.free == watching.paid == []


def test_what_a_free_stage_is_given_has_no_way_to_change_the_account(shop: dpsql.Connection) -> None:
    public = shop.session.environment.public()
    names = {field.name for field in dataclasses.fields(public)}
    shown = {"schema", "guarantees", "render", "can_run", "public_rows", "post_processor", "budget", "answers", "plans"}
    assert names == shown
    before = public.budget
    shop.execute("SELECT COUNT(*) FROM orders", epsilon=1)
    assert public.budget == before, "a snapshot"
    assert list(public.budget.charges(0, 10)) == []
    assert shop.session.environment.public().budget != before


# -- the whole of it, for one query ------------------------------------------------------------------------------------

REFERENCE = "SELECT region, COUNT(*), SUM(amount) FROM orders GROUP BY region"
TRACE = Path(__file__).parent / "reference.trace"
REWRITE = "DPSQL_REWRITE=1 python -m pytest tests/pipeline/test_stages.py -k reference"


def test_the_trace_of_the_reference_query_is_as_kept(shop: dpsql.Connection) -> None:
    """What each free stage gives, as tests/pipeline/reference.trace shows it."""
    found = str(shop.trace(REFERENCE, epsilon=1)) + "\n"
    if "DPSQL_REWRITE" in os.environ:
        TRACE.write_text(found, encoding="utf-8")
    kept = TRACE.read_text(encoding="utf-8") if TRACE.exists() else ""
    assert found == kept, f"where this is meant:  {REWRITE}"
