"""`df.dp` for polars, lazy frames too. The note stays on the object: polars hands nothing on to frames made from it."""

from __future__ import annotations

from typing import Any

import polars as pl

from dpsql.frames.accessor import PrivateFrame


@pl.api.register_dataframe_namespace("dp")
@pl.api.register_lazyframe_namespace("dp")
class PolarsFrame(PrivateFrame):
    __doc__ = PrivateFrame.__doc__

    _kinds = (pl.DataFrame, pl.LazyFrame)

    @property
    def _note(self) -> Any:
        return getattr(self._frame, "_dpsql", None)

    @_note.setter
    def _note(self, note: str | None) -> None:
        self._frame._dpsql = note

    def _labels(self) -> list[str]:
        return list(self._frame.collect_schema())

    def _chosen(self, names: list[str]) -> Any:
        return self._frame.select(names)

    def _empty(self, names: list[str]) -> pl.DataFrame:
        schema = self._frame.collect_schema()
        return pl.DataFrame(schema={name: schema[name] for name in names})
