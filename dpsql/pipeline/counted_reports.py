"""Randomised reports that the post-processing reads: how they are counted, and what becomes of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dpsql.aggregates.estimate import Reported
from dpsql.engines.duckdb.render import type_name
from dpsql.engines.public import PostProcessingTable
from dpsql.engines.quoting import quoted
from dpsql.relation.write_reports import counted_reports_sql

if TYPE_CHECKING:
    from dpsql.engines.public import Render
    from dpsql.relation.relation import Aggregate
    from dpsql.relation.reports import Reports


@dataclass(frozen=True)
class CountedReports:
    """Randomised reports that are counted as they are, and what the post-processing reads of them: estimates."""

    name: str
    aggregate: Aggregate
    answers: tuple[tuple[Any, ...], ...]
    render: Render = field(compare=False)
    """How the engine at hand says it."""

    @property
    def reports(self) -> Reports:
        assert self.aggregate.reports is not None
        return self.aggregate.reports

    @property
    def sql(self) -> str:
        return self.render(counted_reports_sql(self.aggregate))

    @property
    def counts(self) -> list[str]:
        return [f"n{number}" for number in range(len(self.aggregate.calls))]

    @property
    def post_processing_table(self) -> PostProcessingTable:
        return estimates_table(self.name, self.reports)


def estimates_table(name: str, reports: Reports) -> PostProcessingTable:
    types = {f"_k{number}": type_name(kind) for number, kind in enumerate(reports.key_types)}
    for number in range(len(reports.calls)):
        found = Reported(f"_a{number}")
        types |= dict.fromkeys((found.answer, found.standard_error, found.kurtosis), "DOUBLE")
    return PostProcessingTable(name, types, {part: (kind, quoted(part)) for part, kind in types.items()})
