"""What is told around a fork: nothing that a ledger locks may stay locked in the child for ever."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forked(Protocol):
    def before_fork(self) -> None: ...

    def after_fork(self) -> None:
        """In the parent and in the child."""


def around_forks(store: Forked) -> None:
    """Tells it, as long as it lives."""
    _stores.add(store)


_stores: weakref.WeakSet[Forked] = weakref.WeakSet()
_forking: list[Forked] = []


def _before_fork() -> None:
    # Always in the same order, lest two threads that fork at once wait for each other.
    for store in sorted(_stores, key=id):
        store.before_fork()
        _forking.append(store)


def _after_fork() -> None:
    stores = _forking.copy()
    # Cleared while the locks are held: the next thread to fork begins to fill it as soon as they are not.
    _forking.clear()
    for store in stores:
        store.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
