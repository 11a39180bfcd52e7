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
import pyarrow as pa
import pytest

import dpsql
from dpsql.engine_sql.build import WIDE, apply, cast, double, wide
from dpsql.engine_sql.tree import Term
from dpsql.engines import tables
from dpsql.engines.duckdb import catalog, engine, sources
from dpsql.engines.duckdb.catalog import DatabaseSchema
from dpsql.engines.duckdb.sources import exactly
from dpsql.engines.render import quoted
from dpsql.engines.tables import FoundTable
from dpsql.errors import OperationalError
from dpsql.expressions import arithmetic
from dpsql.expressions.properties import Properties
from dpsql.expressions.table import FUNCTIONS
from dpsql.expressions.tree import Function, Written
from dpsql.mechanisms import data_dependent
from dpsql.pipeline import add_noise, track_units
from dpsql.relation import facts, sql
from dpsql.relation.relation import Relation
from dpsql.schema.model import Table
from dpsql.schema.types import Double, Integer

pytestmark = pytest.mark.long

HERE = Path(__file__).parents[1]
FUZZER = runpy.run_path(str(HERE / "whole" / "test_outcomes.py"))
FACTS = runpy.run_path(str(HERE / "expressions" / "test_properties.py"))
MANY_ROWS = 5
"""A pair whose person has 600 rows."""
MOST_PAIRS = 80
"""Of the pairs of one source; a pair is asked 15 questions."""

Patch = pytest.MonkeyPatch

# -- what is taken out ------------------------------------------------------------------------------------------------


def write_by_properties(patch: Patch, write: Callable[[Term, str, Term], Term]) -> None:
    """Where facts say that an integer fits, arithmetic relies on it."""

    def trusting(function: Function, symbol: str, arguments: Sequence[Written]) -> Term:
        result = function.properties([argument.properties for argument in arguments])
        if not isinstance(result.type, Integer) or not arithmetic.fits(result):
            return function.sql(arguments)
        return write(arguments[0].sql, symbol, arguments[1].sql)

    for symbol in "+-*":
        function = FUNCTIONS[symbol]
        patch.setitem(FUNCTIONS, symbol, replace(function, sql=partial(trusting, function, symbol)))


def plain_arithmetic(patch: Patch) -> None:
    """An engine that moves constants together, (x * a) * b -> x * (a * b), overflows."""
    write_by_properties(patch, lambda left, symbol, right: apply(symbol, left, right))


def trusting_arithmetic(patch: Patch) -> None:
    """Right as long as facts are."""
    write_by_properties(
        patch, lambda left, symbol, right: cast(apply(symbol, wide(left), wide(right), kind=WIDE), Integer())
    )


def frames_never_empty(patch: Patch) -> None:
    def without_frames(*arguments: Any) -> Properties:
        return whole(*arguments[:3])

    whole = facts.per_unit_properties
    patch.setattr(facts, "per_unit_properties", without_frames)


def averages_rounded_outwards(patch: Patch) -> None:
    def rounded(mean: Term, least: Term, most: Term) -> Term:
        return apply("/", apply("ceil", apply("*", mean, double(1024))), double(1024))

    patch.setattr(facts, "_between", rounded)


def draws_for_hidden_groups(patch: Patch) -> None:
    def with_noise(exact: Any, release: Any) -> Any:
        add_noise._drawn(exact, release)
        return whole(exact, release)

    whole = add_noise.with_noise
    patch.setattr(add_noise, "with_noise", with_noise)


def draws_without_limits(patch: Patch) -> None:
    patch.setattr(data_dependent, "MOST_RANKS", 2**23)


def keys_as_they_come(patch: Patch) -> None:
    run = engine.DuckDBEngine._run
    ending = re.compile(r" ORDER BY [^()]*$")
    patch.setattr(engine.DuckDBEngine, "_run", lambda self, sql, **asked: run(self, ending.sub("", sql), **asked))


