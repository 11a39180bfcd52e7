"""Each hint is followed: parsed out of the message, put in place, and run. The answer is that of plain SQL.

The table has names with spaces and quotes, reserved words, NULLs, and a column of each type.
"""

from __future__ import annotations

import re
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.expressions.refusals import AGGREGATES, EXAMPLES, INSTEAD

SCHEMA: dict[str, Any] = {
    "dataset": "clinic",
    "tables": {
        "my visits": {
            "unit": "patient id",
            "unique": True,
            "columns": {
                "patient id": "integer",
                "Cost (EUR)": {"type": "double", "nullable": True},
                "people's age": {"type": "integer", "nullable": True},
                "order": {"type": "decimal(8,2)", "nullable": True},
                "visit id": "text",
                "seen": {"type": "timestamp", "nullable": True},
                "day": {"type": "date", "nullable": True},
                "smoker": {"type": "boolean", "nullable": True},
            },
        }
    },
}
ROWS = """
    CREATE TABLE "my visits" AS SELECT i AS "patient id", CASE WHEN i % 2 = 0 THEN (i % 4) * 50.0 END AS "Cost (EUR)",
    CASE WHEN i % 3 > 0 THEN i % 90 END AS "people's age", CASE WHEN i % 5 > 0 THEN (i % 7)::DECIMAL(8, 2) END
    AS "order", 'v' || (i % 3) AS "visit id", CASE WHEN i % 4 > 0 THEN TIMESTAMP '2024-05-01' + INTERVAL (i % 9) DAY END
    AS seen, CASE WHEN i % 4 > 0 THEN DATE '2024-05-01' + (i % 9)::INT END AS day,
    CASE WHEN i % 3 > 0 THEN i % 4 = 1 END AS smoker FROM range(3600) AS r(i)
"""
COST, AGE, TABLE = '"Cost (EUR)"', '"people\'s age"', '"my visits"'
HINT = re.compile(
    r"hint: .*?(?:write|numbers:|quotes:)  ?(.+?)(?:  with| +in its place|; |: seconds|, or |$)", re.MULTILINE
)


@pytest.fixture(scope="module")
def raw() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(ROWS)
    return connection


@pytest.fixture(scope="module")
def session(raw: duckdb.DuckDBPyConnection) -> dpsql.Connection:
    with pytest.warns(Warning, match="protects against little"):
        return dpsql.connect(raw, schema=SCHEMA, budget=1e15, delta=1e-6, query_epsilon=1e9)


HINTS = [
    # what was asked, what the hint replaces in it, and plain SQL for what was meant
    (f"SELECT AVG({COST}) FROM {TABLE}", f"AVG({COST})", None),
    (f"SELECT SUM({AGE}) FROM {TABLE}", f"SUM({AGE})", None),
    (f"SELECT SUM(DISTINCT {AGE}) FROM {TABLE}", f"SUM(DISTINCT {AGE})", None),
    (f'SELECT SUM("order") FROM {TABLE}', 'SUM("order")', None),
    (
        f"SELECT SUM({COST} * {AGE}) FROM {TABLE}",
        f"SUM({COST} * {AGE})",
        f"SELECT SUM(LEAST({COST} * {AGE}, 500)) FROM {TABLE} WHERE {COST} * {AGE} >= 0",
    ),
    (f"SELECT AVG({AGE}) FILTER (WHERE smoker) FROM {TABLE}", f"AVG({AGE}) FILTER (WHERE smoker)", None),
    (f"SELECT STDDEV({COST}) FROM {TABLE}", f"STDDEV({COST})", None),
    (f"SELECT VAR_POP({AGE}) FROM {TABLE}", f"VAR_POP({AGE})", None),
    (f"SELECT MEDIAN({AGE}) FROM {TABLE}", f"MEDIAN({AGE})", None),
    (f"SELECT QUANTILE_CONT({AGE}, 0.9) FROM {TABLE}", f"QUANTILE_CONT({AGE}, 0.9)", None),
    (f"SELECT MAX({AGE}) FROM {TABLE}", f"MAX({AGE})", None),
    (f"SELECT MIN(day) FROM {TABLE}", "day", None),
    (f"SELECT MAX(seen) FROM {TABLE}", "seen", None),
    (
        f"SELECT AVG(LN({COST})) FROM {TABLE}",
        f"AVG(LN({COST}))",
        f"SELECT AVG(LN({COST})) FROM {TABLE} WHERE {COST} > 0",
    ),
    (f"SELECT CORR({COST}, {AGE}) FROM {TABLE}", None, None),
    (f"SELECT REGR_SLOPE({AGE}, {COST}) FROM {TABLE}", None, None),
    (f"SELECT CORR(smoker, {AGE}) FROM {TABLE}", "smoker", f"SELECT CORR(smoker::INT, {AGE}) FROM {TABLE}"),
    (f"SELECT COUNT(*) FROM {TABLE} WHERE {AGE} > '18'", None, None),
    (
        f'SELECT COUNT(*) FROM {TABLE} WHERE "visit id" = 3',
        '"visit id" = 3',
        f"SELECT COUNT(*) FROM {TABLE} WHERE \"visit id\" = '3'",
    ),
    (f"SELECT COUNT(visit id) FROM {TABLE}", "visit id", f'SELECT COUNT("visit id") FROM {TABLE}'),
    (
        f"SELECT COUNT(*) FROM {TABLE} WHERE 'Cost (EUR)' > 50",
        "'Cost (EUR)'",
        f"SELECT COUNT(*) FROM {TABLE} WHERE {COST} > 50",
    ),
    (f"SELECT COUNT(Cost (EUR)) FROM {TABLE}", "Cost (EUR)", f"SELECT COUNT({COST}) FROM {TABLE}"),
    (f'SELECT "visit id" FROM {TABLE}', f'SELECT "visit id" FROM {TABLE}', f"SELECT COUNT(*) FROM {TABLE}"),
    (f"SELECT PRODUCT({AGE} + 1) FROM {TABLE} WHERE {AGE} < 2", f"PRODUCT({AGE} + 1)", None),
]


