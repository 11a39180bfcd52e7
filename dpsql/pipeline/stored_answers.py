"""What the ledger stores of an answer: the noisy table, one list per column.

Large integer columns are stored as bytes, because writing out their digits would take longer than drawing them.
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
LONG, SHORT = np.dtype("<i8"), np.dtype("<i4")
OF_SHORT = "i4:"
"""In front of the bytes of numbers that are 32 bits wide."""


def as_text(columns: Mapping[str, np.ndarray], found: tuple[int | str, ...] = ()) -> str:
    """`found` are bounds that the question found, in any order that its reader knows."""
    written = {name: _written(column) for name, column in columns.items()}
    if found:
        written[FOUND] = json.dumps(list(found))
    # Put together here: to look for what has to be escaped takes longer than all the rest, and there is nothing.
    return f"{{{', '.join(f'{json.dumps(name)}: {column}' for name, column in written.items())}}}"


def from_text(text: str) -> dict[str, list[Any]]:
    return {
        name: column if isinstance(column, list) else _read(column)
        for name, column in json.loads(text).items()
        if name != FOUND
    }


def found_in(text: str) -> tuple[int | str, ...]:
    return tuple(json.loads(text).get(FOUND, ()))


def _written(column: np.ndarray) -> str:
    if len(column) >= MANY and column.dtype.kind == "i" and not np.ma.getmaskarray(column).any():
        return f'"{_encoded(np.ma.getdata(column))}"'
    if column.dtype.kind == "M":
        column = np.ma.masked_array(column.astype("datetime64[us]").astype(str), mask=np.ma.getmaskarray(column))
    return json.dumps(column.tolist())


def _encoded(numbers: np.ndarray) -> str:
    ends = np.iinfo(SHORT)
    is_short = ends.min <= numbers.min() and numbers.max() <= ends.max
    encoded = base64.b64encode(numbers.astype(SHORT if is_short else LONG).tobytes())
    return f"{OF_SHORT if is_short else ''}{encoded.decode('ascii')}"


def _read(encoded: str) -> list[Any]:
    data = base64.b64decode(encoded.removeprefix(OF_SHORT))
    values: list[Any] = np.frombuffer(data, dtype=SHORT if encoded.startswith(OF_SHORT) else LONG).tolist()
    return values
