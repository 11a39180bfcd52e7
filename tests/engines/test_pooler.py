"""Through pgbouncer in transaction mode: whoever asks next gets the same process of the server."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import dpsql
from dpsql.accounting.ledger.ledger import Ledger

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed; pip install dpsql[postgres]")
SCHEMA: dict[str, Any] = {
    "dataset": "clinic",
    "contribution": {"max_groups": 1, "max_rows_per_group": 1},
    "tables": {"pooled.people": {"unit": "id", "columns": {"id": "integer"}}},
}
QUESTION = "SELECT COUNT(*) FROM pooled.people"
CONFIGURATION = """
[databases]
postgres = host={place} dbname=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = {mode}
default_pool_size = {size}
logfile = {folder}/log
"""


@contextmanager
def pooler(url: str, mode: str, size: int) -> Iterator[str]:
    """The URL of a pooler on loopback, with so many processes of the server."""
    if (program := shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")) is None:
        pytest.skip("pgbouncer is not installed; `make engines` installs it")
    (place,) = parse_qs(urlsplit(url).query)["host"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="dpsql_pool_") as folder:
        Path(folder, "users").write_text('"owner" ""\n')
        settings = CONFIGURATION.format(place=place, port=port, folder=folder, mode=mode, size=size)
        Path(folder, "pooler.ini").write_text(settings)
        before: list[str] = []
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            before = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]
            for path in (folder, *Path(folder).iterdir()):
                os.chown(path, user.pw_uid, user.pw_gid)
        command = [*before, program, "-q", f"{folder}/pooler.ini"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                for _ in range(200):
                    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                        break
                    time.sleep(0.02)
                yield f"postgresql://owner@127.0.0.1:{port}/postgres"
            finally:
                process.terminate()


@pytest.fixture(scope="module")
def people(postgresql_url: str) -> str:
    with psycopg.connect(postgresql_url, autocommit=True) as connection:
        connection.execute("""
            DROP SCHEMA IF EXISTS pooled CASCADE; CREATE SCHEMA pooled; CREATE TABLE pooled.people (id BIGINT);
            INSERT INTO pooled.people SELECT generate_series(1, 50)
        """)
    return postgresql_url


def connect(url: str) -> dpsql.Connection:
    return dpsql.connect(url, schema=SCHEMA, budget=1e12, query_epsilon=1e9, ledger=":memory:")


@pytest.mark.parametrize("size", [1, 2])
def test_questions_are_answered_and_leave_nothing_behind(people: str, size: int) -> None:
    """Two sessions, and somebody whose settings stay as they were, on one or two processes of the server."""
    settings = "SELECT setting FROM pg_settings WHERE name IN ('search_path', 'enable_nestloop', 'jit') ORDER BY name"
    with pooler(people, "transaction", size) as url, ExitStack() as stack:
        stranger = stack.enter_context(psycopg.connect(url, autocommit=True, prepare_threshold=None))
        before = stranger.execute(settings).fetchall()
        ours = [stack.enter_context(connect(url)) for _ in range(2)]
        for number in range(8):
            for connection in ours:
                ((count,),) = connection.execute(f"{QUESTION} WHERE id > {number}").fetchall()
                assert round(count) == 50 - number
                assert stranger.execute(settings).fetchall() == before
        stranger.execute("SET search_path = pooled; SET standard_conforming_strings = off; SET TimeZone = 'Asia/Tokyo'")
        assert round(ours[0].execute(QUESTION, fresh=True).fetchall()[0][0]) == 50


@pytest.mark.parametrize("act", [lambda url: Ledger.open(url, dataset="shop", epsilon=1), Ledger.at])
def test_a_ledger_needs_sessions_of_its_own(people: str, act: Callable[[str], Ledger]) -> None:
    shared = pytest.raises(dpsql.LedgerError, match="a pooler that shares sessions")
    with pooler(people, "transaction", 3) as url, shared:
        act(f"{url}?schema=pooled_ledger")
    with pooler(people, "session", 5) as url:
        ledger = Ledger.open(f"{url}?schema=pooled_ledger", dataset="shop", epsilon=1)
        assert ledger.verify().entries == 1
        ledger.close()
