"""What is remembered of single events is bounded, however long they are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion.events import RunEvent
from airflow_provider_spark_datahub.conversion.proposals import SharedObject
from airflow_provider_spark_datahub.conversion.runs import coalesce as single_event
from airflow_provider_spark_datahub.conversion.runs.coalesce import REMEMBERED, JobLineage, SingleEvents
from tests.conversion.builders import Json, column, column_lineage, file, query, settings


def job_of(events: SingleEvents, event: Json) -> JobLineage:
    return events.job(RunEvent.parse(json.dumps(event).encode()))


def test_lineages_without_columns_are_remembered_up_to_a_number() -> None:
    events = SingleEvents(settings())
    for number in range(3 * REMEMBERED):
        (output,) = job_of(events, query(outputs=[file(f"/out/{number}")])).lineage.outputs
        assert f"/out/{number}," in output
        assert len(events._remembered) <= REMEMBERED


def test_column_edges_are_remembered_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_event, "REMEMBERED_EDGES", 10)
    events = SingleEvents(settings())
    facet = column_lineage({f"c{number}": [column("/in", "x")] for number in range(4)})
    for number in range(20):
        job = job_of(events, query(outputs=[file(f"/out/{number}", columnLineage=facet)]))
        assert len(job.lineage.fine_grained) == 4
        assert len(events._remembered) <= 3


def test_what_an_event_repeats_is_not_read_again() -> None:
    events = SingleEvents(settings())
    first, second = (job_of(events, query(kind, outputs=[file("/out")])) for kind in ("RUNNING", "COMPLETE"))
    assert first.lineage.outputs is second.lineage.outputs


@pytest.mark.parametrize(("options", "is_shared"), [({}, True), ({"capture_spark_plan": True}, False)])
def test_plans_are_not_remembered(options: dict[str, Any], is_shared: bool) -> None:
    plan = {"spark.logicalPlan": {"plan": [{"class": "Scan"}]}}
    job = job_of(SingleEvents(settings(**options)), query(run_facets=plan))
    assert (type(job.definition.flow_properties) is SharedObject) is is_shared
    assert ("spark.logicalPlan" in job.definition.flow_properties) is not is_shared
