"""What is said beside an answer: what bounding left out, how rows were chosen, and which columns are mostly noise.

All of it follows from what was declared and from what was released, so it is free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpsql.aggregates.statistic import Matched

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dpsql.engines.cells import Cells
    from dpsql.pipeline.calibrate_noise import CalibratedRelease
    from dpsql.result import ResultColumn

MOSTLY = 0.5
"""A column is mostly noise where this part of its values, or more, cannot be told from 0."""
GOOD = 0.1
"""An error of a tenth is what a better price is named for."""


def bounding_notes(releases: Sequence[CalibratedRelease]) -> Iterator[str]:
    """The same words once, however many releases they hold for."""
    said: dict[str, None] = {}
    for release in releases:
        said |= dict.fromkeys(_bounds_of(release))
    yield from said


def _bounds_of(calibrated: CalibratedRelease) -> Iterator[str]:
    release = calibrated.planned.release
    pairs = any(isinstance(drawn.statistic, Matched) for drawn in release.statistics)
    if not release.one_row_per_unit and not pairs:
        most = math.inf if release.rows_per_unit is None else release.rows_per_unit
        where = " in a group" if release.aggregate.grouped else ""
        if most > release.rows:
            yield _at_most(release.rows, "row", where)
        if release.ranked and most > release.groups:
            yield _at_most(release.groups, "group")
    if calibrated.threshold is not None:
        yield f"groups of fewer than about {calibrated.threshold:,} units are not shown"


def _at_most(number: int, what: str, where: str = "") -> str:
    """
    >>> _at_most(2, "row", " in a group")
    'at most 2 rows of one unit count in a group'
    """
    return f"at most {number:,} {what}{' of one unit counts' if number == 1 else 's of one unit count'}{where}"


def choice_note(columns: Sequence[ResultColumn]) -> Iterator[str]:
    rows = max((column.chosen_from for column in columns), default=1)
    if rows > 1:
        yield f"± for all {rows:,} groups at once, since rows were chosen by their noise"


@dataclass(frozen=True)
class MostlyNoise:
    """A column of which few values can be told from 0, and the epsilon at which its typical error were a tenth."""

    name: str
    epsilon: float | None

    def __str__(self) -> str:
        better = "" if self.epsilon is None else f"; about epsilon {self.epsilon:.2g} would give ± {GOOD:.0%}"
        return f'"{self.name}" is nothing but noise at this epsilon{better}'


def mostly_noise(columns: Sequence[ResultColumn], cells: Cells, epsilon: float) -> Iterator[MostlyNoise]:
    for position, column in enumerate(columns):
        width = None if column.chosen_from > 1 else column.half_width
        if not width:
            continue
        values = cells.numbers(position)
        if len(values) and np.mean(np.abs(values) <= width) >= MOSTLY:
            yield MostlyNoise(column.name, _enough(values, width, epsilon))


def _enough(values: np.ndarray, width: float, epsilon: float) -> float | None:
    """Errors are inverse to epsilon, nearly; None where the values are no larger than noise alone would be."""
    noise = (width / 1.96) ** 2
    beyond = float(np.mean(values**2)) - noise
    spread = 2 * noise * math.sqrt(2 / len(values))
    return epsilon * width / (GOOD * math.sqrt(beyond)) if beyond > spread and epsilon else None
