"""A noisy table as the text that the ledger keeps: a list for each column.

Many whole numbers are kept as their bytes: to write them down would take longer than to draw them.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

MANY = 1_000
FOUND = "_found"
"""Beside the columns."""
BYTES = np.dtype("<i8")


def as_text(columns: Mapping[str, np.ndarray], found: tuple[int | str, ...] = ()) -> str:
    """`found` are bounds that the question found, in any order that its reader knows."""
    beside = {FOUND: list(found)} if found else {}
    return json.dumps({name: _written(column) for name, column in columns.items()} | beside)


def from_text(text: str) -> dict[str, list[Any]]:
    return {
        name: column if isinstance(column, list) else _read(column)
        for name, column in json.loads(text).items()
        if name != FOUND
    }


def found_in(text: str) -> tuple[int | str, ...]:
    return tuple(json.loads(text).get(FOUND, ()))


def _written(column: np.ndarray) -> list[Any] | str:
    if len(column) >= MANY and column.dtype.kind == "i" and not np.ma.getmaskarray(column).any():
        return base64.b64encode(np.ma.getdata(column).astype(BYTES).tobytes()).decode("ascii")
    if column.dtype.kind == "M":
        column = np.ma.masked_array(column.astype("datetime64[us]").astype(str), mask=np.ma.getmaskarray(column))
    values: list[Any] = column.tolist()
    return values


def _read(encoded: str) -> list[Any]:
    values: list[Any] = np.frombuffer(base64.b64decode(encoded), dtype=BYTES).tolist()
    return values
