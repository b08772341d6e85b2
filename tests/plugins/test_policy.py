"""Existing operators have lineage by policy, and are otherwise what they were."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_jdbc import SparkJDBCOperator
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, TaskGroup, task

from airflow_provider_spark_datahub.operators.child_spark import (
    ChildSparkOperator,
    _PySparkDecoratedDatahubOperator,
)
from airflow_provider_spark_datahub.operators.lineage import SparkLineageOperator
from airflow_provider_spark_datahub.operators.links import LINKS
from airflow_provider_spark_datahub.operators.spark_commands import SparkJDBCDatahubOperator
from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator
from airflow_provider_spark_datahub.plugins import policy
from tests.airflow_versions import DagSerialization
from tests.operators.conftest import _nothing_goes_on, airflow_configuration, spark  # noqa: F401 (fixtures)
from tests.operators.tries import FakeSpark, context_of, drop_in, execute


class HouseOperator(SparkSubmitOperator):
    """A company's own operator: it adds to the submission, and to the result."""

    def execute(self, context: Any) -> Any:
        self.conf = {**(self.conf or {}), "spark.house": "1"}
        super().execute(context)
        return "house"


class RewritingOperator(SparkSubmitOperator):
    """An operator that knows its arguments when it runs."""

    def execute(self, context: Any) -> Any:
        self.conf, self.jars, self.driver_class_path = {"spark.house": "1"}, "/opt/house.jar", None
        return super().execute(context)


class SubmittingOperator(SparkSubmitOperator):
    """An operator that does without what the plain one does, and so without lineage."""

    def execute(self, context: Any) -> Any:  # noqa: ARG002 (Airflow's signature)
        self._hook = self._get_hook()
        self._hook.submit(self.application)


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
        SparkSubmitOperator.partial(task_id="mapped", application="job.py").expand(
            application_args=[["a"], ["b"]]
        )
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


