"""What the data owner allows: the dataset's budget, each analyst's limit, and the most that one question may cost.

    budget          of the dataset, or the limit of one analyst, who is listed from then on
    default limit   of every name that is not listed, and of questions without a name; 0 once the owner lists analysts
    question limit  the most that one question may cost, for everybody or for one analyst
    revoked         an analyst asks nothing more, until the owner sets another limit

Each is an entry of the ledger; the last one of its kind counts from the next charge on. docs/proofs/ledger.md.
"""

from __future__ import annotations

import shlex
import unicodedata
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dpsql.accounting.exact import exact
from dpsql.accounting.filters import Basic, Filter, filter_named
from dpsql.accounting.ledger.journal import Journal, Record
from dpsql.errors import AccountSuspended, BudgetExhausted, LedgerError, ProgrammingError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from dpsql.accounting.ledger.declaration import Declaration
    from dpsql.accounting.ledger.journal import Entry, State

# -- allowance ---------------------------------------------------------------------------------------------------------
# What applies to one analyst, from the rules on record.


class OwnersRule(Protocol):
    """An entry by which the data owner allows something."""

    @property
    def number(self) -> int: ...
    @property
    def composition(self) -> str | None: ...
    @property
    def epsilon(self) -> Fraction: ...
    @property
    def delta(self) -> Fraction: ...


class QuestionLimit(NamedTuple):
    """The most that one question may cost."""

    epsilon: Fraction
    delta: Fraction

    def __str__(self) -> str:
        """
        >>> str(QuestionLimit(Fraction(1, 10), Fraction(1)))
        'epsilon 0.1'
        """
        delta = "" if self.delta == ANY_DELTA else f" and delta {float(self.delta):.3g}"
        return f"epsilon {float(self.epsilon):.6g}{delta}"


ANY_DELTA = Fraction(1)
"""The delta of a question limit that limits epsilon alone."""


@dataclass(frozen=True)
class Allowance:
    whole: Filter
    """The dataset's budget."""
    lifetime: Filter | None
    """What all terms of a renewed budget may spend together."""
    own: Filter | None
    """The analyst's limit: an own one, or that of all names which are not listed; None if there is neither."""
    is_listed: bool
    question: QuestionLimit | None
    revoked: int | None
    """The entry that revoked the analyst."""

    @property
    def filter(self) -> Filter:
        """The filter of the account: the limit, if it can refuse what the dataset's budget admits."""
        return self.whole if self.own is None or not is_less(self.own, self.whole) else self.own

    def refuse(self, analyst: str | None, path: str) -> None:
        """Refuses an analyst who may ask nothing, whatever it costs."""
        if self.revoked is not None:
            raise AccountSuspended(
                f'the data owner revoked the account of "{analyst}" (entry {self.revoked})',
                hint="only the data owner can change that:  "
                f"dpsql budget set EPSILON --analyst {shlex.quote(str(analyst))} --ledger {shlex.quote(path)}",
            )
        if self.own is not None and not self.own.epsilon and not self.is_listed:
            whose = "questions without an analyst's name are" if analyst is None else f'"{analyst}" is'
            name = "NAME" if analyst is None else shlex.quote(analyst)
            raise AccountSuspended(
                f"{whose} not on the data owner's list of analysts, and may spend nothing",
                hint="names are compared as written; the data owner adds one with:  "
                f"dpsql budget set EPSILON --analyst {name} --ledger {shlex.quote(path)}",
            )

    def refuse_question(self, epsilon: Fraction, delta: Fraction) -> None:
        """Refuses a question that costs more than one question may."""
        most = self.question
        if most is not None and (epsilon > most.epsilon or delta > most.delta):
            raise BudgetExhausted(
                float(epsilon),
                float(most.epsilon),
                problem=f"the query costs epsilon {float(epsilon):.6g} and delta {float(delta):.3g}, but a single "
                f"query may cost at most {most}",
                hint=f"use epsilon={float(most.epsilon):g} or less"
                + ("" if most.delta == ANY_DELTA else f" and delta={float(most.delta):g} or less")
                + "; the data owner set this limit",
            )


def allowance(rules: Mapping[tuple[str, str | None], OwnersRule], analyst: str | None) -> Allowance | None:
    """What the rules allow this analyst; None if the dataset has no budget yet."""
    whole, renewed, default = (rules.get((state, None)) for state in ("budget", "renewed", "default limit"))
    lifetime = rules.get(("lifetime", None))
    own = None if analyst is None else rules.get(("budget", analyst))
    revoked = None if analyst is None else rules.get(("revoked", analyst))
    if whole is None:
        return None
    if renewed is not None and renewed.number > whole.number:
        whole = renewed
    applies = own or default
    limits = [rule for name in {None, analyst} if (rule := rules.get(("question limit", name)))]
    return Allowance(
        filter_of(whole),
        None if lifetime is None else filter_of(lifetime),
        None if applies is None else filter_of(applies),
        own is not None,
        QuestionLimit(min(one.epsilon for one in limits), min(one.delta for one in limits)) if limits else None,
        revoked.number if revoked is not None and (own is None or own.number < revoked.number) else None,
    )


