"""Noisy answers by the question's fingerprint: asking the same again is answered from here, and costs nothing.

A payload holds noisy values only. It was paid for when it was made; handing it out again is post-processing. For each
subject, which is a question at any price, it is known which answer was the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpsql.accounting.ledger_file import LedgerFile


@dataclass(frozen=True)
class Answers:
    file: LedgerFile
    dataset: str

    def store(self, fingerprint: str, subject: str, payload: str) -> None:
        """Keeps the answer; a fresh one takes the place of an older one."""
        into = "INTO answers (dataset, fingerprint, payload) VALUES (?, ?, ?)"
        with self.file.writing() as connection:
            connection.execute(f"INSERT OR REPLACE {into}", (self.dataset, fingerprint, payload))
            connection.execute(f"INSERT OR IGNORE {into}", (self.dataset, subject, fingerprint))

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
