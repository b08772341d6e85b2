"""The shop's orders by EMR Serverless, and their revenue by Glue, with nothing installed on either.

Needs the connections ``aws_default`` and ``datahub_default``, the extra ``s3``, and the option
``events_location``, an address in S3 to which the jobs' role may write
(``s3://aws_default@my-bucket/lineage``). The environment variables ``SHOP_LAKE`` and ``SHOP_JOBS``
name the folders of the data and of the jobs, ``SHOP_APPLICATION`` the application of EMR
Serverless, and ``SHOP_ROLE`` the role. Glue has a job ``shop_revenue``, which runs ``revenue.py``.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG

from airflow_provider_spark_datahub.operators.emr import EmrServerlessStartJobDatahubOperator
from airflow_provider_spark_datahub.operators.glue import GlueJobDatahubOperator

LAKE = os.environ.get("SHOP_LAKE", "s3://my-bucket/shop")
JOBS = os.environ.get("SHOP_JOBS", "s3://my-bucket/jobs")

with DAG(
    dag_id="managed_lineage",
    description="Orders of the shop by EMR Serverless, and their revenue by Glue",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    default_args={"datahub_conn_id": "datahub_default"},
    tags=["example", "lineage"],
) as dag:
    build_orders = EmrServerlessStartJobDatahubOperator(
        task_id="build_orders",
        name="build_orders",
        application_id=os.environ.get("SHOP_APPLICATION", "00f0example"),
        execution_role_arn=os.environ.get("SHOP_ROLE", "arn:aws:iam::123456789012:role/shop"),
        job_driver={
            "sparkSubmit": {
                "entryPoint": f"{JOBS}/build_orders.py",
                "entryPointArguments": [LAKE],
                "sparkSubmitParameters": "--name build_orders --conf spark.sql.shuffle.partitions=2",
            }
        },
        waiter_delay=10,
        waiter_max_attempts=360,
        # The triggerer waits, and the worker is free.
        deferrable=True,
    )
    revenue = GlueJobDatahubOperator(
        task_id="revenue",
        job_name="shop_revenue",
        script_args={
            "--lake": LAKE,
            "--conf": "spark.app.name=revenue --conf spark.sql.shuffle.partitions=2",
        },
        # Glue goes on with the job of a killed task otherwise.
        stop_job_run_on_kill=True,
    )
    build_orders >> revenue
