"""The order of the stages, as a value. `run` walks all of them; `explain` and `trace` walk the free ones.

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

from dataclasses import dataclass
from textwrap import indent
from typing import TYPE_CHECKING, Any

from dpsql.errors import Error
from dpsql.pipeline.calibrate_noise import Calibrated, calibrate_noise
from dpsql.pipeline.charge_budget import charge_budget, charge_together
from dpsql.pipeline.estimate_answers import estimate_answers
from dpsql.pipeline.execute import ended_by_sigterm, run_rounds, run_rounds_of_all
from dpsql.pipeline.infer_sensitivity import infer_sensitivity
from dpsql.pipeline.parse_sql import parse_sql, too_deep
from dpsql.pipeline.plan_query import Planned, plan_query
from dpsql.pipeline.post_process import post_process
from dpsql.pipeline.resolve_names import resolve_names
from dpsql.pipeline.track_units import track_units
from dpsql.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from fractions import Fraction

    from dpsql.options import QueryRequest
    from dpsql.pipeline.environment import Environment, PublicEnvironment

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
    return run_calibrated(compile_question(request, environment.public()), environment)


def run_calibrated(calibrated: Calibrated, environment: Environment) -> Result:
    """Charges and answers a query that was compiled on the same environment."""
    value: Any = calibrated
    with ended_by_sigterm():
        for stage in PAID:
            value = stage(value, environment)
    assert isinstance(value, Result)
    return value


def run_together(parts: Sequence[Calibrated], epsilon: Fraction, environment: Environment) -> list[Result]:
    """All are charged, then all are drawn; where one fails and suspends the analyst, those after it are withheld."""
    with ended_by_sigterm():
        noisy = run_rounds_of_all(charge_together(parts, epsilon, environment), environment)
        return [post_process(estimate_answers(part, environment), environment) for part in noisy]


def compile_question(request: QueryRequest, public: PublicEnvironment) -> Calibrated:
    return calibrate_noise(plan_question(request, public), public)


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
