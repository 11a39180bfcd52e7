"""A session of Spark that is our own: what it is asked means the same whatever other sessions have set."""

from __future__ import annotations

import logging
import re
import warnings
from contextlib import contextmanager
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, cast

from dpsql.engines.spark.catalog import Place, current_place
from dpsql.errors import OperationalError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

CERTIFIED = ("4.3",)
OLDEST = (4, 0)
# What our SQL was certified with. The meaning of a query depends on these, or whether a row can make it fail.
SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.variable.substitute": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.groupByOrdinal": "false",
    "spark.sql.orderByOrdinal": "false",
    "spark.sql.groupByAliases": "false",
    "spark.sql.lateralColumnAlias.enableImplicitResolution": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    # Constants must not be moved together: (x * a) * b may be a number where a * b is none.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ReorderAssociativeOperator",
    # One old date of one row would make every query fail.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    # Changes no result: rows would be sorted once more, to leave out few of them before they are sent around.
    "spark.sql.optimizer.windowGroupLimitThreshold": "-1",
    # Nor do these. People are many: they are counted faster while they fit into the first, small table of a task. And
    # what is sent for each is short: less of it is put together into one task, so that no core waits for another.
    "spark.sql.codegen.aggregate.fastHashMap.capacityBit": "18",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "128k",
    # Plans are described for whoever watches Spark, anew after each of their stages: in few words.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
RESTART, PAUSE = 60.0, 1.0
"""Seconds that a question which is paid for waits for a server that went away, and between two tries."""
PROBES = {
    "try_multiply(try_multiply(id, 4611686018427387904L), 3L) = 0": "it moves constants together",
    "try_add(id + 9223372036854775807L, 1L) IS NULL": "its integers wrap around",
    "rint(id + 2.5D) = 2 AND round(id + 2.5D) = 3": "it rounds otherwise",
    "dayofweek(date_add(DATE '2024-02-25', CAST(id AS INT))) = 1": "its weeks begin otherwise",
    "CAST(CAST(id + 0.5D AS DOUBLE) AS BIGINT) = 0": "its casts round otherwise",
    "concat(CAST(id AS STRING), NULL) IS NULL": "its NULL is another one",
    "xxhash64(id) <> xxhash64(id + 1)": "it does not hash",
}
"""What is true of Spark for id = 0. Others speak its protocol, and compute otherwise."""


def own_session(database: object) -> tuple[SparkSession, Place]:
    """Of a URL a session on that server; of a session another one on the same Spark, where tables are found alike."""
    with quiet():
        if isinstance(database, str):
            url, name = _without_database(database)
            session = _reached(url)
            place = current_place(session) if name is None else Place(current_place(session).catalog, name)
        else:
            given: Any = database
            session, place = given.newSession(), current_place(given)
        _prepare(session)
    return session, place


def answers(session: SparkSession) -> bool:
    try:
        return len(session.sql("SELECT 1").collect()) == 1
    except Exception:
        return False


def reached_again(url: str, patience: float) -> tuple[SparkSession, Place]:
    """Tries for so many seconds: a server that is restarted is back soon."""
    until = monotonic() + patience
    while True:
        try:
            return own_session(url)
        except OperationalError:
            if monotonic() > until:
                raise
        sleep(PAUSE)


def _without_database(url: str) -> tuple[str, str | None]:
    """
    >>> _without_database("sc://host:15002/;database=sales;user_id=me")
    ('sc://host:15002/;user_id=me', 'sales')
    """
    found = re.search(";database=([^;]*)", url)
    return (url, None) if found is None else (url.replace(found[0], "", 1), found[1])


def _reached(url: str) -> SparkSession:
    try:
        with warnings.catch_warnings():
            # What the client thinks of the versions that it meets here, and of an answer that does not come.
            warnings.simplefilter("ignore")
            from pyspark.sql.connect.client.retries import DefaultPolicy
            from pyspark.sql.connect.session import SparkSession as RemoteSession

            session: Any = RemoteSession.builder.remote(url).create()
            session.client.set_retry_policies([DefaultPolicy(max_retries=3)])
            session.sql("SELECT 1").collect()
        return cast("SparkSession", session)
    except Exception:
        problem = OperationalError(
            "Spark cannot be reached", hint="a server of Spark Connect listens at sc://host:15002"
        )
    raise problem


def _prepare(session: SparkSession) -> None:
    version = session.version
    if tuple(int(part) for part in re.findall("[0-9]+", version)[:2]) < OLDEST:
        raise OperationalError(f"Spark {version} is too old", hint="it takes Spark 4.0 or newer")
    if not version.startswith(tuple(f"{known}." for known in CERTIFIED)):
        warnings.warn(
            f"dpsql is certified on Spark {', '.join(CERTIFIED)}, and this is {version}: see docs/engines.md",
            stacklevel=2,
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a setting may go with later versions
        for name, value in SETTINGS.items():
            session.conf.set(name, value)
    wrong = _wrong(session)
    if wrong is not None:
        raise OperationalError(
            f"this is no Spark that dpsql is certified on: {wrong}",
            hint="what only speaks Spark's protocol is refused until `dpsql certify` passes on it",
        )


def _wrong(session: SparkSession) -> str | None:
    columns = ", ".join(f"{probe} AS p{number}" for number, probe in enumerate(PROBES))
    try:
        ((*found,),) = session.sql(f"SELECT {columns} FROM range(1)").collect()
    except Exception:
        return "it does not know Spark's functions"
    return next((meaning for true, meaning in zip(found, PROBES.values(), strict=True) if not true), None)


@contextmanager
def quiet() -> Iterator[None]:
    """The client writes what a query failed of into a log, with values of rows in it."""
    logger = logging.getLogger("SQLQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
