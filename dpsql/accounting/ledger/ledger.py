"""The durable account of one dataset: append-only, shared by processes, never behind what was answered.

A charge is checked and recorded in one immediate transaction and is on disk when `charge` returns, so an answer that
got out is on record whatever happens next. Running sums travel with the entries: opening, charging and looking take the
same time after a hundred thousand queries as after one.

A question that fails after its charge may fail because of one person, so it trips a wire: its analyst is answered
nothing new until the data owner has looked and resumes. Whoever stops a question, or has it stopped by the session's
time limit, learns that it had not ended by then: that too is on record, costs a least amount, and trips the wire when
it happens too often. See docs/proofs/ledger.md.
"""

from __future__ import annotations

import os
import shlex
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from fractions import Fraction
from itertools import starmap
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from dpsql import errors
from dpsql.accounting.budget import Budget, Suspension
from dpsql.accounting.events import Composed, Event, PureRelease
from dpsql.accounting.exact import exact, rounded_up
from dpsql.accounting.ledger.allowance import (
    Allowance,
    BudgetRecord,
    allowance,
    another_dataset,
    check_analyst,
    confusable,
    is_less,
    text_of,
)
from dpsql.accounting.ledger.chain import VerifyReport, verify_chain
from dpsql.accounting.ledger.journal import DECLARING, GENESIS, Answers, Entry, Journal, Record, gives_back_at_most, now
from dpsql.accounting.ledger.renewal import RenewalRecord, Schedule, over_time
from dpsql.accounting.ledger.sqlite import MEMORY
from dpsql.accounting.ledger.store import Store, is_there, open_store
from dpsql.accounting.privacy_loss import PrivacyLoss, privacy_loss
from dpsql.errors import AccountSuspended, BudgetExhausted, LedgerError, ProgrammingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from dpsql.accounting.filters import Filter
    from dpsql.accounting.ledger.declaration import Declaration
    from dpsql.accounting.ledger.journal import State, StoredAnswer
    from dpsql.accounting.ledger.store import Transaction

# -- declaration -------------------------------------------------------------------------------------------------------
# The schema on record: put there with the first budget, compared by later sessions. Only the data owner redefines it.


@dataclass(frozen=True)
class DeclarationRecord:
    journal: Journal
    path: str
    dataset: str
    analyst: str | None = None

    def agree(self, declared: Declaration) -> None:
        """Notes what has changed; refuses changes by which epsilon would mean something else."""
        before = self.journal.declared()
        if before is None:
            self._append("schema", declared)  # an older version had no place for it
            return
        redefined = declared.redefines(before)
        if redefined:
            raise LedgerError(
                f"with this schema the epsilon on record in {self.path} would mean something else: "
                f"{'; '.join(redefined)}",
                hint="go back to the schema on record; if the change is meant, the data owner puts it on record:  "
                f"dpsql ledger accept-schema {shlex.quote(self.path)} SCHEMA",
            )
        following = declared.following(before)
        # Analysts may take turns with two schemas: each is news once.
        if following.changed and not self.journal.has_declared(declared.fingerprint):
            self._append("schema", following)

    def accept(self, declared: Declaration) -> Declaration | None:
        """Puts it on record as what holds from here on, whatever it changes; None if it holds already."""
        if self.journal.is_in_force(declared.fingerprint):
            return None
        before = self.journal.declared()
        following = declared if before is None else declared.following(before, accepted=True)
        self._append("schema accepted", following)
        return following

    def _append(self, state: State, declared: Declaration) -> None:
        self.journal.append(
            Record(dataset=self.dataset, analyst=self.analyst, state=state, **text_of(declared)),
        )


# -- ledger ------------------------------------------------------------------------------------------------------------

OnFailure = Literal["suspend", "warn"]
"""What becomes of the analyst whose question failed after its charge."""
Stopped = Literal["interrupted", "timed out"]
INTERRUPTS_PER_DAY = 3
DAY = timedelta(hours=24)
LEAST_SHARE = Fraction(1, 10_000)
"""What an outcome without an answer costs at least, as a part of the smallest budget that applies to its analyst."""
ZERO = Fraction(0)


class Charge(NamedTuple):
    """A charge. `epsilon` and `delta` are the nominal cost that the analyst named; the event is what counts."""

    event: Event
    sql: str
    fingerprint: str
    epsilon: Fraction
    delta: Fraction


