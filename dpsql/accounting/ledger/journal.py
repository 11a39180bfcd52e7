"""The ledger's entries, through an open transaction: the latest sums and budgets, and appending one more."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, fields, replace
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from dpsql.accounting.budget import Suspension
from dpsql.accounting.events import Event, from_json
from dpsql.accounting.exact import Amount, from_text, rounded_up, shortened, to_text
from dpsql.accounting.ledger.declaration import Declaration
from dpsql.accounting.privacy_loss import Cost, PrivacyLoss, privacy_loss

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dpsql.accounting.ledger.store import Store, Transaction

# -- answers -----------------------------------------------------------------------------------------------------------
# Noisy answers by the question's fingerprint: asking the same again is answered from here, and costs nothing.
#
# A payload holds noisy values only. It was paid for when it was made; handing it out again is post-processing. For each
# subject, which is a query at any cost, its answers are listed, first one first: when each was drawn, on which terms.

SET_ANSWER = (
    "INSERT INTO answers (dataset, fingerprint, payload) VALUES (?, ?, ?) "
    "ON CONFLICT (dataset, fingerprint) DO UPDATE SET payload = excluded.payload"
)


class StoredAnswer(NamedTuple):
    fingerprint: str
    subject: str
    payload: str
    terms: str
    """What its noise followed from (NoiseTerms)."""


class AnswerOnRecord(NamedTuple):
    fingerprint: str
    time: str | None
    """When it was drawn; None if that was before answers had a date."""
    terms: str | None
    data: str | None = None
    """The owner's name of the data that it was drawn from, if there was one."""

    @property
    def drawn_at(self) -> datetime | None:
        return None if self.time is None else datetime.fromisoformat(self.time)


@dataclass(frozen=True)
class Answers:
    file: Store
    dataset: str
    data: str | None = None
    """The owner's name of the data that answers are drawn from now."""

    def store(self, connection: Transaction, answers: Sequence[StoredAnswer]) -> None:
        """Stores the answers; a new answer replaces an older one."""
        time = as_text(now())
        for fingerprint, subject, payload, terms in answers:
            known = {answer.fingerprint: answer for answer in _listed(self._payload(connection, subject))}
            known[fingerprint] = AnswerOnRecord(fingerprint, time, terms, self.data)
            for key, text in ((fingerprint, payload), (subject, json.dumps(list(known.values())))):
                connection.execute(SET_ANSWER, (self.dataset, key, text))

    def recall(self, fingerprint: str) -> str | None:
        with self.file.reading() as connection:
            return self._payload(connection, fingerprint)

    def about(self, subject: str) -> list[AnswerOnRecord]:
        """The stored answers about a subject, the first one first. One that was drawn anew keeps its place."""
        return _listed(self.recall(subject))

    def on_record(self, fingerprint: str, subject: str) -> AnswerOnRecord | None:
        known = {answer.fingerprint: answer for answer in self.about(subject)}
        if fingerprint not in known and self.recall(fingerprint) is not None:
            return AnswerOnRecord(fingerprint, None, None)  # of an older ledger, which listed the first one only
        return known.get(fingerprint)

    def _payload(self, connection: Transaction, key: str) -> str | None:
        row = connection.execute(
            "SELECT payload FROM answers WHERE dataset = ? AND fingerprint = ?", (self.dataset, key)
        ).fetchone()
        return None if row is None else str(row[0])


def _listed(payload: str | None) -> list[AnswerOnRecord]:
    if payload is None:
        return []
    if not payload.startswith("["):
        return [AnswerOnRecord(payload, None, None)]
    return [AnswerOnRecord(*answer) for answer in json.loads(payload)]


# -- running totals ----------------------------------------------------------------------------------------------------
# The running sums of one account, so that what was spent is known without reading the entries again.
#
# Beside what the filter counts, they keep what the textbook rules would have counted over the nominal costs.

ZERO = Fraction(0)
NOTHING = PrivacyLoss()


