"""Tasks of Airflow's own operators for services of AWS, which have lineage by policy alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.amazon.aws.operators.emr import EmrServerlessStartJobOperator
from airflow.providers.amazon.aws.operators.glue import GlueJobOperator

from tests.system.reports import JOBS, data_folder, system_dag

FOLDER, JOB = data_folder(), str(JOBS / "managed_copy.py")


def copy(name: str, **more: str) -> dict[str, str]:
    """The arguments of a copy job."""
    given = {"name": name, "source": f"{FOLDER}/{name}.csv", "target": f"{FOLDER}/{name}", **more}
    return {f"--{argument}": value for argument, value in given.items()}


def serverless(name: str, until: str, **more: Any) -> EmrServerlessStartJobOperator:
    """A copy job of EMR Serverless."""
    words = [
        word for argument in copy(name, until=f"{FOLDER}/{until}").items() for word in argument
    ]
    return EmrServerlessStartJobOperator(
        task_id=name,
        application_id="app",
        execution_role_arn="arn:aws:iam::123456789012:role/spark",
        job_driver={"sparkSubmit": {"entryPoint": JOB, "entryPointArguments": words}},
        waiter_delay=1,
        waiter_max_attempts=300,
        **more,
    )


with system_dag("managed") as dag:
    dag.is_paused_upon_creation = False
    glue: dict[str, Any] = {"job_name": "copy", "job_poll_interval": 1}
    serverless("deferred", "go", deferrable=True)
    serverless("killed", "never")
    GlueJobOperator.partial(task_id="mapped", **glue).expand(
        script_args=[copy("first"), copy("second")]
    )
    GlueJobOperator(
        task_id="lost",
        script_args=copy("lost", until=f"{FOLDER}/go"),
        retries=1,
        retry_delay=timedelta(0),
        **glue,
    )
