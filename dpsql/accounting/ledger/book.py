"""The ledger's entries, through an open transaction: the latest sums and budgets, and appending one more."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpsql.accounting.budget import Suspension
from dpsql.accounting.ledger.entries import COLUMNS, GENESIS, Entry, Record
from dpsql.accounting.ledger.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpsql.accounting.ledger.store import Connection

SELECT = f"SELECT {', '.join(COLUMNS)} FROM entries"
SELECT_LIMIT = "SELECT composition, epsilon, delta FROM entries"
GIVEN_BACK = "(SELECT mark.tally FROM entries AS mark WHERE mark.charge = entries.number AND mark.state = 'refused')"
SELECT_ENDED = SELECT.replace(" tally,", f" coalesce({GIVEN_BACK}, tally),")
INSERT = f"INSERT INTO entries ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"

ALL = 2**62
"""As many entries as there can be."""


@dataclass(frozen=True)
class Book:
    connection: Connection

    def append(self, record: Record) -> Entry:
        last = self._one("SELECT number, hash, tally FROM entries ORDER BY number DESC LIMIT 1")
        number, previous, text = last or (0, GENESIS, None)
        before = Tally() if text is None else Tally.from_json(text)
        own = self.analyst_tally(record.analyst)
        tally = before.after(record)
        # Where one analyst asks, both are read from one text, and are the same sums.
        analyst_tally = tally if own is before else own.after(record)
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        entry = Entry(**vars(record), number=number + 1, time=now, tally=tally, analyst_tally=analyst_tally)
        sealed, row = entry.sealed(previous)
        self.connection.execute(INSERT, row)
        if record.state == "charged":
            self.connection.execute("INSERT INTO open_charges VALUES (?, ?)", (sealed.number, record.analyst))
        elif record.charge is not None:
            self.connection.execute("DELETE FROM open_charges WHERE number = ?", (record.charge,))
        return sealed

    def entry(self, number: int) -> Entry | None:
        row = self._one(f"{SELECT} WHERE number = ?", number)
        return None if row is None else Entry.from_row(row)

    def is_charge(self, number: int, seal: str) -> bool:
        """Whether the entry of this number is a charge with this seal, and so the same in all that was sealed."""
        return self._one("SELECT state, hash FROM entries WHERE number = ?", number) == ("charged", seal)

    def open_charges(self, analyst: str | None) -> list[int]:
        """The numbers of the charges of this analyst that no mark has ended yet."""
        rows = self.connection.execute("SELECT number FROM open_charges WHERE analyst IS ? ORDER BY number", (analyst,))
        return [number for (number,) in rows]

    def suspensions(self) -> list[Suspension]:
        """Of every analyst whose last such entry is no `resumed`."""
        last = "SELECT max(number) FROM entries WHERE state IN ('suspended', 'resumed') GROUP BY analyst"
        rows = self.connection.execute(
            f"SELECT analyst, state, number, time FROM entries WHERE number IN ({last}) ORDER BY number"
        )
        return [Suspension(analyst, number, time) for analyst, state, number, time in rows if state == "suspended"]

    def suspension(self, analyst: str | None) -> Suspension | None:
        return next((found for found in self.suspensions() if found.analyst == analyst), None)

    def has_retried(self, analyst: str | None) -> bool:
        """Whether a question of this analyst was asked once more since the owner last looked."""
        last = self._one(
            "SELECT state FROM entries WHERE state IN ('retried', 'resumed') AND analyst IS ? "
            "ORDER BY number DESC LIMIT 1",
            analyst,
        )
        return last is not None and last[0] == "retried"

    def tally(self) -> Tally:
        """Everything charged to the dataset."""
        row = self._one("SELECT tally FROM entries ORDER BY number DESC LIMIT 1")
        return Tally() if row is None else Tally.from_json(row[0])

    def analyst_tally(self, analyst: str | None) -> Tally:
        """What was charged under this name, or under none."""
        row = self._one("SELECT analyst_tally FROM entries WHERE analyst IS ? ORDER BY number DESC LIMIT 1", analyst)
        return Tally() if row is None else Tally.from_json(row[0])

    def budget(self, analyst: str | None) -> Entry | None:
        """The budget last put on record: the analyst's, or the dataset's for None."""
        row = self._one(f"{SELECT} WHERE state = 'budget' AND analyst IS ? ORDER BY number DESC LIMIT 1", analyst)
        return None if row is None else Entry.from_row(row)

    def limit(self, analyst: str | None) -> tuple[str, Fraction, Fraction] | None:
        """Its composition, epsilon and delta, for every question: the rest of an entry takes longer to read."""
        row = self._one(f"{SELECT_LIMIT} WHERE state = 'budget' AND analyst IS ? ORDER BY number DESC LIMIT 1", analyst)
        return None if row is None else (str(row[0]), Fraction(row[1]), Fraction(row[2]))

    def last_entries(self, limit: int | None) -> list[Entry]:
        """Oldest first."""
        rows = self.connection.execute(f"{SELECT} ORDER BY number DESC LIMIT ?", (ALL if limit is None else limit,))
        return [Entry.from_row(row) for row in rows][::-1]

    def charges(self, after: int, count: int) -> list[Entry]:
        """As they ended: the sums are those after a refused test gave back its share."""
        rows = self.connection.execute(
            f"{SELECT_ENDED} WHERE state = 'charged' ORDER BY number LIMIT ? OFFSET ?", (count, after)
        )
        return [Entry.from_row(row) for row in rows]

    def rows(self) -> Iterator[tuple[object, ...]]:
        """Every entry as it is stored, in order."""
        return iter(self.connection.execute(f"{SELECT} ORDER BY number"))

    def _one(self, query: str, *parameters: object) -> tuple[Any, ...] | None:
        return self.connection.execute(query, parameters).fetchone()
