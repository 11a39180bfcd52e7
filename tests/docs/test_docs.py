"""Documents that fail when they lie: lists are compared with the code, examples run, and what the proof notes claim of
calibration, bounding and error bars is executed."""

from __future__ import annotations

import ast
import math
import re
import runpy
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpsql
from dpsql.accounting.curves import gaussian_epsilon_at, mu_for
from dpsql.accounting.events import Composed
from dpsql.accounting.privacy_loss import privacy_loss
from dpsql.aggregates.measure import CountRows, SumValues
from dpsql.aggregates.table import WORDS
from dpsql.engine_sql.build import SHORT
from dpsql.engines.duckdb.render import render_term
from dpsql.expressions.table import FUNCTIONS
from dpsql.expressions.tree import Column
from dpsql.mechanisms.gaussian import GaussianNoise
from dpsql.mechanisms.registry import MECHANISMS
from dpsql.pipeline import stages
from dpsql.pipeline.choose_mechanism import coarse
from dpsql.schema.types import Integer

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
with_reference = runpy.run_path(str(DOCS / "reference.py"))["with_reference"]
NOTES = sorted((DOCS / "proofs").glob("*.md"))
TEXTS = [*sorted(DOCS.glob("*.md")), *NOTES]
SOURCES = sorted((ROOT / "dpsql").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", read(path), re.MULTILINE | re.DOTALL)


# -- what documents name exists ----------------------------------------------------------------------------------------


def test_every_note_that_code_names_exists() -> None:
    named = {match for path in SOURCES for match in re.findall(r"docs/[\w/]+\.md", read(path))}
    assert named
    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_every_note_names_tests_that_exist() -> None:
    known = {name for test in TESTS for name in re.findall(r"^\s*def (test_\w+)", read(test), re.MULTILINE)}
    missing = []
    for path in NOTES:
        text = read(path)
        files = re.findall(r"tests/[\w/]+\.py", text)
        wanted = {name for name in re.findall(r"\btest_\w+", text) if not re.search(rf"{name}\.py", text)}
        missing += [f"{path.name}: {name}" for name in {*files} if not (ROOT / name).exists()]
        missing += [f"{path.name}: {name}" for name in wanted - known]
        missing += [] if files else [f"{path.name}: a note names the test that executes it"]
    assert missing == []


def test_links_and_paths_lead_somewhere() -> None:
    missing = []
    for path in TEXTS:
        text = read(path)
        links = [link for link in re.findall(r"\]\(([^)#\s]+)[^)\s]*\)", text) if "://" not in link]
        paths = re.findall(r"`((?:dpsql|tests|docs|schemas|examples)/[\w./]*)", text)
        missing += [f"{path.name}: {link}" for link in links if not (path.parent / link).exists()]
        missing += [f"{path.name}: {name}" for name in paths if not (ROOT / name).exists()]
    assert missing == []


def test_every_file_of_python_that_is_named_exists() -> None:
    """By its path in the repository or in dpsql/, or by its bare name."""
    files = {file.relative_to(ROOT).as_posix() for file in (*SOURCES, *TESTS, *DOCS.glob("*.py"))}
    known = files | {file.removeprefix("dpsql/") for file in files} | {file.rpartition("/")[2] for file in files}
    for path in (DOCS / "ARCHITECTURE.md", DOCS / "GLOSSARY.md", ROOT / "CONTRIBUTING.md"):
        named = set(re.findall(r"[\w./]+\.py\b", read(path)))
        assert named
        assert named - known == set()


def names_in(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    """What a module or a class defines itself."""
    found: dict[str, ast.stmt] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] = node
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        found |= {target.id: node for target in targets if isinstance(target, ast.Name)}
    return found


WHERE_TO_LOOK = re.findall(r"^\| .+ \| `([\w/]+\.py)` \| (`.+`) \|$", read(DOCS / "ARCHITECTURE.md"), re.MULTILINE)


def is_there(file: str, name: str) -> bool:
    """A function, class or constant of a module, or one of a class."""
    first, _, inner = name.partition(".")
    found = names_in(ast.parse(read(ROOT / "dpsql" / file)).body).get(first)
    return found is not None and (not inner or (isinstance(found, ast.ClassDef) and inner in names_in(found.body)))


def test_the_architecture_points_at_what_is_there() -> None:
    pointed = [(file, name) for file, names in WHERE_TO_LOOK for name in re.findall(r"`([\w.]+)`", names)]
    assert [f"{file}: {name}" for file, name in pointed if not is_there(file, name)] == []


def test_the_architecture_can_be_read_in_a_quarter_of_an_hour() -> None:
    assert len(WHERE_TO_LOOK) > 40
    assert len(read(DOCS / "ARCHITECTURE.md").splitlines()) < 200


# -- lists are those of the code ---------------------------------------------------------------------------------------


def stage_table(text: str) -> list[tuple[str, str, str]]:
    rows = re.findall(r"^\| (\w+) \| (\w+) \| (.+?) \|$", text, re.MULTILINE)
    return [row for row in rows if row[0] != "stage"]


def test_the_stage_table_is_that_of_the_pipeline() -> None:
    table = stage_table(stages.__doc__ or "")
    assert [name for name, _, _ in table] == [stage.__name__ for stage in stages.STAGES]
    assert [gives for _, gives, _ in table] == [stage.__annotations__["return"] for stage in stages.STAGES]
    assert stage_table(read(DOCS / "ARCHITECTURE.md")) == table


def test_the_charge_stands_before_the_engine() -> None:
    names = [stage.__name__ for stage in stages.STAGES]
    paid = ["charge_budget", "run_rounds", "estimate_answers", "post_process"]
    assert names[names.index("charge_budget") :] == paid
    assert [stage.__name__ for stage in stages.FREE] == names[: names.index("charge_budget")]


def test_the_functions_are_those_that_can_be_asked() -> None:
    listed = read(DOCS / "sql.md").partition("<!-- functions")[2].partition("<!-- end of functions")[0]
    listed = listed.partition("-->")[2]
    shown = [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", listed)]
    assert sorted(shown) == sorted(function.takes for function in FUNCTIONS.values())


def test_the_aggregates_are_those_that_can_be_asked() -> None:
    page = read(DOCS / "sql.md")
    assert "| `COUNT` |" in page
    assert with_reference(page) == page, "make reference writes it"


def test_the_keys_of_a_schema_are_those_of_the_model() -> None:
    page = read(DOCS / "schema.md")
    assert "| `max_groups` |" in page
    assert with_reference(page) == page, "make reference writes it"


def test_the_words_of_frames_are_those_of_the_aggregates() -> None:
    (listed,) = re.findall(r"^\| (.*) \| one number, or one per group", read(DOCS / "frames.md"), re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", listed)) == sorted([*WORDS, "quantile"])


def test_the_mechanisms_are_those_that_can_be_named() -> None:
    listed, *_ = re.findall(r"^\| `mechanism` \| (.*) \|", read(DOCS / "sql.md"), re.MULTILINE)
    assert set(re.findall(r'`"(\w+)"`', listed)) == set(MECHANISMS)
    assert {mechanism.proof for mechanism in MECHANISMS.values()} <= {path.name for path in NOTES}


def test_every_note_is_listed_with_the_proofs() -> None:
    assert set(re.findall(r"proofs/\w+\.md", read(DOCS / "proofs.md"))) == {f"proofs/{path.name}" for path in NOTES}


def test_every_page_is_in_the_site() -> None:
    site = read(ROOT / "mkdocs.yml")
    assert [path.name for path in DOCS.glob("*.md") if f" {path.name}" not in site and path.name != "proofs.md"] == []


# -- examples run ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("docs") / "shop.duckdb"
    subprocess.run([sys.executable, ROOT / "examples" / "shop_data.py", path], check=True, capture_output=True)
    with dpsql.connect(path, schema=ROOT / "schemas" / "shop.yaml", budget=10**6, delta=1e-6) as conn:
        yield conn


@pytest.mark.parametrize("sql", blocks(DOCS / "sql.md", "sql"))
def test_the_sql_can_be_asked(sql: str, shop: dpsql.Connection) -> None:
    privacy_loss = {} if "OPTIONS(" in sql else {"epsilon": 1}
    assert shop.execute(sql, **privacy_loss).fetchall()


REFUSED = (
    "SELECT COUNT(m) FROM (SELECT customer_id, STRING_AGG(amount, ',') AS m FROM orders GROUP BY customer_id)",
    "SELECT COUNT(*) FROM orders AS a JOIN orders AS b ON a.day = b.day",
    "SELECT * FROM orders",
    "SELECT COUNT(*) FROM (SELECT * FROM orders LIMIT 10)",
)


@pytest.mark.parametrize("sql", REFUSED)
def test_what_is_not_there_yet_is_refused(sql: str, shop: dpsql.Connection) -> None:
    """One that is answered one day leaves this list, docs/sql.md and the README."""
    with pytest.raises(dpsql.NotSupportedError):
        shop.explain(sql)


MEANINGS = {
    "WHERE sees clamped values": ("SELECT COUNT(*) FROM t WHERE x > 10", [(0,)]),
    "clamping": ("SELECT SUM(x) FROM t WHERE x >= 10", [(10.0,)]),
    "undeclared values are NULL": ("SELECT r, COUNT(*) FROM t GROUP BY r ORDER BY r", [("a", 1), ("b", 1), (None, 1)]),
    "NULL units are left out": ("SELECT COUNT(*) FROM t", [(3,)]),
    "NaN is NULL": ("SELECT COUNT(x) FROM t", [(2,)]),
    "empty public groups": ("SELECT i, COUNT(*) FROM t WHERE i <= 2 GROUP BY i", [(0, 0), (1, 1), (2, 0)]),
    "a sum over nothing": ("SELECT SUM(i) FROM t WHERE i > 19 AND r = 'a'", [(0,)]),
    "a cast that fails": ("SELECT COUNT(CAST(s AS BIGINT)) FROM t", [(1,)]),
    "division by zero": ("SELECT COUNT(i // (i - 1)) FROM t", [(2,)]),
    "exact decimals": ("SELECT SUM(c), SUM(c * 0.5) FROM t", [("3.30", "1.650")]),
}


@pytest.fixture(scope="module")
def meanings() -> Any:
    schema = {
        "dataset": "meanings",
        "tables": {
            "t": {
                "unit": "u",
                "unique": True,
                "columns": {
                    "u": "integer",
                    "r": {"type": "text", "values": ["a", "b"], "nullable": True},
                    "x": {"type": "double", "bounds": [0, 10], "nullable": True},
                    "i": {"type": "integer", "bounds": [0, 20]},
                    "c": {"type": "decimal(10,2)", "bounds": [0, 100], "nullable": True},
                    "s": {"type": "text", "nullable": True},
                },
            }
        },
    }
    database = duckdb.connect()
    database.execute(
        """
        CREATE TABLE t (u INTEGER UNIQUE, r VARCHAR, x DOUBLE, i INTEGER, c DECIMAL(10, 2), s VARCHAR);
        INSERT INTO t VALUES (1, 'a', 1, 1, 1.10, '7'), (2, 'zz', 1e9, 99, 2.20, 'q'), (3, 'b', 'nan', 5, NULL, NULL),
                             (NULL, 'a', 1, 1, 1, '1')
        """
    )
    with dpsql.connect(database, schema=schema, budget=10**15, delta=1e-6) as conn:
        yield conn


@pytest.mark.parametrize("name", MEANINGS)
def test_answers_mean_what_is_said(name: str, meanings: dpsql.Connection) -> None:
    sql, expected = MEANINGS[name]
    rows = meanings.execute(sql, epsilon=10**12, mechanism="laplace").fetchall()
    assert [tuple(str(cell) if name == "exact decimals" else cell for cell in row) for row in rows] == [
        pytest.approx(row) if isinstance(row[-1], float) else row for row in expected
    ]


# -- what the notes claim ----------------------------------------------------------------------------------------------

QUESTIONS = (
    "SELECT COUNT(*) FROM orders",
    "SELECT COUNT(*), SUM(amount), AVG(amount) FROM orders",
    "SELECT YEAR(day) AS year, COUNT(*), SUM(amount) FROM orders GROUP BY year",
    "SELECT product, COUNT(*), SUM(quantity) FROM order_lines GROUP BY product",
    "SELECT region, AVG(age), COUNT_IF(age > 65) FROM customers GROUP BY region",
)
COMPOSITIONS = ("auto", "gdp", "zcdp", "basic")


@pytest.fixture(scope="module")
def empty_shop() -> Any:
    database = duckdb.connect()
    database.execute(
        """
        CREATE TABLE customers (id INTEGER PRIMARY KEY, region VARCHAR, age INTEGER);
        CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER, day DATE, amount DOUBLE);
        CREATE TABLE order_lines (order_id INTEGER, product VARCHAR, quantity INTEGER);
        CREATE TABLE regions (region VARCHAR, country VARCHAR)
        """
    )
    return database


def connected(database: Any, **options: Any) -> dpsql.Connection:
    options = {"budget": 3, "delta": 1e-6} | options
    return dpsql.connect(database, schema=ROOT / "schemas" / "shop.yaml", **options)


def calibrated(conn: dpsql.Connection, sql: str, **options: Any) -> Any:
    return stages.compile_question(conn.session.request(sql, None, **options), conn.session.environment.public())


@pytest.mark.parametrize(("sql", "composition"), list(product(QUESTIONS, COMPOSITIONS)))
def test_a_query_is_charged_no_more_than_it_says(sql: str, composition: str, empty_shop: Any) -> None:
    """Parts add up: alone in a session, a query of epsilon e has spent at most e at the session's delta."""
    with connected(empty_shop, composition=composition) as conn:
        for mechanism, epsilon in product(("laplace", "gaussian"), ("1/10", "1/3", "1")):
            asked = calibrated(conn, sql, epsilon=epsilon, mechanism=mechanism)
            totals = privacy_loss(Composed(tuple(release.event for release in asked.releases)))
            if mechanism == "laplace":
                assert totals.epsilon == Fraction(epsilon)
            elif composition in ("auto", "gdp"):
                assert (
                    gaussian_epsilon_at(math.sqrt(totals.mu_squared), Fraction(95, 10**8))
                    <= float(Fraction(epsilon)) + 1e-9
                )
            elif composition == "zcdp":
                assert conn.budget.filter.spent(totals).epsilon <= float(Fraction(epsilon)) + 1e-9
            else:
                assert totals.epsilon <= Fraction(epsilon)
            assert totals.delta <= Fraction(1, 10**6)


@pytest.mark.parametrize("sql", QUESTIONS)
def test_noise_fits_the_claims(sql: str, empty_shop: Any) -> None:
    """Scale >= L1/(epsilon p) and sigma >= L2/(mu sqrt(p)), in the column's units, for what explain claims."""
    with connected(empty_shop) as conn:
        mu = float(mu_for(Fraction(1, 4), Fraction(95, 10**8)))
        for mechanism in ("laplace", "gaussian"):
            asked = calibrated(conn, sql, epsilon="1/4", mechanism=mechanism)
            measures = [measure for release in asked.releases for measure in release.measures]
            parts = [part for release in asked.noise_plan.parts for part in release]
            assert sum(parts) == 1
            for measure, part in zip(measures, parts, strict=True):
                bounded, step = measure.bounded, 2**measure.shift
                if mechanism == "laplace":
                    assert measure.noise.scale * step >= bounded.l1 * 4 / part
                else:
                    assert float(measure.noise.sigma * step) >= bounded.l2 / math.sqrt(part) / mu * (1 - 1e-9)
                assert measure.shift == 0 or measure.noise.std >= 2**25


@given(st.integers(-(2**62), 2**62), st.integers(0, 2**60), st.integers(0, 40))
def test_coarse_sums_move_no_further(total: int, change: int, shift: int) -> None:
    before, after = ((value + (1 << shift >> 1)) >> shift for value in (total, total + change))
    assert abs(after - before) <= coarse(change, shift)


def test_the_noise_that_wastes_less_is_chosen(empty_shop: Any) -> None:
    """A query that takes most of a session gets Laplace, one of many Gaussian; without a delta there is no choice."""
    counts = {"sql": "SELECT COUNT(*) FROM customers"}
    with connected(empty_shop, budget=1) as conn:
        assert calibrated(conn, **counts, epsilon=1).mechanism == "laplace"
        assert calibrated(conn, **counts, epsilon=0.01).mechanism == "gaussian"
    with connected(empty_shop, budget=1, delta=0) as conn:
        assert calibrated(conn, **counts, epsilon=0.01).mechanism == "laplace"


def test_the_reserve_is_cheap() -> None:
    """What calibration.md says of a twentieth, in numbers."""
    delta = Fraction(1, 10**6)
    for epsilon in (Fraction(1, 10), Fraction(1), Fraction(3)):
        whole, reserved = mu_for(epsilon, delta), mu_for(epsilon, delta * Fraction(19, 20))
        assert 0.001 < 1 - float(reserved / whole) < 0.0035
        assert 0.025 < 1 - float(mu_for(epsilon, delta / 2) / whole) < 0.045
    noise = GaussianNoise(Fraction(228, 10))
    low, high = (noise.threshold(4, delta * share / 10) for share in (Fraction(1, 2), Fraction(1, 20)))
    assert high - low < noise.std / 2


MOST = 2**20


@given(
    st.lists(st.integers(-1, MOST), min_size=0, max_size=12),
    st.integers(1, 5),
    st.sampled_from([0, MOST // 2, 7]),
    st.sampled_from([1, MOST]),
)
def test_scaled_sums_stay_within_their_bound(values: list[int], rows: int, centre: int, times: int) -> None:
    """The SQL of `bounded` for one unit in one group: at most r c, and within 1/2 of the exact S r / n."""
    most = MOST * times
    measure = SumValues(argument=Column("x", Integer()), quantum=Fraction(1), low=0, high=most, centre=centre)
    held = [min(max(value * times, 0), most) - centre for value in values]
    total, count = sum(held), len(held)
    kind = "BIGINT" if measure.kind == SHORT else "HUGEINT"
    partial = f"SELECT CAST({total if held else 'NULL'} AS {kind}) AS m, {count} AS m_count, {count} AS n"
    both = (measure.bounded("m", rows), CountRows().bounded("n", rows))
    columns = ", ".join(map(render_term, both))
    summed, counted = DATABASE.execute(f"SELECT {columns} FROM ({partial})").fetchone() or (None, None)
    assert abs(summed) <= measure.linf(rows)
    assert abs(summed - Fraction(total * min(count, rows), max(count, 1))) <= Fraction(1, 2)
    assert counted == min(count, rows) <= CountRows().linf(rows)


@given(
    st.lists(st.integers(-2 * MOST, 2 * MOST), max_size=12),
    st.integers(1, 5),
    st.tuples(st.integers(-2 * MOST, 2 * MOST), st.integers(-2 * MOST, 2 * MOST)).map(sorted),
)
def test_held_sums_stay_within_their_bound(values: list[int], rows: int, group: list[int]) -> None:
    """The same with bounds per group: what was scaled is moved into them, and nothing stays nothing."""
    plain = SumValues(argument=Column("x", Integer()), quantum=Fraction(1), low=-MOST, high=MOST, centre=0)
    measure = replace(plain, group=(group[0], group[1]))
    held = [min(max(value, -MOST), MOST) for value in values]
    partial = f"SELECT CAST({sum(held) if held else 'NULL'} AS HUGEINT) AS m, {len(held)} AS m_count"
    scaled, found = DATABASE.execute(
        f"SELECT {render_term(plain.bounded('m', rows))}, {render_term(measure.bounded('m', rows))} FROM ({partial})"
    ).fetchone() or (None, None)
    assert found == (min(max(scaled, group[0]), group[1]) if held else 0)
    assert abs(found) <= measure.linf(rows) <= max(map(abs, group))


DATABASE = duckdb.connect()


def test_groups_are_chosen_fairly() -> None:
    """Three of ten groups, of 20 000 units: each group is kept equally often, and three of every unit."""
    units, groups, kept = 20_000, 10, 3
    schema = {
        "contribution": {"max_groups": kept, "max_rows_per_group": 1},
        "tables": {
            "visits": {
                "unit": "person",
                "columns": {"person": "integer", "place": {"type": "integer", "bounds": [0, groups - 1]}},
            }
        },
    }
    database = duckdb.connect()
    database.execute(
        f"CREATE TABLE visits AS SELECT u AS person, g AS place FROM range({units}) AS us(u), range({groups}) AS gs(g)"
    )
    with dpsql.connect(database, schema=schema, budget=1, delta=1e-6) as connection:
        (release,) = connection.explain("SELECT place, COUNT(*) FROM visits GROUP BY place").releases
    times = [count for _, count in database.execute(release.sql).fetchall()]
    expected = units * kept / groups
    assert sum(times) == units * kept
    assert sum((count - expected) ** 2 / expected for count in times) < 40  # chi-square of 9 degrees: below 1e-5


def test_a_sum_beside_its_count_has_less_error(empty_shop: Any) -> None:
    """SUM(age), in [0, 120], beside COUNT(*): 1.06 of the error that it would have alone, and not 1.41 of it."""
    with connected(empty_shop) as conn:
        options = {"epsilon": 0.3, "mechanism": "gaussian"}
        (alone,) = conn.explain("SELECT SUM(age) FROM customers", **options).columns
        for _ in range(2):  # whether a NULL is possible or not
            (count, total) = conn.explain("SELECT COUNT(*), SUM(age) FROM customers", **options).columns
            assert total.half_width == pytest.approx(1.06 * alone.half_width, rel=0.03)
            assert 120 * count.half_width == pytest.approx(1.22 * alone.half_width, rel=0.03)
            empty_shop.execute("ALTER TABLE customers ALTER age SET NOT NULL")


def test_average_count_and_sum_agree(shop: dpsql.Connection) -> None:
    row = shop.execute("SELECT COUNT(age), SUM(age), AVG(age) FROM customers", epsilon=0.1, fresh=True).fetchone()
    assert row is not None
    count, total, average = row
    assert count * average == pytest.approx(total)


def test_average_of_nothing(shop: dpsql.Connection) -> None:
    seen = set()
    for _ in range(40):
        sql = "SELECT AVG(age), COUNT(age) FROM customers WHERE age > 110"
        [(average, count)] = shop.execute(sql, epsilon=1, fresh=True).fetchall()
        assert average is None or 0 <= average <= 120
        assert average is None or count > 3
        seen.add(average is None)
    assert True in seen


@pytest.mark.long
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_intervals_cover(mechanism: str, shop: dpsql.Connection) -> None:
    """95 % intervals of a count, a sum, a difference and an average hold the answer without noise often enough."""
    sql = "SELECT COUNT(*) AS n, SUM(age) AS years, SUM(age) - 40 * COUNT(*) AS beyond, AVG(age) AS mean FROM customers"
    exact = shop.execute(sql, epsilon=10**5, mechanism="laplace").fetchone()
    assert exact is not None
    runs, hits = 150, [0] * len(exact)
    for _ in range(runs):
        frame = shop.execute(sql, epsilon=0.05, mechanism=mechanism, fresh=True).intervals(0.95)
        for at, (name, value) in enumerate(zip(("n", "years", "beyond", "mean"), exact, strict=True)):
            hits[at] += bool(frame[f"{name}_low"][0] <= value <= frame[f"{name}_high"][0])
    # 142 are expected. Even at a coverage of 0.94, 122 or fewer have a probability below 1e-6 (Chernoff).
    assert min(hits) > 122
