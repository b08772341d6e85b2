"""Custom properties, tags, owners and description that an event's facets carry (conversion rules, sections 1 and 5)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from airflow_provider_spark_datahub.conversion.events import JsonObject, RunEvent, as_object, as_objects, as_text
from airflow_provider_spark_datahub.conversion.hive_session_facet import FACET as HIVE_SESSION
from airflow_provider_spark_datahub.conversion.hive_session_facet import hive_session_properties
from airflow_provider_spark_datahub.conversion.redaction import redact, redact_text

_ENGINE_KEYS = {
    "name": "processingEngine",
    "version": "processingEngineVersion",
    "openlineageAdapterVersion": "openlineageAdapterVersion",
}
_APPLICATION_KEYS = {"applicationId": "appId", "userName": "sparkUser", "applicationAttemptId": "attemptId"}
_APPLICATION_FACET = "spark_applicationDetails"


def job_and_flow_properties(event: RunEvent, *, spark_plan: bool = False) -> tuple[dict[str, str], dict[str, str]]:
    """Properties of the job that the event describes, and of its flow, with the application's metadata.

    :param spark_plan: keep the ``spark.logicalPlan`` facet as JSON text, on the flow.
    """
    facets = event.run_facets
    job: dict[str, str] = {}
    for name, read in _SHARED.items():
        if name in facets:
            job.update(read(as_object(facets[name])))
    flow = dict(job)
    if "airflow" in facets:
        airflow, pattern = as_object(facets["airflow"]), _redaction_pattern(event)
        job.update(_flattened(as_object(airflow.get("task")), pattern))
        flow.update(_flattened(as_object(airflow.get("dag")), pattern))
    if "unknownSourceAttribute" in facets:
        for item in as_objects(as_object(facets["unknownSourceAttribute"]).get("unknownItems")):
            job.update(_flattened(item, _redaction_pattern(event)))
    if HIVE_SESSION in facets:
        job.update(hive_session_properties(as_object(facets[HIVE_SESSION])))
    if _APPLICATION_FACET in facets:
        flow.update(_application(as_object(facets[_APPLICATION_FACET]), _redaction_pattern(event)))
    if spark_plan and "spark.logicalPlan" in facets:
        plan = _without_nulls(_content(as_object(facets["spark.logicalPlan"])))
        if plan:
            flow["spark.logicalPlan"] = redact_text(json.dumps(plan, ensure_ascii=False, separators=(",", ":")))
    return job, flow


def _engine(facet: JsonObject) -> dict[str, str]:
    return {name: _text(facet[key]) for key, name in _ENGINE_KEYS.items() if facet.get(key) is not None}


def _versions(facet: JsonObject) -> dict[str, str]:
    keys = ("spark-version", "openlineage-spark-version")
    return {key: _text(facet[key]) for key in keys if facet.get(key) is not None}


def _job_details(facet: JsonObject) -> dict[str, str]:
    keys = ("jobId", "jobDescription", "jobGroup", "jobCallSite")
    return {key: redact_text(_text(facet[key])) for key in keys if facet.get(key) is not None}


def _spark_properties(facet: JsonObject) -> dict[str, str]:
    properties = as_object(facet.get("properties"))
    return _flattened(properties, as_text(properties.get("spark.redaction.regex")))


def _application(facet: JsonObject, pattern: str) -> dict[str, str]:
    return {
        _APPLICATION_KEYS.get(key, key): redact(key, _text(value), pattern)
        for key, value in _content(facet).items()
        if value is not None
    }


# What the flow and the job both show, by run facet.
_SHARED: dict[str, Callable[[JsonObject], dict[str, str]]] = {
    "processing_engine": _engine,
    "spark_version": _versions,
    "spark_jobDetails": _job_details,
    "spark_properties": _spark_properties,
}


def description(event: RunEvent) -> str | None:
    """The ``documentation`` job facet's text."""
    return as_text(as_object(event.job_facets.get("documentation")).get("description")) or None


def owner_names(event: RunEvent) -> list[str]:
    """Who the ``ownership`` job facet names."""
    owners = as_objects(as_object(event.job_facets.get("ownership")).get("owners"))
    return [name for owner in owners if (name := as_text(owner.get("name")).strip())]


def airflow_tags(event: RunEvent) -> list[str] | None:
    """The tags of an Airflow event's DAG: a list, or the text of a Python list; ``None`` where there are none."""
    tags: Any = as_object(_facet(event, "airflow").get("dag")).get("tags")
    if isinstance(tags, str):
        try:
            tags = json.loads(tags.replace("'", '"'))
        except ValueError:
            return None
    return [tag for tag in tags if isinstance(tag, str) and tag] if isinstance(tags, list) else None


def _facet(event: RunEvent, name: str) -> JsonObject:
    return as_object(event.run_facets.get(name))


def _content(facet: JsonObject) -> dict[str, Any]:
    """A facet without the spec's own keys."""
    return {key: value for key, value in facet.items() if key not in ("_producer", "_schemaURL")}


def _redaction_pattern(event: RunEvent) -> str:
    """The job's own ``spark.redaction.regex``."""
    properties = as_object(_facet(event, "spark_properties").get("properties"))
    return as_text(properties.get("spark.redaction.regex"))


def _flattened(properties: Mapping[str, Any], pattern: str) -> dict[str, str]:
    """Leaves by their own key, without the keys above them, as the Java listener has it; the later one wins."""
    found: dict[str, str] = {}
    for key, value in properties.items():
        if isinstance(value, dict):
            found.update(_flattened(value, pattern))
        elif value is not None:
            found[key] = redact(key, _text(value), pattern)
    return found


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _text(value: object) -> str:
    """A JSON value as the text that Java's ``toString`` gives it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(_text(item) for item in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={_text(item)}" for key, item in value.items()) + "}"
    return "null" if value is None else str(value)
