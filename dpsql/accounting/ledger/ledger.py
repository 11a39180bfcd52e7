"""The durable account of one dataset: append-only, shared by processes, never behind what was answered.

A charge is checked and recorded in one immediate transaction and is on disk when `charge` returns, so an answer that
got out is on record whatever happens next. Running sums travel with the entries: opening, charging and looking take the
same time after a hundred thousand queries as after one.

A question that fails after its charge may fail because of one person, so it trips a wire: its analyst is answered
nothing new until the data owner has looked and resumes. See docs/proofs/ledger.md.
"""

from __future__ import annotations

import os
import shlex
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from dpsql.accounting.budget import Budget, Suspension
from dpsql.accounting.events import Composed, Event
from dpsql.accounting.exact import exact, rounded_up
from dpsql.accounting.filters import filter_named
from dpsql.accounting.ledger.allowance import Allowance, check_analyst
from dpsql.accounting.ledger.answers import Answers
from dpsql.accounting.ledger.book import Book
from dpsql.accounting.ledger.chain import VerifyReport, verify_chain
from dpsql.accounting.ledger.entries import Entry, Record, gives_back_at_most
from dpsql.accounting.ledger.file import MEMORY
from dpsql.accounting.ledger.store import Store, is_there, open_store
from dpsql.accounting.privacy_loss import PrivacyLoss, privacy_loss
from dpsql.errors import AccountSuspended, BudgetExhausted, LedgerError, ProgrammingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dpsql.accounting.filters import Filter
    from dpsql.accounting.ledger.answers import Stored

