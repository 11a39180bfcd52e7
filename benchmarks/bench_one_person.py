"""Whether one person shows in the time or memory of a question: the same database with and without that person.

    python benchmarks/bench_one_person.py [duckdb] [postgresql] [spark] [QUESTIONS | FIRST:LAST]

Generated questions join a person's rows, cross lists, look into moving windows, remove duplicates and match patterns;
half of them ask about that person alone. Each release is run on a database without person 42, on one where the
person has a single extreme row, and on one where the person has 100,000 rows. Times are CPU seconds of the engine
(Spark: elapsed); memory is the engine's peak. What takes more than 3 times as long, or as much memory, with the person
as without, and 50 ms or 50 MB more, is measured three times; then the question itself is asked of the engine, without
dpsql. Ends with code 1 when a question shows the person by more than it does there.
"""

from __future__ import annotations

import json
import math
import random
import re
import runpy
import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Timer
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

import duckdb
import sqlglot

import dpsql
from dpsql.engines.postgresql.engine import SETTINGS, WORKING_MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TESTS = Path(__file__).parents[1] / "tests" / "engines"
PEOPLE, ROWS, MANY = 60_000, 300_000, 100_000
MOST, SECONDS, MEGABYTES = 3.0, 0.05, 50.0
LONGEST_PLAIN = 30
"""Seconds. Without dpsql some questions would not end."""
WORLDS = ("nobody", "one_row", "many_rows")
SCHEMA: dict[str, Any] = {
    "dataset": "bench",
    "contribution": {"max_groups": 3, "max_rows_per_group": 10},
    "tables": {
        "t": {
            "unit": "uid",
            "columns": {
                "uid": "integer",
                "k": {"type": "integer", "bounds": [0, 1000]},
                "kind": {"type": "text", "values": ["a", "b", "c"]},
                "x": {"type": "double", "bounds": [0, 100]},
                "s": "text",
            },
        },
        "v": {
            "unit": "uid",
            "columns": {"uid": "integer", "k": {"type": "integer", "bounds": [0, 1000]}, "kind": "text"},
        },
        "kinds": {"public": True, "columns": {"kind": "text", "label": "text"}},
    },
}
OTHERS = f"""SELECT CAST(hash(n) % {PEOPLE} AS BIGINT) + 100 AS uid, CAST(hash(n, 1) % 1000 AS BIGINT) AS k,
    chr(97 + CAST(hash(n, 2) % 3 AS INTEGER)) AS kind, CAST(hash(n, 3) % 10000 AS DOUBLE) / 100 AS x,
    'text ' || hash(n, 4) % 100000 AS s FROM range({ROWS}) AS numbers(n)"""
PERSON = {
    "nobody": "SELECT 42, 500, 'a', 50.0, '' WHERE false",
    "one_row": f"SELECT 42, 500, 'a', 50.0, '{'a' * 60_000}'",
    "many_rows": f"SELECT 42, n % 1000, 'a', 50.0, 'aaaaaaaaaaaaaaaaaaaa' FROM range({MANY}) AS numbers(n)",
}
KINDS = "SELECT chr(97 + CAST(n % 3 AS INTEGER)) AS kind, 'label ' || n AS label FROM range(12) AS numbers(n)"


# -- questions --------------------------------------------------------------------------------------------------------


def questions(number: int) -> list[str]:
    rng = random.Random(31)
    return [question(rng) for _ in range(number)]


def question(rng: random.Random) -> str:
    source, key = rows(rng)
    tests = [f"{key}.uid = 42"] if rng.random() < 0.5 else []
    if rng.random() < 0.4:
        tests.append(f"{key}.k >= {rng.choice((0, 10, 500))}")
    if key == "a" and rng.random() < 0.3:
        pieces = "%".join(rng.choice(("a", "aa", "ab")) for _ in range(rng.choice((1, 3, 8))))
        tests.append(rng.choice((f"a.s LIKE '%{pieces}%b'", f"a.s NOT LIKE '%{pieces}%'", f"a.s ILIKE '{pieces}%'")))
    if rng.random() < 0.3:
        no = rng.choice(("", "NOT "))
        than = rng.choice(("e.k > {0}.k", "e.k = {0}.k + 1", "e.k <> {0}.k AND e.kind = {0}.kind")).format(key)
        tests.append(f"{no}EXISTS (SELECT 1 FROM {rng.choice('tv')} e WHERE e.uid = {key}.uid AND {than})")
    measure = rng.choice(
        ("COUNT(*)", f"SUM({key}.k)", f"COUNT(DISTINCT {key}.uid)", f"MEDIAN({key}.k)", f"AVG({key}.k)")
    )
    where = f" WHERE {' AND '.join(tests)}" if tests else ""
    if rng.random() < 0.4:
        return f"SELECT {key}.kind, {measure} FROM {source}{where} GROUP BY {key}.kind"
    return f"SELECT {measure} FROM {source}{where}"


