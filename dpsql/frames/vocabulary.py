"""The methods of `df.dp`. Each writes one SQL query over the table "df"; its options are those of `Cursor.execute`."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import partial, wraps
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack, cast

from dpsql.aggregates.table import WORDS
from dpsql.engines import render
from dpsql.errors import ProgrammingError, SchemaError, UnboundedColumn, Unsupported, did_you_mean, shown_argument
from dpsql.schema.types import Decimal, Double, Integer

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.aggregates.function import Word
    from dpsql.explain import Explanation
    from dpsql.frames.accessor import FrameAnswer
    from dpsql.options import Parameters, QueryOptions
    from dpsql.schema.model import Column

# -- write sql ---------------------------------------------------------------------------------------------------------
# The methods of frames, written as SQL over the table "df".

TABLE = "df"
ROWS = 'COUNT(*) AS "count"'
EXAMPLE = 'agg(total=("amount", "sum")) or agg({"amount": ["sum", "mean"]})'


def quoted(name: object) -> str:
    if not isinstance(name, str):
        raise ProgrammingError(
            f"a column name must be a string, not {shown_argument(name)}", hint='write "amount", for example'
        )
    return render.quoted(name)


def aggregate(function: object, column: object, name: str | None = None) -> str:
    """
    >>> aggregate("mean", "amount")
    'AVG("amount") AS "amount_mean"'
    """
    if not isinstance(function, str) or function not in WORDS:
        raise Unsupported(f"unknown aggregate {shown_argument(function)}", hint=did_you_mean(str(function), WORDS))
    call = WORDS[function].sql.format(quoted(column))
    return f"{call} AS {quoted(f'{column}_{function}' if name is None else name)}"


class Key(NamedTuple):
    """A grouping key: a column, or an expression over one."""

    column: str
    sql: str


def column_key(column: str) -> Key:
    return Key(column, quoted(column))


def period_key(column: str, period: object) -> Key:
    """
    >>> print(period_key("day", "MS").sql, period_key("day", "1w").sql)
    DATE_TRUNC('month', "day") DATE_TRUNC('week', "day")
    >>> print(period_key("day", "ME").sql)
    DATE_TRUNC('month', "day") + INTERVAL 1 MONTH - INTERVAL 1 DAY
    """
    written = period if isinstance(period, str) else ""
    for known in (written, written.lower()):
        if known in PERIODS:
            return Key(column, f"DATE_TRUNC('{PERIODS[known]}', {quoted(column)})")
        if known in ENDS:
            unit, end = ENDS[known]
            return Key(column, f"DATE_TRUNC('{unit}', {quoted(column)}) + {end}")
    raise ProgrammingError(f"{shown_argument(period)} is not a period", hint="write day, week, month, quarter or year")


PERIODS = {
    name: unit
    for unit, names in {
        "hour": "hour h H 1h",
        "day": "day d D 1d",
        "week": "week 1w",
        "month": "month MS 1mo",
        "quarter": "quarter QS QS-JAN 1q",
        "year": "year YS YS-JAN 1y",
    }.items()
    for name in names.split()
}
"""As pandas and polars write them, and in words. A period is called by its first day."""
ENDS = {
    name: (unit, end)
    for unit, end, names in (
        ("week", "INTERVAL 6 DAY", "w W W-SUN"),
        ("month", "INTERVAL 1 MONTH - INTERVAL 1 DAY", "M ME"),
        ("quarter", "INTERVAL 3 MONTH - INTERVAL 1 DAY", "Q QE QE-DEC"),
        ("year", "INTERVAL 1 YEAR - INTERVAL 1 DAY", "Y YE YE-DEC A"),
    )
    for name in names.split()
}
"""Those that pandas calls by their last day."""


def quantiles(column: object, q: object) -> str:
    """
    >>> quantiles("age", 0.9)
    'QUANTILE_CONT("age", 0.9) AS "age_quantile"'
    >>> quantiles("age", [0.1, 0.9])
    'QUANTILE_CONT("age", 0.1) AS "age_0.1", QUANTILE_CONT("age", 0.9) AS "age_0.9"'
    """
    if isinstance(q, Sequence) and not isinstance(q, str) and q:
        return ", ".join(_quantile(column, part, f"{column}_{part}") for part in q)
    return _quantile(column, q, f"{column}_quantile")


def _quantile(column: object, q: object, name: str) -> str:
    if isinstance(q, bool) or not isinstance(q, int | float) or not 0 <= q <= 1:
        shown = shown_argument(q) if isinstance(q, int | float) else f"a {type(q).__name__}"
        raise ProgrammingError(f"a quantile must lie between 0 and 1, not {shown}", hint='write quantile("age", 0.9)')
    return f"QUANTILE_CONT({quoted(column)}, {float(q)!r}) AS {quoted(name)}"


def correlation(column: str, other: str) -> str:
    return f"CORR({quoted(column)}, {quoted(other)}) AS {quoted(f'{column}_{other}_corr')}"


def described(column: str) -> str:
    """The columns of pandas' describe(), as SQL."""
    plain = [aggregate(word, column, word) for word in ("count", "mean", "std", "min")]
    quartiles = [_quantile(column, part, f"{100 * part:g}%") for part in (0.25, 0.5, 0.75)]
    return ", ".join([*plain, *quartiles, aggregate("max", column, "max")])


