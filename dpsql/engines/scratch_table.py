"""A table of the scratch database, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class ScratchTable:
    """A table that the finish reads: columns of these types, made from stored columns by these expressions."""

    name: str
    stored: Mapping[str, str]
    """Column -> type, in the engine's words."""
    columns: Mapping[str, tuple[str, str]]
    """Column -> type, and the expression over stored columns that gives it."""
    totals: str = ""
    """GROUPING SETS of the keys, where sums over groups are wanted beside (or instead of) the groups."""
