"""The record signed: docs/proofs/ledger.md, "Seals". What a forger or a restored backup changes is noticed."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.accounting.events import PureRelease
from dpsql.accounting.ledger import seal
from dpsql.accounting.ledger.declaration import Declaration
from dpsql.accounting.ledger.ledger import Ledger
from dpsql.cli.app import main
from dpsql.errors import LedgerError, OperationalError
from tests.accounting.test_ledger_chain import reseal, tamper

TENTH = PureRelease(Fraction(1, 10))
DECLARED = Declaration.of({"orders": {"unit": "customer"}}, "f00d")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    private = tmp_path_factory.mktemp("keys") / "owner.key"
    return private, seal.make_key(private)


@pytest.fixture(params=["file", "server"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    where = str(tmp_path / "shop.ledger")
    if request.param == "server":
        where = f"{request.getfixturevalue('postgresql_url')}&schema=seals_{random.SystemRandom().getrandbits(32):x}"
    made = Ledger.open(where, dataset="shop", epsilon=1, analyst="ada", declared=DECLARED)
    ask(made, 3)
    yield made
    made.close()


def ask(ledger: Ledger, times: int) -> None:
    for _ in range(times):
        charge = ledger.charge(TENTH, sql="SELECT 1", fingerprint="f", epsilon="0.1")
        ledger.released(charge)
        ledger.release(charge)


def test_what_is_sealed_verifies_and_what_follows_is_not_yet(ledger: Ledger, keys: tuple[Path, Path]) -> None:
    private, public = keys
    assert ledger.verify(key=public).sealed == 0
    assert ledger.seal(private) == ledger.seal(private) == 7
    ask(ledger, 1)
    report = ledger.verify(key=public)
    assert (report.entries, report.sealed) == (9, 7)
    assert ledger.seal(private) == 9
    assert "sealed up to entry 9" in str(ledger.verify(key=public))


def test_a_head_noted_elsewhere_is_found(ledger: Ledger) -> None:
    head = ledger.verify().head
    ask(ledger, 2)
    assert ledger.verify(head).noted == 7
    assert "the noted head is entry 7" in str(ledger.verify(f" {head.upper()}\n"))
    with pytest.raises(LedgerError, match="does not contain the head that was noted elsewhere"):
        ledger.verify("0" * 64)


def test_receipts_and_exports_verify_offline(ledger: Ledger, keys: tuple[Path, Path], tmp_path: Path) -> None:
    private, public = keys
    receipt, export = tmp_path / "receipt.json", tmp_path / "audit.jsonl"
    receipt.write_text(json.dumps(ledger.receipt(2)))
    with pytest.raises(LedgerError, match="entry 2 is not sealed yet"):
        seal.verify_file(receipt, seal.public_key(public))
    assert "not sealed" in str(seal.verify_file(receipt, None))
    ledger.seal(private)
    receipt.write_text(json.dumps(ledger.receipt(2)))
    export.write_text("\n".join(ledger.export()))
    checked = seal.verify_file(receipt, seal.public_key(public))
    assert (checked.what, checked.dataset, checked.sealed) == ("entry 2", "shop", True)
    assert (checked.details["analyst"], checked.details["epsilon"], checked.details["sql"]) == ("ada", 0.1, "SELECT 1")
    audited = seal.verify_file(export, seal.public_key(public), ledger.verify().head)
    assert (audited.what, audited.head) == ("7 entries", ledger.verify().head)
    assert audited.details == {"charges": 3, "noted head is entry": 7, "sealed up to entry": 7, "schema": "f00d"}
    with pytest.raises(LedgerError, match="there is no entry 99"):
        ledger.receipt(99)


def test_any_change_to_a_receipt_or_an_export_is_found(keys: tuple[Path, Path], tmp_path: Path) -> None:
    """Each value of each line in turn, and each line left out."""
    private, public = keys
    ledger = Ledger.open(tmp_path / "shop.ledger", dataset="shop", epsilon=1, analyst="ada", declared=DECLARED)
    ask(ledger, 2)
    ledger.seal(private)
    key, file = seal.public_key(public), tmp_path / "changed"
    lines, receipt = [json.loads(line) for line in ledger.export()], ledger.receipt(2)
    ledger.close()

    def refuse(changed: list[object]) -> None:
        file.write_text("\n".join(map(json.dumps, changed)))
        with pytest.raises(LedgerError):
            seal.verify_file(file, key)

    for name in receipt["receipt"]:
        refuse([{**receipt, "receipt": {**receipt["receipt"], name: "7"}}])
    for name in ("previous", "signature"):
        refuse([{**receipt, name: "07"}])
    for number, line in enumerate(lines):
        refuse(lines[:number] + lines[number + 1 :])
        for name in line.keys() - {"columns", "entry"}:
            refuse([*lines[:number], {**line, name: "07"}, *lines[number + 1 :]])
        for place in range(len(line.get("entry", ()))):
            changed = [*line["entry"][:place], "7", *line["entry"][place + 1 :]]
            refuse([*lines[:number], {**line, "entry": changed}, *lines[number + 1 :]])


# -- forgers and backups -----------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path, keys: tuple[Path, Path]) -> Path:
    path = tmp_path / "shop.ledger"
    ledger = Ledger.open(path, dataset="shop", epsilon=1, analyst="ada")
    ask(ledger, 2)
    ledger.seal(keys[0])
    ledger.close()
    return path


def verified(path: Path, head: str | None = None, key: Path | None = None) -> int | None:
    ledger = Ledger.at(path)
    try:
        return ledger.verify(head, key).sealed
    finally:
        ledger.close()


def test_a_forger_who_computes_all_hashes_again_lacks_the_key(path: Path, keys: tuple[Path, Path]) -> None:
    reseal(path, 2, sql="SELECT 2")
    verified(path)
    with pytest.raises(LedgerError, match="entry 2 is not the one that was sealed"):
        verified(path, key=keys[1])


def test_seals_that_were_removed_or_made_by_another_key_are_noticed(
    path: Path, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    other = seal.make_key(tmp_path / "other.key")
    with pytest.raises(LedgerError, match="not by this key"):
        verified(path, key=other)
    ledger = Ledger.at(path)
    ask(ledger, 1)
    with pytest.raises(LedgerError, match="not by this key"):
        ledger.seal(tmp_path / "other.key")
    ledger.close()
    assert verified(path, key=keys[1]) == 5, "nothing was sealed by it"
    tamper(path, "DELETE FROM seals WHERE number = 3")
    with pytest.raises(LedgerError, match="the seal of entry 3 is missing"):
        verified(path, key=keys[1])


def test_a_restored_old_copy_is_noticed_by_the_head(path: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    shutil.copy(path, tmp_path / "backup")
    ledger = Ledger.at(path)
    ask(ledger, 3)
    head = ledger.verify().head
    ledger.close()
    shutil.copy(tmp_path / "backup", path)
    for left in ("-wal", "-shm"):
        Path(f"{path}{left}").unlink(missing_ok=True)
    assert verified(path, key=keys[1]) == 5, "all that it says was sealed"
    with pytest.raises(LedgerError, match="does not contain the head"):
        verified(path, head, keys[1])


def test_nobody_seals_what_is_broken(path: Path, keys: tuple[Path, Path]) -> None:
    ledger = Ledger.at(path)
    ask(ledger, 1)
    ledger.close()
    tamper(path, "UPDATE entries SET epsilon = '1/7' WHERE number = 6")
    ledger = Ledger.at(path)
    with pytest.raises(LedgerError, match="entry 6 has changed"):
        ledger.seal(keys[0])
    ledger.close()


def test_keys_are_kept_and_what_is_none_is_refused(keys: tuple[Path, Path], tmp_path: Path) -> None:
    private, public = keys
    assert private.stat().st_mode & 0o777 == 0o600
    with pytest.raises(OperationalError, match="already exists"):
        seal.make_key(private)
    for path in (public, tmp_path / "text"):
        (tmp_path / "text").write_text("a key?")
        with pytest.raises(OperationalError, match="is not a private key"):
            seal.private_key(path)
    with pytest.raises(OperationalError, match="is not a public key"):
        seal.public_key(private)
    (tmp_path / "text").write_text('{"format": "another"}')
    with pytest.raises(LedgerError, match="neither a receipt nor an export"):
        seal.verify_file(tmp_path / "text", None)


def test_the_commands(path: Path, keys: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*words: object) -> tuple[str, object]:
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        said = capsys.readouterr()
        return said.out + said.err, ended.value.code

    private, public = keys
    head = json.loads(run("ledger", "verify", path, "--json")[0])["head"]
    assert "which is secret" in run("ledger", "key", tmp_path / "k")[0]
    assert run("ledger", "seal", path, "--key", private) == ("sealed up to entry 5\n", 0)
    assert (
        "the noted head is entry 5; sealed up to entry 5"
        in run("ledger", "verify", path, "--head", head, "--key", public)[0]
    )
    assert run("ledger", "verify", path, "--head", "f" * 64)[1] == 1
    for command, said in ((("receipt", path, 2), "entry 2 of shop"), (("export", path), "5 entries of shop")):
        (tmp_path / "file").write_text(run("ledger", *command)[0])
        assert f"{said}: intact, sealed by this key" in run("verify", tmp_path / "file", "--key", public)[0]
    assert run("verify", tmp_path / "nothing")[1] == 1
