"""`dpsql serve`: the supervisor, which starts a worker for each dataset and one front, and starts them again.

It opens neither data nor ports. Each process is told what it needs on its standard input, says on its standard output
when it is ready, and goes when its standard input ends: so when the supervisor stops, however it does, they stop too,
the workers after the questions that were charged.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsql.errors import OperationalError
from dpsql.server.settings import DatasetSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.server.settings import ServerSettings

LOOK_EVERY = 0.2
LONGEST_START = 600.0
LEAST_LIFE = 5.0
"""A process that ends sooner is started again only after a wait, which doubles."""
LONGEST_WAIT = 60.0
GRACE = 10.0
FRONT_ENVIRONMENT = ("PATH", "PYTHON", "HOME", "LANG", "LC_", "TZ", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "COVERAGE")
"""What the front hears of the environment: names that begin so."""


@dataclass
class Child:
    """A process of ours, and how it is started."""

    module: str
    given: dict[str, Any]
    environment: dict[str, str] | None = None
    """None: this process's own."""
    process: subprocess.Popen[str] | None = None
    started: float = 0.0
    wait: float = 0.0
    due: float = 0.0
    ready: dict[str, Any] = field(default_factory=dict)

    def start(self) -> None:
        """Returns when it is ready; raises OperationalError with what it says is wrong."""
        self.end(0)
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", self.module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self.environment,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(self.given) + "\n")
        self.process.stdin.flush()
        watch = threading.Timer(LONGEST_START, self.process.kill)
        watch.start()
        line = self.process.stdout.readline()
        watch.cancel()
        self.ready = json.loads(line) if line else {"problem": f"{self.module} ended", "hint": None}
        if "problem" in self.ready:
            self.process.wait()
            raise OperationalError(self.ready["problem"], hint=self.ready["hint"])

    @property
    def has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def start_again(self) -> None:
        """After a wait, where it does not live long."""
        now = time.monotonic()
        if not self.due:
            lives_long = now - self.started > LEAST_LIFE + self.wait
            self.wait = 0.0 if lives_long else min(LONGEST_WAIT, max(1.0, 2 * self.wait))
            self.due = now + self.wait
        if now < self.due:
            return
        self.due = 0.0
        try:
            self.start()
        except OperationalError as problem:
            print(f"{self.module}: {problem.problem}", file=sys.stderr)

    def ask_to_end(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()

    def end(self, patience: float) -> None:
        """Waits for the end, and kills what does not end by itself."""
        if self.process is None:
            return
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):  # what it did not read is lost with it
                    pipe.close()


def children_of(settings: ServerSettings) -> list[Child]:
    """The workers, and the front after them."""
    workers = [
        Child(
            "dpsql.server.worker",
            {
                "dataset": dataset.model_dump(by_alias=True),
                "socket": str(settings.socket(name)),
                "timeout": settings.timeout,
                "tick": settings.tick,
                "is_local": not any("://" in str(place) for place in (dataset.database, dataset.ledger)),
            },
        )
        for name, dataset in settings.datasets.items()
    ]
    # Where a database is may contain its password; so may the environment.
    unnamed = {name: DatasetSettings(database="", schema="") for name in settings.datasets}
    known = settings.model_copy(update={"datasets": unnamed}).model_dump(by_alias=True)
    environment = {name: value for name, value in os.environ.items() if name.startswith(FRONT_ENVIRONMENT)}
    return [*workers, Child("dpsql.server.front", known, environment)]


def serve(settings: ServerSettings, tell: Callable[[dict[str, Any]], None]) -> None:
    """Serves until SIGINT or SIGTERM; `tell` hears of the front when it is ready."""
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    children = children_of(settings)
    try:
        for child in children:
            child.start()
        tell(children[-1].ready)
        while not stopping.wait(LOOK_EVERY):
            for child in children:
                if child.has_ended:
                    child.start_again()
    finally:
        for child in reversed(children):
            child.ask_to_end()
        for child in reversed(children):
            child.end(settings.timeout + GRACE)
        for name in settings.datasets:
            Path(settings.socket(name)).unlink(missing_ok=True)
