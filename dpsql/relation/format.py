"""Relations for people to read: Aggregate[region](Filter[amount > 10](Scan orders))."""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING

from dpsql.expressions.format import format_expression, format_value
from dpsql.expressions.tree import Column
from dpsql.relation.relation import (
    CrossUnitJoin,
    Distinct,
    Filter,
    Join,
    LightUnits,
    Mark,
    PerUnit,
    Project,
    Relation,
    Scan,
    SemiJoin,
    SetOp,
    ValuesTable,
    Window,
)

if TYPE_CHECKING:
    from dpsql.expressions.tree import Expression
    from dpsql.relation.relation import Aggregate, AggregateCall, WindowCall

WIDEST = 100
"""What is longer is written on several lines."""


def format_aggregate(aggregate: Aggregate) -> str:
    keys = f"[{', '.join(map(format_expression, aggregate.keys))}]" if aggregate.keys else ""
    below = [format_relation(aggregate.source)]
    if aggregate.listed is not None:
        below.append(f"groups of {format_relation(aggregate.listed)}")
    return _laid_out(f"Aggregate{keys}", below)


def format_relation(relation: Relation) -> str:
    match relation:
        case Scan(table=table):
            return f"Scan {table}"
        case ValuesTable(name):
            return f"ValuesTable {name}"
        case Filter(source, condition):
            return _laid_out(f"Filter[{format_expression(condition)}]", [format_relation(source)])
        case Project(source, columns):
            return _laid_out(f"Project[{_columns(columns)}]", [format_relation(source)])
        case Join(left, right, kind, condition):
            name = "Join" if kind == "INNER" else f"{kind.capitalize()}Join"
            return _laid_out(name + _test(condition), [format_relation(left), format_relation(right)])
        case CrossUnitJoin(left=left, right=right, pairs=_, condition=condition):
            return _laid_out(
                f"CrossUnitJoin[{format_expression(condition)}]", [format_relation(left), format_relation(right)]
            )
        case SemiJoin(source, other, condition, negated):
            name = "AntiJoin" if negated else "SemiJoin"
            return _laid_out(name + _test(condition), [format_relation(source), format_relation(other)])
        case Mark(test, name):
            return _laid_out(f"Mark[{name}]", [format_relation(test)])
        case SetOp(kind, left, right):
            return _laid_out(f"SetOp[{kind}]", [format_relation(left), format_relation(right)])
        case Distinct(source):
            return _laid_out("Distinct", [format_relation(source)])
        case PerUnit(source, keys, calls):
            made = [f"{format_call(call)} AS {name}" for name, call in calls]
            return _laid_out(f"PerUnit[{', '.join([_columns(keys), *made])}]", [format_relation(source)])
        case Window(source, columns):
            made = [f"{_window(call)} AS {name}" for name, call in columns]
            return _laid_out(f"Window[{', '.join(made)}]", [format_relation(source)])
        case LightUnits(source, most_rows):
            return _laid_out(f"LightUnits[at most {most_rows:,} rows]", [format_relation(source)])


def format_call(call: AggregateCall) -> str:
    arguments = ", ".join(map(format_expression, call.arguments)) or "*"
    if call.fraction is not None:
        arguments += f", {format_value(call.fraction)}"
    bounds = "" if call.group_bounds is None else " within [{}, {}]".format(*map(format_value, call.group_bounds))
    return f"{call.name}({'DISTINCT ' * call.distinct}{arguments}){bounds}"


def _window(window: WindowCall) -> str:
    keys = f"PARTITION BY the unit{''.join(f', {format_expression(key)}' for key in window.keys)}"
    order = [
        format_expression(part.expression)
        + f"{' DESC' * part.descending} NULLS {'FIRST' if part.nulls_first else 'LAST'}"
        for part in window.order
    ]
    frame = window.frame and f"{window.frame.kind} BETWEEN {window.frame.start} AND {window.frame.end}"
    parts = [keys, *([f"ORDER BY {', '.join(order)}"] if order else []), *([frame] if frame else [])]
    return f"{format_call(window.call)} OVER ({' '.join(parts)})"


def _test(condition: Expression | None) -> str:
    return "" if condition is None else f"[{format_expression(condition)}]"


def _columns(columns: tuple[tuple[str, Expression], ...]) -> str:
    return ", ".join(
        name if isinstance(value, Column) and value.name == name else f"{format_expression(value)} AS {name}"
        for name, value in columns
    )


def _laid_out(head: str, below: list[str]) -> str:
    """The text on one line, if it fits; else with its inputs indented below."""
    line = f"{head}({', '.join(below)})"
    if len(line) <= WIDEST and "\n" not in line:
        return line
    inner = indent(",\n".join(below), "  ")
    return f"{head}(\n{inner}\n)"
