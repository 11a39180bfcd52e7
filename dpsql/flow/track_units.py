"""track_units: for each release whose rows they are, what is known of every column, and which groups are public."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpsql.relation.domain import Domain, public_domain
from dpsql.relation.knowledge import Knowledge, knowledge_of
from dpsql.relation.relation import scan_of

if TYPE_CHECKING:
    from sqlglot import exp

    from dpsql.flow.question import Question
    from dpsql.flow.resolve_names import Resolved
    from dpsql.flow.setting import Setting
    from dpsql.relation.relation import Aggregate, Scan


@dataclass(frozen=True)
class TrackedRelease:
    aggregate: Aggregate
    scan: Scan
    unit_columns: frozenset[str]
    knowledge: Knowledge
    domain: Domain | None
    """The public groups; None when the keys are people's own and must be selected privately."""


@dataclass(frozen=True)
class Tracked:
    question: Question
    releases: tuple[TrackedRelease, ...]
    finish: exp.Query = field(compare=False)


def track_units(resolved: Resolved, setting: Setting) -> Tracked:
    releases = tuple(
        _track(aggregate, units, setting.max_public_groups)
        for aggregate, units in zip(resolved.releases, resolved.unit_columns, strict=True)
    )
    return Tracked(resolved.question, releases, resolved.finish)


def _track(aggregate: Aggregate, unit_columns: frozenset[str], max_public_groups: int) -> TrackedRelease:
    knowledge = knowledge_of(aggregate.source)
    domain = public_domain(aggregate.keys, aggregate.source, knowledge.kept, max_public_groups)
    return TrackedRelease(aggregate, scan_of(aggregate.source), unit_columns, knowledge, domain)
