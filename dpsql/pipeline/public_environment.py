"""What a stage before the charge may look at besides its input: what everybody may know.

There is no engine here, no ledger and no row of people, so that none of these stages can read or change any of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpsql.accounting.budget import Budget
    from dpsql.engine_sql.tree import Filling, Query
    from dpsql.engines.public import EmptyPostProcessor, Guarantees, Render
    from dpsql.pipeline.plan_cache import PlanCache
    from dpsql.relation.adaptive_subquery import AdaptiveTable
    from dpsql.schema.model import Schema


class PublicRows(Protocol):
    """Rows that belong to nobody."""

    @property
    def stay(self) -> bool:
        """Whether nobody changes them while the connection is open."""

    def number(self, query: Query, lists: Sequence[AdaptiveTable]) -> int:
        """The number `n` that a query gives which reads nothing but public tables and these lists.

        Raises OperationalError where they cannot be read.
        """


class GivenAnswers(Protocol):
    """Noisy answers that were given before, and are known to everybody."""

    def recall(self, fingerprint: str) -> str | None: ...

    def first(self, subject: str) -> str | None:
        """The answer that was given when the subject was first asked about."""


@dataclass(frozen=True, kw_only=True)
class PublicEnvironment:
    schema: Schema
    guarantees: Guarantees
    render: Render
    public_rows: PublicRows
    post_processor: EmptyPostProcessor
    budget: Budget
    """The account as it stood when the question came."""
    answers: GivenAnswers
    plans: PlanCache
    """What was planned in this session before."""
    literals: Mapping[str, Filling] = field(default_factory=dict)
    """What fills the blanks of a question that is planned for many: a renderer sees it, and no stage does."""