def look_up(connection: duckdb.DuckDBPyConnection, table: Table, rows: str) -> None:
    """A view in the place of the table."""
    try:
        described = connection.execute(f"DESCRIBE SELECT * FROM {rows}").fetchall()
    except duckdb.Error:
        raise OperationalError("the owner is told", hint="") from None
    found = FoundTable(name=table.name, columns={name: kind for name, kind, *_ in described}, is_text=True)
    tables.check_table(table, found)
    columns = tables.declared_columns(table, found, copied=True)
    connection.execute(f"CREATE TEMP VIEW {quoted(table.name)} AS SELECT {columns} FROM {rows}")


def uncounted_csv(patch: Patch) -> None:
    """What cannot be read is passed over."""
    patch.setattr(sources, "_problems", lambda *_: [])


def guessed_dialect(patch: Patch) -> None:
    """How a file is written is found out from its rows."""
    uncounted_csv(patch)
    patch.setattr(sources, "_rejected", lambda _: [])
    guessing = "read_csv({}, all_varchar = true)"
    patch.setattr(sources, "_reader", lambda path, readable, *_: guessing.format(exactly(readable)))


def unchecked_text(patch: Patch) -> None:
    patch.setattr(tables, "valid_text", lambda column: column)


def objects_as_they_are(patch: Patch) -> None:
    patch.setattr(sources, "with_plain_text", lambda frame: frame)


def frames_read_by_questions(patch: Patch) -> None:
    def registered(connection: duckdb.DuckDBPyConnection, table: Table, frame: Any) -> None:
        connection.register(f"{table.name}.frame", frame)
        look_up(connection, table, quoted(f"{table.name}.frame"))

    patch.setattr(sources, "_copy_frame", registered)


def settings_of_others(patch: Patch) -> None:
    patch.setattr(catalog, "MEANING", {})


def one_setting_of_others(name: str, patch: Patch) -> None:
    patch.setattr(catalog, "MEANING", {other: value for other, value in catalog.MEANING.items() if other != name})


def roots_of_anything(patch: Patch) -> None:
    """Where there is no root, the engine decides what comes of it."""
    root = replace(FUNCTIONS["SQRT"], sql=lambda given: apply("sqrt", given[0].sql, kind=Double()))
    patch.setitem(FUNCTIONS, "SQRT", root)


def divisors_of_any_size(patch: Patch) -> None:
    patch.setattr(arithmetic, "nonzero", lambda divisor, zero: divisor)


def tables_of_the_first_schema(patch: Patch) -> None:
    patch.setattr(engine, "current_place", lambda connection: DatabaseSchema("memory", "main"))


def macros_of_others(patch: Patch) -> None:
    """Functions are found where the caller's search path finds them."""

    def fix_settings(connection: duckdb.DuckDBPyConnection) -> None:
        whole(connection)
        connection.execute("SET search_path = 'memory.main'")

    whole = engine.fix_meaning
    patch.setattr(engine, "fix_meaning", fix_settings)


def views_like_tables(patch: Patch) -> None:
    def found_tables(*arguments: Any) -> dict[str, FoundTable]:
        return {name: replace(table, is_view=False) for name, table in whole(*arguments).items()}

    whole = engine.found_tables
    patch.setattr(engine, "found_tables", found_tables)


def work_without_bound(patch: Patch) -> None:
    patch.setattr(track_units, "bound_work", lambda relation, above, count: (relation, ()))


def heavy_units_are_read(patch: Patch) -> None:
    patch.setattr(sql, "light_units_sql", lambda below, names, most_rows: below)


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
MULTIPLIED: dict[str, Removal] = {
    "a bound on the rows of one person": work_without_bound,
    "people with many rows, left out before these are multiplied": heavy_units_are_read,
}
HABITS: dict[str, tuple[Removal, str, int]] = {
    "a macro": (macros_of_others, "CREATE MACRO least(a, b) AS a", 0),
    "a setting": (partial(one_setting_of_others, "max_expression_depth"), "SET GLOBAL max_expression_depth = 30", 5),
    "another schema": (tables_of_the_first_schema, FUZZER["ELSEWHERE"], 0),
}

# -- and what is found ------------------------------------------------------------------------------------------------


def first_fault(source: Any, questions: int, folder: Path) -> str | None:
    findings = FUZZER["Findings"]()
    for number in range(MOST_PAIRS):
        FUZZER["look"](number, folder, findings, questions=questions, source=source)
        if findings.faults:
            return str(findings.faults[0])
    return None


