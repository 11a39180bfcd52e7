"""How what a stage gives is laid out for people: a name, and beside it the lines about it."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

WIDTH = 17


def laid_out(sections: Iterable[tuple[str, Iterable[str]]]) -> str:
    """
    >>> print(laid_out([("release 0", ["one", "two"]), ("post-processing", ["SELECT 1"])]))
    release 0        one
                     two
    post-processing  SELECT 1
    """
    lines = []
    for name, texts in sections:
        beside = [line for text in texts for line in text.splitlines()]
        lines += [f"{label:<{WIDTH}}{line}" for label, line in zip_longest([name], beside, fillvalue="") if line]
    return "\n".join(lines)


def about_releases(lines: Iterable[Iterable[str]]) -> list[tuple[str, Iterable[str]]]:
    """One section for each release, under its number."""
    return [(f"release {number}", about) for number, about in enumerate(lines)] or [("releases", ["none"])]
