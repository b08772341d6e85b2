"""The shop's orders on a Spark that is not on the worker: behind Livy, and on Kubernetes.

Needs the connections ``livy_default``, ``kubernetes_default`` and ``datahub_default``, and the
extras ``livy`` and ``kubernetes``. The option ``events_location`` is a folder that the drivers and
the worker share, or an address in S3. The environment variable ``SHOP_LAKE`` names the folder of
the data, ``SHOP_JOBS`` that of the jobs, on the drivers' machines.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import DAG

from airflow_provider_spark_datahub.operators.livy import LivyDatahubOperator
from airflow_provider_spark_datahub.operators.spark_kubernetes import SparkKubernetesDatahubOperator

LAKE = os.environ.get("SHOP_LAKE", "/tmp/shop")
JOB = f"{os.environ.get('SHOP_JOBS', Path(__file__).parent / 'jobs')}/build_orders.py"
# Neither Livy nor a manifest shows the Spark of the cluster, so the jar is named in full.
OPENLINEAGE_JAR = os.environ.get("OPENLINEAGE_JAR", "io.openlineage:openlineage-spark_2.13:1.53.0")

with DAG(
    dag_id="remote_lineage",
    description="Orders of the shop, through Livy and on Kubernetes",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    default_args={"datahub_conn_id": "datahub_default", "openlineage_jar": OPENLINEAGE_JAR},
    tags=["example", "lineage"],
) as dag:
    LivyDatahubOperator(
        task_id="through_livy",
        name="orders_through_livy",
        file=JOB,
        args=[LAKE],
        conf={"spark.sql.shuffle.partitions": "2"},
        # The task waits for its batch: its events are complete when the batch ends.
        polling_interval=1,
    )
    SparkKubernetesDatahubOperator(
        task_id="on_kubernetes",
        namespace="jobs",
        template_spec={
            "apiVersion": "sparkoperator.k8s.io/v1beta2",
            "kind": "SparkApplication",
            # Airflow appends a random suffix to it. In DataHub, all runs are runs of this
            # application.
            "metadata": {"name": "orders-on-kubernetes", "namespace": "jobs"},
            "spec": {
                "type": "Python",
                "mode": "cluster",
                "sparkVersion": "4.3.0",
                "image": "spark:4.3.0",
                "mainApplicationFile": JOB,
                "arguments": [LAKE],
                "sparkConf": {"spark.sql.shuffle.partitions": "2"},
                "driver": {"javaOptions": "-Duser.timezone=UTC"},
                "executor": {"instances": 1},
            },
        },
    )
