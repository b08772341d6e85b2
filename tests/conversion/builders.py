"""Builders of OpenLineage events, and shortcuts to the results of their conversion."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow_provider_spark_datahub.conversion import (
    Ending,
    JobLineage,
    LineageSettings,
    Proposal,
    convert_events,
)
from airflow_provider_spark_datahub.conversion.aspects import proposals_of
from airflow_provider_spark_datahub.conversion.events import RunEvent

CORPUS = Path(__file__).parents[1] / "data" / "corpus"

Json = dict[str, Any]

SPARK_PRODUCER = "https://github.com/OpenLineage/OpenLineage/tree/1.53.0/integration/spark"
APP = "01900000-0000-7000-8000-0000000000aa"
OTHER_APP = "01900000-0000-7000-8000-0000000000bb"
QUERY = "01900000-0000-7000-8000-000000000001"
OTHER_QUERY = "01900000-0000-7000-8000-000000000002"
START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z, which is second 0 of these events."""


def event(
    kind: str | None = "COMPLETE",
    *,
    run_id: str = QUERY,
    second: int = 0,
    job: str = "shop.insert",
    job_type: str | None = "SQL_JOB",
    parent: str | None = None,
    inputs: Sequence[Json] = (),
    outputs: Sequence[Json] = (),
    run_facets: Mapping[str, Any] | None = None,
    job_facets: Mapping[str, Any] | None = None,
    producer: str = SPARK_PRODUCER,
    namespace: str = "default",
) -> Json:
    """Return a run event; without a parent, it belongs to no application."""
    run: Json = {"runId": run_id, "facets": dict(run_facets or {})}
    if parent:
        run["facets"]["parent"] = {
            "run": {"runId": parent},
            "job": {"namespace": "default", "name": "shop"},
        }
    facets = dict(job_facets or {})
    if job_type:
        facets["jobType"] = {"processingType": "BATCH", "integration": "SPARK", "jobType": job_type}
    return {
        **({"eventType": kind} if kind else {}),
        "eventTime": f"2026-01-01T00:{second // 60:02d}:{second % 60:02d}Z",
        "producer": producer,
        "run": run,
        "job": {"namespace": namespace, "name": job, "facets": facets},
        "inputs": list(inputs),
        "outputs": list(outputs),
    }


def texts(events: Iterable[Json]) -> list[bytes]:
    """Return events as JSON texts."""
    return [json.dumps(one).encode() for one in events]


def application(
    kind: str, *, second: int = 0, run_id: str = APP, job: str = "shop", **more: Any
) -> Json:
    """Return an event of the application itself."""
    return event(kind, run_id=run_id, second=second, job=job, job_type="APPLICATION", **more)


def query(kind: str = "COMPLETE", *, parent: str = APP, **more: Any) -> Json:
    """Return an event of a query of the application."""
    return event(kind, parent=parent, **more)


def whole_application(*queries: Json, run_id: str = APP, **more: Any) -> list[Json]:
    """Return the events of an application that starts, runs these queries, and succeeds in second
    59.
    """
    return [
        application("START", run_id=run_id, **more),
        *queries,
        application("COMPLETE", run_id=run_id, second=59, **more),
    ]


def dataset(namespace: str, name: str, **facets: Any) -> Json:
    """Return a dataset as in an event."""
    return {"namespace": namespace, "name": name, "facets": facets}


def file(path: str, **facets: Any) -> Json:
    """Return a local file or folder."""
    return dataset("file", path, **facets)


def schema(*fields: tuple[str, str] | Json) -> Json:
    """Return a ``schema`` facet of (name, type) pairs, or of fields as they are in JSON."""
    return {
        "fields": [
            field if isinstance(field, dict) else {"name": field[0], "type": field[1]}
            for field in fields
        ]
    }


def symlink(namespace: str, name: str, kind: str = "TABLE") -> Json:
    """Return a ``symlinks`` facet with one identifier."""
    return {"identifiers": [{"namespace": namespace, "name": name, "type": kind}]}