@pytest.mark.parametrize(("sql", "replaced", "plain"), HINTS, ids=[case[0] for case in HINTS])
def test_the_hint_gives_the_answer(
    sql: str, replaced: str | None, plain: str | None, session: dpsql.Connection, raw: duckdb.DuckDBPyConnection
) -> None:
    asked = sql
    for _ in range(3):  # of two columns, one message names one
        hint = hint_for(asked, session)
        if hint is not None:
            clamped = re.match(r"CASE WHEN (.+?) IS NOT NULL THEN LEAST", hint)
            named = clamped[1] if clamped else replaced or ""
            asked = re.sub(re.escape(named), hint.replace("\\", r"\\"), asked, count=1, flags=re.IGNORECASE)
    ((value,),) = session.execute(asked).fetchall()
    ((expected,),) = raw.execute(plain or sql).fetchall()
    if isinstance(value, int | float):
        near = 2 if "QUANTILE" in asked or "MEDIAN" in asked else 1e-6  # quantiles are drawn among equally good values
        expected = pytest.approx(float(expected), rel=1e-4, abs=near)
    assert value == expected, asked


def hint_for(sql: str, session: dpsql.Connection) -> str | None:
    try:
        session.explain(sql)
    except dpsql.Error as error:
        found = HINT.search(str(error).replace("aggregate:", "write"))
        return found[1] if found else str(error)
    return None


def test_a_hint_spells_a_column_as_declared(session: dpsql.Connection) -> None:
    with pytest.raises(dpsql.UnknownName, match='did you mean "Cost \\(EUR\\)"'):
        session.explain(f'SELECT COUNT("cost EUR") FROM {TABLE}')


# -- several rows of one person ----------------------------------------------------------------------------------------

BUYS: dict[str, Any] = {
    "dataset": "shop",
    "contribution": {"max_groups": 4, "max_rows_per_group": 4},
    "tables": {
        "all orders": {
            "unit": "patient id",
            "columns": {
                "patient id": "integer",
                "order": {"type": "double", "bounds": [0, 100], "nullable": True},
                "kind of": {"type": "text", "values": ["new one", "old"]},
                "the day": {"type": "date", "nullable": True},
            },
        },
        "my visits": {"unit": "patient id", "columns": {"patient id": "integer", "age": "integer"}},
    },
}


@pytest.fixture(scope="module")
def shop() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(
        """
        CREATE TABLE "all orders" AS SELECT i % 900 AS "patient id", CASE WHEN i % 5 > 0 THEN (i * 7 % 90)::DOUBLE END
        AS "order", CASE WHEN i % 2 = 0 THEN 'new one' ELSE 'old' END AS "kind of", CASE WHEN i % 11 > 0 THEN
        DATE '2024-01-01' + (i // 3)::INT END AS "the day" FROM range(3600) AS r(i);
        CREATE TABLE "my visits" AS SELECT i AS "patient id", i % 90 AS age FROM range(900) AS r(i)
        """
    )
    return connection


@pytest.fixture(scope="module")
def buys(shop: duckdb.DuckDBPyConnection) -> dpsql.Connection:
    with pytest.warns(Warning, match="protects against little"):
        return dpsql.connect(shop, schema=BUYS, budget=1e15, delta=1e-6, query_epsilon=1e9)


WHOLE = [
    # what was asked, whose hint is a query of its own, and plain SQL for what was meant
    (
        'SELECT STRING_AGG("kind of", \',\') FROM "all orders"',
        'SELECT "kind of", COUNT(*) FROM "all orders" GROUP BY 1',
    ),
    ('SELECT LIST("kind of") FROM "all orders" AS o', 'SELECT "kind of", COUNT(*) FROM "all orders" GROUP BY 1'),
    ('SELECT ENTROPY("kind of") FROM "all orders"', 'SELECT "kind of", COUNT(*) FROM "all orders" GROUP BY 1'),
    ('SELECT APPROX_TOP_K("kind of", 3) FROM "all orders"', 'SELECT "kind of", COUNT(*) FROM "all orders" GROUP BY 1'),
    (
        'SELECT HISTOGRAM("order") FROM "all orders"',
        'SELECT FLOOR("order" / 10) * 10, COUNT(*) FROM "all orders" GROUP BY 1',
    ),
    ('SELECT "kind of" FROM "all orders"', 'SELECT COUNT(*) FROM "all orders"'),
    (
        'SELECT "patient id", COUNT(*) FROM "all orders" GROUP BY "patient id"',
        'SELECT AVG(LEAST(n, 100)) FROM (SELECT COUNT(*) AS n FROM "all orders" GROUP BY "patient id")',
    ),
]


