"""The audit: every query on synthetic databases and their neighbours, without noise and with it."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.accounting.privacy_loss import Cost, privacy_loss
from dpsql.aggregates.measure import Matched
from dpsql.engines.render import quoted
from dpsql.errors import Error
from dpsql.explain import explain_release
from dpsql.expressions.properties import NUMBERS
from dpsql.pipeline import stages
from dpsql.pipeline.add_noise import with_noise
from dpsql.schema.types import Text
from dpsql.session import Session
from dpsql.synthetic import answer
from dpsql.verification import DELTA, RUNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from dpsql.explain import ExplainedRelease
    from dpsql.pipeline.calibrate_noise import CalibratedRelease
    from dpsql.schema.model import Schema, Table
    from dpsql.synthetic import Database, Neighbourhood, QueryResult

# -- lower bound -------------------------------------------------------------------------------------------------------
# How much epsilon is certainly lost between two inputs, from noisy answers alone.
#
# Half of the answers choose a set of outcomes that tells the two inputs apart; the other half say how often it happens,
# with exact (Clopper-Pearson) bounds. What is found is a lower bound on epsilon, but for one audit in 10^6: whoever
# claims less is wrong. Jagielski, Ullman, Oprea 2020.

FALSE_ALARM = 1e-6
HALVINGS = 50
NOTICEABLE = 3.0
"""A cell takes part if some outcome of it differs by so many standard deviations in the first half."""

Answers = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def certain_epsilon(here: Answers, there: Answers, delta: float) -> float:
    """The largest epsilon for which P[here in S] > e^epsilon P[there in S] + delta is proven for some S, either way.

    A row is an answer; its numbers are cells, NaN where there is none.
    """
    first, second = _scores(here, there)
    return max(_one_way(first, second, delta), _one_way(-second, -first, delta))


def apart(here: Answers, there: Answers) -> float:
    """How well the answers separate the two inputs; with few answers a hint, not a proof."""
    first, second = _scores(here, there)
    return float(first[1::2].mean() - second[1::2].mean())


def _scores(here: Answers, there: Answers) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For every answer how much it speaks for `here`: the logarithm of how often the first halves had its cells."""
    here, there = (np.asarray(part, dtype=np.float64).reshape(len(part), -1) for part in (here, there))
    first, second = np.zeros(len(here)), np.zeros(len(there))
    for cell in range(here.shape[1]):
        mine, its = _weighed(here[:, cell], there[:, cell])
        first += mine
        second += its
    return first, second


def _weighed(here: NDArray[np.float64], there: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    # Few enough intervals that each is met often, so that the best ones are not just the luckiest.
    seen = np.concatenate((here[::2], there[::2]))
    present = seen[~np.isnan(seen)]
    shares = np.linspace(0, 1, int(np.sqrt(len(here)) / 2))
    edges = np.unique(np.floor(np.quantile(present, shares))) if len(present) else np.empty(0)

    def places(values: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.where(np.isnan(values), len(edges) + 1, np.searchsorted(edges, values, side="right"))

    mine, its = places(here), places(there)
    counts = [np.bincount(part[::2], minlength=len(edges) + 2) for part in (mine, its)]
    if (np.abs(counts[0] - counts[1]) / np.sqrt(counts[0] + counts[1] + 1)).max() < NOTICEABLE:
        return np.zeros(len(here)), np.zeros(len(there))
    weights = np.log((counts[0] + 0.5) / (counts[1] + 0.5))
    return weights[mine], weights[its]


def _one_way(likely: NDArray[np.float64], unlikely: NDArray[np.float64], delta: float) -> float:
    """The bound with S the set of all answers whose score reaches the best limit."""
    limits = np.unique(np.concatenate((likely[::2], unlikely[::2])))
    p, q = (1 - np.searchsorted(np.sort(part[::2]), limits) / len(part[::2]) for part in (likely, unlikely))
    chosen = limits[int(np.argmax(_roughly(p, q, len(likely[::2]), delta)))]
    found, met = (int(np.count_nonzero(part[1::2] >= chosen)) for part in (likely, unlikely))
    # Two ways and two ends share the false alarms.
    least = lowest(found, len(likely[1::2]), FALSE_ALARM / 4) - delta
    most = 1 - lowest(len(unlikely[1::2]) - met, len(unlikely[1::2]), FALSE_ALARM / 4)
    return float(np.log(least / most)) if least > 0 else -np.inf


def _roughly(p: NDArray[np.float64], q: NDArray[np.float64], runs: int, delta: float) -> NDArray[np.float64]:
    """A rough estimate of the bound, five standard deviations off on either side."""
    low = p - 5 * np.sqrt(p * (1 - p) / runs) - 12 / runs - delta
    high = q + 5 * np.sqrt(q * (1 - q) / runs) + 12 / runs
    bounds: NDArray[np.float64] = np.log(np.maximum(low, 1e-300) / high)
    return bounds


def lowest(found: int, runs: int, tail: float) -> float:
    """The Clopper-Pearson lower bound for a probability, wrong at most with probability `tail`.

    >>> round(lowest(90, 100, 0.025), 4)
    0.8238
    """
    if found == 0:
        return 0.0
    logarithms = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, runs + 1)))))
    k = np.arange(found, runs + 1)
    ways = logarithms[runs] - logarithms[k] - logarithms[runs - k]
    low, high = 0.0, found / runs
    for _ in range(HALVINGS):
        p = (low + high) / 2
        met = np.exp(ways + k * np.log(p) + (runs - k) * np.log1p(-p)).sum()
        low, high = (p, high) if met <= tail else (low, p)
    return low


