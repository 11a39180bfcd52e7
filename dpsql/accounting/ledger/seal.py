"""Seals: signatures of the data owner on the hashes of entries, and what an auditor checks without the ledger.

    dpsql ledger key owner.key                     makes a key, and owner.key.pub for everybody
    dpsql ledger seal shop.duckdb.ledger --key owner.key
    dpsql ledger receipt shop.duckdb.ledger 17     one entry with its seal, as JSON
    dpsql ledger export shop.duckdb.ledger         entries, seals, schema fingerprint and head, as JSON lines
    dpsql verify FILE --key owner.key.pub          checks a receipt or an export, offline

The hash of an entry covers all entries before it, so whoever changes one without the key has to leave its seal wrong.
The key is needed for sealing alone, and stays where no questions are asked. docs/proofs/ledger.md.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from dpsql.accounting.ledger.chain import verify_chain
from dpsql.accounting.ledger.journal import COLUMNS, Entry, entry_hash
from dpsql.display.numbers import several
from dpsql.errors import LedgerError, OperationalError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from dpsql.accounting.ledger.chain import VerifyReport

FORMAT = "dpsql ledger 1"
"""What the files begin with that auditors read."""
NUMBER = COLUMNS.index("number")


class Seal(NamedTuple):
    """The owner's signature on one entry."""

    number: int
    hash: str
    signature: str


def message(number: int, sealed_hash: str) -> bytes:
    return f"dpsql seals entry {number} {sealed_hash}".encode()


# -- keys --------------------------------------------------------------------------------------------------------------


def make_key(path: Path) -> Path:
    """Writes a new private key, readable by its owner alone, and beside it the public key, whose path it returns."""
    key, public = Ed25519PrivateKey.generate(), path.with_name(f"{path.name}.pub")
    for target in (path, public):
        if target.exists():
            raise OperationalError(f"{target} already exists", hint="keys are never overwritten; choose another name")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return public


def private_key(path: Path) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise OperationalError(f"{path} is not a private key for seals", hint="make one:  dpsql ledger key owner.key")
    return key


def public_key(path: Path) -> Ed25519PublicKey:
    try:
        key = load_pem_public_key(path.read_bytes())
    except ValueError:
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise OperationalError(
            f"{path} is not a public key for seals", hint="dpsql ledger key owner.key  writes owner.key.pub"
        )
    return key


def sealed(key: Ed25519PrivateKey, number: int, sealed_hash: str) -> Seal:
    return Seal(number, sealed_hash, key.sign(message(number, sealed_hash)).hex())


# -- checks ------------------------------------------------------------------------------------------------------------


def check_seal(key: Ed25519PublicKey, seal: Seal) -> None:
    try:
        key.verify(bytes.fromhex(seal.signature), message(seal.number, seal.hash))
    except (InvalidSignature, ValueError):
        raise LedgerError(
            f"the seal of entry {seal.number} is not by this key",
            hint="check that it is the data owner's public key; else the ledger was changed or sealed by another",
        ) from None


def check_seals(seals: Iterable[Seal], hashes: Mapping[int, str], key: Ed25519PublicKey) -> int:
    """Checks that each seal is on the entry as it is now; gives the last sealed entry, up to which none is missing."""
    last = 0
    for seal in seals:
        check_seal(key, seal)
        if hashes.get(seal.number) != seal.hash:
            raise LedgerError(
                f"entry {seal.number} is not the one that was sealed",
                hint="the ledger was changed after it was sealed; restore it from a backup",
            )
        if seal.number != last + 1:
            raise LedgerError(f"the seal of entry {last + 1} is missing", hint="restore the ledger from a backup")
        last = seal.number
    return last


def check_head(head: str, hashes: Mapping[int, str]) -> int:
    """The entry whose hash was noted elsewhere; raises if the ledger does not contain it."""
    noted = head.strip().lower()
    for number, found in hashes.items():
        if found == noted:
            return number
    raise LedgerError(
        "the ledger does not contain the head that was noted elsewhere",
        hint="it is an older copy, or was replaced: restore the right one, and treat every query since then as spent",
    )


# -- files for auditors ------------------------------------------------------------------------------------------------


