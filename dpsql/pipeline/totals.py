"""Totals: the groups of ROLLUP, CUBE and GROUPING SETS, from the finest groups. docs/proofs/totals.md.

The engine gives the finest groups, all of them, and their sums are the exact totals. Groups and totals each get noise
of their own, and those whose keys are not public are chosen at each level by themselves: a total is of everybody,
whether the groups in it are shown or not. What is kept stands in one table, one level after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.aggregates.release import LEVEL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from dpsql.aggregates.release import Level, Release

    Columns = Mapping[str, NDArray[Any]]


def with_totals(exact: Columns, release: Release, with_noise: Callable[[Columns, Level], Columns]) -> Columns:
    """All levels below each other, by the names of the finest measures; a key that a level leaves out is NULL."""
    noisy = {level.kept: with_noise(_summed(exact, release, level), level) for level in release.levels}
    numbers = {level.kept: number for number, level in enumerate(release.levels)}
    parts = [(numbers[kept], noisy[kept]) for kept in map(_in_order, release.aggregate.totals)]
    lengths = [(number, _length(table)) for number, table in parts]
    stacked: dict[str, NDArray[Any]] = {
        name: _concatenated(
            [_key(name, table, exact, size) for (_, table), (_, size) in zip(parts, lengths, strict=True)]
        )
        for name in release.key_names
    }
    stacked[LEVEL] = np.repeat([number for number, _ in lengths], [size for _, size in lengths]).astype(np.int64)
    for position, measure in enumerate(release.measures):
        stacked[measure.column] = np.concatenate(
            [table[release.levels[number].measures[position].column] for number, table in parts]
        )
    return stacked


def _length(table: Columns) -> int:
    """Without keys and measures there is one group, of which nothing is asked."""
    return len(next(iter(table.values()), (0,)))


def _in_order(kept: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(kept))


def _key(name: str, table: Columns, exact: Columns, size: int) -> NDArray[Any]:
    """A key of a level, or as many NULLs."""
    empty: NDArray[Any] = np.ma.masked_array(np.zeros(size, dtype=exact[name].dtype), mask=True)
    return table.get(name, empty)


def _concatenated(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    masks = [np.ma.getmaskarray(part) for part in parts]
    return np.ma.masked_array(np.concatenate([np.ma.getdata(part) for part in parts]), mask=np.concatenate(masks))


def _summed(exact: Columns, release: Release, level: Level) -> Columns:
    """The level's groups without noise: its keys, and its measures by its own names."""
    names = [release.key_names[key] for key in level.kept]
    pairs = [(fine.column, own.column) for fine, own in zip(release.measures, level.measures, strict=True)]
    if len(names) == len(release.key_names):
        return exact
    first, group, size = _groups([exact[name] for name in names], _length(exact))
    summed: dict[str, NDArray[Any]] = {name: exact[name][first] for name in names}
    for fine, own in pairs:
        # Sums wrap like the noise does: modulo 2^64 a unit moves them by as much.
        summed[own] = np.zeros(size, dtype=np.int64)
        np.add.at(summed[own], group, np.asarray(exact[fine], dtype=np.int64))
    return summed


def _groups(keys: Sequence[NDArray[Any]], rows: int) -> tuple[NDArray[np.intp], NDArray[np.intp], int]:
    """For each group a row of it, and for each row its group. In the order of keys, which no hidden group decides."""
    if not keys:
        return np.zeros(0, dtype=np.intp), np.zeros(rows, dtype=np.intp), 1
    code = np.zeros(rows, dtype=np.int64)
    for key in keys:
        own, number = numbered(key)
        _, code = np.unique(code * number + own, return_inverse=True)
    _, first, group = np.unique(code, return_index=True, return_inverse=True)
    return first, group, len(first)


def numbered(key: NDArray[Any]) -> tuple[NDArray[np.int64], int]:
    """Each value as its place among the different ones, NULL last; and how many there are."""
    values = [_named(value) for value in key.tolist()]
    places = {value: place for place, value in enumerate(sorted(set(values)))}
    return np.array([places[value] for value in values], dtype=np.int64), max(1, len(places))


def _named(value: Any) -> tuple[int, Any]:
    """NaN is not equal to itself, and nothing is comparable with NULL."""
    if value is None:
        return 2, 0
    return (1, 0) if value != value else (0, value)