# Many noisy answers of one release, as cells that an audit can compare.

Exact = dict[str, np.ndarray]
COPY = "_k0"


def noisy_cells(here: Exact, there: Exact, release: CalibratedRelease, runs: int) -> tuple[Answers, Answers]:
    """For each run a row, and for each group of either a cell for every column; NaN where nothing is shown."""
    keys = release.planned.release.key_names
    both = {key: place for place, key in enumerate(dict.fromkeys([*_keys(here, keys), *_keys(there, keys)]))}
    mine, its = ([both[key] for key in _keys(exact, keys)] for exact in (here, there))
    return _cells(here, mine, len(both), release, runs), _cells(there, its, len(both), release, runs)


def _keys(exact: Exact, names: list[str]) -> list[tuple[str, ...]]:
    """The groups, by the repr of their keys; without keys, the single group."""
    if not names:
        return [()]
    return list(zip(*([repr(value) for value in exact[name].tolist()] for name in names), strict=True))


def _cells(exact: Exact, places: list[int], width: int, release: CalibratedRelease, runs: int) -> Answers:
    columns = release.planned.release.columns
    found = np.full((runs, width, len(columns)), np.nan)
    if not places:
        return found
    for start, copies in _batches(release, runs):
        # Every copy of the groups is drawn by itself, and its number stands where a key was.
        copied = {name: column[np.tile(np.arange(len(places)), copies)] for name, column in exact.items()}
        numbered = np.arange(len(places) * copies)
        noisy = with_noise(copied | dict.fromkeys(release.planned.release.key_names, numbered), release)
        values = np.ma.stack([noisy[name] for name in columns], axis=-1).astype(np.float64)
        shown = noisy.get(COPY, numbered[: len(values)])
        found[start + shown // len(places), np.array(places)[shown % len(places)]] = np.ma.filled(values, np.nan)
    return found


def _batches(release: CalibratedRelease, runs: int) -> list[tuple[int, int]]:
    """The start of each batch, and its number of copies: one if all groups are drawn together, or no key tells them."""
    hides_all = bool(release.thresholds) and not release.planned.release.key_names
    alone = hides_all or any(isinstance(drawn.statistic, Matched) for drawn, _ in release.statistics)
    return [(start, 1) for start in range(runs)] if alone else [(0, runs)]


# -- neighbours --------------------------------------------------------------------------------------------------------
# The sensitivity check: what a release says of a database and of its neighbour, compared with what is claimed.
#
# The difference must stay within the claimed l0, l1, l2 and linf of every measure, and nothing else may tell the two
# apart: not the columns, their types, nor, where keys are public, the groups.

ROUNDING = 1e-12
"""An l2 is the root of a whole number, in float64."""


def moved_too_far(release: ExplainedRelease, whole: QueryResult, neighbour: QueryResult) -> Iterator[str]:
    """Differences from the neighbour that are not allowed."""
    if whole[0] != neighbour[0]:
        yield "the columns or their types differ"
        return
    if (release.public_keys or not release.keys) and keys_of(release, whole) != keys_of(release, neighbour):
        yield "the groups differ, though they are public"
    here, there = by_key(release, whole), by_key(release, neighbour)
    nothing = (0,) * len(release.measures)
    moved = [
        [abs(a - b) for a, b in zip(here.get(key, nothing), there.get(key, nothing), strict=True)]
        for key in {**here, **there}
    ]
    l0 = max((measure.l0 for measure in release.measures), default=0)
    if release.measures and (reached := sum(any(row) for row in moved)) > l0:
        yield f"one unit moves {reached} groups, and {l0} are claimed"
    for measure, steps in zip(release.measures, zip(*moved, strict=True), strict=False):
        l2 = math.sqrt(sum(step**2 for step in steps))
        claims = (
            ("linf", max(steps), measure.linf),
            ("l1", sum(steps), measure.l1),
            ("l2", l2, measure.l2 * (1 + ROUNDING)),
        )
        yield from (
            f"{measure.what} moves by {found:g} in {norm}, and {claimed:g} is claimed"
            for norm, found, claimed in claims
            if found > claimed
        )
    yield from _together(release, moved)


def _together(release: ExplainedRelease, moved: list[list[int]]) -> Iterator[str]:
    """Measures that exclude each other: in a group all cases together move no further than one of them may alone.

    A case moves as far as its measure that moves farthest, of what each may. With this every norm of the joint move is
    bounded (docs/proofs/exclusive.md).
    """
    for bundle in {measure.place[0] for measure in release.measures if measure.place is not None}:
        for row in moved:
            cases: dict[int, Fraction] = {}
            for measure, step in zip(release.measures, row, strict=True):
                if measure.place is not None and measure.place[0] == bundle and measure.linf:
                    part = Fraction(int(step), measure.linf)
                    cases[measure.place[1]] = max(part, cases.get(measure.place[1], part))
            if sum(cases.values()) > 1:
                yield f"a bundle moves by {float(sum(cases.values())):g} of what one of its cases may"


def wrong_shape(release: ExplainedRelease, answers: list[QueryResult]) -> Iterator[str]:
    """Key columns first, then one BIGINT for each measure; the same groups everywhere if they are public."""
    columns, first = answers[0]
    expected = [*release.keys, *(measure.column for measure in release.measures)]
    names = [name for name, _ in columns]
    if names[: len(expected)] != expected or (len(names) > len(expected) and not release.statistics):
        yield f"the columns are {', '.join(names)}"
    if {kind for _, kind in columns[len(release.keys) : len(expected)]} - {"BIGINT"}:
        yield "a measure is no whole number of 64 bits"
    for other in answers:
        if other[0] != columns:
            yield "the columns depend on the data"
        if not release.keys and len(other[1]) != 1:
            yield "the number of rows depends on the data"
        if release.public_keys and keys_of(release, other) != keys_of(release, (columns, first)):
            yield "the public groups depend on the data"


def keys_of(release: ExplainedRelease, answer: QueryResult) -> list[tuple[str, ...]]:
    """The keys by their repr, because NaN is not equal to itself."""
    return [tuple(map(repr, row[: len(release.keys)])) for row in answer[1]]


def by_key(release: ExplainedRelease, answer: QueryResult) -> dict[tuple[str, ...], tuple[Any, ...]]:
    """The measures of each group."""
    first, last = len(release.keys), len(release.keys) + len(release.measures)
    found = dict(zip(keys_of(release, answer), (row[first:last] for row in answer[1]), strict=True))
    assert len(found) == len(answer[1]), "one row for each group"
    return found


# -- audit -------------------------------------------------------------------------------------------------------------

if TYPE_CHECKING:
    Pair = tuple[Database, Database]

STATISTICS_COST = 5
"""To draw a median or a mode takes so much longer than noise; it is drawn less often."""


@dataclass(frozen=True, kw_only=True)
class Audited:
    """The findings for one release of a query, or the reason why the query was refused."""

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
    worlds: Sequence[Neighbourhood] = field(repr=False)
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
                calibrated = stages.compile_question(session.request(sql, ()), session.environment.public())
        except Error as refused:
            return [Audited(sql=sql, refused=refused.problem)]
        return [self._release(sql, release, explain_release(release)) for release in calibrated.releases]

    def _session(self) -> Session:
        """Each query may spend the whole budget, at one epsilon and delta; the claim is the requested cost."""
        return Session(
            self.worlds[0].whole.raw,
            self.schema.without_rules(),  # they hide or refuse answers, and the guarantee holds for all
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
        """The proven loss on the pair of neighbours that a first run finds farthest apart."""
        runs = self.runs // STATISTICS_COST if release.statistics else self.runs
        exact = [(dict(here.engine.run(release.sql)), dict(there.engine.run(release.sql))) for here, there in pairs]
        here, there = max(exact, key=lambda pair: apart(*noisy_cells(pair[0], pair[1], release, runs // len(pairs))))
        return certain_epsilon(*noisy_cells(here, there, release, runs), delta)


def _claimed(release: CalibratedRelease) -> Cost:
    """The charged privacy loss, whatever is shown."""
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
