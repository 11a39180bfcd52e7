"""The wire between the front, which faces the network, and a worker, which has one dataset.

A frame is a length and a JSON object: nothing that either side sends can run code on the other. A request has a number,
an operation and the analyst in whose name it is made; an answer has that number, and `ok` or `problem`.
"""

from __future__ import annotations

import asyncio
import json
import struct
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import date, datetime, timedelta
from datetime import time as time_of_day
from decimal import Decimal
from itertools import count
from typing import TYPE_CHECKING, Any

from dpsql.server.protocol import SHUTTING_DOWN, TOO_MANY, Problem, Refused, refused

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LARGEST_FRAME = 1 << 30
MOST_WAITING = 32
"""Questions of one analyst that wait for their turn."""
AT_ONCE = 2
"""Questions that a worker computes at once, each of another analyst."""

# -- frames ------------------------------------------------------------------------------------------------------------


def framed(document: dict[str, Any]) -> bytes:
    body = json.dumps(document, default=str).encode()
    return struct.pack("!i", len(body)) + body


async def read_frame(reader: asyncio.StreamReader) -> dict[str, Any]:
    (length,) = struct.unpack("!i", await reader.readexactly(4))
    if not 0 < length <= LARGEST_FRAME:
        raise ConnectionError("a frame of a wrong length")
    found: dict[str, Any] = json.loads(await reader.readexactly(length))
    return found


# -- values ------------------------------------------------------------------------------------------------------------
# What JSON has no word for: in answers it is text, and the column's type says what it is; a parameter has a tag.

TAGS: dict[str, Any] = {
    "decimal": Decimal,
    "date": date.fromisoformat,
    "timestamp": datetime.fromisoformat,
}


def plain(value: Any) -> Any:
    """A value of an answer as JSON has it.

    >>> plain(Decimal("1.50")), plain(date(2024, 1, 31)), plain([1, None])
    ('1.50', '2024-01-31', [1, None])
    """
    match value:
        case None | bool() | int() | float() | str():
            return value
        case datetime():
            return value.isoformat(" ")
        case date() | time_of_day():
            return value.isoformat()
        case list() | tuple():
            return [plain(part) for part in value]
        case bytes():
            return f"\\x{value.hex()}"
        case timedelta() | Decimal():
            return str(value)
    return str(value)


def tagged(value: Any) -> Any:
    """A parameter as it travels."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Decimal():
            return {"decimal": str(value)}
        case datetime():
            return {"timestamp": value.isoformat()}
        case date():
            return {"date": value.isoformat()}
        case list() | tuple():
            return [tagged(part) for part in value]
    raise refused("22023", f"a parameter cannot be a {type(value).__name__}", "pass numbers, texts, dates or lists")


def untagged(value: Any) -> Any:
    """
    >>> untagged(tagged([Decimal("1.5"), date(2024, 1, 31), None]))
    [Decimal('1.5'), datetime.date(2024, 1, 31), None]
    """
    if isinstance(value, dict):
        ((tag, text),) = value.items()
        return TAGS[tag](text)
    return [untagged(part) for part in value] if isinstance(value, list) else value


# -- answers -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReplyColumn:
    """A column of an answer: known before the question is paid for."""

    name: str
    type: str
    is_noisy: bool = False


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a worker gives to a question, or as its explanation, which has no rows."""

    columns: tuple[ReplyColumn, ...]
    rows: Sequence[Sequence[Any]] = ()
    ends: Sequence[Sequence[Any]] = ()
    """For each row and column, the ends of the 95 % interval, or None."""
    summary: str = ""
    """What was paid and what is left, in one line."""
    notes: tuple[str, ...] = ()
    receipt: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    """The explanation in words."""
    widths: tuple[tuple[float | None, str], ...] = ()
    """Of an explanation: the half-width of each column's interval, and what else is known of its error."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Reply:
        columns = tuple(ReplyColumn(**column) for column in found["columns"])
        widths = tuple((width, note) for width, note in found["widths"])
        return cls(**{**found, "columns": columns, "notes": tuple(found["notes"]), "widths": widths})


# -- link --------------------------------------------------------------------------------------------------------------


class Link:
    """The front's side: asks a worker, keeps the queues, and gives what it says at the next tick of a public clock.

    Every answer and every error of a worker leaves at a tick, whatever was asked: so that the time until it arrives
    tells at most how many ticks passed. One question of an analyst is computed at a time, and analysts take turns.
    """

    def __init__(self, name: str, socket: Path, tick: float) -> None:
        self.name = name
        self.socket = socket
        self.tick = tick
        self.questions = 0
        self._numbers = count(1)
        self._pending: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._waiting: dict[str, int] = defaultdict(int)
        self._places = asyncio.Semaphore(AT_ONCE)
        self._connecting = asyncio.Lock()
        self._writer: asyncio.StreamWriter | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def ask(self, operation: str, analyst: str, **given: Any) -> Any:
        """What the worker says, at the next tick. Whoever is cancelled stops waiting; the worker goes on."""
        work = self._in_turn if operation == "execute" else self._sent
        task = asyncio.create_task(work(operation, analyst, given))
        self._tasks.add(task)
        task.add_done_callback(self._done)
        try:
            return await asyncio.shield(task)
        finally:
            await self.next_tick()

    async def next_tick(self) -> None:
        await asyncio.sleep(self.tick - time.time() % self.tick)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever asked may be gone

    async def _in_turn(self, operation: str, analyst: str, given: dict[str, Any]) -> Any:
        if self._waiting[analyst] >= MOST_WAITING:
            raise refused(TOO_MANY, f"{MOST_WAITING} questions are waiting already", "wait for their answers")
        self._waiting[analyst] += 1
        try:
            async with self._turns[analyst], self._places:
                self.questions += 1
                try:
                    return await self._sent(operation, analyst, given)
                finally:
                    await self.next_tick()  # when the next question begins does not tell when this one ended
        finally:
            self._waiting[analyst] -= 1

    async def _sent(self, operation: str, analyst: str, given: dict[str, Any]) -> Any:
        writer = await self._connected()
        number = next(self._numbers)
        answer = self._pending[number] = asyncio.get_running_loop().create_future()
        try:
            writer.write(framed({"number": number, "operation": operation, "analyst": analyst, **given}))
            await writer.drain()
            found = await answer
        except OSError:
            raise _away(self.name) from None
        finally:
            self._pending.pop(number, None)
        if "problem" in found:
            raise Refused(Problem(**found["problem"]))
        return found["ok"]

    async def _connected(self) -> asyncio.StreamWriter:
        async with self._connecting:
            if self._writer is None:
                try:
                    reader, self._writer = await asyncio.open_unix_connection(str(self.socket))
                except OSError:
                    raise _away(self.name) from None
                task = asyncio.create_task(self._listen(reader))
                self._tasks.add(task)
                task.add_done_callback(self._done)
            return self._writer

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, ValueError):
            while True:
                found = await read_frame(reader)
                waiting = self._pending.get(found["number"])
                if waiting is not None and not waiting.done():
                    waiting.set_result(found)
        self._writer = None
        for waiting in self._pending.values():
            if not waiting.done():
                waiting.set_exception(_away(self.name))


def _away(name: str) -> Refused:
    return refused(SHUTTING_DOWN, f"the dataset {name} is starting again", "try again in a few seconds")
