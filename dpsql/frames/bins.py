"""The edges of a histogram's bins: as given, or evenly spaced between the declared bounds."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from dpsql.errors import ProgrammingError, UnboundedColumn
from dpsql.schema.types import Double, Integer

if TYPE_CHECKING:
    from dpsql.schema.model import Column

HINT = "give the edges in order: bins=[0, 18, 65, 120], or bins=range(0, 101, 10)"


def bin_edges(column: Column, bins: object) -> list[Any]:
    if isinstance(bins, int) and not isinstance(bins, bool):
        return _evenly_spaced(column, bins)
    if isinstance(bins, str) or not isinstance(bins, Iterable):
        raise ProgrammingError(f"bins are edges or a number, not {bins!r}", hint=HINT)
    edges = [edge.item() if hasattr(edge, "item") else edge for edge in bins]
    try:
        rising = all(low < high for low, high in pairwise(edges))
    except TypeError:
        rising = False
    if not rising or len(edges) < 2:
        raise ProgrammingError("the edges of bins are at least two, each above the one before", hint=HINT)
    return edges


def _evenly_spaced(column: Column, bins: int) -> list[float]:
    if not isinstance(column.type, Integer | Double) or bins < 1:
        raise ProgrammingError(f'"{column.name}" cannot be cut into {bins} equal bins', hint=HINT)
    if column.bounds is None:
        raise UnboundedColumn(f'{bins} bins need bounds on "{column.name}"', hint=HINT, columns=(column.name,))
    low, high = (float(end) for end in column.bounds)  # type: ignore[arg-type]  # numbers, by the type above
    return [low + (high - low) * part / bins for part in range(bins)] + [high]
