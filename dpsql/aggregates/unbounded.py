"""What is said of a value without bounds: which column lacks them, and what the analyst can write instead."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime
from typing import TYPE_CHECKING

from dpsql.errors import UnboundedColumn
from dpsql.expressions.narrow import kept_properties
from dpsql.expressions.readable import readable
from dpsql.expressions.tree import columns_of
from dpsql.schema.types import Date, Decimal, Double, Integer, Timestamp

if TYPE_CHECKING:
    from dpsql.expressions.properties import Properties
    from dpsql.expressions.tree import Column, Expression, Known
    from dpsql.relation.relation import AggregateCall

BOUNDED = (Integer, Double, Decimal, Date, Timestamp)
FIRST, LAST = date(2024, 1, 1), date(2026, 12, 31)


def unbounded(call: AggregateCall, value: Expression, known: Known) -> UnboundedColumn:
    """
    SUM(cost * score), where only cost has bounds  ->  SUM needs bounds on "score"
    AVG(LN(cost))                                  ->  AVG needs a bounded value, and LN(cost) has no bounds
    """
    place = call.at if value.at is None else value.at
    lacking = {column.name: column for column in columns_of(value) if _lacks_bounds(column, known)}
    bounded = dict(known) | {name: _sample(column, kept_properties(column, known)) for name, column in lacking.items()}
    if not lacking or not _is_finite(kept_properties(value, bounded)):
        return UnboundedColumn(
            f"{call.said} needs a bounded value, and {readable(value)} has no bounds",
            at=place,
            hint=f"write  {_clamped(value)}  in its place, with bounds of your own",
            columns=tuple(lacking),
        )
    first = next(iter(lacking.values()))
    return UnboundedColumn(
        f"{call.said} needs bounds on {' and '.join(map(_quoted, lacking))}",
        at=place,
        hint=f"write  {_clamped(first)}  with bounds of your own; or the owner declares  "
        f"bounds: [{', '.join(map(str, _ends(first)))}]",
        columns=tuple(lacking),
    )


def _lacks_bounds(column: Column, known: Known) -> bool:
    """Texts and booleans have no bounds to lack."""
    return isinstance(column.type, BOUNDED) and not _is_finite(kept_properties(column, known))


def _is_finite(properties: Properties) -> bool:
    return properties.values is not None or (properties.low is not None and properties.high is not None)


def _sample(column: Column, properties: Properties) -> Properties:
    low, high = _ends(column)
    if isinstance(column.type, Timestamp):
        low, high = (datetime(end.year, end.month, end.day) for end in (FIRST, LAST))
    return replace(properties, low=low, high=high)


def _clamped(value: Expression) -> str:
    """The value, held within bounds by the question itself."""
    low, high = (f"DATE '{end}'" if isinstance(end, date) else end for end in _ends(value))
    return f"LEAST(GREATEST({readable(value)}, {low}), {high})"


def _ends(value: Expression) -> tuple[date, date] | tuple[int, int]:
    return (FIRST, LAST) if isinstance(value.type, Date | Timestamp) else (0, 500)


def _quoted(name: str) -> str:
    return f'"{name}"'
