"""Renewal: a budget that begins anew each month, as the data owner put it on record.

    renewal   a schedule: every month, epsilon 1, from 2027-01-01 on; or the end of all schedules
    renewed   the first look at the account in a new period: from here on nothing of the new budget is spent
    lifetime  the most that all terms together may spend

What was answered before a renewal stays known, so what is promised to a person over all time is the composition of all
terms: their sum, or the lifetime limit, which is a filter over all charges. docs/proofs/ledger.md.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from dpsql.accounting.exact import exact, rounded_up
from dpsql.accounting.filters import filter_named
from dpsql.accounting.ledger.journal import Journal, Record, now
from dpsql.accounting.privacy_loss import Cost
from dpsql.display.numbers import several
from dpsql.errors import LedgerError, ProgrammingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dpsql.accounting.ledger.journal import Entry

LARGEST_DELTA = Fraction(1, 2)
Every = Literal["day", "week", "month", "quarter", "year"]


def period_start(day: date, every: Every) -> date:
    """
    >>> period_start(date(2026, 11, 20), "quarter"), period_start(date(2026, 11, 20), "week")
    (datetime.date(2026, 10, 1), datetime.date(2026, 11, 16))
    """
    match every:
        case "day":
            return day
        case "week":
            return day - timedelta(days=day.weekday())
        case "month":
            return day.replace(day=1)
        case "quarter":
            return day.replace(month=day.month - (day.month - 1) % 3, day=1)
        case "year":
            return day.replace(month=1, day=1)


def next_start(day: date, every: Every) -> date:
    """The first period that begins after this day.

    >>> next_start(date(2026, 12, 1), "month")
    datetime.date(2027, 1, 1)
    """
    lengths: dict[Every, int] = {"day": 1, "week": 7, "month": 31, "quarter": 92, "year": 366}
    return period_start(period_start(day, every) + timedelta(days=lengths[every]), every)


# -- schedules ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Schedule:
    every: Every
    epsilon: Fraction
    delta: Fraction
    first: date
    """The first day on which it may renew."""
    until: date | None = None
    """The day from which on it renews no more."""

    def to_json(self) -> str:
        until = None if self.until is None else self.until.isoformat()
        return json.dumps({"every": self.every, "from": self.first.isoformat(), "until": until})

    @classmethod
    def of(cls, entry: Entry) -> Schedule | None:
        """None for the end of all schedules."""
        described = json.loads(str(entry.sql))
        if described["every"] is None:
            return None
        until = described["until"]
        return cls(
            described["every"],
            entry.epsilon,
            entry.delta,
            date.fromisoformat(described["from"]),
            None if until is None else date.fromisoformat(until),
        )

    def period(self, day: date) -> date | None:
        """The period that this day is in, if it is renewed by this schedule."""
        start = period_start(day, self.every)
        return start if start >= self.first and (self.until is None or start < self.until) else None

    def next_after(self, day: date) -> date | None:
        """The day of the next renewal."""
        begins = next_start(max(day, self.first - timedelta(days=1)), self.every)
        return begins if self.until is None or begins < self.until else None

    def overlaps(self, other: Schedule) -> bool:
        return (other.until is None or self.first < other.until) and (self.until is None or other.first < self.until)

    def __str__(self) -> str:
        """
        >>> print(Schedule("month", Fraction(1), Fraction(0), date(2027, 1, 1)))
        epsilon 1 at delta 0 every month from 2027-01-01
        """
        until = "" if self.until is None else f" until {self.until}"
        each = f"epsilon {float(self.epsilon):.6g} at delta {float(self.delta):.3g}"
        return f"{each} every {self.every} from {self.first}{until}"


def schedules_of(entries: Iterable[Entry]) -> list[Schedule]:
    """The schedules since the owner last ended all of them."""
    found: list[Schedule] = []
    for entry in entries:
        schedule = Schedule.of(entry)
        found = [] if schedule is None else [*found, schedule]
    return found


def due(schedules: Sequence[Schedule], last: date | None, day: date) -> tuple[Schedule, date] | None:
    """The renewal that this day calls for, after the last one: each period at most once, in order."""
    for schedule in schedules:
        period = schedule.period(day)
        if period is not None and (last is None or period > last):
            return schedule, period
    return None


# -- over time ---------------------------------------------------------------------------------------------------------


class OverTime(NamedTuple):
    """What all terms of a renewed budget amount to."""

    terms: int
    total: Cost
    """The sum of their budgets, which is what is promised about all answers so far, over all terms."""
    begun: date | None
    """The day on which the present term began; None in the first one."""
    schedule: str | None
    """What will renew it, and when next; None if nothing will."""

    def __str__(self) -> str:
        terms = several(self.terms, "term", "terms")
        grows = f"; {self.schedule}" if self.schedule else "; it is not renewed again"
        return f"epsilon {self.total.epsilon:.4g} and delta {self.total.delta:.3g} in {terms}{grows}"


def over_time(journal: Journal, day: date) -> OverTime | None:
    """None for a budget that was never to be renewed."""
    schedules, granted = schedules_of(journal.schedules()), journal.granted()
    last = journal.last_period()
    if not schedules and last is None:
        return None
    terms: list[tuple[Fraction, Fraction]] = []
    for state, epsilon, delta in granted:
        # Within a term the largest budget counts, whatever the owner lowered it to later.
        before = terms.pop() if terms and state != "renewed" else (Fraction(0), Fraction(0))
        terms.append((max(before[0], epsilon), max(before[1], delta)))
    total = Cost(*(rounded_up(sum(amounts, Fraction(0))) for amounts in zip(*terms, strict=True)))
    coming = [(begins, one) for one in schedules if (begins := one.next_after(max(day, last or day))) is not None]
    soon = min(coming, key=lambda pair: pair[0], default=None)
    return OverTime(len(terms), total, last, None if soon is None else f"{soon[1]}, next on {soon[0]}")


# -- record ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RenewalRecord:
    """The owner's schedules, and the renewals that follow from them."""

    journal: Journal
    dataset: str

    def due(self) -> tuple[Schedule, date] | None:
        """The renewal that a schedule calls for today."""
        schedules = schedules_of(self.journal.schedules())
        return due(schedules, self.journal.last_period(), now().date()) if schedules else None

    def renew_if_due(self) -> None:
        """Begins a new term if a schedule says so."""
        found = self.due()
        if found is None:
            return
        schedule, period = found
        whole = self.journal.budget(None)
        assert whole is not None
        self._append("renewed", schedule.epsilon, schedule.delta, whole.composition, period.isoformat())

    def schedule(self, schedule: Schedule, lifetime: object = None) -> None:
        """Puts a schedule on record, and what all terms together may spend."""
        _check(schedule, now().date())
        for other in schedules_of(self.journal.schedules()):
            if schedule.overlaps(other):
                raise LedgerError(
                    f"this schedule overlaps one on record: {other}",
                    hint="end that one first:  dpsql budget renew --stop;  or begin after it:  --from",
                )
        whole = self.journal.budget(None)
        assert whole is not None
        self._append("renewal", schedule.epsilon, schedule.delta, whole.composition, schedule.to_json())
        if lifetime is not None:
            most = exact(lifetime, "lifetime")
            if most < schedule.epsilon:
                raise ProgrammingError(
                    f"a lifetime of {float(most):.6g} is less than one renewal of {float(schedule.epsilon):.6g}",
                    hint=f"it limits all terms together, for example  --lifetime {12 * float(schedule.epsilon):g}",
                )
            # As many budgets' delta as there are budgets in it.
            delta = min(schedule.delta * most / schedule.epsilon, LARGEST_DELTA)
            limit = filter_named(str(whole.composition), most, delta)
            totals = self.journal.tally().lifetime_totals
            if not limit.admits(totals):
                spent = limit.spent(totals)
                raise LedgerError(
                    f"epsilon {spent.epsilon:.6g} is already spent over all time, which a lifetime of "
                    f"{float(most):.6g} does not cover",
                    hint="answers cannot be taken back; name more than is already spent",
                )
            self._append("lifetime", limit.epsilon, limit.delta, limit.name)

    def stop(self) -> None:
        """Ends all schedules. The term that has begun goes on."""
        if not schedules_of(self.journal.schedules()):
            raise LedgerError(
                "no schedule is on record", hint="begin one:  dpsql budget renew --every month --epsilon 1"
            )
        self._append("renewal", sql=json.dumps({"every": None}))

    def _append(
        self,
        state: Literal["renewal", "renewed", "lifetime"],
        epsilon: Fraction = Fraction(0),
        delta: Fraction = Fraction(0),
        composition: str | None = None,
        sql: str | None = None,
    ) -> None:
        self.journal.append(
            Record(
                dataset=self.dataset,
                analyst=None,
                state=state,
                epsilon=epsilon,
                delta=delta,
                composition=composition,
                sql=sql,
            )
        )