def rows(rng: random.Random) -> tuple[str, str]:
    """FROM, and the alias of its first item."""
    match rng.randrange(8):
        case 0:
            return "t a", "a"
        case 1:
            on = rng.choice(("", " AND a.k < b.k", " AND a.k = b.k", " AND a.kind = b.kind"))
            return f"t a {rng.choice(('', 'LEFT ', 'FULL '))}JOIN {rng.choice('tv')} b ON a.uid = b.uid{on}", "a"
        case 2:
            return "t a JOIN v b ON a.uid = b.uid JOIN v c ON a.uid = c.uid", "a"
        case 3:
            return (
                f"t a CROSS JOIN RANGE({rng.choice((2, 8, 30))}) r(z) CROSS JOIN RANGE({rng.choice((1, 2))}) q(y)",
                "a",
            )
        case 4:
            return rng.choice(
                ("t a JOIN kinds USING (kind)", f"t a JOIN RANGE({rng.choice((5, 50))}) r(z) ON r.z >= a.k")
            ), "a"
        case 5:
            inner = rng.choice(("t", "(SELECT t.* FROM t JOIN RANGE(8) r(z) ON r.z <> t.k)", "t JOIN v USING (uid)"))
            return f"(SELECT DISTINCT uid, {'v.k' if 'v ' in inner else 'k'}, 'a' AS kind FROM {inner}) d", "d"
        case 6:
            frame = rng.choice(
                (
                    "",
                    " ROWS BETWEEN 5 PRECEDING AND CURRENT ROW",
                    " ROWS BETWEEN 500 PRECEDING AND 500 FOLLOWING",
                    " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
                )
            )
            made = f"{rng.choice(('MAX', 'MIN', 'AVG'))}(x) OVER (PARTITION BY uid ORDER BY k{frame})"
            return f"(SELECT uid, kind, k, {made} AS m FROM t) w", "w"
        case _:
            both = rng.choice(("UNION ALL", "UNION", "EXCEPT", "INTERSECT"))
            return f"(SELECT uid, k, kind FROM t {both} SELECT uid, k, kind FROM v) u", "u"


# -- engines ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Engine:
    """Three databases of one engine, and how to run a query on one of them."""

    database: Callable[[str], Any]
    measured: Callable[[str, str], tuple[float, float]]
    """Seconds and MB of a query on one of the worlds."""
    dialect: str | None = None
    """In which the question itself can be asked, within LONGEST_PLAIN seconds for each query."""


def tables(world: str) -> dict[str, str]:
    person, others = PERSON[world], OTHERS.replace("hash(n", "hash(n + 7")
    return {
        "t": f"SELECT * FROM ({OTHERS}) UNION ALL {person}",
        "v": f"SELECT uid, k, kind FROM (SELECT * FROM ({others}) UNION ALL {person}) AS v",
        "kinds": KINDS,
    }


@contextmanager
def on_duckdb() -> Iterator[Engine]:
    found: dict[str, duckdb.DuckDBPyConnection] = {}
    for world in WORLDS:
        limits = {"max_temp_directory_size": "0B", "memory_limit": "4GB"}
        found[world] = duckdb.connect(config={"threads": 1, **limits})
        for name, rows in tables(world).items():
            found[world].execute(f"CREATE TABLE {name} AS {rows}")
        found[world].execute("PRAGMA enable_profiling='no_output'")

    def measured(world: str, sql: str) -> tuple[float, float]:
        too_long = Timer(LONGEST_PLAIN, found[world].interrupt)
        too_long.start()
        try:
            began = process_time()
            found[world].execute(sql).fetchnumpy()
            return process_time() - began, peak_of(found[world])
        finally:
            too_long.cancel()

    yield Engine(lambda world: found[world], measured, "duckdb")


def peak_of(connection: duckdb.DuckDBPyConnection) -> float:
    profile = json.loads(connection.get_profiling_information("json"))
    return float(profile["system"]["peak_buffer_memory"]) / 2**20


