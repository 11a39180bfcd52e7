"""Measures, statistics and answers for people to read."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.aggregates.estimate import Formula, Linear, Ratio, Reported
from dpsql.aggregates.measure import (
    Average,
    ClippedInL2,
    CountRows,
    CountUnits,
    CountUnitsWith,
    CountValues,
    Disjoint,
    DownWeighted,
    Matched,
    Mode,
    OverDistinct,
    Quantile,
    Recentred,
    SumValues,
    UnitsBeyond,
)
from dpsql.engines.duckdb.render import render_term
from dpsql.expressions.date_arithmetic import EPOCH
from dpsql.expressions.format import format_expression, format_value
from dpsql.schema.types import Date, Timestamp

if TYPE_CHECKING:
    from dpsql.aggregates.estimate import Answer
    from dpsql.aggregates.measure import Grid, Measure, Statistic
    from dpsql.schema.types import ColumnType

NAMED_QUANTILES = {Fraction(0): "minimum", Fraction(1, 2): "median", Fraction(1): "maximum"}


def format_measure(measure: Measure) -> str:
    """The counted or summed value, in the words of SQL, with its bounds."""
    match measure:
        case CountUnits():
            return "people"
        case CountUnitsWith(argument):
            return f"people with {format_expression(argument)}"
        case CountRows(most):
            return f"rows{_at_most(most)}"
        case CountValues(argument, most):
            return f"values of {format_expression(argument)}{_at_most(most)}"
        case SumValues(argument=argument, quantum=quantum, low=low, high=high, centre=centre, group=group, mean=mean):
            what = f"sum of {'the mean per person of ' if mean else ''}{format_expression(argument)}"
            return (
                f"{what} clamped to {_range((low, high), quantum)}"
                + (f", minus {format_value(centre * quantum)} each" if centre else "")
                + (f", {_range(group, quantum)} per person" if group is not None else "")
                + (f", in steps of {quantum}" if quantum != 1 else "")
            )
        case Recentred(inner):
            return f"{format_measure(inner)}, centred"
        case Disjoint(inner):
            return f"disjoint: {format_measure(inner)}"
        case DownWeighted(inner):
            return f"down-weighted: {format_measure(inner)}"
        case ClippedInL2(inner):
            return f"L2-clipped: {format_measure(inner)}"
        case UnitsBeyond(inner):
            return f"people who exceed the bound of: {format_measure(inner)}"
        case OverDistinct(base, inner):
            return f"over distinct {format_expression(base)}: {format_measure(inner)}"


def quantum_of(measure: Measure, rows: int) -> Fraction:
    """The value of one quantum of the measure's column, if one person may add `rows` rows to a group."""
    if isinstance(measure, ClippedInL2 | DownWeighted):
        return quantum_of(measure.inner, rows) / measure.finer
    inner = measure.inner if isinstance(measure, OverDistinct | Recentred | Disjoint) else measure
    worth = inner.quantum if isinstance(inner, SumValues) else Fraction(1)
    if isinstance(measure, Disjoint):
        return worth / measure.finer
    return worth / measure.times(rows) if isinstance(measure, Recentred) else worth


def format_statistic(statistic: Statistic) -> str:
    match statistic:
        case Quantile(argument, grid, fraction):
            what = NAMED_QUANTILES.get(fraction) or f"quantile {format_value(fraction)}"
            return f"{what} of {format_expression(argument)} in {_values_of(grid, argument.type)}"
        case Mode(argument, values):
            return f"mode of {format_expression(argument)}, one of {len(values):,} values"
        case Average(argument, grid):
            return f"average of {format_expression(argument)} in {_range((grid.low, grid.high), grid.quantum)}"
        case Matched(_, measure, left, right):
            most = f"at most {left} rows on the left and {right} on the right"
            return f"{format_measure(measure)} of pairs; one person has {most}"


def format_answer(answer: Answer) -> str:
    """How the answer follows from noisy columns."""
    match answer.estimate:
        case Linear():
            return _linear(answer.estimate)
        case Ratio(above, below, low, high):
            ends = ("anything" if end is None else format_value(end) for end in (low, high))
            kept = "" if low is None and high is None else ", within [{}, {}]".format(*ends)
            return f"{_closed(_linear(above))} / {_closed(_linear(below))}{kept}"
        case Formula(sql):
            return render_term(sql)
        case Reported(name):
            return name


def _linear(estimate: Linear) -> str:
    parts = [name if weight == 1 else f"{weight} * {name}" for name, weight in estimate.weights]
    return " + ".join(parts + ([str(estimate.constant)] if estimate.constant or not parts else []))


def _closed(text: str) -> str:
    return f"({text})" if " " in text else text


def _at_most(most: int | None) -> str:
    return "" if most is None else f", at most {most} per person"


def _values_of(grid: Grid, kind: ColumnType) -> str:
    """Dates are days since 1970 to the grid, and timestamps microseconds."""
    if isinstance(kind, Date):
        return f"[{EPOCH.date() + timedelta(grid.low)}, {EPOCH.date() + timedelta(grid.high)}]"
    if isinstance(kind, Timestamp):
        return "[{}, {}]".format(*(EPOCH + timedelta(microseconds=end) for end in (grid.low, grid.high)))
    return _range((grid.low, grid.high), grid.quantum)


def _range(ends: tuple[int, int], quantum: Fraction) -> str:
    low, high = (format_value(end * quantum) for end in ends)
    return f"[{low}, {high}]"
