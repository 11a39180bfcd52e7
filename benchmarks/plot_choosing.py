"""Draws the plots of docs/choosing.md: what epsilon, bounds and contribution bounds do to answers, on made-up people.

    python benchmarks/plot_choosing.py

Errors are root mean squares against the truth, so that they hold both what noise adds and what bounds take away.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from PIL import Image

import dpsql

if TYPE_CHECKING:
    from matplotlib.axes import Axes

IMAGES = Path(__file__).parents[1] / "docs" / "images"
RANDOM = np.random.default_rng(7)
REPEATED = 100
COLOURS = ("#1f77b4", "#2ca02c", "#d9641e")
EPSILONS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


def session(frame: pd.DataFrame, upper: float, rows: int) -> dpsql.Connection:
    columns = {"person": "integer", "spent": {"type": "double", "bounds": [0, upper]}}
    table = {"unit": "person", "contribution": {"max_rows_per_group": rows}, "columns": columns}
    return dpsql.connect({"visits": frame}, schema={"tables": {"visits": table}}, budget=10_000)


def error(frame: pd.DataFrame, sql: str, truth: float, epsilon: float, upper: float = 500, rows: int = 1) -> float:
    """In percent of the truth."""
    with session(frame, upper, rows) as conn:
        found = [conn.execute(sql, epsilon=epsilon, fresh=True).fetchone()[0] for _ in range(REPEATED)]
    return float(100 * np.sqrt(np.mean(np.square(np.array(found, dtype=float) / truth - 1))))


def shown(axes: Axes, x: tuple[float, ...], measured: list[float], colour: str, name: str) -> None:
    axes.loglog(x, measured, "o-", color=colour, label=name)
    print(f"{name}: {dict(zip(x, [f'{value:.2g} %' for value in measured], strict=True))}")


def epsilon(axes: Axes) -> None:
    """A count and an average of groups of different sizes."""
    for people, colour in zip((100, 1_000, 10_000), COLOURS, strict=True):
        frame = pd.DataFrame({"person": range(people), "spent": RANDOM.uniform(0, 500, people)})
        measured = [error(frame, "SELECT COUNT(*) FROM visits", people, each) for each in EPSILONS]
        shown(axes, EPSILONS, measured, colour, f"{people:,} people")
    axes.axhline(5, color="#999999", lw=0.8, ls="--")
    axes.set(xlabel="epsilon of the question", ylabel="error of a count, in %")
    axes.set_xticks(EPSILONS, [f"{each:g}" for each in EPSILONS], minor=False)


def bounds(axes: Axes) -> None:
    """A sum of log-normal amounts, whose 99th percentile is about 320, under different upper bounds."""
    uppers = (30.0, 60.0, 125.0, 250.0, 500.0, 1_000.0, 4_000.0, 16_000.0, 64_000.0)
    frame = pd.DataFrame({"person": range(5_000), "spent": RANDOM.lognormal(3.5, 1.0, 5_000)})
    for each, colour in zip((0.05, 0.2, 1.0), COLOURS, strict=True):
        sql, truth = "SELECT SUM(spent) FROM visits", float(frame.spent.sum())
        measured = [error(frame, sql, truth, each, upper=upper) for upper in uppers]
        shown(axes, uppers, measured, colour, f"epsilon {each:g}")
    print("99th percentile", round(float(np.quantile(frame.spent, 0.99))), "largest", round(float(frame.spent.max())))
    axes.set(xlabel="declared upper bound", ylabel="error of a sum, in %")
    axes.set_xticks(uppers, [f"{upper:,.0f}" for upper in uppers], minor=False, rotation=30)


def rows(axes: Axes) -> None:
    """A count of visits, of which most people have few and some have many."""
    many = (1, 2, 3, 5, 8, 12, 20, 40, 80, 160)
    visits = np.repeat(np.arange(2_000), np.ceil(RANDOM.lognormal(0.8, 0.8, 2_000)).astype(int))
    frame = pd.DataFrame({"person": visits, "spent": 1.0})
    for each, colour in zip((0.05, 0.2, 1.0), COLOURS, strict=True):
        measured = [error(frame, "SELECT COUNT(*) FROM visits", len(frame), each, rows=most) for most in many]
        shown(axes, many, measured, colour, f"epsilon {each:g}")
    held = {most: f"{np.mean(np.bincount(visits) <= most):.0%}" for most in many}
    print("people whose rows all count:", held)
    axes.set(xlabel="max_rows_per_group", ylabel="error of a count of visits, in %")
    axes.set_xticks(many, [str(most) for most in many], minor=False)


PLOTS = {
    "epsilon": (epsilon, "More people need less epsilon"),
    "bounds": (bounds, "A bound too low loses money, a bound too high makes noise"),
    "rows": (rows, "Rows of one person: too few lose visits, too many make noise"),
}


def main() -> None:
    mpl.use("agg")
    plt.rcParams |= {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "lines.markersize": 4}
    for name, (draw, title) in PLOTS.items():
        figure, axes = plt.subplots(figsize=(6.4, 3.8), dpi=140, layout="constrained")
        draw(axes)
        axes.minorticks_off()
        axes.set_yticks(ticks := (0.1, 0.3, 1, 3, 10, 30, 100), [f"{tick:g}" for tick in ticks])
        axes.set_title(title, loc="left", fontsize=11)
        axes.grid(color="#dddddd", lw=0.6)
        axes.legend(fontsize=9, edgecolor="none", framealpha=0.8)
        figure.canvas.draw()
        image = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB")
        image.quantize(64).save(IMAGES / f"choosing_{name}.png", optimize=True)
        plt.close(figure)


if __name__ == "__main__":
    main()