class AnalystAccount(NamedTuple):
    """One analyst on record (None: questions without a name), for the data owner's list."""

    analyst: str | None
    allowed: Allowance
    budget: Budget
    """The limit that applies, and what is spent of it; without one, the analyst's part of the dataset's budget."""
    suspended: bool


class Ledger:
    """Made by `Ledger.open`."""

    def __init__(
        self,
        file: Store,
        dataset: str,
        analyst: str | None,
        on_failure: OnFailure = "suspend",
        interrupts_per_day: int = INTERRUPTS_PER_DAY,
        data: str | None = None,
    ) -> None:
        self.dataset = dataset
        self.analyst = analyst
        self.on_failure = on_failure
        self.interrupts_per_day = interrupts_per_day
        self.answers = Answers(file, dataset, data)
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
        interrupts_per_day: int = INTERRUPTS_PER_DAY,
        declared: Declaration | None = None,
        data: str | None = None,
    ) -> Ledger:
        """Opens or creates the ledger. None means as recorded; a value that differs from the record is refused."""
        path = os.fspath(path)
        check_analyst(analyst, analyst_epsilon)
        if on_failure not in get_args(OnFailure):
            raise ProgrammingError(f"unknown on_failure={on_failure!r}", hint='write on_failure="suspend" or "warn"')
        if type(interrupts_per_day) is not int or interrupts_per_day < 0:
            raise ProgrammingError(
                f"interrupts_per_day must be a number of queries, not {interrupts_per_day!r}",
                hint=f"write interrupts_per_day={INTERRUPTS_PER_DAY}, or 0 to suspend on the first one",
            )
        if epsilon is None and not is_there(path):
            raise _nothing_recorded(path)
        file = open_store(path)
        try:
            ledger = cls(file, dataset, analyst, on_failure, interrupts_per_day, data)
            with file.writing() as connection:
                journal = Journal(connection)
                if epsilon is None and journal.budget(None) is None:
                    raise _nothing_recorded(file.path)
                RenewalRecord(journal, dataset).renew_if_due()
                BudgetRecord(journal, file.path, dataset).agree(epsilon, delta, composition, declared)
                if declared is not None:
                    DeclarationRecord(journal, file.path, dataset, analyst).agree(declared)
                if analyst is not None and analyst_epsilon is not None:
                    BudgetRecord(journal, file.path, dataset, analyst).agree(analyst_epsilon, None, None)
                twin = ledger._welcome(journal)
                ledger._count_the_lost(journal, analyst)
        except BaseException:
            file.close()
            raise
        _warn_of(twin, analyst)
        return ledger

    @classmethod
    def at(cls, path: str | os.PathLike[str], analyst: str | None = None) -> Ledger:
        """An existing ledger, whatever its dataset: to look at and to verify."""
        path = os.fspath(path)
        if not is_there(path):
            raise LedgerError(
                f"there is no ledger {path}",
                hint="check the path, which ends in .ledger by default; the first session with a budget creates it",
            )
        file = open_store(path)
        with file.reading() as connection:
            recorded = Journal(connection).budget(None)
        if recorded is None:
            raise _nothing_recorded(path)
        return cls(file, recorded.dataset, analyst)

    def for_analyst(self, analyst: str | None) -> Ledger:
        """The same file, with charges in another analyst's name."""
        data = self.answers.data
        ledger = type(self)(self._file, self.dataset, analyst, self.on_failure, self.interrupts_per_day, data)
        ledger._look_for_the_lost()
        return ledger

    def charge(self, event: Event, *, sql: str, fingerprint: str, epsilon: object, delta: object = 0) -> Entry:
        """Records the event if every budget that applies admits it; else raises BudgetExhausted and changes nothing."""
        charge = Charge(event, sql, fingerprint, exact(epsilon), exact(delta, "delta"))
        (entry,) = self.charge_all([charge], charge.epsilon)
        return entry

    def charge_all(self, charges: Sequence[Charge], epsilon: Fraction) -> list[Entry]:
        """Records all of them or none. `epsilon` is what they amount to together.

        Each is held until `release`: while a process works on it, it is not lost.
        """
        if not charges:
            return []
        self._look_for_the_lost()
        with self._held() as held, self._file.writing() as connection:
            journal = Journal(connection)
            RenewalRecord(journal, self.dataset).renew_if_due()
            allowed = self._allowed(journal, self.analyst)
            allowed.refuse(self.analyst, self._file.path)
            before = self._budgets(journal, self.analyst)
            self._refuse_the_suspended(journal.suspensions())
            entries: list[Entry] = []
            for charge in charges:
                allowed.refuse_question(charge.epsilon, charge.delta)
                budgets = zip(before, self._budgets(journal, self.analyst) if entries else before, strict=True)
                refusing = [was for was, now in budgets if not now.admits(privacy_loss(charge.event))]
                if refusing:
                    # An error undoes the transaction, and with it what was recorded in this loop.
                    cost = privacy_loss(Composed(tuple(one.event for one in charges)))
                    raise _exhausted(refusing[-1], cost, epsilon, min(was.remaining.epsilon for was in before))
                self._name_the_data(journal)
                entries.append(journal.append(self._record(charge)))
                held.append(entries[-1].number)
                self._file.leases.take(entries[-1].number)
        return entries

    def _name_the_data(self, journal: Journal) -> None:
        """Notes the owner's name of the data, where the charge before was of other data."""
        if self.answers.data is not None and journal.data() != self.answers.data:
            journal.append(Record(dataset=self.dataset, analyst=None, state="data", sql=self.answers.data))

    @contextmanager
    def _held(self) -> Iterator[list[int]]:
        """Lets go of what was held if the block fails: its numbers will be given to others."""
        numbers: list[int] = []
        try:
            yield numbers
        except BaseException:
            for number in numbers:
                self._file.leases.release(number)
            raise

    def release(self, charge: Entry) -> None:
        """Ends a charged query. If no outcome was recorded, the query counts as failed."""
        self._file.leases.release(charge.number)

    def _record(self, charge: Charge) -> Record:
        return Record(dataset=self.dataset, analyst=self.analyst, state="charged", **charge._asdict())

    def keep(self, answers: Sequence[StoredAnswer]) -> bool:
        """Stores the answers, unless the analyst was suspended meanwhile: then it is as if the question had failed."""
        with self._file.writing() as connection:
            if Journal(connection).suspension(self.analyst) is not None:
                return False
            self.answers.store(connection, answers)
        return True

    def released(self, charge: Entry) -> Entry:
        """Records that a charge ended in an answer."""
        with self._ending(charge) as journal:
            return journal.append(_mark(charge, "released"))

    def refused(self, charge: Entry, refund: Event, epsilon: Fraction, delta: Fraction = ZERO) -> Entry:
        """Records that a test refused its release, and refunds the charge for that release.

        That the release did not happen shows in the answer, so giving back tells nothing new. docs/proofs/ledger.md.
        """
        mark = replace(_mark(charge, "refused"), epsilon=epsilon, delta=delta, event=refund)
        with self._ending(charge) as journal:
            if not gives_back_at_most(mark, charge):
                raise LedgerError(
                    f"the refund is more than entry {charge.number} was charged",
                    hint="a refused test refunds at most its query's cost",
                )
            return journal.append(mark)

    def failed(self, charge: Entry) -> Entry:
        """Records that a query failed after its charge, perhaps because of a row, and suspends the analyst."""
        with self._ending(charge) as journal:
            return journal.append(self._failure(journal, charge))

    def stopped(self, charge: Entry, how: Stopped) -> Entry:
        """Records that a query was interrupted or timed out, which may depend on one person.

        A few stops per 24 hours are allowed. The next suspends the analyst, and so does one that exceeds the budget.
        """
        with self._ending(charge) as journal:
            paid = self._paid(journal, charge, _mark(charge, how))
            if paid is not None and (self.on_failure == "warn" or self._forgives(journal, charge.analyst)):
                return journal.append(paid)
            return journal.append(self._failure(journal, charge))

    def _forgives(self, journal: Journal, analyst: str | None) -> bool:
        """Whether one more stopped question leaves the analyst as before; of the suspended all questions end alike."""
        return journal.suspension(analyst) is None and journal.stopped(analyst, within=DAY) < self.interrupts_per_day

    def abandoned(self, charge: Entry) -> Entry:
        """Records that a query ended without an answer for a public reason."""
        with self._ending(charge) as journal:
            return journal.append(_mark(charge, "failed"))

    def may_retry(self, charge: Entry) -> bool:
        """Whether a query whose server failed may be retried once, which is recorded first.

        Once for an analyst until the data owner has looked: a row may have taken the server down, and the delay tells.
        """
        with self._file.writing() as connection:
            journal = Journal(connection)
            retry = self._paid(journal, charge, replace(_mark(charge, "retried"), charge=None))
            if journal.has_retried(charge.analyst) or retry is None:
                return False
            journal.append(retry)
        return True

    def resume(self, analyst: str | None) -> Entry:
        """The data owner has looked: the analyst's questions (None: those without a name) are answered again."""
        with self._file.writing() as connection:
            journal = Journal(connection)
            self._count_the_lost(journal, analyst)
            if not (journal.suspension(analyst) or journal.has_retried(analyst) or journal.stopped(analyst)):
                raise _not_suspended(analyst, journal.suspensions())
            return journal.append(Record(dataset=self.dataset, analyst=analyst, state="resumed"))

    def set(self, epsilon: object, delta: object = None, analyst: str | None = None, *, others: bool = False) -> None:
        """The data owner sets the dataset's budget, an analyst's limit, or that of names that are not listed."""
        with self._budget_record(analyst, others) as record:
            record.set(epsilon, delta)

    def grant(self, epsilon: object, delta: object = None, analyst: str | None = None, *, others: bool = False) -> None:
        """The data owner raises it to this total."""
        with self._budget_record(analyst, others) as record:
            record.grant(epsilon, delta)

    def limit(self, epsilon: object, delta: object = None, analyst: str | None = None, *, others: bool = False) -> None:
        """The data owner lowers it, or gives an analyst a limit for the first time."""
        with self._budget_record(analyst, others) as record:
            record.limit(epsilon, delta)

    def limit_questions(self, epsilon: object, delta: object = None, analyst: str | None = None) -> None:
        """The data owner sets the most that one question may cost, for everybody or for one analyst."""
        with self._budget_record(analyst) as record:
            record.limit_questions(epsilon, delta)

    def revoke(self, analyst: str) -> None:
        """The data owner ends the account of an analyst: the next charge is refused, also of an open session."""
        with self._budget_record(analyst) as record:
            record.revoke(record.journal.analysts())

    def renew(self, schedule: Schedule, lifetime: object = None) -> None:
        """The data owner has the budget begin anew at times, and says what all terms together may spend."""
        with self._file.writing() as connection:
            record = RenewalRecord(Journal(connection), self.dataset)
            record.renew_if_due()
            record.schedule(schedule, lifetime)

    def renew_no_more(self) -> None:
        """The data owner ends all schedules; the term that has begun goes on."""
        with self._file.writing() as connection:
            record = RenewalRecord(Journal(connection), self.dataset)
            record.renew_if_due()
            record.stop()

    @contextmanager
    def _budget_record(self, analyst: str | None, others: bool = False) -> Iterator[BudgetRecord]:
        check_analyst(analyst)
        with self._file.writing() as connection:
            journal = Journal(connection)
            RenewalRecord(journal, self.dataset).renew_if_due()
            known = journal.analysts()
            twin = None if analyst is None or analyst in known else confusable(analyst, known)
            yield BudgetRecord(journal, self._file.path, self.dataset, analyst, others)
        _warn_of(twin, analyst)

    def declare(self, declared: Declaration) -> None:
        """Notes another declaration, as a new session would; refuses one that needs the data owner."""
        with self._file.writing() as connection:
            DeclarationRecord(Journal(connection), self._file.path, self.dataset, self.analyst).agree(declared)

    def accept(self, declared: Declaration, dataset: str) -> Declaration | None:
        """The data owner puts another declaration of the dataset on record; None if nothing is new about it."""
        if dataset != self.dataset:
            raise another_dataset(self._file.path, self.dataset, dataset)
        with self._file.writing() as connection:
            return DeclarationRecord(Journal(connection), self._file.path, self.dataset).accept(declared)

    def _failure(self, journal: Journal, charge: Entry) -> Record:
        """Charges the failure if the budget covers it."""
        mark = _mark(charge, "suspended" if self.on_failure == "suspend" else "failed")
        return self._paid(journal, charge, mark) or mark

    def _paid(self, journal: Journal, charge: Entry, outcome: Record) -> Record | None:
        """The outcome, topped up to the minimum cost of an outcome; None if a budget does not cover that."""
        budgets = self._budgets(journal, charge.analyst)
        lacking = min(budget.filter.epsilon for budget in budgets) * LEAST_SHARE - charge.epsilon
        if lacking <= 0:
            return outcome
        event = PureRelease(lacking)
        if not all(budget.admits(privacy_loss(event)) for budget in budgets):
            return None
        return replace(outcome, event=event, epsilon=lacking)

    @contextmanager
    def _ending(self, charge: Entry) -> Iterator[Journal]:
        """A transaction that marks the charge."""
        with self._file.writing() as connection:
            journal = Journal(connection)
            if not journal.is_charge(charge.number, charge.hash):
                raise LedgerError(
                    f"entry {charge.number} of the ledger {self._file.path} is not that charge",
                    hint="mark a charge in the ledger that made it",
                )
            yield journal

    def _look_for_the_lost(self) -> None:
        with self._file.reading() as connection:
            found = self._lost(Journal(connection), self.analyst)
        if found:
            with self._file.writing() as connection:
                self._count_the_lost(Journal(connection), self.analyst)

    def _count_the_lost(self, journal: Journal, analyst: str | None) -> None:
        for number in self._lost(journal, analyst):
            charge = journal.entry(number)
            assert charge is not None
            journal.append(self._failure(journal, charge))

    def _lost(self, journal: Journal, analyst: str | None) -> list[int]:
        """Orphaned charges: the process died, or could not record how they ended."""
        return [number for number in journal.open_charges(analyst) if not self._file.leases.has(number)]

    def _refuse_the_suspended(self, suspended: Sequence[Suspension]) -> None:
        suspension = next((found for found in suspended if found.analyst == self.analyst), None)
        if suspension is not None:
            whose = "the account" if self.analyst is None else f'the account of "{self.analyst}"'
            raise AccountSuspended(
                f"{whose} is suspended: a query was charged but returned no answer (entry {suspension.entry})",
                hint=f"the data owner finds out why, then lifts the suspension: {self.way_to_resume}",
            )

    @property
    def way_to_resume(self) -> str:
        if self._file.path == MEMORY:
            return "resume() of the connection, or of df.dp"
        name = "" if self.analyst is None else f" --analyst {shlex.quote(self.analyst)}"
        return f"dpsql ledger resume {shlex.quote(self._file.path)}{name}"

    @property
    def budget(self) -> Budget:
        """The account of this ledger's analyst: all that is told and chosen follows from it.

        It is the analyst's limit, if one is on record that is below the dataset's budget; else the dataset's.
        """
        with self._looking() as journal:
            whole, *own = self._budgets(journal, self.analyst)
            suspended = (*journal.suspensions(), *self._revoked(journal))
            whole = replace(whole, over_time=over_time(journal, now().date()))
        whole = replace(whole, charges=self.charges, suspended=suspended)
        return self._part_of(whole, own[0], suspended) if own and is_less(own[0].filter, whole.filter) else whole

    @contextmanager
    def _looking(self) -> Iterator[Journal]:
        """A transaction that sees one state throughout, once a renewal that is due is on record."""
        with self._file.reading() as connection:
            journal = Journal(connection)
            if RenewalRecord(journal, self.dataset).due() is None:
                yield journal
                return
        with self._file.writing() as connection:
            RenewalRecord(Journal(connection), self.dataset).renew_if_due()
        with self._file.reading() as connection:
            yield Journal(connection)

    def _revoked(self, journal: Journal) -> Iterator[Suspension]:
        """Of this ledger's analyst alone; `analysts` tells all."""
        number = self._allowed(journal, self.analyst).revoked
        if number is not None:
            entry = journal.entry(number)
            assert entry is not None
            yield Suspension(entry.analyst, number, entry.time, revoked=True)

    @property
    def dataset_budget(self) -> Budget:
        """The budget of the dataset, whoever's ledger this is."""
        with self._looking() as journal:
            whole, suspended = self._budgets(journal, None)[0], tuple(journal.suspensions())
            whole = replace(whole, over_time=over_time(journal, now().date()))
        return replace(whole, charges=self.charges, suspended=suspended)

    @property
    def account(self) -> Budget:
        """The same without what only people look at: past charges and suspensions."""
        with self._looking() as journal:
            whole, *own = self._budgets(journal, self.analyst)
        return replace(own[0], dataset=whole) if own and is_less(own[0].filter, whole.filter) else whole

    @property
    def allowance(self) -> Allowance:
        """What the data owner allows this ledger's analyst."""
        with self._looking() as journal:
            return self._allowed(journal, self.analyst)

    @property
    def keeps_a_list(self) -> bool:
        """Whether names that are not listed have a limit of their own."""
        with self._file.reading() as connection:
            return Journal(connection).budget(None, "default limit") is not None

    @property
    def filter(self) -> Filter:
        """The filter of the account: its budget, and the rule that composes costs."""
        return self.allowance.filter

    @property
    def analyst_budget(self) -> Budget | None:
        """The limit of this ledger's analyst, if one is on record, even one above the dataset's budget."""
        with self._looking() as journal:
            whole, *own = self._budgets(journal, self.analyst)
            suspended = (*journal.suspensions(), *self._revoked(journal))
            whole = replace(whole, over_time=over_time(journal, now().date()))
        return self._part_of(whole, own[0], suspended) if own else None

    def _part_of(self, whole: Budget, own: Budget, suspended: Iterable[Suspension]) -> Budget:
        """The analyst's limit with the analyst's charges, within the dataset's budget."""
        mine = tuple(one for one in suspended if one.analyst == own.analyst)
        return replace(own, charges=self._own_charges, suspended=mine, dataset=whole)

    def history(self, limit: int | None = None, analyst: str | None = None) -> list[Entry]:
        """All entries, or the last `limit` of them, oldest first; those of one analyst, if one is named."""
        with self._file.reading() as connection:
            return Journal(connection).last_entries(limit, analyst)

    def own_history(self) -> list[Entry]:
        """The entries of the account that `budget` shows: under a limit the own, and those about the dataset."""
        entries = self.history()
        if self.analyst_budget is None:
            return entries
        return [one for one in entries if one.analyst == self.analyst or (not one.analyst and one.state in DECLARING)]

    def analysts(self) -> list[AnalystAccount]:
        """Every name on record, and None for questions without a name: what it may spend, and what it spent."""
        with self._looking() as journal:
            rules, suspended = journal.all_rules(), {one.analyst for one in journal.suspensions()}
            found = []
            for name in (*journal.analysts(), None):
                allowed = allowance(rules, name)
                assert allowed is not None
                whole, *own = self._budgets(journal, name)
                tally = journal.analyst_tally(name)
                account = replace(own[0] if own else replace(whole, tally=tally), analyst=name, dataset=whole)
                found.append(AnalystAccount(name, allowed, account, name in suspended))
            return found

    def charges(self, after: int, count: int) -> list[Entry]:
        """At most `count` charges that came after the first `after`, oldest first."""
        with self._file.reading() as connection:
            return Journal(connection).charges(after, count)

    def _own_charges(self, after: int, count: int) -> list[Entry]:
        """The same of this analyst's charges, with the totals of the analyst."""
        with self._file.reading() as connection:
            return Journal(connection).charges_of(self.analyst, after, count)

    def verify(self, head: str | None = None, key: Path | None = None) -> VerifyReport:
        """Walks the whole chain; raises LedgerError at the first entry that is not as written.

        `head` is one noted elsewhere, which must be in the ledger; `key` the owner's public key, for the seals.
        """
        with self._file.reading() as connection:
            journal = Journal(connection)
            report = verify_chain(journal.rows(), self._last_number(connection))
            hashes, seals = journal.hashes(), journal.seals()
        if head is None and key is None:
            return report
        from dpsql.accounting.ledger import seal  # late: it loads cryptography

        return replace(
            report,
            noted=None if head is None else seal.check_head(head, hashes),
            sealed=None if key is None else seal.check_seals(starmap(seal.Seal, seals), hashes, seal.public_key(key)),
        )

    def seal(self, key: Path) -> int:
        """The data owner signs every entry that is not signed yet; gives the last one."""
        from dpsql.accounting.ledger import seal  # late, as above

        signing = seal.private_key(key)
        self.verify()  # nobody signs what is broken
        with self._file.writing() as connection:
            journal = Journal(connection)
            seals = journal.seals()
            if seals:  # another key would leave seals that no key verifies
                seal.check_seal(signing.public_key(), seal.Seal(*seals[-1]))
            last = seals[-1][0] if seals else 0
            for number, entry_hash in journal.hashes(after=last).items():
                made = seal.sealed(signing, number, entry_hash)
                connection.execute("INSERT INTO seals VALUES (?, ?, ?)", made)
                last = number
        return last

    def receipt(self, number: int) -> dict[str, Any]:
        """One entry as an auditor can check it without the ledger."""
        from dpsql.accounting.ledger import seal  # late, as above

        with self._file.reading() as connection:
            journal = Journal(connection)
            entry, hashes = journal.entry(number), journal.hashes(after=number - 2)
            seals = {one[0]: seal.Seal(*one) for one in journal.seals()}
        if entry is None:
            raise LedgerError(f"there is no entry {number}", hint="dpsql ledger show  lists the entries")
        return seal.receipt_of(entry.to_row(), hashes.get(number - 1, GENESIS), seals.get(number))

    def export(self) -> Iterator[str]:
        """All that an auditor needs to check the ledger elsewhere, as JSON lines."""
        from dpsql.accounting.ledger import seal  # late, as above

        with self._file.reading() as connection:
            journal = Journal(connection)
            declared, seals = journal.declared(), {one[0]: seal.Seal(*one) for one in journal.seals()}
            fingerprint = None if declared is None else declared.fingerprint
            last = self._last_number(connection)
            yield from seal.export_lines(journal.rows(), seals, self.dataset, fingerprint, last)

    def _last_number(self, connection: Transaction) -> int:
        row = connection.execute(self._file.last_number).fetchone()
        return 0 if row is None else int(row[0])

    def close(self) -> None:
        self._file.close()

    def _allowed(self, journal: Journal, analyst: str | None) -> Allowance:
        found = allowance(journal.rules(analyst), analyst)
        if found is None:
            raise _nothing_recorded(self._file.path)
        return found

    def _budgets(self, journal: Journal, analyst: str | None) -> list[Budget]:
        """The dataset's budget, and the analyst's limit if one applies, each by itself with what is spent of it."""
        allowed = self._allowed(journal, analyst)
        tally = journal.tally()
        over_all_time = replace(tally, totals=tally.lifetime_totals)
        whole = Budget(
            allowed.whole,
            tally,
            question=allowed.question,
            lifetime=None if allowed.lifetime is None else Budget(allowed.lifetime, over_all_time),
        )
        if allowed.own is None:
            return [whole]
        own = journal.analyst_tally(analyst)
        return [whole, Budget(allowed.own, own, analyst=analyst, question=allowed.question)]

    def _welcome(self, journal: Journal) -> str | None:
        """Refuses an analyst who was revoked. Gives the listed name that is nearly the one given."""
        allowed = self._allowed(journal, self.analyst)
        if allowed.revoked is not None:
            allowed.refuse(self.analyst, self._file.path)
        if self.analyst is None or allowed.is_listed:
            return None
        return confusable(self.analyst, (name for state, name in journal.all_rules() if state == "budget"))