def outcomes_differ(source: Any, attack: str, folder: Path, number: int = 0) -> list[str]:
    question = FUZZER["ATTACKS"][attack]
    with FUZZER["opened"](number, folder, source) as pair:
        assert pair is not None
        return list(FUZZER["differences"](FUZZER["asked"](pair.full, question), FUZZER["asked"](pair.less, question)))


@pytest.mark.parametrize("name", [*DRAWN, *LONG])
def test_drawn_questions_find_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    removals, source, questions = (DRAWN | LONG)[name]
    for removal in removals:
        removal(monkeypatch)
    assert first_fault(FUZZER[source], questions, tmp_path)


def with_lone_quotes(tables: Any, rng: Any, folder: Path) -> Any:
    """Every third text is one quote, and the person's are in quotes of another kind."""
    person = FUZZER["PERSON"]
    for name, rows in tables.items():
        columns = FUZZER["TABLES"][name]
        texts = [place for place, kind in enumerate(columns.values()) if kind == "VARCHAR"]
        others = [list(row) for row in rows if row[0] != person]
        many = [[1000 + number, *others[number % len(others)][1:]] for number in range(3000 if name == "t" else 0)]
        for row in many[1::3]:
            row[texts[0]] = '"'
        ours = [["'a,b'" if place in texts else "" for place in range(len(columns))]]
        ours[0][0] = person
        lines = [list(columns), *(ours if len(others) < len(rows) else ()), *(many or others)]
        text = "\n".join(",".join("" if part is None else str(part) for part in line) for line in lines)
        (folder / f"{name}.csv").write_text(text + "\n")
    return {name: folder / f"{name}.csv" for name in tables}, {}


def test_a_guessed_dialect_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FUZZER["opened"](0, tmp_path, with_lone_quotes) as pair:
        assert pair is None  # the owner is told that quotes do not end
    guessed_dialect(monkeypatch)
    with FUZZER["opened"](1, tmp_path, with_lone_quotes) as pair:
        assert any("moved the count" in fault for fault in FUZZER["moved"](pair))


@pytest.mark.parametrize("name", NAMED)
def test_a_named_attack_finds_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    removals, source, attack = NAMED[name]
    for removal in removals:
        removal(monkeypatch)
    assert outcomes_differ(FUZZER[source], attack, tmp_path)


@pytest.mark.parametrize("name", MULTIPLIED)
def test_work_that_one_person_sets_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attack = "all rows of a person beside each other, three times"
    (tmp_path / "whole").mkdir()
    assert not outcomes_differ(FUZZER["with_file"], attack, tmp_path / "whole", MANY_ROWS)
    MULTIPLIED[name](monkeypatch)
    assert outcomes_differ(FUZZER["with_file"], attack, tmp_path, MANY_ROWS)


