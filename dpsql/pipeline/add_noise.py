"""add_noise: exact integers in, noisy integers out. Partition selection happens here.

The noise is exact (docs/proofs/exact_sampling.md); statistics are drawn from their profiles. A group with private keys
is shown if its noisy number of units reaches the threshold, and that noisy number is the one that is released. It is
drawn first, and nothing else is drawn for a group that is not shown, so its data takes no time. Noisy answers are
stored, so that the same query has the same answer; no exact number outlives this stage. Releases that run together are
stored together or, if one of them failed, not at all, so that none reveals which one failed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.accounting.ledger.journal import StoredAnswer
from dpsql.aggregates.measure import Quantile
from dpsql.aggregates.release import LEVEL, quantiles_in_order
from dpsql.mechanisms.k_norm import drawn_together
from dpsql.pipeline.stored_answers import as_text, from_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from dpsql.aggregates.release import Bounded, Drawn, Level, Release
    from dpsql.mechanisms.draw import Refund
    from dpsql.pipeline.calibrate_noise import CalibratedRelease
    from dpsql.pipeline.charge_budget import Charged
    from dpsql.pipeline.choose_mechanism import NoisyMeasure
    from dpsql.pipeline.environment import Environment

# -- totals ------------------------------------------------------------------------------------------------------------
# Totals: the groups of ROLLUP, CUBE and GROUPING SETS, from the finest groups. docs/proofs/totals.md.
#
# The engine gives the finest groups, all of them, and their sums are the exact totals. Groups and totals each get noise
# of their own: a total is of everybody, whether the groups in it are shown or not. Where keys are not public, a group
# that is shown names the totals that it is in, and these are shown too; the others are chosen at each level by
# themselves. What is kept stands in one table, one level after the other.

if TYPE_CHECKING:
    Columns = Mapping[str, NDArray[Any]]
    Named = NDArray[np.bool_]


def with_totals(
    exact: Columns, release: Release, with_noise: Callable[[Columns, Level, Named], Columns]
) -> dict[str, NDArray[Any]]:
    """The rows of all levels, one level after the other, named like the finest measures. Omitted keys are NULL."""
    noisy: dict[tuple[int, ...], Columns] = {}
    for level in sorted(release.levels, key=lambda level: len(level.kept), reverse=True):
        summed = _summed(exact, release, level)
        noisy[level.kept] = with_noise(summed, level, _named_by_shown(summed, level, noisy, release))
    numbers = {level.kept: number for number, level in enumerate(release.levels)}
    parts = [(numbers[kept], noisy[kept]) for kept in map(_in_order, release.aggregate.totals)]
    lengths = [(number, _length(table)) for number, table in parts]
    stacked: dict[str, NDArray[Any]] = {
        name: _concatenated(
            [_key(name, table, exact, size) for (_, table), (_, size) in zip(parts, lengths, strict=True)]
        )
        for name in release.key_names
    }
    named = [_named_by_shown(table, release.levels[number], noisy, release) for number, table in parts]
    stacked[LEVEL] = np.concatenate(
        [number + len(release.levels) * mask.astype(np.int64) for (number, _), mask in zip(parts, named, strict=True)]
    )
    for position, measure in enumerate(release.measures):
        stacked[measure.column] = np.concatenate(
            [table[release.levels[number].measures[position].column] for number, table in parts]
        )
    return stacked


def _named_by_shown(table: Columns, level: Level, shown: Mapping[tuple[int, ...], Columns], release: Release) -> Named:
    """Which groups of a level have a finer group that is shown: everybody knows their keys then."""
    none = np.zeros(_length(table), dtype=bool)
    if not release.names_totals or not level.kept:
        return none
    names = [release.key_names[key] for key in level.kept]
    finer = [found for kept, found in shown.items() if set(kept) > set(level.kept)]
    known = {key for found in finer for key in _key_values(found, names)}
    return np.array([key in known for key in _key_values(table, names)], dtype=bool) if known else none


def _key_values(table: Columns, names: Sequence[str]) -> Iterator[tuple[object, ...]]:
    return zip(*([_named(value) for value in table[name].tolist()] for name in names), strict=True)


def _length(table: Columns) -> int:
    """The number of groups; one, if there are neither keys nor measures."""
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
    """A representative row per group, and the group of each row, in an order that hidden groups do not affect."""
    if not keys:
        return np.zeros(0, dtype=np.intp), np.zeros(rows, dtype=np.intp), 1
    code = np.zeros(rows, dtype=np.int64)
    for key in keys:
        own, number = numbered(key)
        _, code = np.unique(code * number + own, return_inverse=True)
    _, first, group = np.unique(code, return_index=True, return_inverse=True)
    return first, group, len(first)


def numbered(key: NDArray[Any]) -> tuple[NDArray[np.int64], int]:
    """Each value as an index into the sorted distinct values, NULL last, and their number."""
    values = [_named(value) for value in key.tolist()]
    places = {value: place for place, value in enumerate(sorted(set(values)))}
    return np.array([places[value] for value in values], dtype=np.int64), max(1, len(places))


def _named(value: Any) -> tuple[int, Any]:
    """NaN is not equal to itself, and nothing is comparable with NULL."""
    if value is None:
        return 2, 0
    return (1, 0) if value != value else (0, value)


# -- add noise ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fetched:
    charged: Charged
    columns: tuple[Mapping[str, np.ndarray] | None, ...] = field(repr=False)
    """The exact columns of each release; None if it was recalled, or the engine failed."""


@dataclass(frozen=True)
class Noisy:
    charged: Charged
    columns: tuple[Mapping[str, np.ndarray] | None, ...]
    """The keys, noisy measures and statistics of each release; None if it failed or did not run."""
    refused: tuple[Refund, ...] = ()
    """The refunds of tests that refused."""

    @property
    def has_failed(self) -> bool:
        return any(columns is None for columns in self.columns)

    @property
    def refund(self) -> Fraction:
        return sum((part.epsilon for part in self.refused), Fraction(0))


def add_noise(fetched: Fetched, environment: Environment) -> Noisy:
    charged = fetched.charged
    columns: list[Mapping[str, np.ndarray] | None] = []
    stored, terms = [], charged.calibrated.terms.to_json()
    for release, answer, exact in zip(charged.calibrated.releases, charged.recalled, fetched.columns, strict=True):
        if answer is not None:
            columns.append(_revived(answer, release))
            continue
        noisy = None if exact is None else _noisy_or_none(exact, release)
        columns.append(noisy)
        if noisy is not None:
            payload = as_text(noisy, release.planned.found.written)
            stored.append(StoredAnswer(release.fingerprint, release.subject, payload, terms))
    if any(column is None for column in columns) or (stored and not environment.ledger.keep(stored)):
        return Noisy(charged, (None,) * len(columns))
    return Noisy(charged, tuple(columns), _refused(charged, columns))


def _refused(charged: Charged, columns: list[Mapping[str, np.ndarray] | None]) -> tuple[Refund, ...]:
    """The refunds of statistics that tests refused in every group."""
    return tuple(
        part
        for release, answer, noisy in zip(charged.calibrated.releases, charged.recalled, columns, strict=True)
        if answer is None and noisy is not None
        for name, part in release.refusable.items()
        if np.ma.getmaskarray(noisy[name]).all()
    )


def _noisy_or_none(exact: Mapping[str, np.ndarray], release: CalibratedRelease) -> Mapping[str, np.ndarray] | None:
    try:
        return with_noise(exact, release)
    except Exception:
        return None  # an error from here could show exact numbers


def with_noise(exact: Mapping[str, np.ndarray], release: CalibratedRelease) -> Mapping[str, np.ndarray]:
    """The release with noise: keys, noisy measures and statistics of the groups that partition selection keeps."""
    plan = release.planned.release
    if plan.levels:
        return with_totals(
            exact, plan, lambda summed, level, named: _measured(summed, release, level.measures, named)[1]
        )
    shown, noisy = _measured(exact, release, plan.measures, np.False_)
    return noisy | _drawn(shown, release) | _tested(noisy, release)


def _measured(
    exact: Mapping[str, np.ndarray], release: CalibratedRelease, bounds: Sequence[Bounded], named: Named | np.bool_
) -> tuple[Mapping[str, np.ndarray], dict[str, np.ndarray]]:
    """The groups that pass the threshold or are `named`: the engine's columns, and their keys and noisy measures."""
    noises = {measure.bounded.column: measure for measure in release.measures}
    counted: dict[str, np.ndarray] = {}
    for column in (part.column for part in bounds if part.column in release.thresholds):
        noisy = noised({column: exact[column]}, noises)[column]
        passed = (noisy >= release.thresholds[column]) | named
        exact, counted = {name: values[passed] for name, values in exact.items()}, {column: noisy[passed]}
    keys = {name: exact[name] for name in release.planned.release.key_names if name in exact}
    others = [part.column for part in bounds if part.column not in counted]
    return exact, keys | counted | noised({column: exact[column] for column in others}, noises)


