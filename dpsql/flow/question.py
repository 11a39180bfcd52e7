"""The question that walks through the stages."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Question:
    """What was asked and at what price. Bounds that are not given come from the schema."""

    sql: str
    parameters: tuple[object, ...] = ()
    epsilon: Fraction = Fraction(0)
    delta: Fraction | None = None
    mechanism: str | None = None
    max_groups: int | None = None
    max_rows_per_group: int | None = None
    fresh: bool = False
