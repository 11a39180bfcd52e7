"""The budget on record: put there by the first session, compared by later ones, changed by the data owner alone."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.accounting.exact import exact
from dpsql.accounting.filters import Filter, filter_named
from dpsql.accounting.ledger.entries import Record
from dpsql.errors import LedgerError, ProgrammingError

if TYPE_CHECKING:
    from dpsql.accounting.ledger.book import Book
    from dpsql.accounting.ledger.entries import Entry


@dataclass(frozen=True)
class Allowance:
    """What the dataset's sessions (analyst None), or those of one analyst, may spend."""

    book: Book
    path: str
    dataset: str
    analyst: str | None = None

    def agree(self, epsilon: object, delta: object, composition: str | None) -> None:
        """The first budget that is named is put on record. What is named later must be the same; None is."""
        recorded = self.book.budget(self.analyst)
        if recorded is None:
            self._put_on_record(self._named(epsilon, delta, composition))
            return
        self._refuse_a_stranger(recorded, composition)
        before, after = filter_of(recorded), self._named(epsilon, delta, composition)
        if after != before:
            given = [f"epsilon {float(after.epsilon):.6g}"] if epsilon is not None else []
            given += [f"delta {float(after.delta):.3g}"] if delta is not None else []
            raise LedgerError(
                f"{self._whose} has a budget of {amount(before)} on record in {self.path}, not {' and '.join(given)}",
                hint=f"name none to use that; the data owner changes it: {self._command(after)}",
            )

    def grant(self, epsilon: object, delta: object) -> None:
        """Raises the total to what is named."""
        recorded, after = self.book.budget(self.analyst), self._named(epsilon, delta, None)
        if recorded is None:
            raise LedgerError(
                f"{self._whose} has no limit to raise, and may spend what the dataset has left",
                hint=f"set one: {self._command(after)}",
            )
        before = filter_of(recorded)
        if after.epsilon < before.epsilon or after.delta < before.delta:
            more = self._named(before.epsilon + after.epsilon, None, None)
            raise LedgerError(
                f"{amount(after)} is less than what is on record, {amount(before)}: a grant names the new total",
                hint=f"this adds to it: {self._command(more)}; this lowers it: {self._command(after)}",
            )
        self._put_on_record(after)

    def limit(self, epsilon: object, delta: object) -> None:
        """Lowers the total to what is named, or gives an analyst one for the first time."""
        recorded, after = self.book.budget(self.analyst), self._named(epsilon, delta, None)
        if recorded is not None and (after.epsilon > recorded.epsilon or after.delta > recorded.delta):
            raise LedgerError(
                f"{amount(after)} is more than what is on record, {amount(filter_of(recorded))}",
                hint=f"this raises it: {self._command(after)}",
            )
        self._put_on_record(after)

    def _named(self, epsilon: object, delta: object, composition: str | None) -> Filter:
        """With what is None as it is on record; an analyst has the delta and the composition of the dataset."""
        recorded = self.book.budget(self.analyst) or self.book.budget(None)
        if recorded is None:
            return filter_named(composition or "mixed", exact(epsilon), exact(delta or 0, "delta"))
        return filter_named(
            str(recorded.composition),
            recorded.epsilon if epsilon is None else exact(epsilon),
            recorded.delta if delta is None else exact(delta, "delta"),
        )

    def _refuse_a_stranger(self, recorded: Entry, composition: str | None) -> None:
        if recorded.dataset != self.dataset:
            raise LedgerError(
                f'the ledger {self.path} belongs to the dataset "{recorded.dataset}", not to "{self.dataset}"',
                hint="every dataset has a ledger of its own: give another path",
            )
        if composition not in (None, recorded.composition):
            raise LedgerError(
                f'the ledger {self.path} counts by "{recorded.composition}", not by "{composition}"',
                hint=f'open it with composition="{recorded.composition}"',
            )

    def _put_on_record(self, limit: Filter) -> None:
        """Appends the budget if it is news; never one that is overdrawn already."""
        recorded = self.book.budget(self.analyst)
        if recorded is not None and filter_of(recorded) == limit:
            return
        tally = self.book.tally() if self.analyst is None else self.book.analyst_tally(self.analyst)
        if not limit.admits(tally.totals):
            spent = limit.spent(tally.totals)
            raise LedgerError(
                f"epsilon {spent.epsilon:.6g} at delta {spent.delta:.3g} is spent already, which {amount(limit)} does "
                "not cover",
                hint="what was answered cannot be taken back: name more than is spent",
            )
        self.book.append(
            Record(
                dataset=self.dataset,
                analyst=self.analyst,
                state="budget",
                epsilon=limit.epsilon,
                delta=limit.delta,
                composition=limit.name,
            )
        )

    @property
    def _whose(self) -> str:
        return "the dataset" if self.analyst is None else self.analyst

    def _command(self, wanted: Filter) -> str:
        """What the data owner types to have that budget on record."""
        recorded = self.book.budget(self.analyst)
        before = wanted if recorded is None else filter_of(recorded)
        raised = recorded is not None and (wanted.epsilon, wanted.delta) > (before.epsilon, before.delta)
        delta = "" if wanted.delta == before.delta else f" --delta {float(wanted.delta):.3g}"
        name = "" if self.analyst is None else f" --analyst {shlex.quote(self.analyst)}"
        words = f"{'grant' if raised else 'limit'} {float(wanted.epsilon):.6g}{delta}{name}"
        return f"dpsql budget {words} --ledger {shlex.quote(self.path)}"


def check_analyst(analyst: str | None, epsilon: object) -> None:
    """A limit of nobody would limit nobody."""
    if analyst is None and epsilon is not None:
        raise ProgrammingError(
            "analyst_budget= is the limit of one analyst, and none is named", hint='name one: analyst="ada"'
        )


def filter_of(budget: Entry) -> Filter:
    return filter_named(str(budget.composition), budget.epsilon, budget.delta)


def amount(budget: Filter) -> str:
    """
    >>> amount(filter_named("basic", exact(1), exact("1e-6")))
    'epsilon 1 at delta 1e-06'
    """
    return f"epsilon {float(budget.epsilon):.6g} at delta {float(budget.delta):.3g}"