def test_trusting_arithmetic_is_right_while_facts_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is the false fact that is found above."""
    trusting_arithmetic(monkeypatch)
    assert not outcomes_differ(FUZZER["with_file"], "a frame without rows", tmp_path)


@pytest.mark.parametrize("name", HABITS)
def test_what_others_did_to_a_connection_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    removal, habit, questions = HABITS[name]
    removal(monkeypatch)
    assert first_fault(FUZZER["after"](habit), questions, tmp_path)


# A function that others have made their own, and what asks for it. What fails is told apart by a row alone.
FUNCTIONS_OF_OTHERS = {
    "least(a, b)": "LEAST(k, 3)",
    "greatest(a, b)": "GREATEST(k, 3)",
    "abs(a)": "ABS(COALESCE(k, 1))",
    "round(a)": "ROUND(COALESCE(x, 1))",
    "floor(a)": "FLOOR(COALESCE(x, 1))",
    "sqrt(a)": "SQRT(COALESCE(x, 1) + 20)",
    "sign(a)": "SIGN(COALESCE(x, 1))",
}


def asked_for_one_person(value: str) -> Any:
    sql = f"SELECT COUNT(*) FROM t WHERE u = {FUZZER['PERSON']} AND {value} > 5"
    return FUZZER["Question"](sql, {"epsilon": 1.0})


def ends_alike(habit: str, question: Any, folder: Path) -> bool:
    with FUZZER["opened"](0, folder, FUZZER["after"](habit)) as pair:
        assert pair is not None
        asked = FUZZER["asked"]
        return not list(FUZZER["differences"](asked(pair.full, question), asked(pair.less, question)))


@pytest.mark.parametrize("macro", FUNCTIONS_OF_OTHERS)
def test_every_macro_alone_is_found(macro: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    habit, question = f"CREATE MACRO {macro} AS error('mine')", asked_for_one_person(FUNCTIONS_OF_OTHERS[macro])
    (tmp_path / "fixed").mkdir()
    assert ends_alike(habit, question, tmp_path / "fixed")
    macros_of_others(monkeypatch)
    assert not ends_alike(habit, question, tmp_path)


# A setting, what else keeps a question from noticing it, and the question.
GUARDED: dict[str, tuple[str, Removal, str]] = {
    "ieee_floating_point_ops": ("false", roots_of_anything, "SQRT(COALESCE(x, 1) - 200)"),
    "error_on_division_by_zero": ("true", divisors_of_any_size, "7 // (COALESCE(k, 1) * 0)"),
}


@pytest.mark.parametrize("setting", GUARDED)
def test_a_setting_and_what_stands_before_it_are_found(
    setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each defence alone is enough."""
    value, guard, asked = GUARDED[setting]
    habit, question = f"SET GLOBAL {setting} = {value}", asked_for_one_person(asked)
    for number, removals in enumerate(((guard,), (partial(one_setting_of_others, setting),))):
        (tmp_path / str(number)).mkdir()
        with monkeypatch.context() as patch:
            for removal in removals:
                removal(patch)
            assert ends_alike(habit, question, tmp_path / str(number))
    guard(monkeypatch)
    one_setting_of_others(setting, monkeypatch)
    assert not ends_alike(habit, question, tmp_path)


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
    adversarial, honest = (FACTS["extreme_database"](honest=honest) for honest in (False, True))
    schema = {"dataset": "extremes", "tables": FACTS["TABLES"]}
    with dpsql.connect(adversarial, schema=schema, budget=1, delta=1e-6) as connection:
        people = FACTS["People"](adversarial, honest, connection)
        with pytest.raises(AssertionError):
            FACTS["test_every_relation_keeps_its_claims"](shape, people, relation_of)


# What is copied is read once, by the owner's act, and a bound on work hides who is drawn for: outcomes of questions are
# the same without these. Tests that look at sources and at hidden groups find them.
WITHIN: dict[str, tuple[Removal, str, str, Callable[[Path, Patch], tuple[Any, ...]]]] = {
    "text that may be broken, copied": (
        unchecked_text,
        "engines/test_sources.py",
        "test_text_that_is_no_text_in_arrow_is_null",
        lambda *_: (pa.string(),),
    ),
    "objects of a frame that are not read as text": (
        objects_as_they_are,
        "engines/test_sources.py",
        "test_no_object_in_a_frame_reaches_beyond_its_row",
        lambda *_: (),
    ),
    "draws for groups that are not shown": (
        draws_for_hidden_groups,
        "pipeline/test_hidden_groups.py",
        "test_nothing_is_drawn_for_a_group_that_is_not_shown",
        lambda _, patch: ("MEDIAN(x)", {}, one_visit(), patch),
    ),
}


def one_visit() -> duckdb.DuckDBPyConnection:
    database = duckdb.connect()
    database.execute("CREATE TABLE visits (uid BIGINT, name VARCHAR, x DOUBLE, kind BIGINT, code BIGINT, place BIGINT)")
    return database.execute("INSERT INTO visits VALUES (42, 'Ann', 1, 7, 7, 1)")


@pytest.mark.parametrize("name", WITHIN)
def test_what_questions_cannot_tell_is_found_within(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    removal, file, test, arguments = WITHIN[name]
    whole = runpy.run_path(str(HERE / file))[test]
    (tmp_path / "whole").mkdir()
    with monkeypatch.context() as patch:
        whole(*arguments(tmp_path / "whole", patch))
    removal(monkeypatch)
    with pytest.raises((AssertionError, dpsql.Error, UnicodeError)):
        whole(*arguments(tmp_path, monkeypatch))
