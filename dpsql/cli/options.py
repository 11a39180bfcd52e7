"""The options that commands share, their environment variables, and the session that they open."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar, cast

import typer

from dpsql.accounting.exact import exact
from dpsql.accounting.ledger.store import is_there
from dpsql.connection import Connection, connect
from dpsql.engines.registry import kind_of
from dpsql.errors import AccountSuspended, LedgerError, OperationalError, ProgrammingError, SchemaError
from dpsql.options import NUMBER, OPTIONS, QueryOptions

Sql: TypeAlias = Annotated[str, typer.Argument(metavar="SQL", help="The query; - reads it from stdin.")]
Database: TypeAlias = Annotated[
    str,
    typer.Option(
        "--db",
        envvar="DPSQL_DB",
        metavar="<path>",
        help="A DuckDB, Parquet or CSV file, postgresql://user@host/database or sc://host:15002.",
        show_default=False,
    ),
]
SchemaFile: TypeAlias = Annotated[
    Path, typer.Option("--schema", envvar="DPSQL_SCHEMA", help="The schema, a YAML file.", show_default=False)
]
BudgetEpsilon: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--budget",
        envvar="DPSQL_BUDGET",
        help="The epsilon for all queries together; set once, then kept in the ledger.",
    ),
]
BudgetDelta: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--delta", envvar="DPSQL_DELTA", help="The delta of --budget, such as 1e-6; a new ledger defaults to 0."
    ),
]
Analyst: TypeAlias = Annotated[
    str | None,
    typer.Option("--analyst", envvar="DPSQL_ANALYST", help="The analyst's name, where analysts have limits."),
]
LedgerFile: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        envvar="DPSQL_LEDGER",
        metavar="<path>",
        help="The ledger, a file or postgresql://...; by default a file next to the database.",
    ),
]
Timeout: TypeAlias = Annotated[
    float | None,
    typer.Option("--timeout", envvar="DPSQL_TIMEOUT", help="Stop a query after this many seconds; its charge stands."),
]
Form: TypeAlias = Annotated[
    bool | None,
    typer.Option("--json/--csv", help="Print JSON (errors included) or CSV, for programs.", show_default=False),
]
"""True is JSON, False is CSV, None is for people."""
VARIABLES = {"epsilon": "DPSQL_EPSILON"}
"""The query options that environment variables can set."""


def _number(text: str) -> str:
    """The text as written, so that 1/3 stays a third."""
    try:
        exact(text)
        return text
    except ProgrammingError as error:
        problem = typer.BadParameter(error.problem)
    raise problem


Command = TypeVar("Command", bound=Callable[..., None])


def with_query_options(command: Command) -> Command:
    """Replaces the command's `**options` by all options of `execute`, as texts that `read_texts` parses."""
    signature = inspect.signature(command, eval_str=True)
    *own, _ = signature.parameters.values()
    added = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                bool | None if option.metavar is None else str | None,
                typer.Option(
                    f"{option.flag}/{option.off}" if option.off else option.flag,
                    envvar=VARIABLES.get(name),
                    metavar=option.metavar,
                    help=option.help,
                    parser=_number if option.metavar == NUMBER else None,
                ),
            ],
        )
        for name, option in OPTIONS.items()
    ]
    command.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    return command


def read_texts(given: Mapping[str, str | bool | None]) -> QueryOptions:
    """The options of `execute` that were given on the command line."""
    read = {name: OPTIONS[name].parse(text) if isinstance(text, str) else text for name, text in given.items()}
    return cast("QueryOptions", read)


def open_session(
    database: str,
    schema: Path,
    *,
    budget: float | None,
    delta: float | None,
    ledger: str | None,
    analyst: str | None,
    timeout: float | None = None,
) -> Connection:
    """The analyst opens the files here, and whether they match the schema may depend on one row. So there is
    one message for all errors. `dpsql check`, for the owner, gives the details.
    """
    from dpsql.schema import load_schema

    loaded = load_schema(schema)
    account = ledger_path(database, ledger)
    kind = kind_of(database)
    there = kind.is_url(database) or Path(database).exists()
    if budget is None and there and not is_there(account):
        raise LedgerError(f"{account} has no budget yet", hint="set the total budget: --budget 1.0 --delta 1e-6")
    private = kind.reads_rows(database)
    try:
        return connect(
            database,
            schema=loaded,
            budget=budget,
            delta=delta,
            ledger=account,
            analyst=analyst,
            timeout=timeout,
        )
    except (OperationalError, SchemaError) as problem:
        if not private or isinstance(problem, LedgerError | AccountSuspended):
            raise
    raise OperationalError(
        f"{database} does not match {schema}",
        hint=f"the data owner can find out why with:  dpsql check {schema} {database}",
    )


def ledger_path(database: str | None, ledger: str | None) -> str:
    if ledger is not None:
        return ledger
    if database is None:
        raise typer.BadParameter("name the database or its ledger", param_hint="'--db' / '--ledger'")
    from dpsql.session import default_ledger  # late: it loads the parser and the engine, and --help waits for neither

    return default_ledger(database)
