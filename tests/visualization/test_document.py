"""The graph as JSON."""

from __future__ import annotations

import json

from airflow_provider_spark_datahub.conversion.proposals import Proposal
from airflow_provider_spark_datahub.visualization.export import render_json
from airflow_provider_spark_datahub.visualization.graph import build_graph
from tests.visualization.conftest import DAG_RUN, HOSTILE, MIDNIGHT, RAW, TABLE, dataset


def test_runs_with_their_attempts(daily_sales: list[Proposal]) -> None:
    runs = {run["urn"]: run for run in render_json(build_graph(daily_sales))["runs"]}
    build = runs["urn:li:dataProcessInstance:build_orders"]
    assert (build["kind"], build["parent"]) == ("task", DAG_RUN)
    assert [(attempt["number"], attempt["state"], attempt["duration"]) for attempt in build["attempts"]] == [
        (1, "UP_FOR_RETRY", 12_300),
        (2, "SUCCESS", 35_000),
    ]
    assert build["attempts"][0]["started"] == MIDNIGHT + 2_000


def test_jobs_with_their_columns(daily_sales: list[Proposal]) -> None:
    job = render_json(build_graph(daily_sales))["jobs"][1]
    assert (job["name"], job["inputs"], job["outputs"]) == (
        "revenue",
        [TABLE.format("orders"), TABLE.format("rates")],
        [TABLE.format("daily_revenue")],
    )
    assert job["columns"] == [
        {
            "output": {"dataset": TABLE.format("daily_revenue"), "column": "revenue"},
            "inputs": [
                {"dataset": TABLE.format("orders"), "column": "amount"},
                {"dataset": TABLE.format("rates"), "column": "rate"},
            ],
            "transformation": "DIRECT:AGGREGATION",
        }
    ]


def test_datasets_with_their_columns() -> None:
    schema = Proposal(
        "dataset", dataset("a"), "schemaMetadata", {"fields": [{"fieldPath": "x", "nativeDataType": "int"}]}
    )
    assert render_json(build_graph([schema]))["datasets"] == [
        {
            "urn": dataset("a"),
            "platform": "hive",
            "name": "a",
            "env": "PROD",
            "instance": None,
            "columns": [{"path": "x", "type": "int"}],
        }
    ]


def test_a_dataset_without_schema_has_no_columns(daily_sales: list[Proposal]) -> None:
    datasets = {each["urn"]: each for each in render_json(build_graph(daily_sales))["datasets"]}
    assert datasets[RAW.format("orders")]["columns"] is None


def test_everything_is_json(hostile: list[Proposal]) -> None:
    found = render_json(build_graph(hostile))
    assert json.loads(json.dumps(found)) == found
    assert len(found["problems"]) == len(HOSTILE)
