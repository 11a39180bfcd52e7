"""How a charge ends: in an answer, in a part that is given back, or in a failure that trips the wire.

Whether a question fails after its charge may depend on one person. So every way out of here is on record before
anything is said, and all failures look alike: the engine's, the noise's, and an answer that was ready when the analyst
was suspended for another question. docs/proofs/ledger.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.accounting.events import Composed
from dpsql.errors import Error
from dpsql.flow.add_noise import Noisy

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.accounting.entries import Entry
    from dpsql.flow.charge_budget import Charged
    from dpsql.flow.setting import Setting

    Draw = Callable[[Charged, Setting], Noisy]


def settled(draw: Draw, charged: Charged, setting: Setting) -> Noisy:
    if charged.entry is None:
        return draw(charged, setting)
    try:
        noisy, stop = _drawn_or_stopped(draw, charged, setting)
        if noisy is not None:
            _mark(charged.entry, noisy, setting)
            return noisy
        if isinstance(stop, Error | KeyboardInterrupt):
            # Public tables, noisy values, the ledger's file, the analyst's own key: nobody's row is behind these.
            setting.ledger.interrupted(charged.entry)
        else:
            setting.ledger.failed(charged.entry)
    finally:
        setting.ledger.let_go(charged.entry)
    assert stop is not None
    raise stop


def _drawn_or_stopped(draw: Draw, charged: Charged, setting: Setting) -> tuple[Noisy | None, BaseException | None]:
    """What was drawn; or what ended it, with nothing on it that could show exact numbers."""
    try:
        return draw(charged, setting), None
    except Error as problem:
        return None, problem.with_traceback(None)
    except Exception:
        return Noisy(charged, (None,) * len(charged.recalled)), None
    except BaseException as problem:
        problem.__cause__ = problem.__context__ = None
        return None, problem.with_traceback(None)


def _mark(charge: Entry, noisy: Noisy, setting: Setting) -> None:
    if noisy.has_failed:
        setting.ledger.failed(charge)
    elif noisy.refused:
        events = Composed(tuple(part.event for part in noisy.refused))
        setting.ledger.refused(charge, events, noisy.spared)
    else:
        setting.ledger.released(charge)
