"""What follows from a node, and from numbers given beside it, is found once, however many walks ask for it.

The finding is kept on the node itself: nodes never change, and it goes when the node goes.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.relation.relation import Relation

Given = TypeVarTuple("Given")
Found = TypeVar("Found")


def once_per_node(find: Callable[[Relation, *Given], Found]) -> Callable[[Relation, *Given], Found]:
    key = f"_{find.__name__}"

    @wraps(find)
    def found(relation: Relation, *given: *Given) -> Found:
        kept: dict[tuple[*Given], Found] = vars(relation).setdefault(key, {})
        if given not in kept:
            kept[given] = find(relation, *given)
        return kept[given]

    return found
