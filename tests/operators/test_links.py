"""Links of tasks to DataHub's UI and to the page in Airflow's."""

from __future__ import annotations

import pytest
from airflow.sdk import DAG, BaseOperator, BaseOperatorLink

from airflow_provider_spark_datahub.get_provider_info import get_provider_info
from airflow_provider_spark_datahub.operators.lineage import SparkLineageOperator
from airflow_provider_spark_datahub.operators.links import LINKS
from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator
from tests.airflow_versions import DagSerialization
from tests.delivery.connections import connect_to_gms
from tests.operators.tries import (
    FakeSpark,
    TaskInstance,
    context_of,
    execute,
    operator_with_lineage,
)

NAMES = {"DataHub run": "_link_DatahubRunLink", "DataHub task": "_link_DatahubJobLink"}
PAGE = "spark-datahub/task?dag_id=shop&run_id=scheduled__2026-01-01T00%3A00%3A00%2B00%3A00&task_id=build&map_index=-1"


def links_of(operator: BaseOperator, ti: TaskInstance) -> list[str]:
    return [link.get_link(operator, ti_key=ti) for link in LINKS]


def test_links_lead_to_run_and_task(spark: FakeSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    connect_to_gms(monkeypatch, "datahub_local", "http://127.0.0.1:8080")
    operator, ti = (
        operator_with_lineage(spark, datahub_conn_id="datahub_local", lineage_timeout=2),
        TaskInstance(),
    )
    assert links_of(operator, ti) == ["", "", ""]
    execute(operator, context_of(operator, ti))
    lineage = operator._task_lineage
    assert lineage is not None
    assert lineage.attempt is not None
    run, job = lineage.attempt.task_attempt.urn, lineage.attempt.task_attempt.job_urn
    assert links_of(operator, ti) == [
        f"http://127.0.0.1:9002/dataProcessInstance/{run}",
        f"http://127.0.0.1:9002/tasks/{job}",
        f"/{PAGE}",
    ]
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__DATAHUB_URL", "https://datahub.example.com/")
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.com/team/")
    execute(operator, context_of(operator, ti))
    assert links_of(operator, ti) == [
        f"https://datahub.example.com/dataProcessInstance/{run}",
        f"https://datahub.example.com/tasks/{job}",
        f"https://airflow.example.com/team/{PAGE}",
    ]


class _OtherLink(BaseOperatorLink):
    name = "Other"

    def get_link(self, operator: BaseOperator, *, ti_key: object) -> str:
        return f"https://other/{operator.task_id}/{ti_key}"


class _Linked(BaseOperator):
    operator_extra_links = (_OtherLink(),)


class _LinkedWithLineage(SparkLineageOperator, _Linked):
    """As the cluster policy makes it."""


class _Computing(BaseOperator):
    @property
    def operator_extra_links(self) -> tuple[BaseOperatorLink, ...]:  # type: ignore[override]
        return (_OtherLink(),)


class _ComputingWithLineage(SparkLineageOperator, _Computing):
    pass


def test_airflow_knows_the_links() -> None:
    with DAG("shop", schedule=None) as dag:
        SparkSubmitDatahubOperator(task_id="build", application="job.py")
        SparkSubmitDatahubOperator.partial(task_id="mapped", application="job.py").expand(
            name=["a", "b"]
        )
        _LinkedWithLineage(task_id="linked")
        _ComputingWithLineage(task_id="computing")
    stored = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    names = [link.name for link in LINKS]
    assert {
        task.task_id: sorted(link.name for link in task.operator_extra_links)
        for task in stored.tasks
    } == {
        "build": sorted(names),
        "mapped": sorted(names),
        "linked": sorted([*names, "Other"]),
        "computing": ["Other"],
    }
    declared = [path.rsplit(".", 1) for path in get_provider_info()["extra-links"]]
    assert declared == [[type(link).__module__, type(link).__name__] for link in LINKS]
