"""The process that has the data of one dataset, and answers the front: python -m dpsql.server.worker

It is started by the supervisor (serve.py), which writes one line of JSON to its standard input: the dataset's settings
and its socket. It prints one line when it is ready, or what is wrong, for the owner. When standard input ends it
finishes what was charged and goes: so no charge is lost when the server stops.

Everything that leaves is made in `answer_to`: an answer, an error of dpsql's, which says nothing that depends on a row,
or one fixed sentence for all other errors.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsql.accounting.ledger.journal import as_text
from dpsql.errors import Error
from dpsql.listing import counts, declared_facts, person_of
from dpsql.result import LEVEL, asked_on
from dpsql.server.channel import Reply, ReplyColumn, framed, plain, read_frame, untagged
from dpsql.server.confine import confine
from dpsql.server.protocol import CostNotAllowed, Problem, sqlstate
from dpsql.server.users import ASK, FREE_ONLY, ChargePolicy
from dpsql.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from fractions import Fraction

    from dpsql.accounting.budget import Budget
    from dpsql.explain import Explanation
    from dpsql.result import Receipt, Result
    from dpsql.schema import Schema

THREADS = 6
MOST_SESSIONS = 1000
MOST_ENTRIES = 10_000
"""So many of an analyst's last entries are shown."""
FAILED = Problem("58000", "the server could not answer", "tell the data owner when it happened")


