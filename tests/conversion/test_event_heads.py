"""The head of an event is what the whole event says."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion.archive.grouping import NO_TIME, EventHead
from airflow_provider_spark_datahub.conversion.events import EventError, RunEvent
from tests.conversion.builders import APP, CORPUS, QUERY, START_MS, event, query

FILES = [*sorted((CORPUS / "events").glob("*.ndjson")), CORPUS / "edge" / "events.ndjson"]


def outcome(read: Callable[[bytes], EventHead], text: bytes) -> EventHead | str:
    """Return the head, or the error."""
    try:
        return read(text)
    except EventError as error:
        return str(error)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_heads_of_real_events_agree_with_the_events(path: Any) -> None:
    for line in path.read_bytes().splitlines():
        assert outcome(EventHead.read, line) == outcome(lambda text: EventHead.of(RunEvent.parse(text)), line)


def test_the_head_of_a_query_names_its_application() -> None:
    text = json.dumps(query(second=3)).encode()
    assert EventHead.read(text) == EventHead(START_MS + 3000, QUERY, "SQL_JOB", APP)


@pytest.mark.parametrize(
    "change",
    [
        {"run": {"runId": f" {QUERY.upper()} ", "facets": None}},
        {"run": {"runId": QUERY, "facets": {"parent": None}}},
        {"run": {"runId": QUERY, "facets": {"parent": {"run": {"runId": 7}}}}},
        {"run": {"runId": QUERY, "facets": {"hive_session": {"sessionId": "s1"}}}},
        {"job": {"namespace": None, "name": "x", "facets": {"jobType": {"jobType": "SQL_JOB"}}}},
        {"job": {"namespace": "hive://metastore", "name": "x"}},
        {"eventTime": "yesterday"},
        {"eventTime": None},
        {"run": {"runId": " "}},
        {"job": {"name": "..", "facets": {"jobType": {"jobType": "SQL_JOB"}}}},
        {"run": None},
    ],
)
def test_the_head_is_as_tolerant_as_the_converter(change: dict[str, Any]) -> None:
    text = json.dumps(query() | change).encode()
    assert outcome(EventHead.read, text) == outcome(lambda one: EventHead.of(RunEvent.parse(one)), text)


def test_an_event_without_a_time_comes_before_all_others() -> None:
    assert EventHead.read(json.dumps(event() | {"eventTime": ""}).encode()).time_ms == NO_TIME < 0
