"""A column of the answer, and how its error is found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
