"""Finds the engine for a data source: one `EngineKind` each, with everything known before it is loaded.

Ours are the `KIND` of each folder beside this file. Others come from installed packages, by the entry point group
"dpsql.engines", and are asked only about what none of ours opens. docs/engines.md says how one is written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias

from dpsql.errors import InterfaceError, Unsupported

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from dpsql.engines.base import CertificationTarget, Engine
    from dpsql.engines.tables import Described
    from dpsql.schema.model import Schema

FilePath: TypeAlias = "str | os.PathLike[str]"
Frame: TypeAlias = "pd.DataFrame | pl.DataFrame | pl.LazyFrame | pa.Table | duckdb.DuckDBPyRelation"
Database: TypeAlias = (
    "FilePath | Sequence[FilePath] | Frame | Mapping[str, FilePath | Sequence[FilePath] | Frame] | "
    "duckdb.DuckDBPyConnection | SparkSession"
)
"""What can be opened: a file or a server's URL, files, frames by the name of their table, a connection, a session."""

OURS = ("dpsql.engines.postgresql", "dpsql.engines.spark", "dpsql.engines.duckdb")
"""The last one is given what no engine takes, for the better complaint."""
GROUP = "dpsql.engines"
PATTERNS = "use LIKE, STARTS_WITH, ENDS_WITH, CONTAINS or SPLIT_PART"
REFUSALS: Mapping[str, tuple[str, str]] = {
    "double %": ("% of doubles", "CAST both sides to DECIMAL(18, 6)"),
    "reverse": ("REVERSE", "compare the text as it is, or store it reversed"),
    "levenshtein": ("LEVENSHTEIN", "use LIKE or CONTAINS"),
    "glob": ("GLOB", PATTERNS),
    "regexp_matches": ("REGEXP_MATCHES", PATTERNS),
    "regexp_full_match": ("SIMILAR TO and REGEXP_FULL_MATCH", PATTERNS),
    "regexp_replace": ("REGEXP_REPLACE", PATTERNS),
    "regexp_extract": ("REGEXP_EXTRACT", PATTERNS),
    "json_extract_string": ("->>", "ask the data owner for a column of it"),
    "strptime": ("STRPTIME", "ask the data owner for a column of dates"),
}
"""Operations that no engine but DuckDB has with DuckDB's meaning: their names in SQL, and what to write instead."""


def _never(database: Any) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class EngineKind:
    name: str
    open: Callable[[Any, Schema], Engine]
    """Raises SchemaError unless every declared table and column is there, with a type that fits."""
    describe: Callable[[str], tuple[str, dict[str, Described]]]
    """The database's own name, and what its tables are, for `dpsql init`."""
    schemes: tuple[str, ...] = ()
    """How the URLs begin that it opens."""
    accepts: Callable[[Any], bool] = _never
    """What it opens besides URLs; found out without loading the driver."""
    driver: str | None = None
    """The package that it needs, which is no part of dpsql."""
    extra: str | None = None
    """The extra of dpsql that brings the driver."""
    certification: Callable[[str], CertificationTarget] | None = None
    """Where `dpsql certify` puts made-up rows, by a URL; None where there is nothing to compare with DuckDB."""
    refusals: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Operations that have another meaning there: their names in SQL, and what to write instead."""
    has_own_ledger: bool = False
    """Whether there is a place beside the data where its account would be looked for."""
    reads_rows: Callable[[str], bool] = _never
    """Whether to open it is to read rows of people, so that what goes wrong then is for the data owner alone.

    Raises OperationalError for what is wrong whatever the rows are, such as a file that is not there.
    """
    reads_text: Callable[[Any], bool] = _never
    """Whether its values are texts, which `dpsql check --data` looks at as they are written too."""

    def is_url(self, database: object) -> bool:
        return isinstance(database, str) and database.startswith(self.schemes)

    def opens(self, database: object) -> bool:
        return self.is_url(database) or self.accepts(database)

    def refused(self, operation: str) -> Unsupported | None:
        if operation not in self.refusals:
            return None
        name, instead = self.refusals[operation]
        return Unsupported(
            f"on {self.name} {name} has a different meaning, so dpsql does not use it there", hint=instead
        )

    def check_driver(self) -> None:
        if self.driver is not None and find_spec(self.driver) is None:
            raise InterfaceError(
                f"the driver for {self.name} is not installed",
                hint=f"pip install '.[{self.extra}]' in a clone of dpsql" if self.extra else f"install {self.driver}",
            )


def kinds() -> Iterator[EngineKind]:
    """dpsql's engines and those of installed packages, which are searched only when needed because that is slow."""
    for module in OURS:
        yield import_module(module).KIND
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP):
        yield point.load()


def kind_of(database: object) -> EngineKind:
    return next((kind for kind in kinds() if kind.opens(database)), import_module(OURS[-1]).KIND)


def open_engine(database: object, schema: Schema) -> Engine:
    """Raises SchemaError unless every declared table and column is there, with a type that fits."""
    kind = kind_of(database)
    kind.check_driver()
    return kind.open(database, schema)


def describe(database: str) -> tuple[str, dict[str, Described]]:
    """The database's own name, and what its tables are."""
    kind = kind_of(database)
    kind.check_driver()
    return kind.describe(database)
