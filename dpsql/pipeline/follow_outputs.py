"""Which columns of an answer are computed from noisy ones, and whether their error is found by replaying them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.aggregates.estimate import Formula, Linear, Ratio
from dpsql.resolve.follow_noise import follow_noise
from dpsql.resolve.noise_in_columns import LOST, MARK, PLAIN, Kind, Made, Rows
from dpsql.result import is_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlglot import exp

    from dpsql.aggregates.final import Answer
    from dpsql.aggregates.release import Release
    from dpsql.pipeline.output import Output
    from dpsql.resolve.follow_noise import Followed


def follow_outputs(
    query: exp.Query, outputs: Sequence[Output], described: Sequence[tuple[str, str]], tables: Mapping[str, Rows]
) -> tuple[tuple[Output, ...], Followed | None]:
    """The outputs, those without an estimate with the name of their replicas or with the word that they are lost."""
    pairs = list(zip(outputs, (kind for _, kind in described), strict=False))
    is_noisy = any(made.kind for rows in tables.values() for _, made in rows.columns)
    if not is_noisy or not any(map(_is_open, outputs)):
        return tuple(outputs), None
    followed = follow_noise(query, tables)
    names = [output.name.lower() for output in outputs]
    if followed is None:
        # Which of the texts are keys is not known then.
        return tuple(replace(output, lost=_is_open(output) and is_number(kind)) for output, kind in pairs), None
    columns = followed.made(names)
    if len(set(names)) < len(names):
        # Replicas are found by name; what is not noisy needs none.
        columns = [made.lost for made in columns]
    found = tuple(
        _with_error(*pair, made, chosen=followed.rows.chosen) for pair, made in zip(pairs, columns, strict=True)
    )
    return found, followed if any(output.replica for output in found) else None


def _is_open(output: Output) -> bool:
    """Whether its error has yet to be found."""
    return output.estimate is None and not output.is_key


def _with_error(output: Output, kind: str, made: Made, *, chosen: bool) -> Output:
    is_key = made.kind is Kind.PLAIN if output.is_key is None else output.is_key
    if not _is_open(output) or made.kind is Kind.PLAIN:
        return replace(output, is_key=is_key)
    if not is_number(kind):  # a text, a date, a test: there is no interval of those
        return replace(output, is_key=is_key, lost=not output.is_answer)
    is_lost = made.kind is Kind.LOST
    return replace(output, is_key=is_key, replica=made.replica, lost=is_lost, chosen=output.chosen or chosen)


def plain_rows(columns: Iterable[str]) -> Rows:
    """Of a public table."""
    return Rows(tuple((name, PLAIN) for name in columns))


def reported_rows(columns: Iterable[str]) -> Rows:
    """Of answers that were estimated from randomised reports: what is computed from those is lost."""
    return Rows(tuple((name, LOST if name.startswith("_a") else PLAIN) for name in columns))


def noisy_rows(columns: Iterable[str], release: Release) -> Rows:
    """Of a release: its answers are noisy, its keys are not."""
    measures, by_row = {part.column for part in release.measures}, bool(release.levels)
    made = {
        f"_a{number}": Made(Kind.NOISY, f"_a{number}{MARK}", by_row) if _is_of(answer, measures) else LOST
        for number, answer in enumerate(release.answers)
    }
    return Rows(tuple((name, made.get(name, PLAIN)) for name in columns))


def _is_of(answer: Answer, measures: set[str]) -> bool:
    """Whether it is made of measures alone, whose noise everybody knows."""
    match answer.estimate:
        case Linear():
            parts: tuple[Linear, ...] = (answer.estimate,)
        case Ratio(above, below):
            parts = (above, below)
        case Formula(parts=of):
            parts = of
        case _:
            return False
    return bool(parts) and {name for part in parts for name, _ in part.weights} <= measures
