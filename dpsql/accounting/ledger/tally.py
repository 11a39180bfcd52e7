"""The running sums of one account, so that what was spent is known without reading the entries again.

Beside what the filter counts, a tally keeps what the textbook rules would have counted over the nominal costs.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from dpsql.accounting.exact import Amount, from_text, rounded_up, shortened, to_text
from dpsql.accounting.privacy_loss import Cost, PrivacyLoss, privacy_loss

if TYPE_CHECKING:
    from dpsql.accounting.ledger.entries import Record

ZERO = Fraction(0)
NOTHING = PrivacyLoss()


@dataclass(frozen=True)
class Tally:
    queries: int = 0
    totals: PrivacyLoss = NOTHING
    epsilon: Amount = ZERO
    delta: Amount = ZERO
    epsilon_squared: Amount = ZERO
    drift: Amount = ZERO  # the sum of epsilon (e^epsilon - 1), the loss to be expected

    def plus(self, cost: PrivacyLoss, epsilon: Fraction, delta: Fraction) -> Tally:
        """With one more query, of this price and this nominal (epsilon, delta)."""
        return Tally(
            self.queries + 1,
            self.totals + cost,
            shortened(self.epsilon + epsilon),
            shortened(self.delta + delta),
            shortened(self.epsilon_squared + epsilon**2),
            shortened(self.drift + _drift(epsilon)),
        )

    def less(self, refund: PrivacyLoss, epsilon: Fraction, delta: Fraction) -> Tally:
        """Without a part that was not spent. The squares for `advanced`, a comparison only, stay as they are."""
        return replace(
            self,
            totals=self.totals.less(refund),
            epsilon=shortened(self.epsilon - epsilon),
            delta=shortened(self.delta - delta),
        )

    def after(self, record: Record) -> Tally:
        """With what the record says happened."""
        if record.event is None:
            return self
        change = self.less if record.state == "refused" else self.plus
        return change(privacy_loss(record.event), record.epsilon, record.delta)

    def agrees(self, counted: Tally) -> bool:
        return self.totals.agrees(counted.totals) and replace(self, totals=NOTHING) == replace(counted, totals=NOTHING)

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
        described = {"queries": self.queries, "totals": self.totals.to_texts()} | amounts
        return json.dumps(described, sort_keys=True, separators=(",", ":"))

    @staticmethod
    @lru_cache(maxsize=256)
    def from_json(text: str) -> Tally:
        """A question reads the same sums several times."""
        described = json.loads(text)
        queries, totals = described.pop("queries"), described.pop("totals")
        amounts = {name: from_text(amount) for name, amount in described.items()}
        return Tally(queries, PrivacyLoss.from_texts(totals), **amounts)


def _drift(epsilon: Fraction) -> Amount:
    try:
        return Fraction(float(epsilon) * math.expm1(float(epsilon)))
    except OverflowError:
        return math.inf
