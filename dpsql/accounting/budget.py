"""The budget of a session as a value: total, spent, remaining."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

from dpsql.accounting.events import Event, PureRelease
from dpsql.accounting.exact import exact, rounded_down
from dpsql.accounting.privacy_loss import Cost, privacy_loss
from dpsql.display.html import SpendingStep, card, facts, figures, folded, grid, meter, paragraph, staircase
from dpsql.display.numbers import several

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from decimal import Decimal

    from dpsql.accounting.filters import Filter
    from dpsql.accounting.ledger.allowance import QuestionLimit
    from dpsql.accounting.ledger.journal import Entry, RunningTotals
    from dpsql.accounting.ledger.renewal import OverTime
    from dpsql.accounting.privacy_loss import PrivacyLoss

LARGE_EPSILON = 10
LARGE_DELTA = 1e-4
"""Budgets above these raise a warning: they protect people too little."""
HALVINGS = 12
NEARLY = 0.98
"""Kinds of noise for which nearly the same is left are not told apart."""


class Priced(Protocol):
    """Anything with a nominal cost: a receipt, an explanation's cost, a ledger entry."""

    @property
    def epsilon(self) -> float | Fraction: ...

    @property
    def delta(self) -> float | Fraction: ...


class Suspension(NamedTuple):
    """An analyst (None: queries without a name) whose query ended without an answer, and who is not resumed yet.

    Or one whom the data owner revoked.
    """

    analyst: str | None
    entry: int
    time: str
    revoked: bool = False

    def __str__(self) -> str:
        who = "questions without an analyst's name" if self.analyst is None else f"questions of {self.analyst}"
        why = "the data owner revoked the account" if self.revoked else "one was charged but returned no answer"
        return f"{who}, by entry {self.entry}: {why}"


def _not_on_record(after: int, count: int) -> Sequence[Entry]:
    return ()


