"""Run events, read tolerantly."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion.events import (
    LATEST_MS,
    DatasetId,
    EventError,
    RunEvent,
    as_object,
    iso_instant,
    parse_time_ms,
)
from tests.conversion.builders import APP, QUERY, START_MS, Json, event, file, parsed, query


def test_a_run_event() -> None:
    read = parsed(kind="complete", parent=APP.upper(), job_facets={"sql": {"query": "SELECT 1"}})
    assert (read.type, read.time_ms, read.run_id, read.parent_run_id) == ("COMPLETE", START_MS, QUERY, APP)
    assert (read.job_namespace, read.job_name, read.job_type, read.sql) == (
        "default",
        "shop.insert",
        "SQL_JOB",
        "SELECT 1",
    )


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (None, "not a JSON object but NoneType"),
        ([], "not a JSON object but list"),
        ({"job": {"name": "x"}}, "not a run event"),
        ({"run": {"runId": " "}, "job": {"name": "x"}}, "run.runId is missing"),
        ({"run": {"runId": "1"}, "job": None}, "job.name is ''"),
        ({"run": {"runId": "1"}, "job": {"name": "..."}}, "job.name is '...'"),
    ],
)
def test_other_objects_are_refused(obj: Any, message: str) -> None:
    with pytest.raises(EventError) as raised:
        RunEvent.parse(obj)
    assert message in str(raised.value)


@pytest.mark.parametrize("datasets", [None, {}, "x", [None, 1, {}, {"namespace": None, "name": None}]])
def test_other_values_are_not_datasets(datasets: Any) -> None:
    read = RunEvent.parse({**event(), "inputs": datasets, "outputs": datasets})
    assert read.inputs == read.outputs == ()


def test_a_dataset_may_have_nothing_but_a_name() -> None:
    spelled: list[Json] = [{"namespace": "file", "name": "/a", "facets": None}]
    (dataset,) = RunEvent.parse({**event(), "inputs": spelled}).inputs
    assert dataset.id == DatasetId("file", "/a")
    assert dataset.facets["schema"] == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-01T00:00:00Z", START_MS),
        ("2026-01-01T00:00:00.123Z", START_MS + 123),
        ("2026-01-01T00:00:00.123456789Z", START_MS + 123),
        ("2026-01-01T01:00:00+01:00", START_MS),
        ("2026-01-01T00:00:00", START_MS),
        ("yesterday", None),
        ("", None),
        (None, None),
        (1, None),
        # No instant that Python or DataHub could show.
        ("0001-01-01T00:00:00+05:00", None),
        ("9999-12-31T23:59:59-05:00", None),
        ("9999-12-31T23:59:59.999999999Z", LATEST_MS),
    ],
)
def test_time(text: Any, expected: int | None) -> None:
    found = parse_time_ms(text)
    assert found == expected
    assert found is None or iso_instant(found) <= "9999-12-31T23:59:59.999Z"


@pytest.mark.parametrize(
    ("millis", "expected"),
    [(0, "2026-01-01T00:00:00Z"), (694, "2026-01-01T00:00:00.694Z"), (60_000, "2026-01-01T00:01:00Z")],
)
def test_iso_instant(millis: int, expected: str) -> None:
    assert iso_instant(START_MS + millis) == expected


def test_bytes_that_are_no_utf8_cost_only_their_facet() -> None:
    event = json.dumps(query(outputs=[file("/z", columnLineage={"fields": {"?": {}}})])).encode()
    (output,) = RunEvent.parse(event.replace(b'"?"', b'"\xcc"')).outputs
    assert output.id.name == "/z"
    assert as_object(output.facets["columnLineage"]) == {}
    with pytest.raises(EventError, match="not valid JSON"):
        RunEvent.parse(b'{"run": {"runId": "\xcc"}}')


def test_half_of_a_character_costs_nothing() -> None:
    """A producer cut a text within a surrogate pair, which JSON can spell."""
    sent = query(job="shop.\ud83d", job_facets={"documentation": {"description": "half: \ud83d"}})
    event = RunEvent.parse(json.dumps(sent).encode())
    assert event.job_name == "shop.\ud83d"
    assert as_object(event.job_facets["documentation"])["description"] == "half: \ud83d"


@pytest.mark.parametrize("broken", [b'{"run": NaN, "x": "\\ud83d"}', b'{"run": "\\ud83d"'])
def test_beside_half_a_character_the_rest_must_be_json(broken: bytes) -> None:
    with pytest.raises(EventError, match="not valid JSON"):
        RunEvent.parse(broken)


def test_a_parent_of_blanks_is_none() -> None:
    assert parsed(run_facets={"parent": {"run": {"runId": " "}}}).parent_run_id == ""
    assert parsed(run_facets={"parent": {"run": {"runId": f" {APP.upper()} "}}}).parent_run_id == APP
