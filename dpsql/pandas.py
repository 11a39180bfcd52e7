"""`df.dp` for pandas. The note travels in `df.attrs`, which copies, filters, pickle and Parquet keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
from pandas.api.types import is_bool_dtype, is_object_dtype

from dpsql.frames.accessor import PrivateFrame

if TYPE_CHECKING:
    import numpy as np

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
        """Beside an Arrow column, the type of a column of objects would be read off the data: it is left out."""
        types = self._frame.dtypes[~self._frame.columns.duplicated(keep=False)]
        arrow = any(isinstance(kind, pd.ArrowDtype) for kind in types)
        return [
            label for label, kind in types.items() if isinstance(label, str) and not (arrow and is_object_dtype(kind))
        ]

    def _possible(self, name: str) -> list[Any] | None:
        kind = self._frame.dtypes[name]
        if isinstance(kind, pd.CategoricalDtype):
            return kind.categories.tolist()
        return [False, True] if is_bool_dtype(kind) else None

    def _answers(self, name: str) -> np.ndarray:
        answers: np.ndarray = self._frame[name].to_numpy()
        return answers

    def _replaced(self, name: str, values: np.ndarray) -> pd.DataFrame:
        replaced: pd.DataFrame = self._frame.assign(**{name: values})
        return replaced

    def _chosen(self, names: list[str]) -> pd.DataFrame:
        return pd.DataFrame({name: self._frame[name].array for name in names}, copy=False)

    def _empty(self, names: list[str]) -> pd.DataFrame:
        return pd.DataFrame({name: self._frame[name].array[:0] for name in names})
