"""A chart by matplotlib, as a figure that notebooks show once and that needs no window."""

from __future__ import annotations

import math
import warnings
from io import BytesIO
from typing import TYPE_CHECKING, Any

from matplotlib import font_manager, rcParams
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import StrMethodFormatter

from dpsql.plot.chart import ERROR, FAINT, INK, MOST_WRITTEN, NOISE, ON_DARK, ON_LIGHT, SHADES, VALUE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpsql.plot.chart import Chart, Panel, Point

ROW, CELL = 0.28, 0.75
"""Inches of a bar or of a line of cells, and of a cell."""


NUMBER = StrMethodFormatter("{x:,.6g}")
WIDE_FONTS = (
    *("Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans JP", "Noto Sans SC", "WenQuanYi Zen Hei", "IPAGothic"),
    *("Hiragino Sans", "PingFang SC", "Yu Gothic", "Microsoft YaHei", "Malgun Gothic", "Noto Sans", "Unifont"),
)
"""Fonts with many alphabets, as systems have them."""


class Picture(Figure):
    """A figure outside pyplot is shown only by those who know how; this one knows itself."""

    def _repr_png_(self) -> bytes:
        written = BytesIO()
        with warnings.catch_warnings():
            # A letter that no installed font has is drawn as a box; the notebook need not say so for each.
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            self.savefig(written, format="png", bbox_inches="tight")
        return written.getvalue()


def draw_matplotlib(chart: Chart) -> Figure:
    draw = {"bars": _bars, "line": _line, "heat map": _heat_map}[chart.kind]
    lying = chart.kind == "bars" and not chart.upright
    size = (_width(chart) * len(chart.panels), _height(chart))
    figure = Picture(figsize=size, layout="constrained", facecolor="none")
    grid = figure.subplots(1, len(chart.panels), squeeze=False, sharey="row" if lying else False)
    for axes, panel in zip(grid[0], chart.panels, strict=True):
        _quiet(axes)
        draw(chart, panel, axes)
    _let_fonts_help(figure)
    figure.suptitle(_plain("; ".join(("± at 95 %", *chart.notes))), x=0.01, ha="left", color=INK, fontsize=9)
    return figure


def _width(chart: Chart) -> float:
    """A heat map needs room for the numbers in its cells."""
    columns = len({place[1] for place in chart.places}) if chart.kind == "heat map" else 0
    return max(5.2, 1.5 + CELL * columns) if columns <= MOST_WRITTEN else 5.2


def _height(chart: Chart) -> float:
    if chart.kind == "heat map":
        return max(3.0, 0.9 + 1.3 * ROW * len({down for down, _ in chart.places}))
    return 3.0 if chart.kind == "line" or chart.upright else max(1.4, 0.9 + ROW * len(chart.places))


def _bars(chart: Chart, panel: Panel, axes: Axes) -> None:
    labels = [_plain(place[0]) for place in chart.places]
    places = range(len(labels))
    values = [_value(point) for point in panel.points]
    whiskers = {"yerr" if chart.upright else "xerr": _errors(panel)}
    style: dict[str, Any] = {
        "color": [NOISE if point is not None and point.is_noise else VALUE for point in panel.points],
        "ecolor": ERROR,
        "capsize": 3 if len(labels) <= 2 * MOST_WRITTEN else 0,
        **whiskers,
    }
    if chart.upright:
        axes.bar(places, values, **style)
        axes.grid(visible=False, axis="x")
        every = 1 + len(labels) // (MOST_WRITTEN + 2)
        axes.set_xticks(places[::every], labels[::every])
        axes.set_xlabel(_plain(chart.axes[0]), color=INK)
        axes.set_ylabel(_plain(panel.name), color=INK)
        axes.yaxis.set_major_formatter(NUMBER)
        axes.axhline(0, color=INK, linewidth=0.6)
        return
    axes.barh(places, values, **style)
    axes.grid(visible=False, axis="y")
    axes.set_yticks(places, labels)
    axes.set_ylim(len(labels) - 0.3, -0.7)
    axes.set_xlabel(_plain(panel.name), color=INK)
    axes.xaxis.set_major_formatter(NUMBER)
    axes.axvline(0, color=INK, linewidth=0.6)
    if panel is chart.panels[0]:
        axes.set_ylabel(_plain(chart.axes[0]), color=INK)


def _line(chart: Chart, panel: Panel, axes: Axes) -> None:
    dates = [place[0] for place in chart.places]
    low, high = ([_end(point, name) for point in panel.points] for name in ("low", "high"))
    axes.fill_between(dates, low, high, color=ERROR, alpha=0.3, linewidth=0)
    axes.plot(dates, [_value(point) for point in panel.points], color=VALUE)
    axes.set_xlabel(_plain(chart.axes[0]), color=INK)
    axes.set_ylabel(_plain(panel.name), color=INK)
    axes.yaxis.set_major_formatter(NUMBER)
    axes.tick_params(axis="x", rotation=30)


def _heat_map(chart: Chart, panel: Panel, axes: Axes) -> None:
    rows, columns = (list(dict.fromkeys(place[at] for place in chart.places)) for at in (0, 1))
    cells = [[math.nan] * len(columns) for _ in rows]
    found = [(rows.index(down), columns.index(across)) for down, across in chart.places]
    for (row, column), point in zip(found, panel.points, strict=True):
        cells[row][column] = _value(point)
    image = axes.imshow(cells, aspect="auto", cmap=LinearSegmentedColormap.from_list("dpsql", SHADES))
    axes.grid(visible=False)
    axes.set_xticks(range(len(columns)), list(map(_plain, columns)), rotation=45 if len(columns) > MOST_WRITTEN else 0)
    axes.set_yticks(range(len(rows)), list(map(_plain, rows)))
    axes.set_ylabel(_plain(chart.axes[0]), color=INK)
    axes.set_xlabel(_plain(chart.axes[1]), color=INK)
    axes.set_title(_plain(panel.name), color=INK, fontsize=10)
    if len(columns) > MOST_WRITTEN:
        scale = axes.figure.colorbar(image, ax=axes, format=NUMBER)
        scale.ax.tick_params(colors=INK, labelsize=8)
        return
    for (row, column), point in zip(found, panel.points, strict=True):
        if point is not None:
            shown = point.shown.replace(" ± ", "\n± ").replace(" [", "\n[")
            colour = ON_DARK if point.value > panel.middle else ON_LIGHT
            axes.text(column, row, shown, ha="center", va="center", color=colour, fontsize=7)


def _let_fonts_help(figure: Figure) -> None:
    """Letters that the usual font does not have are looked for in others, where they are installed."""
    installed = set(font_manager.get_font_names())
    families = [*rcParams["font.sans-serif"][:1], *(name for name in WIDE_FONTS if name in installed)]
    for text in figure.findobj(Text):
        text.set_fontfamily(families)


def _quiet(axes: Axes) -> None:
    axes.set_facecolor("none")
    axes.tick_params(colors=INK, labelsize=8)
    axes.grid(color=INK, alpha=FAINT, linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)


def _errors(panel: Panel) -> list[list[float]]:
    return [
        [abs(_end(point, name) - _value(point)) if point is not None else math.nan for point in panel.points]
        for name in ("low", "high")
    ]


def _value(point: Point | None) -> float:
    return math.nan if point is None else point.value


def _end(point: Point | None, name: str) -> float:
    end = None if point is None else getattr(point, name)
    return math.nan if end is None else end


def _plain(label: str) -> str:
    """The label, escaped: matplotlib would read text between dollar signs as a formula."""
    return label.replace("$", r"\$")
