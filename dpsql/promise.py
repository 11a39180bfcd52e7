"""The session's guarantee in plain words, with its numbers. Derivation: docs/proofs/promise.md.

For a suspicion that had probability p beforehand, and answers that are epsilon-DP,

    p / (p + (1 - p) e^epsilon)  <=  what it becomes  <=  p / (p + (1 - p) e^-epsilon)

and delta is the probability that no such limit holds.
"""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.display.html import bullets, card, figures, grid, paragraph
from dpsql.display.numbers import significant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpsql.accounting.budget import Budget
    from dpsql.schema import Schema

PRIORS = (0.01, 0.1, 0.5)
RARE = 0.001
WIDTH = 100
NOT_PROMISED_TITLE = "What is not promised:"
NOT_PROMISED = (
    "that nothing is learnt about people in general: what is true of many is true of each of them",
    "the same for groups: for k people together the factor is raised to the power of k",
    "anything for somebody who counts as several people, such as a person with two accounts",
    "anything about data that was published elsewhere, or is queried through another ledger",
    "anything against someone who runs code beside dpsql, or measures how long answers take",
)


@dataclass(frozen=True)
class Limits:
    """An (epsilon, delta) guarantee for one person, as factors and probabilities."""

    epsilon: float
    delta: float

    @property
    def factor(self) -> float:
        """e^epsilon: the most that probabilities and odds change.

        >>> Limits(math.log(3), 0.0).factor
        3.0000000000000004
        """
        try:
            return math.exp(self.epsilon)
        except OverflowError:
            return math.inf

    def most(self, prior: float) -> float:
        """The largest probability that a suspicion can have after the answers.

        Args:
            prior: its probability before.

        >>> f"{Limits(math.log(3), 0.0).most(0.5):.6f}"
        '0.750000'
        """
        return prior / (prior + (1 - prior) * math.exp(-self.epsilon))

    def least(self, prior: float) -> float:
        """The smallest probability that a suspicion can have after the answers.

        Args:
            prior: its probability before.

        >>> f"{Limits(math.log(3), 0.0).least(0.5):.6f}"
        '0.250000'
        """
        return prior / (prior + (1 - prior) * self.factor)

    @property
    def between_values(self) -> Limits:
        """The guarantee if the person is known to be in the data: twice the epsilon, by way of their absence."""
        return Limits(2 * self.epsilon, min(1.0, (1 + self.factor) * self.delta) if self.delta else 0.0)


