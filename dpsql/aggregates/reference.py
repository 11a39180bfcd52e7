"""Writes the list of aggregates in docs/sql.md: python -m dpsql.aggregates.reference docs/sql.md"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.aggregates.table import AGGREGATES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpsql.aggregates.function import AggregateFunction

BEGIN = "<!-- aggregates: written by `make reference` -->\n"
END = "<!-- end of aggregates -->"


def reference() -> str:
    """A row for each family: aggregates of the same things, with the same error bars."""
    families = groupby(AGGREGATES.values(), key=lambda function: (function.of, function.error))
    rows = [" | ".join(_cells(list(family))) for _, family in families]
    return "\n".join(("", "| aggregate | of | error bars |", "|---|---|---|", *(f"| {row} |" for row in rows), ""))


def _cells(family: list[AggregateFunction]) -> Iterator[str]:
    yield ", ".join(" or ".join(f"`{name}`" for name in function.names) for function in family)
    spelled = ", ".join(f"`{spelling}`" for function in family for spelling in function.spellings)
    yield family[0].of + (f"; also {spelled}" if spelled else "")
    yield family[0].error.value


def with_reference(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{reference()}{END}{after}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_reference(path.read_text(encoding="utf-8")), encoding="utf-8")
