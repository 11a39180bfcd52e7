"""One budget, many processes that ask whole questions: just what is affordable is answered, and no answer is lost."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.accounting.ledger.ledger import Ledger

SCHEMA = {"tables": {"people": {"unit": "id", "unique": True, "columns": {"id": "integer"}}}}
SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "people.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE people AS SELECT i AS id FROM range(100) AS r(i)")
    return path


def ask(path: Path, epsilon: float, budget: float, questions: int, answered: Any) -> None:
    # A process that was killed would suspend all the others: here that is only noted.
    with dpsql.connect(path, schema=SCHEMA, budget=budget, on_failure="warn") as connection:
        for _ in range(questions):
            try:
                receipt = connection.execute("SELECT COUNT(*) FROM people", epsilon=epsilon, fresh=True).receipt
            except dpsql.BudgetExhausted:
                continue
            answered.put(receipt.number)


def collect(answered: Any) -> list[int]:
    numbers = []
    while not answered.empty():
        numbers.append(answered.get())
    return numbers


def wait_for_more(answered: Any) -> None:
    """Until the new processes have asked something: how long they take to start is the machine's affair."""
    before, deadline = answered.qsize(), time.monotonic() + 60
    while answered.qsize() <= before and time.monotonic() < deadline:
        time.sleep(0.02)


def run_all(path: Path, processes: int, questions: int, epsilon: float, budget: float) -> list[int]:
    with SPAWN.Manager() as manager:
        answered = manager.Queue()
        workers = [
            SPAWN.Process(target=ask, args=(path, epsilon, budget, questions, answered)) for _ in range(processes)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return collect(answered)


def test_two_processes_share_a_budget(database: Path) -> None:
    answered = run_all(database, processes=2, questions=8, epsilon=0.1, budget=1)
    assert len(set(answered)) == len(answered) == 10


@pytest.mark.long
def test_eight_processes_share_a_budget(database: Path) -> None:
    answered = run_all(database, processes=8, questions=200, epsilon=0.125, budget=100)
    assert len(set(answered)) == len(answered) == 800
    assert Ledger.at(f"{database}.ledger").verify().charges == 800


@pytest.mark.long
def test_fifty_processes_are_killed(database: Path) -> None:
    """Every answer that got out is in the ledger, and the chain is intact."""
    rng = random.Random(7)
    with SPAWN.Manager() as manager:
        answered = manager.Queue()
        for _ in range(25):
            workers = [SPAWN.Process(target=ask, args=(database, 0.1, 1000, 200, answered)) for _ in range(2)]
            for worker in workers:
                worker.start()
            wait_for_more(answered)
            time.sleep(rng.random() / 4)
            for worker in workers:
                os.kill(worker.pid or 0, signal.SIGKILL)
                worker.join()
        numbers = collect(answered)
    ledger = Ledger.at(f"{database}.ledger")
    charged = {entry.number for entry in ledger.history() if entry.state == "charged"}
    assert numbers
    assert set(numbers) <= charged
    assert ledger.verify().charges == len(charged) >= len(set(numbers))