@dataclass(frozen=True, repr=False)
class Budget:
    """The privacy budget of a session: total, spent, remaining. A snapshot; read `conn.budget` again to update it.

    >>> _ = conn.execute("SELECT COUNT(*) FROM orders", epsilon=0.25)
    >>> conn.budget.spent.epsilon, conn.budget.remaining.epsilon, conn.budget.queries
    (0.25, 0.75, 1)
    """

    filter: Filter
    """The privacy filter that composes the costs."""
    tally: RunningTotals
    """The running totals of the ledger."""
    charges: Callable[[int, int], Sequence[Entry]] = field(default=_not_on_record, repr=False, compare=False)
    """Reads charges from the ledger: how many to skip, and how many to read at most."""
    suspended: tuple[Suspension, ...] = ()
    """The analysts whose queries are not answered until the data owner resumes."""
    analyst: str | None = None
    """The analyst whose limit this is; None for the budget of the dataset."""
    dataset: Budget | None = field(default=None, repr=False)
    """The dataset's budget, which an analyst with a limit shares with everybody; None if this is that budget."""
    question: QuestionLimit | None = None
    """The most that one question may cost, if the data owner limits it."""
    lifetime: Budget | None = field(default=None, repr=False)
    """What all terms of a budget that is renewed may spend together, if the data owner limits it."""
    over_time: OverTime | None = None
    """What all terms of a budget that is renewed amount to; None if it never is."""

    @property
    def limits(self) -> tuple[Budget, ...]:
        """All budgets that a query has to fit into: this one, the dataset's, and the one for all time."""
        lifetime = () if self.lifetime is None else (self.lifetime,)
        return (self, *lifetime) if self.dataset is None else (self, *self.dataset.limits)

    @property
    def epsilon(self) -> float:
        """The epsilon of the whole budget."""
        return rounded_down(self.filter.epsilon)

    @property
    def delta(self) -> float:
        """The delta of the whole budget."""
        return rounded_down(self.filter.delta)

    @property
    def queries(self) -> int:
        """The number of charged queries."""
        return self.tally.queries

    @cached_property
    def spent(self) -> Cost:
        """The epsilon and the delta of all answers so far, composed."""
        # A limit of nothing has no delta: what was spent before is told at the dataset's.
        told = self.filter if self.filter.epsilon or self.dataset is None else self.dataset.filter
        return told.spent(self.tally.totals)

    @cached_property
    def remaining(self) -> Cost:
        """The largest cost that one more query may have: for an analyst with a limit, by the limit and the dataset."""
        left = [limit.filter.remaining(limit.tally.totals) for limit in self.limits]
        return Cost(min(one.epsilon for one in left), min(one.delta for one in left))

    @property
    def basic(self) -> Cost:
        """The total by basic composition of the nominal costs."""
        return self.tally.basic

    @property
    def advanced(self) -> Cost | None:
        """The total by advanced composition, with the session's delta as slack; None if delta is 0."""
        return self.tally.advanced(self.filter.delta) if self.filter.delta else None

    @cached_property
    def by_noise(self) -> tuple[float, float]:
        """The largest epsilon of one more query with Gaussian noise, and of one without; to about three digits.

        From the first Gaussian noise on, other noise has a part of the budget of its own. docs/proofs/composition.md.
        """
        return self._largest(self.filter.currency.query), self._largest(PureRelease)

    def _largest(self, query: Callable[[Fraction], Event]) -> float:
        """The largest epsilon of such a query that fits."""
        fits, most = Fraction(0), Fraction(self.remaining.epsilon)
        if not most or self.admits(privacy_loss(query(most))):
            return float(most)
        for _ in range(HALVINGS):
            middle = (fits + most) / 2
            fits, most = (middle, most) if self.admits(privacy_loss(query(middle))) else (fits, middle)
        return float(fits)

    def admits(self, cost: PrivacyLoss) -> bool:
        """Whether one more query fits.

        Args:
            cost: its privacy loss.
        """
        return all(limit.filter.admits(limit.tally.totals + cost) for limit in self.limits)

    def after(self, cost: PrivacyLoss) -> Budget:
        """The budget with one more cost spent.

        Args:
            cost: its privacy loss.
        """
        tally = replace(self.tally, totals=self.tally.totals + cost)
        dataset, lifetime = self.dataset and self.dataset.after(cost), self.lifetime and self.lifetime.after(cost)
        return replace(self, tally=tally, dataset=dataset, lifetime=lifetime)

    def queries_like(self, cost: Event | Priced | float | str | Decimal) -> int:
        """The number of further queries at this cost that fit.

        Args:
            cost: an epsilon; anything with an epsilon and a delta, such as a receipt; or a privacy event, which is
                most precise.

        >>> conn.budget.queries_like("0.1") >= 10
        True
        """
        if isinstance(cost, Event):
            alike: tuple[Event, ...] = (cost,)
        else:
            epsilon, delta = getattr(cost, "epsilon", cost), getattr(cost, "delta", 0)
            alike = self.filter.queries_at(exact(epsilon), exact(delta, "delta"))
        return max(min(limit.filter.affords(limit.tally.totals, event) for limit in self.limits) for event in alike)

    @property
    def dangers(self) -> tuple[str, ...]:
        """Warnings about a budget that protects people too little."""
        found = []
        epsilon, delta = max(one.epsilon for one in self.limits), max(one.delta for one in self.limits)
        if epsilon > LARGE_EPSILON:
            found.append(
                f"a budget of epsilon {epsilon:.4g} protects against little: it lets the odds of anything about a "
                "person change by a factor of e^epsilon; choose 3 or less"
            )
        if delta > LARGE_DELTA:
            found.append(
                f"delta {delta:.3g} is the probability that a person is not protected at all; choose it far "
                "below 1 / (number of people), such as 1e-6"
            )
        return tuple(found)

    def __str__(self) -> str:
        spent, remaining = self.spent, self.remaining
        asked = several(self.queries, "query", "queries")
        kinds = f" ({self._kinds})" if self._kinds else ""
        return (
            f"epsilon: {spent.epsilon:.4g} of {self.epsilon:.4g} spent in {asked}, "
            f"{remaining.epsilon:.4g} left for the next{kinds}{self._limited}\n"
            f"delta: {spent.delta:.3g} of {self.delta:.3g} spent"
            + (f"\none query: at most {self.question}" if self.question else "")
            + "".join(f"\n{name}: {fact}" for name, fact in self._over_time)
            + "".join(f"\nsuspended: {suspension}" for suspension in self.suspended)
        )

    @property
    def _kinds(self) -> str:
        """What is left for the kind of noise that has less: so that nobody wonders why what is left falls by more."""
        gaussian, other = self.by_noise
        if min(gaussian, other) >= NEARLY * max(gaussian, other):
            return ""
        return f"{gaussian:.4g} with Gaussian noise" if gaussian < other else f"{other:.4g} without Gaussian noise"

    @property
    def _over_time(self) -> Iterator[tuple[str, str]]:
        """What all terms amount to, of a budget that is renewed."""
        whole = self.dataset or self
        if whole.over_time is not None:
            yield "over all time", str(whole.over_time)
        if whole.lifetime is not None:
            spent, most = whole.lifetime.spent, whole.lifetime
            delta = f"delta {spent.delta:.3g} of {most.delta:.3g}"
            yield "lifetime", f"epsilon {spent.epsilon:.4g} of {most.epsilon:.4g} and {delta} spent"

    @property
    def _limited(self) -> str:
        """Why less is left than the analyst's limit alone would leave."""
        alone = self.filter.remaining(self.tally.totals).epsilon
        if self.remaining.epsilon >= alone:
            return ""
        return "; the lifetime has no more" if self.dataset is None else "; the dataset has no more"

    def comparison(self) -> str:
        """What other rules of composition would have counted, for comparison only.

        >>> conn.budget.comparison()
        'with basic composition 0, advanced composition 0'
        """
        advanced = self.advanced
        beside = "" if advanced is None else f", advanced composition {advanced.epsilon:.4g}"
        return f"with basic composition {self.basic.epsilon:.4g}{beside}"

    __repr__ = __str__

    def __reduce__(self) -> tuple[type[Budget], tuple[object, ...]]:
        """Pickles the totals without access to the ledger."""
        past = (self.filter, self.tally, _not_on_record, self.suspended, self.analyst, self.dataset)
        return Budget, (*past, self.question, self.lifetime, self.over_time)

    def _repr_html_(self) -> str:
        return budget_card(self, self.charges(max(0, self.queries - MOST_STEPS), MOST_STEPS)[: self.queries])


