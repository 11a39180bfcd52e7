"""A PostgreSQL of our own for the tests: in a temporary directory, reached by a socket there and by nothing else.

PostgreSQL refuses to run as root, so root starts it as the user that Debian's package makes. Its texts are sorted as in
English by default, so that whatever forgets to compare by code points shows.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

SERVER_USER, OWNER = "postgres", "owner"


def missing() -> str | None:
    """Why there can be no cluster here."""
    return "PostgreSQL is not installed; `make engines` installs it" if programs() is None else None


def programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    elsewhere = shutil.which("initdb")
    return Path(elsewhere).parent if elsewhere else None


@contextmanager
def cluster() -> Iterator[str]:
    """The URL of its empty database, which belongs to OWNER."""
    with restartable_cluster() as (url, _):
        yield url


@contextmanager
def restartable_cluster() -> Iterator[tuple[str, Callable[..., None]]]:
    """The same, and its pg_ctl."""
    own = tempfile.mkdtemp(prefix="dpsql_pg_")
    before: list[str] = []
    if os.geteuid() == 0:
        user = pwd.getpwnam(SERVER_USER)
        os.chown(own, user.pw_uid, user.pw_gid)
        before = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]
    data = f"{own}/data"

    def run(program: str, *arguments: str) -> None:
        command = [*before, str((programs() or Path()) / program), *arguments]
        subprocess.run(command, check=True, cwd=own, stdout=subprocess.DEVNULL, timeout=120)

    english = ["--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en"]
    run("initdb", "-D", data, "-U", OWNER, "-A", "trust", "-E", "UTF8", "--no-sync", *english)
    options = f"-c listen_addresses='' -c unix_socket_directories={own} -c fsync=off -c shared_buffers=32MB"

    def control(*arguments: str) -> None:
        run("pg_ctl", "-D", data, "-w", "-l", f"{own}/log", "-o", options, *arguments)

    control("start")
    try:
        yield f"postgresql://{OWNER}@/postgres?host={own}", control
    finally:
        control("-m", "immediate", "stop")
        shutil.rmtree(own, ignore_errors=True)
