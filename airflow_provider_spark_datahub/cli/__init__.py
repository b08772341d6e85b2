"""The command ``spark-datahub``: one module per command."""

from airflow_provider_spark_datahub.cli.app import app, app_main

__all__ = ["app", "app_main"]
