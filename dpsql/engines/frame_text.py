"""Columns of Python objects as text, one cell at a time: no cell decides how another is read, and none can fail."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def with_plain_text(frame: Any) -> Any:
    """A pandas frame whose columns of objects are text; anything else as it is."""
    if type(frame).__module__.partition(".")[0] != "pandas" or not hasattr(frame, "dtypes"):
        return frame
    import pandas as pd

    arrow = any(isinstance(kind, pd.ArrowDtype) for kind in frame.dtypes)
    columns = {
        place: _texts(frame.iloc[:, place], arrow) if _holds_objects(kind) else frame.iloc[:, place]
        for place, kind in enumerate(frame.dtypes)
        if isinstance(frame.columns[place], str)
    }
    plain = pd.DataFrame(columns, copy=False)
    plain.columns = pd.Index([frame.columns[place] for place in columns])
    return plain


def _holds_objects(kind: Any) -> bool:
    """Also the strings of pandas that are kept as Python's, and categories, whose names are objects."""
    import pandas as pd

    if isinstance(kind, pd.CategoricalDtype):
        return _holds_objects(kind.categories.dtype) or isinstance(kind.categories.dtype, pd.StringDtype)
    return (kind.kind == "O" and not isinstance(kind, pd.StringDtype | pd.ArrowDtype)) or (
        isinstance(kind, pd.StringDtype) and kind.storage == "python"
    )


def _texts(column: pd.Series[Any], arrow: bool) -> Any:
    import pandas as pd

    texts = [_text(value) for value in column.astype(object).array]
    if arrow:
        # Beside an Arrow column the engine would look at the cells for a type, and find none where all are NULL.
        return pd.array(texts, dtype="string[pyarrow]")
    return pd.Series(texts, dtype=object, index=column.index)


def _text(value: object) -> str | None:
    """NULL for what is missing, and for what is no text that could be stored: lone surrogates, objects that fail."""
    import pandas as pd

    if value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and math.isnan(value)):
        return None
    try:
        text = str(value)
        text.encode()
    except Exception:
        return None
    return text
