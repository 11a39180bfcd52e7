"""A batch: several questions decided in advance, with one budget for all of them.

A batch is a small session within the session, with a filter of its own of the same kind. Every question is made as
precise as its weight says, in proportion, until that filter is full. So all answers together are
(epsilon, delta)-DP by the filter's own proof, and the session is charged what the answers are, like for any other
question. docs/proofs/accuracy.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.accounting.budget import Budget
from dpsql.accounting.costs import price
from dpsql.accounting.events import Composed
from dpsql.accounting.filters import Basic, Filter, filter_named
from dpsql.accounting.tally import Tally
from dpsql.draws.table import ADDITIVE
from dpsql.errors import ProgrammingError
from dpsql.flow.calibrate_noise import with_noise
from dpsql.flow.candidates import candidate, possible_noises, share_of
from dpsql.flow.question import positive, refuse_options
from dpsql.flow.shares import whole_delta
from dpsql.pipeline import plan_question

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dpsql.accounting.costs import Cost, Totals
    from dpsql.flow.calibrate_noise import Calibrated
    from dpsql.flow.plan_query import Planned
    from dpsql.flow.public_setting import PublicSetting
    from dpsql.flow.question import Question

FINER = 1 + Fraction(1, 2**8)
HALVINGS = 8
SMALLEST = Fraction(1, 2**40)


@dataclass(frozen=True)
class Batch:
    filter: Filter
    parts: tuple[Calibrated, ...]
    weights: tuple[Fraction, ...]

    @property
    def cost(self) -> Cost:
        """What all answers together amount to, as a guarantee."""
        return self.filter.spent(self.price)

    @property
    def price(self) -> Totals:
        return price(Composed(tuple(part.event for part in self.parts)))

    @property
    def shares(self) -> tuple[float, ...]:
        """The part of the batch's budget that each question takes beside the others."""
        prices = [price(part.event) for part in self.parts]
        others = [Composed(tuple(part.event for part in self.parts if part is not one)) for one in self.parts]
        budgets = [Budget(self.filter, Tally(totals=price(rest))) for rest in others]
        return tuple(share_of(cost, budget)[0] for cost, budget in zip(prices, budgets, strict=True))


def weigh(weights: object, count: int) -> tuple[Fraction, ...]:
    """A question of twice the weight has half the error."""
    if weights is None:
        return (Fraction(1),) * count
    hint = f"write weights={[2] + [1] * (count - 1)}: a query of weight 2 has half the error of one of weight 1"
    listed = list(weights) if isinstance(weights, Iterable) and not isinstance(weights, str | dict | set) else []
    if len(listed) != count:
        raise ProgrammingError(f"the plan has {count} queries, and weights={weights!r} not as many numbers", hint=hint)
    try:
        return tuple(positive(weight, "a weight") for weight in listed)
    except ProgrammingError as error:
        problem = ProgrammingError(error.problem, hint=hint)
    raise problem


def plan_batch(
    questions: Sequence[Question],
    weights: tuple[Fraction, ...],
    epsilon: Fraction,
    delta: Fraction | None,
    public: PublicSetting,
) -> Batch:
    budget = public.budget
    each = None if delta is None else delta / len(questions)
    planned = [plan_question(replace(question, delta=each), public) for question in questions]
    if not any(one.releases for one in planned):
        raise ProgrammingError("nothing in the plan costs anything", hint="ask the queries as they are: they are free")
    for one in planned:
        refuse_options(one.question, ("epsilon", "delta"), "the plan")
    whole = budget.filter.delta if delta is None else delta
    if isinstance(budget.filter, Basic):
        whole = whole_delta(epsilon, delta, budget.filter)
    limit = filter_named(budget.filter.name, epsilon, whole)
    possible = {noise for one in planned for noise in possible_noises(one, budget.filter)}
    batches = [_filled(noise, planned, weights, limit, public) for noise in ADDITIVE if noise in possible]
    return min(batches, key=lambda batch: _waste(batch, budget))


def _waste(batch: Batch, budget: Budget) -> tuple[bool, float]:
    """As for one question (calibrate_noise): what fits first, then the least variance times share of the session."""
    share, fits = share_of(batch.price, budget)
    spread = sum(part.candidate.spread for part in batch.parts) / len(batch.parts)
    return not fits, spread + math.log(max(share, 1e-300))


def _filled(
    noise: str, planned: Sequence[Planned], weights: tuple[Fraction, ...], limit: Filter, public: PublicSetting
) -> Batch:
    """All questions with one kind of noise, as precise as the limit admits."""

    def at(precision: Fraction) -> Batch:
        parts = zip(planned, weights, strict=True)
        return Batch(limit, tuple(_part(noise, one, precision * weight, public) for one, weight in parts), weights)

    # Where nothing but noise of one kind is drawn, this is nearly the largest precision already.
    start = ADDITIVE[noise].precision_within(limit, weights)
    return at(_largest(lambda precision: limit.admits(at(precision).price), start))


def _part(noise: str, planned: Planned, precision: Fraction, public: PublicSetting) -> Calibrated:
    """One question, at the epsilon that its precision takes with this noise, or with the first that it can have."""
    budget = public.budget
    possible = possible_noises(planned, budget.filter)
    noise = noise if noise in possible else possible[0]
    delta = budget.filter.delta if planned.question.delta is None else planned.question.delta
    epsilon = ADDITIVE[noise].epsilon_at(precision, delta, budget.filter)
    asked = replace(planned, question=replace(planned.question, epsilon=epsilon))
    return with_noise(asked, candidate(noise, asked, budget), "as precise as the plan allows", public.schema.dataset)


def _largest(admitted: Callable[[Fraction], bool], start: Fraction) -> Fraction:
    """The largest number that is admitted, within a thousandth or so, and never one that is not."""
    low, high = start, start * FINER
    if admitted(start):
        if not admitted(high):
            return start
        while admitted(high):
            low, high = high, 2 * high
    else:
        while not admitted(low):
            low, high = low / 2, low
            if low < start * SMALLEST:
                raise ProgrammingError(
                    "no noise would be enough for this budget", hint="name a larger epsilon or delta"
                )
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if admitted(middle) else (low, middle)
    return low
