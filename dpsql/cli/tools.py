"""`dpsql audit`: does the schema keep its promise, on people who are made up?"""

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsql.cli.options import Form
from dpsql.cli.output import CommandReport, counting, counting_rows, publish, table
from dpsql.cli.owner import SchemaArgument
from dpsql.errors import OperationalError
from dpsql.verification import DELTA, RUNS

if TYPE_CHECKING:
    from dpsql.verification.audit import Audited

Questions = Annotated[
    list[str] | None,
    typer.Argument(metavar="[SQL]...", help="The queries to audit; by default a few for every table and column."),
]
AuditEpsilon = Annotated[float, typer.Option("--epsilon", help="The epsilon that each query claims to cost.")]
AuditDelta = Annotated[
    float, typer.Option("--delta", help="The delta of each query; large by default, so that an audit can detect it.")
]
Runs = Annotated[int, typer.Option("--runs", min=1000, help="How many times each query is run with noise.")]
Seed = Annotated[int, typer.Option("--seed", help="The seed for the made-up people.")]

AUDIT_COLUMNS = ("question", "claimed", "certain", "neighbours", "finding")


def audit(
    schema: SchemaArgument,
    sql: Questions = None,
    epsilon: AuditEpsilon = 1.0,
    delta: AuditDelta = DELTA,
    runs: Runs = RUNS,
    seed: Seed = 0,
    form: Form = None,
) -> None:
    """Test on made-up people that no query has a larger sensitivity or privacy loss than claimed.

    It reads no data. Exit code 1 if a claim is broken.
    """
    # Late: they load the pipeline, and --help does not wait for it.
    from dpsql.schema import load_schema
    from dpsql.synthetic import made_up_worlds
    from dpsql.verification.audit import Auditor, default_questions

    loaded = load_schema(schema)
    questions = sql or default_questions(loaded)
    with counting("auditing", len(questions)) as done:
        found = Auditor(loaded, made_up_worlds(loaded, seed), epsilon, delta, runs).audit(questions, done)
    publish(_audited(found), form)
    broken = [part for part in found if part.broken]
    if broken:
        raise OperationalError(
            f"{len(broken)} of {len(found)} releases break a claim",
            hint="do not answer such queries; report this to the developers of dpsql, with this report and the schema",
        )


def _audited(found: "list[Audited]") -> CommandReport:
    rows = [
        (
            part.sql,
            "" if part.claimed is None else f"{part.claimed.epsilon:.4g}",
            "" if part.claimed is None else f"{part.certain:.3f}",
            part.compared or "",
            _finding(part),
        )
        for part in found
    ]
    document = {"audited": [asdict(part) | {"broken": part.broken} for part in found]}
    note = (
        "`certain` is the loss that the audit proved. If it exceeds `claimed`, something is broken (false alarms: one "
        "in a million)"
    )
    return CommandReport(
        document, AUDIT_COLUMNS, rows, table(AUDIT_COLUMNS, rows, numbers=(False, True, True, True)), note
    )


def _finding(part: "Audited") -> str:
    if part.refused is not None:
        return f"refused: {part.refused}"
    if part.violations:
        return "; ".join(part.violations)
    return "the loss exceeds the claim" if part.broken else "as claimed"


# -- certify -----------------------------------------------------------------------------------------------------------
# `dpsql certify`: does an engine give what DuckDB gives?

EngineUrl = Annotated[
    str, typer.Option("--engine", metavar="<url>", help="postgresql://user@host/database or sc://host:15002.")
]
Every = Annotated[int, typer.Option("--every", min=1, help="Run only every n-th query; by default all of them.")]
CERTIFY_COLUMNS = ("topic", "equal", "refused", "different", "failed")