def _drawn(exact: Mapping[str, np.ndarray], release: CalibratedRelease) -> dict[str, np.ndarray]:
    """The drawn statistics. Quantiles of the same values are sorted, unless a test refused one of them."""
    columns: dict[str, np.ndarray] = {}
    for drawn, draw in release.statistics:
        if drawn.leader is None:
            found = draw.draw([exact[name] for name in drawn.profile])
            columns |= _of_each(drawn, release, found) if drawn.together else {drawn.column: found}
    for names in quantiles_in_order(release.planned.release.statistics):
        answers = np.ma.stack([columns[name] for name in names])
        whole = ~np.ma.getmaskarray(answers).any(axis=0)
        answers[:, whole] = np.sort(answers.data[:, whole], axis=0)
        columns |= zip(names, answers, strict=True)
    return columns


def _of_each(leader: Drawn, release: CalibratedRelease, found: np.ndarray) -> dict[str, np.ndarray]:
    """The columns of quantiles that were drawn together."""
    return {
        drawn.column: found[drawn.together.index(drawn.statistic.fraction)]
        for drawn, _ in release.statistics
        if leader.column in (drawn.column, drawn.leader) and isinstance(drawn.statistic, Quantile)
    }


def _tested(measures: Mapping[str, np.ndarray], release: CalibratedRelease) -> dict[str, np.ndarray]:
    """The clipped sums; masked if too many units exceed the clip."""
    return {
        part.test.clipped: np.ma.masked_array(
            measures[part.test.clipped], mask=measures[part.test.exceeding] > part.most
        )
        for part in release.tests
    }