def is_less(own: Filter, whole: Filter) -> bool:
    """Whether an analyst's limit can refuse what the dataset's budget admits."""
    return own.epsilon < whole.epsilon or own.delta < whole.delta


def filter_of(budget: OwnersRule) -> Filter:
    return filter_named(str(budget.composition), budget.epsilon, budget.delta)


def amount(budget: Filter) -> str:
    """
    >>> amount(filter_named("basic", exact(1), exact("1e-6")))
    'epsilon 1 at delta 1e-06'
    """
    return f"epsilon {float(budget.epsilon):.6g} at delta {float(budget.delta):.3g}"


# -- names -------------------------------------------------------------------------------------------------------------
# Analysts are told apart by their names as written. Names that people would confuse get a warning.


def check_analyst(analyst: object, epsilon: object = None) -> None:
    """Refuses what is no name, and an analyst's budget without an analyst."""
    if analyst is None and epsilon is not None:
        raise ProgrammingError(
            "analyst_budget= limits one analyst, but no analyst is named", hint='name one: analyst="ada"'
        )
    if analyst is None:
        return
    if not isinstance(analyst, str) or not analyst or analyst != analyst.strip() or not analyst.isprintable():
        raise ProgrammingError(
            f"{analyst!r} is not a name of an analyst",
            hint='write a text without line breaks or blanks around it: analyst="ada"',
        )


def confusable(analyst: str, others: Iterable[str | None]) -> str | None:
    """Another name that differs in case, blanks, punctuation or spelling of the same letters alone.

    >>> confusable("ada lovelace", ["bob", "Ada.Lovelace"])
    'Ada.Lovelace'
    """
    return next((one for one in others if one not in (None, analyst) and _folded(str(one)) == _folded(analyst)), None)


def _folded(name: str) -> str:
    plain = unicodedata.normalize("NFKC", name).casefold()
    return "".join(filter(str.isalnum, plain)) or plain


# -- budget record -----------------------------------------------------------------------------------------------------
# The budget on record: put there by the first session, compared by later ones, changed by the data owner alone.


