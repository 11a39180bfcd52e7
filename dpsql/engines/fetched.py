"""Rows that a driver fetched as columns of numpy, NULL as masked values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Fetched = Literal["integer", "integers", "boolean", "double", "moment", "decimal", "other"]
"""What a column holds; `integers` are lists."""
EMPTY: dict[str, tuple[Any, Any]] = {
    "integer": (0, np.int64),
    "boolean": (False, np.bool_),
    "double": (0.0, np.float64),
    "moment": (np.datetime64(0, "us"), "datetime64[us]"),
}


def columns(rows: Sequence[Sequence[Any]], kinds: Mapping[str, Fetched]) -> dict[str, np.ndarray]:
    """Beside decimals, which as numbers would lose digits, all but whole numbers travel as text."""
    as_text = "decimal" in kinds.values()
    return {
        name: _column([row[place] for row in rows], kind, as_text=as_text and kind not in ("integer", "integers"))
        for place, (name, kind) in enumerate(kinds.items())
    }


def _column(values: list[Any], kind: Fetched, *, as_text: bool) -> np.ndarray:
    missing = [value is None for value in values]
    if kind == "integers":
        return _objects([None if value is None else np.array(value, dtype=np.int64) for value in values])
    if as_text:
        return _objects([None if value is None else str(value) for value in values])
    if kind not in EMPTY:
        return np.ma.masked_array(_objects(values), mask=missing)
    instead, stored = EMPTY[kind]
    filled = [instead if gap else value for value, gap in zip(values, missing, strict=True)]
    return np.ma.masked_array(np.array(filled, dtype=stored), mask=missing)


def _objects(values: list[Any]) -> np.ndarray:
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found
