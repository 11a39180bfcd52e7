"""`dpsql practice`: made-up people for a schema, to develop questions on."""

from pathlib import Path
from typing import Annotated

import typer

from dpsql.cli.options import Form
from dpsql.cli.output import Report, publish
from dpsql.cli.schemas import SchemaArgument

Out = Annotated[Path, typer.Option("--out", help="The DuckDB file to write.")]
People = Annotated[int, typer.Option("--people", min=1, help="How many people to make up.")]
Seed = Annotated[int, typer.Option("--seed", help="Other numbers make up other people.")]


def practice(
    schema: SchemaArgument, out: Out = Path("practice.duckdb"), people: People = 1000, seed: Seed = 0, form: Form = None
) -> None:
    """Make up people for a schema, to develop questions on for free.

    No data is read: everything follows from the schema, and answers about these people mean nothing.
    """
    # Late: --help does not wait for the engine.
    from dpsql.engines.duckdb.practice import practice_database
    from dpsql.schema import load_schema

    loaded = load_schema(schema)
    practice_database(loaded, people, seed, str(out)).close()
    then = f"dpsql shell --db {out} --schema {schema} --budget 10 --delta 1e-6"
    text = f"wrote {out}: {people:,} made-up people\nthen: {then}"
    publish(Report({"database": str(out), "people": people}, ("database", "people"), [(out, people)], text), form)
