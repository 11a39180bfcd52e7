"""Walking a ledger from its first entry: every hash, every pointer and every running sum is computed again."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING

from dpsql.accounting.ledger.allowance import allowance
from dpsql.accounting.ledger.journal import GENESIS, RULES, Entry, RunningTotals, entry_hash, gives_back_at_most
from dpsql.accounting.ledger.renewal import due, schedules_of
from dpsql.display.numbers import several
from dpsql.errors import Error, LedgerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dpsql.accounting.ledger.allowance import OwnersRule
    from dpsql.accounting.ledger.declaration import Declaration


@dataclass(frozen=True)
class VerifyReport:
    """An intact chain. Its head is worth noting elsewhere: a copy cut short is intact too, and has another head."""

    entries: int
    charges: int
    head: str
    noted: int | None = None
    """The entry whose hash was noted elsewhere, if one was given."""
    sealed: int | None = None
    """The last entry that the owner sealed, if the public key was given."""

    def __str__(self) -> str:
        charges = several(self.charges, "charge", "charges")
        noted = "" if self.noted is None else f"; the noted head is entry {self.noted}"
        sealed = "" if self.sealed is None else f"; sealed up to entry {self.sealed}"
        return f"{several(self.entries, 'entry', 'entries')}, {charges}, intact{noted}{sealed}; head {self.head}"


def verify_chain(rows: Iterable[Sequence[object]], last_number: int) -> VerifyReport:
    """Raises LedgerError at the first entry that does not follow from those before, up to `last_number`."""
    walk = _Walk()
    for row in rows:
        walk.step(row)
    if walk.number != last_number:
        raise walk.broken(f"entries are missing: the last number issued was {last_number}")
    return VerifyReport(walk.number, len(walk.charges), walk.head)


@dataclass(kw_only=True)
class _Walk:
    """The state after `number` entries."""

    number: int = 0
    head: str = GENESIS
    dataset_tally: RunningTotals = field(default_factory=RunningTotals)
    analyst_tallies: dict[str | None, RunningTotals] = field(default_factory=dict)
    rules: dict[tuple[str, str | None], OwnersRule] = field(default_factory=dict)
    charges: dict[int, Entry] = field(default_factory=dict)
    suspended: set[str | None] = field(default_factory=set)
    retried: set[str | None] = field(default_factory=set)
    stopped: set[str | None] = field(default_factory=set)
    declared: Declaration | None = None
    schedules: list[Entry] = field(default_factory=list)
    period: date | None = None

    def step(self, row: Sequence[object]) -> None:
        self.number += 1
        if row[-1] != entry_hash(self.head, row):
            raise self.broken("its hash does not match")
        try:
            entry = Entry.from_row(row)
            self._follow(entry)
        except LedgerError:
            raise
        except (Error, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise self.broken("it cannot be read") from error
        self.head = entry.hash

    def _follow(self, entry: Entry) -> None:
        own, term = self.analyst_tallies.get(entry.analyst, RunningTotals()), self.dataset_tally.term
        own = (own if own.term == term else own.renewed(term)).after(entry, entry.number)
        self.dataset_tally = self.dataset_tally.after(entry, entry.number)
        self.analyst_tallies[entry.analyst] = own
        if entry.state == "charged" and entry.event is not None:
            self.charges[entry.number] = entry
        self._follow_renewals(entry)
        if entry.state in RULES:
            self.rules[entry.state, entry.analyst] = entry
        if entry.number != self.number:
            raise self.broken(f"it is numbered {entry.number}")
        if not (entry.tally.agrees(self.dataset_tally) and entry.analyst_tally.agrees(own)):
            raise self.broken("its running totals do not match the events")
        if entry.charge is not None and entry.charge not in self.charges:
            raise self.broken(f"it refers to {entry.charge}, which is not a charge")
        if entry.state == "refused" and not gives_back_at_most(entry, self.charges.get(entry.charge or 0)):
            raise self.broken("it refunds more than was charged")
        self._follow_suspensions(entry)
        self._follow_declarations(entry)
        self._follow_rules(entry)

    def _follow_suspensions(self, entry: Entry) -> None:
        if entry.state == "charged" and entry.analyst in self.suspended:
            raise self.broken("it was charged while its analyst was suspended")
        if entry.state == "retried" and entry.analyst in self.retried:
            raise self.broken("it was retried a second time before the owner intervened")
        to_lift = (self.suspended, self.retried, self.stopped)
        if entry.state == "resumed" and entry.analyst not in set().union(*to_lift):
            raise self.broken("it lifts a suspension that does not exist")
        match entry.state:
            case "suspended":
                self.suspended.add(entry.analyst)
            case "retried":
                self.retried.add(entry.analyst)
            case "interrupted" | "timed out":
                self.stopped.add(entry.analyst)
            case "resumed":
                for analysts in to_lift:
                    analysts.discard(entry.analyst)

    def _follow_declarations(self, entry: Entry) -> None:
        declared, before = entry.declared, self.declared
        if declared is None:
            return
        if before is not None and entry.state != "schema accepted" and declared.redefines(before):
            raise self.broken("it declares other people than before, and the owner did not accept that")
        self.declared = declared

    def _follow_renewals(self, entry: Entry) -> None:
        if entry.state == "renewal":
            self.schedules.append(entry)
        if entry.state != "renewed":
            return
        time, period = datetime.fromisoformat(entry.time), date.fromisoformat(str(entry.sql))
        days = {time.date(), (time - timedelta(minutes=1)).date()}  # it may have been written just after midnight
        called_for = [due(schedules_of(self.schedules), self.period, day) for day in days]
        if (entry.epsilon, entry.delta, period) not in [(f[0].epsilon, f[0].delta, f[1]) for f in called_for if f]:
            raise self.broken("no schedule renews the budget then")
        self.period = period

    def _follow_rules(self, entry: Entry) -> None:
        found = allowance(self.rules, entry.analyst)
        if found is None:
            raise self.broken("there is no budget before it")
        if entry.event is None or entry.state == "refused":
            return  # it spends nothing: a limit may be below what is spent, and admits nothing more
        if not found.whole.admits(entry.tally.totals):
            raise self.broken("it spends more than the budget")
        if found.lifetime is not None and not found.lifetime.admits(entry.tally.lifetime_totals):
            raise self.broken("it spends more than may be spent over all time")
        if found.own is not None and not found.own.admits(entry.analyst_tally.totals):
            raise self.broken("it spends more than its analyst may")
        if entry.state == "charged":
            try:
                found.refuse(entry.analyst, "")
                found.refuse_question(entry.epsilon, entry.delta)
            except Error as problem:
                raise self.broken(problem.problem) from None

    def broken(self, reason: str) -> LedgerError:
        return LedgerError(
            f"the ledger was modified outside dpsql: entry {self.number} has changed: {reason}",
            hint="restore the file from a backup, and treat every query since then as spent",
        )