def aggregates(by_column: object, named: Mapping[str, tuple[Any, ...]]) -> tuple[str, list[str]]:
    """The arguments of agg(), in either of pandas' two forms, as SQL; and the columns in them.

    >>> aggregates({"amount": ["sum"]}, {"people": ("customer_id", "nunique")})
    ('SUM("amount") AS "amount_sum", COUNT(DISTINCT "customer_id") AS "people"', ['amount', 'customer_id'])
    """
    if by_column is not None and not isinstance(by_column, Mapping):
        raise ProgrammingError(f"agg() takes a dict, not {shown_argument(by_column)}", hint=f"write {EXAMPLE}")
    calls: list[tuple[Any, Any, str | None]] = []
    for column, functions in (by_column or {}).items():
        for function in functions if isinstance(functions, list | tuple) else [functions]:
            calls.append((column, function, None))
    for name, pair in named.items():
        if len(pair) != 2:
            raise ProgrammingError(
                f"{name}= takes a column and a function, not {shown_argument(pair)}", hint=f"write {EXAMPLE}"
            )
        calls.append((*pair, name))
    if not calls:
        raise ProgrammingError("agg() needs at least one aggregate", hint=f"write {EXAMPLE}")
    written = ", ".join(aggregate(function, column, name) for column, function, name in calls)
    return written, [column for column, _, _ in calls]


def select(written: str, keys: Sequence[Key], *, largest_first: bool = False) -> str:
    """As in pandas, rows without a key are in no group, and groups are in the order of their keys.

    >>> select(ROWS, [column_key("region")])
    'SELECT "region", COUNT(*) AS "count" FROM df WHERE "region" IS NOT NULL GROUP BY 1 ORDER BY 1'
    """
    names = [key.sql if key.sql == quoted(key.column) else f"{key.sql} AS {quoted(key.column)}" for key in keys]
    query = f"SELECT {', '.join([*names, written])} FROM {TABLE}"
    if not names:
        return query
    known = " AND ".join(f"{quoted(key.column)} IS NOT NULL" for key in keys)
    places = ", ".join(str(place) for place in range(1, len(names) + 1))
    order = f"{len(names) + 1} DESC" if largest_first else places
    return f"{query} WHERE {known} GROUP BY {places} ORDER BY {order}"


def histogram(column: str, edges: Sequence[Any]) -> tuple[str, list[Any]]:
    """The query and its parameters: a row is in the bin that begins at the last edge not above its value.

    >>> sql, parameters = histogram("age", [0, 18, 120])
    >>> sql.partition(" FROM ")[0], parameters
    ('SELECT CASE WHEN "age" < ? THEN ? ELSE ? END AS "age", COUNT(*) AS "count"', [18, 0, 18, 0, 120])
    """
    name = quoted(column)
    *bins, (last, _) = pairwise(edges)
    cases = "".join(f"WHEN {name} < ? THEN ? " for _ in bins)
    key = f"CASE {cases}ELSE ? END" if bins else "?"
    query = f"SELECT {key} AS {name}, {ROWS} FROM {TABLE} WHERE {name} BETWEEN ? AND ? GROUP BY 1 ORDER BY 1"
    return query, [*(end for low, high in bins for end in (high, low)), last, edges[0], edges[-1]]


# The edges of a histogram's bins: as given, or evenly spaced between the declared bounds.

MOST_BINS = 10_000
HINT = "give the edges in order: bins=[0, 18, 65, 120], or bins=range(0, 101, 10)"


