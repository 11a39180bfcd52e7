"""The durable account of one dataset: append-only, shared by processes, never behind what was answered.

A charge is checked and recorded in one immediate transaction and is on disk when `charge` returns, so an answer that
got out is on record whatever happens next. Running sums travel with the entries: opening, charging and looking take the
same time after a hundred thousand queries as after one. See docs/proofs/ledger.md.
"""

from __future__ import annotations

import os
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dpsql.accounting.answers import Answers
from dpsql.accounting.book import Book
from dpsql.accounting.budget import Budget
from dpsql.accounting.chain import VerifyReport, verify_chain
from dpsql.accounting.costs import Totals, price
from dpsql.accounting.entries import Entry, Record
from dpsql.accounting.events import Composed, Event
from dpsql.accounting.exact import exact, rounded_up
from dpsql.accounting.filters import Filter, filter_named
from dpsql.accounting.ledger_file import MEMORY, LedgerFile
from dpsql.errors import BudgetExhausted, LedgerError

if TYPE_CHECKING:
    from collections.abc import Sequence

ZERO = Fraction(0)


class Charge(NamedTuple):
    """`epsilon` and `delta` are the query's nominal cost, as the analyst named it; what is counted is the event."""

    event: Event
    sql: str
    fingerprint: str
    epsilon: Fraction
    delta: Fraction


