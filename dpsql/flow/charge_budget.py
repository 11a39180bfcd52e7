"""charge_budget: the account is charged, durably and all at once, before anything private is read.

A release that was drawn before, at the same price, is not drawn again: its noisy answer is recalled, free.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.accounting.costs import Cost
from dpsql.accounting.events import Composed
from dpsql.accounting.exact import rounded_up
from dpsql.accounting.ledger import Charge
from dpsql.errors import BudgetExhausted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.accounting.entries import Entry
    from dpsql.flow.calibrate_noise import Calibrated
    from dpsql.flow.setting import Setting


@dataclass(frozen=True)
class Charged:
    calibrated: Calibrated
    recalled: tuple[str | None, ...]
    """For each release its stored answer, or None if it is drawn now."""
    entry: Entry | None
    """The ledger's entry; None when nothing had to be charged."""

    def cost(self, spared: Fraction) -> Cost:
        """What was charged, less what was given back."""
        if self.entry is None:
            return Cost(0.0, 0.0)
        return Cost(rounded_up(self.entry.epsilon - spared), rounded_up(self.entry.delta))


def charge_budget(calibrated: Calibrated, setting: Setting) -> Charged:
    try:
        (charged,) = charge_together([calibrated], None, setting)
    except BudgetExhausted as refused:
        if calibrated.question.accuracy is None:
            raise
        raise BudgetExhausted(
            refused.requested,
            refused.remaining,
            hint=f"that is the least for {calibrated.question.accuracy} at 95 %; ask for a wider accuracy=",
        ) from None
    return charged


def charge_together(parts: Sequence[Calibrated], epsilon: Fraction | None, setting: Setting) -> list[Charged]:
    """All of them or none; `epsilon` is what they amount to together, where that is less than the sum."""
    setting.check_process()
    recalled = [_recalled(calibrated, setting) for calibrated in parts]
    setting.engine.check_unchanged()
    charges = [_charge(calibrated, answers) for calibrated, answers in zip(parts, recalled, strict=True)]
    owed = [charge for charge in charges if charge is not None]
    total = sum((charge.epsilon for charge in owed), Fraction(0))
    entries = iter(setting.ledger.charge_all(owed, total if epsilon is None else min(epsilon, total)))
    return [
        Charged(calibrated, answers, None if charge is None else next(entries))
        for calibrated, answers, charge in zip(parts, recalled, charges, strict=True)
    ]


def _recalled(calibrated: Calibrated, setting: Setting) -> tuple[str | None, ...]:
    answers, fresh = setting.ledger.answers, calibrated.question.fresh
    return tuple(None if fresh else answers.recall(release.fingerprint) for release in calibrated.releases)


def _charge(calibrated: Calibrated, recalled: tuple[str | None, ...]) -> Charge | None:
    """For what is drawn now; None if that is nothing."""
    drawn = [release for release, answer in zip(calibrated.releases, recalled, strict=True) if answer is None]
    if not drawn:
        return None
    return Charge(
        Composed(tuple(release.event for release in drawn)),
        calibrated.question.sql,
        hashlib.sha256("".join(release.fingerprint for release in drawn).encode()).hexdigest(),
        sum((release.epsilon for release in drawn), Fraction(0)),
        sum((release.delta for release in drawn), Fraction(0)),
    )
