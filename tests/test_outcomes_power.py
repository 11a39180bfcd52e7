"""The fuzzer of outcomes finds what it looks for: one defence after another is taken out, and it reports a fault.

Where two defences stand behind each other (a total arithmetic behind true facts, a bound on work behind the threshold),
the outer one hides what the inner one lacks: there both are taken out, or the test that looks within is named.
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.draws import smooth
from dpsql.engine_sql.build import WIDE, apply, cast, double, wide
from dpsql.engine_sql.tree import Term
from dpsql.engines import copies, csv_files, declared_tables, duckdb_engine, lock
from dpsql.engines.declared_tables import Found, quoted
from dpsql.errors import OperationalError
from dpsql.expressions import arithmetic
from dpsql.expressions.facts import Facts
from dpsql.expressions.function import Function, Written
from dpsql.expressions.table import FUNCTIONS
from dpsql.flow import add_noise
from dpsql.relation import knowledge, unit_sums
from dpsql.relation.relation import Relation
from dpsql.schema.model import Table
from dpsql.schema.types import Integer

pytestmark = pytest.mark.long

HERE = Path(__file__).parent
FUZZER = runpy.run_path(str(HERE / "test_outcomes.py"))
FACTS = runpy.run_path(str(HERE / "test_facts.py"))
MOST_PAIRS = 40
"""Of the pairs of one source; a pair is asked 15 questions."""

Patch = pytest.MonkeyPatch

# -- what is taken out ------------------------------------------------------------------------------------------------


def write_by_facts(patch: Patch, write: Callable[[Term, str, Term], Term]) -> None:
    """Where facts say that an integer fits, arithmetic relies on it."""

    def trusting(function: Function, symbol: str, arguments: Sequence[Written]) -> Term:
        result = function.facts([argument.facts for argument in arguments])
        if not isinstance(result.type, Integer) or not arithmetic.fits(result):
            return function.sql(arguments)
        return write(arguments[0].sql, symbol, arguments[1].sql)

    for symbol in "+-*":
        function = FUNCTIONS[symbol]
        patch.setitem(FUNCTIONS, symbol, replace(function, sql=partial(trusting, function, symbol)))


def plain_arithmetic(patch: Patch) -> None:
    """An engine that moves constants together, (x * a) * b -> x * (a * b), overflows."""
    write_by_facts(patch, lambda left, symbol, right: apply(symbol, left, right))


def trusting_arithmetic(patch: Patch) -> None:
    """Right as long as facts are."""
    write_by_facts(
        patch, lambda left, symbol, right: cast(apply(symbol, wide(left), wide(right), kind=WIDE), Integer())
    )


def frames_never_empty(patch: Patch) -> None:
    def facts(*arguments: Any) -> Facts:
        return whole(*arguments[:3])

    whole = knowledge.per_unit_facts
    patch.setattr(knowledge, "per_unit_facts", facts)


def averages_rounded_outwards(patch: Patch) -> None:
    def rounded(mean: Term, least: Term, most: Term) -> Term:
        return apply("/", apply("ceil", apply("*", mean, double(1024))), double(1024))

    patch.setattr(unit_sums, "_between", rounded)


def draws_for_hidden_groups(patch: Patch) -> None:
    def with_noise(exact: Any, release: Any) -> Any:
        add_noise._drawn(exact, release)
        return whole(exact, release)

    whole = add_noise.with_noise
    patch.setattr(add_noise, "with_noise", with_noise)


def draws_without_limits(patch: Patch) -> None:
    patch.setattr(smooth, "MOST_RANKS", 2**21)


def keys_as_they_come(patch: Patch) -> None:
    run = duckdb_engine.DuckDBEngine._run
    ending = re.compile(r" ORDER BY [^()]*$")
    patch.setattr(duckdb_engine.DuckDBEngine, "_run", lambda self, sql: run(self, ending.sub("", sql)))


def look_up(connection: duckdb.DuckDBPyConnection, table: Table, rows: str) -> None:
    """A view in the place of the table."""
    try:
        described = connection.execute(f"DESCRIBE SELECT * FROM {rows}").fetchall()
    except duckdb.Error:
        raise OperationalError("the owner is told", hint="") from None
    found = Found(table.name, {name: kind for name, kind, *_ in described}, is_text=True)
    declared_tables.check_table(table, found)
    columns = declared_tables.declared_columns(table, found, copied=True)
    connection.execute(f"CREATE TEMP VIEW {quoted(table.name)} AS SELECT {columns} FROM {rows}")


def uncounted_csv(patch: Patch) -> None:
    """What cannot be read is passed over."""
    patch.setattr(csv_files, "_problems", lambda *_: [])


def unchecked_text(patch: Patch) -> None:
    patch.setattr(declared_tables, "valid_text", lambda column: column)


def objects_as_they_are(patch: Patch) -> None:
    patch.setattr(copies, "with_plain_text", lambda frame: frame)


def frames_read_by_questions(patch: Patch) -> None:
    def registered(connection: duckdb.DuckDBPyConnection, table: Table, frame: Any) -> None:
        connection.register(f"{table.name}.frame", frame)
        look_up(connection, table, quoted(f"{table.name}.frame"))

    patch.setattr(copies, "_copy_frame", registered)


def settings_of_others(patch: Patch) -> None:
    patch.setattr(lock, "MEANING", {})


def macros_of_others(patch: Patch) -> None:
    """Functions are found where the caller's search path finds them."""

    def fix_settings(connection: duckdb.DuckDBPyConnection) -> None:
        whole(connection)
        connection.execute("SET search_path = 'memory.main'")

    whole = duckdb_engine.fix_meaning
    patch.setattr(duckdb_engine, "fix_meaning", fix_settings)


