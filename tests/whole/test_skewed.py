"""What a printed interval says is true of skewed data: it holds plain SQL's answer, or says what it lacks.

Twelve tables: rows per person that are constant, geometric, Zipf's, or one person's alone, with values that are
log-normal, mostly zero, or spread evenly. Nothing is declared beyond the unit, bounds of values, and public groups; or
besides these, how many rows and groups of a person count.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

import dpsql

PEOPLE = 4000
SURE = 0.999999
"""The level of the intervals: what misses at this one is no accident."""
QUESTIONS = (
    "SELECT COUNT(*) AS n FROM t",
    "SELECT COUNT(x) AS n FROM t",
    "SELECT COUNT(DISTINCT uid) AS n FROM t",
    "SELECT SUM(x) AS n FROM t",
    "SELECT AVG(x) AS n FROM t",
    "SELECT VAR_POP(x) AS n FROM t",
    "SELECT COUNT(*) AS n FROM t WHERE kind = 'a'",
    "SELECT COUNT(DISTINCT uid) AS n FROM t WHERE kind = 'd'",
    "SELECT AVG(x) AS n FROM t WHERE x > 50",
    "SELECT SUM(x) / COUNT(*) AS n FROM t",
    "SELECT 100.0 * COUNT_IF(kind = 'a') / COUNT(*) AS n FROM t",
    "SELECT kind, COUNT(*) AS n FROM t GROUP BY kind ORDER BY kind",
    "SELECT kind, SUM(x) AS n FROM t GROUP BY kind ORDER BY kind",
    "SELECT kind, AVG(x) AS n FROM t GROUP BY kind ORDER BY kind",
    "SELECT kind, COUNT(DISTINCT uid) AS n FROM t GROUP BY kind ORDER BY kind",
    "SELECT kind, COUNT(*) / SUM(COUNT(*)) OVER () AS n FROM t GROUP BY kind ORDER BY kind",
    "SELECT AVG(c) AS n FROM (SELECT uid, COUNT(*) AS c FROM t GROUP BY uid)",
    "SELECT COUNT(*) AS n FROM (SELECT uid FROM t GROUP BY uid HAVING COUNT(*) > 3)",
    "SELECT AVG(s) AS n FROM (SELECT uid, SUM(x) AS s FROM t GROUP BY uid)",
    "SELECT COUNT(*) AS n FROM (SELECT DISTINCT uid, kind FROM t)",
)
ROWS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "constant": lambda _, n: np.full(n, 4),
    "geometric": lambda random, n: random.geometric(0.25, n),
    "zipf": lambda random, n: np.minimum(random.zipf(1.8, n), 2000),
    "one heavy person": lambda _, n: np.array([5000] + [2] * (n - 1)),
}
VALUES: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "log-normal": lambda random, n: np.minimum(random.lognormal(3, 1, n), 500),
    "mostly zero": lambda random, n: np.where(random.random(n) < 0.8, 0, random.uniform(0, 500, n)),
    "spread": lambda random, n: random.uniform(0, 100, n),
}


def cells(
    rows: str, values: str, people: int = PEOPLE, bound: int | None = None, level: float = SURE
) -> list[tuple[str, bool, bool]]:
    """Of each noisy cell with an interval: its question, whether it says that it lacks something, whether it holds."""
    random = np.random.default_rng(5)
    numbers = ROWS[rows](random, people)
    each = int(numbers.sum())
    table = pd.DataFrame(
        {
            "uid": np.repeat(np.arange(people), numbers),
            "kind": random.choice(list("abcd"), each, p=[0.5, 0.3, 0.15, 0.05]),
            "x": np.round(VALUES[values](random, each), 2),
        }
    )
    columns: dict[str, Any] = {
        "uid": "integer",
        "kind": {"type": "text", "values": list("abcd")},
        "x": {"type": "double", "bounds": [0, 500]},
    }
    raw = duckdb.connect()
    raw.register("made", table)
    raw.execute("CREATE TABLE t AS FROM made")
    fixed = {} if bound is None else {"contribution": {"max_groups": bound, "max_rows_per_group": bound}}
    found = []
    with dpsql.connect(
        raw, schema={**fixed, "tables": {"t": {"unit": "uid", "columns": columns}}}, budget=1e5
    ) as session:
        for sql, epsilon in zip(QUESTIONS, cycle((0.1, 0.5, 1, 3)), strict=False):
            try:
                result = session.execute(sql, epsilon=epsilon).result
            except dpsql.Unsupported:  # the average of what is 1 for everybody
                continue
            truth = raw.execute(sql).df()["n"].astype(float)
            frame = result.intervals(level)
            lacks = result.columns[-1].noise_only
            assert len(frame) == len(truth)
            for low, high, true in zip(frame["n_low"], frame["n_high"], truth, strict=True):
                if low is not None and not np.isnan(low):
                    found.append((sql, lacks, low - 1e-6 <= true <= high + 1e-6))
    raw.close()
    return found


@pytest.mark.parametrize(
    ("rows", "values"),
    [
        pytest.param(rows, values, marks=[pytest.mark.long] * (values != "log-normal"))
        for rows in ROWS
        for values in VALUES
    ],
)
def test_a_printed_interval_holds_or_says_what_it_lacks(rows: str, values: str) -> None:
    printed = [(sql, holds) for sql, lacks, holds in cells(rows, values) if not lacks]
    assert len(printed) >= 3
    assert [sql for sql, holds in printed if not holds] == []


@pytest.mark.parametrize(
    ("rows", "values", "people", "bound"),
    [
        pytest.param(rows, values, people, bound, marks=[pytest.mark.long] * (not quick))
        for rows in ROWS
        for values in VALUES
        for people in (PEOPLE, 40_000)
        for bound in (1, 5)
        for quick in [(rows, values, people, bound) == ("geometric", "log-normal", PEOPLE, 1)]
    ],
)
def test_a_printed_interval_includes_what_fixed_bounds_leave_out(
    rows: str, values: str, people: int, bound: int
) -> None:
    printed = [(sql, holds) for sql, lacks, holds in cells(rows, values, people, bound) if not lacks]
    assert len(printed) >= 3
    assert [sql for sql, holds in printed if not holds] == []