def column(path: str, field: str, *transformations: str, **more: Any) -> Json:
    """Return a column of a local file as an input in ``columnLineage``; a transformation is
    ``TYPE:SUBTYPE``.
    """
    spelled = [
        dict(zip(("type", "subtype"), text.split(":"), strict=True)) for text in transformations
    ]
    return {"namespace": "file", "name": path, "field": field, "transformations": spelled, **more}


def column_lineage(fields: Mapping[str, Sequence[Json]], of_dataset: Sequence[Json] = ()) -> Json:
    """Return a ``columnLineage`` facet: the inputs per output column, and those of the whole
    dataset.
    """
    facet: Json = {
        "fields": {name: {"inputFields": list(inputs)} for name, inputs in fields.items()}
    }
    return {**facet, "dataset": list(of_dataset)} if of_dataset else facet


def spark_properties(**properties: Any) -> Json:
    """Return run facets with these Spark properties; ``__`` stands for a dot."""
    return {
        "spark_properties": {
            "properties": {key.replace("__", "."): value for key, value in properties.items()}
        }
    }


def parsed(**more: Any) -> RunEvent:
    """Return an :func:`event` as the converter reads it."""
    return RunEvent.parse(event(**more))


def settings(**options: Any) -> LineageSettings:
    return LineageSettings.from_mapping(options)


def jobs(
    events: Iterable[object], ending: Ending | None = None, **options: Any
) -> list[JobLineage]:
    """Return the jobs of these events; fail if an event is rejected."""
    conversion = convert_events(events, settings(**options), ending)
    if conversion.diagnostics.rejected_events:
        raise AssertionError(conversion.diagnostics.rejections)
    return conversion.jobs


def only_job(events: Iterable[object], ending: Ending | None = None, **options: Any) -> JobLineage:
    (job,) = jobs(events, ending, **options)
    return job


def proposals(job: JobLineage, **options: Any) -> list[Proposal]:
    return proposals_of(job, settings(**options))


def find(found: Iterable[Proposal], aspect_name: str, entity_type: str | None = None) -> Proposal:
    """Return the only proposal of this aspect."""
    (proposal,) = find_all(found, aspect_name, entity_type)
    return proposal


def of_outputs(found: Iterable[Proposal], aspect_name: str) -> list[Proposal]:
    """Return the proposals of this aspect of outputs' DataJobs."""
    listed = list(found)
    urns = {
        proposal.entity_urn
        for proposal in find_all(listed, "dataJobInfo")
        if "applicationJob" in proposal.aspect["customProperties"]
    }
    return [proposal for proposal in find_all(listed, aspect_name) if proposal.entity_urn in urns]


def of_application(found: Iterable[Proposal], aspect_name: str) -> Proposal:
    """Return the only proposal of this aspect of an application's DataJob."""
    listed = list(found)
    other = of_outputs(listed, aspect_name)
    (proposal,) = (
        proposal for proposal in find_all(listed, aspect_name, "dataJob") if proposal not in other
    )
    return proposal


def find_all(
    found: Iterable[Proposal], aspect_name: str, entity_type: str | None = None
) -> list[Proposal]:
    return [
        proposal
        for proposal in found
        if proposal.aspect_name == aspect_name and entity_type in (None, proposal.entity_type)
    ]


def urn(platform: str, name: str, env: str = "PROD") -> str:
    """Return a dataset's URN, spelled by hand."""
    return f"urn:li:dataset:(urn:li:dataPlatform:{platform},{name},{env})"


def file_urns(*paths: str) -> list[str]:
    return sorted(urn("file", path) for path in paths)


def corpus_events(case: str) -> list[Json]:
    """Return the recorded events of a real job."""
    return json_lines(CORPUS / "events" / f"{case}.ndjson")


def json_lines(path: Path) -> list[Json]:
    return [
        json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()
    ]
