"""Nobody gets where they don't belong: before and after the password, by the protocol, and in a process taken over."""

from __future__ import annotations

import asyncio
import json
import os
import random
import runpy
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dpsql.server.channel import Link
from dpsql.server.confine import version
from dpsql.server.scram import Exchange, Verifier
from dpsql.server.serve import children_of
from dpsql.server.settings import made
from dpsql.server.users import FREE_TRIES, ChargePolicy, Throttle, Users

pytestmark = pytest.mark.server
FUZZED = 400


def startup(**parameters: str) -> bytes:
    body = b"".join(f"{name}\0{value}\0".encode() for name, value in parameters.items()) + b"\0"
    return struct.pack("!ii", len(body) + 8, 196608) + body


@pytest.fixture
def raw(server: Any) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as opened:
        yield opened


def heard(opened: socket.socket) -> bytes:
    """Everything until the server ends the connection, or says no more."""
    found = b""
    opened.settimeout(1)
    with suppress(OSError):
        while part := opened.recv(65536):
            found += part
    return found


# -- before the password -----------------------------------------------------------------------------------------------


def test_no_statement_is_read_before_the_password(raw: socket.socket) -> None:
    raw.sendall(startup(user="ada", database="shop") + b"Q" + struct.pack("!i", 13) + b"SELECT 1\0")
    said = heard(raw)
    assert b"SCRAM-SHA-256" in said
    assert b"08P01" in said
    assert b"SELECT" not in said


def test_what_comes_before_the_handshake_is_refused(raw: socket.socket) -> None:
    """CVE-2021-23214: it would count as said within TLS."""
    raw.sendall(struct.pack("!ii", 8, 80877103) + startup(user="ada", database="shop"))
    assert b"data before the handshake" in heard(raw)


def test_replies_before_the_password_do_not_pile_up(raw: socket.socket) -> None:
    """A client that does not read them would make the server wait, and send more before the handshake meanwhile."""
    raw.sendall(struct.pack("!ii", 8, 80877104) * 2)
    assert b"comes twice" in heard(raw)


def test_wrong_passwords_and_unknown_names_look_the_same_and_are_throttled(server: Any) -> None:
    said = {}
    for name in ("bob", "nobody"):
        where = {**server.where("bob", dbname="shop", sslmode="require"), "password": "wrong", "user": name}
        found: list[str] = []
        while not found or "too many wrong passwords" not in found[-1]:  # on a busy machine a wait may be over
            assert len(found) < 4 * FREE_TRIES
            with pytest.raises(psycopg.OperationalError) as caught:
                psycopg.connect(**where)
            found.append(str(caught.value).replace(name, "NAME").split("failed:", 1)[1])
        assert len(found) > FREE_TRIES
        said[name] = found[0]
    assert said["bob"] == said["nobody"]
    assert "password authentication failed" in said["bob"]


def test_a_user_of_another_dataset_is_refused(server: Any) -> None:
    server.settings.users.add("eve", "analyst", ("clinic",), "ask")
    password = server.settings.users.renew("eve")
    where = {**server.where(), "user": "eve", "password": password, "dbname": "shop"}
    with pytest.raises(psycopg.OperationalError, match="there is no dataset"):
        psycopg.connect(**where)
    server.settings.users.revoke("eve")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(**where)


def test_a_throttle_waits_longer_each_time_and_forgets() -> None:
    throttle = Throttle()
    waits = []
    for _ in range(FREE_TRIES + 3):
        throttle.failed("ada", "10.0.0.1")
        waits.append(round(throttle.wait("ada", "10.0.0.1")))
    assert waits == [0, 0, 0, 0, 1, 2, 4, 8]
    assert throttle.wait("ada", "10.0.0.2") == 0
    throttle.succeeded("ada", "10.0.0.1")
    assert throttle.wait("ada", "10.0.0.1") == 0


# -- SCRAM -------------------------------------------------------------------------------------------------------------


