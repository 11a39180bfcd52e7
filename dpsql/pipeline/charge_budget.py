"""charge_budget: charges the ledger, durably and all at once, before any private row is read.

A release that was drawn before with the same noise is not drawn again: its stored answer is recalled, for free.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.accounting.events import Composed
from dpsql.accounting.exact import rounded_up
from dpsql.accounting.ledger.ledger import Charge
from dpsql.accounting.privacy_loss import Cost
from dpsql.errors import BudgetExhausted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.accounting.ledger.journal import Entry
    from dpsql.pipeline.calibrate_noise import Calibrated
    from dpsql.pipeline.environment import Environment


@dataclass(frozen=True)
class Charged:
    calibrated: Calibrated
    recalled: tuple[str | None, ...]
    """The stored answer of each release; None if it is drawn now."""
    entry: Entry | None
    """The ledger's entry; None if nothing was charged."""
    histogram: Entry | None = None
    """The entry of the histogram of rows per person, if it was drawn with this question."""

    def cost(self, refund: Fraction) -> Cost:
        """The cost after refunds."""
        entries = [entry for entry in (self.entry, self.histogram) if entry is not None]
        epsilon = sum((Fraction(entry.epsilon) for entry in entries), -refund)
        return Cost(rounded_up(epsilon), rounded_up(sum((Fraction(entry.delta) for entry in entries), Fraction(0))))


def charge_budget(calibrated: Calibrated, environment: Environment) -> Charged:
    try:
        (charged,) = charge_together([calibrated], None, environment)
    except BudgetExhausted as refused:
        if calibrated.request.accuracy is None:
            raise
        raise BudgetExhausted(
            refused.requested,
            refused.remaining,
            problem=refused.problem,
            hint=f"that is the least for {calibrated.request.accuracy} at 95 %; use a wider accuracy=",
        ) from None
    return charged


def charge_together(parts: Sequence[Calibrated], epsilon: Fraction | None, environment: Environment) -> list[Charged]:
    """Charges all queries or none. `epsilon` is their joint cost, if that is less than the sum."""
    environment.check_process()
    recalled = [_recalled(calibrated, environment) for calibrated in parts]
    environment.engine.check_unchanged()
    charges = [_charge(calibrated, answers) for calibrated, answers in zip(parts, recalled, strict=True)]
    owed = [charge for charge in charges if charge is not None]
    total = sum((charge.epsilon for charge in owed), Fraction(0))
    entries = iter(environment.ledger.charge_all(owed, total if epsilon is None else min(epsilon, total)))
    return [
        Charged(calibrated, answers, None if charge is None else next(entries))
        for calibrated, answers, charge in zip(parts, recalled, charges, strict=True)
    ]


def _recalled(calibrated: Calibrated, environment: Environment) -> tuple[str | None, ...]:
    answers, fresh = environment.ledger.answers, calibrated.request.fresh
    return tuple(None if fresh else answers.recall(release.fingerprint) for release in calibrated.releases)


def _charge(calibrated: Calibrated, recalled: tuple[str | None, ...]) -> Charge | None:
    """The privacy event of the releases that are drawn now; None if there are none."""
    drawn = [release for release, answer in zip(calibrated.releases, recalled, strict=True) if answer is None]
    if not drawn:
        return None
    return Charge(
        Composed(tuple(release.event for release in drawn)),
        calibrated.request.sql,
        hashlib.sha256("".join(release.fingerprint for release in drawn).encode()).hexdigest(),
        sum((release.epsilon for release in drawn), Fraction(0)),
        sum((release.delta for release in drawn), Fraction(0)),
    )
