"""Draws the plots of docs/mechanisms.md from measured errors, and prints the figures that the page quotes.

    python benchmarks/plot_mechanisms.py

Whole queries are asked where errors are compared. Where thousands of draws are needed, the mechanisms are called.
"""

from __future__ import annotations

from fractions import Fraction
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from PIL import Image

import dpsql
from dpsql.accounting.curves import mu_for
from dpsql.mechanisms import gaussian, laplace, smooth_sensitivity
from dpsql.mechanisms.local_sensitivity import order_statistic, smooth_reach
from dpsql.mechanisms.permute_and_flip import MostFrequent
from dpsql.mechanisms.propose_test_release import StabilityTest
from dpsql.mechanisms.stable_value import distances

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

IMAGES = Path(__file__).parents[1] / "docs" / "images"
EPSILON, DELTA = Fraction(1), Fraction(1, 10**6)
HIGHEST = 10**6
"""Incomes are declared from 0 to a million; half of the people have less than about 3000."""
FAR_TOO_HIGH = 10**8
REPEATED = 25

BLUE, ORANGE, GREEN, PURPLE, OLIVE, GREY = "#0072b2", "#d55e00", "#009e73", "#aa4499", "#999933", "#777777"


def incomes(people: int) -> NDArray[np.float64]:
    return np.sort(np.clip(np.random.default_rng(7).lognormal(np.log(3000), 1.2, people), 0, HIGHEST))


def asked_of(values: NDArray[np.float64], delta: Fraction = DELTA, highest: int = HIGHEST) -> dpsql.Connection:
    """One row for each person, with a budget that does not end. Each question names its own epsilon and delta."""
    database = duckdb.connect()
    database.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, income DOUBLE)")
    database.execute("INSERT INTO people SELECT i, list_extract($1, i) FROM range(1, len($1) + 1) AS r(i)", [values])
    columns = {"id": "integer", "income": {"type": "double", "bounds": [0, highest]}}
    schema = {"dataset": "people", "tables": {"people": {"unit": "id", "unique": True, "columns": columns}}}
    return dpsql.connect(database, schema=schema, budget=10**9, delta=0.1 if delta else 0)


def answers(conn: dpsql.Connection, sql: str, times: int = REPEATED, **options: Any) -> list[float]:
    """The answers that were not refused."""
    cost = {"epsilon": EPSILON, "fresh": True} | ({"delta": DELTA} if conn.budget.filter.delta else {})
    drawn = [conn.execute(sql, **cost, **options).fetchone() for _ in range(times)]
    return [float(row[0]) for row in drawn if row is not None and row[0] is not None]


def error(drawn: Sequence[float], truth: float, times: int = REPEATED) -> float:
    """What 4 of 5 answers stay below; unknown where most were refused."""
    return float(np.quantile(np.abs(np.array(drawn) - truth), 0.8)) if len(drawn) > times / 2 else np.nan


# -- the plots ---------------------------------------------------------------------------------------------------------