@dataclass(frozen=True)
class BudgetRecord:
    """The budget of the dataset (analyst None), the limit of one analyst, or that of names which are not listed."""

    journal: Journal
    path: str
    dataset: str
    analyst: str | None = None
    others: bool = False

    def agree(
        self, epsilon: object, delta: object, composition: str | None, declared: Declaration | None = None
    ) -> None:
        """Records the first budget that is named, and what is declared. A later one must be the same, or None."""
        recorded = self._recorded
        if recorded is None:
            self._refuse_a_new_name()
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

    def set(self, epsilon: object, delta: object) -> None:
        """The data owner sets the budget, whether it was higher or lower."""
        self._change(self._named(epsilon, delta, None))

    def grant(self, epsilon: object, delta: object) -> None:
        """Raises the total budget."""
        recorded, after = self._recorded, self._named(epsilon, delta, None)
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
        self._change(after)

    def limit(self, epsilon: object, delta: object) -> None:
        """Lowers the total budget, or gives an analyst one for the first time."""
        recorded, after = self._recorded, self._named(epsilon, delta, None)
        if recorded is not None and (after.epsilon > recorded.epsilon or after.delta > recorded.delta):
            raise LedgerError(
                f"{amount(after)} is more than the {amount(filter_of(recorded))} on record",
                hint=f"to raise it: {self._command(after)}",
            )
        self._change(after)

    def limit_questions(self, epsilon: object, delta: object) -> None:
        """Sets the most that one question may cost."""
        most = QuestionLimit(exact(epsilon), ANY_DELTA if delta is None else exact(delta, "delta"))
        if most.epsilon < 0 or not 0 <= most.delta <= ANY_DELTA:
            raise ProgrammingError(
                f"a single query cannot cost at most {most}", hint="write an epsilon of 0 or more, and a delta up to 1"
            )
        self._append("question limit", most.epsilon, most.delta)

    def revoke(self, known: Collection[str]) -> None:
        """From the next charge on the analyst, one of those known, is answered nothing new."""
        assert self.analyst is not None
        if self.analyst not in known:
            raise LedgerError(
                f'there is no analyst "{self.analyst}" on record; names are compared as written',
                hint=did_you_mean(self.analyst, known) or "dpsql budget list  shows the names",
            )
        found = allowance(self.journal.rules(self.analyst), self.analyst)
        if found is not None and found.revoked is None:
            self._append("revoked")

    def _change(self, after: Filter) -> None:
        """What the owner says of an analyst begins a list: names that are not on it may spend nothing."""
        if self.analyst is not None and self.journal.budget(None, "default limit") is None:
            self._append("default limit", composition=after.name)
        self._put_on_record(after)

    def _named(self, epsilon: object, delta: object, composition: str | None) -> Filter:
        """The budget with missing parts from the record; analysts have the dataset's delta and composition."""
        own, whole = self._recorded, self.journal.budget(None)
        recorded = own or whole
        if recorded is None:
            return filter_named(composition or "mixed", exact(epsilon), exact(delta or 0, "delta"))
        total = recorded.epsilon if epsilon is None else exact(epsilon)
        if not self._is_dataset and whole is not None and not recorded.epsilon:
            recorded = whole  # a limit of nothing has no delta
        part = recorded.delta if total or self._is_dataset else Fraction(0)
        if (own is None or recorded is whole) and recorded.composition == Basic.name and total < recorded.epsilon:
            # There every query takes a part of delta: an analyst has no more of it than of epsilon.
            part *= total / recorded.epsilon
        return filter_named(str(recorded.composition), total, part if delta is None else exact(delta, "delta"))

    def _refuse_a_stranger(self, recorded: Entry, composition: str | None) -> None:
        if recorded.dataset != self.dataset:
            raise another_dataset(self.path, recorded.dataset, self.dataset)
        if composition not in (None, recorded.composition):
            raise LedgerError(
                f'the ledger {self.path} uses composition "{recorded.composition}", not "{composition}"',
                hint=f'open it with composition="{recorded.composition}"',
            )

    def _refuse_a_new_name(self) -> None:
        """Where the owner keeps a list, no session adds to it."""
        if self.analyst is not None and self.journal.budget(None, "default limit") is not None:
            raise LedgerError(
                f'"{self.analyst}" is not on the data owner\'s list of analysts',
                hint="leave out analyst_budget=; the data owner adds a name with:  "
                f"dpsql budget set EPSILON --analyst {shlex.quote(self.analyst)} --ledger {shlex.quote(self.path)}",
            )

    def _put_on_record(self, limit: Filter, declared: Declaration | None = None) -> None:
        """Appends the budget if it is news. An analyst's may be below what is spent: it then admits nothing more."""
        found = allowance(self.journal.rules(self.analyst), self.analyst)
        revoked = found is not None and found.revoked is not None
        if self._recorded is not None and filter_of(self._recorded) == limit and not revoked:
            return
        totals = self.journal.tally().totals
        if self._is_dataset and not limit.admits(totals):
            spent = limit.spent(totals)
            raise LedgerError(
                f"epsilon {spent.epsilon:.6g} at delta {spent.delta:.3g} is already spent, which {amount(limit)} "
                "does not cover",
                hint="answers cannot be taken back; name more than is already spent",
            )
        self._append(self._state, limit.epsilon, limit.delta, composition=limit.name, **text_of(declared))

    def _append(
        self, state: State, epsilon: Fraction = Fraction(0), delta: Fraction = Fraction(0), **more: Any
    ) -> None:
        analyst = None if state == "default limit" else self.analyst
        self.journal.append(
            Record(dataset=self.dataset, analyst=analyst, state=state, epsilon=epsilon, delta=delta, **more)
        )

    @property
    def _recorded(self) -> Entry | None:
        return self.journal.budget(self.analyst, self._state)

    @property
    def _state(self) -> State:
        return "default limit" if self.others else "budget"

    @property
    def _is_dataset(self) -> bool:
        return self.analyst is None and not self.others

    @property
    def _whose(self) -> str:
        return "the dataset" if self._is_dataset else self.analyst or "a name that is not listed"

    def _command(self, wanted: Filter) -> str:
        """The command with which the data owner would record that budget."""
        recorded = self._recorded
        before = wanted if recorded is None else filter_of(recorded)
        raised = recorded is not None and (wanted.epsilon, wanted.delta) > (before.epsilon, before.delta)
        delta = "" if wanted.delta == before.delta else f" --delta {float(wanted.delta):.3g}"
        name = " --others" if self.others else f" --analyst {shlex.quote(self.analyst)}" if self.analyst else ""
        words = f"{'grant' if raised else 'limit'} {float(wanted.epsilon):.6g}{delta}{name}"
        return f"dpsql budget {words} --ledger {shlex.quote(self.path)}"


def another_dataset(path: str, recorded: str, dataset: str) -> LedgerError:
    return LedgerError(
        f'the ledger {path} belongs to the dataset "{recorded}", not to "{dataset}"',
        hint="each dataset needs its own ledger; give another path",
    )


def text_of(declared: Declaration | None) -> dict[str, Any]:
    """A declaration, as an entry holds it."""
    return {} if declared is None else {"fingerprint": declared.fingerprint, "sql": declared.to_json()}
