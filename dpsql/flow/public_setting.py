"""What a stage before the charge may look at besides its input: what everybody may know.

There is no engine here, no ledger and no row of people, so that none of these stages can read or change any of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.accounting.budget import Budget
    from dpsql.engines.public import Constraints, EmptyScratch
    from dpsql.expressions.tree import Expression
    from dpsql.relation.earlier import EarlierTable
    from dpsql.relation.relation import Relation
    from dpsql.schema.model import Schema


class PublicRows(Protocol):
    """Numbers about rows that belong to nobody, of public tables and of `lists`; None where a list is not known yet.

    Raises OperationalError where the rows cannot be read.
    """

    def most_alike(self, relation: Relation, keys: Sequence[Expression], lists: Sequence[EarlierTable]) -> int | None:
        """How many rows have the same values of the keys, at most."""

    def distinct(self, relation: Relation, keys: tuple[Expression, ...], lists: Sequence[EarlierTable]) -> int | None:
        """How many different values the keys have."""


class GivenAnswers(Protocol):
    """Noisy answers that were given before, and are known to everybody."""

    def recall(self, fingerprint: str) -> str | None: ...

    def first(self, subject: str) -> str | None:
        """The answer that was given when the subject was first asked about."""


@dataclass(frozen=True)
class PublicSetting:
    schema: Schema
    constraints: Constraints
    public_rows: PublicRows
    scratch: EmptyScratch
    budget: Budget
    """The account as it stood when the question came."""
    answers: GivenAnswers