OnFailure = Literal["suspend", "warn"]
"""What becomes of the analyst whose question failed after its charge."""
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

    def __init__(self, file: Store, dataset: str, analyst: str | None, on_failure: OnFailure = "suspend") -> None:
        self.dataset = dataset
        self.analyst = analyst
        self.on_failure = on_failure
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
        on_failure: OnFailure = "suspend",
    ) -> Ledger:
        """Opens or makes the ledger. What is None is taken from the file; what differs from it is refused."""
        path = os.fspath(path)
        check_analyst(analyst, analyst_epsilon)
        if on_failure not in get_args(OnFailure):
            raise ProgrammingError(
                f"there is no on_failure={on_failure!r}", hint='write on_failure="suspend" or "warn"'
            )
        if epsilon is None and not is_there(path):
            raise _nothing_recorded(path)
        file = open_store(path)
        try:
            ledger = cls(file, dataset, analyst, on_failure)
            with file.writing() as connection:
                book = Book(connection)
                if epsilon is None and book.budget(None) is None:
                    raise _nothing_recorded(file.path)
                Allowance(book, file.path, dataset).agree(epsilon, delta, composition)
                if analyst is not None and analyst_epsilon is not None:
                    Allowance(book, file.path, dataset, analyst).agree(analyst_epsilon, None, None)
                ledger._count_the_lost(book, analyst)
        except BaseException:
            file.close()
            raise
        return ledger

    @classmethod
    def at(cls, path: str | os.PathLike[str], analyst: str | None = None) -> Ledger:
        """An existing ledger, whatever its dataset: to look at and to verify."""
        path = os.fspath(path)
        if not is_there(path):
            raise LedgerError(
                f"there is no ledger {path}",
                hint="check the path, which ends in .ledger by default; the first session with a budget makes it",
            )
        file = open_store(path)
        with file.reading() as connection:
            recorded = Book(connection).budget(None)
        if recorded is None:
            raise _nothing_recorded(path)
        return cls(file, recorded.dataset, analyst)

    def charge(self, event: Event, *, sql: str, fingerprint: str, epsilon: object, delta: object = 0) -> Entry:
        """Records the event if every budget that applies admits it; else raises BudgetExhausted and changes nothing."""
        charge = Charge(event, sql, fingerprint, exact(epsilon), exact(delta, "delta"))
        (entry,) = self.charge_all([charge], charge.epsilon)
        return entry

    def charge_all(self, charges: Sequence[Charge], epsilon: Fraction) -> list[Entry]:
        """Records all of them or none. `epsilon` is what they amount to together.

        Each is held until `let_go`: while a process works on it, it is not lost.
        """
        if not charges:
            return []
        self._look_for_the_lost()
        with self._held() as held, self._file.writing() as connection:
            book = Book(connection)
            before = self._budgets(book)
            self._refuse_the_suspended(before[0].suspended)
            entries: list[Entry] = []
            for charge in charges:
                budgets = zip(before, self._budgets(book) if entries else before, strict=True)
                refusing = [was for was, now in budgets if not now.admits(privacy_loss(charge.event))]
                if refusing:
                    # An error undoes the transaction, and with it what was recorded in this loop.
                    raise _exhausted(refusing[-1], privacy_loss(Composed(tuple(one.event for one in charges))), epsilon)
                entries.append(book.append(self._record(charge)))
                held.append(entries[-1].number)
                self._file.holds.take(entries[-1].number)
        return entries

    @contextmanager
    def _held(self) -> Iterator[list[int]]:
        """Lets go of what was held if the block fails: its numbers will be given to others."""
        numbers: list[int] = []
        try:
            yield numbers
        except BaseException:
            for number in numbers:
                self._file.holds.let_go(number)
            raise

    def let_go(self, charge: Entry) -> None:
        """The question that was charged is over. If nothing says how it ended, it counts as failed."""
        self._file.holds.let_go(charge.number)

    def _record(self, charge: Charge) -> Record:
        return Record(dataset=self.dataset, analyst=self.analyst, state="charged", **charge._asdict())

    def keep(self, answers: Sequence[Stored]) -> bool:
        """Stores the answers, unless the analyst was suspended meanwhile: then it is as if the question had failed."""
        with self._file.writing() as connection:
            if Book(connection).suspension(self.analyst) is not None:
                return False
            self.answers.store(connection, answers)
        return True

    def released(self, charge: Entry) -> Entry:
        """Records that a charge ended in an answer."""
        return self._mark(charge, Record(dataset=self.dataset, analyst=charge.analyst, state="released"))

    def refused(self, charge: Entry, refund: Event, epsilon: Fraction, delta: Fraction = ZERO) -> Entry:
        """Records that a test failed and gives back what was charged for the release behind it.

        That the release did not happen shows in the answer, so giving back tells nothing new. docs/proofs/ledger.md.
        """
        record = Record(
            dataset=self.dataset, analyst=charge.analyst, state="refused", epsilon=epsilon, delta=delta, event=refund
        )
        return self._mark(charge, record)

    def failed(self, charge: Entry) -> Entry:
        """Records that a charge ended in no answer, perhaps because of somebody's row: the analyst is suspended."""
        return self._mark(charge, self._failure(charge.analyst))

    def interrupted(self, charge: Entry) -> Entry:
        """Records that a charge ended in no answer for a reason that is no secret."""
        return self._mark(charge, Record(dataset=self.dataset, analyst=charge.analyst, state="failed"))

    def may_retry(self, charge: Entry) -> bool:
        """Whether a question whose server went away may be asked once more, which is on record before it is.

        Once for an analyst until the data owner has looked: a row may have taken the server down, and the delay tells.
        """
        with self._file.writing() as connection:
            book = Book(connection)
            if book.has_retried(charge.analyst):
                return False
            retry = Record(dataset=self.dataset, analyst=charge.analyst, state="retried")
            book.append(replace(retry, fingerprint=charge.fingerprint))
        return True

    def resume(self, analyst: str | None) -> Entry:
        """The data owner has looked: the analyst's questions (None: those without a name) are answered again."""
        with self._file.writing() as connection:
            book = Book(connection)
            self._count_the_lost(book, analyst)
            if book.suspension(analyst) is None and not book.has_retried(analyst):
                raise _not_suspended(analyst, book.suspensions())
            return book.append(Record(dataset=self.dataset, analyst=analyst, state="resumed"))

    def grant(self, epsilon: object, delta: object = None, analyst: str | None = None) -> None:
        """The data owner raises the dataset's budget, or an analyst's, to this total."""
        with self._file.writing() as connection:
            Allowance(Book(connection), self._file.path, self.dataset, analyst).grant(epsilon, delta)

    def limit(self, epsilon: object, delta: object = None, analyst: str | None = None) -> None:
        """The data owner lowers it, or gives an analyst a limit for the first time."""
        with self._file.writing() as connection:
            Allowance(Book(connection), self._file.path, self.dataset, analyst).limit(epsilon, delta)

    def _failure(self, analyst: str | None) -> Record:
        state: Literal["suspended", "failed"] = "suspended" if self.on_failure == "suspend" else "failed"
        return Record(dataset=self.dataset, analyst=analyst, state=state)

    def _mark(self, charge: Entry, record: Record) -> Entry:
        with self._file.writing() as connection:
            book = Book(connection)
            if not book.is_charge(charge.number, charge.hash):
                raise LedgerError(
                    f"entry {charge.number} of the ledger {self._file.path} is not that charge",
                    hint="a charge is marked in the ledger that it was made in",
                )
            if record.state == "refused" and not gives_back_at_most(record, charge):
                raise LedgerError(
                    f"more would be given back than entry {charge.number} was charged",
                    hint="what a test spares is a part of its question's cost",
                )
            return book.append(_marking(charge, record))

    def _look_for_the_lost(self) -> None:
        with self._file.reading() as connection:
            found = self._lost(Book(connection), self.analyst)
        if found:
            with self._file.writing() as connection:
                self._count_the_lost(Book(connection), self.analyst)

    def _count_the_lost(self, book: Book, analyst: str | None) -> None:
        for number in self._lost(book, analyst):
            charge = book.entry(number)
            assert charge is not None
            book.append(_marking(charge, self._failure(analyst)))

    def _lost(self, book: Book, analyst: str | None) -> list[int]:
        """Charges that are open while nobody works on them: the process died, or could not record how it ended."""
        return [number for number in book.open_charges(analyst) if not self._file.holds.has(number)]

    def _refuse_the_suspended(self, suspended: Sequence[Suspension]) -> None:
        suspension = next((found for found in suspended if found.analyst == self.analyst), None)
        if suspension is not None:
            whose = "the account" if self.analyst is None else f'the account of "{self.analyst}"'
            raise AccountSuspended(
                f"{whose} is suspended: a question failed after its charge (entry {suspension.entry})",
                hint=f"the data owner looks why, and lifts it: {self.way_to_resume}",
            )

    @property
    def way_to_resume(self) -> str:
        if self._file.path == MEMORY:
            return "resume() of the connection, or of df.dp"
        name = "" if self.analyst is None else f" --analyst {shlex.quote(self.analyst)}"
        return f"dpsql ledger resume {shlex.quote(self._file.path)}{name}"

    @property
    def budget(self) -> Budget:
        """The dataset's."""
        with self._file.reading() as connection:
            return self._budgets(Book(connection))[0]

    @property
    def account(self) -> Budget:
        """The dataset's too, for questions that need to know no more than what is spent and what there was."""
        with self._file.reading() as connection:
            book = Book(connection)
            return Budget(self._limit(book), book.tally())

    @property
    def filter(self) -> Filter:
        """What there was for the dataset."""
        with self._file.reading() as connection:
            return self._limit(Book(connection))

    def _limit(self, book: Book) -> Filter:
        limit = book.limit(None)
        if limit is None:
            raise _nothing_recorded(self._file.path)
        return filter_named(*limit)

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
            row = connection.execute(self._file.last_number).fetchone()
            return verify_chain(Book(connection).rows(), 0 if row is None else row[0])

    def close(self) -> None:
        self._file.close()

    def _budgets(self, book: Book) -> list[Budget]:
        """The dataset's, and the analyst's if one is on record."""
        budgets = [Budget(self._limit(book), book.tally(), self.charges, tuple(book.suspensions()))]
        own = None if self.analyst is None else book.limit(self.analyst)
        if own is not None:
            budgets.append(Budget(filter_named(*own), book.analyst_tally(self.analyst)))
        return budgets


