"""track_units: for each release whose rows they are, what is known of every column, and which groups are public."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpsql.relation.domain import Domain, public_domain
from dpsql.relation.knowledge import Knowledge, knowledge_of
from dpsql.relation.units import one_row_per_unit, scans_of

if TYPE_CHECKING:
    from sqlglot import exp

    from dpsql.flow.question import Question
    from dpsql.flow.resolve_names import Resolved
    from dpsql.flow.setting import Setting
    from dpsql.relation.relation import Aggregate, Scan


@dataclass(frozen=True)
class TrackedRelease:
    aggregate: Aggregate
    unit_columns: frozenset[str]
    scans: tuple[Scan, ...]
    """The private tables that the rows come from."""
    one_row_per_unit: bool
    knowledge: Knowledge
    domain: Domain | None
    """The public groups; None when the keys are people's own and must be selected privately."""


@dataclass(frozen=True)
class Tracked:
    question: Question
    releases: tuple[TrackedRelease, ...]
    public: tuple[Scan, ...]
    finish: exp.Query = field(compare=False)


def track_units(resolved: Resolved, setting: Setting) -> Tracked:
    releases = tuple(
        _track(aggregate, units, setting.max_public_groups)
        for aggregate, units in zip(resolved.releases, resolved.unit_columns, strict=True)
    )
    return Tracked(resolved.question, releases, resolved.public, resolved.finish)


def _track(aggregate: Aggregate, unit_columns: frozenset[str], max_public_groups: int) -> TrackedRelease:
    knowledge = knowledge_of(aggregate.source)
    domain = public_domain(aggregate.keys, aggregate.source, knowledge.kept, max_public_groups)
    scans = tuple(scan for scan in scans_of(aggregate.source) if scan.unit is not None)
    return TrackedRelease(aggregate, unit_columns, scans, one_row_per_unit(aggregate.source), knowledge, domain)
