"""All commands of `dpsql`, and how each one ends: with a report and 0, or with an error and its code."""

import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dpsql.cli.budget import budget_app
from dpsql.cli.output import FAILED, after_interrupt, exit_code, file_error, show_error, show_warning
from dpsql.cli.owner import check, disclose, init, ledger_app, verify_offline
from dpsql.cli.query import explain, query, shell
from dpsql.cli.server import serve, user_app
from dpsql.cli.tools import audit, certify, practice, randomize
from dpsql.errors import Error

STOPPED = {130: "Interrupted", 143: "Terminated"}
"""By Ctrl-C, which typer ends with without a word, and by SIGTERM."""
# Plain help and plain tracebacks: the same on every terminal, and in docs/cli.md.
app = typer.Typer(
    name="dpsql",
    epilog="Exit codes: 0 success, 1 refused or failed, 2 usage error, 3 budget exhausted, 4 failed after the "
    "charge, 5 suspended, 130 interrupted, 143 terminated.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # late: what reads it takes a tenth of the time of --help

        print(f"dpsql {version('dpsql')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Ask SQL questions about people, and learn (almost) nothing about any one of them."""


@app.command()
def demo(
    save: Annotated[
        Path | None,
        typer.Option(
            "--save", metavar="<folder>", help="Write the shop and its schema to this folder and run no queries."
        ),
    ] = None,
) -> None:
    """Run private queries on a made-up shop."""
    from dpsql.demo import main as run_demo
    from dpsql.demo import save_shop

    if save is None:
        run_demo()
    else:
        print(save_shop(save))


app.command(context_settings={"allow_extra_args": True})(init)
app.command()(check)
app.command()(audit)
app.command()(practice)
app.command()(certify)
app.command()(randomize)
app.command()(query)
app.command()(explain)
app.command()(shell)
app.command()(disclose)
app.command("verify")(verify_offline)
app.command()(serve)
app.add_typer(user_app, name="user")
app.add_typer(budget_app, name="budget")
app.add_typer(ledger_app, name="ledger")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; without arguments, that of the process."""
    if arguments is not None:
        _run(list(arguments))
        return
    # Else pydantic reads what every installed package says of itself, in search of plugins: they are none of ours.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # Else numpy starts threads for linear algebra, of which there is little here; they keep busy while they wait.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _run(sys.argv[1:])


def _run(given: list[str]) -> None:
    warnings.showwarning = lambda message, *_, **__: show_warning(message)
    try:
        try:
            app(given, prog_name="dpsql")
        finally:
            sys.stdout.flush()
    except Error as problem:
        show_error(problem, as_json="--json" in given)
        sys.exit(exit_code(problem))
    except SystemExit as ended:
        if ended.code in STOPPED:
            print(f"{STOPPED[int(ended.code)]}.{after_interrupt(ended, 'dpsql budget')}", file=sys.stderr)
        raise
    except BrokenPipeError:  # whoever reads has seen enough, as in `dpsql demo | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as problem:  # a folder that is not there, a file that may not be read or written
        show_error(file_error(problem), as_json="--json" in given)
        sys.exit(FAILED)