@dataclass(frozen=True)
class RunningTotals:
    queries: int = 0
    totals: PrivacyLoss = NOTHING
    epsilon: Amount = ZERO
    delta: Amount = ZERO
    epsilon_squared: Amount = ZERO
    drift: Amount = ZERO  # the sum of epsilon (e^epsilon - 1), the loss to be expected
    term: int = 0
    """The entry by which the budget was last renewed: all of the above is what was charged since."""
    lifetime: PrivacyLoss | None = None
    """What was charged over all terms; None in the first one, where that is the same."""

    @property
    def lifetime_totals(self) -> PrivacyLoss:
        return self.totals if self.lifetime is None else self.lifetime

    def renewed(self, number: int) -> RunningTotals:
        """The sums when a term begins with this entry."""
        return RunningTotals(term=number, lifetime=self.lifetime_totals)

    def plus(self, cost: PrivacyLoss, epsilon: Fraction, delta: Fraction, queries: int = 1) -> RunningTotals:
        """The sums with one more query, of this privacy loss and nominal (epsilon, delta)."""
        return RunningTotals(
            self.queries + queries,
            self.totals + cost,
            shortened(self.epsilon + epsilon),
            shortened(self.delta + delta),
            shortened(self.epsilon_squared + epsilon**2),
            shortened(self.drift + _drift(epsilon)),
            self.term,
            None if self.lifetime is None else self.lifetime + cost,
        )

    def less(self, refund: PrivacyLoss, epsilon: Fraction, delta: Fraction, charge: int) -> RunningTotals:
        """The totals minus a refund. The squares for `advanced`, a comparison only, are not reduced.

        What was charged in an earlier term is not given back in this one.
        """
        lifetime = None if self.lifetime is None else self.lifetime.less(refund)
        if charge < self.term:
            return replace(self, lifetime=lifetime)
        return replace(
            self,
            lifetime=lifetime,
            totals=self.totals.less(refund),
            epsilon=shortened(self.epsilon - epsilon),
            delta=shortened(self.delta - delta),
        )

    def after(self, record: Record, number: int) -> RunningTotals:
        """With what the record, which becomes the entry of this number, says happened."""
        if record.state == "renewed":
            return self.renewed(number)
        if record.event is None:
            return self
        cost = privacy_loss(record.event)
        if record.state == "refused":
            return self.less(cost, record.epsilon, record.delta, record.charge or 0)
        return self.plus(cost, record.epsilon, record.delta, queries=int(record.state == "charged"))

    def agrees(self, counted: RunningTotals) -> bool:
        alike = [replace(one, totals=NOTHING, lifetime=None) for one in (self, counted)]
        totals = self.totals.agrees(counted.totals) and self.lifetime_totals.agrees(counted.lifetime_totals)
        return totals and alike[0] == alike[1]

    @property
    def basic(self) -> Cost:
        return Cost(rounded_up(self.epsilon), rounded_up(self.delta))

    def advanced(self, slack: Fraction) -> Cost:
        """Dwork, Rothblum and Vadhan 2010, with `slack` as the additional delta, which must not be zero."""
        log = math.log(slack.denominator) - math.log(slack.numerator)
        epsilon = rounded_up(self.drift) + math.sqrt(2 * log * float(self.epsilon_squared))
        return Cost(epsilon, rounded_up(self.delta + slack))

    def to_json(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        """Written once: most entries change nothing, and repeat it."""
        amounts = {name: to_text(getattr(self, name)) for name in ("epsilon", "delta", "epsilon_squared", "drift")}
        described: dict[str, object] = {"queries": self.queries, "totals": self.totals.to_texts()} | amounts
        if self.lifetime is not None:
            described |= {"term": self.term, "lifetime": self.lifetime.to_texts()}
        return json.dumps(described, sort_keys=True, separators=(",", ":"))

    @staticmethod
    @lru_cache(maxsize=256)
    def from_json(text: str) -> RunningTotals:
        """A question reads the same sums several times."""
        described = json.loads(text)
        queries, totals = described.pop("queries"), described.pop("totals")
        term, lifetime = described.pop("term", 0), described.pop("lifetime", None)
        amounts = {name: from_text(amount) for name, amount in described.items()}
        over_time = None if lifetime is None else PrivacyLoss.from_texts(lifetime)
        return RunningTotals(queries, PrivacyLoss.from_texts(totals), **amounts, term=term, lifetime=over_time)


def _drift(epsilon: Fraction) -> Amount:
    try:
        return Fraction(float(epsilon) * math.expm1(float(epsilon)))
    except OverflowError:
        return math.inf


# -- entries -----------------------------------------------------------------------------------------------------------
# One line of the ledger, and the hash that chains it to the line before.
#
#     budget     what may be spent, as the data owner said; the first entry is one
#     default limit, question limit, revoked
#                what an analyst may spend, as the data owner said (allowance.py)
#     renewal, renewed, lifetime
#                that the budget begins anew at times, when it did, and the most for all time (renewal.py)
#     data       the owner's name of the data that the charges after it are of, where it is not that of before
#     charged    a query's cost, on record before any private row was read
#     retried    the server went away while an open charge was asked, which is asked once more
#     released   the charge it points at ended in an answer
#     refused    a test failed: of the charge that it points at, what its event costs was not spent and is given back
#     failed     the charge it points at ended in no answer
#     interrupted, timed out
#                the same: its analyst stopped it, or the session's time limit did
#     suspended  the same, and its analyst is answered nothing new from here on
#     resumed    the data owner has looked, and lifts that; what was retried or stopped before it is explained
#     schema     what is declared from here on, where it is not as before; the first budget has the first declaration
#     schema accepted
#                the same, where the data owner accepts that epsilon means something else from here on
#
# An outcome without an answer, and a retry, cost a least amount: the event of such an entry is what its charge lacks.
# Every hash covers the one before it, so no entry can be changed without changing all that follow.

State = Literal[
    "budget",
    "default limit",
    "question limit",
    "revoked",
    "renewal",
    "renewed",
    "lifetime",
    "data",
    "charged",
    "released",
    "refused",
    "failed",
    "suspended",
    "resumed",
    "retried",
    "interrupted",
    "timed out",
    "schema",
    "schema accepted",
]
RULES = ("budget", "default limit", "question limit", "revoked", "renewal", "renewed", "lifetime")
"""The states of entries by which the data owner says what may be spent."""
DECLARING = ("budget", "schema", "schema accepted")
"""The states of entries that may hold a declaration, as their text and fingerprint."""
GENESIS = "0" * 64
TOLD: dict[State, Callable[[str], str]] = {
    "data": lambda name: f"data: {name}",
    "renewal": lambda schedule: f"renewal: {_told(json.loads(schedule))}",
    "renewed": lambda period: f"term from {period}",
}
"""What people are told of the text of an entry that is no query."""


def _told(schedule: dict[str, str | None]) -> str:
    """
    >>> _told({"every": "month", "from": "2027-01-01", "until": None})
    'every month from 2027-01-01'
    """
    if schedule["every"] is None:
        return "ended"
    until = "" if schedule["until"] is None else f" until {schedule['until']}"
    return f"every {schedule['every']} from {schedule['from']}{until}"


SHOWN = ("number", "time", "analyst", "state", "epsilon", "delta", "sql")
"""What people see of an entry."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """A record. Its epsilon and delta are nominal; its event is what counts."""

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
    """A numbered record with the running totals after it, for the dataset and for its analyst."""

    number: int
    time: str
    tally: RunningTotals
    analyst_tally: RunningTotals
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
            "tally": RunningTotals.from_json(str(values["tally"])),
            "analyst_tally": RunningTotals.from_json(str(values["analyst_tally"])),
            "event": None if values["event"] is None else from_json(str(values["event"])),
        }
        return cls(**(values | revived))  # type: ignore[arg-type]

    def shown(self) -> dict[str, object]:
        """Exact fractions as the numbers that people read."""
        seen = {name: getattr(self, name) for name in SHOWN}
        if self.declared is not None:
            seen["sql"] = str(self.declared)
        if self.state in TOLD:
            seen["sql"] = TOLD[self.state](str(self.sql))
        return {name: float(value) if isinstance(value, Fraction) else value for name, value in seen.items()}

    @property
    def declared(self) -> Declaration | None:
        """What the schema declares, if the entry says so."""
        if self.state not in DECLARING or self.sql is None or self.fingerprint is None:
            return None
        return Declaration.from_json(self.sql, self.fingerprint)

    def hashed(self, previous: str) -> tuple[Entry, tuple[object, ...]]:
        """The entry with its hash and, because building it is slow, its row."""
        row = self.to_row()
        hashed = replace(self, hash=entry_hash(previous, row))
        return hashed, (*row[:-1], hashed.hash)


COLUMNS = tuple(field.name for field in fields(Entry))


def gives_back_at_most(refund: Record, charge: Entry | None) -> bool:
    """Whether the refund is a part of the charge, in every currency."""
    if charge is None or charge.event is None or refund.event is None:
        return False
    nominal = 0 <= refund.epsilon <= charge.epsilon and 0 <= refund.delta <= charge.delta
    return nominal and privacy_loss(refund.event) <= privacy_loss(charge.event)


def entry_hash(previous: str, row: Sequence[object]) -> str:
    """SHA-256 over the hash before and every stored column but the hash itself, which comes last."""
    text = json.dumps(row[:-1], ensure_ascii=False, separators=(",", ":"), default=repr)
    return hashlib.sha256(f"{previous}\n{text}".encode("utf-8", "surrogatepass")).hexdigest()


# -- journal -----------------------------------------------------------------------------------------------------------

SELECT = f"SELECT {', '.join(COLUMNS)} FROM entries"
IS_RULE = f"state IN ({', '.join(map(repr, RULES))})"
SELECT_RULES = "SELECT state, analyst, number, composition, epsilon, delta FROM entries"
CHANGED = "(SELECT mark.tally FROM entries AS mark WHERE mark.charge = entries.number AND mark.event IS NOT NULL)"
SELECT_ENDED = SELECT.replace(" tally,", f" coalesce({CHANGED}, tally),")
SELECT_OWN = SELECT.replace(
    " analyst_tally,", f" coalesce({CHANGED.replace('mark.tally', 'mark.analyst_tally')}, analyst_tally),"
)
INSERT_ENTRY = f"INSERT INTO entries ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"

DECLARES = "state IN ('budget', 'schema', 'schema accepted') AND sql IS NOT NULL"

ALL = 2**62
"""As many entries as there can be."""


def now() -> datetime:
    return datetime.now(UTC)


def as_text(time: datetime) -> str:
    """A text of fixed length, so that texts sort like times."""
    return time.isoformat(timespec="microseconds")


class RecordedRule(NamedTuple):
    """What counts of an entry by which the data owner allows something."""

    number: int
    composition: str | None
    epsilon: Fraction
    delta: Fraction


@dataclass(frozen=True)
class Journal:
    connection: Transaction

    def append(self, record: Record) -> Entry:
        last = self._one("SELECT number, hash, tally FROM entries ORDER BY number DESC LIMIT 1")
        number, previous, text = last or (0, GENESIS, None)
        before = RunningTotals() if text is None else RunningTotals.from_json(text)
        own = self.analyst_tally(record.analyst)
        tally = before.after(record, number + 1)
        # Where one analyst asks, both are read from one text, and are the same sums.
        analyst_tally = tally if own is before else own.after(record, number + 1)
        time = as_text(now())
        entry = Entry(**vars(record), number=number + 1, time=time, tally=tally, analyst_tally=analyst_tally)
        hashed, row = entry.hashed(previous)
        self.connection.execute(INSERT_ENTRY, row)
        if record.state == "charged":
            self.connection.execute("INSERT INTO open_charges VALUES (?, ?)", (hashed.number, record.analyst))
        elif record.charge is not None:
            self.connection.execute("DELETE FROM open_charges WHERE number = ?", (record.charge,))
        return hashed

    def entry(self, number: int) -> Entry | None:
        row = self._one(f"{SELECT} WHERE number = ?", number)
        return None if row is None else Entry.from_row(row)

    def is_charge(self, number: int, entry_hash: str) -> bool:
        """Whether the entry with this number is a charge with this hash, and so equal in all hashed fields."""
        return self._one("SELECT state, hash FROM entries WHERE number = ?", number) == ("charged", entry_hash)

    def open_charges(self, analyst: str | None) -> list[int]:
        """The numbers of the charges of this analyst that no mark has ended yet."""
        rows = self.connection.execute("SELECT number FROM open_charges WHERE analyst IS ? ORDER BY number", (analyst,))
        return [number for (number,) in rows]

    def suspensions(self) -> list[Suspension]:
        """The suspensions that no `resumed` entry has lifted."""
        last = "SELECT max(number) FROM entries WHERE state IN ('suspended', 'resumed') GROUP BY analyst"
        rows = self.connection.execute(
            f"SELECT analyst, state, number, time FROM entries WHERE number IN ({last}) ORDER BY number"
        )
        return [Suspension(analyst, number, time) for analyst, state, number, time in rows if state == "suspended"]

    def suspension(self, analyst: str | None) -> Suspension | None:
        return next((found for found in self.suspensions() if found.analyst == analyst), None)

    def has_retried(self, analyst: str | None) -> bool:
        """Whether a query of this analyst was retried since the owner last resumed."""
        last = self._one(
            "SELECT state FROM entries WHERE state IN ('retried', 'resumed') AND analyst IS ? "
            "ORDER BY number DESC LIMIT 1",
            analyst,
        )
        return last is not None and last[0] == "retried"

    def stopped(self, analyst: str | None, within: timedelta | None = None) -> int:
        """The number of this analyst's recent interrupted or timed-out queries since the owner last resumed."""
        row = self._one(
            "SELECT count(*) FROM entries WHERE state IN ('interrupted', 'timed out') AND analyst IS ? AND time >= ? "
            "AND number > coalesce((SELECT max(number) FROM entries WHERE state = 'resumed' AND analyst IS ?), 0)",
            analyst,
            "" if within is None else as_text(now() - within),
            analyst,
        )
        return 0 if row is None else int(row[0])

    def tally(self) -> RunningTotals:
        """Everything charged to the dataset."""
        row = self._one("SELECT tally FROM entries ORDER BY number DESC LIMIT 1")
        return RunningTotals() if row is None else RunningTotals.from_json(row[0])

    def analyst_tally(self, analyst: str | None) -> RunningTotals:
        """The totals of one analyst, or of queries without a name."""
        row = self._one("SELECT analyst_tally FROM entries WHERE analyst IS ? ORDER BY number DESC LIMIT 1", analyst)
        own, term = RunningTotals() if row is None else RunningTotals.from_json(row[0]), self.tally().term
        return own if own.term == term else own.renewed(term)

    def budget(self, analyst: str | None, state: State = "budget") -> Entry | None:
        """The budget last put on record: the analyst's, or the dataset's for None, which may be renewed."""
        found = f"{SELECT} WHERE {IS_RULE} AND state IN (?, ?) AND analyst IS ? ORDER BY number DESC LIMIT 1"
        row = self._one(found, state, "renewed" if state == "budget" else state, analyst)
        return None if row is None else Entry.from_row(row)

    def rules(self, analyst: str | None) -> dict[tuple[str, str | None], RecordedRule]:
        """The owner's rules that may apply to this analyst, by state and name. Every query needs them."""
        return self._rules("AND (analyst IS NULL OR analyst = ?)", "" if analyst is None else analyst)

    def all_rules(self) -> dict[tuple[str, str | None], RecordedRule]:
        return self._rules("")

    def _rules(self, which: str, *parameters: object) -> dict[tuple[str, str | None], RecordedRule]:
        """The last of each kind; the rest of an entry takes longer to read."""
        last = f"SELECT max(number) FROM entries WHERE {IS_RULE} {which} GROUP BY state, analyst"
        rows = self.connection.execute(f"{SELECT_RULES} WHERE number IN ({last})", parameters)
        return {
            (state, name): RecordedRule(number, composition, Fraction(epsilon), Fraction(delta))
            for state, name, number, composition, epsilon, delta in rows
        }

    def schedules(self) -> list[Entry]:
        """The owner's entries about renewal, in order."""
        rows = self.connection.execute(f"{SELECT} WHERE {IS_RULE} AND state = 'renewal' ORDER BY number")
        return [Entry.from_row(row) for row in rows]

    def last_period(self) -> date | None:
        """The period for which the budget was last renewed."""
        row = self._one(f"SELECT sql FROM entries WHERE {IS_RULE} AND state = 'renewed' ORDER BY number DESC LIMIT 1")
        return None if row is None else date.fromisoformat(row[0])

    def granted(self) -> list[tuple[str, Fraction, Fraction]]:
        """Every budget of the dataset, in order: its state, epsilon and delta."""
        rows = self.connection.execute(
            f"SELECT state, epsilon, delta FROM entries WHERE {IS_RULE} AND state IN ('budget', 'renewed') "
            "AND analyst IS NULL ORDER BY number"
        )
        return [(state, Fraction(epsilon), Fraction(delta)) for state, epsilon, delta in rows]

    def analysts(self) -> list[str]:
        """Every name on record, in order."""
        rows = self.connection.execute("SELECT DISTINCT analyst FROM entries WHERE analyst IS NOT NULL")
        return sorted(name for (name,) in rows)

    def declared(self) -> Declaration | None:
        """The declaration last put on record; None in a ledger of an older version."""
        row = self._one(f"SELECT sql, fingerprint FROM entries WHERE {DECLARES} ORDER BY number DESC LIMIT 1")
        return None if row is None else Declaration.from_json(*row)

    def is_in_force(self, fingerprint: str) -> bool:
        """Whether the schema with this fingerprint is the owner's last, and no session declared another one since."""
        last = self._one(f"SELECT fingerprint, state FROM entries WHERE {DECLARES} ORDER BY number DESC LIMIT 1")
        return last is not None and last[0] == fingerprint and last[1] != "schema"

    def has_declared(self, fingerprint: str) -> bool:
        """Whether a schema with this fingerprint is on record since the owner last accepted another one."""
        accepted = "coalesce((SELECT max(number) FROM entries WHERE state = 'schema accepted'), 0)"
        found = f"SELECT number FROM entries WHERE {DECLARES} AND fingerprint = ? AND number >= {accepted}"
        return self._one(found, fingerprint) is not None

    def last_entries(self, limit: int | None, analyst: str | None = None) -> list[Entry]:
        """Oldest first; of one analyst, if one is named."""
        which, names = ("", ()) if analyst is None else ("WHERE analyst = ?", (analyst,))
        most = ALL if limit is None else limit
        rows = self.connection.execute(f"{SELECT} {which} ORDER BY number DESC LIMIT ?", (*names, most))
        return [Entry.from_row(row) for row in rows][::-1]

    def charges(self, after: int, count: int) -> list[Entry]:
        """The charges of this term with their outcomes; costs include refunds of refused tests, and surcharges."""
        rows = self.connection.execute(
            f"{SELECT_ENDED} WHERE state = 'charged' AND number > ? ORDER BY number LIMIT ? OFFSET ?",
            (self.tally().term, count, after),
        )
        return [Entry.from_row(row) for row in rows]

    def charges_of(self, analyst: str | None, after: int, count: int) -> list[Entry]:
        """The same of one analyst; `tally` is then the analyst's."""
        rows = self.connection.execute(
            f"{SELECT_OWN} WHERE state = 'charged' AND analyst IS ? AND number > ? ORDER BY number LIMIT ? OFFSET ?",
            (analyst, self.tally().term, count, after),
        )
        entries = [Entry.from_row(row) for row in rows]
        return [replace(entry, tally=entry.analyst_tally) for entry in entries]

    def seals(self) -> list[tuple[int, str, str]]:
        """The owner's seals, in order: entry, hash and signature."""
        return list(self.connection.execute("SELECT number, hash, signature FROM seals ORDER BY number"))

    def hashes(self, after: int = 0) -> dict[int, str]:
        """The hash of each entry after this one."""
        rows = self.connection.execute("SELECT number, hash FROM entries WHERE number > ? ORDER BY number", (after,))
        return dict(iter(rows))

    def data(self) -> str | None:
        """The owner's name of the data that the last charge was of."""
        row = self._one("SELECT sql FROM entries WHERE state = 'data' ORDER BY number DESC LIMIT 1")
        return None if row is None else str(row[0])

    def rows(self) -> Iterator[tuple[object, ...]]:
        """Every entry as it is stored, in order."""
        return iter(self.connection.execute(f"{SELECT} ORDER BY number"))

    def _one(self, query: str, *parameters: object) -> tuple[Any, ...] | None:
        return self.connection.execute(query, parameters).fetchone()
