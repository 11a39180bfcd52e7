"""A chart by altair. All text is drawn as text: no name and no value can become markup."""

from __future__ import annotations

from datetime import date, datetime, time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import altair as alt

from dpsql.plot.chart import ERROR, FAINT, INK, MOST_WRITTEN, NOISE, ON_DARK, ON_LIGHT, SHADES, VALUE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpsql.plot.chart import Chart, Panel

WIDTH = 340
HEIGHT = 220
BAR = 24
CELL = 86
GREY = {"Color": INK, "Opacity": FAINT}


def draw_altair(chart: Chart) -> Any:
    draw = {"bars": _bars, "line": _line, "heat map": _heat_map}[chart.kind]
    panels = [draw(chart, panel) for panel in chart.panels]
    drawn = panels[0] if len(panels) == 1 else alt.hconcat(*panels, spacing=28)
    title = alt.TitleParams(text="; ".join(("± at 95 %", *chart.notes)), anchor="start")
    lines = {f"{line}{what}": value for line in ("grid", "domain", "tick") for what, value in GREY.items()}
    return _as_picture(
        drawn.properties(title=title, background="transparent").configure(
            axis={"labelColor": INK, "titleColor": INK, **lines},
            title={"color": INK, "fontSize": 11, "fontWeight": "normal"},
            legend={"labelColor": INK, "titleColor": INK},
            view={"stroke": None},
        )
    )


def _as_picture(chart: Any) -> Any:
    """The chart, which a notebook shows as SVG unless a renderer was chosen: the default one fetches its scripts."""

    def shown(*arguments: Any, **options: Any) -> Any:
        drawn_by = "svg" if alt.renderers.active == "default" and find_spec("vl_convert") else alt.renderers.active
        with alt.renderers.enable(drawn_by):
            return type(chart)._repr_mimebundle_(chart, *arguments, **options)

    object.__setattr__(chart, "_repr_mimebundle_", shown)
    return chart


def _bars(chart: Chart, panel: Panel) -> Any:
    base = _base(chart, panel)
    keys, values, end = (alt.X, alt.Y, alt.Y2) if chart.upright else (alt.Y, alt.X, alt.X2)
    place = keys("key:N", sort=None, title=chart.axes[0], axis=_axis(chart, panel))
    colour = alt.condition("datum.is_noise", alt.value(NOISE), alt.value(VALUE))
    bars = base.mark_bar().encode(place, values("value:Q", title=panel.name), color=colour)
    errors = base.mark_errorbar(color=ERROR, ticks=len(chart.places) <= 2 * MOST_WRITTEN, thickness=2).encode(
        place, values("low:Q", title=panel.name), end("high:Q")
    )
    size = {"height": HEIGHT, "width": min(2 * WIDTH, BAR * len(chart.places))} if chart.upright else {"width": WIDTH}
    return (bars + errors).properties(**size)


def _axis(chart: Chart, panel: Panel) -> Any:
    """Bars that lie in several panels share their labels; an answer without keys has none."""
    if chart.axes == ("",) or (panel is not chart.panels[0] and not chart.upright):
        return None
    return alt.Axis(labelAngle=0, labelOverlap=chart.upright)


def _line(chart: Chart, panel: Panel) -> Any:
    (axis,) = chart.axes
    base = _base(chart, panel).encode(x=alt.X("key:T", title=axis))
    band = base.mark_area(color=ERROR, opacity=0.3).encode(y=alt.Y("low:Q", title=panel.name), y2="high:Q")
    line = base.mark_line(color=VALUE, strokeWidth=2).encode(y=alt.Y("value:Q", title=panel.name))
    return (band + line).properties(width=WIDTH * 1.5, height=HEIGHT)


def _heat_map(chart: Chart, panel: Panel) -> Any:
    down, across = chart.axes
    columns = {place[1] for place in chart.places}
    base = _base(chart, panel).encode(
        x=alt.X("across:N", sort=None, title=across), y=alt.Y("key:N", sort=None, title=down)
    )
    cells = base.mark_rect().encode(color=alt.Color("value:Q", title=panel.name, scale=alt.Scale(range=list(SHADES))))
    if len(columns) > MOST_WRITTEN:
        return cells
    written = base.mark_text(fontSize=11).encode(
        text="shown:N",
        color=alt.condition(f"datum.value > {panel.middle!r}", alt.value(ON_DARK), alt.value(ON_LIGHT)),
    )
    return (cells + written).properties(width=CELL * len(columns))


def _base(chart: Chart, panel: Panel) -> Any:
    told = [alt.Tooltip("key:N", title=chart.axes[0]), alt.Tooltip("shown:N", title=panel.name)]
    return alt.Chart(alt.InlineData(list(_records(chart, panel)))).encode(tooltip=told)


def _records(chart: Chart, panel: Panel) -> Iterator[dict[str, Any]]:
    for place, point in zip(chart.places, panel.points, strict=True):
        key, *across = map(_read, place)
        record = {"key": key, "across": across[0] if across else None, "shown": "NULL"}
        yield record if point is None else record | vars(point) | {"is_noise": point.is_noise}


def _read(key: Any) -> Any:
    """A day begins at midnight: without a time, browsers would take it for midnight in Greenwich."""
    if isinstance(key, date) and not isinstance(key, datetime):
        key = datetime.combine(key, time())
    return key.isoformat() if isinstance(key, datetime) else key