class Worker:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._sessions: dict[tuple[str, str, Fraction | None], Session] = {}

    def answer_to(self, request: dict[str, Any]) -> dict[str, Any]:
        """All that leaves this process."""
        try:
            operation = OPERATIONS[request["operation"]]
            return {"number": request["number"], "ok": operation(self, request)}
        except Error as error:
            found = Problem(sqlstate(error), error.problem, error.hint, None if error.at is None else error.at.start)
        except Exception as error:
            # What it says may quote a row: the owner learns where it came from.
            where = traceback.extract_tb(error.__traceback__)[-1]
            print(f"worker: {type(error).__name__} in {Path(where.filename).name}:{where.lineno}", file=sys.stderr)
            found = FAILED
        return {"number": request["number"], "problem": asdict(found)}

    def session_of(self, request: dict[str, Any]) -> Session:
        """The analyst's session. A query that names no cost costs what its login spends on one, if that is less."""
        most = policy_of(request).most
        key = (str(request["analyst"]), str(request.get("dialect", "duckdb")), most)
        if key not in self._sessions:
            if len(self._sessions) >= MOST_SESSIONS:
                self._sessions.clear()
            self._sessions[key] = self._session.for_analyst(*key)
        return self._sessions[key]

    def hello(self, request: dict[str, Any]) -> dict[str, Any]:
        return declared(self._session.environment.schema)

    def budget(self, request: dict[str, Any]) -> dict[str, Any]:
        found = self.session_of(request).budget
        return {
            "dataset": self._session.environment.schema.dataset,
            "analyst": request["analyst"],
            "epsilon": found.epsilon,
            "delta": found.delta,
            "spent_epsilon": found.spent.epsilon,
            "spent_delta": found.spent.delta,
            "remaining_epsilon": found.remaining.epsilon,
            "remaining_delta": found.remaining.delta,
            "questions": found.queries,
            "suspended": any(one.analyst == request["analyst"] for one in found.suspended),
        }

    def history(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """The analyst's own entries of the ledger; nobody else's."""
        session = self.session_of(request)
        entries = session.environment.ledger.history(MOST_ENTRIES, request["analyst"])
        # That of an outcome is when it came: answers leave at a tick, and so their times are told.
        times = [session.told(datetime.fromisoformat(entry.time)) for entry in entries]
        return [entry.shown() | {"time": as_text(time)} for entry, time in zip(entries, times, strict=True)]

    def explain(self, request: dict[str, Any]) -> dict[str, Any]:
        session = self.session_of(request)
        explained = session.explain(request["sql"], _parameters(request), request["options"])
        return _explanation(explained, session.budget).to_json()

    def execute(self, request: dict[str, Any]) -> dict[str, Any]:
        session, policy = self.session_of(request), policy_of(request)

        def agreed(explained: Explanation) -> None:
            check_charge(policy, explained)

        result = session.execute_if(agreed, request["sql"], _parameters(request), request["options"])
        return _answer(result, session.budget, bool(request.get("intervals"))).to_json()


OPERATIONS: dict[str, Callable[[Worker, dict[str, Any]], Any]] = {
    "hello": Worker.hello,
    "budget": Worker.budget,
    "history": Worker.history,
    "explain": Worker.explain,
    "execute": Worker.execute,
}


def policy_of(request: dict[str, Any]) -> ChargePolicy:
    return ChargePolicy.parse(str(request.get("charge", ASK)))


def check_charge(policy: ChargePolicy, explained: Explanation) -> None:
    """Refuses a question that costs more than its login allows, before it is charged."""
    cost = explained.cost.epsilon
    if explained.recalled or cost <= policy.allowed:
        return
    hint = {
        ASK: f"to allow it in this session: SET dpsql.charge = 'up-to {cost:.4g}'",
        FREE_ONLY: "ask what was asked before, or ask the data owner for a login that may spend",
    }.get(policy.kind, f"write epsilon={policy.allowed:.4g} or less")
    most = f"at most epsilon {policy.allowed:.4g} per query" if policy.allowed else "nothing"
    raise CostNotAllowed(f"the query costs epsilon {cost:.4g}, but this session may spend {most}", hint=hint)


def _parameters(request: dict[str, Any]) -> Any:
    found = request.get("parameters")
    if isinstance(found, dict):
        return {name: untagged(value) for name, value in found.items()}
    return None if found is None else [untagged(value) for value in found]


def _explanation(explained: Explanation, budget: Budget) -> Reply:
    free = f"free: {asked_on(explained.asked)}" if explained.recalled and explained.mechanism else ""
    cost = f"would cost epsilon {explained.cost.epsilon:.4g}" if explained.mechanism else "free"
    return Reply(
        columns=tuple(ReplyColumn(column.name, column.type, column.is_noisy) for column in explained.columns),
        summary=f"{free or cost}; {_left(budget)}",
        notes=explained.notes,
        receipt={
            "epsilon": explained.cost.epsilon,
            "delta": explained.cost.delta,
            "recalled": explained.recalled,
            "mechanism": explained.mechanism,
            "remaining": explained.remaining.epsilon,
        },
        text=str(explained),
        widths=tuple((column.half_width, column.note) for column in explained.columns),
    )


def _answer(result: Result, budget: Budget, with_ends: bool) -> Reply:
    columns = tuple(ReplyColumn(column.name, column.type, column.is_noisy) for column in result.columns)
    ends = [
        [column.interval(row, value, LEVEL) for value, column in zip(row, result.columns, strict=False)]
        for row in (result.full_rows if with_ends else ())
    ]
    return Reply(
        columns=columns,
        rows=[[plain(value) for value in row] for row in result.rows],
        ends=ends,
        summary=f"{_paid(result.receipt)}; {_left(budget)}",
        notes=(*result.notes, *(_ends_note(result) if with_ends else ())),
        receipt={
            "epsilon": result.receipt.epsilon,
            "delta": result.receipt.delta,
            "recalled": result.receipt.recalled,
            "mechanism": result.receipt.mechanism,
            "entry": result.receipt.number,
            "remaining": budget.remaining.epsilon,
        },
    )


def _paid(receipt: Receipt) -> str:
    if not receipt.mechanism:
        return "free: nothing private was read"
    if receipt.recalled:
        return f"free: {asked_on(receipt.asked)}"
    return f"cost: epsilon {receipt.epsilon:.4g}, {receipt.mechanism} noise"


def _ends_note(result: Result) -> Iterator[str]:
    """Other clients read the caveat in the heading, which names the column here."""
    names = [f'"{column.name}"' for column in result.columns if column.noise_only]
    if names:
        yield f"{', '.join(names)}: the interval covers the noise only, not what is left out"


def _left(budget: Budget) -> str:
    return f"left: epsilon {budget.remaining.epsilon:.4g} of {budget.epsilon:.4g}"


def declared(schema: Schema) -> dict[str, Any]:
    """What is declared, which is public: the front makes its catalogue of it."""
    return {
        "dataset": schema.dataset,
        "tables": [
            {
                "name": table.name,
                "public": table.is_public,
                "comment": "public" if table.is_public else f"people by {person_of(schema, name)}: {counts(table)}",
                "key": table.unit_column if table.unique else None,
                "link": [hop.column, hop.to_table, hop.to_column] if (hop := _first_hop(schema, name)) else None,
                "columns": [
                    {
                        "name": column.name,
                        "type": column.type.name,
                        "nullable": column.nullable,
                        "comment": declared_facts(table, column),
                    }
                    for column in table.columns.values()
                ],
            }
            for name, table in schema.tables.items()
        ],
    }


def _first_hop(schema: Schema, name: str) -> Any:
    return next(iter(schema.unit_path(name)), None)


# -- process -----------------------------------------------------------------------------------------------------------


def open_dataset(given: dict[str, Any], timeout: float) -> Session:
    return Session(
        given["database"],
        given["schema"],
        budget=given["budget"],
        delta=given["delta"],
        ledger=given["ledger"],
        query_epsilon=given["query_epsilon"],
        composition=given["composition"],
        analyst=None,
        analyst_budget=None,
        on_failure="suspend",
        interrupts_per_day=given["interrupts_per_day"],
        timeout=timeout,
    )


async def serve(worker: Worker, socket: str, ended: asyncio.Event) -> None:
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="question")
    loop = asyncio.get_running_loop()
    running: set[asyncio.Task[None]] = set()
    listening: set[asyncio.StreamWriter] = set()

    async def answer(request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        found = await loop.run_in_executor(pool, worker.answer_to, request)
        with suppress(OSError):
            writer.write(framed(found))
            await writer.drain()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        listening.add(writer)
        with suppress(asyncio.IncompleteReadError, OSError, ValueError):
            while not ended.is_set():
                task = asyncio.create_task(answer(await read_frame(reader), writer))
                running.add(task)
                task.add_done_callback(running.discard)
        listening.discard(writer)
        writer.close()

    Path(socket).unlink(missing_ok=True)
    server = await asyncio.start_unix_server(connected, socket)
    Path(socket).chmod(0o600)
    print(json.dumps({"ready": True}), flush=True)
    await ended.wait()
    server.close()
    if running:
        await asyncio.wait(running)
    for writer in list(listening):
        writer.close()
    while listening:
        await asyncio.sleep(0.01)


async def run(given: dict[str, Any]) -> None:
    if given["is_local"]:
        confine(None, network=False)  # before there is any other thread
    session = open_dataset(given["dataset"], given["timeout"])
    session.tick = given["tick"]
    ended = asyncio.Event()
    # Whatever ends the supervisor ends its pipe.
    ending = asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
    ending.add_done_callback(lambda _: ended.set())
    try:
        await serve(Worker(session), given["socket"], ended)
    finally:
        session.close()


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the supervisor says when to end
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    given = json.loads(sys.stdin.readline())
    try:
        asyncio.run(run(given))
    except Error as error:
        print(json.dumps({"problem": error.problem, "hint": error.hint}), flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
