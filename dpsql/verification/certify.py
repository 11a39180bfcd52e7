"""Certification: runs the corpus, or a sample of it, on an engine and compares it with DuckDB."""

from __future__ import annotations

import random
import re
import warnings
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache
from math import ceil, floor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import duckdb
import numpy as np
import yaml

from dpsql import errors
from dpsql.aggregates.measure import Quantile
from dpsql.connection import connect
from dpsql.engine_sql.build import SALT
from dpsql.engines.registry import kind_of, kinds
from dpsql.errors import Error, InterfaceError
from dpsql.pipeline import stages
from dpsql.schema.model import Schema, UnitPath
from dpsql.synthetic import adversarial_tables, conforming_tables, fill_case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from fractions import Fraction

    from dpsql.connection import Connection
    from dpsql.engines.base import CertificationTarget, Engine
    from dpsql.pipeline.calibrate_noise import Calibrated, CalibratedRelease
    from dpsql.synthetic import CaseTables

# -- compare -----------------------------------------------------------------------------------------------------------
# The exact numbers of a question's releases in two engines, before any noise: equal, refused, or different.
#
# Nobody's rows are left out, since each engine draws for itself which ones count. L2-clipped groups are not drawn.

UNBOUNDED = {"max_groups": 5_000, "max_rows_per_group": 5_000}
Outcome = Literal["equal", "refused", "refused by both", "different", "failed"]


@dataclass(frozen=True)
class EnginePair:
    """The same rows in DuckDB and in another engine."""

    model: Connection
    other: Connection


def outcome(question: CorpusQuestion, worlds: list[EnginePair]) -> tuple[Outcome, str]:
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


def compiled(connection: Connection, question: CorpusQuestion) -> tuple[Calibrated | None, str]:
    """None where it is refused, with the reason."""
    session = connection.session
    try:
        asked = session.request(question.sql, question.parameters, **options(question))
        return stages.compile_question(asked, session.environment.public()), ""
    except Error as problem:
        return None, problem.problem


def options(question: CorpusQuestion) -> dict[str, Any]:
    is_clipped = question.options.get("bounding") == "l2_clip"
    return UNBOUNDED | question.options if is_clipped else question.options | UNBOUNDED


def exact(engine: Engine, release: CalibratedRelease) -> dict[str, list[Any]]:
    blanks = {SALT: 7} | {drawn.column: draw.reach for drawn, draw in release.statistics}
    columns = engine.run(engine.render(release.planned.with_adaptive, blanks))
    return {name: _plain(values) for name, values in columns.items()}


def _plain(values: np.ndarray) -> list[Any]:
    """The values as Python objects; zero has no sign."""
    found = [None if gap else value for value, gap in zip(values, np.ma.getmaskarray(values), strict=True)]
    plain = [value.tolist() if isinstance(value, np.ndarray | np.generic) else value for value in found]
    return [0.0 if isinstance(value, float) and value == 0 else value for value in plain]


def difference(expected: dict[str, list[Any]], given: dict[str, list[Any]], release: CalibratedRelease) -> str | None:
    if list(given) != list(expected):
        return f"the columns are {list(given)}, not {list(expected)}"
    for drawn, draw in release.statistics:
        if isinstance(drawn.statistic, Quantile) and drawn.leader is None:
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


# -- corpus ------------------------------------------------------------------------------------------------------------
# The questions that engines are certified by: the cases and the corpus of the tests, with their schemas.

INSTALLED = Path(__file__).parent / "data"
DATA = INSTALLED if INSTALLED.exists() else Path(__file__).parents[2] / "tests"
"""Where both lie: beside this file in an installed package, among the tests in the repository."""


@dataclass(frozen=True)
class ClaimedRelease:
    """The claims about one release: see tests/cases/shop.yaml."""

    keys: str
    l0: int
    linf: list[float] | None = None


@dataclass(frozen=True)
class CorpusCase:
    file: str
    name: str
    sql: str
    releases: tuple[ClaimedRelease, ...]
    parameters: list[object] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    plain: str | None = None

    @property
    def plain_sql(self) -> str:
        return self.plain or self.sql

    @property
    def plain_parameters(self) -> list[object]:
        return [] if self.plain else self.parameters


@dataclass(frozen=True)
class CaseFile:
    name: str
    schema: Schema
    create: str
    cases: tuple[CorpusCase, ...]


def read_cases(path: Path) -> CaseFile:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    cases = []
    for case in content["cases"]:
        claims = case.pop("releases", None) or [{key: case.pop(key) for key in ("keys", "l0", "linf") if key in case}]
        cases.append(CorpusCase(path.stem, releases=tuple(ClaimedRelease(**claim) for claim in claims), **case))
    return CaseFile(path.stem, Schema.model_validate(content["schema"]), content["create"], tuple(cases))


