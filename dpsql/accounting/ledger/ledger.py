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
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from dpsql.accounting.budget import Budget, Suspension
from dpsql.accounting.events import Composed, Event, PureRelease
from dpsql.accounting.exact import exact, rounded_up
from dpsql.accounting.filters import Basic, Filter, filter_named
from dpsql.accounting.ledger.journal import (
    Answers,
    Entry,
    Journal,
    Record,
    VerifyReport,
    gives_back_at_most,
    verify_chain,
)
from dpsql.accounting.ledger.sqlite import MEMORY
from dpsql.accounting.ledger.store import Store, is_there, open_store
from dpsql.accounting.privacy_loss import PrivacyLoss, privacy_loss
from dpsql.errors import AccountSuspended, BudgetExhausted, LedgerError, ProgrammingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dpsql.accounting.ledger.declaration import Declaration
    from dpsql.accounting.ledger.journal import State, StoredAnswer

# -- budget record -----------------------------------------------------------------------------------------------------
# The budget on record: put there by the first session, compared by later ones, changed by the data owner alone.


@dataclass(frozen=True)
class BudgetRecord:
    """The budget of the dataset (analyst None), or of one analyst."""

    journal: Journal
    path: str
    dataset: str
    analyst: str | None = None

    def agree(
        self, epsilon: object, delta: object, composition: str | None, declared: Declaration | None = None
    ) -> None:
        """Records the first budget that is named, and what is declared. A later one must be the same, or None."""
        recorded = self.journal.budget(self.analyst)
        if recorded is None:
            self._put_on_record(self._named(epsilon, delta, composition), declared)
            return
        self._refuse_a_stranger(recorded, composition)
        before, after = filter_of(recorded), self._named(epsilon, delta, composition)
        if after != before:
            given = [f"epsilon {float(after.epsilon):.6g}"] if epsilon is not None else []
            given += [f"delta {float(after.delta):.3g}"] if delta is not None else []
            raise LedgerError(
                f"{self._whose} has a budget of {amount(before)} on record in {self.path}, not {' and '.join(given)}",
                hint=f"leave both out to use that; only the data owner can change it: {self._command(after)}",
            )

    def grant(self, epsilon: object, delta: object) -> None:
        """Raises the total budget."""
        recorded, after = self.journal.budget(self.analyst), self._named(epsilon, delta, None)
        if recorded is None:
            raise LedgerError(
                f"{self._whose} has no limit to raise and may spend all that the dataset has left",
                hint=f"set one: {self._command(after)}",
            )
        before = filter_of(recorded)
        if after.epsilon < before.epsilon or after.delta < before.delta:
            more = self._named(before.epsilon + after.epsilon, None, None)
            raise LedgerError(
                f"{amount(after)} is less than the {amount(before)} on record; a grant names the new total",
                hint=f"to add to it: {self._command(more)}; to lower it: {self._command(after)}",
            )
        self._put_on_record(after)

    def limit(self, epsilon: object, delta: object) -> None:
        """Lowers the total budget, or gives an analyst one for the first time."""
        recorded, after = self.journal.budget(self.analyst), self._named(epsilon, delta, None)
        if recorded is not None and (after.epsilon > recorded.epsilon or after.delta > recorded.delta):
            raise LedgerError(
                f"{amount(after)} is more than the {amount(filter_of(recorded))} on record",
                hint=f"to raise it: {self._command(after)}",
            )
        self._put_on_record(after)

    def _named(self, epsilon: object, delta: object, composition: str | None) -> Filter:
        """The budget with missing parts from the record; analysts have the dataset's delta and composition."""
        own, whole = self.journal.budget(self.analyst), self.journal.budget(None)
        recorded = own or whole
        if recorded is None:
            return filter_named(composition or "mixed", exact(epsilon), exact(delta or 0, "delta"))
        total = recorded.epsilon if epsilon is None else exact(epsilon)
        part = recorded.delta
        if own is None and recorded.composition == Basic.name and total < recorded.epsilon:
            # There every query takes a part of delta: an analyst has no more of it than of epsilon.
            part *= total / recorded.epsilon
        return filter_named(str(recorded.composition), total, part if delta is None else exact(delta, "delta"))

    def _refuse_a_stranger(self, recorded: Entry, composition: str | None) -> None:
        if recorded.dataset != self.dataset:
            raise _stranger(self.path, recorded.dataset, self.dataset)
        if composition not in (None, recorded.composition):
            raise LedgerError(
                f'the ledger {self.path} uses composition "{recorded.composition}", not "{composition}"',
                hint=f'open it with composition="{recorded.composition}"',
            )

    def _put_on_record(self, limit: Filter, declared: Declaration | None = None) -> None:
        """Appends the budget if it is news; never one that is overdrawn already."""
        recorded = self.journal.budget(self.analyst)
        if recorded is not None and filter_of(recorded) == limit:
            return
        tally = self.journal.tally() if self.analyst is None else self.journal.analyst_tally(self.analyst)
        if not limit.admits(tally.totals):
            spent = limit.spent(tally.totals)
            raise LedgerError(
                f"epsilon {spent.epsilon:.6g} at delta {spent.delta:.3g} is already spent, which {amount(limit)} "
                "does not cover",
                hint="answers cannot be taken back; name more than is already spent",
            )
        self.journal.append(
            Record(
                dataset=self.dataset,
                analyst=self.analyst,
                state="budget",
                epsilon=limit.epsilon,
                delta=limit.delta,
                composition=limit.name,
                **_text_of(declared),
            )
        )

    @property
    def _whose(self) -> str:
        return "the dataset" if self.analyst is None else self.analyst

    def _command(self, wanted: Filter) -> str:
        """The command with which the data owner would record that budget."""
        recorded = self.journal.budget(self.analyst)
        before = wanted if recorded is None else filter_of(recorded)
        raised = recorded is not None and (wanted.epsilon, wanted.delta) > (before.epsilon, before.delta)
        delta = "" if wanted.delta == before.delta else f" --delta {float(wanted.delta):.3g}"
        name = "" if self.analyst is None else f" --analyst {shlex.quote(self.analyst)}"
        words = f"{'grant' if raised else 'limit'} {float(wanted.epsilon):.6g}{delta}{name}"
        return f"dpsql budget {words} --ledger {shlex.quote(self.path)}"