def median(axes: Axes) -> None:
    sizes = [100, 300, 1000, 3000, 10_000, 30_000, 100_000]
    ways: dict[str, tuple[str, dict[str, Any], Fraction]] = {
        "smooth, Laplace": (ORANGE, {"mechanism": "smooth"}, DELTA),
        "smooth, Cauchy (no delta)": (PURPLE, {"mechanism": "smooth"}, Fraction(0)),
        "ptr, propose=100": (GREEN, {"mechanism": "ptr", "propose": 100}, DELTA),
        "ptr, propose=10": (OLIVE, {"mechanism": "ptr", "propose": 10}, DELTA),
        "exponential (default)": (BLUE, {}, DELTA),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    wide, noise = [], laplace.calibrated(HIGHEST, EPSILON)
    for size in sizes:
        values = incomes(size)
        truth = float(np.median(values))
        noisy = np.clip(truth + noise.sample(1000), 0, HIGHEST)
        wide.append(error(noisy.tolist(), truth))
        for name, (_, options, delta) in ways.items():
            with asked_of(values, delta) as conn:
                drawn = answers(conn, "SELECT MEDIAN(income) FROM people", **options)
            found[name].append(error(drawn, truth))
    axes.loglog(sizes, wide, "--", color=GREY, label="noise for the whole range")
    for name, (colour, _, _) in ways.items():
        axes.loglog(sizes, found[name], "o-", color=colour, label=name)
        print(f"median, {name}: {dict(zip(sizes, np.round(found[name], 1).tolist(), strict=True))}")
    print(f"median, noise for the whole range: {wide[-1]:.0f}")
    axes.set(xlabel="people", ylabel="error of the median (about 3000)", ylim=(0.05, 10**9))


def clip(axes: Axes) -> None:
    values, times = incomes(20_000), 60
    truth = int(values.sum())
    proposals = [20_000, 50_000, 100_000, 130_000, 160_000, 200_000, 400_000, 10**6, 3 * 10**6, 10**7, 5 * 10**7]
    with asked_of(values, highest=FAR_TOO_HIGH) as conn:
        plain = error(answers(conn, "SELECT SUM(income) FROM people", times), truth, times) / truth
        drawn = [
            answers(conn, "SELECT SUM(income) FROM people", times, mechanism="ptr", propose=proposal)
            for proposal in proposals
        ]
    errors = [error(each, truth, times) / truth for each in drawn]
    refused = [1 - len(each) / times for each in drawn]
    axes.axhline(100 * plain, ls="--", color=GREY, label="without a proposal")
    axes.loglog(proposals, 100 * np.array(errors), "o-", color=GREEN, label="ptr, clipped at the proposal")
    axes.set(xlabel="proposal: the most that one person counts", ylabel="error of the sum, %")
    shares = axes.twinx()
    shares.fill_between(proposals, refused, color=ORANGE, alpha=0.18, lw=0)
    shares.set(ylim=(0, 1), ylabel="share of refusals (shaded)")
    print(f"clip: true sum {truth}, largest {values[-1]:.0f}, plain {plain:.2%}")
    for proposal, share, off in zip(proposals, refused, errors, strict=True):
        beyond = (values > proposal).sum()
        print(f"clip: propose={proposal}: error {off:.2%}, refused {share:.0%}, {beyond} people beyond")


def refusal(axes: Axes) -> None:
    at = np.arange(81)
    for (epsilon, delta), colour in {
        (Fraction(1), DELTA): BLUE,
        (Fraction(1, 2), DELTA): GREEN,
        (Fraction(1, 2), Fraction(1, 10**10)): ORANGE,
    }.items():
        test = StabilityTest(epsilon, delta)
        axes.plot(at, [1 - test.pass_probability(int(distance)) for distance in at], color=colour, lw=1)
        shown = at[::5]
        passed = [test.passes(np.full(2000, distance)).mean() for distance in shown]
        label = f"epsilon {float(epsilon):g}, delta {float(delta):g}"
        axes.plot(shown, 1 - np.array(passed), "o", color=colour, label=label)
        print(f"refusal, {label}: threshold {test.threshold}")
    axes.set(xlabel="units to the nearest data that breaks the proposal", ylabel="probability of a refusal")


def tails(axes: Axes) -> None:
    values = incomes(10_000)
    cents = np.round(100 * values).astype(np.int64)
    target, times, highest = len(cents) // 2, 5000, 100 * HIGHEST
    truth = int(cents[target - 1])
    for name, noise, colour in (
        ("Cauchy, epsilon 1", smooth_sensitivity.cauchy(EPSILON), PURPLE),
        ("Laplace, epsilon 1, delta 1e-6", smooth_sensitivity.laplace(EPSILON, DELTA), ORANGE),
    ):
        reach = smooth_reach(noise.b, 0, highest)
        bounds = order_statistic(cents, 1, len(cents), target, reach, 1, 0, highest)
        drawn = [noise.release(Fraction(truth), bounds, 0, highest) for _ in range(times)]
        errors = np.sort(np.abs(np.array(drawn) - truth)) / 100
        axes.loglog(errors, 1 - np.arange(times) / times, color=colour, lw=2, label=name)
        levels = {level: round(float(np.quantile(errors, level)), 1) for level in (0.5, 0.9, 0.99, 0.999)}
        print(f"tails, {name}: {levels}")
    axes.set(
        xlim=(0.1, None), xlabel="error of the median of 10 000 incomes", ylabel="share of answers with more error"
    )


def mode(axes: Axes) -> None:
    leads, others, times = [0, 1, 2, 3, 4, 6, 8, 10, 13, 16, 20, 25, 30], 9, 1000
    test = StabilityTest(EPSILON, DELTA)
    right: dict[str, tuple[str, Callable[[int], float]]] = {
        "permute-and-flip (default)": (BLUE, lambda lead: _first(lead, others, times)),
        "exponential mechanism": (PURPLE, lambda lead: 1 / (1 + others * exp(-EPSILON * lead))),
        "stable: exact, or refused": (
            GREEN,
            lambda lead: float(test.passes(np.repeat(distances(np.array([lead]), 1), times)).mean()),
        ),
    }
    for name, (colour, share) in right.items():
        shares = [share(lead) for lead in leads]
        axes.plot(leads, shares, "o-", color=colour, label=name)
        print(f"mode, {name}: {dict(zip(leads, np.round(shares, 2).tolist(), strict=True))}")
    axes.set(xlabel="lead of the most frequent of 10 values", ylabel="share of right answers")


def _first(lead: int, others: int, times: int) -> float:
    choice, counts = MostFrequent(EPSILON, 1), [100 + lead, *[100] * others]
    return sum(choice.sample(counts) == 0 for _ in range(times)) / times


def noise(axes: Axes) -> None:
    groups = np.arange(1, 41)
    multiplier = 1 / mu_for(EPSILON, DELTA)
    for name, colour, scaled in (
        ("Laplace", BLUE, [laplace.calibrated(int(g), EPSILON) for g in groups]),
        ("Gaussian", ORANGE, [gaussian.calibrated(int(g), multiplier) for g in groups]),
    ):
        axes.plot(groups, [each.std for each in scaled], color=colour, lw=1)
        shown = slice(0, None, 3)
        measured = [float(each.sample(20_000).std()) for each in scaled[shown]]
        axes.plot(groups[shown], measured, "o", color=colour, label=name)
    axes.set(xlabel="groups in which one person counts", ylabel="standard deviation of a count", ylim=(0, None))
    less = [
        int(g) for g in groups if gaussian.calibrated(int(g), multiplier).std < laplace.calibrated(int(g), EPSILON).std
    ]
    print(f"noise: Gaussian has less from {less[0]} groups on")


def threshold(axes: Axes) -> None:
    people = np.arange(1, 121)
    multiplier = 1 / mu_for(EPSILON, DELTA)
    for groups, name, colour, added in (
        (1, "Laplace, 1 group per person", BLUE, laplace.calibrated(1, EPSILON)),
        (4, "Laplace, 4 groups", PURPLE, laplace.calibrated(4, EPSILON)),
        (4, "Gaussian, 4 groups", ORANGE, gaussian.calibrated(4, multiplier)),
    ):
        least = added.threshold(groups, DELTA / 20)
        axes.plot(people, [added.tail(least - int(units)) for units in people], color=colour, lw=1)
        shown = people[4::5]
        axes.plot(
            shown, [(units + added.sample(2000) >= least).mean() for units in shown], "o", color=colour, label=name
        )
        print(f"threshold, {name}: {least} units")
    axes.set(xlabel="people in the group", ylabel="probability that it is shown")


def pairs(axes: Axes) -> None:
    """COUNT over visits to the same place, by how many people visit one."""
    people, sizes = 20_000, [3, 10, 30, 100, 300, 1000]
    ways: dict[str, tuple[str, Callable[[int], dict[str, Any]]]] = {
        "smooth": (ORANGE, lambda _: {"mechanism": "smooth"}),
        "ptr, propose=3 times that + 150": (GREEN, lambda size: {"mechanism": "ptr", "propose": 3 * size + 150}),
        "ptr, propose=4000": (PURPLE, lambda _: {"mechanism": "ptr", "propose": 4000}),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for size in sizes:
        conn, truth = _visits(people, people // size)
        with conn:
            for name, (_, options) in ways.items():
                sql = "SELECT COUNT(*) FROM visits AS a JOIN visits AS b ON a.place = b.place"
                drawn = answers(conn, sql, **options(size))
                found[name].append(error(drawn, truth) / truth)
    for name, (colour, _) in ways.items():
        axes.loglog(sizes, 100 * np.array(found[name]), "o-", color=colour, label=name)
        print(f"pairs, {name}: {dict(zip(sizes, [f'{share:.2%}' for share in found[name]], strict=True))}")
    axes.set(xlabel="people per place", ylabel="error of the number of pairs, %")


def _visits(people: int, places: int) -> tuple[dpsql.Connection, int]:
    """A table in which everybody visits one place, and the true number of pairs."""
    chosen = np.random.default_rng(3).integers(0, places, people)
    database = duckdb.connect()
    database.execute("CREATE TABLE visits (person INTEGER PRIMARY KEY, place INTEGER)")
    database.execute("INSERT INTO visits SELECT i, list_extract($1, i) FROM range(1, len($1) + 1) AS r(i)", [chosen])
    columns = {"person": "integer", "place": "integer"}
    schema = {"dataset": "visits", "tables": {"visits": {"unit": "person", "unique": True, "columns": columns}}}
    conn = dpsql.connect(database, schema=schema, budget=10**9, delta=0.1)
    return conn, int((np.bincount(chosen) ** 2).sum())


def averages() -> None:
    """No plot: the usual noise is hard to beat."""
    values, times = incomes(20_000), 300
    truth = float(values.mean())
    for name, options, delta in (
        ("Laplace noise", {"mechanism": "laplace"}, DELTA),
        ("ptr", {"mechanism": "ptr", "propose": 1.2 * HIGHEST / len(values)}, DELTA),
        ("smooth, Laplace", {"mechanism": "smooth"}, DELTA),
        ("smooth, Cauchy", {"mechanism": "smooth"}, Fraction(0)),
    ):
        with asked_of(values, delta) as conn:
            drawn = answers(conn, "SELECT AVG(income) FROM people", times, **options)
        print(f"average, {name}: {error(drawn, truth, times):.0f} of {truth:.0f}")


PLOTS: dict[str, tuple[Callable[[Axes], None], str]] = {
    "noise": (noise, "Laplace or Gaussian, epsilon 1, delta 1e-6"),
    "median": (median, "Median of skewed data, epsilon 1, delta 1e-6"),
    "mode": (mode, "Mode of 10 values, epsilon 1"),
    "refusal": (refusal, "When a test refuses"),
    "clip": (clip, "Sum of 20 000 incomes, declared up to 100 million, epsilon 1"),
    "tails": (tails, "Smooth noise: two tails"),
    "pairs": (pairs, "Pairs of people at the same place, epsilon 1, delta 1e-6"),
    "threshold": (threshold, "Groups that are not public, epsilon 1, delta 5e-8"),
}


def main() -> None:
    mpl.use("agg")
    plt.rcParams |= {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "lines.markersize": 4}
    IMAGES.mkdir(exist_ok=True)
    for name, (draw, title) in PLOTS.items():
        figure, axes = plt.subplots(figsize=(6.4, 3.8), dpi=140, layout="constrained")
        draw(axes)
        axes.set_title(title, loc="left", fontsize=11)
        axes.grid(color="#dddddd", lw=0.6)
        axes.legend(fontsize=9, edgecolor="none", framealpha=0.8, ncols=2 if name == "median" else 1)
        figure.canvas.draw()
        pixels = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB")
        pixels.quantize(128).save(IMAGES / f"mechanisms_{name}.png", optimize=True)
        plt.close(figure)
    averages()


if __name__ == "__main__":
    main()