@cache
def case_files() -> Mapping[str, CaseFile]:
    return {path.stem: read_cases(path) for path in sorted((DATA / "cases").glob("*.yaml"))}


@dataclass(frozen=True)
class CorpusQuestion:
    file: str
    topic: str
    sql: str
    parameters: tuple[object, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


def questions(files: Mapping[str, CaseFile]) -> Iterator[CorpusQuestion]:
    for name, file in files.items():
        for case in file.cases:
            yield CorpusQuestion(name, "cases", case.sql, tuple(case.parameters), case.options)
    for path in sorted((DATA / "corpus").glob("*.yaml")):
        for topic, entries in yaml.safe_load(path.read_text(encoding="utf-8")).items():
            for entry in entries:
                yield CorpusQuestion(path.stem, topic, entry if isinstance(entry, str) else entry["sql"])


# -- load --------------------------------------------------------------------------------------------------------------
# The same rows in DuckDB and in the engine that is to be certified, in places of their own that are dropped again.

PREFIX = "dpsql_certify_"
CONSTRAINTS = r" (PRIMARY KEY|UNIQUE|NOT NULL)\b"


def fitting(file: CaseFile, target: CertificationTarget) -> CaseFile:
    """Where a target keeps no constraint DuckDB's tables have none either, and no table is there that leads to its
    person over a key: without a constraint such a table is refused."""
    if target.keeps_constraints:
        return file
    tables = {name: table for name, table in file.schema.tables.items() if not isinstance(table.unit, UnitPath)}
    schema = file.schema.model_copy(update={"tables": tables})
    return replace(file, schema=schema, create=re.sub(CONSTRAINTS, "", file.create))


def target(database: str) -> CertificationTarget:
    """The database on which an engine is certified."""
    kind = kind_of(database)
    if kind.certification is not None:
        kind.check_driver()
        return kind.certification(database)
    servers = " and ".join(kind.name for kind in kinds() if kind.certification is not None)
    raise InterfaceError(
        f"dpsql writes SQL for {servers}, besides DuckDB: no other engine can be certified",
        hint="name one by its URL: postgresql://user@host/database, sc://host:15002",
    )


# -- certify -----------------------------------------------------------------------------------------------------------

PEOPLE = 200
"""In the conforming database."""
ADVERSARIAL = ((0, 0), (1, 9), (5, 90))
"""People and rows of the adversarial ones."""
SHARE = 0.9
"""Of the questions that DuckDB answers, so many must be written for the engine."""


@dataclass(frozen=True)
class Certified:
    question: CorpusQuestion
    outcome: Outcome
    reason: str


def passes(found: list[Certified]) -> bool:
    counted = [part.outcome for part in found]
    wrong = counted.count("different") + counted.count("failed")
    written = counted.count("equal")
    return wrong == 0 and written > 0 and written >= SHARE * (written + counted.count("refused"))


class Certifier:
    """Creates the databases of a case file on first use, and drops them when closed."""

    def __init__(self, database: str) -> None:
        self._target = target(database)
        self._files = case_files()
        self._worlds: dict[str, list[EnginePair]] = {}
        self._stack = ExitStack()

    def questions(self, step: int = 1) -> list[CorpusQuestion]:
        return list(questions(self._files))[::step]

    def certify(self, asked: list[CorpusQuestion], done: Callable[[], object]) -> list[Certified]:
        found = []
        for question in asked:
            found.append(Certified(question, *outcome(question, self.worlds(question.file))))
            done()
        return found

    def worlds(self, name: str) -> list[EnginePair]:
        if name not in self._worlds:
            file, adversarial = fitting(self._files[name], self._target), random.Random(f"wild {name}")
            rows = [conforming_tables(file, random.Random(f"tame {name}"), PEOPLE)]
            rows += [adversarial_tables(file, adversarial, people, most) for people, most in ADVERSARIAL]
            self._worlds[name] = [self._world(file, f"{name}_{number}", rows_) for number, rows_ in enumerate(rows)]
        return self._worlds[name]

    def _world(self, file: CaseFile, name: str, tables: CaseTables) -> EnginePair:
        model = self._stack.enter_context(duckdb.connect())
        model.execute("SET threads = 1")
        database = self._stack.enter_context(self._target.place(f"{PREFIX}{name}"))
        fill_case(model, file, tables)
        self._target.fill(database, file.create, tables, model)
        options: dict[str, Any] = {"schema": file.schema, "budget": 1e18, "delta": 1e-6, "ledger": ":memory:"}
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", errors.Warning
            )  # of a budget that protects nobody: these people are made up
            return EnginePair(*(self._stack.enter_context(connect(source, **options)) for source in (model, database)))

    def __enter__(self) -> Certifier:
        return self

    def __exit__(self, *problem: object) -> None:
        self._stack.close()
