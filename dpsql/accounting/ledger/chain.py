"""Walking a ledger from its first entry: every seal, every pointer and every running sum is computed again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpsql.accounting.filters import Filter, filter_named
from dpsql.accounting.ledger.entries import GENESIS, Entry, gives_back_at_most, seal
from dpsql.accounting.ledger.tally import Tally
from dpsql.display.numbers import several
from dpsql.errors import Error, LedgerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True)
class VerifyReport:
    """An intact chain. Its head is worth noting elsewhere: a copy cut short is intact too, and has another head."""

    entries: int
    charges: int
    head: str

    def __str__(self) -> str:
        charges = several(self.charges, "charge", "charges")
        return f"{several(self.entries, 'entry', 'entries')}, {charges}, intact; head {self.head}"


def verify_chain(rows: Iterable[Sequence[object]], last_number: int) -> VerifyReport:
    """Raises LedgerError at the first entry that does not follow from those before, up to `last_number`."""
    walk = _Walk()
    for row in rows:
        walk.step(row)
    if walk.number != last_number:
        raise walk.broken(f"the last number given was {last_number}, and entries are missing")
    return VerifyReport(walk.number, len(walk.charges), walk.head)


@dataclass(kw_only=True)
class _Walk:
    """What is known after `number` entries."""

    number: int = 0
    head: str = GENESIS
    dataset_tally: Tally = field(default_factory=Tally)
    analyst_tallies: dict[str | None, Tally] = field(default_factory=dict)
    limits: dict[str | None, Filter] = field(default_factory=dict)
    charges: dict[int, Entry] = field(default_factory=dict)
    suspended: set[str | None] = field(default_factory=set)
    retried: set[str | None] = field(default_factory=set)

    def step(self, row: Sequence[object]) -> None:
        self.number += 1
        if row[-1] != seal(self.head, row):
            raise self.broken("its seal does not match")
        try:
            entry = Entry.from_row(row)
            self._follow(entry)
        except LedgerError:
            raise
        except (Error, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise self.broken("it cannot be read") from error
        self.head = entry.hash

    def _follow(self, entry: Entry) -> None:
        own = self.analyst_tallies.get(entry.analyst, Tally()).after(entry)
        self.dataset_tally = self.dataset_tally.after(entry)
        self.analyst_tallies[entry.analyst] = own
        if entry.state == "charged" and entry.event is not None:
            self.charges[entry.number] = entry
        if entry.state == "budget":
            self.limits[entry.analyst] = filter_named(str(entry.composition), entry.epsilon, entry.delta)
        if entry.number != self.number:
            raise self.broken(f"it is numbered {entry.number}")
        if not (entry.tally.agrees(self.dataset_tally) and entry.analyst_tally.agrees(own)):
            raise self.broken("its running sums do not follow from the events")
        if entry.charge is not None and entry.charge not in self.charges:
            raise self.broken(f"it points at {entry.charge}, which is no charge")
        if entry.state == "refused" and not gives_back_at_most(entry, self.charges.get(entry.charge or 0)):
            raise self.broken("it gives back more than was charged")
        self._follow_suspensions(entry)
        if not self._within_limits(entry):
            raise self.broken("it spends more than the budget")

    def _follow_suspensions(self, entry: Entry) -> None:
        if entry.state == "charged" and entry.analyst in self.suspended:
            raise self.broken("it was charged while its analyst was suspended")
        if entry.state == "retried" and entry.analyst in self.retried:
            raise self.broken("it was asked once more, as another was before it, and the owner had not looked")
        if entry.state == "resumed" and entry.analyst not in self.suspended | self.retried:
            raise self.broken("it lifts a suspension that there was not")
        if entry.state == "suspended":
            self.suspended.add(entry.analyst)
        if entry.state == "retried":
            self.retried.add(entry.analyst)
        if entry.state == "resumed":
            self.suspended.discard(entry.analyst)
            self.retried.discard(entry.analyst)

    def _within_limits(self, entry: Entry) -> bool:
        own_limit = None if entry.analyst is None else self.limits.get(entry.analyst)
        return self.limits[None].admits(entry.tally.totals) and (
            own_limit is None or own_limit.admits(entry.analyst_tally.totals)
        )

    def broken(self, reason: str) -> LedgerError:
        return LedgerError(
            f"the ledger was changed from outside: entry {self.number} is not as written, {reason}",
            hint="restore the file from a backup, and count what was asked since then as spent",
        )
