"""docs/proofs/ledger.md, executed: many processes, many threads, and processes that die at any moment."""

import itertools
import os
import random
import signal
import threading
import time
from fractions import Fraction

import pytest

from dpsql.accounting.events import PureRelease
from dpsql.accounting.ledger import sqlite
from dpsql.accounting.ledger.ledger import Ledger
from dpsql.errors import BudgetExhausted

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

QUARTER = PureRelease(Fraction(1, 4))
PLENTY = 10**6


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Processes that wait for each other wait as long as it takes, however busy the machine is."""
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 300.0)
    return tmp_path / "shop.ledger"


def spend(ledger):
    """A charge that ends in an answer."""
    charge = ledger.charge(QUARTER, sql="SELECT 1", fingerprint="f", epsilon="0.25")
    ledger.released(charge)
    ledger.release(charge)
    return charge


def forked(work, path, epsilon=100, on_failure="suspend", analyst=None):
    """A child that runs `work(ledger, say)`; what it says comes out of the pipe."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            ledger = Ledger.open(path, dataset="shop", epsilon=epsilon, on_failure=on_failure, analyst=analyst)
            work(ledger, lambda word: os.write(writer, f"{word}\n".encode()))
        except BaseException as error:
            os.write(writer, f"{error!r}\n".encode())
        finally:
            os._exit(0)
    os.close(writer)
    return child, reader


def heard(reader):
    with os.fdopen(reader) as pipe:
        return pipe.read().split("\n")[:-1]


def test_eight_processes_spend_exactly_what_there_is(path):
    def ask_two_hundred_times(ledger, say):
        for _ in range(200):
            try:
                say(spend(ledger).number)
            except BudgetExhausted:
                say("exhausted")

    children = [forked(ask_two_hundred_times, path) for _ in range(8)]
    words = [word for _, reader in children for word in heard(reader)]
    for child, _ in children:
        os.waitpid(child, 0)

    assert len(words) == 1600
    assert words.count("exhausted") == 1200
    ledger = Ledger.open(path, dataset="shop")
    charged = {str(entry.number) for entry in ledger.history() if entry.state == "charged"}
    assert charged == set(words) - {"exhausted"}
    assert ledger.budget.spent == (100.0, 0.0)
    assert ledger.verify().charges == 400
    ledger.close()


ANALYSTS = ("ada", "bob", "eve")


def kill_at_random(path, processes, seed):
    """Analysts of three accounts, and the owner, who changes their limits all the time."""

    def ask_until_killed(ledger, say):
        while True:
            say(spend(ledger).number)

    def change_until_killed(ledger, say):
        for number in itertools.count():
            ledger.set(PLENTY - number % 7, analyst=ANALYSTS[number % len(ANALYSTS)])
            ledger.limit_questions(PLENTY - number % 3)

    first = Ledger.open(path, dataset="shop", epsilon=PLENTY)
    for name in ANALYSTS:
        first.set(PLENTY, analyst=name)
    first.close()
    luck = random.Random(seed)
    answers, running = [], []
    for started in range(processes):
        if started % 10 == 9:
            running.append(forked(change_until_killed, path, PLENTY))
        else:
            running.append(forked(ask_until_killed, path, PLENTY, "warn", ANALYSTS[started % len(ANALYSTS)]))
        if len(running) == 10 or started == processes - 1:
            while running:
                # Some die while opening, some in the middle of a charge, some between charge and answer.
                time.sleep(luck.uniform(0, 0.03))
                child, reader = running.pop(luck.randrange(len(running)))
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                answers += heard(reader)
    return answers


def check_every_answer_is_on_record(path, answers):
    for name in ANALYSTS:  # whose lost charges are noted
        Ledger.open(path, dataset="shop", on_failure="warn", analyst=name).close()
    ledger = Ledger.open(path, dataset="shop", on_failure="warn")
    ended = {entry.charge for entry in ledger.history() if entry.charge is not None}
    assert {entry.number for entry in ledger.history() if entry.state == "charged"} == ended, "a lost charge is noted"
    charged = {str(entry.number) for entry in ledger.history() if entry.state == "charged"}
    assert set(answers) <= charged
    assert len(set(answers)) == len(answers) > 0
    assert ledger.verify().charges == len(charged)
    assert sum(one.budget.queries for one in ledger.analysts()) == len(charged)
    ledger.close()


def test_every_answer_of_a_killed_process_is_on_record(path):
    check_every_answer_is_on_record(path, kill_at_random(path, processes=50, seed=3))


@pytest.mark.long
def test_every_answer_of_many_killed_processes_is_on_record(tmp_path):
    for seed in range(20):
        path = tmp_path / f"{seed}.ledger"
        check_every_answer_is_on_record(path, kill_at_random(path, processes=50, seed=seed))


@pytest.mark.parametrize("where", ["file", ":memory:"])
def test_threads_share_a_ledger(path, where):
    ledger = Ledger.open(path if where == "file" else where, dataset="shop", epsilon=5)
    numbers, refusals = [], []

    def ask():
        for _ in range(10):
            try:
                numbers.append(spend(ledger).number)
            except BudgetExhausted as error:
                refusals.append(error)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(numbers)) == 20
    assert len(refusals) == 40
    assert ledger.verify().charges == 20
    ledger.close()


def test_processes_may_make_the_same_ledger_at_once(path):
    children = [forked(lambda ledger, say: say(ledger.budget.epsilon), path) for _ in range(8)]
    assert [heard(reader) for _, reader in children] == [["100.0"]] * 8
    for child, _ in children:
        os.waitpid(child, 0)
    ledger = Ledger.open(path, dataset="shop")
    assert [entry.state for entry in ledger.history()] == ["budget"]
    ledger.close()
