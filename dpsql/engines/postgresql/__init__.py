"""PostgreSQL, by its URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.engines.registry import REFUSALS, EngineKind

if TYPE_CHECKING:
    from dpsql.engines.base import CertificationTarget, Engine
    from dpsql.engines.tables import Described
    from dpsql.schema.model import Schema


def _open(url: str, schema: Schema) -> Engine:
    from dpsql.engines.postgresql.engine import PostgreSQLEngine

    return PostgreSQLEngine.open(url, schema)


def _describe(url: str) -> tuple[str, dict[str, Described]]:
    from dpsql.engines.postgresql.engine import describe

    return describe(url)


def _certification(url: str) -> CertificationTarget:
    from dpsql.engines.postgresql.engine import InPostgreSQL

    return InPostgreSQL(url)


KIND = EngineKind(
    name="PostgreSQL",
    schemes=("postgresql://", "postgres://"),
    driver="psycopg",
    extra="postgres",
    open=_open,
    describe=_describe,
    certification=_certification,
    refusals={**REFUSALS, "log2": ("LOG2", "write LN(x) / LN(2)")},
)