def test_scram_gives_the_proof_of_the_rfc() -> None:
    """RFC 7677, section 3."""
    import base64
    import hashlib
    import hmac

    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    client = hmac.new(salted, b"Client Key", hashlib.sha256).digest()
    server = hmac.new(salted, b"Server Key", hashlib.sha256).digest()
    verifier = Verifier.from_text(Verifier(salt, 4096, hashlib.sha256(client).digest(), server).to_text())
    exchange = Exchange(verifier, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert exchange.challenge("n,,n=user,r=rOprNGfwEbeRWgbNEkqO").endswith(",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    final = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p="
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert exchange.verdict(final + proof) == "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert exchange.verdict(final + proof.replace("d", "e")) is None
    replayed = Exchange(verifier)
    replayed.challenge("n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    with pytest.raises(ValueError, match="another exchange"):
        replayed.verdict(final + proof)
    with pytest.raises(ValueError, match="bind"):
        Exchange(verifier).challenge("p=tls-unique,,n=user,r=abc")


def test_passwords_are_not_stored(tmp_path: Path) -> None:
    users = Users(tmp_path / "users.json")
    password = users.add("ada", "analyst", (), "up-to 0.1")
    text = users.path.read_text()
    assert password not in text
    assert stat.S_IMODE(users.path.stat().st_mode) == 0o600
    assert Users(users.path).get("ada").policy == ChargePolicy.parse("up to 0.1")
    assert users.verifier("nobody").salt == users.verifier("nobody").salt != users.verifier("somebody").salt


# -- processes ---------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(version() == 0, reason="this kernel has no Landlock")
def test_who_takes_over_the_front_reads_no_data(server: Any) -> None:
    """A process that is confined like the front tries the files, the network and the other processes."""
    database = server.settings.datasets["shop"].database
    code = f"""
import os, socket
from dpsql.server.confine import OWN, SYSTEM, confine, python_files
assert confine([*python_files(), *SYSTEM, *OWN, {server.settings.folder!r}], network=False)
open({str(Path(server.settings.folder) / "users.json")!r}).read()
def refused(what):
    try:
        what()
    except OSError:
        return
    raise SystemExit(f"reached: {{what.__code__.co_firstlineno}}")
refused(lambda: open({database!r}, "rb").read(1))
refused(lambda: open({database + ".ledger"!r}, "rb").read(1))
refused(lambda: open("/etc/passwd").read(1))
refused(lambda: open({str(Path(server.settings.folder) / "users.json")!r}, "a"))
refused(lambda: os.listdir("/"))
refused(lambda: socket.create_connection(("127.0.0.1", {server.port}), 1))
refused(lambda: open("/proc/{server.children[0].process.pid}/mem", "rb").read(1))
refused(lambda: open("/proc/{server.children[0].process.pid}/environ", "rb").read(1))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")
    assert server.children[-1].ready["is_confined"]


def test_the_front_does_not_hear_where_the_data_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor what else the supervisor knows: a password in an address, or in the environment."""
    monkeypatch.setenv("PGPASSWORD", "sekret")
    address = "postgresql://dpsql:sekret@db/shop"
    settings = made({"datasets": {"shop": {"database": address, "schema": "shop.yaml"}}, "folder": "/tmp/x"})
    worker, front = children_of(settings)
    assert "sekret" not in json.dumps([front.given, front.environment])
    assert "sekret" in json.dumps(worker.given)
    assert list(front.given["datasets"]) == ["shop"]


async def _begins_of_questions(tick: float) -> tuple[list[float], list[float]]:
    begun, ended = [], []

    class Recorded(Link):
        async def _sent(self, operation: str, analyst: str, given: dict[str, Any]) -> Any:
            begun.append(time.time())
            await asyncio.sleep(tick / 4)
            ended.append(time.time())

    link = Recorded("shop", Path("none"), tick)
    await asyncio.gather(*(link.ask("execute", "ada") for _ in range(4)))
    return begun, ended


def test_the_next_question_of_an_analyst_begins_at_a_tick() -> None:
    """Whoever sees when it begins does not see when the one before it ended."""
    tick = 0.1
    begun, ended = asyncio.run(_begins_of_questions(tick))
    for end, begin in zip(ended, begun[1:], strict=False):
        assert begin // tick > end // tick


def test_secrets_are_readable_by_their_owner_alone(server: Any) -> None:
    folder = Path(server.settings.folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {path.name for path in folder.iterdir()} == {"users.json", "server.key", "server.crt", "shop.socket"}
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())


def test_the_log_has_no_sql_no_value_and_no_secret(server: Any, pytestconfig: pytest.Config) -> None:
    captured = pytestconfig.pluginmanager.getplugin("capturemanager")
    captured.read_global_capture()
    with server.connect() as conn, suppress(psycopg.Error):
        conn.execute("SELECT count(*) FROM orders WHERE note = 'very private'")
        conn.execute("SELECT sekret FROM orders WHERE note = 'very private'")
    time.sleep(0.2)
    said = captured.read_global_capture().err
    lines = [json.loads(line) for line in said.splitlines()]
    assert {line["event"] for line in lines} == {"sign-in", "error"}
    assert not any(word in said for word in ("private", "sekret", "orders", *server.passwords.values()))


def test_answers_leave_at_a_tick(tmp_path: Path, small_shop: Any, small_shop_schema: dict[str, Any]) -> None:
    """And a worker that is killed is started again by the supervisor; its dataset says so meanwhile."""
    running = runpy.run_path(str(Path(__file__).with_name("conftest.py")))["running"]

    with (
        small_shop() as database,
        running(tmp_path, small_shop_schema, database, tick=0.3) as server,
        server.connect() as conn,
    ):
        for sql in ("SELECT count(*) FROM orders", "SELECT count(*) FROM orders", "EXPLAIN SELECT 1 FROM orders"):
            with suppress(psycopg.Error):
                conn.execute(sql)
            assert time.time() % 0.3 < 0.2
        conn.execute("SET dpsql.epsilon = 0.05")
        asked, _ = conn.execute("SELECT NOW() AS asked, count(*) AS n FROM orders").fetchone() or ()
        times = [moment for (moment,) in conn.execute("SELECT time FROM dpsql.history")]
        assert len(times) > 1
        for moment in (asked, *times):
            told = datetime.fromisoformat(str(moment)).replace(tzinfo=None)
            assert not (told - datetime(1970, 1, 1)) % timedelta(seconds=0.3), (
                "or it would say when the answer before was ready"
            )
        worker = server.children[0]
        os.kill(worker.process.pid, signal.SIGKILL)
        worker.process.wait()
        with pytest.raises(psycopg.Error, match="is starting again"):
            conn.execute("SELECT count(*) FROM customers")
        while worker.has_ended:
            worker.start_again()
            time.sleep(0.1)
        assert conn.execute("SELECT count(*) AS n FROM orders").fetchall()


def test_exactly_what_is_affordable_is_answered(
    tmp_path: Path, small_shop: Any, small_shop_schema: dict[str, Any]
) -> None:
    """Twenty ask at once, over a budget for twelve questions; what was paid for is free for everybody."""
    running = runpy.run_path(str(Path(__file__).with_name("conftest.py")))["running"]
    account = {"budget": 0.6, "delta": 0, "composition": "basic"}
    answers: list[str] = []

    def ask(user: str, number: int) -> None:
        with server.connect(user) as conn, suppress(psycopg.Error):
            sql = f"SELECT count(*) FROM orders WHERE amount < {number}"
            conn.execute("SET dpsql.epsilon = 0.05")
            conn.execute(sql.encode())
            answers.append(sql)

    with small_shop() as database, running(tmp_path, small_shop_schema, database, account) as server:
        asking = [threading.Thread(target=ask, args=(("ada", "bob")[number % 2], number)) for number in range(100, 120)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        assert len(answers) == 12
        with server.connect("ada") as ada, server.connect("bob") as bob:
            mine = "SELECT sql FROM dpsql.history WHERE state = 'charged' AND sql LIKE 'SELECT count%'"
            charged = [sql for conn in (ada, bob) for (sql,) in conn.execute(mine)]
            assert sorted(charged) == sorted(answers)
            with pytest.raises(psycopg.errors.ConfigurationLimitExceeded):
                ada.execute("SELECT count(*) FROM orders WHERE amount < 99")
            ada.execute("SET dpsql.epsilon = 0.05")
            assert all(len(ada.execute(sql.encode()).fetchall()) == 1 for sql in answers)


def test_what_is_wrong_with_a_dataset_is_told_when_the_server_starts(tmp_path: Path) -> None:
    from dpsql.errors import OperationalError

    settings = made({"datasets": {"shop": {"database": "shop.csv", "schema": "shop.yaml"}}, "folder": str(tmp_path)})
    worker, _ = children_of(settings)
    with pytest.raises(OperationalError, match=r"shop\.yaml"):
        worker.start()
    assert worker.has_ended
    worker.end(1)


# -- protocol ----------------------------------------------------------------------------------------------------------


def test_broken_messages_end_one_connection_and_no_more(server: Any) -> None:
    """Random bytes at every place: before the password, and after it by whoever has one."""
    rng = random.Random("fuzz")
    for _ in range(FUZZED // 8):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as opened:
            whole = bytearray(startup(user="ada", database="shop") + b"p" + struct.pack("!i", 40) + rng.randbytes(36))
            for _ in range(rng.randrange(1, 6)):
                whole[rng.randrange(len(whole))] = rng.randrange(256)
            opened.sendall(bytes(whole[: rng.randrange(4, len(whole))]))
            opened.shutdown(socket.SHUT_WR)
            heard(opened)
    for _ in range(12):
        with server.connect(sslmode="disable") as conn:
            handle = socket.socket(fileno=os.dup(conn.fileno()))
            for _ in range(FUZZED // 12):
                body = rng.choice(BODIES) + rng.randbytes(rng.randrange(0, 12))
                handle.setblocking(True)
                with suppress(OSError):
                    handle.sendall(
                        rng.choice(b"PBDECHSQF").to_bytes(1, "big") + struct.pack("!i", len(body) + 4) + body
                    )
            handle.close()
            conn.close()
    with server.connect() as conn:
        assert conn.execute("SELECT 1").fetchone() == (1,)


BODIES = (
    b"",
    b"\0",
    b"SELECT 1\0",
    b"s\0SELECT $1\0\0\1\0\0\0\x17",
    b"\0s\0\0\1\0\1\0\1\0\0\0\4",
    b"Ss\0",
    b"P\0",
    b"\0\0\0\0\0",
)
