"""What dpsql needs of a database: its own guarantees, that its tables stay, and to run one SELECT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np

    from dpsql.engines.public import Guarantees, Render


class ConnectionLost(Exception):
    """It broke while a SELECT was run, whose result was not seen; `run` would make it anew."""


def run_twice_if_lost(run: Callable[[str], Mapping[str, np.ndarray]], sql: str) -> Mapping[str, np.ndarray]:
    """Of what reads nobody's rows: a network fails, a server is restarted, and that passes."""
    try:
        return run(sql)
    except ConnectionLost:
        return run(sql)


class Engine(Protocol):
    @property
    def guarantees(self) -> Guarantees:
        """Of the declared tables, read when the database was opened."""

    @property
    def render(self) -> Render:
        """A query in the engine's words."""

    @property
    def copied(self) -> bool:
        """Whether the rows were copied when it was opened, so that nobody changes them any more."""

    def check_unchanged(self) -> None:
        """Raises OperationalError if a declared table is no longer the one that was opened."""

    def run_public(self, sql: str) -> Mapping[str, np.ndarray]:
        """Like `run`, of a SELECT that reads public tables alone; free, so rows of people are not touched."""

    def run(self, sql: str, lasting: Mapping[str, str] | None = None) -> Mapping[str, np.ndarray]:
        """The columns of the result, NULL as masked values. What was asked is paid for.

        `lasting`: tables that it reads, and the queries that they are made of, which last from question to question.

        Raises ConnectionLost, and whatever the database says when it fails.
        """

    def close(self) -> None: ...
