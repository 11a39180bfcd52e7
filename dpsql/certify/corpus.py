"""The questions that engines are certified by: the cases and the corpus of the tests, with their schemas."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from dpsql.schema.model import Schema

if TYPE_CHECKING:
    from collections.abc import Iterator

INSTALLED = Path(__file__).parent / "data"
DATA = INSTALLED if INSTALLED.exists() else Path(__file__).parents[2] / "tests"
"""Where both lie: beside this file in an installed package, among the tests in the repository."""


@dataclass(frozen=True)
class Release:
    """What is claimed of one release: see tests/cases/shop.yaml."""

    keys: str
    l0: int
    linf: list[float] | None = None


@dataclass(frozen=True)
class Case:
    file: str
    name: str
    sql: str
    releases: tuple[Release, ...]
    parameters: list[object] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    plain: str | None = None

    @property
    def plain_sql(self) -> str:
        return self.plain or self.sql

    @property
    def plain_parameters(self) -> list[object]:
        return [] if self.plain else self.parameters


@dataclass(frozen=True)
class CaseFile:
    name: str
    schema: Schema
    create: str
    cases: tuple[Case, ...]


def read_cases(path: Path) -> CaseFile:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    cases = []
    for case in content["cases"]:
        claims = case.pop("releases", None) or [{key: case.pop(key) for key in ("keys", "l0", "linf") if key in case}]
        cases.append(Case(path.stem, releases=tuple(Release(**claim) for claim in claims), **case))
    return CaseFile(path.stem, Schema.model_validate(content["schema"]), content["create"], tuple(cases))


def case_files() -> dict[str, CaseFile]:
    return {path.stem: read_cases(path) for path in sorted((DATA / "cases").glob("*.yaml"))}


@dataclass(frozen=True)
class Question:
    file: str
    topic: str
    sql: str
    parameters: tuple[object, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


def questions(files: dict[str, CaseFile]) -> Iterator[Question]:
    for name, file in files.items():
        for case in file.cases:
            yield Question(name, "cases", case.sql, tuple(case.parameters), case.options)
    for path in sorted((DATA / "corpus").glob("*.yaml")):
        for topic, entries in yaml.safe_load(path.read_text(encoding="utf-8")).items():
            for entry in entries:
                yield Question(path.stem, topic, entry if isinstance(entry, str) else entry["sql"])
