"""`df.dp` for pandas. The note travels in `df.attrs`, which copies, filters, pickle and Parquet keep."""

from __future__ import annotations

from typing import Any

import pandas as pd

from dpsql.frames.accessor import PrivateFrame

NOTE = "dpsql"


@pd.api.extensions.register_dataframe_accessor("dp")
class PandasFrame(PrivateFrame):
    __doc__ = PrivateFrame.__doc__

    _kinds = (pd.DataFrame,)

    @property
    def _note(self) -> Any:
        return self._frame.attrs.get(NOTE)

    @_note.setter
    def _note(self, note: str | None) -> None:
        self._frame.attrs[NOTE] = note

    def _labels(self) -> list[str]:
        columns = self._frame.columns
        return [label for label in columns[~columns.duplicated(keep=False)] if isinstance(label, str)]

    def _chosen(self, names: list[str]) -> pd.DataFrame:
        return pd.DataFrame({name: self._frame[name].array for name in names}, copy=False)

    def _empty(self, names: list[str]) -> pd.DataFrame:
        return pd.DataFrame({name: self._frame[name].array[:0] for name in names})
