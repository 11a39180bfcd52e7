"""How much an engine has to read for a relation: what is read twice counts twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.errors import Unsupported
from dpsql.limits import MOST_STEPS, MOST_TABLES
from dpsql.relation.once import once_per_node
from dpsql.relation.relation import Scan
from dpsql.relation.units import below

if TYPE_CHECKING:
    from dpsql.relation.relation import Relation
    from dpsql.source import Place


@once_per_node
def tables_read(relation: Relation) -> int:
    return isinstance(relation, Scan) + sum(map(tables_read, below(relation)))


@once_per_node
def steps(relation: Relation) -> int:
    """On the longest way from a table."""
    return 1 + max(map(steps, below(relation)), default=0)


def check_size(relation: Relation, at: Place | None) -> None:
    if tables_read(relation) > MOST_TABLES:
        raise Unsupported(
            f"the query reads more than {MOST_TABLES} tables",
            at=at,
            hint="a WITH query counts wherever it is read: read it once, or ask in several queries",
        )
    if steps(relation) > MOST_STEPS:
        raise Unsupported(
            f"more than {MOST_STEPS} steps lead from a table to this result",
            at=at,
            hint="put several steps into one SELECT, or ask in several queries",
        )
