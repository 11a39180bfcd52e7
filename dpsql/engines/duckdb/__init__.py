"""DuckDB, in this process: files, frames and open connections.

Besides the engine, its catalog and its renderer there are `sources`, files and frames that are copied into it, which no
server needs. There are no `scalars`: the operations of the tree are DuckDB's own functions. It is also the database of
the post-processing, whose SQL other packages write.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsql.engines.registry import EngineKind

if TYPE_CHECKING:
    from dpsql.engines.base import Engine
    from dpsql.engines.tables import Described
    from dpsql.schema.model import Schema

FRAMES = ("duckdb", "pandas", "polars", "pyarrow")


def _accepts(database: Any) -> bool:
    if isinstance(database, str):
        return "://" not in database
    module = type(database).__module__.partition(".")[0]
    return isinstance(database, os.PathLike | Mapping | list | tuple) or module.lstrip("_") in FRAMES


def _open(database: Any, schema: Schema) -> Engine:
    from dpsql.engines.duckdb.engine import DuckDBEngine

    return DuckDBEngine.open(database, schema)


def _describe(database: str) -> tuple[str, dict[str, Described]]:
    from dpsql.engines.duckdb.catalog import describe

    return Path(database).stem, describe(Path(database))


def _reads_rows(database: str) -> bool:
    from dpsql.engines.duckdb.sources import files_of, names_files

    return names_files(database) and bool(files_of(database))


def _reads_text(database: Any) -> bool:
    from dpsql.engines.duckdb.sources import is_text

    sources = list(database.values()) if isinstance(database, Mapping) else [database]
    return bool(sources) and all(map(is_text, sources))


KIND = EngineKind(
    name="DuckDB",
    accepts=_accepts,
    open=_open,
    describe=_describe,
    has_own_ledger=True,
    reads_rows=_reads_rows,
    reads_text=_reads_text,
)
