"""The columns of an answer with their errors, and the layout of traces."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dpsql.aggregates.estimate import WithError


@dataclass(frozen=True)
class Output:
    """A column of the answer. `estimate`, if present, gives its error."""

    name: str
    estimate: WithError | None
    release: int | None
    hidden: tuple[tuple[str, int], ...] = ()
    """The hidden measures after the visible columns: name and position."""
    is_key: bool | None = None
    """Whether only keys enter it; None if unknown."""
    chosen: bool = False
    """Whether noisy values decide which rows are shown, which biases the rest."""
    replicate: str = ""
    """The name of its bootstrap replicas, if its error needs them."""
    lost: bool = False
    """Whether it is noisy and its error is unknown."""
    is_answer: bool = False
    """Whether it is an aggregate as it was released: of a MODE, or a MEDIAN of dates, a note says the error in rows."""
    type: str = ""
    """The engine's name of its type."""


# -- readable ----------------------------------------------------------------------------------------------------------
# How what a stage gives is laid out for people: a name, and beside it the lines about it.

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
