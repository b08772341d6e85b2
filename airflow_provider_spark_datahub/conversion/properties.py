"""Custom properties, tags, owners and description that an event's facets carry (conversion rules, sections 1 and 5)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_provider_spark_datahub.conversion.events import JsonObject, RunEvent, as_object, as_objects, as_text
from airflow_provider_spark_datahub.conversion.redaction import redact, redact_text

_ENGINE_KEYS = {
    "name": "processingEngine",
    "version": "processingEngineVersion",
    "openlineageAdapterVersion": "openlineageAdapterVersion",
}
_APPLICATION_KEYS = {"applicationId": "appId", "userName": "sparkUser", "applicationAttemptId": "attemptId"}
_APPLICATION_FACET = "spark_applicationDetails"


def job_properties(event: RunEvent) -> dict[str, str]:
    """Properties of the job that the event describes."""
    found = dict(_shared(event))
    found.update(_flattened(event, as_object(_facet(event, "airflow").get("task"))))
    for item in as_objects(_facet(event, "unknownSourceAttribute").get("unknownItems")):
        found.update(_flattened(event, item))
    return found


def flow_properties(event: RunEvent, *, spark_plan: bool = False) -> dict[str, str]:
    """Properties of the flow, with the application's metadata.

    :param spark_plan: keep the ``spark.logicalPlan`` facet as JSON text.
    """
    found = dict(_shared(event))
    found.update(_flattened(event, as_object(_facet(event, "airflow").get("dag"))))
    for key, value in _content(_facet(event, _APPLICATION_FACET)).items():
        if value is not None:
            found[_APPLICATION_KEYS.get(key, key)] = redact(key, _text(value))
    if spark_plan and _facet(event, "spark.logicalPlan"):
        plan = _without_nulls(_content(_facet(event, "spark.logicalPlan")))
        found["spark.logicalPlan"] = redact_text(json.dumps(plan, ensure_ascii=False, separators=(",", ":")))
    return found


def _shared(event: RunEvent) -> Iterator[tuple[str, str]]:
    """What the flow and the job both show."""
    engine = _facet(event, "processing_engine")
    for key, name in _ENGINE_KEYS.items():
        if engine.get(key) is not None:
            yield name, _text(engine[key])
    versions = _facet(event, "spark_version")
    for key in ("spark-version", "openlineage-spark-version"):
        if versions.get(key) is not None:
            yield key, _text(versions[key])
    details = _facet(event, "spark_jobDetails")
    for key in ("jobId", "jobDescription", "jobGroup", "jobCallSite"):
        if details.get(key) is not None:
            yield key, redact_text(_text(details[key]))
    yield from _flattened(event, as_object(_facet(event, "spark_properties").get("properties"))).items()


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


def _flattened(event: RunEvent, properties: Mapping[str, Any]) -> dict[str, str]:
    """Leaves by their own key, without the keys above them, as the Java listener has it; the later one wins."""
    pattern = as_text(as_object(_facet(event, "spark_properties").get("properties")).get("spark.redaction.regex"))
    found: dict[str, str] = {}
    for key, value in properties.items():
        if isinstance(value, dict):
            found.update(_flattened(event, value))
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
