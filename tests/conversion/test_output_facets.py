"""Statistics and lifecycle of an output."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion.events import DatasetId, Facets, RunEvent
from airflow_provider_spark_datahub.conversion.facets.dataset import DatasetFacets, OutputStatistics
from tests.conversion.builders import event, file


@pytest.mark.parametrize(
    ("output_facets", "expected"),
    [
        ({"outputStatistics": {"rowCount": 5, "size": 70, "fileCount": 1}}, (5, 70, 1)),
        ({"outputStatistics": {"rowCount": 0, "size": None}}, (0, None, None)),
        ({"outputStatistics": {"rowCount": -1, "size": "7", "fileCount": True}}, (None, None, None)),
        ({"outputStatistics": {"rowCount": 2**63 - 1, "size": 2**63, "fileCount": 1.5}}, (2**63 - 1, None, None)),
        ({"outputStatistics": None}, (None, None, None)),
        ({"outputStatistics": [1]}, (None, None, None)),
        ({}, (None, None, None)),
        (None, (None, None, None)),
        ([], (None, None, None)),
    ],
)
def test_statistics_are_read_tolerantly(output_facets: Any, expected: tuple[int | None, ...]) -> None:
    sent = event(outputs=[{**file("/z"), "outputFacets": output_facets}])
    from_text, from_object = RunEvent.parse(json.dumps(sent).encode()), RunEvent.parse(sent)
    for read in (from_text, from_object):
        assert OutputStatistics.read(read.outputs[0].output_facets) == OutputStatistics(*expected)


@pytest.mark.parametrize(
    ("facet", "change", "previous"),
    [
        ({"lifecycleStateChange": "drop"}, "DROP", None),
        ({"lifecycleStateChange": 7, "previousIdentifier": "x"}, "", None),
        (
            {"lifecycleStateChange": "RENAME", "previousIdentifier": {"namespace": "file", "name": "/a"}},
            "RENAME",
            DatasetId("file", "/a"),
        ),
        ({"previousIdentifier": {"namespace": "file", "name": None}}, "", None),
    ],
)
def test_lifecycle_changes_are_read_tolerantly(facet: Any, change: str, previous: DatasetId | None) -> None:
    assert DatasetFacets.of(Facets({"lifecycleStateChange": facet})) == (None, change, previous, "")
