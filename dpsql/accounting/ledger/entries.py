"""One line of the ledger, and the seal that chains it to the line before.

    budget     what may be spent, as the data owner said; the first entry is one
    charged    a query's cost, on record before any private row was read
    retried    the server went away while an open charge was asked, which is asked once more
    released   the charge it points at ended in an answer
    refused    a test failed: of the charge that it points at, what its event costs was not spent and is given back
    failed     the charge it points at ended in no answer
    suspended  the same, and its analyst is answered nothing new from here on
    resumed    the data owner has looked, and lifts that; what was retried before it is explained

Every seal covers the one before it, so no entry can be changed without changing all that follow.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from dpsql.accounting.events import Event, from_json
from dpsql.accounting.exact import to_text
from dpsql.accounting.ledger.tally import Tally
from dpsql.accounting.privacy_loss import privacy_loss

if TYPE_CHECKING:
    from collections.abc import Sequence

State = Literal["budget", "charged", "released", "refused", "failed", "suspended", "resumed", "retried"]
GENESIS = "0" * 64
SHOWN = ("number", "time", "analyst", "state", "epsilon", "delta", "sql")
"""What people see of an entry."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """What happened. The epsilon and delta of a charge are nominal; what counts is its event."""

    dataset: str
    analyst: str | None
    state: State
    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    composition: str | None = None
    charge: int | None = None
    fingerprint: str | None = None
    sql: str | None = None
    event: Event | None = None


@dataclass(frozen=True, kw_only=True)
class Entry(Record):
    """A record in its place, with the sums up to and including it: all of the dataset, and those of its analyst."""

    number: int
    time: str
    tally: Tally
    analyst_tally: Tally
    hash: str = ""

    def to_row(self) -> tuple[object, ...]:
        stored = {
            "epsilon": to_text(self.epsilon),
            "delta": to_text(self.delta),
            "tally": self.tally.to_json(),
            "analyst_tally": self.analyst_tally.to_json(),
            "event": self.event and self.event.to_json(),
        }
        return tuple(stored.get(column, getattr(self, column)) for column in COLUMNS)

    @classmethod
    def from_row(cls, row: Sequence[object]) -> Entry:
        values = dict(zip(COLUMNS, row, strict=True))
        revived = {
            "epsilon": Fraction(str(values["epsilon"])),
            "delta": Fraction(str(values["delta"])),
            "tally": Tally.from_json(str(values["tally"])),
            "analyst_tally": Tally.from_json(str(values["analyst_tally"])),
            "event": None if values["event"] is None else from_json(str(values["event"])),
        }
        return cls(**(values | revived))  # type: ignore[arg-type]

    def shown(self) -> dict[str, object]:
        """Exact fractions as the numbers that people read."""
        seen = {name: getattr(self, name) for name in SHOWN}
        return {name: float(value) if isinstance(value, Fraction) else value for name, value in seen.items()}

    def sealed(self, previous: str) -> tuple[Entry, tuple[object, ...]]:
        """Also as a row, which takes a while to write."""
        row = self.to_row()
        sealed = replace(self, hash=seal(previous, row))
        return sealed, (*row[:-1], sealed.hash)


COLUMNS = tuple(field.name for field in fields(Entry))


def gives_back_at_most(refund: Record, charge: Entry | None) -> bool:
    """Whether the refund is a part of the charge, in every currency."""
    if charge is None or charge.event is None or refund.event is None:
        return False
    nominal = 0 <= refund.epsilon <= charge.epsilon and 0 <= refund.delta <= charge.delta
    return nominal and privacy_loss(refund.event) <= privacy_loss(charge.event)


def seal(previous: str, row: Sequence[object]) -> str:
    """SHA-256 over the seal before and every stored column but the seal itself, which comes last."""
    text = json.dumps(row[:-1], ensure_ascii=False, separators=(",", ":"), default=repr)
    return hashlib.sha256(f"{previous}\n{text}".encode("utf-8", "surrogatepass")).hexdigest()
