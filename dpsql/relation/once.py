"""What follows from a node alone is found once for each node, however many walks ask for it.

The finding is kept on the node itself: nodes never change, and it goes when the node goes.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.relation.relation import Relation

Found = TypeVar("Found")


def once_per_node(find: Callable[[Relation], Found]) -> Callable[[Relation], Found]:
    key = f"_{find.__name__}"

    @wraps(find)
    def found(relation: Relation) -> Found:
        kept = vars(relation)
        if key not in kept:
            kept[key] = find(relation)
        return cast("Found", kept[key])

    return found
