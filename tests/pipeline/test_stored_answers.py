"""What the ledger keeps of an answer gives the same columns back."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.pipeline.stored_answers import MANY, as_text, from_text

MISSING = np.ma.masked_array(np.arange(MANY), mask=np.arange(MANY) == 3)
ENDS = [(-(2**63), 2**63 - 1), (-(2**31), 2**31 - 1), (-(2**31) - 1, 0), (0, 2**31)]


@pytest.mark.parametrize("length", [3, MANY])
@pytest.mark.parametrize("ends", ENDS)
def test_whole_numbers(ends: tuple[int, int], length: int) -> None:
    numbers = np.resize(np.array([*ends, 0]), length)
    columns = {"n": numbers, "short": numbers.astype(np.int32), "masked": np.ma.masked_array(numbers)}
    assert from_text(as_text(columns)) == {name: column.tolist() for name, column in columns.items()}


def test_numbers_that_are_missing_and_other_values() -> None:
    texts = np.array(["a", None, "é"] * MANY, dtype=object)
    columns = {"missing": MISSING, "texts": texts, "doubles": np.linspace(0, 1, MANY)}
    assert from_text(as_text(columns)) == {name: column.tolist() for name, column in columns.items()}


def test_many_numbers_are_kept_as_bytes_and_lists_are_read_too() -> None:
    assert '"n": "' in as_text({"n": np.arange(MANY)})
    assert from_text('{"n": "AQAAAAAAAAD//////////w=="}') == {"n": [1, -1]}  # 64 bits: no prefix
    assert from_text('{"n": [1, null]}') == {"n": [1, None]}
