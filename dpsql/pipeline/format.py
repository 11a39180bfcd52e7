"""A column of the answer, and how its error is found."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dpsql.aggregates.estimate import WithError


@dataclass(frozen=True)
class Output:
    """A column of the answer: its error follows from `estimate` where there is one."""

    name: str
    estimate: WithError | None
    release: int | None
    hidden: tuple[tuple[str, int], ...] = ()
    """Measures that the post-processing returns behind the visible columns: name and position."""
    is_key: bool | None = None
    """Whether it is made of keys alone; None where that is not known."""
    chosen: bool = False
    """Whether rows are left out by what is noisy, so that those which are left are not any rows."""
    replica: str = ""
    """The name of its replicas, where its error is found by replaying the post-processing."""
    lost: bool = False
    """Whether it is noisy, and nothing is known of its error."""
    is_answer: bool = False
    """Whether it is an aggregate as it was released: of a MODE, or a MEDIAN of dates, a note says the error in rows."""


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
