"""Noisy answers by the question's fingerprint: asking the same again is answered from here, and costs nothing.

A payload holds noisy values only. It was paid for when it was made; handing it out again is post-processing. For each
subject, which is a question at any price, it is known which answer was the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.accounting.ledger.store import Connection, Store

INSERT = "INSERT INTO answers (dataset, fingerprint, payload) VALUES (?, ?, ?) ON CONFLICT (dataset, fingerprint)"


class Stored(NamedTuple):
    fingerprint: str
    subject: str
    payload: str


@dataclass(frozen=True)
class Answers:
    file: Store
    dataset: str

    def store(self, connection: Connection, answers: Sequence[Stored]) -> None:
        """Keeps the answers; a fresh one takes the place of an older one."""
        for fingerprint, subject, payload in answers:
            connection.execute(
                f"{INSERT} DO UPDATE SET payload = excluded.payload", (self.dataset, fingerprint, payload)
            )
            connection.execute(f"{INSERT} DO NOTHING", (self.dataset, subject, fingerprint))

    def recall(self, fingerprint: str) -> str | None:
        with self.file.reading() as connection:
            row = connection.execute(
                "SELECT payload FROM answers WHERE dataset = ? AND fingerprint = ?", (self.dataset, fingerprint)
            ).fetchone()
        return None if row is None else str(row[0])

    def first(self, subject: str) -> str | None:
        """The answer that was given when the subject was first asked about."""
        fingerprint = self.recall(subject)
        return None if fingerprint is None else self.recall(fingerprint)