def _stranger(path: str, recorded: str, dataset: str) -> LedgerError:
    return LedgerError(
        f'the ledger {path} belongs to the dataset "{recorded}", not to "{dataset}"',
        hint="each dataset needs its own ledger; give another path",
    )


def check_analyst(analyst: str | None, epsilon: object) -> None:
    """Refuses an analyst budget without an analyst."""
    if analyst is None and epsilon is not None:
        raise ProgrammingError(
            "analyst_budget= limits one analyst, but no analyst is named", hint='name one: analyst="ada"'
        )


def filter_of(budget: Entry) -> Filter:
    return filter_named(str(budget.composition), budget.epsilon, budget.delta)


def amount(budget: Filter) -> str:
    """
    >>> amount(filter_named("basic", exact(1), exact("1e-6")))
    'epsilon 1 at delta 1e-06'
    """
    return f"epsilon {float(budget.epsilon):.6g} at delta {float(budget.delta):.3g}"


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
            Record(dataset=self.dataset, analyst=self.analyst, state=state, **_text_of(declared)),
        )


def _text_of(declared: Declaration | None) -> dict[str, Any]:
    return {} if declared is None else {"fingerprint": declared.fingerprint, "sql": declared.to_json()}


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


class Ledger:
    """Made by `Ledger.open`."""

    def __init__(
        self,
        file: Store,
        dataset: str,
        analyst: str | None,
        on_failure: OnFailure = "suspend",
        interrupts_per_day: int = INTERRUPTS_PER_DAY,
    ) -> None:
        self.dataset = dataset
        self.analyst = analyst
        self.on_failure = on_failure
        self.interrupts_per_day = interrupts_per_day
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
        interrupts_per_day: int = INTERRUPTS_PER_DAY,
        declared: Declaration | None = None,
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
            ledger = cls(file, dataset, analyst, on_failure, interrupts_per_day)
            with file.writing() as connection:
                journal = Journal(connection)
                if epsilon is None and journal.budget(None) is None:
                    raise _nothing_recorded(file.path)
                BudgetRecord(journal, file.path, dataset).agree(epsilon, delta, composition, declared)
                if declared is not None:
                    DeclarationRecord(journal, file.path, dataset, analyst).agree(declared)
                if analyst is not None and analyst_epsilon is not None:
                    BudgetRecord(journal, file.path, dataset, analyst).agree(analyst_epsilon, None, None)
                ledger._count_the_lost(journal, analyst)
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
                hint="check the path, which ends in .ledger by default; the first session with a budget creates it",
            )
        file = open_store(path)
        with file.reading() as connection:
            recorded = Journal(connection).budget(None)
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

        Each is held until `release`: while a process works on it, it is not lost.
        """
        if not charges:
            return []
        self._look_for_the_lost()
        with self._held() as held, self._file.writing() as connection:
            journal = Journal(connection)
            before = self._budgets(journal, self.analyst)
            self._refuse_the_suspended(journal.suspensions())
            entries: list[Entry] = []
            for charge in charges:
                budgets = zip(before, self._budgets(journal, self.analyst) if entries else before, strict=True)
                refusing = [was for was, now in budgets if not now.admits(privacy_loss(charge.event))]
                if refusing:
                    # An error undoes the transaction, and with it what was recorded in this loop.
                    cost = privacy_loss(Composed(tuple(one.event for one in charges)))
                    raise _exhausted(refusing[-1], cost, epsilon, min(was.remaining.epsilon for was in before))
                entries.append(journal.append(self._record(charge)))
                held.append(entries[-1].number)
                self._file.leases.take(entries[-1].number)
        return entries

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

    def grant(self, epsilon: object, delta: object = None, analyst: str | None = None) -> None:
        """The data owner raises the dataset's budget, or an analyst's, to this total."""
        with self._file.writing() as connection:
            BudgetRecord(Journal(connection), self._file.path, self.dataset, analyst).grant(epsilon, delta)

    def limit(self, epsilon: object, delta: object = None, analyst: str | None = None) -> None:
        """The data owner lowers it, or gives an analyst a limit for the first time."""
        with self._file.writing() as connection:
            BudgetRecord(Journal(connection), self._file.path, self.dataset, analyst).limit(epsilon, delta)

    def declare(self, declared: Declaration) -> None:
        """Notes another declaration, as a new session would; refuses one that needs the data owner."""
        with self._file.writing() as connection:
            DeclarationRecord(Journal(connection), self._file.path, self.dataset, self.analyst).agree(declared)

    def accept(self, declared: Declaration, dataset: str) -> Declaration | None:
        """The data owner puts another declaration of the dataset on record; None if nothing is new about it."""
        if dataset != self.dataset:
            raise _stranger(self._file.path, self.dataset, dataset)
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
        with self._file.reading() as connection:
            journal = Journal(connection)
            whole, *own = self._budgets(journal, self.analyst)
            suspended = tuple(journal.suspensions())
        whole = replace(whole, charges=self.charges, suspended=suspended)
        return self._part_of(whole, own[0], suspended) if own and _is_less(own[0].filter, whole.filter) else whole

    @property
    def account(self) -> Budget:
        """The same without what only people look at: past charges and suspensions."""
        with self._file.reading() as connection:
            whole, *own = self._budgets(Journal(connection), self.analyst)
        return replace(own[0], dataset=whole) if own and _is_less(own[0].filter, whole.filter) else whole

    @property
    def filter(self) -> Filter:
        """The filter of the account: its budget, and the rule that composes costs."""
        with self._file.reading() as connection:
            whole, *own = self._limits(Journal(connection), self.analyst)
        return own[0] if own and _is_less(own[0], whole) else whole

    @property
    def analyst_budget(self) -> Budget | None:
        """The limit of this ledger's analyst, if one is on record, even one above the dataset's budget."""
        with self._file.reading() as connection:
            journal = Journal(connection)
            whole, *own = self._budgets(journal, self.analyst)
            return self._part_of(whole, own[0], journal.suspensions()) if own else None

    def _part_of(self, whole: Budget, own: Budget, suspended: Iterable[Suspension]) -> Budget:
        """The analyst's limit with the analyst's charges, within the dataset's budget."""
        mine = tuple(one for one in suspended if one.analyst == own.analyst)
        return replace(own, charges=self._own_charges, suspended=mine, dataset=whole)

    def history(self, limit: int | None = None) -> list[Entry]:
        """All entries, or the last `limit` of them, oldest first."""
        with self._file.reading() as connection:
            return Journal(connection).last_entries(limit)

    def charges(self, after: int, count: int) -> list[Entry]:
        """At most `count` charges that came after the first `after`, oldest first."""
        with self._file.reading() as connection:
            return Journal(connection).charges(after, count)

    def _own_charges(self, after: int, count: int) -> list[Entry]:
        """The same of this analyst's charges, with the totals of the analyst."""
        with self._file.reading() as connection:
            return Journal(connection).charges_of(self.analyst, after, count)

    def verify(self) -> VerifyReport:
        """Walks the whole chain; raises LedgerError at the first entry that is not as written."""
        with self._file.reading() as connection:
            row = connection.execute(self._file.last_number).fetchone()
            return verify_chain(Journal(connection).rows(), 0 if row is None else row[0])

    def close(self) -> None:
        self._file.close()

    def _limits(self, journal: Journal, analyst: str | None) -> list[Filter]:
        """The dataset's budget, and the analyst's if one is on record."""
        whole = journal.limit(None)
        if whole is None:
            raise _nothing_recorded(self._file.path)
        own = None if analyst is None else journal.limit(analyst)
        return [filter_named(*whole)] if own is None else [filter_named(*whole), filter_named(*own)]

    def _budgets(self, journal: Journal, analyst: str | None) -> list[Budget]:
        """The same, with what is spent; each by itself."""
        whole, *own = self._limits(journal, analyst)
        return [
            Budget(whole, journal.tally()),
            *(Budget(limit, journal.analyst_tally(analyst), analyst=analyst) for limit in own),
        ]


def _is_less(own: Filter, whole: Filter) -> bool:
    """Whether an analyst's limit can refuse what the dataset's budget admits."""
    return own.epsilon < whole.epsilon or own.delta < whole.delta


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