def bin_edges(column: Column, bins: Any) -> list[Any]:
    if isinstance(bins, int) and not isinstance(bins, bool):
        return _evenly_spaced(column, bins)
    if not isinstance(bins, list | tuple | range) and type(bins).__name__ not in ("ndarray", "Index", "DatetimeIndex"):
        raise ProgrammingError(f"bins must be a list of edges or a number, not {shown_argument(bins)}", hint=HINT)
    problem = ProgrammingError(f"bins need 2 to {MOST_BINS + 1:,} edges, in increasing order", hint=HINT)
    if not 2 <= len(bins) <= MOST_BINS + 1:
        raise problem
    edges = [edge.item() if getattr(edge, "ndim", None) == 0 else edge for edge in bins]
    try:
        rising = all(low < high for low, high in pairwise(edges))
    except (TypeError, ValueError):
        rising = False
    if not rising:
        raise problem
    numbers = isinstance(column.type, Integer | Double | Decimal)
    try:
        for edge in edges:
            (Double() if numbers else column.type).read(edge)
    except SchemaError:
        problem = ProgrammingError(
            f'the edges must be values of "{column.name}", which is {column.type.name}', hint=HINT
        )
    else:
        return edges
    raise problem


def _evenly_spaced(column: Column, bins: int) -> list[float]:
    if not isinstance(column.type, Integer | Double) or not 1 <= bins <= MOST_BINS:
        raise ProgrammingError(f'"{column.name}" cannot be cut into {bins} equal bins', hint=HINT)
    if column.bounds is None:
        raise UnboundedColumn(f'{bins} bins need bounds on "{column.name}"', hint=HINT, columns=(column.name,))
    low, high = (float(end) for end in column.bounds)  # type: ignore[arg-type]  # numbers, by the type above
    return [low + (high - low) * part / bins for part in range(bins)] + [high]


# -- vocabulary --------------------------------------------------------------------------------------------------------


