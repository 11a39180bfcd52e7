"""The public list of values that an answer can have, and their numbers 0, 1, 2, ..., which the mechanisms work on.

NULL is refused, unless None is one of the values: then it is an answer like any other, and as well hidden.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dpsql.errors import ProgrammingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pandas as pd
    from numpy.typing import NDArray

Column: TypeAlias = "Sequence[Any] | NDArray[Any] | pd.Series[Any]"
"""What perturb() and estimate() take: a value for each person."""

CHUNK = 1 << 16
"""Values that are handled together."""
MOST_VALUES = 1 << 20


class Domain:
    """
    >>> Domain(["no", "yes"]).encode(["yes", "no"])
    array([1, 0])
    """

    def __init__(self, values: Iterable[object]) -> None:
        self.values = tuple(values) if not isinstance(values, str) else (values,)
        if not 2 <= len(self.values) <= MOST_VALUES:
            raise ProgrammingError(
                f"a domain of {len(self.values):,} value{'s' * (len(self.values) != 1)} cannot be randomised",
                hint=f"list from 2 to {MOST_VALUES:,} values: all that an answer can be, such as [False, True]",
            )
        if len({*self.values}) < len(self.values) or any(value != value for value in self.values):
            raise ProgrammingError(
                "the values of a domain must differ from each other",
                hint="list every value once; in Python True is 1 and False is 0, and NaN is no value",
            )

    def __len__(self) -> int:
        return len(self.values)

    def encode(self, values: Column) -> NDArray[np.intp]:
        """The number of each value."""
        return np.concatenate([np.empty(0, dtype=np.intp), *(codes for _, codes in self.encoded(values))])

    def encoded(self, values: Column, width: int = 1) -> Iterator[tuple[slice, NDArray[np.intp]]]:
        """Part by part the number of each value, so that little is held at once; parts have `CHUNK / width` rows.

        What is outside is counted and refused at the end, never shown: who asks for parts must ask for all.
        """
        given = _as_array(values)
        missing = outside = 0
        for part in chunks(len(given), width):
            codes, nulls = self._numbers(given[part])
            missing += nulls
            outside += int(np.count_nonzero(codes < 0)) - nulls
            yield part, np.maximum(codes, 0)
        if missing:
            raise ProgrammingError(
                f"{missing:,} of {len(given):,} values are NULL",
                hint='let it be an answer of its own, such as "none" (or None in dpsql.local); or leave these rows out',
            )
        if outside:
            raise ProgrammingError(
                f"{outside:,} of {len(given):,} values are outside the domain",
                hint=f"list all values that an answer can be; these {len(self)} were given",
            )

    def decode(self, codes: NDArray[np.intp]) -> NDArray[Any]:
        return self.stored[codes]

    @cached_property
    def stored(self) -> NDArray[Any]:
        """The values as a column: booleans or whole numbers where all of them are, else objects."""
        plain = {type(value) for value in self.values} in ({bool}, {int})
        return np.array(self.values) if plain else _as_array(self.values)

    def _numbers(self, part: NDArray[Any]) -> tuple[NDArray[np.intp], int]:
        """The numbers, -1 outside the domain, and how many are NULL without being a value."""
        import pandas as pd

        nulls: NDArray[np.bool_] = pd.isna(part)
        plain = part.dtype.kind in "iub" and self.stored.dtype.kind in "ib"
        codes: NDArray[np.intp] = self._index(plain).get_indexer(pd.Index(part, dtype=None if plain else object))
        null = self.values.index(None) if None in self.values else -1
        codes[nulls] = null
        return codes, int(np.count_nonzero(nulls)) if null < 0 else 0

    @cache  # noqa: B019 - a domain is as long-lived as its mechanism
    def _index(self, plain: bool) -> pd.Index[Any]:
        import pandas as pd

        index: pd.Index[Any] = pd.Index(self.stored, dtype=None if plain else object)
        return index


def chunks(n: int, width: int = 1) -> Iterator[slice]:
    """Parts of n rows of `width` cells each, so that what is made of a part stays small."""
    step = max(1, CHUNK // width)
    return (slice(start, min(start + step, n)) for start in range(0, n, step))


def _as_array(values: Column) -> NDArray[Any]:
    if hasattr(values, "dtype"):
        given = np.asarray(values)
    else:
        given = np.empty(len(values), dtype=object)
        given[:] = values
    if given.ndim != 1:
        raise ProgrammingError("the values to be randomised are one column", hint="give one value for each person")
    return given
