"""Bounds that queries find by themselves, beside the best that can be had by looking at the data, and beside guesses.

    python benchmarks/auto_bounds.py            three skewed data sets, five questions each
    python benchmarks/auto_bounds.py --runs 50  more answers for each figure

An error is what an answer is off by from the truth, bounding included: the root of the mean square over groups and
answers. The best bounds are those of the least error on a grid of clips, rows and groups, for each question by itself.
"""

from __future__ import annotations

import argparse
import math
from itertools import product
from typing import Any

import duckdb
import numpy as np

import dpsql

PEOPLE = 20_000
LIMIT = 1_000_000
GROUPS = 10
EPSILON = 1.0
GUESSES = (
    *((100, 1, 1), (500, 2, 2), (1_000, 5, 5), (1_000, 10, 10), (5_000, 2, 5)),
    *((10_000, 1, 10), (10_000, 5, 10), (50_000, 10, 5), (100_000, 2, 10), (LIMIT, 1, 1)),
)
"""Clip, rows in a group and groups, as somebody might declare them who has not seen the data."""
CLIPS = (125, 250, 500, 1_000, 2_000, 4_000, 8_000, 16_000)
ROWS = (1, 2, 4, 8, 16, 32, 128)
REACHED = (1, 3, 10)

QUESTIONS = {
    "SUM": "SELECT SUM(amount{bounds}) AS s FROM visits",
    "SUM by region": "SELECT region, SUM(amount{bounds}) AS s FROM visits GROUP BY region ORDER BY region",
    "COUNT by region": "SELECT region, COUNT(*) AS n FROM visits GROUP BY region ORDER BY region",
    "AVG by region": "SELECT region, AVG(amount{bounds}) AS a FROM visits GROUP BY region ORDER BY region",
    "COUNT, SUM by region": "SELECT region, COUNT(*) AS n, SUM(amount{bounds}) AS s FROM visits "
    "GROUP BY region ORDER BY region",
}
COUNTED = QUESTIONS["COUNT by region"]


def data_sets(seed: int = 7) -> dict[str, duckdb.DuckDBPyConnection]:
    """Visits of people, of whom a few have most (Zipf), with amounts of which a few are most."""
    rng = np.random.default_rng(seed)
    made = {}
    for name in ("log-normal", "Pareto", "mostly zero"):
        people = np.repeat(np.arange(PEOPLE), np.minimum(rng.zipf(2.2, PEOPLE), 500))
        if name == "log-normal":
            amounts = np.exp(rng.normal(3, 1.5, len(people)))
        elif name == "Pareto":
            amounts = 10 * (1 + rng.pareto(1.5, len(people)))
        else:
            amounts = np.where(rng.random(len(people)) < 0.9, 0.0, 100 * (1 + rng.pareto(1.2, len(people))))
        columns = {
            "person": people,
            "region": rng.integers(0, GROUPS, len(people)),
            "amount": np.minimum(amounts, LIMIT),
        }
        connection = duckdb.connect()
        connection.register("made", {key: np.asarray(values) for key, values in columns.items()})
        connection.execute("CREATE TABLE visits AS SELECT * FROM made")
        connection.unregister("made")
        made[name] = connection
    return made


def schema(auto: bool) -> dict[str, Any]:
    bound = "auto" if auto else 1
    return {
        "dataset": "visits",
        "contribution": {"max_groups": bound, "max_rows_per_group": bound},
        "tables": {
            "visits": {
                "unit": "person",
                "columns": {
                    "person": "integer",
                    "region": {"type": "integer", "bounds": [0, GROUPS - 1]},
                    "amount": {"type": "double", "bounds": [0, LIMIT], "auto": auto},
                },
            }
        },
    }


def numbers(rows: list[tuple[Any, ...]], sql: str) -> np.ndarray:
    """The answer without its keys, a row for each group."""
    return np.array([[float(value) for value in row["region" in sql :]] for row in rows])


