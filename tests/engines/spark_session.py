"""A Spark of our own for the tests: one JVM of two threads and little memory, its tables in a temporary directory.

Its server of Spark Connect listens on a port of this machine alone, so that both front ends lead to the same tables.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

MEMORY = "2g"


def missing() -> str | None:
    """Why there can be no session here."""
    if find_spec("pyspark") is None:
        return "pyspark is not installed; `make engines` installs it"
    return None if shutil.which("java") else "Spark needs Java; `make engines` installs it"


@contextmanager
def session(master: str = "local[2]") -> Iterator[tuple[Any, str]]:
    """A session, and the URL of its server."""
    own = tempfile.mkdtemp(prefix="dpsql_spark_")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession
    port = free_port()
    settings = {
        "spark.driver.memory": MEMORY,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{own}/warehouse",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={own}",
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    builder = SparkSession.builder.master(master).appName("dpsql")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark, f"sc://127.0.0.1:{port}"
    finally:
        spark.stop()
        shutil.rmtree(own, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
