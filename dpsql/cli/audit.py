"""`dpsql audit`: does the schema keep its promise, on people who are made up?"""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from dpsql.audit import DELTA, RUNS
from dpsql.cli.options import Form
from dpsql.cli.output import Report, counting, publish, table
from dpsql.cli.schemas import SchemaArgument
from dpsql.errors import OperationalError

if TYPE_CHECKING:
    from dpsql.audit.audit import Audited

Questions = Annotated[
    list[str] | None,
    typer.Argument(metavar="[SQL]...", help="The questions; some for every table and column if there are none."),
]
AuditEpsilon = Annotated[float, typer.Option("--epsilon", help="What each question claims to cost.")]
AuditDelta = Annotated[float, typer.Option("--delta", help="A large one, so that an audit can see it.")]
Runs = Annotated[int, typer.Option("--runs", min=1000, help="How often each question is answered with noise.")]
Seed = Annotated[int, typer.Option("--seed", help="Other numbers make up other people.")]

NAMES = ("question", "claimed", "certain", "neighbours", "finding")


def audit(
    schema: SchemaArgument,
    sql: Questions = None,
    epsilon: AuditEpsilon = 1.0,
    delta: AuditDelta = DELTA,
    runs: Runs = RUNS,
    seed: Seed = 0,
    form: Form = None,
) -> None:
    """Try questions on made-up people: nobody may move an answer further, or lose more, than is claimed.

    No data is read. Exit code 1 if a claim is broken.
    """
    # Late: they load the pipeline, and --help does not wait for it.
    from dpsql.audit.audit import Auditor, default_questions
    from dpsql.audit.synthesize import made_up_worlds
    from dpsql.schema import load_schema

    loaded = load_schema(schema)
    questions = sql or default_questions(loaded)
    with counting("auditing", len(questions)) as done:
        found = Auditor(loaded, made_up_worlds(loaded, seed), epsilon, delta, runs).audit(questions, done)
    publish(_report(found), form)
    broken = [part for part in found if part.broken]
    if broken:
        raise OperationalError(
            f"{len(broken)} of {len(found)} releases break a claim",
            hint="do not answer such questions; tell the makers of dpsql, with this report and the schema",
        )


def _report(found: "list[Audited]") -> Report:
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
        "epsilon is certainly lost up to `certain`, but for one audit in a million; more than `claimed` is a violation"
    )
    return Report(document, NAMES, rows, table(NAMES, rows, numbers=(False, True, True, True)), note)


def _finding(part: "Audited") -> str:
    if part.refused is not None:
        return f"refused: {part.refused}"
    if part.violations:
        return "; ".join(part.violations)
    return "more is lost than claimed" if part.broken else "as claimed"
