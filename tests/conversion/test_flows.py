"""Flow and job of an event."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion.events import EventError
from airflow_provider_spark_datahub.conversion.urns import FlowIdentity, job_id_and_name
from tests.conversion.builders import dataset, file, parsed, settings, spark_properties, symlink

OPENLINEAGE = "https://github.com/OpenLineage/OpenLineage/"


@pytest.mark.parametrize(
    ("producer", "engine", "option", "expected"),
    [
        (f"{OPENLINEAGE}tree/1.33.0/integration/spark", None, None, "spark"),
        (f"{OPENLINEAGE}tree/1.33.0/client/python", None, None, "python"),
        ("https://github.com/apache/airflow/tree/providers-openlineage/2.7.3", None, None, "airflow"),
        ("https://github.com/trinodb/trino/plugin/trino-openlineage", None, None, "trino"),
        ("https://example.com", "Flink", None, "flink"),
        (f"{OPENLINEAGE}tree/1.33.0/integration/spark", "Flink", None, "flink"),
        (f"{OPENLINEAGE}tree/1.33.0/integration/spark", "Flink", "mine", "mine"),
        (f"{OPENLINEAGE}tree/1.33.0/integration/spark", " ", None, "spark"),
    ],
)
def test_the_orchestrator_is_found(producer: str, engine: str | None, option: str | None, expected: str) -> None:
    event = parsed(producer=producer, run_facets={"processing_engine": {"name": engine}})
    assert FlowIdentity.of(event, settings(orchestrator=option), "").orchestrator == expected


@pytest.mark.parametrize(
    "producer",
    [
        "https://example.com/x",
        "",
        OPENLINEAGE.rstrip("/"),
        f"{OPENLINEAGE}spark/",
        "https://github.com/apache/airflowx",
    ],
)
def test_an_unknown_orchestrator_is_an_error(producer: str) -> None:
    with pytest.raises(EventError) as raised:
        FlowIdentity.of(parsed(producer=producer), settings(), "")
    assert repr(producer) in str(raised.value)


@pytest.mark.parametrize(
    ("facets", "expected"),
    [
        (
            {"spark_applicationDetails": {"appName": "My Shop"}, **spark_properties(spark__app__name="x")},
            ("My Shop", "x"),
        ),
        (spark_properties(spark__app__name="My Shop"), ("", "My Shop")),
        ({"spark_applicationDetails": {"appName": None}, "spark_properties": {"properties": None}}, ("", "")),
        ({}, ("", "")),
    ],
)
def test_the_application_name_is_found(facets: Any, expected: tuple[str, str]) -> None:
    assert parsed(run_facets=facets).application_names == expected


@pytest.mark.parametrize(
    ("job", "namespace", "app_name", "options", "urn"),
    [
        ("my_app.query_1", "default", "my-app", {}, "urn:li:dataFlow:(spark,my-app,default)"),
        ("my_app.query_1", "ns", "", {}, "urn:li:dataFlow:(spark,my_app,ns)"),
        ("plain", "ns", "", {}, "urn:li:dataFlow:(spark,plain,ns)"),
        ("trail.", "ns", "", {}, "urn:li:dataFlow:(spark,trail,ns)"),
        ("a.b", "ns", "x", {"pipeline_name": "mine"}, "urn:li:dataFlow:(spark,mine,ns)"),
        ("a.b", "ns", "", {"platform_instance": "eu"}, "urn:li:dataFlow:(spark,a,eu)"),
        ("a.b", "", "", {}, "urn:li:dataFlow:(spark,a,default)"),
        ("a,b.c", "n(s)", "", {}, "urn:li:dataFlow:(spark,a%2Cb,n%28s%29)"),
    ],
)
def test_the_flow_has_orchestrator_id_and_cluster(
    job: str, namespace: str, app_name: str, options: Any, urn: str
) -> None:
    assert FlowIdentity.of(parsed(job=job, namespace=namespace), settings(**options), app_name).urn == urn


def test_a_job_name_that_starts_with_a_dot_names_no_flow() -> None:
    with pytest.raises(EventError, match=r"'\.x' starts with a dot"):
        FlowIdentity.of(parsed(job=".x"), settings(), "")
    assert FlowIdentity.of(parsed(job=".x"), settings(), "app").flow_id == "app"


@pytest.mark.parametrize(
    ("job", "name"), [("plain", "plain"), ("a.b.c", "b.c"), ("trail.", ""), ("my_app.query_1", "query_1")]
)
def test_the_job_of_a_single_event_has_its_name(job: str, name: str) -> None:
    assert job_id_and_name(parsed(job=job), settings()) == (job, name)


MERGE = "app.execute_merge_into_command_edge"


@pytest.mark.parametrize(
    ("sql", "outputs", "table"),
    [
        ("MERGE INTO db.t USING s", [], "db.t"),
        ("-- note\n  merge into `Db`.`T` t using s", [], "Db.T"),
        ("SELECT 1", [dataset("hive", "db.t")], "db.t"),
        ("", [file("/x.parquet"), dataset("hive", "db.t")], "db.t"),
        ("", [file("/x", symlinks=symlink("arn:aws:glue:e:1", "table/db/t"))], "db.t"),
        ("", [file("/user/warehouse/db.db/t/")], "db.t"),
        ("", [file("/user/warehouse/t"), file("/other")], ""),
        ("", [], ""),
    ],
)
def test_a_merge_is_named_after_its_target(sql: str, outputs: Any, table: str) -> None:
    event = parsed(job=MERGE, job_facets={"sql": {"query": sql}}, outputs=outputs)
    named = f"{MERGE}.{table.replace('.', '_').lower()}" if table else MERGE
    assert job_id_and_name(event, settings(enhanced_merge_into_extraction=True))[0] == named
    assert job_id_and_name(event, settings())[0] == MERGE


def test_only_merges_are_named_after_their_table() -> None:
    event = parsed(job="app.insert", job_facets={"sql": {"query": "MERGE INTO t"}})
    assert job_id_and_name(event, settings(enhanced_merge_into_extraction=True)) == ("app.insert", "insert")