def checks_arguments(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, whose callers are told in its own words, and without any value, which arguments it takes."""
    signature = inspect.signature(method)

    @wraps(method)
    def checked(self: object, *given: object, **named: object) -> Any:
        try:
            signature.bind(self, *given, **named)
        except TypeError:
            problem = _wrong_arguments(method.__name__, signature, named)
        else:
            return method(self, *given, **named)
        raise problem

    return checked


def _wrong_arguments(name: str, signature: inspect.Signature, named: Mapping[str, object]) -> ProgrammingError:
    _, *known = signature.parameters.values()
    takes = [one for one in known if one.kind is not one.VAR_KEYWORD]
    unknown = [] if len(takes) < len(known) else [key for key in named if key not in signature.parameters]
    shown = [one.name if one.default is one.empty else f"{one.name}={one.default!r}" for one in takes]
    options = ["epsilon=0.1"] * (len(takes) < len(known))
    called = f"{name}({', '.join([*shown, *options])})"
    if unknown:
        return ProgrammingError(f"{name}() has no argument {unknown[0]}=", hint=f"it is  {called}")
    needed = [one.name for one in takes if one.default is one.empty]
    takes_what = f"takes {', '.join(one.name for one in takes)}" if takes else "takes nothing"
    needs = f", and needs {' and '.join(needed)}" * (0 < len(needed) < len(takes))
    return ProgrammingError(f"{name}() {takes_what}{needs}", hint=f"it is  {called}")


class Vocabulary(ABC):
    """Aggregates of a frame, or of each of its groups. A column of the answer is named like `amount_sum`.

    Methods that take only a column are added below, one per row of `aggregates/table.py`: `sum`, `mean`, `median`, ...
    """

    _keys: tuple[Key, ...] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        check_arguments_of(cls)

    def count(self, column: str | None = None, **options: Unpack[QueryOptions]) -> FrameAnswer:
        """The number of rows, or of rows where the column is not NULL.

        Args:
            column: the column that may be missing.
            options: see `Cursor.execute`.
        """
        return self._asked(ROWS, (), options) if column is None else self._aggregated("count", column, options)

    def size(self, **options: Unpack[QueryOptions]) -> FrameAnswer:
        """The number of rows, as `count`.

        Args:
            options: see `Cursor.execute`.
        """
        return self.count(**options)

    def quantile(self, column: str, q: float | Sequence[float] = 0.5, **options: Unpack[QueryOptions]) -> FrameAnswer:
        """The value below which a fraction q of the rows lies.

        Args:
            column: the column of values; it needs bounds.
            q: a fraction between 0 and 1, or a list of them for one column each.
            options: see `Cursor.execute`.
        """
        return self._asked(quantiles(column, q), (column,), options)

    def corr(self, column: str, other: str, **options: Unpack[QueryOptions]) -> FrameAnswer:
        """The correlation coefficient of two columns.

        Args:
            column: the first column.
            other: the second column.
            options: see `Cursor.execute`.
        """
        return self._asked(correlation(column, other), (column, other), options)

    def describe(self, column: str, **options: Unpack[QueryOptions]) -> FrameAnswer:
        """Count, mean, standard deviation, minimum, quartiles and maximum, for the cost of one query.

        Args:
            column: the column of values; it needs bounds.
            options: see `Cursor.execute`.
        """
        return self._asked(described(column), (column,), options)

    def agg(self, by_column: object = None, /, **named: Any) -> FrameAnswer:
        """Several aggregates in one query: agg(total=("amount", "sum")) or agg({"amount": ["sum", "mean"]}).

        Args:
            by_column: a dict of column -> function or list of functions.
            named: name=(column, function) for each aggregate, and the options of `Cursor.execute`.

        Raises:
            ProgrammingError: no aggregate is named.
            Unsupported: there is no such function.
        """
        pairs, options = _told_apart(named)
        written, columns = aggregates(by_column, pairs)
        return self._asked(written, columns, options)

    def explain(self, by_column: object = None, /, **named: Any) -> Explanation:
        """Shows what `agg` with the same arguments would cost and how accurate it would be. Free.

        Args:
            by_column: a dict of column -> function or list of functions.
            named: name=(column, function) for each aggregate, and the options of `Cursor.execute`.
        """
        pairs, options = _told_apart(named)
        written, columns = aggregates(by_column, pairs)
        self._check_columns((*(key.column for key in self._keys), *columns))
        return self._explain(select(written, self._keys), None, options)

    def __getitem__(self, column: str) -> OneColumn:
        """The same methods for one column: df.dp["amount"].mean()."""
        self._check_columns((column,))
        return OneColumn(self, column)

    def __getattr__(self, name: str) -> Any:
        """Called only for names that do not exist; suggests one that does."""
        if name.startswith("_"):
            raise AttributeError(name)
        guess = did_you_mean(name, words_of(self)) or f"available: {', '.join(words_of(self))}"
        raise AttributeError(f"df.dp has no method {name!r}; {guess}")

    def _aggregated(self, function: str, column: str, options: QueryOptions) -> FrameAnswer:
        return self._asked(aggregate(function, column), (column,), options)

    def _asked(self, written: str, columns: Iterable[str], options: QueryOptions) -> FrameAnswer:
        self._check_columns((*(key.column for key in self._keys), *columns))
        return self._ask(select(written, self._keys), None, options)

    @abstractmethod
    def _check_columns(self, names: Iterable[str]) -> None:
        """Raises UnknownName unless all of them are declared."""

    @abstractmethod
    def _ask(self, sql: str, parameters: Parameters, options: QueryOptions) -> FrameAnswer: ...

    @abstractmethod
    def _explain(self, sql: str, parameters: Parameters, options: QueryOptions) -> Explanation: ...


class OneColumn:
    """One column of a frame or of its groups: every method of `Vocabulary`, with the column filled in."""

    def __init__(self, vocabulary: Vocabulary, column: str) -> None:
        self._vocabulary, self._column = vocabulary, column

    def __getattr__(self, name: str) -> Callable[..., FrameAnswer]:
        if name.startswith("_"):
            raise AttributeError(name)
        return partial(getattr(self._vocabulary, name), self._column)


def words_of(vocabulary: Vocabulary) -> list[str]:
    return sorted(name for name in dir(type(vocabulary)) if not name.startswith("_"))


ARGUMENTS = """

        Args:
            column: the column of values.
            options: see `Cursor.execute`.
        """


def _method(word: Word) -> Callable[..., FrameAnswer]:
    def asked(self: Vocabulary, column: str, **options: Unpack[QueryOptions]) -> FrameAnswer:
        return self._aggregated(word.name, column, options)

    asked.__name__, asked.__qualname__, asked.__doc__ = word.name, f"Vocabulary.{word.name}", word.says + ARGUMENTS
    return asked


for _word in WORDS.values():
    if _word.name != "count":  # which counts rows where no column is named
        setattr(Vocabulary, _word.name, _method(_word))


def check_arguments_of(cls: type) -> None:
    """Wraps the public methods that the class itself defines."""
    for name, method in vars(cls).copy().items():
        if not name.startswith("_") and inspect.isfunction(method):
            setattr(cls, name, checks_arguments(method))


check_arguments_of(Vocabulary)


def _told_apart(named: dict[str, Any]) -> tuple[dict[str, tuple[Any, ...]], QueryOptions]:
    """Named aggregates, which are tuples or pd.NamedAgg, and options."""
    pairs = {name: _as_tuple(value) for name, value in named.items() if isinstance(_as_tuple(value), tuple)}
    options = {name: value for name, value in named.items() if name not in pairs}
    return pairs, cast("QueryOptions", options)  # which execute() reads as it reads all


def _as_tuple(value: Any) -> Any:
    """pd.NamedAgg is a tuple no longer; what it carries beyond a column and a function is refused later."""
    return (value.column, value.aggfunc, *value.args, *value.kwargs) if hasattr(value, "kwargs") else value