def receipt_of(row: Sequence[object], previous: str, seal: Seal | None) -> dict[str, Any]:
    """One entry as it is stored, so that its hash can be computed again, and its seal."""
    return {
        "format": FORMAT,
        "receipt": dict(zip(COLUMNS, row, strict=True)),
        "previous": previous,
        "signature": None if seal is None else seal.signature,
    }


def export_lines(
    rows: Iterable[Sequence[object]], seals: Mapping[int, Seal], dataset: str, fingerprint: str | None, last: int
) -> Iterator[str]:
    """JSON lines: what it is, each entry as it is stored with its signature, and at the end the head."""
    yield json.dumps({"format": FORMAT, "dataset": dataset, "schema": fingerprint, "columns": COLUMNS})
    head = None
    for row in rows:
        head = row[-1]
        seal = seals.get(int(str(row[NUMBER])))
        yield json.dumps(
            {"entry": list(row), "signature": None if seal is None else seal.signature}, ensure_ascii=False
        )
    yield json.dumps({"head": head, "last_number": last})


class Checked(NamedTuple):
    """What a receipt or an export proves."""

    what: str
    dataset: str
    head: str
    sealed: bool
    details: dict[str, Any]

    def __str__(self) -> str:
        seal = "sealed by this key" if self.sealed else "not sealed"
        told = "; ".join(f"{name} {value}" for name, value in self.details.items() if value not in (None, ""))
        return f"{self.what} of {self.dataset}: intact, {seal}; {told}; head {self.head}"


def verify_file(path: Path, key: Ed25519PublicKey | None, head: str | None = None) -> Checked:
    """Checks a receipt or an export without the ledger. Raises LedgerError if anything in it was changed.

    An export that was cut short is intact too: a `head` noted elsewhere tells.
    """
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        if lines[0]["format"] != FORMAT:
            raise ValueError
        return _receipt(lines[0], key) if "receipt" in lines[0] else _export(lines, key, head)
    except (ValueError, LookupError, TypeError, UnicodeDecodeError):
        raise LedgerError(
            f"{path} is neither a receipt nor an export of a ledger, or was changed",
            hint="dpsql ledger receipt LEDGER NUMBER, or  dpsql ledger export LEDGER  writes one",
        ) from None


def _receipt(document: dict[str, Any], key: Ed25519PublicKey | None) -> Checked:
    row = [document["receipt"][column] for column in COLUMNS]
    if entry_hash(document["previous"], row) != row[-1]:
        raise LedgerError("the receipt was changed: its hash does not match", hint="ask for it again")
    entry = Entry.from_row(row)
    if key is not None:
        if document["signature"] is None:
            raise LedgerError(
                f"entry {entry.number} is not sealed yet",
                hint="the data owner seals it:  dpsql ledger seal LEDGER --key KEY",
            )
        check_seal(key, Seal(entry.number, entry.hash, document["signature"]))
    shown = {name: value for name, value in entry.shown().items() if name != "number"}
    return Checked(f"entry {entry.number}", entry.dataset, entry.hash, key is not None, shown)


def _export(lines: list[dict[str, Any]], key: Ed25519PublicKey | None, head: str | None) -> Checked:
    first, *entries, last = lines
    rows = [one["entry"] for one in entries]
    report: VerifyReport = verify_chain(rows, last["last_number"])
    if report.head != last["head"]:
        raise LedgerError("the export was changed: its head does not match", hint="ask for it again")
    declared = [entry.fingerprint for entry in map(Entry.from_row, rows) if entry.declared is not None]
    about = (Entry.from_row(rows[0]).dataset, declared[-1] if declared else None)
    if about != (first["dataset"], first["schema"]):
        raise LedgerError("the export was changed: its first line is about something else", hint="ask for it again")
    hashes = {row[NUMBER]: row[-1] for row in rows}
    noted = None if head is None else check_head(head, hashes)
    pairs = zip(rows, entries, strict=True)
    found = (Seal(row[NUMBER], row[-1], one["signature"]) for row, one in pairs if one["signature"])
    upto = 0 if key is None else check_seals(found, hashes, key)
    details = {
        "charges": report.charges,
        "noted head is entry": noted,
        "sealed up to entry": upto,
        "schema": first["schema"],
    }
    return Checked(several(report.entries, "entry", "entries"), first["dataset"], report.head, upto > 0, details)