def noised(columns: Mapping[str, NDArray[Any]], measures: Mapping[str, NoisyMeasure]) -> dict[str, np.ndarray]:
    """Each column with its noise, drawn jointly for all columns of a K-norm box."""
    rows = len(next(iter(columns.values()), ()))
    drawn = drawn_together([measures[column].noise for column in columns], rows)
    return {
        column: _added(values, noise, measures[column].shift)
        for (column, values), noise in zip(columns.items(), drawn, strict=True)
    }


def _added(values: NDArray[Any], noise: NDArray[np.int64], shift: int) -> NDArray[np.int64]:
    """The measure plus its noise. Low bits far below the noise are rounded off first; sums wrap at 64 bits."""
    exact = np.asarray(values, dtype=np.int64)
    coarse = (exact + (1 << shift >> 1)) >> shift if shift else exact
    return (coarse + noise) << shift


def _revived(answer: str, release: CalibratedRelease) -> dict[str, np.ndarray]:
    columns = from_text(answer)
    keys = release.planned.release.key_names
    return {name: _keys(values) if name in keys else _numbers(values) for name, values in columns.items()}


def _numbers(values: list[int | None]) -> np.ndarray:
    unknown = [value is None for value in values]
    return np.ma.masked_array(np.array([value or 0 for value in values], dtype=np.int64), mask=unknown)


def _keys(values: list[Any]) -> np.ndarray:
    """Keys as Python objects, None for NULL."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
