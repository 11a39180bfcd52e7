"""The order of the stages, as a value, that `run` walks; `explain` and `trace` walk the free ones.

| stage | gives | in one line |
|---|---|---|
| parse_sql | Parsed | one SELECT as a tree, parameters in place |
| resolve_names | Resolved | releases that touch people, and the finish above them |
| track_units | Tracked | whose rows, what is known of each column, which groups are public |
| infer_sensitivity | Measured | what is measured, and how far one unit moves it |
| plan_query | Planned | the engine SQL of each release, the SQL of the finish |
| calibrate_noise | Calibrated | noise, cost, expected error |
| charge_budget | Charged | the account, durably, before any data is read |
| run_rounds | Noisy | `execute_query`: the only exact numbers; `add_noise`: exact sampling on integers, thresholds |
| estimate_answers | Estimated | counts of randomised reports become estimates of answers |
| finish_result | Result | all of SQL over noisy values |

Free stages are given a `PublicSetting`, which has no way to people's rows nor to the account; the others a `Setting`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsql.flow.calibrate_noise import Calibrated, calibrate_noise
from dpsql.flow.charge_budget import charge_budget, charge_together
from dpsql.flow.estimate_answers import estimate_answers
from dpsql.flow.finish_result import finish_result
from dpsql.flow.infer_sensitivity import infer_sensitivity
from dpsql.flow.parse_sql import parse_sql, too_deep
from dpsql.flow.plan_query import Planned, plan_query
from dpsql.flow.resolve_names import resolve_names
from dpsql.flow.run_rounds import run_rounds
from dpsql.flow.track_units import track_units
from dpsql.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from fractions import Fraction

    from dpsql.flow.public_setting import PublicSetting
    from dpsql.flow.question import Question
    from dpsql.flow.setting import Setting

FREE: tuple[Callable[[Any, PublicSetting], Any], ...] = (
    parse_sql,
    resolve_names,
    track_units,
    infer_sensitivity,
    plan_query,
    calibrate_noise,
)
"""Pure: the same input gives the same value, and nothing is changed."""
PAID: tuple[Callable[[Any, Setting], Any], ...] = (charge_budget, run_rounds, estimate_answers, finish_result)
STAGES = (*FREE, *PAID)


def run(question: Question, setting: Setting) -> Result:
    value: Any = compile_question(question, setting.public())
    for stage in PAID:
        value = stage(value, setting)
    assert isinstance(value, Result)
    return value


def run_together(parts: Sequence[Calibrated], epsilon: Fraction, setting: Setting) -> list[Result]:
    """All are charged, then all are drawn; where one fails and suspends the analyst, those after it are withheld."""
    noisy = [run_rounds(charged, setting) for charged in charge_together(parts, epsilon, setting)]
    return [finish_result(estimate_answers(part, setting), setting) for part in noisy]


def compile_question(question: Question, public: PublicSetting) -> Calibrated:
    *_, calibrated = walk_free(question, public)
    assert isinstance(calibrated, Calibrated)
    return calibrated


def plan_question(question: Question, public: PublicSetting) -> Planned:
    """All that does not depend on the price."""
    return next(value for value in walk_free(question, public) if isinstance(value, Planned))


def walk_free(question: Question, public: PublicSetting) -> Iterator[object]:
    """What each free stage gives, from the first to the last."""
    value: Any = question
    for stage in FREE:
        problem = None
        try:
            value = stage(value, public)
        except RecursionError:
            problem = too_deep()
        if problem is not None:
            raise problem
        yield value