def _warn_of(twin: str | None, analyst: str | None) -> None:
    if twin is not None:
        warnings.warn(
            f'the analysts "{analyst}" and "{twin}" are two: names are compared as written',
            errors.Warning,
            stacklevel=4,
        )


def _mark(charge: Entry, state: State) -> Record:
    """How the charge ended."""
    return Record(
        dataset=charge.dataset,
        analyst=charge.analyst,
        state=state,
        charge=charge.number,
        fingerprint=charge.fingerprint,
    )


def _not_suspended(analyst: str | None, suspended: Sequence[Suspension]) -> LedgerError:
    others = [f"--analyst {shlex.quote(one.analyst)}" for one in suspended if one.analyst is not None]
    others += ["no --analyst"] * any(one.analyst is None for one in suspended)
    return LedgerError(
        "queries without an analyst's name are not suspended" if analyst is None else f'"{analyst}" is not suspended',
        hint=f"suspended: {', '.join(others)}" if others else "nobody is suspended",
    )


def _nothing_recorded(path: str) -> LedgerError:
    return LedgerError(f"{path} has no budget yet", hint="start with one: budget=1.0, delta=1e-6")


def _exhausted(budget: Budget, cost: PrivacyLoss, epsilon: Fraction, remaining: float) -> BudgetExhausted:
    """`budget` is the one that refuses; `remaining` is what all that apply have left."""
    requested = rounded_up(epsilon)
    hint = None
    if budget.tally.totals.delta + cost.delta > budget.filter.reserved_delta:
        hint = "the delta for group selection and tests is spent; group by public keys, or ask the data owner for more"
    elif requested <= remaining:
        hint = 'in this session such noise costs more than its epsilon; use mechanism="gaussian", or a smaller epsilon'
    return BudgetExhausted(requested, remaining, hint=hint)
