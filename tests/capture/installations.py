"""Fake Spark installations and OpenLineage jars, as far as the checks look at them."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path

LISTENER_CLASS = "io/openlineage/spark/agent/OpenLineageSparkListener.class"
SEQ_CALL = {
    "2.12": b"\x00()Lscala/collection/Seq;\x00",
    "2.13": b"\x00()Lscala/collection/immutable/Seq;\x00",
}

# Scripts with the lines of Spark's own.
SPARK_SUBMIT_SCRIPT = """#!/usr/bin/env bash
# A comment
if [ -z "${SPARK_HOME}" ]; then
  source "$(dirname "$0")"/find-spark-home
fi

export PYTHONHASHSEED=0
exec "${SPARK_HOME}"/bin/spark-class org.apache.spark.deploy.SparkSubmit "$@"
"""
SPARK_SQL_SCRIPT = """#!/usr/bin/env bash
export _SPARK_CMD_USAGE="Usage: ./bin/spark-sql [options] [cli option]"
exec "${SPARK_HOME}"/bin/spark-submit --class org.apache.spark.sql.hive.thriftserver.SparkSQLCLIDriver "$@"
"""


def spark_at(
    home: Path, spark: str = "4.3.0", scala: str = "2.13", *, more_jars: Iterable[str] = ()
) -> Path:
    """Lay out the jars of a Spark below ``home``."""
    jars = home / "jars"
    jars.mkdir(parents=True)
    for name in (f"spark-core_{scala}-{spark}.jar", *more_jars):
        (jars / name).touch()
    return home


def executable(path: Path, script: str = "#!/bin/sh\n") -> Path:
    """Make an executable file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script)
    path.chmod(0o755)
    return path


def openlineage_jar(path: Path, scala: str | None = "2.13") -> Path:
    """Make a jar with the listener; its code is that of ``scala``, or of no recognizable version."""
    with zipfile.ZipFile(path, "w") as jar:
        jar.writestr(LISTENER_CLASS, SEQ_CALL[scala] if scala else b"\xca\xfe\xba\xbe")
    return path
