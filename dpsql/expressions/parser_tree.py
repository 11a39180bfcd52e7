"""The parser's trees, walked and copied: half of the time of a short query would go into the parser's own ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from sqlglot import exp
from sqlglot.expressions import Expr

if TYPE_CHECKING:
    from collections.abc import Iterable

Node = TypeVar("Node", bound=exp.Expr)
LEAVES = frozenset((exp.Identifier, exp.Literal))
"""Half of all nodes, which hold nothing but texts and flags."""


def nodes(tree: exp.Expr) -> list[exp.Expr]:
    """All nodes, from the outside in.

    >>> from sqlglot import parse_one
    >>> [node.key for node in nodes(parse_one("a + 1"))]
    ['add', 'column', 'literal', 'identifier']
    """
    found = [tree]
    for node in found:  # which grows on the way
        if type(node) in LEAVES:
            continue
        for value in node.args.values():
            if type(value) is list:
                found += [part for part in value if isinstance(part, Expr)]
            elif isinstance(value, Expr):
                found.append(value)
    return found


def nodes_of(tree: exp.Expr, *kinds: type[Node]) -> list[Node]:
    """The nodes of these kinds, from the outside in: a list, so that the tree may be changed on the way.

    Leaves are found if they are asked for by their own kind.
    """
    return of_kinds(_branches(tree) if LEAVES.isdisjoint(kinds) else nodes(tree), *kinds)


def _branches(tree: exp.Expr) -> list[exp.Expr]:
    """All nodes but leaves."""
    found = [tree]
    for node in found:
        for value in node.args.values():
            kind = type(value)
            if kind is list:
                found += [part for part in value if isinstance(part, Expr) and type(part) not in LEAVES]
            elif kind not in LEAVES and isinstance(value, Expr):
                found.append(value)
    return found


def of_kinds(parts: Iterable[exp.Expr], *kinds: type[Node]) -> list[Node]:
    return [node for node in parts if isinstance(node, kinds)]


def copied(tree: Node) -> Node:
    """An independent copy that shares no mutable part."""
    root = type(tree)()
    pending: list[tuple[exp.Expr, exp.Expr]] = [(tree, root)]
    while pending:
        node, copy = pending.pop()
        if node.comments is not None:
            copy.comments = list(node.comments)
        if node._meta is not None:
            copy._meta = dict(node._meta)
        if node._type is not None:
            copy._type = copied(node._type)
        for key, value in node.args.items():
            if isinstance(value, Expr):
                copy.args[key] = child = type(value)()
                child.parent, child.arg_key = copy, key
                pending.append((value, child))
            elif isinstance(value, list):
                copy.args[key] = [_child(copy, key, place, part, pending) for place, part in enumerate(value)]
            else:
                copy.args[key] = value
    return root


def _child(parent: exp.Expr, key: str, place: int, value: object, pending: list[tuple[exp.Expr, exp.Expr]]) -> object:
    """What stands in a list of the copy, where it is yet to be filled if it is a node."""
    if not isinstance(value, Expr):
        return value
    child = type(value)()
    child.parent, child.arg_key, child.index = parent, key, place
    pending.append((value, child))
    return child
