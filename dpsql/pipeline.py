"""The order of the stages, as a value. `run` walks all of them, `explain` the same ones up to the charge.

| stage | gives | in one line |
|---|---|---|
| parse_sql | Parsed | one SELECT as a tree, parameters in place |
| resolve_names | Resolved | releases that touch people, and the finish above them |
| track_units | Tracked | whose rows, what is known of each column, which groups are public |
| infer_sensitivity | Measured | what is measured, and how far one unit moves it |
| plan_query | Planned | the engine SQL of each release, the SQL of the finish |
| calibrate_noise | Calibrated | noise, cost, expected error |
| charge_budget | Charged | the account, durably, before any data is read |
| execute_query | Fetched | the only exact numbers |
| add_noise | Noisy | exact sampling on integers; thresholds |
| estimate_answers | Estimated | counts of randomised reports become estimates of answers |
| finish_result | Result | all of SQL over noisy values |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsql.accuracy import meet_accuracy
from dpsql.flow.add_noise import add_noise
from dpsql.flow.calibrate_noise import calibrate_noise
from dpsql.flow.charge_budget import charge_budget, charge_together
from dpsql.flow.estimate_answers import estimate_answers
from dpsql.flow.execute_query import execute_query
from dpsql.flow.finish_result import finish_result
from dpsql.flow.infer_sensitivity import infer_sensitivity
from dpsql.flow.parse_sql import parse_sql, too_deep
from dpsql.flow.plan_query import Planned, plan_query
from dpsql.flow.resolve_names import resolve_names
from dpsql.flow.track_units import track_units
from dpsql.settle import draw_and_settle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from fractions import Fraction

    from dpsql.flow.calibrate_noise import Calibrated
    from dpsql.flow.question import Question
    from dpsql.flow.setting import Setting
    from dpsql.result import Result

STAGES: tuple[Callable[[Any, Setting], Any], ...] = (
    parse_sql,
    resolve_names,
    track_units,
    infer_sensitivity,
    plan_query,
    calibrate_noise,
    charge_budget,
    execute_query,
    add_noise,
    estimate_answers,
    finish_result,
)
FREE = STAGES[: STAGES.index(charge_budget)]
"""What happens before the charge: pure, free, and without a look at private data."""


def compile_question(question: Question, setting: Setting) -> Calibrated:
    planned = plan_question(question, setting)
    return calibrate_noise(planned, setting) if question.accuracy is None else meet_accuracy(planned, setting)


def plan_question(question: Question, setting: Setting) -> Planned:
    """All that does not depend on the price."""
    try:
        planned = _walk(FREE[:-1], question, setting)
        assert isinstance(planned, Planned)
        return planned
    except RecursionError:
        problem = too_deep()
    raise problem


def run(question: Question, setting: Setting) -> Result:
    """Between the charge and the finish, execute_query and add_noise run in rounds."""
    charged = charge_budget(compile_question(question, setting), setting)
    return finish_result(estimate_answers(draw_and_settle(charged, setting), setting), setting)


def run_together(parts: Sequence[Calibrated], epsilon: Fraction, setting: Setting) -> list[Result]:
    """All are charged, then all are drawn; where one fails and suspends the analyst, those after it are withheld."""
    noisy = [draw_and_settle(charged, setting) for charged in charge_together(parts, epsilon, setting)]
    return [finish_result(estimate_answers(part, setting), setting) for part in noisy]


def _walk(stages: Iterable[Callable[[Any, Setting], Any]], value: object, setting: Setting) -> object:
    for stage in stages:
        value = stage(value, setting)
    return value