# The budget as a chart: what each query added, and what is left.

MOST_STEPS = 40
MOST_LISTED = 100
"""The most characters of a query in the list."""
LEGEND = "Total spent after each query; the strong colour is what that query added."


def budget_card(budget: Budget, past: Sequence[Entry]) -> str:
    """The budget as HTML. `past` are the last charges, oldest first; earlier ones are drawn as one step."""
    spent, remaining = budget.spent, budget.remaining
    steps = list(_steps(budget, past))
    drawn = (meter(steps, budget.epsilon), staircase(steps), paragraph(LEGEND)) if steps else ()
    return card(
        "Privacy budget",
        figures(
            (
                (f"ε {spent.epsilon:.4g}", f"of {budget.epsilon:.4g} spent"),
                (f"ε {remaining.epsilon:.4g}", f"left for the next query{budget._limited}"),
                (f"{budget.queries:,}", "query charged" if budget.queries == 1 else "queries charged"),
            )
        ),
        *drawn,
        facts(_facts(budget)),
        folded("the last queries", grid(("query", "ε", "ε spent after it"), _listed(budget, past))) if past else "",
    )


def _steps(budget: Budget, past: Sequence[Entry]) -> Iterator[SpendingStep]:
    before = 0.0
    adaptive = budget.queries - len(past)
    for entry in past:
        after = budget.filter.spent(entry.tally.totals).epsilon
        if entry is past[0] and adaptive:
            # How the earlier ones share what was spent before is not read again.
            yield SpendingStep(f"{adaptive + 1:,} queries: ε {after:.4g}", 0.0, after)
        else:
            yield SpendingStep(f"{_shortened(entry)}: ε {float(entry.epsilon):.4g}, {after:.4g} in all", before, after)
        before = after


def _facts(budget: Budget) -> Iterator[tuple[str, str]]:
    yield "delta", f"{budget.spent.delta:.3g} of {budget.delta:.3g} spent"
    for suspension in budget.suspended:
        yield "suspended", str(suspension)
    if budget._kinds:
        yield "left", budget._kinds
    if budget.question:
        yield "one query", f"at most {budget.question}"
    yield from budget._over_time
    yield "composition", budget.filter.name


def _listed(budget: Budget, past: Sequence[Entry]) -> Iterator[tuple[str, str, str]]:
    for entry in reversed(past):
        after = budget.filter.spent(entry.tally.totals).epsilon
        yield _shortened(entry), f"{float(entry.epsilon):.4g}", f"{after:.4g}"


def _shortened(entry: Entry) -> str:
    asked = " ".join((entry.sql or "").split())
    return asked if len(asked) <= MOST_LISTED else f"{asked[:MOST_LISTED]}…"
