"""What a try submits, and what it submits instead."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import pytest

from airflow_provider_spark_datahub.capture.spark_submit import Submission
from airflow_provider_spark_datahub.operators.spark_submit import _SubmitLauncher
from tests.airflow_versions import skip_if_airflow_injects_nothing
from tests.cases import cases
from tests.delivery.connections import connect
from tests.operators.tries import FakeSpark, context_of, operator_with_lineage, report_of


def test_the_users_arguments_are_restored_after_a_submit_that_fails(spark: FakeSpark) -> None:
    conf = {"spark.a": 1}
    operator = operator_with_lineage(spark, conf=conf, jars="users.jar", packages="a:b:1")
    instead = Submission({"spark.b": "2"}, jars="ours.jar", packages="a:b:1,c:d:2")

    def submit() -> None:
        with _SubmitLauncher(operator, context_of(operator)).launching([instead]):
            assert (operator.conf, operator.jars, operator.packages) == (
                {"spark.b": "2"},
                "ours.jar",
                "a:b:1,c:d:2",
            )
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        submit()
    assert operator.conf is conf
    assert (operator.conf, operator.jars, operator.packages) == (
        {"spark.a": 1},
        "users.jar",
        "a:b:1",
    )


@cases("operators")
def test_the_command_and_the_deploy_mode_are_those_of_the_operator_then_of_the_connection(
    spark: FakeSpark,
    monkeypatch: pytest.MonkeyPatch,
    arguments: dict[str, Any],
    connection: dict[str, Any],
    binary: str,
    local: bool,
) -> None:
    connect(monkeypatch, "spark_default", conn_type="spark", extra=connection)
    operator = operator_with_lineage(spark, env_vars={"A": 1}, **arguments)
    found = _SubmitLauncher(operator, context_of(operator)).spark()
    assert (found.binary, found.local_driver) == (binary, local)
    assert found.env == {**os.environ, "A": "1"}


def test_without_a_spark_connection_the_driver_is_local(spark: FakeSpark) -> None:
    operator = operator_with_lineage(spark, conn_id="missing")
    found = _SubmitLauncher(operator, context_of(operator)).spark()
    assert (found.binary, found.local_driver) == ("spark-submit", True)


def configure_airflows_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Airflow's OpenLineage provider send events to a server that wants an API key."""
    skip_if_airflow_injects_nothing()
    listener: Any = import_module(
        "airflow.providers.openlineage.plugins.listener"
    ).get_openlineage_listener()
    transport = {
        "type": "http",
        "url": "http://ol:5000",
        "auth": {"type": "api_key", "apiKey": "a-key-of-airflow"},
    }
    client = import_module("openlineage.client").OpenLineageClient(config={"transport": transport})
    monkeypatch.setattr(listener.adapter, "_client", client)


def test_what_airflows_openlineage_provider_injects_is_kept_beside_ours(
    spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both of its injections keep their hands off where there are such properties already: ours."""
    configure_airflows_transport(monkeypatch)
    operator = operator_with_lineage(
        spark, openlineage_inject_transport_info=True, openlineage_inject_parent_job_info=True
    )
    report = report_of(operator)
    (run,) = spark.runs
    prefix = "--conf spark.openlineage.transport"
    assert f"{prefix}.type=composite" in run
    assert f"{prefix}.transports.users.url=http://ol:5000" in run
    assert f"{prefix}.transports.users.auth.apiKey=Bearer a-key-of-airflow" in run
    assert f"{prefix}.transports.airflow_datahub.type=file" in run
    assert run.count("spark.openlineage.parentRunId=") == 1
    assert report["warnings"] == []
    assert operator.conf is None
