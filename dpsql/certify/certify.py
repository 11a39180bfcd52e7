"""Asks an engine all questions of the corpus, or a sample of them, and says where it differs from DuckDB."""

from __future__ import annotations

import random
import warnings
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb

from dpsql import errors
from dpsql.certify.compare import World, outcome
from dpsql.certify.corpus import case_files, questions
from dpsql.certify.load import target
from dpsql.certify.rows import tame_tables, wild_tables
from dpsql.dbapi import connect

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.certify.compare import Outcome
    from dpsql.certify.corpus import CaseFile, Question
    from dpsql.certify.rows import Tables

PEOPLE = 200
"""In the tame database."""
WILD = ((0, 0), (1, 9), (5, 90))
"""People and rows of the wild ones."""
SHARE = 0.9
"""Of the questions that DuckDB answers, so many must be written for the engine."""


@dataclass(frozen=True)
class Certified:
    question: Question
    outcome: Outcome
    reason: str


def passes(found: list[Certified]) -> bool:
    counted = [part.outcome for part in found]
    wrong = counted.count("different") + counted.count("failed")
    written = counted.count("equal")
    return wrong == 0 and written > 0 and written >= SHARE * (written + counted.count("refused"))


class Certifier:
    """Makes the databases of a case file when it is first asked about; closed, it drops them."""

    def __init__(self, database: str) -> None:
        self._target = target(database)
        self._files = case_files()
        self._worlds: dict[str, list[World]] = {}
        self._stack = ExitStack()

    def questions(self, step: int = 1) -> list[Question]:
        return list(questions(self._files))[::step]

    def certify(self, asked: list[Question], done: Callable[[], object]) -> list[Certified]:
        found = []
        for question in asked:
            found.append(Certified(question, *outcome(question, self.worlds(question.file))))
            done()
        return found

    def worlds(self, name: str) -> list[World]:
        if name not in self._worlds:
            file, wild = self._files[name], random.Random(f"wild {name}")
            rows = [tame_tables(file, random.Random(f"tame {name}"), PEOPLE)]
            rows += [wild_tables(file, wild, people, most) for people, most in WILD]
            self._worlds[name] = [self._world(file, f"{name}_{number}", rows_) for number, rows_ in enumerate(rows)]
        return self._worlds[name]

    def _world(self, file: CaseFile, name: str, tables: Tables) -> World:
        model = self._stack.enter_context(duckdb.connect())
        model.execute("SET threads = 1")
        database = self._stack.enter_context(self._target.place(name))
        self._target.fill(database, file, tables, model)
        options: dict[str, Any] = {"schema": file.schema, "epsilon": 1e18, "delta": 1e-6, "ledger": ":memory:"}
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", errors.Warning
            )  # of a budget that protects nobody: these people are made up
            return World(*(self._stack.enter_context(connect(source, **options)) for source in (model, database)))

    def __enter__(self) -> Certifier:
        return self

    def __exit__(self, *problem: object) -> None:
        self._stack.close()
