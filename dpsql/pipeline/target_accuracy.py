"""`accuracy=`: the least cost at which every count and every sum meets its target.

    execute("SELECT region, COUNT(*) FROM orders GROUP BY region", accuracy=50)      ± 50 at 95 %, in every row
    execute("SELECT region, COUNT(*) FROM orders GROUP BY region", accuracy="1%")    of the total in its first answer

The error of counts and sums depends on the noise alone, so it is known for every epsilon before the charge. For each
mechanism the least sufficient epsilon is found by bisection; the mechanism of least cost wins. docs/proofs/accuracy.md.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.aggregates.estimate import Linear, Ratio
from dpsql.errors import ProgrammingError, Unsupported
from dpsql.expressions.format import format_expression
from dpsql.intervals import for_all, half_width
from dpsql.options import refuse_options
from dpsql.pipeline.allocate import aimed
from dpsql.pipeline.choose_mechanism import NoisePlan, eligible_mechanisms, noise_plan_within, noisy_columns, share_of
from dpsql.pipeline.identity import subject_of
from dpsql.pipeline.stored_answers import from_text
from dpsql.result import LEVEL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dpsql.accounting.filters import Filter
    from dpsql.aggregates.release import Release
    from dpsql.options import Accuracy
    from dpsql.pipeline.auto_bounds import AutoBounds
    from dpsql.pipeline.environment import PublicEnvironment
    from dpsql.pipeline.format import Output
    from dpsql.pipeline.plan_query import Planned

MANTISSAS = 900
"""Epsilons are searched to three digits, 1.00 to 9.99 in each power of ten."""
LEAST_POWER, MOST_POWER = -6, 5
STEPS = MANTISSAS * (MOST_POWER - LEAST_POWER + 1)
PRICE = "or set the cost: epsilon=0.1"


@dataclass(frozen=True)
class Target:
    """A column of one release, and the largest half-width of its interval."""

    estimate: Linear
    release: int
    width: float
    level: float


def _ways_to_fix(sought: Sequence[AutoBounds]) -> Iterator[str]:
    """How to set the bounds that the query would find."""
    if any(one.rows for one in sought):
        yield "max_rows_per_group=2"
    if any(one.groups for one in sought):
        yield "max_groups=4"
    for expression in dict.fromkeys(value for one in sought for value, _ in one.values):
        yield f"SUM({format_expression(expression)}, contribution_bounds_per_row => (0, 500))"


def mechanisms_meeting(planned: Planned, public: PublicEnvironment) -> list[tuple[Planned, NoisePlan, str]]:
    """The query at its least cost with each mechanism, and the reason, cheapest first."""
    accuracy, budget = planned.request.accuracy, public.budget
    assert accuracy is not None
    refuse_options(planned.request, ("epsilon",), "accuracy=")
    sought = [one.auto_bounds for one in planned.releases if one.auto_bounds]
    if sought:
        raise Unsupported(
            f"the query finds its own bounds and its error depends on them, so {accuracy} cannot be guaranteed",
            hint=f"set {', '.join(_ways_to_fix(sought))}; {PRICE}",
        )
    targets = [_target(output, accuracy, planned, public) for output in planned.outputs if not output.is_key]
    if not targets:
        raise ProgrammingError(
            f"no column of the answer is noisy, so {accuracy} does not apply", hint=f"omit accuracy=, {PRICE}"
        )
    searched = [_least(noise, planned, targets, budget.filter) for noise in eligible_mechanisms(planned, budget.filter)]
    found = [(*way, share_of(way[1].loss, budget)) for way in searched if way is not None]
    if not found:
        raise ProgrammingError(
            f"{accuracy} would take an epsilon of more than {float(_epsilon(STEPS)):,.0f}",
            hint="use a wider accuracy=",
        )
    found.sort(key=lambda way: (not way[2].fits, way[2].part))
    reason = f"the least cost for {accuracy} in every row"
    (_, _, best), *others = found
    if others and others[0][2].fits:
        _, other, its = others[0]
        reason += f": takes {best.part:.2g} of the session, {other.mechanism} {its.part:.2g}"
    return [(asked, way, reason) for asked, way, _ in found]


def _least(noise: str, planned: Planned, targets: list[Target], filter_: Filter) -> tuple[Planned, NoisePlan] | None:
    """The query at the least epsilon that meets all targets with one mechanism, and its noise plan."""
    widths = ((target.estimate, target.release, target.width) for target in targets)
    aims = aimed(planned, widths) if planned.request.weights is None else []

    def tried(step: int) -> tuple[Planned, NoisePlan]:
        asked = replace(planned, request=replace(planned.request, epsilon=_epsilon(step)))
        return asked, noise_plan_within(asked, noise, filter_, aims=aims)

    def met(step: int) -> bool:
        _, way = tried(step)
        return all(_width(target, way) <= target.width for target in targets)

    step = bisect_left(range(STEPS), True, key=met)
    return tried(step) if step < STEPS else None


def _epsilon(step: int) -> Fraction:
    """
    >>> [float(_epsilon(step)) for step in (0, 1, 900)]
    [1e-06, 1.01e-06, 1e-05]
    """
    power, mantissa = divmod(step, MANTISSAS)
    return Fraction(100 + mantissa, 100) * Fraction(10) ** (LEAST_POWER + power)


def _width(target: Target, way: NoisePlan) -> float:
    width = half_width(target.estimate, noisy_columns(way.measures[target.release]), target.level)
    assert width is not None
    return width


def _target(output: Output, accuracy: Accuracy, planned: Planned, public: PublicEnvironment) -> Target:
    if isinstance(output.estimate, Ratio):
        raise Unsupported(
            f'the error of "{output.name}" depends on the answer, so {accuracy} cannot be guaranteed',
            hint=f"query SUM and COUNT with accuracy= and divide them yourself, {PRICE}",
        )
    release = None if output.release is None else planned.releases[output.release].release
    # Groups and totals have errors of their own.
    measured = () if release is None or release.levels else release.measures
    names, linear = {measure.column for measure in measured}, output.estimate
    if not isinstance(linear, Linear) or output.release is None or not {name for name, _ in linear.weights} <= names:
        raise Unsupported(
            f'the error of "{output.name}" is not known beforehand, so {accuracy} cannot be guaranteed',
            hint=f"accuracy= is for COUNT and SUM, and their sums and differences, in one SELECT; {PRICE}",
        )
    amount = accuracy.amount * (_total(output, linear, output.release, planned, public) if accuracy.relative else 1)
    level = _level(output, accuracy, planned.releases[output.release].release)
    return Target(linear, output.release, float(amount), level)


def _level(output: Output, accuracy: Accuracy, release: Release) -> float:
    """The level of an interval: if noisy values choose the rows, it must hold for all groups at once."""
    if not output.chosen:
        return LEVEL
    if release.domain is None:
        raise Unsupported(
            f"noisy values choose the rows from groups that are not public, so {accuracy} cannot be guaranteed",
            hint=f"omit HAVING, QUALIFY or LIMIT and choose from the answer, {PRICE}",
        )
    return for_all(LEVEL, release.domain.size)


def _total(output: Output, estimate: Linear, release: int, planned: Planned, public: PublicEnvironment) -> Fraction:
    """The column's sum over all groups in the first stored answer, which is noisy and so free to use."""
    subject = subject_of(planned, release, public.schema.dataset)
    known = [] if planned.request.fresh else public.answers.about(subject)
    answer = public.answers.recall(known[0].fingerprint) if known else None
    columns = {} if answer is None else from_text(answer)
    rows = len(next(iter(columns.values()), ()))
    total = sum((_value(estimate, columns, row) for row in range(rows)), Fraction(0))
    if not total:
        raise ProgrammingError(
            f'{planned.request.accuracy} needs a known total of "{output.name}", and there is none yet',
            hint="give a number, accuracy=50, or query with a small epsilon= first; that answer is then the total",
        )
    return abs(total)


def _value(estimate: Linear, columns: dict[str, list[int | None]], row: int) -> Fraction:
    """The value of one group; 0 if a test refused it."""
    parts = [(columns[name][row], weight) for name, weight in estimate.weights]
    if any(measure is None for measure, _ in parts):
        return Fraction(0)
    return estimate.constant + sum((weight * measure for measure, weight in parts if measure is not None), Fraction(0))
