"""What the examples in docstrings may use without opening it: `conn`, a private session on a table of orders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def example_session(request: pytest.FixtureRequest) -> Iterator[None]:
    """A new session for each docstring that names `conn`: 5,000 customers, one order each, a budget of 1."""
    if not isinstance(request.node, pytest.DoctestItem) or "conn." not in (request.node.dtest.docstring or ""):
        yield
        return
    with opened() as conn:
        request.node.dtest.globs.setdefault("conn", conn)
        yield


def opened() -> Any:
    import pandas as pd

    import dpsql

    numbers = range(5000)
    regions = [("north", "south")[number % 2] for number in numbers]
    amounts = [number % 90 for number in numbers]
    orders = pd.DataFrame({"customer": numbers, "region": regions, "amount": amounts})
    columns = {
        "customer": "integer",
        "region": {"type": "text", "values": ["north", "south"]},
        "amount": {"type": "integer", "bounds": [0, 100]},
    }
    schema = {"tables": {"orders": {"unit": "customer", "unique": True, "columns": columns}}}
    return dpsql.connect({"orders": orders}, schema=schema, budget=1, delta=1e-6)
