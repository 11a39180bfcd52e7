"""`df.dp` for polars, lazy frames too. The note stays on the object: polars does not pass it to derived frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import polars as pl

from dpsql.frames.accessor import GroupedFrame, PrivateFrame
from dpsql.frames.vocabulary import Vocabulary

if TYPE_CHECKING:
    import numpy as np

    from dpsql.frames.accessor import FrameAnswer
    from dpsql.frames.vocabulary import Key
    from dpsql.options import QueryOptions


class PolarsWords(Vocabulary):
    """Methods that polars names differently from pandas."""

    def n_unique(self, column: str, **options: Unpack[QueryOptions]) -> FrameAnswer:
        """The number of different values in a column.

        Args:
            column: the column of values.
            options: see `Cursor.execute`.
        """
        return self._aggregated("nunique", column, options)

    def len(self, **options: Unpack[QueryOptions]) -> FrameAnswer:
        """The number of rows."""
        return self.count(**options)


class PolarsGroups(PolarsWords, GroupedFrame):
    __doc__ = GroupedFrame.__doc__


@pl.api.register_dataframe_namespace("dp")
@pl.api.register_lazyframe_namespace("dp")
class PolarsFrame(PolarsWords, PrivateFrame):
    __doc__ = PrivateFrame.__doc__

    _kinds = (pl.DataFrame, pl.LazyFrame)
    _groups = PolarsGroups

    @property
    def _note(self) -> Any:
        return getattr(self._frame, "_dpsql", None)

    @_note.setter
    def _note(self, note: str | None) -> None:
        self._frame._dpsql = note

    def _key(self, key: object) -> Key:
        if isinstance(key, pl.Expr) and key.meta.is_column():
            return super()._key(key.meta.output_name())
        return super()._key(key)

    def group_by(self, *keys: str | pl.Expr) -> Vocabulary:
        """Groups the rows by columns; `count`, `sum`, `mean` and so on then answer per group.

        Args:
            keys: one or more columns.
        """
        return self.groupby(list(keys))

    def group_by_dynamic(self, on: str, *, every: str) -> Vocabulary:
        """Groups the rows by a period of a date: group_by_dynamic("day", every="1mo").

        Args:
            on: the column of dates or timestamps.
            every: the period, such as "1w", "1mo" or "1y".
        """
        return self.resample(every, on=on)

    def _labels(self) -> list[str]:
        return list(self._frame.collect_schema())

    def _possible(self, name: str) -> list[Any] | None:
        kind = self._frame.collect_schema()[name]
        if isinstance(kind, pl.Enum):
            return kind.categories.to_list()
        return [False, True] if kind == pl.Boolean else None

    def _answers(self, name: str) -> np.ndarray:
        answers: np.ndarray = self._frame.lazy().select(name).collect().to_series().to_numpy()
        return answers

    def _replaced(self, name: str, values: np.ndarray) -> pl.DataFrame:
        whole: pl.DataFrame = self._frame.lazy().collect()
        return whole.with_columns(pl.Series(name, values.tolist()))

    def _chosen(self, names: list[str]) -> Any:
        return self._frame.select(names)

    def _empty(self, names: list[str]) -> pl.DataFrame:
        schema = self._frame.collect_schema()
        return pl.DataFrame(schema={name: schema[name] for name in names})