@contextmanager
def on_postgresql() -> Iterator[Engine]:
    import psycopg

    with runpy.run_path(str(TESTS / "postgresql_cluster.py"))["cluster"]() as url:
        urls = {world: url.replace("/postgres", f"/{world}", 1) for world in WORLDS}
        for world in WORLDS:
            with psycopg.connect(url, autocommit=True) as owner:
                owner.execute(f"CREATE DATABASE {world}".encode())
            with psycopg.connect(urls[world], autocommit=True) as owner:
                fill_postgresql(owner, world)

        def measured(world: str, sql: str) -> tuple[float, float]:
            """By a backend of its own: one keeps the memory of earlier queries."""
            with psycopg.connect(urls[world], autocommit=True) as backend:
                for name, value in LIMITS_OF_POSTGRESQL.items():
                    backend.execute("SELECT pg_catalog.set_config(%s, %s, false)", [name, value])
                process = Path(f"/proc/{backend.info.backend_pid}")
                (process / "clear_refs").write_text("5")
                before = cpu_of(process)
                backend.execute(sql.encode()).fetchall()
                return cpu_of(process) - before, resident_peak(process)

        yield Engine(lambda world: urls[world], measured, "postgres")


LIMITS_OF_POSTGRESQL = {
    **SETTINGS,
    "work_mem": f"{WORKING_MEMORY}kB",
    "max_parallel_workers_per_gather": "0",
    "statement_timeout": f"{LONGEST_PLAIN}s",
    "temp_file_limit": "4GB",
    "search_path": "pg_catalog, public",
}


def fill_postgresql(backend: Any, world: str) -> None:
    backend.execute("CREATE TABLE t (uid BIGINT, k BIGINT, kind TEXT, x DOUBLE PRECISION, s TEXT)")
    backend.execute("CREATE TABLE v (uid BIGINT, k BIGINT, kind TEXT)")
    backend.execute("CREATE TABLE kinds (kind TEXT, label TEXT)")
    with duckdb.connect() as made:
        for name, rows in tables(world).items():
            with backend.cursor() as cursor, cursor.copy(f"COPY {name} FROM STDIN") as copy:
                for row in made.execute(rows).fetchall():
                    copy.write_row(row)
    backend.execute("VACUUM ANALYZE")


def cpu_of(process: Path) -> float:
    return int((process / "schedstat").read_text().split()[0]) / 1e9


def resident_peak(process: Path) -> float:
    """Without the buffers that all backends share."""
    status = (process / "status").read_text()
    kilobytes = {name: int(found) for name, found in re.findall(r"^(\w+):\s+(\d+) kB$", status, re.MULTILINE)}
    return (kilobytes["VmHWM"] - kilobytes["RssShmem"]) / 1024


@contextmanager
def on_spark() -> Iterator[Engine]:
    sessions = runpy.run_path(str(TESTS / "spark_session.py"))
    with sessions["session"]() as (spark, _):
        for world in WORLDS:
            spark.sql(f"CREATE DATABASE IF NOT EXISTS {world}")
            with duckdb.connect() as made:
                for name, rows in tables(world).items():
                    spark.createDataFrame(made.execute(rows).df()).write.mode("overwrite").saveAsTable(
                        f"{world}.{name}"
                    )

        def database(world: str) -> Any:
            spark.sql(f"USE {world}")
            return spark

        def measured(world: str, sql: str) -> tuple[float, float]:
            """The second time, when it is compiled. Releases name the database of the session that wrote them."""
            there = sql.replace("`nobody`", f"`{world}`")
            assert world == "nobody" or there != sql
            spark.sql(there).collect()
            began = perf_counter()
            spark.sql(there).collect()
            return perf_counter() - began, 0.0

        yield Engine(database, measured)


ENGINES = {"duckdb": on_duckdb, "postgresql": on_postgresql, "spark": on_spark}


# -- measuring --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    sql: str
    world: str
    seconds: tuple[float, float]
    megabytes: tuple[float, float]
    """Without the person, and with."""
    plain: Found | None = None
    """The question itself, if it can be asked."""

    @property
    def shows(self) -> bool:
        return self.slower or self.larger

    @property
    def slower(self) -> bool:
        return shows(self.seconds, SECONDS)

    @property
    def larger(self) -> bool:
        return shows(self.megabytes, MEGABYTES)

    @property
    def shows_more_than_plain(self) -> bool:
        """A ratio above that of the question itself."""
        if self.plain is None:
            return self.shows
        return (self.slower and ratio(self.seconds) > ratio(self.plain.seconds)) or (
            self.larger and ratio(self.megabytes) > ratio(self.plain.megabytes)
        )


