"""A batch: several queries that are fixed in advance and share one cost.

A batch is a small session with its own filter, of the same kind as the session's. The precision of every query grows in
proportion to its weight until that filter is full. All answers together are (epsilon, delta)-DP by the filter's proof,
and the session is charged their events, as for single queries. docs/proofs/accuracy.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpsql.accounting.budget import Budget
from dpsql.accounting.events import Composed
from dpsql.accounting.filters import Basic, Filter, filter_named
from dpsql.accounting.ledger.journal import RunningTotals
from dpsql.accounting.privacy_loss import privacy_loss
from dpsql.display.html import card, figures, grid
from dpsql.display.numbers import significant
from dpsql.errors import ProgrammingError
from dpsql.explain import cost_figures
from dpsql.mechanisms.registry import ADDITIVE
from dpsql.options import positive, refuse_options
from dpsql.pipeline.calibrate_noise import with_noise
from dpsql.pipeline.choose_mechanism import eligible_mechanisms, noise_plan, reserved_delta, share_of, whole_delta
from dpsql.pipeline.stages import plan_question

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dpsql.accounting.privacy_loss import Cost, PrivacyLoss
    from dpsql.explain import Explanation
    from dpsql.options import QueryRequest
    from dpsql.pipeline.calibrate_noise import Calibrated
    from dpsql.pipeline.environment import PublicEnvironment
    from dpsql.pipeline.plan_query import Planned

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
        """The (epsilon, delta) guarantee of all answers together."""
        return self.filter.spent(self.privacy_loss)

    @property
    def privacy_loss(self) -> PrivacyLoss:
        return privacy_loss(Composed(tuple(part.event for part in self.parts)))

    @property
    def shares(self) -> tuple[float, ...]:
        """The part of the batch's cost that each query takes, given the others."""
        prices = [privacy_loss(part.event) for part in self.parts]
        others = [Composed(tuple(part.event for part in self.parts if part is not one)) for one in self.parts]
        budgets = [Budget(self.filter, RunningTotals(totals=privacy_loss(rest))) for rest in others]
        return tuple(share_of(cost, budget)[0] for cost, budget in zip(prices, budgets, strict=True))


def weigh(weights: object, count: int) -> tuple[Fraction, ...]:
    """A question of twice the weight has half the error."""
    if weights is None:
        return (Fraction(1),) * count
    hint = f"write weights={[2] + [1] * (count - 1)}: a query of weight 2 has half the error of one of weight 1"
    listed = list(weights) if isinstance(weights, Iterable) and not isinstance(weights, str | dict | set) else []
    if len(listed) != count:
        raise ProgrammingError(f"the plan has {count} queries, so weights={weights!r} needs as many numbers", hint=hint)
    try:
        return tuple(positive(weight, "a weight") for weight in listed)
    except ProgrammingError as error:
        problem = ProgrammingError(error.problem, hint=hint)
    raise problem


def plan_batch(
    questions: Sequence[QueryRequest],
    weights: tuple[Fraction, ...],
    epsilon: Fraction,
    delta: Fraction | None,
    public: PublicEnvironment,
) -> Batch:
    budget = public.budget
    each = None if delta is None else delta / len(questions)
    planned = [plan_question(replace(request, delta=each), public) for request in questions]
    if not any(one.releases for one in planned):
        raise ProgrammingError(
            "nothing in the plan costs anything", hint="run the queries without a plan; they are free"
        )
    for one in planned:
        refuse_options(one.request, ("epsilon", "delta"), "the plan")
    whole = budget.filter.delta if delta is None else delta
    if isinstance(budget.filter, Basic):
        whole = whole_delta(epsilon, delta, budget.filter)
    limit = filter_named(budget.filter.name, epsilon, whole)
    possible = {noise for one in planned for noise in eligible_mechanisms(one, budget.filter)}
    batches = [_filled(noise, planned, weights, limit, public) for noise in ADDITIVE if noise in possible]
    return min(batches, key=lambda batch: _waste(batch, budget))


