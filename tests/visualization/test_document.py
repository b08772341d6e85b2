"""The graph as JSON."""

from __future__ import annotations

import json

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.visualization import build_graph, render_json
from tests.visualization.conftest import HOSTILE, dataset


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


def test_everything_is_json(hostile: list[Proposal]) -> None:
    found = render_json(build_graph(hostile))
    assert json.loads(json.dumps(found)) == found
    assert len(found["problems"]) == len(HOSTILE)
