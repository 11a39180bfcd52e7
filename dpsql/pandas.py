"""`df.dp` for pandas. The note travels in `df.attrs`, which copies, filters, pickle and Parquet keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
from pandas.api.types import is_bool_dtype, is_object_dtype

from dpsql.errors import ProgrammingError
from dpsql.frames.accessor import PrivateFrame
from dpsql.frames.vocabulary import period_key

if TYPE_CHECKING:
    import numpy as np

    from dpsql.frames.vocabulary import Key

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

    def _key(self, key: object) -> Key:
        if isinstance(key, pd.Grouper):
            return self._grouper_key(key)
        if not isinstance(key, pd.Series):
            return super()._key(key)
        if isinstance(key.name, str) and self._is_own(key, key.name):
            return super()._key(key.name)
        binned = isinstance(key.dtype, pd.CategoricalDtype) and isinstance(key.dtype.categories.dtype, pd.IntervalDtype)
        raise ProgrammingError(
            "groupby takes columns of the frame, and this Series is computed",
            hint='for bins, hist("amount", bins=[0, 100, 500]) counts rows; other aggregates are asked in SQL:  '
            'df.dp.sql("SELECT FLOOR(amount / 100) * 100 AS bin, AVG(age) FROM df GROUP BY bin")'
            if binned
            else 'write groupby("region"), or compute the key in SQL with df.dp.sql',
        )

    def _grouper_key(self, key: pd.Grouper) -> Key:
        """A period begins and is labelled as in pandas; other origins and edges are no period here."""
        wanted: Any = key
        column, freq = wanted.key, wanted.freq
        plain: Any = pd.Grouper(key=column, freq=freq) if isinstance(column, str) else None
        same = plain is not None and all(
            getattr(wanted, name, None) == getattr(plain, name, None)
            for name in ("level", "dropna", "closed", "label", "convention", "origin", "offset")
        )
        if not same:
            raise ProgrammingError(
                "of pd.Grouper only key= and freq= are read", hint='write pd.Grouper(key="day", freq="MS")'
            )
        return super()._key(column) if freq is None else period_key(column, freq.freqstr)

    def _is_own(self, key: pd.Series[Any], name: str) -> bool:
        """Whether it is the frame's own column, which is looked up by its place in memory: no row is read."""
        if name not in self._labels() or key.dtype != self._frame.dtypes[name]:
            return False
        own = self._frame[name]
        if len(own) != len(key) or not key.index.is_(own.index):
            return False
        ours, theirs = own.array, key.array
        if hasattr(ours, "_pa_array"):
            return ours._pa_array is getattr(theirs, "_pa_array", None)
        places = [getattr(getattr(values, "_ndarray", None), "__array_interface__", None) for values in (ours, theirs)]
        return places[0] is not None and places[0] == places[1]

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
