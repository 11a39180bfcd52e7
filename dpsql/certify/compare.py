"""The exact numbers of a question's releases in two engines, before any noise: equal, refused, or different.

Nobody's rows are left out, since each engine draws for itself which ones count. Groups that are scaled are not drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dpsql.aggregates.statistic import Quantile
from dpsql.engine_sql.build import SALT
from dpsql.errors import Error
from dpsql.pipeline import stages as pipeline

if TYPE_CHECKING:
    from fractions import Fraction

    from dpsql.certify.corpus import Question
    from dpsql.dbapi import Connection
    from dpsql.engines.engine import Engine
    from dpsql.pipeline.calibrate_noise import Calibrated, CalibratedRelease

UNBOUNDED = {"max_groups": 5_000, "max_rows_per_group": 5_000}
Outcome = Literal["equal", "refused", "refused by both", "different", "failed"]


@dataclass(frozen=True)
class World:
    """The same rows in DuckDB and in another engine."""

    model: Connection
    other: Connection


def outcome(question: Question, worlds: list[World]) -> tuple[Outcome, str]:
    """And where it is not equal, why."""
    wanted, _ = compiled(worlds[0].model, question)
    if wanted is None:
        return "refused by both", ""
    found, reason = compiled(worlds[0].other, question)
    if found is None:
        return "refused", reason
    for number, world in enumerate(worlds):
        for ours, theirs in zip(wanted.releases, found.releases, strict=True):
            expected = exact(world.model.session.environment.engine, ours)
            try:
                given = exact(world.other.session.environment.engine, theirs)
            except Exception as error:  # made-up rows: what an engine says of them is no secret
                return "failed", f"of database {number}: {str(error).splitlines()[0]}"
            if (where := difference(expected, given, ours)) is not None:
                return "different", f"of database {number}: {where}"
    return "equal", ""


def compiled(connection: Connection, question: Question) -> tuple[Calibrated | None, str]:
    """None where it is refused, with the reason."""
    session = connection.session
    try:
        asked = session.request(question.sql, question.parameters, **options(question))
        return pipeline.compile_question(asked, session.environment.public()), ""
    except Error as problem:
        return None, problem.problem


def options(question: Question) -> dict[str, Any]:
    scaled = question.options.get("bounding") == "scale"
    return UNBOUNDED | question.options if scaled else question.options | UNBOUNDED


def exact(engine: Engine, release: CalibratedRelease) -> dict[str, list[Any]]:
    blanks = {**release.planned.literals, SALT: 7, **{drawn.column: draw.reach for drawn, draw in release.statistics}}
    columns = engine.run(engine.render(release.planned.with_adaptive, blanks))
    return {name: _plain(values) for name, values in columns.items()}


def _plain(values: np.ndarray) -> list[Any]:
    """As Python has them; zero has no sign."""
    found = [None if gap else value for value, gap in zip(values, np.ma.getmaskarray(values), strict=True)]
    plain = [value.tolist() if isinstance(value, np.ndarray | np.generic) else value for value in found]
    return [0.0 if isinstance(value, float) and value == 0 else value for value in plain]


def difference(expected: dict[str, list[Any]], given: dict[str, list[Any]], release: CalibratedRelease) -> str | None:
    if list(given) != list(expected):
        return f"the columns are {list(given)}, not {list(expected)}"
    for drawn, draw in release.statistics:
        if isinstance(drawn.statistic, Quantile):
            profiles = [[columns.pop(name) for name in drawn.profile] for columns in (expected, given)]
            for groups in zip(*(zip(*profile, strict=True) for profile in profiles), strict=True):
                wanted, found = (around_rank(drawn.statistic.fraction, draw.reach, *group) for group in groups)
                if found != wanted:
                    return f"{drawn.column} is {found}, not {wanted}"
    for name, values in expected.items():
        if len(given[name]) != len(values) or not all(map(_is_same, given[name], values)):
            return f"{name} is {given[name][:20]}, not {values[:20]}"
    return None


def _is_same(given: object, wanted: object) -> bool:
    """A short decimal may come as a double from one engine, and as a text from another."""
    if isinstance(given, str) and isinstance(wanted, float):
        return float(given) == wanted
    return repr(given) == repr(wanted)


def around_rank(
    fraction: Fraction, reach: int, points: list[int], counts: list[int], below: int, rows: int
) -> tuple[int, list[int]] | None:
    """The number of values, and the value at each rank that is needed; an engine may tell more. None if one is not."""
    if not rows:
        return 0, []
    repeated = [point for point, count in zip(points, counts, strict=True) for _ in range(count)]
    told = dict(enumerate(repeated, below + 1))
    first, last = max(1, floor(fraction * rows) - reach), min(rows, ceil(fraction * rows) + reach)
    if not set(range(first, last + 1)) <= told.keys():
        return None
    return rows, [told[rank] for rank in range(first, last + 1)]
