"""What an output's own facets tell of a write."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion.events import DatasetId, parse_run_event
from airflow_provider_spark_datahub.conversion.facets.dataset import (
    OutputStatistics,
    lifecycle_change,
    previous_name,
    read_statistics,
)
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
def test_statistics(output_facets: Any, expected: tuple[int | None, ...]) -> None:
    told = event(outputs=[{**file("/z"), "outputFacets": output_facets}])
    from_text, from_object = parse_run_event(json.dumps(told).encode()), parse_run_event(told)
    for read in (from_text, from_object):
        assert read_statistics(read.outputs[0].output_facets) == OutputStatistics(*expected)


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
def test_lifecycle(facet: Any, change: str, previous: DatasetId | None) -> None:
    assert (lifecycle_change(facet), previous_name(facet)) == (change, previous)
