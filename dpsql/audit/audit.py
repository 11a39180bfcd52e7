"""The audit itself: every question on every made-up database and its neighbours, without noise and with it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from dpsql.accounting.privacy_loss import Cost, privacy_loss
from dpsql.audit import DELTA, RUNS
from dpsql.audit.lower_bound import apart, certain_epsilon, noisy_cells
from dpsql.audit.neighbours import moved_too_far, wrong_shape
from dpsql.audit.synthesize import answer
from dpsql.engines.quoting import quoted
from dpsql.errors import Error
from dpsql.explanation import explain_release
from dpsql.expressions.properties import NUMBERS
from dpsql.pipeline import stages as pipeline
from dpsql.schema.types import Text
from dpsql.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dpsql.audit.synthesize import Database, World
    from dpsql.explanation import ExplainedRelease
    from dpsql.pipeline.calibrate_noise import CalibratedRelease
    from dpsql.schema.model import Schema

    Pair = tuple[Database, Database]
    from collections.abc import Iterator

    from dpsql.schema.table import Table

STATISTICS_COST = 5
"""To draw a median or a mode takes so much longer than noise; it is drawn less often."""


@dataclass(frozen=True, kw_only=True)
class Audited:
    """What was found about one release of a question; or why it was refused, and then nothing is released."""

    sql: str
    claimed: Cost | None = None
    certain: float = 0.0
    """Epsilon is at least this, at the claimed delta."""
    compared: int = 0
    """Pairs of neighbours that were compared without noise."""
    violations: tuple[str, ...] = ()
    refused: str | None = None

    @property
    def broken(self) -> bool:
        return bool(self.violations) or (self.claimed is not None and self.certain > self.claimed.epsilon)


@dataclass(frozen=True)
class Auditor:
    schema: Schema
    worlds: Sequence[World] = field(repr=False)
    epsilon: float = 1.0
    delta: float = DELTA
    runs: int = RUNS

    def audit(self, questions: Sequence[str], done: Callable[[], None] = lambda: None) -> list[Audited]:
        found: list[Audited] = []
        for sql in questions:
            found += self._question(sql)
            done()
        return found

    def _question(self, sql: str) -> list[Audited]:
        try:
            with closing(self._session()) as session:
                calibrated = pipeline.compile_question(session.request(sql, ()), session.environment.public())
        except Error as refused:
            return [Audited(sql=sql, refused=refused.problem)]
        return [self._release(sql, release, explain_release(release)) for release in calibrated.releases]

    def _session(self) -> Session:
        """Each question has all of it, at a price of an epsilon and a delta: what is claimed is what is asked for."""
        return Session(
            self.worlds[0].whole.raw,
            self.schema,
            budget=self.epsilon,
            delta=self.delta,
            query_epsilon=self.epsilon,
            ledger=None,
            composition="basic",
            analyst=None,
            analyst_budget=None,
            on_failure="suspend",
        )

    def _release(self, sql: str, release: CalibratedRelease, claims: ExplainedRelease) -> Audited:
        pairs = [(world.whole, neighbour) for world in self.worlds for neighbour in world.neighbours]
        answers = [(answer(whole.raw, claims.sql), answer(neighbour.raw, claims.sql)) for whole, neighbour in pairs]
        violations = [*wrong_shape(claims, list(chain.from_iterable(answers)))]
        violations += [problem for pair in answers for problem in moved_too_far(claims, *pair)]
        claimed = _claimed(release)
        certain = 0.0 if violations else self._certain(pairs, release, claimed.delta)
        return Audited(
            sql=sql,
            claimed=claimed,
            certain=max(0.0, certain),
            compared=len(pairs),
            violations=tuple(dict.fromkeys(violations)),
        )

    def _certain(self, pairs: Sequence[Pair], release: CalibratedRelease, delta: float) -> float:
        """On the pair of neighbours that a first look finds farthest apart."""
        runs = self.runs // STATISTICS_COST if release.statistics else self.runs
        exact = [(dict(here.engine.run(release.sql)), dict(there.engine.run(release.sql))) for here, there in pairs]
        here, there = max(exact, key=lambda pair: apart(*noisy_cells(pair[0], pair[1], release, runs // len(pairs))))
        return certain_epsilon(*noisy_cells(here, there, release, runs), delta)


def _claimed(release: CalibratedRelease) -> Cost:
    """What is charged, whatever is shown."""
    charged = privacy_loss(release.event)
    return Cost(float(charged.epsilon), float(charged.delta))


# Questions that try everything a schema declares, for an owner who brings none.


def default_questions(schema: Schema) -> list[str]:
    private = {name: table for name, table in schema.tables.items() if not table.is_public}
    # A column that leads to a person is no group of people.
    paths = [schema.unit_path(name) for name in private]
    leading = {end for path in paths for hop in path for end in (hop.column, hop.to_column)}
    return [sql for name, table in private.items() for sql in _about(quoted(name), table, leading)]


def _about(name: str, table: Table, leading: set[str]) -> Iterator[str]:
    yield f"SELECT COUNT(*) FROM {name}"
    columns = [
        part
        for part in table.columns.values()
        if part.name not in (table.unit_column, *leading) and part.collected is None
    ]
    numbers = [quoted(part.name) for part in columns if isinstance(part.type, NUMBERS) and (part.bounds or part.auto)]
    public = [quoted(part.name) for part in columns if part.values is not None]
    texts = [quoted(part.name) for part in columns if isinstance(part.type, Text) and part.values is None]
    for number in numbers:
        yield f"SELECT SUM({number}), AVG({number}) FROM {name}"
        yield f"SELECT MEDIAN({number}) FROM {name}"
    for key in public:
        totals = "".join(f", SUM({number})" for number in numbers[:1])
        yield f"SELECT {key}, COUNT(*){totals} FROM {name} GROUP BY {key}"
        yield f"SELECT MODE({key}) FROM {name}"
    for key in texts:
        yield f"SELECT {key}, COUNT(*) FROM {name} GROUP BY {key}"
