"""A server of our own on loopback: a small shop, an owner, and analysts with different charge policies."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
import yaml

from dpsql.server.serve import Child, children_of
from dpsql.server.settings import ServerSettings, made, prepare

USERS = {"ada": "up-to 0.05", "bob": "up-to 0.05", "tool": "ask", "guest": "free-only"}


@dataclass
class Running:
    """A server that runs, and how to connect to it."""

    settings: ServerSettings
    children: list[Child]
    passwords: dict[str, str]

    @property
    def port(self) -> int:
        return int(self.children[-1].ready["postgres_port"])

    def where(self, user: str = "ada", **more: Any) -> dict[str, Any]:
        password = self.passwords[user]
        return {"host": "127.0.0.1", "port": self.port, "user": user, "password": password, **more}

    def connect(self, user: str = "ada", **more: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(**self.where(user, dbname="shop", autocommit=True, **more))

    def psql(self, *commands: str, user: str = "ada", extra: str = "") -> subprocess.CompletedProcess[str]:
        where = f"host=127.0.0.1 port={self.port} dbname=shop user={user} sslmode=require {extra}"
        given = [part for command in commands for part in ("-c", command)]
        environment = {"PGPASSWORD": self.passwords[user], "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
        return subprocess.run(
            ["psql", "-X", "-At", where, *given], env=environment, capture_output=True, text=True, timeout=60
        )


@contextmanager
def running(
    folder: Path,
    schema: dict[str, Any],
    database: duckdb.DuckDBPyConnection,
    account: dict[str, Any] | None = None,
    **more: Any,
) -> Iterator[Running]:
    """A server of a copy of this database."""
    path = folder / "shop.duckdb"
    database.execute(f"ATTACH '{path}' AS copy")
    for table in schema["tables"]:
        database.execute(f"CREATE TABLE copy.{table} AS FROM {table}")
    database.execute("DETACH copy")
    (folder / "shop.yaml").write_text(yaml.safe_dump(schema), encoding="utf-8")
    budget = {"budget": 20, "delta": 1e-6, **(account or {})}
    dataset = {"database": str(path), "schema": str(folder / "shop.yaml"), **budget}
    ports = {"postgres_port": 0, "https_port": 0, "tick": 0.01}
    settings = made({"datasets": {"shop": dataset}, "folder": str(folder / "server"), **ports, **more})
    passwords = {"owner": prepare(settings) or ""}
    passwords |= {name: settings.users.add(name, "analyst", (), charge) for name, charge in USERS.items()}
    children = children_of(settings)
    try:
        for child in children:
            child.start()
        yield Running(settings, children, passwords)
    finally:
        for child in reversed(children):
            child.ask_to_end()
        for child in reversed(children):
            child.end(20)


@pytest.fixture(scope="session")
def server(
    tmp_path_factory: pytest.TempPathFactory, small_shop: Any, small_shop_schema: dict[str, Any]
) -> Iterator[Running]:
    """One server for all tests that leave it as it is."""
    with small_shop() as database, running(tmp_path_factory.mktemp("served"), small_shop_schema, database) as found:
        yield found


@pytest.fixture
def conn(server: Running) -> Iterator[psycopg.Connection[Any]]:
    with server.connect() as connection:
        yield connection