def _marking(charge: Entry, record: Record) -> Record:
    return replace(record, charge=charge.number, fingerprint=charge.fingerprint)


def _not_suspended(analyst: str | None, suspended: Sequence[Suspension]) -> LedgerError:
    others = [f"--analyst {shlex.quote(one.analyst)}" for one in suspended if one.analyst is not None]
    others += ["no --analyst"] * any(one.analyst is None for one in suspended)
    return LedgerError(
        "nobody without a name is suspended" if analyst is None else f'"{analyst}" is not suspended',
        hint=f"suspended is: {', '.join(others)}" if others else "nobody is: there is nothing to lift",
    )


def _nothing_recorded(path: str) -> LedgerError:
    return LedgerError(f"there is no budget in {path} yet", hint="name one to begin with: budget=1.0, delta=1e-6")


def _exhausted(budget: Budget, cost: PrivacyLoss, epsilon: Fraction) -> BudgetExhausted:
    requested, remaining = rounded_up(epsilon), budget.remaining.epsilon
    hint = None
    if budget.tally.totals.delta + cost.delta > budget.filter.reserved_delta:
        hint = "the delta for choosing groups and tests is spent; group by public keys, or ask the data owner for more"
    elif requested <= remaining:
        hint = 'this noise costs more here than its epsilon says; use mechanism="gaussian", or a smaller epsilon'
    return BudgetExhausted(requested, remaining, hint=hint)
