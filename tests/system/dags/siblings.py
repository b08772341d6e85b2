"""A mapped task whose runs share one application name; how many there are is given from outside."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, task

from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator

with DAG(dag_id="siblings", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)):

    @task
    def numbers() -> list[list[str]]:
        return [[number] for number in os.environ["NUMBERS"].split(",")]

    copies = SparkSubmitDatahubOperator.partial(
        task_id="copy",
        name="shop",
        application="copy.py",
        datahub_conn_id="datahub_file",
        retries=1,
        retry_delay=timedelta(seconds=1),
    ).expand(application_args=numbers())
    last = SparkSubmitDatahubOperator(
        task_id="last",
        name="last",
        application="last.py",
        application_args=["9"],
        datahub_conn_id="datahub_file",
    )
    copies >> last
