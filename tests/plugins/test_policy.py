"""Existing operators have lineage by policy, and are otherwise what they were."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_jdbc import SparkJDBCOperator
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, task

from airflow_provider_spark_datahub.operators.child_spark import ChildSparkOperator
from airflow_provider_spark_datahub.operators.lineage import SparkLineageOperator
from airflow_provider_spark_datahub.operators.links import LINKS
from airflow_provider_spark_datahub.operators.spark_commands import SparkJDBCDatahubOperator
from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator
from airflow_provider_spark_datahub.plugins import policy
from tests.airflow_versions import MAPPED_TASKS_TAKE_ALL_DEFAULTS, DagSerialization, policies
from tests.operators.conftest import _nothing_goes_on, airflow_configuration, spark  # noqa: F401 (fixtures)
from tests.operators.tries import FakeSpark, context_of, execute


class HouseOperator(SparkSubmitOperator):
    """A company's own operator: it adds to what is submitted, and to the result."""

    def execute(self, context: Any) -> Any:
        self.conf = {**(self.conf or {}), "spark.house": "1"}
        super().execute(context)
        return "house"


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    policy._wanted.cache_clear()
    yield
    policy._wanted.cache_clear()


def with_policy(one: DAG, monkeypatch: pytest.MonkeyPatch, auto: str) -> DAG:
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__AUTO", auto)
    for each in one.tasks:
        policy.task_policy(each)
        policy.task_policy(each)
    return one


def some_dag(**default_args: Any) -> DAG:
    with DAG("shop", schedule=None, default_args=default_args) as one:
        SparkSubmitOperator(task_id="submit", application="job.py", name="build")
        HouseOperator(task_id="house", application="{{ ds }}.py", name="build")
        SparkJDBCOperator(task_id="jdbc")
        if MAPPED_TASKS_TAKE_ALL_DEFAULTS or not default_args:
            SparkSubmitOperator.partial(task_id="mapped", application="job.py").expand(application_args=[["a"], ["b"]])
        BashOperator(task_id="bash", bash_command="spark-submit x.py")
        SparkSubmitDatahubOperator(task_id="ours", datahub_conn_id="x")

        @task
        def count() -> None: ...

        count()
    return one


def lineage_classes(one: DAG) -> dict[str, type | None]:
    drop_ins = (SparkJDBCDatahubOperator, SparkSubmitDatahubOperator, ChildSparkOperator)
    return {
        each.task_id: next((base for base in drop_ins if issubclass(cls, base)), None)
        for each in one.tasks
        for cls in [getattr(each, "operator_class", None) or type(each)]
    }


def test_which_tasks_have_lineage(monkeypatch: pytest.MonkeyPatch) -> None:
    without = dict.fromkeys(("submit", "house", "jdbc", "mapped", "bash", "count"))
    ours = {"ours": SparkSubmitDatahubOperator}
    assert lineage_classes(with_policy(some_dag(), monkeypatch, "")) == {**without, **ours}
    policy._wanted.cache_clear()
    submitting = {"jdbc": SparkJDBCDatahubOperator} | dict.fromkeys(
        ("submit", "house", "mapped"), SparkSubmitDatahubOperator
    )
    by_name = lineage_classes(with_policy(some_dag(), monkeypatch, " SparkSubmitOperator ,"))
    assert by_name == {**without, **submitting, **ours}
    policy._wanted.cache_clear()
    below = "airflow.providers.standard.operators.bash.BashOperator, PythonOperator"
    by_path = lineage_classes(with_policy(some_dag(), monkeypatch, below))
    assert by_path == {**without, "bash": ChildSparkOperator, "count": ChildSparkOperator, **ours}


def test_what_airflow_stores_of_the_dag_changes_by_the_links_only(monkeypatch: pytest.MonkeyPatch) -> None:
    before = DagSerialization.to_dict(some_dag())
    after = DagSerialization.to_dict(with_policy(some_dag(), monkeypatch, "SparkSubmitOperator, BashOperator"))
    links = {
        task["__var"]["task_id"]: task["__var"].pop("_operator_extra_links", {})
        for stored in (before, after)
        for task in stored["dag"]["tasks"]
    }
    for each in (*before["dag"]["tasks"], *after["dag"]["tasks"]):
        each["__var"].pop("operator_extra_links", None)  # Airflow 3.0 also stores how the links of mapped tasks print
    assert after == before
    own = {link.name for link in LINKS}
    assert {task_id for task_id, names in links.items() if names.keys() == own} == {
        "submit", "house", "mapped", "bash", "ours", "jdbc",
    }  # fmt: skip


def test_a_companys_operator_with_lineage(spark: FakeSpark, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    spark.writes("a_csv_join_agg")
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__OPENLINEAGE_JAR", spark.jar)
    one = with_policy(some_dag(datahub_conn_id="datahub_file"), monkeypatch, "SparkSubmitOperator")
    operator: Any = one.get_task("house")
    assert (type(operator).__name__, operator.task_type) == ("HouseOperator", "HouseOperator")
    assert isinstance(operator, HouseOperator)
    operator.render_template_fields({"ds": "2026-01-01"})
    context = context_of(operator)
    assert execute(operator, context) == "house"
    (run,) = spark.runs
    assert "--conf spark.house=1" in run
    assert "OpenLineageSparkListener" in run
    assert run.endswith("2026-01-01.py")
    report = context["ti"].xcoms["lineage_report"]
    assert (report["events"], report["connection"]) == (23, "datahub_file")
    if not MAPPED_TASKS_TAKE_ALL_DEFAULTS:
        return
    mapped: Any = one.get_task("mapped")
    assert isinstance(mapped.unmap({"application_args": ["b"]}), SparkLineageOperator)


def test_a_dag_may_do_without(spark: FakeSpark, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    one = with_policy(some_dag(enabled=False), monkeypatch, "SparkSubmitOperator")
    context = context_of(operator := one.get_task("submit"))
    execute(operator, context)  # type: ignore[arg-type]
    assert context["ti"].xcoms == {}
    assert "OpenLineage" not in spark.runs[0]


def test_the_entry_point_is_an_airflow_policy() -> None:
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    (module,) = pyproject["project"]["entry-points"]["airflow.policy"].values()
    assert import_module(module) in policies()


def test_an_operator_whose_objects_cannot_change_their_class_stays(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Which classes have the same layout differs between versions of Airflow and Python: this one fits no task.
    monkeypatch.setattr(policy, "_with_lineage", lambda *_: type("Other", (), {"__slots__": ("other",)}))
    with DAG("shop", schedule=None) as dag:
        SparkSubmitOperator(task_id="submit", application="job.py")
    with_policy(dag, monkeypatch, "SparkSubmitOperator")
    assert type(dag.get_task("submit")) is SparkSubmitOperator
    assert "Task <Task(SparkSubmitOperator): submit> runs without lineage: [spark_datahub] auto" in caplog.text
