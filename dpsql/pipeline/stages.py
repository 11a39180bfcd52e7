"""The order of the stages, as a value. `run` takes all of them; `explain` and `trace` take the free ones.

| stage | gives | in one line |
|---|---|---|
| parse_sql | Parsed | one SELECT as a tree, parameters in place |
| resolve_names | Resolved | releases that touch people, and the post-processing above them |
| track_units | Tracked | whose rows, what is known of each column, which groups are public |
| infer_sensitivity | Measured | what is measured, and how far one unit moves it |
| plan_query | Planned | the engine SQL of each release, the SQL of the post-processing |
| calibrate_noise | Calibrated | noise, cost, expected error |
| charge_budget | Charged | the cost, durably recorded before any private row is read |
| run_rounds | Noisy | `execute_query`: the only exact numbers; `add_noise`: exact sampling on integers, thresholds |
| estimate_answers | Estimated | counts of randomised reports become estimates of answers |
| post_process | Result | all of SQL over noisy values |

Free stages get a `PublicEnvironment`, which cannot read private rows or change the account; paid stages get an
`Environment`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from textwrap import indent
from typing import TYPE_CHECKING, Any

from dpsql.accounting.events import Composed
from dpsql.accounting.privacy_loss import privacy_loss
from dpsql.errors import Error
from dpsql.mechanisms.left_out import RowsPerPerson
from dpsql.mechanisms.registry import ADDITIVE
from dpsql.options import QueryRequest
from dpsql.pipeline.allocate import DIAGNOSING
from dpsql.pipeline.auto_bounds import rows_per_person
from dpsql.pipeline.calibrate_noise import Calibrated, calibrate_noise, recalled
from dpsql.pipeline.charge_budget import charge_budget, charge_together
from dpsql.pipeline.choose_mechanism import share_of
from dpsql.pipeline.estimate_answers import estimate_answers
from dpsql.pipeline.execute import ended_by_sigterm, run_rounds, run_rounds_of_all
from dpsql.pipeline.infer_sensitivity import infer_sensitivity
from dpsql.pipeline.notes import table_to_measure
from dpsql.pipeline.parse_sql import parse_sql, too_deep
from dpsql.pipeline.plan_query import Planned, plan_query
from dpsql.pipeline.post_process import post_process
from dpsql.pipeline.resolve_names import resolve_names
from dpsql.pipeline.track_units import track_units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from fractions import Fraction

    from dpsql.accounting.budget import Budget
    from dpsql.pipeline.add_noise import Noisy
    from dpsql.pipeline.environment import Environment, PublicEnvironment
    from dpsql.result import Result

FREE: tuple[Callable[[Any, PublicEnvironment], Any], ...] = (
    parse_sql,
    resolve_names,
    track_units,
    infer_sensitivity,
    plan_query,
    calibrate_noise,
)
"""Pure: the same input gives the same value, and nothing is changed."""
PAID: tuple[Callable[[Any, Environment], Any], ...] = (charge_budget, run_rounds, estimate_answers, post_process)
STAGES = (*FREE, *PAID)


def run(request: QueryRequest, environment: Environment) -> Result:
    return run_calibrated(*compile_with_histogram(request, environment.public()), environment)


def run_calibrated(question: Calibrated, histogram: Calibrated | None, environment: Environment) -> Result:
    """Charges and answers a query that was compiled on the same environment."""
    with ended_by_sigterm():
        if histogram is not None and not histogram.recalled:
            return _with_histogram(question, histogram, environment)
        people = None if histogram is None else _people(run_rounds(charge_budget(histogram, environment), environment))
        return _answered(run_rounds(charge_budget(question, environment), environment), environment, people)


def _with_histogram(question: Calibrated, histogram: Calibrated, environment: Environment) -> Result:
    """Both are charged, then both are drawn."""
    charged, beside = charge_together([question, histogram], None, environment)
    noisy, counted = run_rounds_of_all([replace(charged, histogram=beside.entry), beside], environment)
    if counted.has_failed:
        return _answered(counted, environment)
    return _answered(noisy, environment, _people(counted))


def _answered(noisy: Noisy, environment: Environment, people: RowsPerPerson | None = None) -> Result:
    return post_process(estimate_answers(noisy, environment), environment, people)


def _people(noisy: Noisy) -> RowsPerPerson:
    """The noisy histogram, in the order of its bins."""
    (release,), (columns,) = noisy.charged.calibrated.releases, noisy.columns
    (measure,) = release.measures
    on_record = noisy.charged.calibrated.recalled
    assert columns is not None
    counts = dict(zip(columns["_k0"].tolist(), columns[measure.bounded.column].tolist(), strict=True))
    ordered = tuple(counts[place] for place in sorted(counts))
    return RowsPerPerson(ordered, measure.noise, 1 << measure.shift, None if on_record is None else on_record.drawn_at)


def run_together(parts: Sequence[Calibrated], epsilon: Fraction, environment: Environment) -> list[Result]:
    """All are charged, then all are drawn; where one fails and suspends the analyst, those after it are withheld."""
    with ended_by_sigterm():
        noisy = run_rounds_of_all(charge_together(parts, epsilon, environment), environment)
        return [_answered(part, environment) for part in noisy]


def compile_question(request: QueryRequest, public: PublicEnvironment) -> Calibrated:
    return calibrate_noise(plan_question(request, public), public)


PLAIN = ("laplace", "gaussian")
"""The noises that a single count can have."""
FAR_LESS = 2
"""A question with more than so many times the epsilon of the one that drew the histogram draws it again."""

# -- rows per person ---------------------------------------------------------------------------------------------------
# How many rows people have in a table tells how much fixed bounds leave out of any question to it. A histogram measures
# it, once: an auxiliary question, for a part of the cost of the first question that it helps. docs/proofs/left_out.md.


def compile_with_histogram(request: QueryRequest, public: PublicEnvironment) -> tuple[Calibrated, Calibrated | None]:
    """The question, and the histogram of rows per person that tells what is left out of it: on record, or to be drawn
    for its part of the cost, where the budget has room for both."""
    planned = plan_question(request, public)
    whole = _as_good_as_asked(planned, public)
    asked = _histogram(planned, public) if request.diagnose is None else None
    known = None if asked is None or request.fresh else recalled(asked, public)
    if asked is None or not whole.due or planned.request.accuracy is not None or planned.request.clauses:
        return whole, known
    less = calibrate_noise(_for_a_part(planned, 1 - DIAGNOSING), public)
    try:
        histogram = calibrate_noise(_beside(asked, less), public)
    except Error:
        return whole, known  # nothing but noise at so small a part
    is_enough = known is not None and not _is_worth_it(histogram, known, public)
    return (less, histogram) if not is_enough and _is_allowed(less, histogram, public.budget) else (whole, known)


def _is_worth_it(histogram: Calibrated, known: Calibrated, public: PublicEnvironment) -> bool:
    """Whether the data are known to have changed since the one on record was drawn, or that has far less epsilon."""
    answer, changed = known.recalled, public.guarantees.changed
    drawn = None if answer is None else answer.drawn_at
    is_older = changed is not None and drawn is not None and changed > drawn
    is_of_other_data = answer is not None and answer.data is not None and answer.data != public.schema.snapshot
    return is_older or is_of_other_data or histogram.releases[0].epsilon > FAR_LESS * known.releases[0].epsilon


def _is_allowed(question: Calibrated, histogram: Calibrated, budget: Budget) -> bool:
    """Whether the account has room for both, and both together cost no more than one question may."""
    cost, most = question.cost_with(histogram), budget.question
    both = privacy_loss(Composed((question.event, histogram.event)))
    return share_of(both, budget).fits and (most is None or (cost.epsilon <= most.epsilon and cost.delta <= most.delta))


def _as_good_as_asked(planned: Planned, public: PublicEnvironment) -> Calibrated:
    """The question; if it was asked before together with its histogram, that is its answer."""
    whole = calibrate_noise(planned, public)
    if not whole.due or not public.answers.about(whole.releases[0].subject) or planned.request.clauses:
        return whole
    before = calibrate_noise(_for_a_part(planned, 1 - DIAGNOSING), public)
    return before if before.recalled else whole


def _histogram(planned: Planned, public: PublicEnvironment) -> Planned | None:
    table = table_to_measure(planned.outputs, planned.releases)
    if table is None or table.unit is None or planned.request.mechanism not in (None, *ADDITIVE):
        return None
    if public.schema.minimum_people is not None:
        return None  # it would show how few people have many rows
    asked = planned.request
    request = QueryRequest(
        sql=rows_per_person(table, table.unit.column),
        epsilon=asked.epsilon,
        delta=asked.delta,
        share=asked.share,
        fresh=asked.fresh,
    )
    try:
        return plan_question(request, public)
    except Error:
        return None  # a unit that cannot be grouped by


def _beside(histogram: Planned, less: Calibrated) -> Planned:
    """The histogram, drawn anew, at its part, beside the question at the other one. Where it can have noise of the same
    kind it has: then the two of them take no more of the session than they cost."""
    part = _for_a_part(histogram, DIAGNOSING).request
    plan = less.noise_plan
    if plan.mechanism not in PLAIN or not plan.delta:
        return replace(histogram, request=replace(part, mechanism=PLAIN[0], delta=None, fresh=True))
    return replace(
        histogram,
        request=replace(part, mechanism=plan.mechanism, delta=plan.delta * DIAGNOSING / (1 - DIAGNOSING), fresh=True),
    )


def _for_a_part(planned: Planned, part: Fraction) -> Planned:
    """The question at a part of its cost."""
    asked = planned.request
    share, delta = (None if whole is None else whole * part for whole in (asked.share, asked.delta))
    return replace(planned, request=replace(asked, epsilon=asked.epsilon * part, share=share, delta=delta))


def plan_question(request: QueryRequest, public: PublicEnvironment) -> Planned:
    """The plan of a query, which does not depend on its cost."""
    return public.plans.planned(request, public, _planned)


def _planned(request: QueryRequest, public: PublicEnvironment) -> Planned:
    return next(value for value in walk_free(request, public) if isinstance(value, Planned))


def walk_free(request: QueryRequest, public: PublicEnvironment) -> Iterator[object]:
    """The result of each free stage, in order."""
    value: Any = request
    for stage in FREE:
        problem = None
        try:
            value = stage(value, public)
        except RecursionError:
            problem = too_deep()
        if problem is not None:
            raise problem
        yield value


# -- trace -------------------------------------------------------------------------------------------------------------
# What each stage before the charge makes of a question, one below the other. Free: no data, no budget.


@dataclass(frozen=True, repr=False)
class Trace:
    """What each stage before the charge returned, made by `Connection.trace`. `print` shows it."""

    stages: tuple[tuple[str, str], ...]
    """The name of each stage and its result as text. If the query is refused, the last one holds the refusal."""
    refusal: Error | None = None
    """The error that refused the query, if it was refused."""

    def __str__(self) -> str:
        return "\n".join(f"{name}\n{indent(text, '  ')}" for name, text in self.stages)

    def __repr__(self) -> str:
        return str(self)


def trace_question(request: QueryRequest, public: PublicEnvironment) -> Trace:
    """What each free stage returns. A refusal is the last entry, so that one sees which stage it comes from."""
    found: list[str] = []
    refusal = None
    try:
        for value in walk_free(request, public):
            found.append(str(value))
    except Error as problem:
        refusal = problem.with_traceback(None)
        found.append(f"refused: {problem}")
    return Trace(tuple(zip((stage.__name__ for stage in FREE), found, strict=False)), refusal)