def read_schedule(every: str, epsilon: object, delta: object, first: str | None, until: str | None) -> Schedule:
    """A schedule from texts; without a first day it begins with the next period."""
    if every not in get_args(Every):
        known = ", ".join(get_args(Every))
        raise ProgrammingError(f"a budget cannot be renewed every {every!r}", hint=f"write one of {known}")
    begins = _day(first, "--from") or next_start(now().date(), every)  # type: ignore[arg-type]
    return Schedule(every, exact(epsilon), exact(delta, "delta"), begins, _day(until, "--until"))  # type: ignore[arg-type]


def _day(text: str | None, option: str) -> date | None:
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        raise ProgrammingError(f"{option} {text}: not a day", hint="write it as 2027-01-31") from None


def _check(schedule: Schedule, today: date) -> None:
    filter_named("basic", schedule.epsilon, schedule.delta)  # refuses what is no budget
    if not schedule.epsilon:
        raise ProgrammingError("a renewal of epsilon 0 renews nothing", hint="write --epsilon 1, or --stop")
    if schedule.until is not None and schedule.until <= today:
        raise ProgrammingError(f"the schedule ends on {schedule.until}, which is past", hint="leave out --until")
    if schedule.first < today:
        raise ProgrammingError(
            f"the schedule begins on {schedule.first}, which is past: budgets are not renewed backwards",
            hint=f"leave out --from: the next {schedule.every} begins on {next_start(today, schedule.every)}",
        )
    if schedule.next_after(schedule.first - timedelta(days=1)) is None:
        raise ProgrammingError(
            f"no {schedule.every} begins from {schedule.first} until {schedule.until}", hint="write a later --until"
        )
