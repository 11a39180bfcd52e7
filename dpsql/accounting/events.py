"""Privacy events: what was released. What an event costs is said by privacy_loss.py alone.

An event is a plain value: frozen, hashable, and the same again after a trip through JSON. `privacy_loss` turns it into
amounts; an accountant knows only events, and an event knows no accountant.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import TYPE_CHECKING, final

from dpsql.accounting.exact import to_text
from dpsql.errors import ProgrammingError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Event:
    """The base class. A kind of event that `privacy_loss` does not know is refused."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, tuple):
                continue
            if not isinstance(value, Fraction) or value < 0:
                raise ProgrammingError(
                    f"{type(self).__name__}: {field.name} must be a non-negative Fraction, not {value!r}",
                    hint="convert numbers to Fractions with exact()",
                )

    def to_json(self) -> str:
        """
        >>> Laplace(Fraction(10)).to_json()
        '{"event":"Laplace","noise_multiplier":"10/1"}'
        """
        return json.dumps(self._described(), sort_keys=True, separators=(",", ":"))

    def _described(self) -> dict[str, object]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"event": type(self).__name__} | {
            name: [event._described() for event in value] if isinstance(value, tuple) else to_text(value)
            for name, value in values.items()
        }


@final
@dataclass(frozen=True)
class Laplace(Event):
    """Discrete or continuous Laplace noise; the multiplier is its scale over the L1 sensitivity, 1/epsilon."""

    noise_multiplier: Fraction


@final
@dataclass(frozen=True)
class Gaussian(Event):
    """Gaussian noise; the multiplier is sigma over the L2 sensitivity, 1/mu."""

    noise_multiplier: Fraction


@final
@dataclass(frozen=True)
class PureRelease(Event):
    """Any epsilon-DP release."""

    epsilon: Fraction


@final
@dataclass(frozen=True)
class ApproximateRelease(Event):
    """Any (epsilon, delta)-DP release. Partition selection is `ApproximateRelease(0, delta)`, besides its noise."""

    epsilon: Fraction
    delta: Fraction


@final
@dataclass(frozen=True)
class Exponential(Event):
    """A choice by the exponential mechanism at epsilon. Permute-and-flip is not one: it is a PureRelease."""

    epsilon: Fraction


@final
@dataclass(frozen=True)
class Parallel(Event):
    """Parallel composition: releases over disjoint sets of units, so that each person is in one of them."""

    events: tuple[Event, ...]


@final
@dataclass(frozen=True)
class Composed(Event):
    """Sequential composition: releases over the same units."""

    events: tuple[Event, ...]


@final
@dataclass(frozen=True)
class Repeated(Event):
    """The same releases several times over the same units: once for each group in which one person can be."""

    events: tuple[Event, ...]
    times: Fraction


@final
@dataclass(frozen=True)
class Free(Event):
    """Post-processing, or a computation on public data. It costs nothing."""


@final
@dataclass(frozen=True)
class NonPrivate(Event):
    """A release without protection. No budget covers it."""


BASIC_KINDS = (Laplace, Gaussian, PureRelease, ApproximateRelease, Exponential, Free, NonPrivate)
KINDS = {kind.__name__: kind for kind in (*BASIC_KINDS, Parallel, Composed, Repeated)}


def from_json(text: str) -> Event:
    """
    >>> from_json('{"event":"Laplace","noise_multiplier":"10/1"}')
    Laplace(noise_multiplier=Fraction(10, 1))
    """
    return _revived(json.loads(text))


def _revived(described: Mapping[str, object]) -> Event:
    kind = KINDS.get(str(described.get("event")))
    if kind is None:
        raise Unsupported(
            f"{described.get('event')!r} is not a privacy event known to this version",
            hint="read the ledger with the dpsql version that wrote it, or a newer one",
        )
    values = {
        name: tuple(map(_revived, value)) if isinstance(value, list) else Fraction(str(value))
        for name, value in described.items()
        if name != "event"
    }
    return kind(**values)  # type: ignore[arg-type]
