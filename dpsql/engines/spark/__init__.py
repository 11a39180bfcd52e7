"""Spark, by the URL of a server of Spark Connect or by a session of pyspark.

Besides the engine, its catalog, renderer and scalars there is `public_groups`, which writes joins to a public list of
groups in the way that Spark plans well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsql.engines.registry import REFUSALS, EngineKind

if TYPE_CHECKING:
    from dpsql.engines.base import CertificationTarget, Engine
    from dpsql.engines.tables import Described
    from dpsql.schema.model import Schema


def _accepts(database: Any) -> bool:
    """A session, found out without loading pyspark."""
    return type(database).__module__.startswith("pyspark.sql.") and type(database).__name__ == "SparkSession"


def _open(database: Any, schema: Schema) -> Engine:
    from dpsql.engines.spark.engine import SparkEngine

    return SparkEngine.open(database, schema)


def _describe(url: str) -> tuple[str, dict[str, Described]]:
    from dpsql.engines.spark.engine import describe

    return describe(url)


def _certification(url: str) -> CertificationTarget:
    from dpsql.engines.spark.engine import InSpark

    return InSpark(url)


KIND = EngineKind(
    name="Spark",
    schemes=("sc://",),
    accepts=_accepts,
    driver="pyspark",
    extra="spark",
    open=_open,
    describe=_describe,
    certification=_certification,
    refusals=REFUSALS,
)