class Ledger:
    """Made by `Ledger.open`."""

    def __init__(self, file: LedgerFile, dataset: str, analyst: str | None) -> None:
        self.dataset = dataset
        self.analyst = analyst
        self.answers = Answers(file, dataset)
        self._file = file

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        dataset: str,
        epsilon: object = None,
        delta: object = None,
        composition: str | None = None,
        analyst: str | None = None,
        analyst_epsilon: object = None,
    ) -> Ledger:
        """Opens or makes the ledger. What is None is taken from the file; what differs from it is put on record."""
        path = os.fspath(path)
        if epsilon is None and (path == MEMORY or not os.access(path, os.F_OK)):
            raise _nothing_recorded(path)
        file = LedgerFile(path)
        try:
            ledger = cls(file, dataset, analyst)
            with file.writing() as connection:
                total = ledger._agree(Book(connection), epsilon, delta, composition)
                if analyst is not None and analyst_epsilon is not None:
                    limit = filter_named(total.name, exact(analyst_epsilon, "analyst_epsilon"), total.delta)
                    ledger._put_on_record(Book(connection), limit, analyst)
        except BaseException:
            file.close()
            raise
        return ledger

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> Ledger:
        """An existing ledger, whatever its dataset: to look at and to verify."""
        path = os.fspath(path)
        if not Path(path).exists():
            raise LedgerError(f"there is no ledger {path}", hint="check the path; it ends in .ledger by default")
        file = LedgerFile(path)
        with file.reading() as connection:
            recorded = Book(connection).budget(None)
        if recorded is None:
            raise _nothing_recorded(path)
        return cls(file, recorded.dataset, None)

    def charge(self, event: Event, *, sql: str, fingerprint: str, epsilon: object, delta: object = 0) -> Entry:
        """Records the event if every budget that applies admits it; else raises BudgetExhausted and changes nothing."""
        charge = Charge(event, sql, fingerprint, exact(epsilon), exact(delta, "delta"))
        (entry,) = self.charge_all([charge], charge.epsilon)
        return entry

    def charge_all(self, charges: Sequence[Charge], epsilon: Fraction) -> list[Entry]:
        """Records all of them or none. `epsilon` is what they amount to together."""
        with self._file.writing() as connection:
            book = Book(connection)
            before, entries = self._budgets(book), []
            for charge in charges:
                budgets = zip(before, self._budgets(book), strict=True)
                refusing = [was for was, now in budgets if not now.admits(price(charge.event))]
                if refusing:
                    # An error undoes the transaction, and with it what was recorded in this loop.
                    raise _exhausted(refusing[-1], price(Composed(tuple(one.event for one in charges))), epsilon)
                entries.append(book.append(self._record(charge)))
        return entries

    def _record(self, charge: Charge) -> Record:
        return Record(dataset=self.dataset, analyst=self.analyst, state="charged", **charge._asdict())

    def released(self, charge: Entry) -> Entry:
        """Records that a charge ended in an answer."""
        return self._mark(charge, Record(dataset=self.dataset, analyst=charge.analyst, state="released"))

    def refused(self, charge: Entry, spared: Event, epsilon: Fraction, delta: Fraction = ZERO) -> Entry:
        """Records that a test failed and gives back what was charged for the release behind it.

        That the release did not happen shows in the answer, so giving back tells nothing new. docs/proofs/ledger.md.
        """
        record = Record(
            dataset=self.dataset, analyst=charge.analyst, state="refused", epsilon=epsilon, delta=delta, event=spared
        )
        return self._mark(charge, record)

    def _mark(self, charge: Entry, record: Record) -> Entry:
        record = replace(record, charge=charge.number, fingerprint=charge.fingerprint)
        with self._file.writing() as connection:
            return Book(connection).append(record)

    @property
    def budget(self) -> Budget:
        """The dataset's."""
        with self._file.reading() as connection:
            return self._budgets(Book(connection))[0]

    @property
    def analyst_budget(self) -> Budget | None:
        """That of this ledger's analyst, if one is on record."""
        with self._file.reading() as connection:
            _, *own = self._budgets(Book(connection))
        return own[0] if own else None

    def history(self, limit: int | None = None) -> list[Entry]:
        """All entries, or the last `limit` of them, oldest first."""
        with self._file.reading() as connection:
            return Book(connection).last_entries(limit)

    def charges(self, after: int, count: int) -> list[Entry]:
        """At most `count` charges that came after the first `after`, oldest first."""
        with self._file.reading() as connection:
            return Book(connection).charges(after, count)

    def verify(self) -> VerifyReport:
        """Walks the whole chain; raises LedgerError at the first entry that is not as written."""
        with self._file.reading() as connection:
            book = Book(connection)
            return verify_chain(book.rows(), book.last_number())

    def close(self) -> None:
        self._file.close()

    def _agree(self, book: Book, epsilon: object, delta: object, composition: str | None) -> Filter:
        """The budget that the file and the caller agree on."""
        recorded = book.budget(None)
        if recorded is None:
            if epsilon is None:
                raise _nothing_recorded(self._file.path)
            total = filter_named(composition or "auto", exact(epsilon), exact(delta or 0, "delta"))
        else:
            self._refuse_a_stranger(recorded, composition)
            total = filter_named(
                str(recorded.composition),
                recorded.epsilon if epsilon is None else exact(epsilon),
                recorded.delta if delta is None else exact(delta, "delta"),
            )
        self._put_on_record(book, total, None)
        return total

    def _refuse_a_stranger(self, recorded: Entry, composition: str | None) -> None:
        if recorded.dataset != self.dataset:
            raise LedgerError(
                f'the ledger {self._file.path} belongs to the dataset "{recorded.dataset}", not to "{self.dataset}"',
                hint="every dataset has a ledger of its own: give another path",
            )
        if composition not in (None, recorded.composition):
            raise LedgerError(
                f'the ledger {self._file.path} counts by "{recorded.composition}", not by "{composition}"',
                hint=f'open it with composition="{recorded.composition}"',
            )

    def _put_on_record(self, book: Book, limit: Filter, analyst: str | None) -> None:
        """Appends the budget if it is news; never one that is overdrawn already."""
        recorded = book.budget(analyst)
        if recorded is not None and _filter_of(recorded) == limit:
            return
        tally = book.tally() if analyst is None else book.analyst_tally(analyst)
        if not limit.admits(tally.totals):
            spent = limit.spent(tally.totals)
            raise LedgerError(
                f"the ledger {self._file.path} has epsilon {spent.epsilon:.6g} spent at delta {spent.delta:.3g}, "
                f"which epsilon {float(limit.epsilon):.6g} at delta {float(limit.delta):.3g} does not cover",
                hint="name a larger epsilon, with its delta; or name none, to keep the budget on record",
            )
        book.append(
            Record(
                dataset=self.dataset,
                analyst=analyst,
                state="budget",
                epsilon=limit.epsilon,
                delta=limit.delta,
                composition=limit.name,
            )
        )

    def _budgets(self, book: Book) -> list[Budget]:
        """The dataset's, and the analyst's if one is on record."""
        total = book.budget(None)
        if total is None:
            raise _nothing_recorded(self._file.path)
        budgets = [Budget(_filter_of(total), book.tally(), self.charges)]
        own = None if self.analyst is None else book.budget(self.analyst)
        if own is not None:
            budgets.append(Budget(_filter_of(own), book.analyst_tally(self.analyst)))
        return budgets


def _filter_of(budget: Entry) -> Filter:
    return filter_named(str(budget.composition), budget.epsilon, budget.delta)


def _nothing_recorded(path: str) -> LedgerError:
    return LedgerError(f"there is no budget in {path} yet", hint="name one to begin with: epsilon=1.0, delta=1e-6")


def _exhausted(budget: Budget, cost: Totals, epsilon: Fraction) -> BudgetExhausted:
    requested, remaining = rounded_up(epsilon), budget.remaining.epsilon
    hint = None
    if budget.tally.totals.delta + cost.delta > budget.filter.reserved_delta:
        hint = "the delta for key selection and tests is used up; group by public keys, or ask the data owner for more"
    elif requested <= remaining:
        hint = 'this noise costs more here than its epsilon says; use mechanism="gaussian", or a smaller epsilon'
    return BudgetExhausted(requested, remaining, hint=hint)
