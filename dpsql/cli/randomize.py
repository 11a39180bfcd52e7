"""`dpsql randomize`: answers become reports before they leave, one file at a time."""

from pathlib import Path
from typing import Annotated, Any

import typer

from dpsql.cli.options import Form
from dpsql.cli.output import Report, counting_rows, publish

Source = Annotated[Path, typer.Argument(metavar="FILE", help="A Parquet or CSV file with answers.")]
Answers = Annotated[str, typer.Option("--column", help="The column whose answers are randomised.", show_default=False)]
ReportEpsilon = Annotated[
    float, typer.Option("--epsilon", help="What one report may tell: e^epsilon to 1.", show_default=False)
]
Out = Annotated[Path, typer.Option("--out", help="Where the file with reports is written.", show_default=False)]
Values = Annotated[
    str | None, typer.Option("--values", help="All answers that there can be, with commas; booleans need none.")
]
LocalMechanism = Annotated[
    str, typer.Option("--mechanism", help="kary, randomized_response, rappor, oue or subset; bits are whole numbers.")
]


def randomize(
    file: Source,
    column: Answers,
    epsilon: ReportEpsilon,
    out: Out,
    values: Values = None,
    mechanism: LocalMechanism = "kary",
    form: Form = None,
) -> None:
    """Replace the answers in one column by randomised reports, and say how a schema describes them.

    The file is read and written part by part, whatever its size.
    """
    from dpsql.local.stream_file import count_rows, randomize_file  # late: it loads numpy, and --help waits for nothing

    listed = None if values is None else [value.strip() for value in values.split(",")]
    with counting_rows("randomising", count_rows(file)) as done:
        rows, entry = randomize_file(file, out, column, epsilon, mechanism, listed, done)
    publish(_report(rows, out, column, entry), form)


def _report(rows: int, out: Path, column: str, entry: dict[str, Any]) -> Report:
    document = {"rows": rows, "out": str(out), "column": column, "schema": entry}
    lines = [f"{rows:,} answers randomised: {out}", "in the schema:", f"  {column}: {_flow(entry)}"]
    return Report(document, ("rows", "out", "column"), [(rows, out, column)], "\n".join(lines))


def _flow(entry: dict[str, Any]) -> str:
    import yaml

    return str(
        yaml.safe_dump(entry, default_flow_style=True, sort_keys=False, width=10_000, allow_unicode=True)
    ).strip()
