"""From the charge on nothing that the engine says gets out: not in the text, the cause, the context or a local."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Iterator, Mapping
from copy import copy
from types import TracebackType
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql

SECRET = "alice-4711"
SQL = "SELECT region, COUNT(*) AS n FROM orders GROUP BY region"


class FailingEngine:
    """Knows the schema like the real one, and fails when it is asked to run anything."""

    def __init__(self, engine: Any, failure: BaseException) -> None:
        self._engine = engine
        self._failure = failure
        self.guarantees, self.render, self.can_run = engine.guarantees, engine.render, engine.can_run

    def check_unchanged(self) -> None:
        self._engine.check_unchanged()

    def run(self, select: Any, materialized: Any = None) -> Mapping[str, np.ndarray]:
        row = SECRET  # noqa: F841 - a local of the failing frame, as an engine would have it
        raise copy(self._failure)  # as one that is raised keeps its frames, and with them the session

    def close(self) -> None:
        self._engine.close()


class LyingEngine(FailingEngine):
    """Gives back something else than was asked for."""

    def __init__(self, engine: Any, columns: dict[str, Any]) -> None:
        super().__init__(engine, RuntimeError())
        self._columns = columns

    def run(self, select: Any, materialized: Any = None) -> Mapping[str, np.ndarray]:
        return self._columns


def with_engine(connection: dpsql.Connection, engine: Any) -> dpsql.Connection:
    session = connection.session
    session.environment = dataclasses.replace(session.environment, engine=engine)
    return connection


def chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def frames(trace: TracebackType | None) -> Iterator[Any]:
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def told(error: BaseException) -> str:
    """Everything that a log, a debugger or an error reporter with local variables would show of dpsql's own frames."""
    parts = []
    for part in chain(error):
        parts += [str(part), repr(part), repr(part.args), repr(vars(part))]
        parts += traceback.format_exception(part)
        for frame in frames(part.__traceback__):
            if "dpsql" in frame.f_code.co_filename and "tests" not in frame.f_code.co_filename:
                parts += [f"{name} = {value!r}" for name, value in frame.f_locals.items()]
    return "\n".join(parts)


FAILURES = [
    duckdb.ConversionException(f"Could not convert string '{SECRET}' to INT32"),
    duckdb.OutOfRangeException(f"Overflow in addition ({SECRET})"),
    duckdb.OutOfMemoryException(SECRET),
    RuntimeError(SECRET),
    ValueError(SECRET),
    KeyError(SECRET),
    MemoryError(SECRET),
    RecursionError(SECRET),
    UnicodeDecodeError("utf-8", SECRET.encode(), 0, 1, SECRET),
    dpsql.OperationalError(SECRET),
]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
def test_a_failing_engine_says_nothing(failure: Exception, shop: dpsql.Connection) -> None:
    with_engine(shop, FailingEngine(shop.session.environment.engine, failure))
    with pytest.raises(dpsql.SealedExecutionError) as caught:
        shop.execute(SQL, epsilon=1)
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None
    assert SECRET not in told(error)
    assert "charge stands" in str(error)
    assert error.hint
    assert isinstance(error, dpsql.OperationalError)


def test_all_failures_look_the_same(shop: dpsql.Connection) -> None:
    """The text is fixed: which row failed, or how, must not be seen."""
    engine, texts = shop.session.environment.engine, set()
    for failure in FAILURES[:4]:
        with pytest.raises(dpsql.SealedExecutionError) as caught:
            with_engine(shop, FailingEngine(engine, failure)).execute(SQL, epsilon=0.1, fresh=True)
        shop.resume()
        texts.add(str(caught.value))
    assert len(texts) == 1


def test_the_charge_stands(shop: dpsql.Connection) -> None:
    engine = shop.session.environment.engine
    with_engine(shop, FailingEngine(engine, RuntimeError(SECRET)))
    with pytest.raises(dpsql.SealedExecutionError):
        shop.execute(SQL, epsilon=1, mechanism="laplace")
    once = shop.budget.spent.epsilon
    assert once == pytest.approx(1)
    shop.resume()
    with pytest.raises(dpsql.SealedExecutionError):
        shop.execute(SQL, epsilon=1, mechanism="laplace")
    assert shop.budget.spent.epsilon > once, "a failed answer was not stored, so asking again is charged again"
    with_engine(shop, engine)
    shop.resume()
    assert len(shop.execute(SQL, epsilon=1).fetchall()) == 4, "the session goes on"
    assert SECRET not in shop.history().to_string()


def test_the_cursor_after_a_failure(shop: dpsql.Connection) -> None:
    cursor = shop.cursor()
    cursor.execute(SQL)
    with_engine(shop, FailingEngine(shop.session.environment.engine, RuntimeError(SECRET)))
    with pytest.raises(dpsql.SealedExecutionError):
        cursor.execute(SQL, fresh=True)
    assert cursor.description is None
    with pytest.raises(dpsql.InterfaceError):
        cursor.fetchall()


LIES = {
    "no columns": {},
    "a text": {"_k0": np.array(["north"]), "m0": np.array([SECRET])},
    "a fraction": {"_k0": np.array(["north"]), "m0": np.array([0.5])},
    "an object": {"_k0": np.array(["north"]), "m0": np.array([SECRET, None], dtype=object)},
    "too large": {"_k0": np.array(["north"]), "m0": np.array([2**70], dtype=object)},
    "no mapping": [SECRET],
    "nothing": None,
}


@pytest.mark.parametrize("columns", LIES.values(), ids=LIES)
def test_an_answer_that_makes_no_sense_is_sealed_too(columns: Any, shop: dpsql.Connection) -> None:
    """An engine that misbehaves is the engine's failure; exact numbers must not travel in the error."""
    with_engine(shop, LyingEngine(shop.session.environment.engine, columns))
    with pytest.raises(dpsql.SealedExecutionError) as caught:
        shop.execute(SQL, epsilon=1)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert SECRET not in told(caught.value)


def test_exact_numbers_do_not_show_when_sampling_fails(shop: dpsql.Connection, monkeypatch: Any) -> None:
    """If the noise itself fails, the exact counts must not be in the traceback's local variables."""
    from dpsql.mechanisms.additive import Noise

    kinds = [Noise, *Noise.__subclasses__()]
    for kind in kinds:
        if "sample" in vars(kind):
            monkeypatch.setattr(kind, "sample", _broken)
    with_engine(
        shop, LyingEngine(shop.session.environment.engine, {"_k0": np.array(["north"]), "m0": np.array([918273645])})
    )
    with pytest.raises(dpsql.Error) as caught:
        shop.execute(SQL, epsilon=1)
    assert "918273645" not in told(caught.value)


def _broken(*_: object) -> None:
    raise RuntimeError("no randomness")


def test_mistakes_above_the_aggregates_are_found_before_the_charge(shop: dpsql.Connection) -> None:
    with pytest.raises(dpsql.ProgrammingError):
        shop.execute("SELECT region, COUNT(*) AS n FROM orders GROUP BY region ORDER BY frobnicate(n)")
    assert shop.budget.spent.epsilon == 0


def test_explain_never_runs_the_engine(shop: dpsql.Connection) -> None:
    with_engine(shop, FailingEngine(shop.session.environment.engine, RuntimeError(SECRET)))
    assert shop.explain(SQL).releases[0].public_keys
    assert shop.execute(f"EXPLAIN {SQL}").fetchall()
    assert shop.budget.spent.epsilon == 0
