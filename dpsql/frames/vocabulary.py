"""Questions in the words that frames use. Each is one SQL query; its options are those of `sql`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any

from dpsql.aggregates.table import WORDS
from dpsql.frames.write_sql import ROWS, aggregate, aggregates, correlation, described, quantiles, select
from dpsql.source import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dpsql.aggregates.function import Word
    from dpsql.explanation import Explanation
    from dpsql.frames.answer import Answer
    from dpsql.frames.write_sql import Key


class Vocabulary(ABC):
    """The aggregates of a frame, or of each of its groups. A column of the answer is named like `amount_sum`.

    The methods that take a column and nothing else are added below, one for each word of the table of aggregates.
    """

    _keys: tuple[Key, ...] = ()

    def count(self, column: str | None = None, **options: Any) -> Answer:
        """The number of rows, or of those where the column is not missing."""
        return self._asked(ROWS, (), options) if column is None else self._aggregated("count", column, options)

    def size(self, **options: Any) -> Answer:
        """The number of rows."""
        return self.count(**options)

    def quantile(self, column: str, q: float | Sequence[float] = 0.5, **options: Any) -> Answer:
        """The value that a part q of the rows is below; a list of parts gives a column for each."""
        return self._asked(quantiles(column, q), (column,), options)

    def corr(self, column: str, other: str, **options: Any) -> Answer:
        """The correlation of two columns."""
        return self._asked(correlation(column, other), (column, other), options)

    def describe(self, column: str, **options: Any) -> Answer:
        """Count, mean, standard deviation, smallest, quartiles and largest, all from one budget."""
        return self._asked(described(column), (column,), options)

    def agg(self, by_column: object = None, /, **named: Any) -> Answer:
        """Several at once: agg(total=("amount", "sum")) or agg({"amount": ["sum", "mean"]}), and options."""
        pairs, options = _told_apart(named)
        written, columns = aggregates(by_column, pairs)
        return self._asked(written, columns, options)

    def explain(self, by_column: object = None, /, **named: Any) -> Explanation:
        """What agg() would do, cost and be worth. Free."""
        pairs, options = _told_apart(named)
        written, columns = aggregates(by_column, pairs)
        self._check_columns((*(key.column for key in self._keys), *columns))
        return self._explain(select(written, self._keys), None, options)

    def __getitem__(self, column: str) -> OneColumn:
        """One column, of which every word asks: df.dp["amount"].mean()."""
        self._check_columns((column,))
        return OneColumn(self, column)

    def __getattr__(self, name: str) -> Any:
        """Only for what is not there: the words are."""
        if name.startswith("_"):
            raise AttributeError(name)
        guess = did_you_mean(name, words_of(self)) or f"there is {', '.join(words_of(self))}"
        raise AttributeError(f"df.dp has no word {name!r}; {guess}")

    def _aggregated(self, function: str, column: str, options: dict[str, Any]) -> Answer:
        return self._asked(aggregate(function, column), (column,), options)

    def _asked(self, written: str, columns: Iterable[str], options: dict[str, Any]) -> Answer:
        self._check_columns((*(key.column for key in self._keys), *columns))
        return self._ask(select(written, self._keys), None, options)

    @abstractmethod
    def _check_columns(self, names: Iterable[str]) -> None:
        """Raises UnknownName unless all of them are declared."""

    @abstractmethod
    def _ask(self, sql: str, parameters: object, options: dict[str, Any]) -> Answer: ...

    @abstractmethod
    def _explain(self, sql: str, parameters: object, options: dict[str, Any]) -> Explanation: ...


class OneColumn:
    """A column of a frame or of its groups: each word of the vocabulary, with the column filled in."""

    def __init__(self, vocabulary: Vocabulary, column: str) -> None:
        self._vocabulary, self._column = vocabulary, column

    def __getattr__(self, name: str) -> Callable[..., Answer]:
        if name.startswith("_"):
            raise AttributeError(name)
        return partial(getattr(self._vocabulary, name), self._column)


def words_of(vocabulary: Vocabulary) -> list[str]:
    return sorted(name for name in dir(type(vocabulary)) if not name.startswith("_"))


def _method(word: Word) -> Callable[..., Answer]:
    def asked(self: Vocabulary, column: str, **options: Any) -> Answer:
        return self._aggregated(word.name, column, options)

    asked.__name__, asked.__qualname__, asked.__doc__ = word.name, f"Vocabulary.{word.name}", word.says
    return asked


for _word in WORDS.values():
    if _word.name != "count":  # which counts rows where no column is named
        setattr(Vocabulary, _word.name, _method(_word))


def _told_apart(named: dict[str, Any]) -> tuple[dict[str, tuple[Any, ...]], dict[str, Any]]:
    """Named aggregates, which are tuples or pd.NamedAgg, and options."""
    pairs = {name: _as_tuple(value) for name, value in named.items() if isinstance(_as_tuple(value), tuple)}
    return pairs, {name: value for name, value in named.items() if name not in pairs}


def _as_tuple(value: Any) -> Any:
    """pd.NamedAgg is a tuple no longer; what it carries beyond a column and a function is refused later."""
    return (value.column, value.aggfunc, *value.args, *value.kwargs) if hasattr(value, "kwargs") else value