@pytest.mark.parametrize(("sql", "plain"), WHOLE, ids=[sql for sql, _ in WHOLE])
def test_the_hint_is_a_query(sql: str, plain: str, buys: dpsql.Connection, shop: duckdb.DuckDBPyConnection) -> None:
    rows = [row for row in buys.execute(told_to_write(sql, buys)).fetchall() if row[-1]]  # public groups may be empty
    expected = shop.execute(plain).fetchall()
    assert len(rows) == len(expected)
    for row, other in zip(sorted(rows, key=str), sorted(expected, key=str), strict=True):
        assert row == pytest.approx(other, rel=1e-3) if isinstance(row[0], float) else row == other


def test_the_missing_equality_of_units_is_sql(buys: dpsql.Connection, shop: duckdb.DuckDBPyConnection) -> None:
    sql = 'SELECT COUNT(*) FROM "all orders" AS o JOIN "my visits" AS v ON o."order" = v.age'
    with pytest.raises(dpsql.Unsupported) as caught:
        buys.explain(sql)
    equality = re.search(r"condition \((.*?)\);", str(caught.value.hint))
    assert equality
    asked = f"{sql} AND {equality[1]}"
    ((value,),) = buys.execute(asked).fetchall()
    assert value == shop.execute(asked).fetchall()[0][0]


def test_bounds_of_two_columns_are_named_one_after_the_other(buys: dpsql.Connection) -> None:
    sql = 'SELECT TO_DATE("kind of", \'DD.MM.YYYY\') AS day, COUNT(*) FROM "all orders" GROUP BY day'
    assert buys.execute(sql).fetchall()


COLUMNS = {"day": '"the day"', "text": '"kind of"', "x": '"order"'}
SAID_OF_SEVERAL = {
    # Their hints name several things that the question does not: CASE WHEN condition THEN a ELSE b END.
    *("TIMESTAMPDIFF", "TIMESTAMP_DIFF", "MONTHS_BETWEEN", "IFF", "DIV0", "DIV0NULL", "BOOLAND", "BOOLOR", "BOOLNOT"),
    *("DECODE", "BIT_AND", "BIT_OR", "BIT_XOR", "EVERY", "BOOL_AND", "BOOL_OR", "LOGICAL_AND", "LOGICAL_OR"),
    *("UNNEST", "EXPLODE", "->", "->>"),
    # Answered in every form, or read otherwise by the parser.
    *("DATEDIFF", "IIF", "IF"),
    # Of two columns, tried above.
    *("ARG_MIN", "ARG_MAX", "MIN_BY", "MAX_BY"),
}


@pytest.mark.parametrize("name", sorted(INSTEAD.keys() - SAID_OF_SEVERAL))
def test_what_is_written_instead_of_another_function_can_be_asked(name: str, buys: dpsql.Connection) -> None:
    """About the column of the question, quotes included."""
    found = EXAMPLES.findall(INSTEAD[name].replace("GROUP BY x", ""))
    column = COLUMNS[found[0]] if found else COLUMNS["x"]
    forms = ("{}", "{}, 'x'", "{}, 3", "'x', {}", "3, {}", "{}, 1, 2", "{}, 1, 2, 'x'")
    for call in (f"{name}({form.format(column)})" for form in forms):
        asked = f'SELECT {call} AS v FROM "all orders"'
        if name not in ABOVE:
            asked = f'SELECT COUNT(*) AS v FROM "all orders" WHERE {call} IS NOT NULL'
        hint = hinted(asked, buys)
        if hint is None:
            return  # it is answered
        if hint.startswith("write  "):
            written = AFTERWARDS.split(hint.removeprefix("write  "))[0]
            buys.explain(written if written.startswith("SELECT") else asked.replace(call, written))
            return
    raise AssertionError(f"{name} is refused in another way: {hint}")


ABOVE = {name for names in AGGREGATES for name in names.split()}
AFTERWARDS = re.compile(r"; |, which| or |, and |, beside |: one person")


def hinted(sql: str, connection: dpsql.Connection) -> str | None:
    try:
        connection.explain(sql)
    except dpsql.Error as error:
        return str(error.hint)
    return None


def told_to_write(sql: str, connection: dpsql.Connection) -> str:
    """The query in a hint, up to what is said of it."""
    with pytest.raises(dpsql.Error) as caught:
        connection.explain(sql)
    return re.sub(r"^.*?(?=SELECT )", "", str(caught.value.hint), count=1).partition("; ")[0]
