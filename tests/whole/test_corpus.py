"""Right or refused: what an analyst might write, over three schemas (tests/corpus/*.yaml, explained at their top).

Every query has the answer of plain DuckDB when there is no noise, or raises a dpsql error with a hint; it never crashes
and is never answered otherwise. Those that are answered move no further than claimed on neighbours. What is refused and
need not be has the name of its gap, and the share of the answered among the answerable may only rise.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
import sqlglot
import yaml

import dpsql

HERE = Path(__file__).parents[1]
CORPUS, SPELLINGS = HERE / "corpus", HERE / "sql" / "dialects"
SHARE = 0.97
"""Of the answerable ones, so many are answered rightly."""
SHARE_OF_REFUSED = 0.93
"""The same of questions of classes that were refused before, which are in a file of their own."""
REFUSED_BEFORE = "store"
WIDE = {"max_groups": 30, "max_rows_per_group": 20}
"""So wide that nobody of the tame databases is bounded, even where joins multiply rows."""

check_neighbour = runpy.run_path(str(HERE / "whole" / "test_neighbours.py"))["check_neighbour"]


@dataclass(frozen=True)
class Query:
    file: str
    topic: str
    sql: str
    plain: str | None = None
    refused: str | None = None
    says: str | None = None
    gap: str | None = None
    wrong: str | None = None
    parameters: Any = field(default=(), hash=False)
    options: Any = field(default=None, hash=False)
    dialect: str = "duckdb"
    near: float | None = None
    """How far from plain DuckDB's the answers may be, as a part of them, where the noise cannot be nothing."""
    spelled: bool = False
    """Whether it says in other words what another query says."""

    @property
    def asked(self) -> dict[str, Any]:
        """The options of execute(), but for what the query says itself."""
        return {} if "OPTIONS(" in self.sql else WIDE | (self.options or {})

    @property
    def is_asked_always(self) -> bool:
        """Others are asked by the long tests, and a third of them by the short ones."""
        return not self.spelled and self.file != REFUSED_BEFORE

    @property
    def answerable(self) -> bool:
        return self.refused is None or self.gap is not None


def read(path: Path) -> list[Query]:
    topics = yaml.load(path.read_bytes(), yaml.CSafeLoader)  # in a tenth of the time
    return [
        Query(
            path.stem, topic, **({"sql": entry} if isinstance(entry, str) else entry), spelled=path.parent == SPELLINGS
        )
        for topic, entries in topics.items()
        for entry in entries
    ]


QUERIES = [query for path in sorted([*CORPUS.glob("*.yaml"), *SPELLINGS.glob("*.yaml")]) for query in read(path)]
EXPECTED = [query for query in QUERIES if query.gap is None]
GAPS = [query for query in QUERIES if query.gap is not None]


def named(queries: list[Query]) -> Any:
    return pytest.mark.parametrize("query", queries, ids=[f"{query.file}: {query.sql}" for query in queries])


@pytest.fixture(scope="session")
def session(conforming: Callable[[str], duckdb.DuckDBPyConnection]) -> Callable[[Query], dpsql.Connection]:
    """A session without noise: even sums over wide bounds are exact to a millionth."""
    made: dict[tuple[str, str], dpsql.Connection] = {}

    def of(query: Query) -> dpsql.Connection:
        key = (query.file, query.dialect)
        if key not in made:
            schema = yaml.safe_load((HERE / "cases" / f"{query.file}.yaml").read_text(encoding="utf-8"))["schema"]
            made[key] = dpsql.connect(
                conforming(query.file),
                schema=schema,
                budget=1e18,
                delta=1e-6,
                query_epsilon=1e12,
                dialect=query.dialect,
            )
        return made[key]

    return of


Session = Callable[[Query], dpsql.Connection]
Database = Callable[[str], duckdb.DuckDBPyConnection]


RARELY = [query for query in EXPECTED if not query.is_asked_always]
QUICK = RARELY[::3]


@named([query for query in EXPECTED if query.is_asked_always] + QUICK)
def test_right_or_refused(query: Query, session: Session, conforming: Database, request: pytest.FixtureRequest) -> None:
    check_right_or_refused(query, session, conforming, request)


@pytest.mark.long
@named([query for query in RARELY if query not in QUICK])
def test_in_other_words(query: Query, session: Session, conforming: Database, request: pytest.FixtureRequest) -> None:
    check_right_or_refused(query, session, conforming, request)


def check_right_or_refused(
    query: Query, session: Session, conforming: Database, request: pytest.FixtureRequest
) -> None:
    if query.wrong:
        request.node.add_marker(pytest.mark.xfail(strict=True, reason=query.wrong))
    if query.refused is None:
        check_right(query, session, conforming)
    else:
        with pytest.raises(dpsql.Error) as caught:
            session(query).execute(query.sql, query.parameters, **query.asked)
        check_refusal(query, caught.value)


