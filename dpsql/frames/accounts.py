"""Whose budget a frame spends: a note that travels with the frame, and the accounts that notes refer to.

A note is plain text, so that it survives whatever a frame goes through: copies, filters, pickle, Parquet. It names an
account of this process. In another process that account is opened again if its ledger is a file; if it was in memory,
it is gone, and the frame cannot be asked: a new budget would hide what is spent. Accounts live as long as the process,
because nobody knows how many notes there are.
"""

from __future__ import annotations

import atexit
import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpsql.dbapi import connect
from dpsql.errors import InterfaceError, LedgerError
from dpsql.frames.declare import narrowed
from dpsql.frames.write_sql import TABLE
from dpsql.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from dpsql.session import Session

MEMORY = ":memory:"
NEW_ACCOUNT = (
    'protect frames that travel with ledger="people.ledger"; '
    'df.attrs.pop("dpsql") makes this one unprotected, and its spent budget forgotten'
)


@dataclass(frozen=True)
class Account:
    session: Session
    """Over a frame without its rows."""
    schema: Schema
    public: Mapping[str, Any]
    """Frames about nobody, by the name of their table."""
    ledger: str

    def is_same_as(self, other: Account) -> bool:
        if self.ledger == MEMORY:
            return self.session.environment.ledger is other.session.environment.ledger
        return self.ledger == other.ledger


_accounts: dict[str, Account] = {}
# While the interpreter ends, the engine can no longer be taken down in order.
atexit.register(_accounts.clear)


def enter(account: Account) -> str:
    """Keeps the account; gives the note that leads back to it."""
    name = uuid.uuid4().hex
    _accounts[name] = account
    declared = account.schema.model_dump(exclude_defaults=True)
    return json.dumps({"account": name, "ledger": account.ledger, "schema": declared}, default=str)


def find(note: object, columns: Collection[str], empty: Callable[[list[str]], object]) -> Account:
    """The account of a note, opened again for a frame of these columns if need be; `empty` gives it without rows."""
    try:
        read = json.loads(note)  # type: ignore[arg-type]  # whatever it is
        name, ledger, declared = read["account"], read["ledger"], read["schema"]
    except (TypeError, ValueError, KeyError):
        raise InterfaceError("the note of dpsql in this frame is damaged", hint=NEW_ACCOUNT) from None
    if name not in _accounts:
        _accounts[name] = _reopened(ledger, Schema.model_validate(declared), columns, empty)
    return _accounts[name]


def _reopened(ledger: str, schema: Schema, columns: Collection[str], empty: Callable[[list[str]], object]) -> Account:
    if ledger == MEMORY:
        raise LedgerError("this frame's budget was in the memory of another process, and is lost", hint=NEW_ACCOUNT)
    if len(schema.tables) > 1:
        raise LedgerError(
            "this frame's public tables are in the memory of another process",
            hint=f'take the note off with df.attrs.pop("dpsql"), and protect it again with ledger="{ledger}"',
        )
    present = narrowed(schema, columns)
    rows = empty(list(present.tables[TABLE].columns))
    return Account(connect({TABLE: rows}, schema=present, ledger=ledger).session, schema, {}, ledger)
