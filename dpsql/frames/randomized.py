"""A frame whose column was randomised, and what a schema has to say of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from dpsql.errors import ProgrammingError
from dpsql.local.column import Randomizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from dpsql.schema.types import ColumnType


class Randomized(NamedTuple):
    frame: Any
    entry: dict[str, Any]
    """What stands under the column's name in a schema, for `dpsql.connect`."""


def randomized(
    name: str,
    answers: np.ndarray,
    kind: ColumnType,
    values: Sequence[object] | None,
    epsilon: object,
    mechanism: str,
) -> tuple[np.ndarray, dict[str, Any]]:
    """The reports, and the entry of the schema."""
    if values is None:
        raise ProgrammingError(
            f'which answers "{name}" can hold is not known, and must not be read off the data',
            hint='list them: values=["never", "daily"]; columns of booleans, and of categories, say it themselves',
        )
    made = Randomizer(kind, values, epsilon, mechanism)
    return made.reports(answers), made.entry
