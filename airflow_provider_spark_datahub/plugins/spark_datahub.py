"""The plugin that makes Airflow load the listener of DAG runs."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from airflow_provider_spark_datahub.plugins import dag_run_listener


class SparkDatahubPlugin(AirflowPlugin):
    """Found by the entry point ``airflow.plugins``: plugins of provider info are not loaded by default."""

    name = "spark_datahub"
    listeners = [dag_run_listener]  # noqa: RUF012 (AirflowPlugin declares a plain list)
