"""The drop-ins for the other operators of the Spark provider submit what those submit, and the
listener.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_jdbc import SparkJDBCOperator
from airflow.providers.apache.spark.operators.spark_sql import SparkSqlOperator
from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_spark_datahub.capture.spark_submit import InjectionError
from airflow_provider_spark_datahub.operators.lineage import SparkLineageOperator
from airflow_provider_spark_datahub.operators.spark_commands import (
    SparkJDBCDatahubOperator,
    SparkPipelinesDatahubOperator,
    SparkSqlDatahubOperator,
    _properties_of_text,
)
from tests.delivery.connections import connect
from tests.operators.tries import CORPUS, EVENTS, LOG, FakeSpark, TaskInstance, context_of, dag
from tests.patience import HANGS
from tests.system.catalogue import Catalogue

USERS = {"spark.extraListeners": "com.example.Own", "spark.executor.memory": "1g"}
LISTENERS = (
    "spark.extraListeners=com.example.Own,io.openlineage.spark.agent.OpenLineageSparkListener"
)


@dataclass(frozen=True)
class DropIn:
    """An operator and ours. :attr:`users` is the attribute that holds the user's properties."""

    plain: Callable[..., Any]
    ours: type[SparkLineageOperator]
    arguments: dict[str, Any]
    users: str


DROP_INS = {
    "jdbc": DropIn(
        SparkJDBCOperator,
        SparkJDBCDatahubOperator,
        {"spark_conn_id": "spark_default", "spark_conf": USERS, "cmd_type": "jdbc_to_spark", "jdbc_table": "orders"},
        "_spark_conf",
    ),
    "sql": DropIn(
        SparkSqlOperator, SparkSqlDatahubOperator, {"conn_id": "spark_default", "conf": USERS, "sql": "x"}, "_conf"
    ),
    "sql, properties as text": DropIn(
        SparkSqlOperator,
        SparkSqlDatahubOperator,
        {"conn_id": "spark_default", "conf": ",".join(f"{name}={value}" for name, value in USERS.items()), "sql": "x"},
        "_conf",
    ),
}  # fmt: skip


def ours(one: DropIn, spark: FakeSpark, **arguments: Any) -> Any:
    return one.ours(
        task_id="build",
        dag=dag(),
        datahub_conn_id="datahub_file",
        openlineage_jar=spark.jar,
        **{**one.arguments, **arguments},
    )


def run(operator: Any, context: Any) -> None:
    """Call ``execute``, and close the pipe that SparkSqlHook leaves open."""
    try:
        operator.execute(context)
    finally:
        hook = getattr(operator, "_hook", None) or operator.hook
        process = getattr(hook, "_sp", None) or hook._submit_sp
        process.communicate(timeout=HANGS)


@pytest.mark.parametrize("one", DROP_INS.values(), ids=DROP_INS)
def test_a_drop_in_submits_what_the_operator_submits_and_reads_events_and_log(
    spark: FakeSpark, one: DropIn, tmp_path: Path
) -> None:
    spark.writes(EVENTS)
    spark.logs(LOG)
    operator = ours(one, spark)
    assert isinstance(operator, one.plain)  # type: ignore[arg-type]
    assert operator.template_fields == (*one.plain.template_fields, *operator.lineage_fields)  # type: ignore[attr-defined]
    context = context_of(operator)
    run(operator, context)
    run(one.plain(task_id="build", dag=dag(), **one.arguments), context)
    with_lineage, plain = (run.split() for run in spark.runs)
    assert LISTENERS in with_lineage
    assert any(spark.jar in argument for argument in with_lineage)
    added = {argument for argument in with_lineage if argument not in plain}
    assert all(
        "spark." in argument or "java.base" in argument or argument == "--jars"
        for argument in added
    ), added
    assert [argument for argument in plain if argument not in with_lineage] == [
        "spark.extraListeners=com.example.Own"
    ]
    report = context["ti"].xcoms["lineage_report"]
    assert (report["events"], report["pending"], report["reason"]) == (
        len(EVENTS.splitlines()),
        0,
        None,
    )
    assert Catalogue.of_folder(tmp_path / "sink").have_both_sources == [True]
    assert (
        getattr(operator, one.users)
        is one.arguments["spark_conf" if one.users == "_spark_conf" else "conf"]
    )


@pytest.mark.parametrize("one", DROP_INS.values(), ids=DROP_INS)
def test_a_job_that_fails_raises_what_the_plain_operator_raises(
    spark: FakeSpark, one: DropIn
) -> None:
    spark.exits(3)
    operator = ours(one, spark)
    context = context_of(operator, TaskInstance(max_tries=1))
    with pytest.raises(AirflowException, match=r"code(:| is:) 3"):
        run(operator, context)
    assert context["ti"].xcoms["lineage_report"]["events"] == 23


def test_a_jdbc_job_has_its_own_name_though_its_script_calls_it_none(spark: FakeSpark) -> None:
    """The script of Airflow's provider calls ``appName(arguments.name)``, and its hook passes no
    ``-name``.
    """
    recorded = (CORPUS / "a_csv_join_agg.ndjson").read_bytes()
    recorded = recorded.replace(b'"appName":"a_csv_join_agg"', b'"appName":"None"')
    spark.writes(recorded.replace(b"a_csv_join_agg", b"none"))
    spark.exits(1)
    operator = ours(DROP_INS["jdbc"], spark)
    context = context_of(operator, TaskInstance())
    with pytest.raises(AirflowException):
        run(operator, context)
    flows = {urn.split(",")[1] for urn in context["ti"].xcoms["lineage_report"]["jobs"]}
    assert flows == {"airflow-spark-jdbc"}


def test_a_pipeline_of_a_connect_server_runs_without_lineage(
    spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, "connect", conn_type="spark_connect", host="localhost")
    operator = SparkPipelinesDatahubOperator(
        task_id="build", dag=dag(), conn_id="connect", openlineage_jar=spark.jar
    )
    with pytest.raises(InjectionError, match="configure OpenLineage on the server"):
        operator._launcher(context_of(operator))


def test_properties_given_as_text_are_read_as_spark_sql_reads_them() -> None:
    assert _properties_of_text("spark.a=1,spark.b=x=y") == {"spark.a": "1", "spark.b": "x=y"}
    with pytest.raises(InjectionError, match="'c' has no value"):
        _properties_of_text("spark.jars=a,c")