def test_tasks_of_the_named_operators_have_lineage(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("name", [name for name in policy.DROP_INS if not name.startswith("_")])
def test_each_operator_with_a_drop_in_gets_it(name: str) -> None:
    (operator,) = (base for base in drop_in(name).__mro__ if base.__name__ == name)
    with_lineage = policy._with_lineage(operator, frozenset([name]))
    assert with_lineage is not None
    assert issubclass(with_lineage, drop_in(name))
    assert (with_lineage.__name__, with_lineage.template_fields) == (name, operator.template_fields)


def test_a_decorated_task_is_named_by_its_decorator(monkeypatch: pytest.MonkeyPatch) -> None:
    def job() -> str:
        return ""

    with DAG("shop", schedule=None) as one:
        task.pyspark(task_id="pyspark", conn_id="connect")(job)()
        task.bash(task_id="bash")(job)()
    stored = DagSerialization.to_dict(one)
    pyspark, bash = with_policy(one, monkeypatch, "SparkSubmitOperator, @task.pyspark").tasks
    # Its connection may lead to a Spark Connect server.
    assert isinstance(pyspark, _PySparkDecoratedDatahubOperator)
    assert not isinstance(bash, SparkLineageOperator)
    names = [
        [each["__var"]["task_type"], each["__var"].get("_operator_name")]
        for each in stored["dag"]["tasks"]
    ]
    after = DagSerialization.to_dict(one)["dag"]["tasks"]
    assert [
        [each["__var"]["task_type"], each["__var"].get("_operator_name")] for each in after
    ] == names


def test_what_airflow_stores_of_the_dag_changes_by_the_links_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = DagSerialization.to_dict(some_dag())
    after = DagSerialization.to_dict(
        with_policy(some_dag(), monkeypatch, "SparkSubmitOperator, BashOperator")
    )
    links = {
        task["__var"]["task_id"]: task["__var"].pop("_operator_extra_links", {})
        for stored in (before, after)
        for task in stored["dag"]["tasks"]
    }
    for each in (*before["dag"]["tasks"], *after["dag"]["tasks"]):
        each["__var"].pop(
            "operator_extra_links", None
        )  # Airflow 3.0 also stores how the links of mapped tasks print
    assert after == before
    own = {link.name for link in LINKS}
    assert {task_id for task_id, names in links.items() if names.keys() == own} == {
        "submit", "house", "mapped", "bash", "ours", "jdbc",
    }  # fmt: skip


def test_a_companys_operator_has_lineage_and_keeps_its_result(
    spark: FakeSpark,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
    mapped: Any = one.get_task("mapped")
    assert isinstance(mapped.unmap({"application_args": ["b"]}), SparkLineageOperator)


@pytest.mark.parametrize("operator_class", [RewritingOperator, SubmittingOperator])
def test_a_companys_operator_keeps_its_own_way(
    spark: FakeSpark,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    operator_class: type[SparkSubmitOperator],
) -> None:
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__OPENLINEAGE_JAR", spark.jar)
    defaults = {"datahub_conn_id": "datahub_{{ dag_run.dag_id }}", "enabled": False}
    of_group: Any = {"enabled": True}
    with (
        DAG("file", schedule=None, default_args=defaults) as one,
        TaskGroup("night", default_args=of_group),
    ):
        operator_class(task_id="house", application="job.py", name="build")
    operator: Any = with_policy(one, monkeypatch, "SparkSubmitOperator").get_task("night.house")
    context = context_of(operator)
    context["dag_run"].dag_id = "file"
    execute(operator, context)
    (run,) = spark.runs
    has_lineage = operator_class is RewritingOperator
    assert ("--jars /opt/house.jar" in run) == has_lineage
    assert ("OpenLineageSparkListener" in run) == (spark.jar in run) == has_lineage
    report = context["ti"].xcoms.get("lineage_report", {"events": 0})
    assert (report["events"] == 23) == (report.get("connection") == "datahub_file") == has_lineage


def test_a_task_by_policy_that_starts_no_spark_reports_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with DAG("shop", schedule=None, default_args={"datahub_conn_id": "datahub_file"}) as one:
        BashOperator(task_id="greet", bash_command="echo hello")
    operator: Any = with_policy(one, monkeypatch, "BashOperator").get_task("greet")
    execute(operator, context := context_of(operator))
    assert context["ti"].xcoms.keys() <= {"return_value"}
    assert "ineage" not in caplog.text


def test_options_in_default_args_that_cannot_be_rendered_do_not_fail_the_task(
    spark: FakeSpark,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = with_policy(
        some_dag(datahub_conn_id="{{ nobody.knows }}"), monkeypatch, "SparkSubmitOperator"
    )
    operator: Any = one.get_task("submit")
    execute(operator, context_of(operator))
    operator.settle_lineage(context_of(operator), "success")
    assert len(spark.runs) == 1


class Unsubclassable(SparkSubmitOperator):
    """An operator whose own code refuses further subclasses."""

    def __init_subclass__(cls, *, team: str, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)


def test_an_operator_that_cannot_get_lineage_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with DAG("shop", schedule=None) as dag:
        SparkSubmitOperator(task_id="submit", application="job.py")
        Unsubclassable(task_id="closed", application="job.py")
    make = policy._with_lineage

    def fitting_no_task(operator: Any, wanted: frozenset[str]) -> Any:
        # Which classes have the same layout differs between versions of Airflow and Python: this
        # one fits no task.
        if operator is SparkSubmitOperator:
            return type("Other", (), {"__slots__": ("other",)})
        return make(operator, wanted)

    monkeypatch.setattr(policy, "_with_lineage", fitting_no_task)
    with_policy(dag, monkeypatch, "SparkSubmitOperator")
    assert [type(each) for each in dag.tasks] == [SparkSubmitOperator, Unsubclassable]
    for task_id in ("submit", "closed"):
        assert f"Task shop.{task_id} runs without lineage: [spark_datahub] auto" in caplog.text
