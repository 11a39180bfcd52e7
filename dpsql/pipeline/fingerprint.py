"""When two releases are the same: at the same price by their fingerprint, at any price by their subject."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.pipeline.plan_query import Planned


def fingerprint_of(
    planned: Planned, number: int, drawing: Sequence[object], dataset: str, before: Sequence[str]
) -> str:
    """`drawing` is the SQL of the release and how noise is drawn, `before` are the releases in front of it."""
    # What a release reads of earlier answers is as much a part of it as its SQL.
    read = [
        [
            part.post_processing,
            *((before[n], repr(planned.releases[n].post_processing_table.columns)) for n in part.releases),
        ]
        for part in planned.releases[number].adaptive
    ]
    return _digest([dataset, *drawing, read])


def subject_of(planned: Planned, number: int, dataset: str) -> str:
    """What a release is about, whatever its noise."""
    release = planned.releases[number]
    read = [
        [part.post_processing, *(subject_of(planned, number, dataset) for number in part.releases)]
        for part in release.adaptive
    ]
    found = [planned.releases[ladder].canonical for ladder in ladders_of(planned, number)]
    totals = release.release.aggregate.totals
    return _digest(["subject", dataset, release.canonical, read, *found, *([totals] if totals else [])])


def ladders_of(planned: Planned, number: int) -> list[int]:
    """The releases on which bounds of this one are found: what it is follows from them."""
    sought = [one.release.aggregate.sought for one in planned.releases]
    return [ladder for ladder, part in enumerate(sought) if part is not None and part.release == number]


def _digest(parts: list[object]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
