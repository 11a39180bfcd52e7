"""Which columns of an answer are computed from noisy ones, and whether their error is found by replaying them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.aggregates.estimate import Formula, Linear, Ratio
from dpsql.pipeline.counted_reports import CountedReports
from dpsql.resolve.follow_noise import LOST, MARK, PLAIN, Kind, Made, Rows, follow_noise
from dpsql.result import NUMBERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlglot import exp

    from dpsql.aggregates.final import Answer
    from dpsql.pipeline.plan_query import Output, PlannedRelease, PublicTable
    from dpsql.resolve.follow_noise import Followed


def follow_outputs(
    query: exp.Query,
    outputs: Sequence[Output],
    described: Sequence[tuple[str, str]],
    releases: Sequence[PlannedRelease],
    public: Sequence[PublicTable | CountedReports],
) -> tuple[tuple[Output, ...], Followed | None]:
    """The outputs, those that have no estimate with the name of their replicas or with the word that they are lost."""
    pairs = list(zip(outputs, (kind for _, kind in described), strict=False))
    reads_noise = releases or any(isinstance(table, CountedReports) for table in public)
    if not reads_noise or not any(_is_open(*pair) for pair in pairs):
        return tuple(outputs), None
    followed = follow_noise(query, _tables(releases, public))
    names = [output.name.lower() for output in outputs]
    if followed is None or len(set(names)) < len(names):
        return tuple(replace(output, lost=_is_open(output, kind)) for output, kind in pairs), None
    made = followed.made(names)
    found = tuple(_with_error(*pair, of, followed) for pair, of in zip(pairs, made, strict=True))
    return found, followed if any(output.replica for output in found) else None


def _is_open(output: Output, kind: str) -> bool:
    """Whether its error has yet to be found."""
    return output.estimate is None and not output.is_key and kind.startswith(NUMBERS)


def _with_error(output: Output, kind: str, made: Made, followed: Followed) -> Output:
    is_key = made.kind is Kind.PLAIN if output.is_key is None else output.is_key
    if not _is_open(output, kind) or made.kind is Kind.PLAIN:
        return replace(output, is_key=is_key)
    chosen = output.chosen or followed.rows.chosen
    return replace(output, is_key=is_key, replica=made.replica, lost=made.kind is Kind.LOST, chosen=chosen)


def _tables(releases: Iterable[PlannedRelease], public: Iterable[PublicTable | CountedReports]) -> dict[str, Rows]:
    found = {release.name: _release(release) for release in releases}
    for table in public:
        names = table.post_processing_table.columns
        reports = isinstance(table, CountedReports)
        found[table.name.lower()] = Rows(
            tuple((name, LOST if reports and _is_answer(name) else PLAIN) for name in names)
        )
    return found


def _release(planned: PlannedRelease) -> Rows:
    release = planned.release
    measures = {part.column for part in release.measures}
    answers = {} if planned.reports is not None else dict(enumerate(release.answers))
    by_row = bool(release.levels)
    made: Mapping[str, Made] = {
        f"_a{number}": Made(Kind.NOISY, f"_a{number}{MARK}", by_row) if _is_of(answer, measures) else LOST
        for number, answer in answers.items()
    }
    names = planned.post_processing_table.columns
    return Rows(tuple((name, made.get(name, LOST if _is_answer(name) else PLAIN)) for name in names))


def _is_answer(name: str) -> bool:
    return name.startswith("_a")


def _is_of(answer: Answer, measures: set[str]) -> bool:
    """Whether it is made of measures alone, whose noise everybody knows."""
    estimate = answer.estimate
    parts: tuple[Linear, ...] = ()
    if isinstance(estimate, Linear):
        parts = (estimate,)
    elif isinstance(estimate, Ratio):
        parts = (estimate.above, estimate.below)
    elif isinstance(estimate, Formula):
        parts = estimate.parts
    return bool(parts) and {name for part in parts for name, _ in part.weights} <= measures
