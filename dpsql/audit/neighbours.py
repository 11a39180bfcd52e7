"""The sensitivity check: what a release says of a database and of its neighbour, compared with what is claimed.

The difference must stay within the claimed l0, l1, l2 and linf of every measure, and nothing else may tell the two
apart: not the columns, their types, nor, where keys are public, the groups.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpsql.audit.synthesize import Answer
    from dpsql.explanation import ExplainedRelease

ROUNDING = 1e-12
"""An l2 is the root of a whole number, in float64."""


def moved_too_far(release: ExplainedRelease, whole: Answer, neighbour: Answer) -> Iterator[str]:
    """What the neighbour shows that it must not."""
    if whole[0] != neighbour[0]:
        yield "the columns or their types differ"
        return
    if (release.public_keys or not release.keys) and keys_of(release, whole) != keys_of(release, neighbour):
        yield "the groups differ, though they are public"
    here, there = by_key(release, whole), by_key(release, neighbour)
    nothing = (0,) * len(release.measures)
    moved = [
        [abs(a - b) for a, b in zip(here.get(key, nothing), there.get(key, nothing), strict=True)]
        for key in {**here, **there}
    ]
    l0 = max((measure.l0 for measure in release.measures), default=0)
    if release.measures and (reached := sum(any(row) for row in moved)) > l0:
        yield f"one unit moves {reached} groups, and {l0} are claimed"
    for measure, steps in zip(release.measures, zip(*moved, strict=True), strict=False):
        l2 = math.sqrt(sum(step**2 for step in steps))
        claims = (
            ("linf", max(steps), measure.linf),
            ("l1", sum(steps), measure.l1),
            ("l2", l2, measure.l2 * (1 + ROUNDING)),
        )
        yield from (
            f"{measure.what} moves by {found:g} in {norm}, and {claimed:g} is claimed"
            for norm, found, claimed in claims
            if found > claimed
        )
    yield from _together(release, moved)


def _together(release: ExplainedRelease, moved: list[list[int]]) -> Iterator[str]:
    """Measures that exclude each other: in a group all cases together move no further than one of them may alone.

    A case moves as far as its measure that moves farthest, of what each may. With this every norm of the joint move is
    bounded (docs/proofs/exclusive.md).
    """
    for bundle in {measure.place[0] for measure in release.measures if measure.place is not None}:
        for row in moved:
            cases: dict[int, Fraction] = {}
            for measure, step in zip(release.measures, row, strict=True):
                if measure.place is not None and measure.place[0] == bundle and measure.linf:
                    part = Fraction(int(step), measure.linf)
                    cases[measure.place[1]] = max(part, cases.get(measure.place[1], part))
            if sum(cases.values()) > 1:
                yield f"a bundle moves by {float(sum(cases.values())):g} of what one of its cases may"


def wrong_shape(release: ExplainedRelease, answers: list[Answer]) -> Iterator[str]:
    """Key columns first, then one BIGINT for each measure; the same groups everywhere if they are public."""
    columns, first = answers[0]
    expected = [*release.keys, *(measure.column for measure in release.measures)]
    names = [name for name, _ in columns]
    if names[: len(expected)] != expected or (len(names) > len(expected) and not release.statistics):
        yield f"the columns are {', '.join(names)}"
    if {kind for _, kind in columns[len(release.keys) : len(expected)]} - {"BIGINT"}:
        yield "a measure is no whole number of 64 bits"
    for other in answers:
        if other[0] != columns:
            yield "the columns depend on the data"
        if not release.keys and len(other[1]) != 1:
            yield "the number of rows depends on the data"
        if release.public_keys and keys_of(release, other) != keys_of(release, (columns, first)):
            yield "the public groups depend on the data"


def keys_of(release: ExplainedRelease, answer: Answer) -> list[tuple[str, ...]]:
    """By their repr, since NaN is not equal to itself."""
    return [tuple(map(repr, row[: len(release.keys)])) for row in answer[1]]


def by_key(release: ExplainedRelease, answer: Answer) -> dict[tuple[str, ...], tuple[Any, ...]]:
    """The measures of each group."""
    first, last = len(release.keys), len(release.keys) + len(release.measures)
    found = dict(zip(keys_of(release, answer), (row[first:last] for row in answer[1]), strict=True))
    assert len(found) == len(answer[1]), "one row for each group"
    return found
