"""What fixed bounds leave out is at most what the histogram of rows per person says. docs/proofs/left_out.md."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.mechanisms.laplace import LaplaceNoise
from dpsql.mechanisms.left_out import CAPS, EDGES, LeftOut, RowsPerPerson

SMALL = LaplaceNoise(Fraction(1, 100))
QUESTIONS = (
    "SELECT COUNT(*) AS a, SUM(x) AS b, AVG(x) AS c, COUNT(x) AS d FROM t",
    "SELECT COUNT(*) AS a, SUM(x) AS b, AVG(x) AS c FROM t WHERE kind <> 'b' AND x > -3",
    "SELECT kind, COUNT(*) AS a, SUM(x) AS b, AVG(x) AS c FROM t GROUP BY kind ORDER BY kind",
    "SELECT kind, COUNT(DISTINCT uid) AS a FROM t GROUP BY kind ORDER BY kind",
    "SELECT day, COUNT_IF(x > 2) AS a, COUNT(x) AS b FROM t GROUP BY day ORDER BY day",
    "SELECT COUNT(*) AS a FROM (SELECT DISTINCT uid, kind, day FROM t)",
    "SELECT kind, COUNT(*) AS a FROM (SELECT uid, kind, day, COUNT(*) AS n FROM t GROUP BY uid, kind, day) AS g "
    "WHERE n > 1 GROUP BY kind ORDER BY kind",
    "SELECT COUNT(*) AS a FROM t WHERE uid IN (SELECT uid FROM t WHERE kind = 'a')",
)
COLUMNS = {
    "uid": "integer",
    "kind": {"type": "text", "values": list("abcd")},
    "day": {"type": "integer", "bounds": [1, 9]},
    "x": {"type": "integer", "bounds": [-5, 20], "nullable": True},
}


def histogram_of(rows: list[int]) -> RowsPerPerson:
    ends = (*EDGES, math.inf)
    first = [next(place for place, end in enumerate(ends) if number <= end) for number in rows]
    return RowsPerPerson(tuple(first.count(place) for place in range(len(ends))), SMALL, 1)


def test_the_bound_counts_everybody_from_above() -> None:
    rows = [1, 2, 2, 7, 30, 500]
    people = histogram_of(rows)
    for kept in (1, 2, 5):
        least = LeftOut(people, kept, 1, CAPS[0], 0.0, 1.0).most(0.9)
        assert sum(max(0, number - kept) for number in rows) <= least <= 1.35 * sum(rows) + 100
    assert people.cap == CAPS[0]
    assert histogram_of([*rows, *[2000] * 9]).cap == CAPS[1]
    assert histogram_of([*rows, *[10**6] * 9]).cap is None  # nobody knows how many they have


def test_who_counts_in_full_loses_nothing() -> None:
    people = histogram_of([3] * 50 + [100])
    assert LeftOut(people, 1, 4, CAPS[0], 0.0, 1.0).most(0.9) < 250
    assert LeftOut(people, 5, 1, 5, 0.0, 1.0).most(0.9) == 0


def test_the_noise_is_in_the_bound() -> None:
    """The bound of one table, drawn 400 times, holds as often as it says."""
    truth = histogram_of([4] * 3000)
    noise = LaplaceNoise(Fraction(20))
    held = 0
    for _ in range(400):
        drawn = noise.sample(len(truth.counts))
        counts = tuple(count + int(more) for count, more in zip(truth.counts, drawn, strict=True))
        left_out = LeftOut(RowsPerPerson(counts, noise, 1), 1, 1, CAPS[0], 0.0, 1.0)
        held += left_out.most(0.9) >= 3000 * 3
    assert held >= 400 * 0.9 - 3 * math.sqrt(400 * 0.09)


def test_too_few_people_tell_nothing() -> None:
    for people, known in ((100, False), (100_000, True)):
        counts = tuple(people if end == 4 else 0 for end in (*EDGES, 0))
        left_out = LeftOut(RowsPerPerson(counts, LaplaceNoise(Fraction(20)), 1), 1, 1, CAPS[0], 0.0, 1.0)
        assert left_out.is_known is known


@pytest.mark.parametrize("delta", [0, 1e-6])
@pytest.mark.parametrize(("groups", "rows"), [(1, 1), (2, 3), (3, 1), (1, 5)])
def test_no_question_leaves_out_more(groups: int, rows: int, delta: float) -> None:
    """Hardly any noise: every interval holds plain SQL's answer because of what may be left out, and of that alone."""
    rng = random.Random(f"{groups} {rows} {delta}")
    people = [rng.choice((1, 1, 2, 3, 5, 8, 20, 60)) for _ in range(40)]
    made = [
        (uid, rng.choice("aaabbcd"), rng.randint(1, 9), rng.choice((None, *range(-5, 21))))
        for uid, number in enumerate(people)
        for _ in range(number)
    ]
    schema: dict[str, Any] = {
        "contribution": {"max_groups": groups, "max_rows_per_group": rows},
        "tables": {"t": {"unit": "uid", "columns": COLUMNS}},
    }
    with duckdb.connect() as raw:
        raw.execute("CREATE TABLE t (uid BIGINT, kind TEXT, day BIGINT, x BIGINT)")
        raw.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", made)
        with dpsql.connect(raw, schema=schema, budget=1e9, delta=delta) as session:
            told = 0
            for sql in QUESTIONS:
                result = session.execute(sql, epsilon=1e6).result
                frame, plain = result.intervals(0.99), raw.execute(sql).df()
                for name in (column.name for column in result.columns if column.left_out is not None):
                    told += 1
                    inside = (frame[f"{name}_low"] <= plain[name] + 0.01) & (
                        plain[name] <= frame[f"{name}_high"] + 0.01
                    )
                    assert inside.all(), (sql, name, frame, plain)
    assert told >= 6
