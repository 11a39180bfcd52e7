"""`dpsql serve` and `dpsql user`: the owner's commands around the server."""

from pathlib import Path
from typing import Annotated, Any

import typer

from dpsql.cli.output import show_warning
from dpsql.errors import ProgrammingError
from dpsql.listing import Listing

Served = Annotated[
    str, typer.Argument(metavar="SERVED", help="The database, or a server.yaml; the same as for dpsql serve.")
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The user's name, which the ledger records.")]

user_app = typer.Typer(no_args_is_help=True, help="Who may sign in to a server, and what their queries may cost.")


def serve(
    served: Annotated[
        str,
        typer.Argument(metavar="SERVED", help="A DuckDB, Parquet or CSV file, or a server.yaml with several datasets."),
    ],
    schema: Annotated[Path | None, typer.Option("--schema", help="The schema, where a database is served.")] = None,
    budget: Annotated[float | None, typer.Option("--budget", help="The epsilon for all queries; set once.")] = None,
    delta: Annotated[float | None, typer.Option("--delta", help="The delta of --budget, such as 1e-6.")] = None,
    ledger: Annotated[str | None, typer.Option("--ledger", help="The ledger; by default next to the database.")] = None,
    host: Annotated[str | None, typer.Option("--host", help="The address to listen on; by default 127.0.0.1.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", help="The port for PostgreSQL clients; by default 5433.")
    ] = None,
    https_port: Annotated[int | None, typer.Option("--https-port", help="The port for HTTPS; by default 8433.")] = None,
    timeout: Annotated[float | None, typer.Option("--timeout", help="Stop a query after so many seconds; 60.")] = None,
) -> None:
    """Serve datasets to analysts: they get SQL, never the data. Stop with Ctrl-C.

    The first run makes an owner's password and a certificate, and prints how to connect.
    """
    from dpsql.server.serve import serve as run_server  # late: --help waits for none of it
    from dpsql.server.settings import made, prepare, read_settings

    given: dict[str, Any] = {"host": host, "postgres_port": port, "https_port": https_port, "timeout": timeout}
    given = {name: value for name, value in given.items() if value is not None}
    if served.endswith((".yaml", ".yml")):
        if schema is not None or budget is not None or delta is not None or ledger is not None:
            raise typer.BadParameter("a server.yaml names schema, budget, delta and ledger of each dataset")
        settings = read_settings(Path(served), **given)
    else:
        settings = made(_one_dataset(served, schema, budget, delta, ledger) | given)
    password = prepare(settings)
    if password is not None:
        print(f"owner's password, shown once: {password}")
    run_server(settings, lambda ready: _announce(settings, ready, served))


def _one_dataset(
    served: str, schema: Path | None, budget: float | None, delta: float | None, ledger: str | None
) -> dict[str, Any]:
    from dpsql.server.settings import dataset_name, folder_of

    if schema is None:
        raise ProgrammingError("name the schema of the database", hint=f"dpsql serve {served} --schema shop.yaml")
    dataset = {"database": served, "schema": str(schema), "budget": budget, "delta": delta, "ledger": ledger}
    return {"datasets": {dataset_name(served): dataset}, "folder": str(folder_of(served))}


def _announce(settings: Any, ready: dict[str, Any], served: str) -> None:
    for name in settings.datasets:
        print(f"PostgreSQL: psql 'host={settings.host} port={ready['postgres_port']} dbname={name} user=NAME'")
        if ready["https_port"] is not None:
            print(f"HTTPS:      https://{settings.host}:{ready['https_port']}/{name}/query")
    print(f"add analysts: dpsql user add {served} NAME")
    if not ready["is_confined"]:
        show_warning("this system cannot confine the process that faces the network; see docs/server.md")


# -- users -------------------------------------------------------------------------------------------------------------


@user_app.command()
def add(
    served: Served,
    name: Name,
    charge: Annotated[
        str, typer.Option("--charge", help="What one query may cost: ask, free-only, or 'up-to 0.05'.")
    ] = "ask",
    dataset: Annotated[
        list[str] | None, typer.Option("--dataset", help="A dataset that the user may ask; by default all.")
    ] = None,
) -> None:
    """Add an analyst and print the password, which is stored nowhere."""
    print(f"password, shown once: {_users(served).add(name, 'analyst', tuple(dataset or ()), charge)}")


@user_app.command(name="list")
def list_users(served: Served) -> None:
    """List users, with their datasets, charge policies and tokens."""
    names = ("name", "role", "datasets", "charge", "tokens")
    users = _users(served).all().values()
    rows = [
        (
            user.name,
            user.role,
            ", ".join(user.datasets),
            user.charge,
            ", ".join(f"{token.number} of {token.made}" for token in user.tokens),
        )
        for user in users
    ]
    print(Listing("Users", names, tuple(rows)))


@user_app.command()
def passwd(served: Served, name: Name) -> None:
    """Give a user a new password and print it."""
    print(f"password, shown once: {_users(served).renew(name)}")


@user_app.command()
def token(served: Served, name: Name) -> None:
    """Issue a token for the HTTP API and print it."""
    print(f"token, shown once: {_users(served).issue(name)}")


@user_app.command()
def revoke(
    served: Served,
    name: Name,
    number: Annotated[int | None, typer.Option("--token", help="Only this token; by default the whole login.")] = None,
) -> None:
    """Revoke a login, or one of its tokens. What it spent stays in the ledger."""
    _users(served).revoke(name, number)
    print(f"revoked: {name}" + (f", token {number}" if number is not None else ""))


def _users(served: str) -> Any:
    from dpsql.server.settings import folder_of, read_settings
    from dpsql.server.users import Users

    if served.endswith((".yaml", ".yml")):
        return read_settings(Path(served)).users
    path = folder_of(served) / "users.json"
    if not path.exists():
        raise ProgrammingError(f"{served} is not served yet", hint=f"dpsql serve {served} --schema ...")
    return Users(path)
