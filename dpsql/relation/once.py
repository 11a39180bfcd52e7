"""What follows from a node, and from values given beside it, is found once, however many walks ask for it.

The finding is kept on the node itself, a relation or a plan: nodes never change, and it goes when the node goes.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable

Node = TypeVar("Node")
Given = TypeVarTuple("Given")
Found = TypeVar("Found")


def once_per_node(find: Callable[[Node, *Given], Found]) -> Callable[[Node, *Given], Found]:
    key = f"{find.__module__}.{find.__name__}"

    @wraps(find)
    def found(node: Node, *given: *Given) -> Found:
        kept: dict[tuple[*Given], Found] = vars(node).setdefault(key, {})
        if given not in kept:
            kept[given] = find(node, *given)
        return kept[given]

    return found
