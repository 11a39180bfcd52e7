"""The order of the stages, as a value, that `run` walks; `explain` and `trace` walk the free ones.

| stage | gives | in one line |
|---|---|---|
| parse_sql | Parsed | one SELECT as a tree, parameters in place |
| resolve_names | Resolved | releases that touch people, and the post-processing above them |
| track_units | Tracked | whose rows, what is known of each column, which groups are public |
| infer_sensitivity | Measured | what is measured, and how far one unit moves it |
| plan_query | Planned | the engine SQL of each release, the SQL of the post-processing |
| calibrate_noise | Calibrated | noise, cost, expected error |
| charge_budget | Charged | the account, durably, before any row of people is read |
| run_rounds | Noisy | `execute_query`: the only exact numbers; `add_noise`: exact sampling on integers, thresholds |
| estimate_answers | Estimated | counts of randomised reports become estimates of answers |
| post_process | Result | all of SQL over noisy values |

Free stages are given a `PublicEnvironment`, which has no way to people's rows nor to the account; the others an
`Environment`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsql.pipeline.calibrate_noise import Calibrated, calibrate_noise
from dpsql.pipeline.charge_budget import charge_budget, charge_together
from dpsql.pipeline.estimate_answers import estimate_answers
from dpsql.pipeline.infer_sensitivity import infer_sensitivity
from dpsql.pipeline.parse_sql import Parsed, parse_sql, too_deep
from dpsql.pipeline.plan_for_many import plan_for_many
from dpsql.pipeline.plan_query import Planned, plan_query
from dpsql.pipeline.post_process import post_process
from dpsql.pipeline.resolve_names import resolve_names
from dpsql.pipeline.run_rounds import run_rounds
from dpsql.pipeline.track_units import track_units
from dpsql.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from fractions import Fraction

    from dpsql.pipeline.environment import Environment
    from dpsql.pipeline.plan_for_many import PlanForMany
    from dpsql.pipeline.public_environment import PublicEnvironment
    from dpsql.pipeline.query_request import QueryRequest
    from dpsql.pipeline.shape import Shape

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
    value: Any = compile_question(request, environment.public())
    for stage in PAID:
        value = stage(value, environment)
    assert isinstance(value, Result)
    return value


def run_together(parts: Sequence[Calibrated], epsilon: Fraction, environment: Environment) -> list[Result]:
    """All are charged, then all are drawn; where one fails and suspends the analyst, those after it are withheld."""
    noisy = [run_rounds(charged, environment) for charged in charge_together(parts, epsilon, environment)]
    return [post_process(estimate_answers(part, environment), environment) for part in noisy]


def compile_question(request: QueryRequest, public: PublicEnvironment) -> Calibrated:
    return calibrate_noise(plan_question(request, public), public)


def plan_question(request: QueryRequest, public: PublicEnvironment) -> Planned:
    """All that does not depend on the price."""
    return public.plans.planned(request, public, _planned, _for_many)


def _planned(asked: QueryRequest | Parsed, public: PublicEnvironment) -> Planned:
    return next(value for value in walk_free(asked, public) if isinstance(value, Planned))


def _for_many(
    request: QueryRequest, public: PublicEnvironment, shape: Shape, fresh: Planned
) -> tuple[frozenset[str], PlanForMany | None]:
    return plan_for_many(parse_sql(request, public), shape, fresh, public, _planned)


def walk_free(asked: QueryRequest | Parsed, public: PublicEnvironment) -> Iterator[object]:
    """What each free stage gives, from the first to the last; what is parsed already goes on from there."""
    value: Any = asked
    for stage in FREE[isinstance(asked, Parsed) :]:
        problem = None
        try:
            value = stage(value, public)
        except RecursionError:
            problem = too_deep()
        if problem is not None:
            raise problem
        yield value