def certify(engine: EngineUrl, every: Every = 1, form: Form = None) -> None:
    """Run the test queries on an engine, over made-up rows, and compare the exact results with DuckDB's.

    It creates schemas (Spark: databases) named dpsql_certify_..., and drops them. Exit code 1 if an answer differs, a
    row makes a query fail, or dpsql can write fewer than nine queries in ten for this engine.
    """
    from dpsql.verification.certify import Certifier, passes

    with Certifier(engine) as certifier:
        asked = certifier.questions(every)
        with counting("certifying", len(asked)) as done:
            found = certifier.certify(asked, done)
    counts = Counter[tuple[str, str]]((part.question.topic, part.outcome) for part in found)
    rows = [
        (topic, *(counts[topic, outcome] for outcome in CERTIFY_COLUMNS[1:]))
        for topic in dict.fromkeys(part.question.topic for part in found)
    ]
    document = {
        "certified": passes(found),
        "questions": [{"sql": part.question.sql, "outcome": part.outcome, "reason": part.reason} for part in found],
    }
    totals = ", ".join(f"{sum(part.outcome == name for part in found)} {name}" for name in CERTIFY_COLUMNS[1:])
    publish(
        CommandReport(
            document,
            CERTIFY_COLUMNS,
            rows,
            table(CERTIFY_COLUMNS, rows, numbers=(False, True, True, True, True)),
            totals,
        ),
        form,
    )
    wrong = [part for part in found if part.outcome in ("different", "failed")]
    if not passes(found):
        first = f"; the first: {wrong[0].question.sql}: {wrong[0].reason}" if wrong else ""
        raise OperationalError(
            f"{len(wrong)} of {len(found)} queries are answered differently than by DuckDB{first}",
            hint="do not use this engine; report it to the developers of dpsql, with the --json output and the "
            "engine's version",
        )


# -- practice ----------------------------------------------------------------------------------------------------------
# `dpsql practice`: made-up people for a schema, to develop questions on.

PracticeFile = Annotated[Path, typer.Option("--out", help="The DuckDB file to write.")]
People = Annotated[int, typer.Option("--people", min=1, help="How many people to make up.")]


def practice(
    schema: SchemaArgument,
    out: PracticeFile = Path("practice.duckdb"),
    people: People = 1000,
    seed: Seed = 0,
    form: Form = None,
) -> None:
    """Make up people for a schema, to develop queries for free.

    It reads no data. The people follow from the schema alone, so answers about them mean nothing.
    """
    # Late: --help does not wait for the engine.
    from dpsql.schema import load_schema
    from dpsql.synthetic import practice_database

    loaded = load_schema(schema)
    practice_database(loaded, people, seed, str(out)).close()
    then = f"dpsql shell --db {out} --schema {schema} --budget 10 --delta 1e-6"
    text = f"wrote {out}: {people:,} made-up people\nthen: {then}"
    publish(
        CommandReport({"database": str(out), "people": people}, ("database", "people"), [(out, people)], text), form
    )


# -- randomize ---------------------------------------------------------------------------------------------------------
# `dpsql randomize`: answers become reports before they leave, one file at a time.

Source = Annotated[Path, typer.Argument(metavar="FILE", help="A Parquet or CSV file of answers.")]
Answers = Annotated[str, typer.Option("--column", help="The column whose answers are randomised.", show_default=False)]
ReportEpsilon = Annotated[
    float,
    typer.Option(
        "--epsilon", help="The epsilon of one report: its likelihood ratios are at most e^epsilon.", show_default=False
    ),
]
ReportsFile = Annotated[Path, typer.Option("--out", help="The file to write the reports to.", show_default=False)]
Values = Annotated[
    str | None, typer.Option("--values", help="All possible answers, separated by commas; not needed for booleans.")
]
LocalMechanism = Annotated[
    str, typer.Option("--mechanism", help="kary, randomized_response, rappor, oue or subset; bit reports are integers.")
]


def randomize(
    file: Source,
    column: Answers,
    epsilon: ReportEpsilon,
    out: ReportsFile,
    values: Values = None,
    mechanism: LocalMechanism = "kary",
    form: Form = None,
) -> None:
    """Replace the answers in one column with randomised reports, and print their schema entry.

    The file is processed in parts, so it can be of any size.
    """
    from dpsql.local.column import count_rows, randomize_file  # late: it loads numpy, and --help waits for nothing

    listed = None if values is None else [value.strip() for value in values.split(",")]
    with counting_rows("randomising", count_rows(file)) as done:
        rows, entry = randomize_file(file, out, column, epsilon, mechanism, listed, done)
    publish(_randomized(rows, out, column, entry), form)


def _randomized(rows: int, out: Path, column: str, entry: dict[str, Any]) -> CommandReport:
    document = {"rows": rows, "out": str(out), "column": column, "schema": entry}
    lines = [f"{rows:,} answers randomised: {out}", "Add to the schema:", f"  {column}: {_flow(entry)}"]
    return CommandReport(document, ("rows", "out", "column"), [(rows, out, column)], "\n".join(lines))


def _flow(entry: dict[str, Any]) -> str:
    import yaml

    return str(
        yaml.safe_dump(entry, default_flow_style=True, sort_keys=False, width=10_000, allow_unicode=True)
    ).strip()
