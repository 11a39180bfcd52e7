"""How a charge ends: in an answer, in a part that is given back, or in a failure that trips the wire.

Whether a question fails after its charge may depend on one person. So every way out of here is on record before
anything is said, and all failures look alike: the engine's, the noise's, and an answer that was ready when the analyst
was suspended for another question. docs/proofs/ledger.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.accounting.events import Composed
from dpsql.errors import Error
from dpsql.pipeline.add_noise import Noisy

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.accounting.ledger.entries import Entry
    from dpsql.pipeline.charge_budget import Charged
    from dpsql.pipeline.environment import Environment

    Draw = Callable[[Charged, Environment], Noisy]


def settled(draw: Draw, charged: Charged, environment: Environment) -> Noisy:
    if charged.entry is None:
        return draw(charged, environment)
    try:
        noisy, stop = _drawn_or_stopped(draw, charged, environment)
        if noisy is not None:
            _mark(charged.entry, noisy, environment)
            return noisy
        if isinstance(stop, Error | KeyboardInterrupt):
            # Public tables, noisy values, the ledger's file, the analyst's own key: nobody's row is behind these.
            environment.ledger.interrupted(charged.entry)
        else:
            environment.ledger.failed(charged.entry)
    finally:
        environment.ledger.let_go(charged.entry)
    assert stop is not None
    raise stop


def _drawn_or_stopped(
    draw: Draw, charged: Charged, environment: Environment
) -> tuple[Noisy | None, BaseException | None]:
    """What was drawn; or what ended it, with nothing on it that could show exact numbers."""
    try:
        return draw(charged, environment), None
    except Error as problem:
        return None, problem.with_traceback(None)
    except Exception:
        return Noisy(charged, (None,) * len(charged.recalled)), None
    except BaseException as problem:
        problem.__cause__ = problem.__context__ = None
        return None, problem.with_traceback(None)


def _mark(charge: Entry, noisy: Noisy, environment: Environment) -> None:
    if noisy.has_failed:
        environment.ledger.failed(charge)
    elif noisy.refused:
        events = Composed(tuple(part.event for part in noisy.refused))
        environment.ledger.refused(charge, events, noisy.refund)
    else:
        environment.ledger.released(charge)
