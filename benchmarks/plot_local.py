"""Draws the plots of docs/local.md: how far estimates are off, measured, by mechanism and epsilon, and by shuffling.

    python benchmarks/plot_local.py

All mechanisms, and central noise, count the same 10 000 people.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from PIL import Image

from dpsql.local import KaryResponse, OptimizedUnaryEncoding, Rappor, SubsetSelection, shuffled_epsilon
from dpsql.mechanisms.laplace import LaplaceNoise

if TYPE_CHECKING:
    from matplotlib.axes import Axes

IMAGES = Path(__file__).parents[1] / "docs" / "images"
PEOPLE, REPEATED = 10_000, 20
EPSILONS = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0)
KINDS = {
    "k-ary response": (KaryResponse, "#1f77b4"),
    "RAPPOR": (Rappor, "#9467bd"),
    "OUE": (OptimizedUnaryEncoding, "#2ca02c"),
    "subset selection": (SubsetSelection, "#d9641e"),
}


def errors(axes: Axes, k: int) -> None:
    """The error of a count, as a root mean square over all values; lines are the textbook's, dots are measured."""
    truth = np.random.default_rng(1).zipf(1.5, PEOPLE) % k
    counts = np.bincount(truth, minlength=k)
    for name, (kind, colour) in KINDS.items():
        measured, wanted = [], []
        for epsilon in EPSILONS:
            mechanism = kind(range(k), epsilon)
            found = [mechanism.estimate(mechanism.perturb(truth)).counts - counts for _ in range(REPEATED)]
            measured.append(float(np.sqrt(np.mean(np.square(found)))))
            wanted.append(float(np.sqrt(mechanism.total_variance(PEOPLE) / k)))
        axes.loglog(EPSILONS, wanted, "-", color=colour, label=name)
        axes.loglog(EPSILONS, measured, "o", color=colour)
        print(f"{k} values, {name}: {dict(zip(EPSILONS, map(round, measured), strict=True))}")
    central = [LaplaceNoise(1 / Fraction(epsilon)).std for epsilon in EPSILONS]
    axes.loglog(EPSILONS, central, "--", color="#444444", label="central noise (Laplace)")
    axes.set(xlabel="epsilon", ylabel="error of a count of 10 000 people")
    axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS], minor=False)
    axes.minorticks_off()


def few(axes: Axes) -> None:
    errors(axes, 4)


def many(axes: Axes) -> None:
    errors(axes, 32)


def shuffled(axes: Axes) -> None:
    people = [100, 1000, 10_000, 100_000, 1_000_000]
    for local, colour in ((0.5, "#9467bd"), (1.0, "#1f77b4"), (2.0, "#2ca02c"), (4.0, "#d9641e")):
        found = [shuffled_epsilon(local, n, 1e-6) for n in people]
        axes.loglog(people, found, "o-", color=colour, label=f"each report epsilon {local:g}")
        print(f"shuffled, {local:g}: {dict(zip(people, [f'{e:.3f}' for e in found], strict=True))}")
    axes.set(xlabel="people", ylabel="epsilon of all reports, shuffled")


PLOTS = {
    "few": (few, "Four values: error against epsilon"),
    "many": (many, "32 values: error against epsilon"),
    "shuffled": (shuffled, "What shuffling gives, delta 1e-6"),
}


def main() -> None:
    mpl.use("agg")
    plt.rcParams |= {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "lines.markersize": 4}
    for name, (draw, title) in PLOTS.items():
        figure, axes = plt.subplots(figsize=(6.4, 3.8), dpi=140, layout="constrained")
        draw(axes)
        axes.set_title(title, loc="left", fontsize=11)
        axes.grid(color="#dddddd", lw=0.6)
        axes.legend(fontsize=9, edgecolor="none", framealpha=0.8)
        figure.canvas.draw()
        pixels = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB")
        pixels.quantize(128).save(IMAGES / f"local_{name}.png", optimize=True)
        plt.close(figure)


if __name__ == "__main__":
    main()