def views_like_tables(patch: Patch) -> None:
    def found_tables(*arguments: Any) -> dict[str, Found]:
        return {name: replace(table, is_view=False) for name, table in whole(*arguments).items()}

    whole = duckdb_engine.found_tables
    patch.setattr(duckdb_engine, "found_tables", found_tables)


Removal = Callable[[Patch], None]
DRAWN: dict[str, tuple[tuple[Removal, ...], str, int]] = {
    "arithmetic in 64 bits where facts say that it fits": ((plain_arithmetic,), "with_file", 15),
    "keys in the engine's order": ((keys_as_they_come,), "with_file", 15),
    "streams that are not copied": ((frames_read_by_questions,), "with_reader", 15),
    "views that are read like tables": ((views_like_tables,), "with_connection", 0),
}
"""What is taken out, the source that is opened, and how many questions each pair is asked besides its totals."""
LONG: dict[str, tuple[tuple[Removal, ...], str, int]] = {
    "lines of CSV that are passed over": ((uncounted_csv,), "with_csv", 0),
    "averages that their facts do not hold": ((trusting_arithmetic, averages_rounded_outwards), "with_file", 15),
    "objects of a frame, neither copied nor read as text": ((frames_read_by_questions,), "with_pandas", 15),
    "text that may be broken, read by questions": ((unchecked_text, frames_read_by_questions), "with_arrow", 15),
}
NAMED: dict[str, tuple[tuple[Removal, ...], str, str]] = {
    "frames": ((trusting_arithmetic, frames_never_empty), "with_file", "a frame without rows"),
    "averages": (
        (trusting_arithmetic, averages_rounded_outwards),
        "with_file",
        "an average that is rounded outwards",
    ),
    "constants": ((plain_arithmetic,), "with_arrow", "an engine that multiplies constants first"),
    "work": (
        (draws_for_hidden_groups, draws_without_limits),
        "with_file",
        "a slow draw for a hidden group",
    ),
}
HABITS: dict[str, tuple[Removal, str, int]] = {
    "a macro": (macros_of_others, "CREATE MACRO least(a, b) AS a", 0),
    "a setting": (settings_of_others, "SET GLOBAL max_expression_depth = 30", 5),
}

# -- and what is found ------------------------------------------------------------------------------------------------


def first_fault(source: Any, questions: int, folder: Path) -> str | None:
    findings = FUZZER["Findings"]()
    for number in range(MOST_PAIRS):
        FUZZER["look"](number, folder, findings, questions=questions, source=source)
        if findings.faults:
            return str(findings.faults[0])
    return None


def outcomes_differ(source: Any, attack: str, folder: Path) -> list[str]:
    question = FUZZER["ATTACKS"][attack]
    with FUZZER["opened"](0, folder, source) as pair:
        assert pair is not None
        return list(FUZZER["differences"](FUZZER["asked"](pair.full, question), FUZZER["asked"](pair.less, question)))


@pytest.mark.parametrize("name", [*DRAWN, *LONG])
def test_drawn_questions_find_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    removals, source, questions = (DRAWN | LONG)[name]
    for removal in removals:
        removal(monkeypatch)
    assert first_fault(FUZZER[source], questions, tmp_path)


@pytest.mark.parametrize("name", NAMED)
def test_a_named_attack_finds_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    removals, source, attack = NAMED[name]
    for removal in removals:
        removal(monkeypatch)
    assert outcomes_differ(FUZZER[source], attack, tmp_path)


def test_trusting_arithmetic_is_right_while_facts_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is the false fact that is found above."""
    trusting_arithmetic(monkeypatch)
    assert not outcomes_differ(FUZZER["with_file"], "a frame without rows", tmp_path)


@pytest.mark.parametrize("name", HABITS)
def test_what_others_did_to_a_connection_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    removal, habit, questions = HABITS[name]
    removal(monkeypatch)
    assert first_fault(FUZZER["after"](habit), questions, tmp_path)


FALSE_FACTS: dict[str, tuple[Removal, str]] = {
    "frames": (frames_never_empty, "frame ORDER BY i, d ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING"),
    "averages": (averages_rounded_outwards, "aggregates"),
}


@pytest.mark.parametrize("name", FALSE_FACTS)
def test_false_facts_are_found_where_facts_are_checked(
    name: str, monkeypatch: pytest.MonkeyPatch, relation_of: Callable[[dpsql.Connection, str], Relation]
) -> None:
    """Arithmetic is total whatever facts say, so a false one alone changes no outcome."""
    removal, shape = FALSE_FACTS[name]
    removal(monkeypatch)
    wild, honest = (FACTS["extreme_database"](honest=honest) for honest in (False, True))
    schema = {"dataset": "extremes", "tables": FACTS["TABLES"]}
    with dpsql.connect(wild, schema=schema, epsilon=1, delta=1e-6) as connection:
        people = FACTS["People"](wild, honest, connection)
        with pytest.raises(AssertionError):
            FACTS["test_every_relation_keeps_its_claims"](shape, people, relation_of)
