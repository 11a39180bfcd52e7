"""Options in SQL: what the clause means, what it may not say, and where the caret points.

How far one person moves what bounded aggregates release is in tests/cases/options.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pytest
from sqlglot import Dialect

import dpsql
from dpsql.sql.privacy_options import read_options


@pytest.fixture(scope="module")
def shop(
    small_shop: Callable[[], duckdb.DuckDBPyConnection], small_shop_schema: dict[str, Any]
) -> Iterator[dpsql.Connection]:
    with dpsql.connect(small_shop(), schema=small_shop_schema, budget=1000, delta=1e-6) as connection:
        yield connection


def clause(options: str, rest: str = "region, COUNT(*) AS n FROM orders GROUP BY region") -> str:
    return f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS({options}) {rest}"


# -- the clause says what keywords say ---------------------------------------------------------------------------------

BY_REGION = "region, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY region"
BY_NOTE = "note, COUNT(*) AS n FROM orders GROUP BY note"
ONE = "COUNT(*) FROM orders"

# options in SQL, the rest of the query, the same as keywords
SAME: list[tuple[str, str, dict[str, Any]]] = [
    ("epsilon = 0.2", BY_REGION, {"epsilon": 0.2}),
    ("EPSILON=.2", BY_REGION, {"epsilon": 0.2}),
    ("epsilon = 2e-1, delta = 1e-7", BY_NOTE, {"epsilon": 0.2, "delta": 1e-7}),
    ("epsilon = 0.2, max_groups_contributed = 2", BY_REGION, {"epsilon": 0.2, "max_groups": 2}),
    ("epsilon = 0.2, max_rows_contributed = 3", BY_REGION, {"epsilon": 0.2, "max_rows_per_group": 3}),
    ("epsilon = 0.2, mechanism = 'gaussian'", BY_REGION, {"epsilon": 0.2, "mechanism": "gaussian"}),
    ("epsilon = 0.2, mechanism = LAPLACE", BY_REGION, {"epsilon": 0.2, "mechanism": "laplace"}),
    ("epsilon = 0.2, privacy_unit_column = customer_id", BY_REGION, {"epsilon": 0.2}),
    ("epsilon = 0.2, privacy_unit_column = orders.Customer_ID", BY_REGION, {"epsilon": 0.2}),
    ('epsilon = 0.2, privacy_unit_column = "customer_id"', BY_REGION, {"epsilon": 0.2}),
    ("epsilon = 0.2, group_selection_strategy = LAPLACE_THRESHOLD", BY_NOTE, {"epsilon": 0.2}),
    ("epsilon = 0.2, group_selection_strategy = public_groups", BY_REGION, {"epsilon": 0.2}),
    ("epsilon = 0.2, min_privacy_units_per_group = 1", BY_NOTE, {"epsilon": 0.2}),
    ("epsilon = 0.1 * 2, max_groups_contributed = 1 + 1", BY_REGION, {"epsilon": 0.2, "max_groups": 2}),
    ("epsilon = 0.2, delta = NULL, max_groups_contributed = NULL", BY_REGION, {"epsilon": 0.2}),
    ("", BY_REGION, {}),
    (
        "epsilon = 0.2, delta = 1e-7, max_groups_contributed = 2, max_rows_contributed = 3,\n privacy_unit_column = "
        "customer_id, group_selection_strategy = LAPLACE_THRESHOLD, mechanism = 'gaussian'",
        BY_NOTE,
        {"epsilon": 0.2, "delta": 1e-7, "max_groups": 2, "max_rows_per_group": 3, "mechanism": "gaussian"},
    ),
]


@pytest.mark.parametrize(("options", "rest", "keywords"), SAME, ids=[options for options, _, _ in SAME])
def test_the_clause_is_the_keywords(options: str, rest: str, keywords: dict[str, Any], shop: dpsql.Connection) -> None:
    in_sql, by_keyword = shop.explain(clause(options, rest)), shop.explain(f"SELECT {rest}", **keywords)
    assert str(in_sql) == str(by_keyword)
    answer = shop.execute(f"SELECT {rest}", **keywords).fetchall()
    again = shop.execute(clause(options, rest))
    assert again.fetchall() == answer
    assert again.receipt.recalled


def test_what_both_say_alike_is_said_once(shop: dpsql.Connection) -> None:
    explained = shop.explain(clause("epsilon = 0.2, max_groups_contributed = 2"), epsilon="0.2", max_groups=2)
    assert explained.cost.epsilon == 0.2


def test_the_older_clause(shop: dpsql.Connection) -> None:
    sql = (
        "SELECT WITH ANONYMIZATION OPTIONS(epsilon = 0.5, kappa = 2) region, ANON_COUNT(*) AS n FROM orders GROUP BY 1"
    )
    explained = shop.explain(sql)
    assert str(explained) == str(
        shop.explain("SELECT region, COUNT(*) AS n FROM orders GROUP BY 1", epsilon=0.5, max_groups=2)
    )


def test_explain_and_the_places_of_the_clause(shop: dpsql.Connection) -> None:
    lines = shop.execute("EXPLAIN " + clause("epsilon = 0.25")).fetchall()
    assert lines[0][0].startswith("cost       epsilon 0.25,")
    inner = f"SELECT n FROM ({clause('epsilon = 0.25')}) AS t"
    named = f"WITH t AS ({clause('epsilon = 0.25')}) SELECT n FROM t"
    outer = f"WITH t AS (SELECT amount FROM orders) {clause('epsilon = 0.25', 'SUM(amount) FROM t')}"
    assert [shop.explain(sql).cost.epsilon for sql in (inner, named, outer)] == [0.25] * 3
    both = clause("epsilon = 0.25", "COUNT(*) FROM orders UNION ALL SELECT SUM(items) FROM orders")
    assert shop.explain(both).cost.epsilon == 0.25
    assert shop.explain("SELECT WITH DIFFERENTIAL_PRIVACY COUNT(*) FROM orders", epsilon=0.25).cost.epsilon == 0.25


def test_the_words_stay_names(shop_schema: dict[str, Any]) -> None:
    """A column may be called like a word of the clause."""
    raw = duckdb.connect()
    raw.execute("CREATE TABLE orders (customer_id BIGINT, clamped BIGINT, options BIGINT, epsilon BIGINT)")
    columns = {name: {"type": "integer", "bounds": [0, 9]} for name in ("clamped", "options", "epsilon")}
    shop_schema["tables"] = {"orders": {"unit": "customer_id", "columns": {"customer_id": "integer", **columns}}}
    with dpsql.connect(raw, schema=shop_schema, budget=1) as connection:
        explained = connection.explain(
            "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.1) options, SUM(epsilon), ANON_SUM(clamped CLAMPED "
            "BETWEEN 0 AND 5) FROM orders WHERE clamped BETWEEN 1 AND 3 AND (clamped BETWEEN 1 AND 2) GROUP BY options"
        )
    assert explained.cost.epsilon == 0.1
    (release,) = explained.releases
    assert release.keys == ("_k0",)
    assert [measure.what for measure in release.measures] == [
        "sum of epsilon clamped to [0, 9]",
        "sum of clamped clamped to [1, 2], [0, 5] per person",
    ]


# -- several clauses ---------------------------------------------------------------------------------------------------

HALF, QUARTER = "epsilon = 0.5", "epsilon = 0.25"
EXCLUSIVE = "COUNT_IF(region = 'north') AS n, SUM(CASE WHEN region = 'south' THEN items END) AS s FROM orders"
APART = [
    f"{clause(HALF, ONE)} UNION ALL {clause(QUARTER, ONE)}",
    f"WITH a AS ({clause(HALF)}), b AS ({clause(QUARTER, BY_REGION)}) SELECT * FROM a JOIN b USING (region)",
    f"{clause(f'{HALF}, delta = 5e-7', BY_NOTE)} UNION ALL {clause(f'{QUARTER}, delta = 1e-7', BY_NOTE)}",
    f"{clause(f'{HALF}, mechanism = laplace', ONE)} UNION ALL {clause(f'{QUARTER}, mechanism = laplace', ONE)}",
    f"SELECT * FROM ({clause(HALF, f'DISTINCT {BY_REGION}')}), ({clause(QUARTER)})",
    clause(QUARTER, f"COUNT(*) FROM orders WHERE items > ({clause(HALF, 'AVG(items) FROM orders')})"),
    f"SELECT * FROM ({clause(HALF, EXCLUSIVE)}), ({clause(QUARTER, EXCLUSIVE)})",
]


@pytest.mark.parametrize("sql", APART)
def test_each_clause_has_its_own_cost(sql: str, shop: dpsql.Connection) -> None:
    """All are charged together; neither part has more noise than it would have alone at its price."""
    explained, before = shop.explain(sql), shop.budget.spent.epsilon
    assert [release.epsilon for release in explained.releases] == [0.5, 0.25]
    assert explained.cost.epsilon == 0.75
    shop.execute(sql, fresh=True)
    assert shop.budget.spent.epsilon > before


def test_each_clause_has_its_own_bounds(shop: dpsql.Connection) -> None:
    sql = (
        f"{clause('epsilon = 1, max_groups_contributed = 1, min_privacy_units_per_group = 9')} "
        f"UNION ALL {clause('epsilon = 1, max_groups_contributed = 2, max_rows_contributed = 5')}"
    )
    one, two = shop.explain(sql).releases
    assert [(release.max_groups, release.max_rows_per_group, release.threshold) for release in (one, two)] == [
        (1, 2, 9),
        (2, 5, None),
    ]
    alone = shop.explain(clause("epsilon = 1, max_groups_contributed = 2, max_rows_contributed = 5"))
    assert two.measures[0].std <= alone.releases[0].measures[0].std
    assert two.measures[0].l1 == alone.releases[0].measures[0].l1


def test_clauses_leave_nothing_for_execute_to_say(shop: dpsql.Connection) -> None:
    with pytest.raises(dpsql.ProgrammingError, match="delta"):
        shop.explain(APART[0], delta=1e-7)
    with pytest.raises(dpsql.ProgrammingError, match="accuracy"):
        shop.explain(APART[0], accuracy=5)


# -- small groups ------------------------------------------------------------------------------------------------------


def test_min_units_raise_the_threshold(shop: dpsql.Connection) -> None:
    def threshold(options: str) -> int:
        (release,) = shop.explain(clause(f"epsilon = 1{options}", BY_NOTE)).releases
        assert release.threshold is not None
        return release.threshold

    assert threshold(", min_privacy_units_per_group = 50") == threshold("") + 49


@pytest.mark.parametrize(("units", "rows"), [(90, 4), (110, 0)])
def test_min_units_hide_public_groups(units: int, rows: int, shop: dpsql.Connection) -> None:
    """Each region has 100 customers."""
    sql = clause(f"epsilon = 50, min_privacy_units_per_group = {units}")
    (release,) = shop.explain(sql).releases
    assert release.threshold == units
    assert [measure.what for measure in release.measures] == ["rows, centred", "people"]
    assert len(shop.execute(sql).fetchall()) == rows
    assert f"shown if the noisy number of people is at least {units}: as requested" in str(shop.explain(sql))


def test_min_units_of_public_groups_need_no_delta(small_shop: Any, shop_schema: dict[str, Any]) -> None:
    with dpsql.connect(small_shop(), schema=shop_schema, budget=100) as connection:
        sql = clause("epsilon = 50, min_privacy_units_per_group = 350", "COUNT(*) AS n FROM orders")
        cursor = connection.execute(sql)
        assert len(cursor.fetchall()) == 1
        assert cursor.receipt.delta == 0
        assert connection.execute(sql.replace("350", "450")).fetchall() == []


# -- ends of intervals -------------------------------------------------------------------------------------------------

INTERVALS = [
    "SELECT region, COUNT(*) AS x, DP_INTERVAL_LOW(x) AS low, DP_INTERVAL_HIGH(x) AS high FROM orders GROUP BY ALL",
    "SELECT note, SUM(amount) AS x, dp_interval_low(x) AS low, dp_interval_high(X) AS high FROM orders GROUP BY note",
    "SELECT DP_INTERVAL_LOW(x) AS low, AVG(amount) AS x, DP_INTERVAL_HIGH(x) AS high FROM orders",
    "SELECT region, AVG(items) * 2 AS x, DP_INTERVAL_LOW(x) AS low, DP_INTERVAL_HIGH(x) AS high FROM orders GROUP BY 1",
    "SELECT SUM(items) / COUNT(*) AS x, DP_INTERVAL_LOW(x) AS low, DP_INTERVAL_HIGH(x) AS high FROM orders",
    "SELECT COUNT(*) - 3 * SUM(items) AS x, DP_INTERVAL_LOW(x) AS low, DP_INTERVAL_HIGH(x) AS high FROM orders",
]


@pytest.mark.parametrize("sql", INTERVALS)
def test_ends_are_those_of_intervals(sql: str, shop: dpsql.Connection) -> None:
    cursor = shop.execute(sql, epsilon=1)
    found = cursor.intervals(0.95)
    assert not found["low"].isna().any()
    assert found["low"].tolist() == pytest.approx(found["x_low"].tolist(), abs=1e-4)
    assert found["high"].tolist() == pytest.approx(found["x_high"].tolist(), abs=1e-4)


def test_ends_are_columns_like_any_other(shop: dpsql.Connection) -> None:
    rows = shop.execute(
        "WITH t AS (SELECT region, COUNT(*) AS n, DP_INTERVAL_LOW(n) AS low FROM orders GROUP BY region HAVING low > 0)"
        " SELECT n - low AS width, region FROM t ORDER BY low DESC",
        epsilon=1,
    ).fetchall()
    assert len(rows) == 4
    assert len({width for width, _ in rows}) == 1


UNKNOWN_ERRORS = [
    "SELECT region, COUNT(*) AS n, DP_INTERVAL_LOW(region) AS low FROM orders GROUP BY region",
    "SELECT STDDEV(items) AS x, DP_INTERVAL_LOW(x) AS low FROM orders",
    "SELECT COUNT(*) * COUNT(*) AS x, DP_INTERVAL_HIGH(x) AS low FROM orders",
    "SELECT AVG(items) AS x, DP_INTERVAL_HIGH(x) AS low FROM orders WHERE items > 100 AND items < 0",
]


@pytest.mark.parametrize("sql", UNKNOWN_ERRORS[:3])
def test_ends_are_null_where_no_error_is_known(sql: str, shop: dpsql.Connection) -> None:
    assert shop.execute(sql, epsilon=1).df()["low"].isna().all()


def test_ends_of_an_average_over_nothing(shop: dpsql.Connection) -> None:
    """NULL like the average itself, whenever the noisy count is not positive."""
    for _ in range(10):
        ((value, low),) = shop.execute(UNKNOWN_ERRORS[3], epsilon=0.1, fresh=True).fetchall()
        assert (value is None) == (low is None)


# -- errors ------------------------------------------------------------------------------------------------------------

SYNTAX, UNKNOWN = dpsql.SqlSyntaxError, dpsql.UnknownName
UNSUPPORTED, PROGRAMMING = dpsql.Unsupported, dpsql.ProgrammingError

# question, class of the error, what the caret underlines, a word of the hint; per_row is contribution_bounds_per_row
REFUSED: list[tuple[str, type[dpsql.Error], str, str]] = [
    (clause("epsilno = 1"), UNKNOWN, "epsilno", '"epsilon"'),
    (clause("kappa = 1"), UNKNOWN, "kappa", '"epsilon"'),
    (clause("epsilon = 1, epsilon = 2"), SYNTAX, "epsilon = 2", "once"),
    (clause("epsilon = 0"), PROGRAMMING, "epsilon = 0", "0.1"),
    (clause("epsilon = -1"), PROGRAMMING, "epsilon = -1", "0.1"),
    (clause("epsilon = lots"), PROGRAMMING, "epsilon = lots", "0.1"),
    (clause("epsilon = ?"), SYNTAX, "epsilon = ?", "OPTIONS("),
    (clause("epsilon = 1 + one"), SYNTAX, "epsilon = 1 + one", "OPTIONS("),
    (clause("epsilon = 1 / 0"), SYNTAX, "epsilon = 1 / 0", "OPTIONS("),
    (clause("epsilon"), SYNTAX, "epsilon", "OPTIONS("),
    (clause("epsilon = 1, , delta = 0"), SYNTAX, ",", "OPTIONS("),
    (clause("epsilon = "), SYNTAX, "epsilon =", "OPTIONS("),
    (clause("delta = 1e-3"), PROGRAMMING, "delta = 1e-3", "smaller"),
    (clause("delta = 2"), PROGRAMMING, "delta = 2", "1e-6"),
    (clause("max_groups_contributed = 0"), PROGRAMMING, "max_groups_contributed = 0", "=4"),
    (clause("max_rows_contributed = 2.5"), PROGRAMMING, "max_rows_contributed = 2.5", "=4"),
    (clause("min_privacy_units_per_group = -1"), PROGRAMMING, "min_privacy_units_per_group = -1", "=4"),
    (clause("privacy_unit_column = region"), PROGRAMMING, "privacy_unit_column = region", "= customer_id"),
    (clause("privacy_unit_column = o.region"), PROGRAMMING, "privacy_unit_column = o.region", "= customer_id"),
    (
        clause("group_selection_strategy = PUBLIC_GROUPS", BY_NOTE),
        PROGRAMMING,
        "group_selection_strategy = PUBLIC_GROUPS",
        "values: [...]",
    ),
    (clause("group_selection_strategy = NONE"), UNSUPPORTED, "group_selection_strategy = NONE", "LAPLACE_THRESHOLD"),
    (
        "SELECT WITH DIFFERENTIAL_PRIVCY COUNT(*) FROM orders",
        SYNTAX,
        "WITH DIFFERENTIAL_PRIVCY",
        "differential_privacy",
    ),
    ("SELECT WITH AGGREGATION_THRESHOLD COUNT(*) FROM orders", SYNTAX, "WITH AGGREGATION_THRESHOLD", "available"),
    (
        clause("epsilon = 1", f"COUNT(*) FROM orders UNION ALL {clause('', 'COUNT(*) FROM orders')}"),
        PROGRAMMING,
        "WITH DIFFERENTIAL_PRIVACY OPTIONS()",
        "give each one",
    ),
    (
        clause("epsilon = 1", f"n FROM ({clause('epsilon = 2')})"),
        UNSUPPORTED,
        "WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1)",
        "that has the aggregates",
    ),
    (
        f"{clause('epsilon = 1', ONE)} UNION ALL SELECT {ONE} UNION ALL {clause('epsilon = 2', ONE)}",
        UNSUPPORTED,
        "WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1)",
        "or a single one",
    ),
    (
        f"{clause('epsilon = 1', ONE)} UNION ALL {clause('epsilon = 2', 'MEDIAN(items) FROM orders')}",
        UNSUPPORTED,
        "WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 2)",
        "separately",
    ),
    (
        f"{clause('epsilon = 1, delta = 1e-7', ONE)} UNION ALL {clause('epsilon = 2', ONE)}",
        PROGRAMMING,
        "WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 2)",
        "or in none",
    ),
    (
        f"{clause('epsilon = 1', ONE)} UNION ALL {clause('epsilon = 2, mechanism = laplace', ONE)}",
        PROGRAMMING,
        "WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 2, mechanism = laplace)",
        "split the query",
    ),
    (
        f"SELECT * FROM ({clause('epsilon = 1')}), (SELECT COUNT(*) AS m FROM orders)",
        UNSUPPORTED,
        "WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1)",
        "outermost",
    ),
    ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1 COUNT(*) FROM orders", SYNTAX, "(", "close"),
    ("SELECT SUM(items, bounds => (0, 5)) FROM orders", UNKNOWN, "bounds =>", "per_row"),
    ("SELECT SUM(items, per_row => 5) FROM orders", SYNTAX, "per_row =>", "(0, 500)"),
    ("SELECT SUM(per_row => (0, 5)) FROM orders", SYNTAX, "per_row =>", "SUM(x"),
    ("SELECT SUM(items, per_row => (5, 0)) FROM orders", PROGRAMMING, "items, per_row => (5, 0", "low"),
    ("SELECT SUM(items, per_row => (0, 5, 9)) FROM orders", PROGRAMMING, "items, per_row => (0, 5, 9", "(0, 500)"),
    ("SELECT SUM(items, per_row => (0, 'x')) FROM orders", PROGRAMMING, "items, per_row => (0, 'x'", "(0, 500)"),
    (
        "SELECT SUM(items, per_row => (0, 1), per_row => (0, 1)) FROM orders",
        PROGRAMMING,
        "items, per_row => (0, 1",
        "once",
    ),
    ("SELECT SUM(note, per_row => (0, 5)) FROM orders", PROGRAMMING, "SUM(note", "SUM(x"),
    ("SELECT COUNT(*, per_row => (0, 5)) FROM orders", UNSUPPORTED, "COUNT(*, per_row => (0, 5", "SUM"),
    ("SELECT COUNT(*, per_group => (1, 5)) FROM orders", PROGRAMMING, "COUNT(*, per_group => (1, 5", "(0, 5)"),
    ("SELECT COUNT(*, per_group => (0, 1.5)) FROM orders", PROGRAMMING, "COUNT(*, per_group => (0, 1.5", "(0, 5)"),
    (
        "SELECT COUNT(DISTINCT note, per_group => (0, 1)) FROM orders",
        UNSUPPORTED,
        "COUNT(DISTINCT note, per_group => (0, 1",
        "max_rows_contributed",
    ),
    (
        "SELECT SUM(DISTINCT items, per_group => (0, 1)) FROM orders",
        UNSUPPORTED,
        "SUM(DISTINCT items, per_group => (0, 1",
        "per_row",
    ),
    (
        "SELECT STDDEV(items, per_group => (0, 5)) FROM orders",
        UNSUPPORTED,
        "STDDEV(items, per_group => (0, 5",
        "per_row",
    ),
    (
        "SELECT CORR(items, amount, per_row => (0, 5)) FROM orders",
        UNSUPPORTED,
        "CORR(items, amount, per_row => (0, 5",
        "SUM",
    ),
    ("SELECT SUM(ABS(items, per_row => (0, 5))) FROM orders", UNSUPPORTED, "items, per_row => (0, 5", "SUM(x"),
    (
        "SELECT SUM(n, per_row => (0, 5)) FROM (SELECT COUNT(*) AS n FROM orders)",
        UNSUPPORTED,
        "n, per_row => (0, 5",
        "remove them",
    ),
    (
        "SELECT SUM(s) FROM (SELECT customer_id, SUM(items, per_group => (0, 5)) AS s FROM orders GROUP BY 1)",
        UNSUPPORTED,
        "SUM(items, per_group => (0, 5",
        "each row",
    ),
    ("SELECT SUM(items CLAMPED BETWEEN 0 AND 5) FROM orders", SYNTAX, "CLAMPED BETWEEN", "ANON_SUM"),
    ("SELECT ANON_SUM(items CLAMPED BETWEEN 0) FROM orders", SYNTAX, "CLAMPED BETWEEN", "ANON_SUM"),
    ("SELECT ANON_PRODUCT(items) FROM orders", UNSUPPORTED, "ANON_PRODUCT", "ANON_AVG"),
    ("SELECT ANON_SUM(itms CLAMPED BETWEEN 0 AND 5) FROM orders", UNKNOWN, "itms", "items"),
    (clause("epsilon = 1", "SUM(amuont) FROM orders"), UNKNOWN, "amuont", "amount"),
    (clause("epsilon = 1", "COUNT(*) FORM orders WHERE"), SYNTAX, "orders", "did you mean FROM instead of FORM"),
    (
        "SELECT n, DP_INTERVAL_LOW(n) FROM (SELECT COUNT(*) AS n FROM orders)",
        UNSUPPORTED,
        "DP_INTERVAL_LOW(n",
        "in the SELECT of",
    ),
    ("SELECT COUNT(*) AS n, DP_INTERVAL_LOW(n, 0.9) FROM orders", UNSUPPORTED, "DP_INTERVAL_LOW(n, 0.9", "AS n"),
    ("SELECT COUNT(*) AS n, DP_INTERVAL_LOW() FROM orders", UNSUPPORTED, "DP_INTERVAL_LOW", "AS n"),
    ("SELECT COUNT(*) AS n, DP_INTERVAL_LOW(l) AS l FROM orders", UNSUPPORTED, "DP_INTERVAL_LOW(l", "AS n"),
    ("SELECT COUNT(*) AS n, DP_INTERVAL_LOW(m) AS l FROM orders", UNKNOWN, "m", '"n"'),
    (
        "SELECT customer_id, COUNT(*) AS n, DP_INTERVAL_LOW(n) FROM orders GROUP BY customer_id",
        UNSUPPORTED,
        "DP_INTERVAL_LOW",
        "docs/sql.md",
    ),
]


@pytest.mark.parametrize(("sql", "kind", "marked", "hint"), REFUSED, ids=[sql for sql, *_ in REFUSED])
def test_refused(sql: str, kind: type[dpsql.Error], marked: str, hint: str, shop: dpsql.Connection) -> None:
    sql, marked, hint = (
        re.sub(r"\bper_(row|group)\b", r"contribution_bounds_\g<0>", text) for text in (sql, marked, hint)
    )
    before = shop.budget.spent
    with pytest.raises(dpsql.Error) as caught:
        shop.execute(sql)
    error = caught.value
    assert type(error) is kind, repr(error)
    assert error.at is not None
    assert error.at.text[error.at.start : error.at.end + 1] == marked
    assert hint in (error.hint or "")
    assert "\0" not in str(error)
    assert shop.budget.spent == before


@pytest.mark.parametrize(
    ("options", "keywords", "said"),
    [
        ("epsilon = 0.2", {"epsilon": 0.3}, "epsilon=0.3"),
        ("delta = 1e-8", {"delta": 1e-7}, "delta=1e-07"),
        ("max_groups_contributed = 2", {"max_groups": 3}, "max_groups=3"),
        ("max_rows_contributed = 2", {"max_rows_per_group": 3}, "max_rows_per_group=3"),
        ("mechanism = laplace", {"mechanism": "gaussian"}, "mechanism=gaussian"),
    ],
)
def test_the_clause_and_a_keyword_differ(
    options: str, keywords: dict[str, Any], said: str, shop: dpsql.Connection
) -> None:
    with pytest.raises(dpsql.ProgrammingError, match=said) as caught:
        shop.execute(clause(options), **keywords)
    assert caught.value.at is not None
    assert caught.value.hint == "set it in one place"


def test_the_tokens_keep_their_places() -> None:
    sql = clause("max_groups_contributed = 2, epsilon = 0.5")
    tokens, options = read_options(Dialect.get_or_raise("duckdb").tokenize(sql), sql, {})
    assert [(option.name, option.value) for option in options[0].options] == [
        ("max_groups_contributed", "2"),
        ("epsilon", "0.5"),
    ]
    assert [token.text for token in tokens][:3] == ["SELECT", "region", ","]
    assert all(sql[token.start : token.end + 1] == token.text for token in tokens)


def test_a_default_name_shows_no_bounds(shop: dpsql.Connection) -> None:
    cursor = shop.execute(
        "SELECT SUM(items, contribution_bounds_per_row => (0, 5)), COUNT(*, contribution_bounds_per_group => (0, 1)),"
        " ANON_AVG(amount CLAMPED BETWEEN 0 AND 1) FROM orders",
        epsilon=1,
    )
    assert [column[0] for column in cursor.description or ()] == ["sum(items)", "count_star()", "avg(amount)"]


def test_an_aggregate_with_and_without_bounds_are_two(shop: dpsql.Connection) -> None:
    explained = shop.explain(
        "SELECT SUM(items) AS a, SUM(items, contribution_bounds_per_group => (0, 5)) AS b,"
        " SUM(items, contribution_bounds_per_group => (0, 5)) AS c FROM orders HAVING c > 1"
    )
    (release,) = explained.releases
    assert [measure.linf for measure in release.measures] == [40, 5]