def _waste(batch: Batch, budget: Budget) -> tuple[bool, float]:
    """The same criterion as for one query (calibrate_noise): mechanisms that fit, then least variance times share."""
    share, fits = share_of(batch.privacy_loss, budget)
    spread = sum(part.noise_plan.spread for part in batch.parts) / len(batch.parts)
    return not fits, spread + math.log(max(share, 1e-300))


def _filled(
    noise: str, planned: Sequence[Planned], weights: tuple[Fraction, ...], limit: Filter, public: PublicEnvironment
) -> Batch:
    """All questions with one kind of noise, as precise as the limit admits."""

    def at(precision: Fraction) -> Batch:
        parts = zip(planned, weights, strict=True)
        return Batch(limit, tuple(_part(noise, one, precision * weight, public) for one, weight in parts), weights)

    # Where nothing but noise of one kind is drawn, this is nearly the largest precision already.
    start = ADDITIVE[noise].precision_within(limit, weights)
    return at(_largest(lambda precision: limit.admits(at(precision).privacy_loss), start))


def _part(noise: str, planned: Planned, precision: Fraction, public: PublicEnvironment) -> Calibrated:
    """One question, at the epsilon that its precision takes with this noise, or with the first that it can have."""
    budget = public.budget
    possible = eligible_mechanisms(planned, budget.filter)
    noise = noise if noise in possible else possible[0]
    delta = budget.filter.delta if planned.request.delta is None else planned.request.delta
    epsilon = ADDITIVE[noise].epsilon_at(precision, delta, budget.filter)
    asked = replace(planned, request=replace(planned.request, epsilon=epsilon))
    chosen = noise_plan(asked, noise, budget.filter)
    reserved = reserved_delta(asked, chosen, budget)
    return with_noise(asked, chosen, "the most precise that the plan allows", public.schema.dataset, reserved)


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
                raise ProgrammingError("no amount of noise would fit this budget", hint="use a larger epsilon or delta")
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if admitted(middle) else (low, middle)
    return low


# A plan, to look at before it is paid for: what each query of a batch takes and how exact it will be.


@dataclass(frozen=True)
class PlannedQuery:
    """A query of a plan, with its share of the cost."""

    sql: str
    weight: float
    """Relative accuracy: twice the weight, half the error."""
    share: float
    """The part of the plan's cost that it takes."""
    explanation: Explanation
    """The explanation of the query alone."""

    @property
    def errors(self) -> str:
        """The columns of the answer and their errors at 95 %."""
        return "; ".join(
            f"{column.name} ± {significant(column.half_width)}"
            if column.half_width is not None
            else f"{column.name}: {column.note}"
            for column in self.explanation.columns
            if column.half_width is not None or column.note
        )


@dataclass(frozen=True)
class Plan:
    """Queries that share one cost, made by `Connection.plan`. `print` shows each query's share and error."""

    queries: tuple[PlannedQuery, ...]
    """The queries in order."""
    cost: Cost
    """The epsilon and the delta of all answers together."""
    remaining: Cost
    """What would be left of the session's budget."""
    answers: Callable[[], list[Any]] = field(repr=False, compare=False)
    """Charges and answers; `execute` calls it."""

    def execute(self) -> list[Any]:
        """Charges all queries at once, then answers them.

        Returns:
            A `Cursor` per query, in order.

        Raises:
            BudgetExhausted: the remaining budget does not cover the plan; nothing is charged.
            SealedExecutionError: a query failed after the charge.
        """
        return self.answers()

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        cost, left = self.cost, self.remaining
        yield f"cost       epsilon {cost.epsilon:.6g}, delta {cost.delta:.3g} in all; {left.epsilon:.6g} is left"
        for number, query in enumerate(self.queries, 1):
            yield f"query {number:<4} {query.share:.1%} of the cost: {query.errors or 'no noisy column'}"
            yield f"           {' '.join(query.sql.split())}"

    def _repr_html_(self) -> str:
        names = ("query", "weight", "part of the cost", "error at 95 %")
        return card(
            "Cost of all queries together; nothing is spent yet",
            figures((*cost_figures(self.cost, self.remaining), (str(len(self.queries)), "queries"))),
            grid(
                names,
                ((query.sql, f"{query.weight:g}", f"{query.share:.1%}", query.errors) for query in self.queries),
            ),
        )