def errors_of_guesses(raw: Any, sql: str, guesses: list[tuple[int, int, int]]) -> list[float]:
    """What bounding does without noise, and the noise at the price."""
    truth = numbers(raw.execute(sql.format(bounds="")).fetchall(), sql)
    counts = numbers(raw.execute(COUNTED).fetchall(), COUNTED)
    found = []
    with (
        dpsql.connect(raw, schema=schema(False), budget=1e14, delta=1e-6, ledger=":memory:") as free,
        dpsql.connect(raw, schema=schema(False), budget=EPSILON, delta=1e-6, ledger=":memory:") as paid,
    ):
        for clip, rows, groups in guesses:
            asked = sql.format(bounds=f", contribution_bounds_per_row => (0, {clip})")
            options: dict[str, Any] = {"max_rows_per_group": rows, "max_groups": groups}
            bias = numbers(free.execute(asked, epsilon=1e10, **options).fetchall(), sql) - truth
            explained = paid.explain(asked, epsilon=EPSILON, **options)
            if "AVG" in sql:
                # What is off in the sum from the middle, over as many rows as count.
                kept = numbers(free.execute(COUNTED, epsilon=1e10, **options).fetchall(), COUNTED)
                count, centred = explained.releases[0].measures
                middle = np.abs(truth - clip / 2) * count.std
                noise = np.sqrt(middle**2 + (centred.std * centred.quantum) ** 2) / np.minimum(kept, counts)
            else:
                noise = np.array([part.half_width / 1.96 for part in explained.columns if part.half_width is not None])
            found.append(mean(np.sqrt(np.mean(bias**2 + noise**2, axis=0))))
    return found


def errors_of_auto(raw: Any, sql: str, runs: int) -> tuple[np.ndarray, str]:
    truth = numbers(raw.execute(sql.format(bounds="")).fetchall(), sql)
    found = []
    for _ in range(runs):
        with dpsql.connect(raw, schema=schema(True), budget=EPSILON, delta=1e-6, ledger=":memory:") as paid:
            cursor = paid.execute(sql.format(bounds=""), epsilon=EPSILON)
            found.append(numbers(cursor.fetchall(), sql) - truth)
            bounds = cursor.receipt.bounds[0]
    errors: np.ndarray = np.sqrt(np.mean(np.square(np.concatenate(found)), axis=0))
    return errors, bounds.partition(": ")[2]


def mean(errors: np.ndarray) -> float:
    """Of several columns the geometric mean."""
    return math.exp(float(np.mean(np.log(errors))))


def compare(raw: Any, sql: str, runs: int) -> tuple[float, float, float, tuple[int, int, int], str]:
    """The error at the best bounds, at those found, and on average over the guesses."""
    tried = product(CLIPS if "amount" in sql else (LIMIT,), ROWS, REACHED if "GROUP" in sql else (1,))
    looked = list(tried)
    best, where = min(zip(errors_of_guesses(raw, sql, looked), looked, strict=True))
    guessed = float(np.mean(errors_of_guesses(raw, sql, list(GUESSES))))
    found, bounds = errors_of_auto(raw, sql, runs)
    return best, mean(found), guessed, where, bounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--only", default="", help="questions and data sets whose names hold this")
    arguments = parser.parse_args()
    print(f"{PEOPLE:,} people, limit [0, {LIMIT:,}], epsilon {EPSILON:g}, delta 1e-6: error of an answer")
    print(f"{'':34}{'best':>12}{'auto':>12}{'guesses':>12}{'auto/best':>10}   bounds: best; found in the last run")
    for name, raw in data_sets().items():
        for question, sql in QUESTIONS.items():
            if arguments.only not in f"{name}, {question}":
                continue
            best, auto, guessed, where, bounds = compare(raw, sql, arguments.runs)
            line = f"{name + ', ' + question:34}{best:12,.1f}{auto:12,.1f}{guessed:12,.1f}{auto / best:10.2f}"
            print(f"{line}   {where}; {bounds}", flush=True)


if __name__ == "__main__":
    main()
