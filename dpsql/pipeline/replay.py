"""Computed columns over noise that is drawn again: what they would have become around the same released values.

    released    a 120, b 80, share of a 0.60        noise drawn again    a 127, b 75, share of a 0.63, and 198 more

It reads what was released and nothing else, so it is free. It runs when somebody looks at an error bar, and once.
docs/proofs/intervals.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.aggregates.release import LEVEL as TOTALS
from dpsql.engines.quoting import quoted
from dpsql.errors import ProgrammingError
from dpsql.mechanisms.replicas import REPLICAS, redrawn
from dpsql.resolve.noise_in_columns import Kind, numbered
from dpsql.sampling import RepeatableRandomness

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from dpsql.engines.post_processor import Lasting, PostProcessor
    from dpsql.engines.public import PostProcessingTable
    from dpsql.intervals import NoisyColumns
    from dpsql.pipeline.calibrate_noise import CalibratedRelease
    from dpsql.pipeline.output import Output
    from dpsql.resolve.follow_noise import Followed

    Columns = Mapping[str, np.ndarray]

MOST_NUMBERS = 1 << 22
"""More replicas than this take seconds; then no error is said."""


@dataclass(frozen=True)
class Released:
    """A release as the post-processing reads it, and the noise that is in each row, by its level of totals."""

    release: CalibratedRelease
    columns: Columns
    levels: tuple[NoisyColumns, ...]

    @property
    def rows(self) -> int:
        return len(next(iter(self.columns.values()), ()))


@dataclass(frozen=True)
class Replay:
    followed: Followed
    outputs: Sequence[Output]
    released: Sequence[Released]
    public: Sequence[tuple[PostProcessingTable, Columns | Lasting]]
    post_processor: PostProcessor

    def replicas(self, column: str, row: tuple[Any, ...]) -> list[NDArray[np.float64]]:
        """Those of one cell, which is found by its row, and of all that look the same; none that cannot be computed."""
        return [found[self._places[column]] for found in self._by_row.get(repr(row[: len(self.outputs)]), [])]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {output.name: place for place, output in enumerate(out for out in self.outputs if out.replica)}

    @cached_property
    def _by_row(self) -> dict[str, list[NDArray[np.float64]]]:
        """By what the row shows, the replicas of its computed columns."""
        if sum(part.rows * len(_answers(part, self.followed)) for part in self.released) * REPLICAS > MOST_NUMBERS:
            return {}
        try:
            return self._run()
        except ProgrammingError:  # what DuckDB cannot compute of some replica has no error that is known
            return {}

    def _run(self) -> dict[str, list[NDArray[np.float64]]]:
        source = RepeatableRandomness(b"".join(_seed(part) for part in self.released))
        private = [_with_replicas(part, self.followed, source, self.post_processor) for part in self.released]
        tables, data = zip(*private, *self.public, strict=True)
        shown = [quoted(output.name) for output in self.outputs]
        replicas = [
            quoted(numbered(output.replica, number))
            for output in self.outputs
            if output.replica
            for number in range(REPLICAS)
        ]
        numbers = ", ".join(f"TRY_CAST({name} AS DOUBLE)" for name in replicas)
        sql = f"SELECT {', '.join(shown)}, [{numbers}] FROM ({self.followed.sql(REPLICAS)})"
        found: dict[str, list[NDArray[np.float64]]] = {}
        for *row, cells in self.post_processor.run(sql, tables, data).rows:
            found.setdefault(repr(tuple(row)), []).append(np.array(cells, dtype=np.float64).reshape(-1, REPLICAS))
        return found


def _seed(part: Released) -> bytes:
    """The noisy numbers themselves, so that the same answer has the same error bars."""
    names = sorted(name for name in part.release.noises if name in part.columns)
    return b"".join(np.ma.getdata(part.columns[name]).astype(np.int64).tobytes() for name in names)


def _answers(part: Released, followed: Followed) -> dict[str, str]:
    """Those that are noisy, each with the name of its replicas."""
    rows = followed.tables[part.release.planned.name]
    return {name: made.replica for name, made in rows.columns if made.kind is Kind.NOISY}


def _with_replicas(
    part: Released, followed: Followed, source: RepeatableRandomness, post_processor: PostProcessor
) -> tuple[PostProcessingTable, Columns]:
    """The release's table with replicas of its answers beside them."""
    table, answers = part.release.planned.post_processing_table, _answers(part, followed)
    drawn = _answered_again(part, list(answers), source, post_processor)
    wide = {
        numbered(replica, number): (table.columns[name][0], values)
        for (name, replica), column in zip(answers.items(), drawn, strict=True)
        for number, values in enumerate(column)
    }
    columns = {name: (kind, f"TRY_CAST({quoted(name)} AS {kind})") for name, (kind, _) in wide.items()}
    stored = {**table.stored, **dict.fromkeys(wide, "DOUBLE")}
    values = {name: values for name, (_, values) in wide.items()}
    return replace(table, stored=stored, columns={**table.columns, **columns}), {**part.columns, **values}


def _answered_again(
    part: Released, names: Sequence[str], source: RepeatableRandomness, post_processor: PostProcessor
) -> list[np.ndarray]:
    """What the answers become of measures whose noise is drawn again: a row for each replica."""
    if not names:
        return []
    table, keys = part.release.planned.post_processing_table, part.release.planned.release.key_names
    drawn = _redrawn(part, source)
    stacked = {
        name: drawn[name].ravel() if name in drawn else np.tile(part.columns[name], REPLICAS)
        for name in table.stored
        if name not in keys
    }
    stored = {name: table.stored[name] for name in stacked}
    columns = {name: table.columns[name] for name in names}
    answers = ", ".join(f"CAST({quoted(name)} AS DOUBLE)" for name in names)
    sql, slim = f"SELECT {answers} FROM {quoted(table.name)}", replace(table, stored=stored, columns=columns)
    found = post_processor.run(sql, [slim], [stacked]).cells.columns
    assert found is not None
    return [column.reshape(REPLICAS, part.rows) for column in found]


def _redrawn(part: Released, source: RepeatableRandomness) -> dict[str, np.ndarray]:
    """For each noisy column its replicas, one after the other."""
    levels = part.levels or (part.release.noises,)
    level = np.asarray(part.columns[TOTALS]) if part.levels else np.zeros(part.rows, dtype=np.int64)
    found = {name: np.zeros((REPLICAS, part.rows), dtype=np.int64) for name in levels[0] if name in part.columns}
    for number, noises in enumerate(levels):
        rows = np.flatnonzero(level == number)
        draws = redrawn([noises[name][0] for name in found], len(rows), source)
        for name, drawn in zip(found, draws, strict=True):
            found[name][:, rows] = np.rint(drawn * noises[name][1]).astype(np.int64)
    return {
        name: np.ma.masked_array(
            np.ma.getdata(part.columns[name]).astype(np.int64) + drawn,
            mask=np.broadcast_to(np.ma.getmaskarray(part.columns[name]), drawn.shape),
        )
        for name, drawn in found.items()
    }