@dataclass(frozen=True, repr=False)
class Promise:
    """The guarantee of a session to each person, made by `Connection.promise`. `print` shows it in words."""

    dataset: str
    """The name of the dataset."""
    units: tuple[str, ...]
    """The column that identifies the person, for each private table."""
    spent: Limits
    """The guarantee of all answers so far."""
    whole: Limits
    """The guarantee once the whole budget is spent."""
    reported: tuple[str, ...] = ()
    """Randomised columns that may be counted without noise."""
    analyst: str | None = None
    """The analyst with a limit whose answers `spent` and `whole` are about; None: everybody's answers."""
    over_time: tuple[Limits, str, Limits | None] | None = None
    """Of a budget that is renewed: all answers so far over all terms, the schedule, and the limit for all time."""
    everybody: tuple[Limits, Limits] | None = None
    """For such an analyst the guarantee of all answers of the dataset: so far, and over the whole budget."""

    def __str__(self) -> str:
        rows = [("", "so far", "whole budget"), *self.rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
        missing = "\n".join(f"- {item}" for item in NOT_PROMISED)
        before, after = (map(_wrapped, words) for words in (self.introduction(), self.explanation()))
        return "\n\n".join((*before, table, *after, f"{NOT_PROMISED_TITLE}\n{missing}"))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return card(
            f"What this session promises to everybody in {self.dataset}",
            figures(
                (
                    (f"× {_up(self.spent.factor)}", "is the most that odds have changed so far"),
                    (f"× {_up(self.whole.factor)}", "is the most that they ever will"),
                )
            ),
            *map(paragraph, self.introduction()),
            grid(("", "so far", "whole budget"), self.rows()),
            *map(paragraph, self.explanation()),
            paragraph(NOT_PROMISED_TITLE),
            bullets(NOT_PROMISED),
        )

    def introduction(self) -> tuple[str, ...]:
        """The paragraphs before the table: who is protected, and what that means."""
        return (
            f"Each person in {self.dataset} is protected: all rows with the same {_listed(self.units)}.",
            "Whatever somebody concludes from all answers together, they would have concluded with nearly the same "
            "probability had that person's rows not been there.",
            *([_about_a_part(self.analyst, *self.everybody)] if self.everybody else []),
            *([_about_all_time(*self.over_time)] if self.over_time else []),
            *([_about_reports(self.reported)] if self.reported else []),
        )

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """The table: a quantity, its value so far, and its value over the whole budget."""
        both = (self.spent, self.whole)
        yield _row("epsilon", (_up(limits.epsilon) for limits in both))
        yield _row("odds change by at most a factor", (_up(limits.factor) for limits in both))
        for prior in PRIORS:
            yield _row(f"a suspicion of {100 * prior:g} % becomes", (_range(limits, prior) for limits in both))
        yield _row("probability that no limit holds", (_up(limits.delta) for limits in both))

    def explanation(self) -> tuple[str, ...]:
        """The paragraphs after the table: how to read the numbers."""
        whole, doubled = self.whole, self.whole.between_values
        return (
            "The suspicion is that a person's rows, as somebody imagines them, are in the data. If it is known that "
            "they are, and the question is what they say, epsilon counts twice: over the whole budget 1 % becomes at "
            f"most {_percent_up(doubled.most(0.01))}.",
            f"Anything that may happen to a person because of the answers: if its probability is {100 * RARE:g} % "
            f"without their rows, it is at most {_percent_up(min(1.0, RARE * whole.factor + whole.delta))} with them. "
            "What it costs or earns them on average changes by at most the same factor.",
            _delta_in_words(whole.delta),
            '"So far" is the guarantee if what was spent until now had been the whole budget.',
        )


def promise_of(budget: Budget, schema: Schema) -> Promise:
    whole = budget.dataset
    return Promise(
        schema.dataset,
        tuple(_unit(name, schema) for name, table in schema.tables.items() if not table.is_public),
        Limits(*budget.spent),
        Limits(budget.epsilon, budget.delta),
        tuple(
            f"{name}.{column.name} (epsilon {column.collected.epsilon:g} a report)"
            for name, table in schema.tables.items()
            if not table.is_public and not schema.unit_path(name)
            for column in table.columns.values()
            if column.collected is not None
        ),
        budget.analyst,
        _over_time(whole or budget),
        None if whole is None else (Limits(*whole.spent), Limits(whole.epsilon, whole.delta)),
    )


def _over_time(budget: Budget) -> tuple[Limits, str, Limits | None] | None:
    found, most = budget.over_time, budget.lifetime
    if found is None:
        return None
    coming = f"The budget is renewed: {found.schedule}." if found.schedule else "The budget is not renewed again."
    return Limits(*found.total), coming, None if most is None else Limits(most.epsilon, most.delta)


def _unit(table: str, schema: Schema) -> str:
    """The column that names the unit, at the end of the path that leads there."""
    hops = schema.unit_path(table)
    holder = schema.tables[hops[-1].to_table if hops else table]
    return f"{holder.name}.{holder.unit_column}" + (f" (reached from {table}.{hops[0].column})" if hops else "")


def _about_a_part(analyst: str | None, so_far: Limits, whole: Limits) -> str:
    who, whom = ("queries without a name", "them") if analyst is None else (analyst, analyst)
    return (
        f"The numbers below are about the answers that {who} paid for, by themselves. Answers that others paid for "
        f"are free, also for {whom}: everybody's answers together have epsilon {_up(so_far.epsilon)} so far and "
        f"{_up(whole.epsilon)} over the whole budget."
    )


def _about_all_time(so_far: Limits, coming: str, most: Limits | None) -> str:
    forever = (
        "There is no limit for all time: each renewal adds its own."
        if most is None
        else f"All answers over all time have at most epsilon {_up(most.epsilon)} and delta {_up(most.delta)}."
    )
    return (
        f"{coming} The numbers below are about the present term alone. To a person all terms add up: their budgets "
        f"until now amount to epsilon {_up(so_far.epsilon)} and delta {_up(so_far.delta)}. {forever}"
    )


def _about_reports(columns: tuple[str, ...]) -> str:
    return (
        f"Randomised reports are an exception. People randomised {_listed(columns, 'and')} themselves, so reports may "
        "be counted exactly, for free: everybody may know that a person has rows there, and what they report. Nobody "
        "learns more about the answer behind a report than the report tells. Everything else in these rows is "
        "protected as promised here, with epsilon counted twice."
    )


def _delta_in_words(delta: float) -> str:
    if not delta:
        return "Delta is 0: these limits hold for all answers, without exception."
    return (
        f"Delta is the exception: with a probability of at most {_up(delta)}, which is 1 in "
        f"{math.floor(1 / Fraction(repr(delta))):,}, the answers may be ones for which no limit holds."
    )


def _wrapped(words: str) -> str:
    return textwrap.fill(words, WIDTH)


def _listed(names: tuple[str, ...], word: str = "or") -> str:
    *others, last = names
    return f"{', '.join(others)} {word} {last}" if others else last


def _row(name: str, pair: Iterator[str]) -> tuple[str, str, str]:
    so_far, whole = pair
    return name, so_far, whole


def _range(limits: Limits, prior: float) -> str:
    least = _rounded(100 * limits.least(prior), ROUND_FLOOR)
    return f"{least} % to {_percent_up(limits.most(prior))}"


def _percent_up(probability: float) -> str:
    return f"{_up(100 * probability)} %"


def _up(value: float) -> str:
    """No promise is rounded to look better.

    >>> _up(20.0855), _up(0.0), _up(math.inf)
    ('20.1', '0', '∞')
    """
    return "∞" if math.isinf(value) else _rounded(value, ROUND_CEILING)


def _rounded(value: float, direction: str) -> str:
    return significant(float(Context(prec=3, rounding=direction).create_decimal(repr(value))), 3)
