"""Where noise goes in SQL above a release: which columns are plain, which are replayed, and of which nothing is known.

Each case is a query over a release r (k a key, n and m noisy), a release by levels, whose rows share noise, and a
public table p. Columns are written with a letter: p plain, n noisy, l lost; ! says that noise chose the rows.
"""

from __future__ import annotations

import pytest
from sqlglot import exp, parse_one

from dpsql.sql.noise_tracking import LOST, MARK, PLAIN, Kind, Made, NoisyRows, propagate_error

TABLES = {
    "r": NoisyRows(
        (("k", PLAIN), ("n", Made(Kind.NOISY, f"n{MARK}")), ("m", Made(Kind.NOISY, f"m{MARK}")), ("median", LOST)),
    ),
    "levels": NoisyRows((("k", PLAIN), ("n", Made(Kind.NOISY, f"n{MARK}", by_row=True)))),
    "p": NoisyRows((("k", PLAIN), ("people", PLAIN))),
}
CASES = {
    # rows as they are
    "SELECT k, n FROM r": "pn",
    "SELECT * FROM r": "pnnl",
    "SELECT t.* FROM r AS t": "pnnl",
    "WITH t AS (SELECT k, n AS c FROM r) SELECT k, c FROM t": "pn",
    "WITH t(a, b) AS (SELECT k, n FROM r) SELECT a, b FROM t": "pn",
    "SELECT a, b FROM (SELECT k, n FROM r) AS t(a, b)": "pn",
    "SELECT k, n FROM r UNION ALL SELECT k, people FROM p": "pn",
    "SELECT 'x' AS k, 1 AS n UNION ALL SELECT k, n FROM r UNION ALL SELECT k, m FROM r": "pn",
    "SELECT k, n FROM r UNION ALL SELECT k, median FROM r": "pl",
    "SELECT k, n FROM r UNION SELECT k, m FROM r": "pl!",
    "SELECT DISTINCT k, n FROM r": "pl",
    "SELECT DISTINCT k FROM r": "p",
    # arithmetic and functions
    "SELECT n * 100, n / 12, ROUND(n, 1), CEIL(n), ABS(n), COALESCE(n, 0), CAST(n AS INT) FROM r": "nnnnnnn",
    "SELECT n - m, n / m, k + 1, 2 FROM r": "nnpp",
    "SELECT n AS a, a * 2 AS b, b - 1 AS c FROM r": "nnn",
    "SELECT CASE WHEN n > 5 THEN 1 ELSE 0 END FROM r": "n",
    "SELECT CASE WHEN k = 5 AND n > 5 THEN m ELSE 0 END, CASE k WHEN 5 THEN n END FROM r": "nn",
    # places that noise hardly ever meets
    "SELECT CASE WHEN n = 5 THEN 1 ELSE 0 END, CAST(n <> 5 AS INT), CAST(n IN (5, 6) AS INT) FROM r": "lll",
    "SELECT CASE n WHEN 5 THEN 1 END, IF(n BETWEEN 4 AND 6, 1, 0), IF(n > 4 AND n < 6, 1, 0) FROM r": "lll",
    "SELECT GREATEST(n, m), LEAST(n, m, k), GREATEST(n, m, n + 1), LEAST(n, LEAST(m, n / 2)) FROM r": "nnll",
    "SELECT median, ROUND(median), n + median FROM r": "lll",
    "SELECT n * RANDOM() FROM r": "l",
    "SELECT unheard_of(n), unheard_of(k) FROM r": "lp",
    # windows
    "SELECT SUM(n) OVER (), LAG(n) OVER (ORDER BY k), n - LAG(n) OVER (ORDER BY k) FROM r": "nnn",
    "SELECT n / SUM(n) OVER (PARTITION BY k), ROW_NUMBER() OVER (ORDER BY k) FROM r": "np",
    "SELECT RANK() OVER (ORDER BY n), SUM(n) OVER (ORDER BY n), MAX(n) OVER () FROM r": "lll",
    "SELECT SUM(n) OVER w FROM r WINDOW w AS (ORDER BY k)": "n",
    "SELECT SUM(n) OVER w FROM r WINDOW w AS (ORDER BY m)": "l",
    # groups of groups
    "SELECT k, SUM(n), AVG(n), COUNT(*), MAX(n), MEDIAN(n), COUNT(DISTINCT n) FROM r GROUP BY k": "pnnplll",
    "SELECT SUM(n) FILTER (WHERE k = 1), SUM(n) FILTER (WHERE m > 1) FROM r": "nl",
    "SELECT n, COUNT(*) FROM r GROUP BY n": "ll!",
    "SELECT n > 5, COUNT(*) FROM r GROUP BY 1": "ll!",
    "SELECT n > 5 AS big, COUNT(*) FROM r GROUP BY ALL": "ll!",
    # steps and kinks of many rows, which may all err to one side
    "SELECT SUM(CASE WHEN n > 5 THEN 1 ELSE 0 END), AVG(ROUND(n, -3)), COUNT(NULLIF(n, 0)) FROM r": "lll",
    "SELECT SUM(SIGN(n)) OVER (), SUM(LEAST(n, 1)) OVER (), LAG(ROUND(n)) OVER (ORDER BY k) FROM r": "lln",
    "SELECT SUM(c), SUM(d) FROM (SELECT n > 5 AS c, n * 2 AS d FROM r)": "ln",
    "SELECT SUM(c) FROM (SELECT ROUND(n) AS c FROM r UNION ALL SELECT m FROM r)": "l",
    "SELECT SUM(ABS(n)), SUM(GREATEST(n, 0)), ABS(SUM(n)), GREATEST(AVG(n), 0) FROM r": "llnn",
    "SELECT SQRT(ABS(n)), LN(GREATEST(n, 1)), SQRT(n + 5), ABS(SQRT(n)) FROM r": "llnn",
    "SELECT SUM(m - n * 2 + n / 3), SUM(SQRT(n) + n * m), ROUND(SUM(n) / 12), SUM(n) > 5 FROM r": "nnnn",
    "SELECT SUM(CASE WHEN k > 5 THEN n ELSE 0 END), SUM(CASE n WHEN 5 THEN 1 END) FROM r": "nl",
    """SELECT n AS "n~1", n * 2 AS n FROM r""": None,
    "SELECT n * 2, '~#~' FROM r": None,
    # joins and subqueries
    "SELECT k, n / people FROM r JOIN p USING (k)": "pn",
    "SELECT a.n - b.n FROM r AS a JOIN r AS b ON a.k = b.k + 1": "n",
    "SELECT a.n FROM r AS a JOIN r AS b ON a.n = b.n": "n!",
    "SELECT a.k, n FROM r AS a JOIN p ON people < n": "pn!",
    "SELECT n / (SELECT SUM(n) FROM r) FROM r": "n",
    "SELECT n - (SELECT b.n FROM r AS b WHERE b.k = a.k - 1) FROM r AS a": "l",
    "SELECT SUM(n) / (SELECT SUM(n) FROM r) FROM r": "l",
    "SELECT SUM(n) OVER () / (SELECT SUM(people) FROM p) FROM r": "n",
    "SELECT n / (SELECT MAX(n) FROM r) FROM r": "l",
    "SELECT n - (SELECT n FROM r ORDER BY n LIMIT 1) FROM r": "l",
    "SELECT k IN (SELECT k FROM r WHERE n > 5), people FROM p": "lp",
    # choices
    "SELECT k, n FROM r WHERE n > 5": "pn!",
    "SELECT k, n FROM r WHERE k > 5": "pn",
    "SELECT k, n FROM r ORDER BY n DESC": "pn",
    "SELECT k, n FROM r ORDER BY n DESC LIMIT 3": "pn!",
    "SELECT k, n FROM r ORDER BY 2 LIMIT 3": "pn!",
    "SELECT k, n FROM r ORDER BY k LIMIT 3": "pn",
    "SELECT k, -k AS n FROM r ORDER BY n LIMIT 3": "pp",
    "SELECT * FROM (SELECT k, n FROM r ORDER BY n) LIMIT 3": "pn!",
    "SELECT k, n FROM r QUALIFY ROW_NUMBER() OVER (ORDER BY n) = 1": "pn!",
    "SELECT DISTINCT ON (k) k, n FROM r ORDER BY n": "pn!",
    "SELECT COUNT(*), SUM(n) FROM r WHERE n > 5": "ll!",
    "SELECT k, SUM(n) OVER () FROM (SELECT k, n FROM r WHERE n > 5)": "pl!",
    "SELECT k, SUM(n) FROM r GROUP BY k HAVING SUM(n) > 5": "pn!",
    "SELECT k, n FROM r WHERE k IN (SELECT k FROM r WHERE m > 5)": "pn!",
    # rows that share noise
    "SELECT k, ROUND(n, 1) FROM levels": "pn",
    "SELECT k, SUM(n) OVER () FROM levels": "pl",
    "SELECT a.n - b.n FROM levels AS a JOIN levels AS b USING (k)": "l",
    # clauses that are not followed
    "SELECT * EXCLUDE (k) FROM r": None,
    "SELECT k, n FROM r UNION BY NAME SELECT k, n FROM r": None,
    "WITH RECURSIVE t AS (SELECT 1 AS k UNION ALL SELECT k + 1 FROM t WHERE k < 3) SELECT k FROM t": None,
    "SELECT n, u FROM r, UNNEST([1, 2]) AS t(u)": None,
}


