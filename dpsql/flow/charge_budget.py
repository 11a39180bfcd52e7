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

if TYPE_CHECKING:
    from dpsql.accounting.entries import Entry
    from dpsql.flow.calibrate_noise import Calibrated, CalibratedRelease
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
    answers = setting.ledger.answers
    fresh = calibrated.question.fresh
    recalled = tuple(None if fresh else answers.recall(release.fingerprint) for release in calibrated.releases)
    drawn = [release for release, answer in zip(calibrated.releases, recalled, strict=True) if answer is None]
    return Charged(calibrated, recalled, _charge(calibrated, drawn, setting) if drawn else None)


def _charge(calibrated: Calibrated, drawn: list[CalibratedRelease], setting: Setting) -> Entry:
    fingerprint = hashlib.sha256("".join(release.fingerprint for release in drawn).encode()).hexdigest()
    return setting.ledger.charge(
        Composed(tuple(release.event for release in drawn)),
        sql=calibrated.question.sql,
        fingerprint=fingerprint,
        epsilon=sum((release.epsilon for release in drawn), Fraction(0)),
        delta=sum((release.delta for release in drawn), Fraction(0)),
    )