@named(GAPS)
def test_a_gap_is_refused_until_it_is_right(query: Query, session: Session, conforming: Database) -> None:
    try:
        session(query).explain(query.sql, query.parameters, **query.asked)
    except dpsql.Error as error:
        check_refusal(query, error)
    else:
        check_right(query, session, conforming)


def test_gaps_that_were_closed_have_no_name(session: Session) -> None:
    """They are to be listed as answered: their lines `refused`, `says` and `gap` must go."""
    closed = []
    for query in GAPS:
        try:
            session(query).explain(query.sql, query.parameters, **query.asked)
            closed.append(query.sql)
        except dpsql.Error:
            continue
    assert not closed, "\n".join(closed)


def check_refusal(query: Query, error: dpsql.Error) -> None:
    assert type(error).__name__ == query.refused
    assert query.says is not None
    assert query.says in error.problem
    assert error.hint


def check_right(query: Query, session: Session, conforming: Database) -> None:
    answers = session(query).execute(query.sql, query.parameters, **query.asked).fetchall()
    expected = conforming(query.file).execute(query.plain or query.sql, _used(query)).fetchall()
    if not _is_ordered(query):
        answers, expected = sorted(answers, key=spoken), sorted(expected, key=spoken)
    assert len(answers) == len(expected)
    for row, plain in zip(answers, expected, strict=True):
        for value, wanted in zip(row, plain, strict=True):
            assert same(value, wanted) if query.near is None else value == pytest.approx(wanted, rel=query.near), (
                row,
                plain,
            )


def _used(query: Query) -> Any:
    """The parameters, where the plain query has places for them."""
    return query.parameters if {"?", "$"} & set(query.plain or query.sql) else ()


def _is_ordered(query: Query) -> bool:
    tree = sqlglot.parse_one(query.plain or query.sql, read="duckdb")
    return bool(tree.args.get("order"))


def same(value: object, wanted: object) -> bool:
    if isinstance(value, float) and isinstance(wanted, float | Decimal):  # decimal arithmetic is done in double
        return value == pytest.approx(float(wanted), rel=1e-8, abs=1e-5)
    return type(value) is type(wanted) and value == wanted


def spoken(row: tuple[Any, ...]) -> list[str]:
    """A row in a form that sorts, and in which numbers of different types are alike."""
    return [f"{value:.4f}" if isinstance(value, float | Decimal) else repr(value) for value in row]


ANSWERED = [query for query in QUERIES if query.refused is None and query.wrong is None]


@named([query for query in ANSWERED if query.is_asked_always])
def test_no_neighbour_moves_further(query: Query, session: Session, worlds: Callable[[str], Any]) -> None:
    """With the schema's own bounds, on two small wild databases."""
    check_neighbours(query, session, worlds)


@pytest.mark.long
@named([query for query in ANSWERED if not query.is_asked_always])
def test_nor_in_other_words(query: Query, session: Session, worlds: Callable[[str], Any]) -> None:
    check_neighbours(query, session, worlds)


def check_neighbours(query: Query, session: Session, worlds: Callable[[str], Any]) -> None:
    found = worlds(query.file)
    own = {name: query.asked[name] for name in ("mechanism", "epsilon") if name in query.asked}
    for release in session(query).explain(query.sql, query.parameters, **own).releases:
        if not release.measures:  # public groups alone: nothing is read; pairs are in tests/mechanisms
            continue
        for world in found.found[1:3]:
            whole = found.run(world.whole, release.sql)
            for neighbour in world.without:
                check_neighbour(release, whole, found.run(neighbour, release.sql))


def test_most_of_what_can_be_answered_is() -> None:
    before = [query for query in QUERIES if query.answerable and query.file == REFUSED_BEFORE]
    assert sum(query.refused is None for query in before) / len(before) >= SHARE_OF_REFUSED
    answerable = [query for query in QUERIES if query.answerable and query.file != REFUSED_BEFORE]
    right = [query for query in answerable if query.refused is None and query.wrong is None]
    share = len(right) / len(answerable)
    gaps = sorted({query.gap for query in GAPS if query.gap})
    print(f"{len(QUERIES)} queries, {len(answerable)} answerable, {len(right)} right ({share:.1%}); gaps: {gaps}")
    assert len(QUERIES) >= 400
    assert share >= SHARE
    spelled = [query for query in answerable if query.spelled]
    assert sum(query.refused is None for query in spelled) / len(spelled) >= SHARE