def shows(pair: tuple[float, float], beyond: float) -> bool:
    without, with_one = pair
    return with_one > MOST * without and with_one - without > beyond


def ratio(pair: tuple[float, float]) -> float:
    without, with_one = pair
    return with_one / max(without, 1e-3)


def compare(engine: Engine, asked: list[str]) -> tuple[list[Found], int]:
    found: list[Found] = []
    refused = 0
    options: dict[str, Any] = {"schema": SCHEMA, "budget": 3.0, "delta": 1e-6, "ledger": ":memory:"}
    with dpsql.connect(engine.database("nobody"), **options) as conn:
        for number, sql in enumerate(asked):
            try:
                releases = conn.explain(sql).releases
            except dpsql.NotSupportedError:
                refused += 1
                continue
            for release in releases:
                once = list(compared(engine, sql, release.sql, times=1))
                again = compared(engine, sql, release.sql, times=3) if any(part.shows for part in once) else once
                found += [replace(part, plain=plain(engine, part)) if part.shows else part for part in again]
            if sys.stderr.isatty():
                print(f"\r{number + 1} of {len(asked)}", end="", file=sys.stderr)
    return found, refused


def compared(engine: Engine, question: str, sql: str, times: int) -> Iterator[Found]:
    best = {}
    for world in WORLDS:
        runs = [engine.measured(world, sql) for _ in range(times)]
        best[world] = min(seconds for seconds, _ in runs), min(megabytes for _, megabytes in runs)
    for world in WORLDS[1:]:
        seconds, megabytes = zip(best["nobody"], best[world], strict=True)
        yield Found(question, world, seconds, megabytes)


def plain(engine: Engine, found: Found) -> Found | None:
    """The question as it is asked of the engine without dpsql."""
    if engine.dialect is None:
        return None
    (sql,) = sqlglot.transpile(found.sql, read="duckdb", write=engine.dialect)
    before = min(engine.measured("nobody", sql) for _ in range(3))
    try:
        after = min(engine.measured(found.world, sql) for _ in range(3))
    except Exception:  # it takes too long, or too much memory
        after = math.inf, math.inf
    return Found(sql, found.world, (before[0], after[0]), (before[1], after[1]))


def report(name: str, found: list[Found], refused: int) -> bool:
    print(f"{name}: {len(found)} comparisons, {refused} questions refused before the charge")
    for world in WORLDS[1:]:
        here = [part for part in found if part.world == world]
        slow = [part for part in here if part.seconds[1] - part.seconds[0] > SECONDS]
        large = [part for part in here if part.megabytes[1] - part.megabytes[0] > MEGABYTES]
        time = max((part.seconds[1] / max(part.seconds[0], 1e-3) for part in slow), default=1.0)
        memory = max((part.megabytes[1] / max(part.megabytes[0], 1.0) for part in large), default=1.0)
        print(
            f"  {world:<10} more than 50 ms longer: {len(slow):>3}, at most {time:.1f} times;"
            f" more than 50 MB: {len(large):>3}, at most {memory:.1f} times"
        )
    showing = [part for part in found if part.shows]
    more = [part for part in showing if part.shows_more_than_plain]
    print(f"  more than {MOST:g} times: {len(showing)}; by more than without dpsql: {len(more)}")
    for part in sorted(showing, key=lambda part: (part not in more, -part.seconds[1]))[:30]:
        print(f"  {part.world}: {figures(part)}; without dpsql {figures(part.plain)}: {part.sql}")
    return not more


def figures(found: Found | None) -> str:
    if found is None:
        return "not asked"
    (before, after), (small, big) = found.seconds, found.megabytes
    return f"{before:.3f} -> {after:.3f} s, {small:.0f} -> {big:.0f} MB"


def main(arguments: list[str]) -> int:
    ends = next((part.split(":") for part in arguments if part.replace(":", "").isdigit()), ["300"])
    first, last = int(ends[0]) if len(ends) > 1 else 0, int(ends[-1])
    names = [part for part in arguments if part in ENGINES] or ["duckdb", "postgresql"]
    met = True
    for name in names:
        asked = questions(last if name != "spark" else max(1, last // 10))[first:]
        with ENGINES[name]() as engine:
            met &= report(name, *compare(engine, asked))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
