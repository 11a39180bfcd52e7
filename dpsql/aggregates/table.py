"""The aggregates over people: one row each."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dpsql.aggregates.count_sum import AVG, COUNT, SUM
from dpsql.aggregates.moments import MOMENTS
from dpsql.aggregates.quantile import MODE, QUANTILES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dpsql.aggregates.function import AggregateFunction, Word
    from dpsql.relation.relation import AggregateCall


def by_name(functions: Iterable[AggregateFunction]) -> Mapping[str, AggregateFunction]:
    """The table by name. Two aggregates cannot share a name or a method of df.dp."""
    listed = list(functions)
    taken = Counter(name for function in listed for name in function.names)
    taken += Counter(word.name for function in listed for word in function.words)
    twice = sorted(name for name, times in taken.items() if times > 1)
    if twice:
        raise ValueError(f"{', '.join(twice)} would be two aggregates")
    return {function.name: function for function in listed}


AGGREGATES = by_name((COUNT, SUM, AVG, *MOMENTS, *QUANTILES, MODE))

WORDS: Mapping[str, Word] = {word.name: word for function in AGGREGATES.values() for word in function.words}


def is_one_per_unit(call: AggregateCall) -> bool:
    """Whether the number of a unit's rows does not matter to an aggregate."""
    return call.name in AGGREGATES and AGGREGATES[call.name].one_per_unit


def ways_to_ask() -> list[str]:
    """All names and spellings of the aggregates."""
    spelled = [
        (*function.names, *(spelling.partition("(")[0] for spelling in function.spellings))
        for function in AGGREGATES.values()
    ]
    return [name for names in spelled for name in names]