@pytest.mark.parametrize("sql", CASES)
def test_where_noise_goes(sql: str) -> None:
    query = parse_one(sql, dialect="duckdb")
    assert isinstance(query, exp.Query)
    found = propagate_error(query, TABLES)
    if found is None:
        assert CASES[sql] is None
        return
    letters = "".join(made.kind.name[0].lower() for _, made in found.rows.columns)
    assert letters + "!" * found.rows.chosen == CASES[sql]


def test_replicas_stand_beside_what_they_are_replicas_of() -> None:
    query = parse_one("WITH t AS (SELECT k, n AS c FROM r) SELECT k, c * 2 AS d FROM t WHERE c > 5", dialect="duckdb")
    assert isinstance(query, exp.Query)
    propagated = propagate_error(query, TABLES)
    assert propagated is not None
    assert propagated.sql(2) == (
        'WITH t AS (SELECT k, n AS c, "n~0" AS "c~0", "n~1" AS "c~1" FROM r) '
        'SELECT k, c * 2 AS d, "c~0" * 2 AS "d~0", "c~1" * 2 AS "d~1" FROM t WHERE c > 5'
    )


def test_a_subquery_is_read_once_for_all_replicas() -> None:
    query = parse_one("SELECT n / (SELECT SUM(n) FROM r) AS c FROM r", dialect="duckdb")
    assert isinstance(query, exp.Query)
    propagated = propagate_error(query, TABLES)
    assert propagated is not None
    assert propagated.sql(2) == (
        'SELECT n / (SELECT SUM(n) FROM r) AS c, "n~0" / _value0."_value0~0" AS "c~0", "n~1" / _value0."_value0~1" '
        'AS "c~1" FROM r LEFT JOIN (SELECT SUM("n~0") AS "_value0~0", SUM("n~1") AS "_value0~1" FROM r) '
        "AS _value0 ON TRUE"
    )


def test_subqueries_without_from_stand_beside_one_row() -> None:
    query = parse_one("SELECT (SELECT SUM(n) FROM r) AS c", dialect="duckdb")
    assert isinstance(query, exp.Query)
    propagated = propagate_error(query, TABLES)
    assert propagated is not None
    assert propagated.sql(1) == (
        'SELECT (SELECT SUM(n) FROM r) AS c, _value0."_value0~0" AS "c~0" FROM (SELECT 1) AS _one_row '
        'LEFT JOIN (SELECT SUM("n~0") AS "_value0~0" FROM r) AS _value0 ON TRUE'
    )


def test_many_unions_take_no_longer_than_they_are_long() -> None:
    query = parse_one(" UNION ALL ".join(["SELECT k, n FROM r"] * 40), dialect="duckdb")
    assert isinstance(query, exp.Query)
    propagated = propagate_error(query, TABLES)
    assert propagated is not None
    assert propagated.rows.columns[1][1].kind is Kind.NOISY
