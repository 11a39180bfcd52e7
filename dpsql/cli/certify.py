"""`dpsql certify`: does an engine give what DuckDB gives?"""

from collections import Counter
from typing import Annotated

import typer

from dpsql.cli.options import Form
from dpsql.cli.output import Report, counting, publish, table
from dpsql.errors import OperationalError

EngineUrl = Annotated[
    str, typer.Option("--engine", metavar="<url>", help="postgresql://user@host/database or sc://host:15002.")
]
Every = Annotated[int, typer.Option("--every", min=1, help="Ask one question in so many; all if not given.")]
NAMES = ("topic", "equal", "refused", "different", "failed")


def certify(engine: EngineUrl, every: Every = 1, form: Form = None) -> None:
    """Ask an engine all questions of the tests, of made-up rows, and compare its exact numbers with DuckDB's.

    It makes schemas (Spark: databases) called dpsql_certify_..., and drops them. Exit code 1 if an answer differs or a
    row makes a question fail, or if fewer than nine questions in ten can be written.
    """
    from dpsql.certify.certify import Certifier, passes

    with Certifier(engine) as certifier:
        asked = certifier.questions(every)
        with counting("certifying", len(asked)) as done:
            found = certifier.certify(asked, done)
    counts = Counter[tuple[str, str]]((part.question.topic, part.outcome) for part in found)
    rows = [
        (topic, *(counts[topic, outcome] for outcome in NAMES[1:]))
        for topic in dict.fromkeys(part.question.topic for part in found)
    ]
    document = {
        "certified": passes(found),
        "questions": [{"sql": part.question.sql, "outcome": part.outcome, "reason": part.reason} for part in found],
    }
    totals = ", ".join(f"{sum(part.outcome == name for part in found)} {name}" for name in NAMES[1:])
    publish(Report(document, NAMES, rows, table(NAMES, rows, numbers=(False, True, True, True, True)), totals), form)
    wrong = [part for part in found if part.outcome in ("different", "failed")]
    if not passes(found):
        first = f"; the first: {wrong[0].question.sql}: {wrong[0].reason}" if wrong else ""
        raise OperationalError(
            f"{len(wrong)} of {len(found)} questions are answered otherwise than by DuckDB{first}",
            hint="do not use this engine; tell the makers of dpsql, with --json and the engine's version",
        )
