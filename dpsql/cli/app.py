"""All commands of `dpsql`, and the way out of each: a report and 0, or an error and its code."""

import sys
from collections.abc import Sequence

import typer

from dpsql.cli.accounts import budget, ledger_app
from dpsql.cli.audit import audit
from dpsql.cli.errors import exit_code, show_error
from dpsql.cli.questions import explain, query, shell
from dpsql.cli.randomize import randomize
from dpsql.cli.schemas import check, init
from dpsql.errors import Error

# Plain help and plain tracebacks: the same on every terminal, and in docs/cli.md.
app = typer.Typer(
    name="dpsql",
    help="Ask SQL questions about people, and learn (almost) nothing about any one of them.",
    epilog="Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 budget exhausted, 4 failed after the charge, "
    "5 suspended.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
)


@app.command()
def demo() -> None:
    """Watch a made-up shop being asked private questions."""
    from dpsql.demo.ask import main as run_demo

    run_demo()


app.command()(init)
app.command()(check)
app.command()(audit)
app.command()(randomize)
app.command()(query)
app.command()(explain)
app.command()(shell)
app.command()(budget)
app.add_typer(ledger_app, name="ledger")


def main(arguments: Sequence[str] | None = None) -> None:
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        app(given, prog_name="dpsql")
    except Error as problem:
        show_error(problem, as_json="--json" in given)
        sys.exit(exit_code(problem))
