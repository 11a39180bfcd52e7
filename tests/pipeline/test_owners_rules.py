"""The data owner's rules in the schema, which no question loosens: small groups, grouping, analysts, accuracy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

import dpsql
from dpsql.cli.app import main
from dpsql.pipeline.calibrate_noise import BETA
from dpsql.pipeline.stages import compile_question
from dpsql.schema import load_schema
from dpsql.synthetic import made_up_worlds
from dpsql.verification.audit import Auditor

PEOPLE = 3000
LEAST = 20
FRAMES = {
    "visits": pd.DataFrame(
        {
            "person": range(PEOPLE),
            "region": ["north", "south", "west"] * (PEOPLE // 3),
            "illness": ["asthma", "gout"] * (PEOPLE // 2),
            "age": [number % 50 for number in range(PEOPLE)],
            "town": ["small" if number < LEAST - 1 else "large" for number in range(PEOPLE)],
        }
    ),
    "codes": pd.DataFrame({"name": ["asthma", "gout"], "kind": ["lung", "joint"]}),
}
SCHEMA: dict[str, Any] = {
    "dataset": "clinic",
    "tables": {
        "visits": {
            "unit": "person",
            "unique": True,
            "columns": {
                "person": "integer",
                "region": {"type": "text", "values": ["north", "south", "west"]},
                "illness": {"type": "text", "values": ["asthma", "gout"], "group_by": False},
                "age": {"type": "integer", "bounds": [0, 50]},
                "town": "text",
            },
        },
        "codes": {"public": True, "columns": {"name": "text", "kind": "text"}},
    },
}


def opened(schema: dict[str, Any] = SCHEMA, **more: Any) -> dpsql.Connection:
    options = {"budget": 9, "delta": 1e-5, "composition": "auto"} | more
    return dpsql.connect(FRAMES, schema=schema, **options)


@pytest.fixture(scope="module")
def clinic() -> Iterator[dpsql.Connection]:
    with opened() as conn:
        yield conn


# -- small groups ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 3])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT region, COUNT(*), SUM(age) FROM visits GROUP BY region",
        "SELECT town, COUNT(*) FROM visits GROUP BY town",
        "SELECT SUM(age) FROM visits WHERE person < 19",
        "SELECT DISTINCT town FROM visits",
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (min_privacy_units_per_group = 2) town, COUNT(*) FROM visits "
        "GROUP BY town",
    ],
)
def test_a_group_of_one_too_few_is_shown_one_time_in_twenty(sql: str, mechanism: str, epsilon: float) -> None:
    """By the exact tail of the noise, whatever is asked; and the least such threshold, where keys are public."""
    with opened(SCHEMA | {"minimum_people": LEAST}) as conn:
        session = conn.session
        asked = compile_question(
            session.request(sql, (), epsilon=epsilon, mechanism=mechanism), session.environment.public()
        )
        (release,) = asked.releases
        (counting,) = [
            one for one in release.measures if one.bounded.column == release.planned.release.partition_selection
        ]
        assert release.threshold is not None
        assert counting.noise.tail(release.threshold - (LEAST - 1)) <= BETA
        if release.planned.release.domain is not None:
            assert counting.noise.tail(release.threshold - 1 - (LEAST - 1)) > BETA * (1 - 1e-9)


def test_small_groups_are_hidden_and_the_answer_says_so() -> None:
    with opened(SCHEMA | {"minimum_people": LEAST}, budget=500) as conn:
        asked = "SELECT town, COUNT(*) AS n FROM visits GROUP BY town ORDER BY town"
        shown = [len(conn.execute(asked, epsilon=1, fresh=True).fetchall()) for _ in range(100)]
        assert shown.count(1) >= 80, "'small' has 19 people"
        assert min(shown) == 1
        assert conn.execute("SELECT COUNT(*) FROM visits WHERE person < 3", epsilon=1).fetchall() == []
        explained = str(conn.explain(asked, epsilon=1))
        assert "the data owner hides groups of fewer than 20 people, with 95 % certainty" in explained
        for refused in ("GROUP BY ROLLUP (town)", "GROUP BY CUBE (town)"):
            with pytest.raises(dpsql.Unsupported, match="the data owner hides groups of fewer than 20 people"):
                conn.explain(f"SELECT town, COUNT(*) FROM visits {refused}")


def test_how_many_rows_few_people_have_is_hidden_too() -> None:
    with opened(SCHEMA | {"minimum_people": LEAST}) as conn:
        with pytest.raises(dpsql.ProgrammingError, match="diagnose= shows how few people have many rows"):
            conn.explain("SELECT SUM(age) FROM visits", epsilon=1, diagnose=True)
        assert "diagnose" not in str(conn.execute("SELECT SUM(age) FROM visits", epsilon=1).notes)


def test_an_answer_from_before_the_rule_is_not_given_again(tmp_path: Path) -> None:
    sql, ledger = "SELECT town, COUNT(*) AS n FROM visits GROUP BY town", tmp_path / "l"
    with opened(ledger=ledger) as conn:
        conn.execute(sql, epsilon=1)
        assert conn.execute(sql, epsilon=1).receipt.recalled
    with opened(SCHEMA | {"minimum_people": LEAST}, ledger=ledger) as conn:
        assert not conn.execute(sql, epsilon=1).receipt.recalled


# -- columns that are not grouped by -----------------------------------------------------------------------------------

FILTERED = (
    "SELECT COUNT(*) FROM visits WHERE illness = 'gout'",
    "SELECT region, AVG(age) FROM visits WHERE illness LIKE 'g%' AND age > 3 GROUP BY region",
    "SELECT COUNT(*) FILTER (WHERE illness = 'gout') AS a, COUNT_IF(illness = 'asthma') AS b FROM visits",
    "SELECT COUNT(DISTINCT illness) FROM visits",
    "SELECT region, COUNT(*) FROM visits WHERE illness IN (SELECT name FROM codes WHERE kind = 'lung') GROUP BY region",
    "SELECT region, COUNT(*) FROM visits WHERE person IN (SELECT person FROM visits WHERE illness = 'gout') "
    "GROUP BY region",
    "SELECT region, SUM(CASE WHEN illness = 'gout' THEN age ELSE 0 END) FROM visits GROUP BY region",
    "SELECT region, SUM(age) FILTER (WHERE illness = 'gout' AND age > 3) FROM visits GROUP BY region",
    "SELECT region, COUNT(*) FROM visits WHERE person IN (SELECT person FROM visits WHERE illness = 'gout') OR "
    "person IN (SELECT person FROM visits WHERE illness = 'asthma') GROUP BY region",
    "SELECT name, COUNT(*) FROM visits, codes WHERE illness = 'gout' GROUP BY name",
)
GROUPED = (
    "SELECT illness, COUNT(*) FROM visits GROUP BY illness",
    "SELECT COUNT(*) FROM visits GROUP BY UPPER(illness)",
    "SELECT illness = 'gout' AS g, COUNT(*) FROM visits GROUP BY g",
    "SELECT region, illness, COUNT(*) FROM visits GROUP BY CUBE (region, illness)",
    "SELECT DISTINCT illness FROM visits",
    "SELECT MODE(illness) FROM visits",
    "SELECT codes.name, COUNT(*) FROM visits JOIN codes ON codes.name = illness GROUP BY codes.name",
    "SELECT kind, COUNT(*) FROM visits, codes WHERE name = illness GROUP BY kind",
    "SELECT kind, COUNT(*) FROM codes LEFT JOIN visits ON name = illness GROUP BY kind",
    "SELECT region, COUNT(*) FROM visits WHERE region = illness GROUP BY region",
    "SELECT region, COUNT(*) FROM visits WHERE (region = 'west' AND illness = 'gout') OR region = 'north' "
    "GROUP BY region",
    "SELECT region, COUNT(*) FROM visits WHERE EXISTS (SELECT 1 FROM codes WHERE name = illness AND kind = region) "
    "GROUP BY region",
    "SELECT t, COUNT(*) FROM (SELECT 'g' AS t, person FROM visits WHERE illness = 'gout' UNION ALL "
    "SELECT 'a' AS t, person FROM visits WHERE illness = 'asthma') GROUP BY t",
    "SELECT g, COUNT(*) FROM (SELECT person IN (SELECT person FROM visits WHERE illness = 'gout') AS g, person "
    "FROM visits) GROUP BY g",
    "SELECT g, COUNT(*) FROM (SELECT v.person, w.age IS NULL AS g FROM visits AS v LEFT JOIN "
    "(SELECT person, age FROM visits WHERE illness = 'gout') AS w ON v.person = w.person) GROUP BY g",
    "SELECT n, COUNT(*) FROM (SELECT person, COUNT(*) AS n FROM visits WHERE illness = 'gout' GROUP BY person) "
    "GROUP BY n",
    "SELECT n, COUNT(*) FROM (SELECT person, COUNT(*) OVER (PARTITION BY person, illness) AS n FROM visits) GROUP BY n",
    "SELECT m, COUNT(*) FROM (SELECT person, MAX(illness) AS m FROM visits GROUP BY person) GROUP BY m",
    *(
        f"SELECT name, {counted} FROM visits, codes GROUP BY name"
        for counted in (
            "COUNT_IF(illness = name)",
            "COUNT(*) FILTER (WHERE illness = name)",
            "AVG((illness = name)::INT)",
            "SUM(CASE WHEN illness = name THEN 1 ELSE 0 END)",
            "COUNT(NULLIF(illness, name))",
            "COUNT(DISTINCT CASE WHEN illness = name THEN person END)",
            "SUM(CASE WHEN illness = 'gout' THEN (name = 'gout')::INT ELSE (name = 'asthma')::INT END)",
            "COUNT_IF((illness = 'gout' AND name = 'gout') OR (illness = 'asthma' AND name = 'asthma'))",
        )
    ),
    *(
        f"SELECT kind, COUNT(*) FROM ({rows}) GROUP BY kind"
        for rows in (
            "SELECT person, kind FROM (SELECT person, kind, illness = name AS hit FROM visits, codes) WHERE hit",
            "SELECT person, name, kind FROM visits, codes INTERSECT SELECT person, illness, kind FROM visits, codes",
            "SELECT person, name, kind FROM visits, codes EXCEPT SELECT person, illness, kind FROM visits, codes",
            "SELECT person, name, kind FROM visits, codes UNION SELECT person, illness, kind FROM visits, codes",
            "SELECT person, kind, key FROM (SELECT person, illness AS key, kind FROM visits, codes UNION ALL "
            "SELECT person, name, kind FROM visits, codes) GROUP BY person, kind, key",
            "SELECT person, kind, LAG(ill) OVER (PARTITION BY person ORDER BY key) AS l FROM (SELECT person, "
            "illness AS key, 'none' AS kind, 1 AS ill FROM visits UNION ALL SELECT person, name, kind, 0 "
            "FROM visits, codes) QUALIFY l = 1",
            "SELECT person, kind FROM visits, codes GROUP BY person, kind, name HAVING COUNT_IF(illness = name) > 0",
            "SELECT person, kind FROM (SELECT person, kind, CASE WHEN illness = 'gout' AND name = 'gout' THEN 1 ELSE 0 "
            "END AS a, CASE WHEN illness = 'asthma' AND name = 'asthma' THEN 1 ELSE 0 END AS b FROM visits, codes) "
            "WHERE a + b > 0",
        )
    ),
    "SELECT name, COUNT(*) FROM visits AS v, codes AS c WHERE EXISTS (SELECT 1 FROM visits AS w, codes AS d WHERE "
    "w.person = v.person AND d.name = c.name AND d.name = 'gout' AND w.illness = 'gout') OR EXISTS (SELECT 1 FROM "
    "visits AS w, codes AS d WHERE w.person = v.person AND d.name = c.name AND d.name = 'asthma' AND "
    "w.illness = 'asthma') GROUP BY name",
    "WITH w AS (SELECT person, illness AS i FROM visits) SELECT x, COUNT(*) FROM (SELECT i || '!' AS x FROM w) "
    "GROUP BY x",
)


@pytest.mark.parametrize("sql", FILTERED)
def test_a_column_may_be_filtered(clinic: dpsql.Connection, sql: str) -> None:
    clinic.explain(sql, epsilon=0.5)


@pytest.mark.parametrize("sql", GROUPED)
def test_a_column_is_not_grouped_by_in_any_guise(clinic: dpsql.Connection, sql: str) -> None:
    with pytest.raises(dpsql.Unsupported, match="be filtered, but not grouped by"):
        clinic.explain(sql, epsilon=0.5)


def test_the_rule_alone_refuses() -> None:
    """Without it all of them are answered."""
    open_to_all = json.loads(json.dumps(SCHEMA))
    del open_to_all["tables"]["visits"]["columns"]["illness"]["group_by"]
    with opened(open_to_all) as conn:
        for sql in GROUPED:
            conn.explain(sql, epsilon=0.5)


# -- analysts and accuracy ---------------------------------------------------------------------------------------------


def test_a_column_or_table_exists_for_some_analysts_only() -> None:
    schema = json.loads(json.dumps(SCHEMA))
    schema["tables"]["visits"]["columns"]["age"]["analysts"] = ["ada"]
    schema["tables"]["codes"]["analysts"] = ["ada", "bob"]
    for analyst, ages, codes in (
        ("ada", True, True),
        ("bob", False, True),
        ("Ada", False, False),
        (None, False, False),
    ):
        with opened(schema, analyst=analyst) as conn:
            assert ("age" in str(conn.schema), "codes" in str(conn.tables)) == (ages, codes)
            for sees, sql in (
                (ages, "SELECT COUNT(*) FROM visits WHERE age > 3"),
                (codes, "SELECT COUNT(*) FROM codes"),
            ):
                if sees:
                    conn.explain(sql)
                else:
                    with pytest.raises(dpsql.UnknownName):
                        conn.explain(sql)
            assert conn.execute("SELECT COUNT(*) FROM visits", epsilon=1).fetchall()


def test_a_session_in_another_name_sees_what_that_analyst_sees() -> None:
    """As in `dpsql serve`, where one session asks in the names of all."""
    schema = json.loads(json.dumps(SCHEMA))
    schema["tables"]["visits"]["columns"]["age"]["analysts"] = ["ada"]
    asked = "SELECT SUM(age) FROM visits"
    for opener in ("ada", None):
        with opened(schema, analyst=opener) as conn:
            ada, bob = (conn.session.for_analyst(name, "duckdb") for name in ("ada", "bob"))
            assert not ada.execute(asked, (), {"epsilon": 1}).receipt.recalled
            with pytest.raises(dpsql.UnknownName):
                bob.explain(asked, (), {"epsilon": 1})


def test_each_question_states_its_accuracy() -> None:
    with opened(SCHEMA | {"accuracy": "required"}) as conn:
        for options in ({}, {"epsilon": 0.5}):
            with pytest.raises(
                dpsql.ProgrammingError, match="the data owner requires each query to state its accuracy"
            ):
                conn.execute("SELECT COUNT(*) FROM visits", **options)
        with pytest.raises(dpsql.ProgrammingError, match="to state its accuracy"):
            conn.plan(["SELECT COUNT(*) FROM visits"], epsilon=0.5)
        conn.execute("SELECT COUNT(*) FROM visits", accuracy=50)
        assert conn.execute("SELECT COUNT(*) FROM codes").fetchall() == [(2,)], "no people are in it"


PROBLEMS = (
    ({"minimum_people": 1}, "minimum_people"),
    ({"minimum_people": "many"}, "minimum_people"),
    ({"accuracy": "always"}, "accuracy"),
    ({"columns": {"person": {"type": "integer", "group_by": False}}}, "it leads to the person"),
    ({"columns": {"person": {"type": "integer", "analysts": ["ada"]}}}, "cannot be for some analysts only"),
    ({"columns": {"person": "integer", "age": {"type": "integer", "analysts": "ada"}}}, "must be a list of names"),
    ({"columns": {"person": "integer", "age": {"type": "integer", "analysts": []}}}, "must be a list of names"),
)


@pytest.mark.parametrize(("part", "said"), PROBLEMS)
def test_rules_that_cannot_be_are_refused(part: dict[str, Any], said: str) -> None:
    table = {"unit": "person", "columns": {"person": "integer"}}
    whole = {key: part[key] for key in ("minimum_people", "accuracy") if key in part}
    with pytest.raises(dpsql.SchemaError, match=said):
        load_schema({"tables": {"visits": table | {k: v for k, v in part.items() if k not in whole}}} | whole)


def test_who_sees_a_table_sees_the_way_to_its_person() -> None:
    orders = {"unit": "person", "columns": {"person": "integer", "id": "integer"}, "analysts": ["ada"]}
    lines = {"unit": {"through": "order_id", "to": "orders.id"}, "columns": {"order_id": "integer"}}
    with pytest.raises(dpsql.SchemaError, match='leads over "orders", which some analysts of this table do not see'):
        load_schema({"tables": {"orders": orders, "lines": lines}})
    load_schema({"tables": {"orders": orders, "lines": lines | {"analysts": ["ada"]}}})


def test_an_audit_is_of_the_guarantee_and_not_of_the_rules() -> None:
    schema = load_schema(SCHEMA | {"minimum_people": LEAST, "accuracy": "required"})
    auditor = Auditor(schema, made_up_worlds(schema, seed=0), runs=400)
    found = auditor.audit(["SELECT COUNT(*) FROM visits", "SELECT illness, COUNT(*) FROM visits GROUP BY illness"])
    assert [(one.refused, one.broken) for one in found] == [(None, False)] * 2
    assert found[0].certain > 0, "a count that is hidden would prove no loss"


def test_check_lists_the_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = json.loads(json.dumps(SCHEMA | {"minimum_people": LEAST, "accuracy": "required"}))
    schema["tables"]["codes"]["analysts"] = ["ada", "bob"]
    (tmp_path / "clinic.yaml").write_text(yaml.safe_dump(schema))
    with pytest.raises(SystemExit):
        main(["check", str(tmp_path / "clinic.yaml")])
    said = capsys.readouterr().out
    for rule in (
        "an answer about fewer than 20 people is hidden, with 95 % certainty",
        "each query states its accuracy",
        "visits.illness may be filtered, not grouped by",
        "codes is for ada, bob only",
    ):
        assert f"rule: {rule}" in said
