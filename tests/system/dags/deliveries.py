"""One task for each thing that can become of a delivery."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator
from tests.system.reports import JOBS, data_folder, save_report, system_dag

FOLDER = data_folder()


def copy(name: str) -> list[str]:
    """The arguments of a copy job."""
    return [f"{FOLDER}/{name}.csv", f"{FOLDER}/{name}", f"{FOLDER}/{name}.runs"]


def clear_the_way(context: Any) -> None:
    """What stands in the way of the file sink goes between the tries."""
    save_report(context)
    (FOLDER / "sink").unlink()


with system_dag("deliveries", datahub_conn_id="datahub_rest", lineage_timeout=60):
    SparkSubmitDatahubOperator.partial(
        task_id="mapped", name="copy_{{ ti.map_index }}", application=str(JOBS / "copy_csv.py")
    ).expand(application_args=[copy("first"), copy("second")])
    SparkSubmitDatahubOperator(
        task_id="nothing", name="nothing", application=str(JOBS / "count_rows.py")
    )
    SparkSubmitDatahubOperator(
        task_id="kept",
        name="kept",
        application=str(JOBS / "copy_csv.py"),
        application_args=copy("kept"),
        datahub_conn_id="datahub_refused",
    )
    SparkSubmitDatahubOperator(
        task_id="delivered_late",
        name="delivered_late",
        application=str(JOBS / "copy_csv.py"),
        application_args=copy("late"),
        datahub_conn_id="datahub_file",
        lineage_timeout=15,
        lineage_on_failure="retry",
        emit_assets=True,
        retries=1,
        retry_delay=timedelta(seconds=1),
        on_retry_callback=clear_the_way,
    )
