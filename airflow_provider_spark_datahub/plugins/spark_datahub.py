"""Airflow plugin that loads the listener for DAG runs."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from airflow_provider_spark_datahub.plugins import dag_run_listener


class SparkDatahubPlugin(AirflowPlugin):
    """Plugin for the entry point ``airflow.plugins``; Airflow does not load plugins of provider info by default."""

    name = "spark_datahub"
    listeners = [dag_run_listener]  # noqa: RUF012 (AirflowPlugin declares a plain list)
