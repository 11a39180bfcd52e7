"""Which charges a living question still works on: for each, a lock on one byte of a file beside the ledger.

The system takes the locks of a process back when it dies, however it dies. So a charge that is open and not held was
lost on the way, and counts as failed. docs/proofs/ledger.md.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import suppress

try:
    import fcntl
except ImportError:  # pragma: no cover - where there are no such locks, what another process does cannot be known
    fcntl = None  # type: ignore[assignment]


class Holds:
    """Those of this process, and a look at those of others. Made by `holds_on`."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._numbers: set[int] = set()
        self._file: int | None = None

    def take(self, number: int) -> None:
        with _lock:
            self._numbers.add(number)
            if self._path is not None and fcntl is not None:
                # Without a lock the charge is taken for lost while it is not, which is the safe side.
                with suppress(OSError):
                    fcntl.lockf(self._opened(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)

    def let_go(self, number: int) -> None:
        with _lock:
            self._numbers.discard(number)
            if self._file is not None and fcntl is not None:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, number)
            self._close_if_idle()

    def has(self, number: int) -> bool:
        with _lock:
            if number in self._numbers or self._path is None:
                return number in self._numbers
            return self._is_locked_elsewhere(number)

    def forget(self) -> None:
        """In a forked child: the locks are the parent's."""
        self._numbers.clear()
        self._close_if_idle()

    def __del__(self) -> None:
        self._numbers.clear()
        self._close_if_idle()

    def _is_locked_elsewhere(self, number: int) -> bool:
        if fcntl is None:
            return True
        try:
            fcntl.lockf(self._opened(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
        except OSError:
            return True
        else:
            fcntl.lockf(self._opened(), fcntl.LOCK_UN, 1, number)
            return False
        finally:
            self._close_if_idle()

    def _opened(self) -> int:
        if self._file is None:
            assert self._path is not None
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        return self._file

    def _close_if_idle(self) -> None:
        """Closing any descriptor of a file ends all locks of the process on it, so there is one, while it is used."""
        if self._file is not None and not self._numbers:
            os.close(self._file)
            self._file = None


_lock = threading.Lock()
_shared: weakref.WeakValueDictionary[str, Holds] = weakref.WeakValueDictionary()


def holds_on(path: str | None) -> Holds:
    """On the ledger of this file, shared by all who have it open; None for one in memory."""
    if path is None:
        return Holds(None)
    with _lock:
        holds = _shared.get(path)
        if holds is None:
            holds = _shared[path] = Holds(f"{path}-held")
        return holds


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    for holds in _shared.values():
        holds.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
