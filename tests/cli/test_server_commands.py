"""`dpsql user` and the mistakes of `dpsql serve`, which need no server; tests/server/ has those that do."""

from __future__ import annotations

import stat
import time
from contextlib import suppress
from pathlib import Path

import pytest

from dpsql.cli.app import main
from dpsql.errors import Error
from dpsql.server.protocol import Refused
from dpsql.server.settings import folder_of, made, prepare, read_settings
from dpsql.server.statements import SessionSettings, copied, statements_of
from dpsql.server.users import ChargePolicy

SERVER = """
datasets:
  shop: {database: shop.duckdb, schema: shop.yaml, budget: 3, delta: 1e-6}
  clinic: {database: "postgresql://db/clinic", schema: clinic.yaml, ledger: clinic.ledger}
"""


def run(*arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0


def test_users_come_and_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    served = tmp_path / "server.yaml"
    served.write_text(SERVER)
    settings = read_settings(served)
    assert prepare(settings) is not None
    assert prepare(settings) is None
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder_of(str(served)).iterdir()} == {0o600}
    assert settings.datasets["shop"].database == str(tmp_path / "shop.duckdb")
    assert settings.datasets["clinic"].database == "postgresql://db/clinic"
    run("user", "add", str(served), "ada", "--charge", "up to 0.05", "--dataset", "shop")
    run("user", "passwd", str(served), "ada")
    first, second = (line.rpartition(" ")[2] for line in capsys.readouterr().out.splitlines())
    assert first != second
    assert len(second) >= 22
    run("user", "list", str(served))
    assert "ada     analyst   shop       up-to 0.05" in capsys.readouterr().out
    run("user", "revoke", str(served), "ada")
    assert "ada" not in settings.users.all()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["serve", "shop.duckdb"], "name the schema"),
        (["serve", "postgresql://db/shop", "--schema", "x.yaml"], "needs a server.yaml"),
        (["user", "list", "shop.duckdb"], "not served yet"),
    ],
)
def test_mistakes_name_a_way_out(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    said = capsys.readouterr().err
    assert says in said
    assert "hint:" in said


@pytest.mark.parametrize(
    "values",
    [
        {"datasets": {"Shop!": {"database": "a", "schema": "b"}}},
        {"datasets": {"shop": {"database": "a"}}},
        {"datasets": {"shop": {"database": "a", "schema": "b", "budgett": 1}}},
        {"datasets": {}, "tick": 0},
    ],
)
def test_wrong_settings_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(Error):
        made({"folder": "x", **values})


@pytest.mark.parametrize(
    ("sql", "kinds"),
    [
        ("SELECT 1", ["catalog"]),
        ("select count(*) from orders; show all;", ["query", "show"]),
        ("/* x */ BEGIN; SET a = ';'; COMMIT", ["no_op", "set", "no_op"]),
        ("EXPLAIN SELECT 1", ["explain"]),
        ("COPY (SELECT count(*) FROM orders) TO STDOUT (FORMAT csv)", ["query"]),
        ("COPY orders TO STDOUT", ["query"]),
        ("SELECT relname FROM pg_class", ["catalog"]),
        ("WITH pg_class AS (SELECT 1 AS x FROM orders) SELECT x FROM pg_class", ["query"]),
        ("-- nothing", []),
        ("", []),
    ],
)
def test_what_a_text_asks_for(sql: str, kinds: list[str]) -> None:
    assert [statement.kind for statement in statements_of(sql)] == kinds


def test_settings_of_a_session() -> None:
    settings = SessionSettings(ChargePolicy.parse("up-to 0.5"))
    for sql in (
        "SET dpsql.epsilon = 0.1",
        "SET SESSION dpsql.max_groups TO 3;",
        "set dpsql.charge = 'up-to 0.2'",
        "SET DateStyle TO 'ISO'",
        "SET TIME ZONE 'UTC'",
        "SET dpsql.accuracy = '5%'",
    ):
        assert settings.apply(sql) == "SET"
    assert settings.options == {"max_groups": 3, "accuracy": "5%"}
    assert str(settings.charge) == "up-to 0.2"
    assert settings.apply("RESET ALL") == "RESET"
    assert (settings.options, str(settings.charge)) == ({}, "up-to 0.5")


def test_copy_writes_what_postgresql_writes() -> None:
    (text,) = statements_of("COPY (SELECT 1) TO STDOUT")
    (csv,) = statements_of("COPY (SELECT 1) TO STDOUT WITH (FORMAT csv, DELIMITER ';')")
    assert text.copy is not None
    assert csv.copy is not None
    assert copied(["a\tb", None, "\\"], text.copy) == b"a\\tb\t\\N\t\\\\\n"
    assert copied(['say "x"', None, "", "a;b"], csv.copy) == b'"say ""x""";;"";"a;b"\n'


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + "(" * 12_000 + "1" + ")" * 12_000,
        "SELECT a" + ".b" * 14_000,
        "SET a = " + ";" * 90_000 + "x",
        "COPY (SELECT 1) TO STDOUT " + " " * 90_000 + "x",
        "/**/" * 24_000 + "SELECT 1",
        "x" * 200_000,
    ],
    ids=["deep", "dots", "set", "copy", "comments", "long"],
)
def test_no_text_takes_long_to_read(sql: str) -> None:
    """The front serves everybody: one text may not keep it from others."""

    def read() -> None:
        with suppress(Refused):
            for statement in statements_of(sql):
                if statement.kind == "set":
                    SessionSettings(ChargePolicy.parse("ask")).apply(statement.sql)

    start = time.process_time()
    read()
    assert time.process_time() - start < 10
