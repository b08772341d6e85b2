"""Real Iceberg and Delta, and the Spark for them: the newest that both are published for (``make
setup``).
"""

from __future__ import annotations

import os
from pathlib import Path

CONNECTORS = Path(__file__).parents[1] / ".cache" / "connectors"
SPARK_SUBMIT = CONNECTORS / "spark" / "bin" / "spark-submit"
PACKAGES = [
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "io.delta:delta-spark_4.1_2.13:4.4.0",
    *(
        f"io.delta:delta-{name}:4.4.0"
        for name in ("storage", "kernel-api", "kernel-defaults", "kernel-unitycatalog")
    ),
]
JARS = [str(CONNECTORS / "{1}-{2}.jar".format(*package.split(":"))) for package in PACKAGES]
PROPERTIES = {
    "spark.ui.enabled": "false",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.ice.type": "hadoop",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
}


def spark_path() -> str:
    """Return the search path for programs, this Spark's first."""
    return f"{SPARK_SUBMIT.parent}{os.pathsep}{os.environ['PATH']}"
