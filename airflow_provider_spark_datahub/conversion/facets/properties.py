"""Custom properties of flows and jobs, and tags of flows, from an event's facets (conversion rules, section 5).

Tests: ``tests/conversion/test_run_facets.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from airflow_provider_spark_datahub.conversion.events import (
    Facets,
    JsonObject,
    RunEvent,
    as_object,
    as_objects,
    as_text,
)
from airflow_provider_spark_datahub.conversion.redaction import redact, redact_text

HIVE_SESSION = "hive_session"
_KEYS = ("username", "clientIp", "sessionId", "creationTime")


def hive_session_properties(facet: JsonObject) -> dict[str, str]:
    """Return the custom properties of a Hive query's run and job: the facet's texts under the facet's own keys.

    A key that is missing, empty or not a text is skipped. User and client address are not redacted: the purpose of
    the facet is to name the owner of the session.
    """
    return {key: redact_text(text) for key in _KEYS if (text := as_text(facet.get(key)).strip())}


_APPLICATION_KEYS = {"applicationId": "appId", "userName": "sparkUser", "applicationAttemptId": "attemptId"}
_APPLICATION_FACET = "spark_applicationDetails"


class _Layer(dict[str, str]):
    """Properties of one facet, which never change. As a key, a layer equals only itself."""

    __slots__ = ()
    __hash__ = object.__hash__  # type: ignore[assignment]


class PropertyLayers(msgspec.Struct, frozen=True, gc=False):
    """Properties of a job and of its flow, one layer per facet. If two layers have the same key, the later one counts.

    Facets with the same text are the same layer object, so most queries of an application have equal layers.
    """

    job: tuple[_Layer, ...]
    flow: tuple[_Layer, ...]

    @staticmethod
    def of(event: RunEvent, *, spark_plan: bool = False) -> PropertyLayers:
        """Read the properties of an event's job, and of its flow with the application's metadata.

        :param spark_plan: keep the ``spark.logicalPlan`` facet as JSON text, on the flow.
        """
        return event.run_facets.once(_layers_with_plan if spark_plan else _layers)

    @staticmethod
    def merged(events: Sequence[PropertyLayers]) -> tuple[dict[str, str], dict[str, str]]:
        """Merge the properties of events, sorted by key; for each key, the first event that has it counts.

        :param events: the layers of each event, in the order of the events.
        :returns: the properties of the job and those of the flow.
        """
        return merged_layers([layers.job for layers in events]), merged_layers([layers.flow for layers in events])


def merged_layers(events: Sequence[Sequence[Mapping[str, str]]]) -> dict[str, str]:
    """Merge the layers of events, sorted by key; for each key, the last layer of the first event that has it counts."""
    merged: dict[str, str] = {}
    for layers in reversed(events):
        for layer in layers:
            merged.update(layer)
    return dict(sorted(merged.items()))


def _layers(facets: Facets) -> PropertyLayers:
    pattern = _redaction_pattern(facets)
    shared = [_layer(name, facets.text(name), pattern) for name in _SHARED if name in facets]
    job, flow = list(shared), list(shared)
    if "airflow" in facets:
        job.append(_Layer(_flattened(as_object(facets["airflow"].get("task")), pattern)))
        flow.append(_Layer(_flattened(as_object(facets["airflow"].get("dag")), pattern)))
    if "unknownSourceAttribute" in facets:
        items = as_objects(facets["unknownSourceAttribute"].get("unknownItems"))
        job += [_Layer(_flattened(item, pattern)) for item in items]
    if HIVE_SESSION in facets:
        job.append(_Layer(hive_session_properties(facets[HIVE_SESSION])))
    if _APPLICATION_FACET in facets:
        flow.append(_layer(_APPLICATION_FACET, facets.text(_APPLICATION_FACET), pattern))
    return PropertyLayers(tuple(job), tuple(flow))


def _layers_with_plan(facets: Facets) -> PropertyLayers:
    layers = facets.once(_layers)
    plan = _without_nulls(_content(facets["spark.logicalPlan"] or facets["spark_logicalPlan"]))
    if not plan:
        return layers
    text = json.dumps(plan, ensure_ascii=False, separators=(",", ":"))
    return PropertyLayers(layers.job, (*layers.flow, _Layer({"spark.logicalPlan": text})))


@lru_cache(maxsize=512)
def _layer(name: str, facet: bytes, pattern: str) -> _Layer:
    return _Layer(_LAYERS[name](as_object(facet), pattern))


def _named(*keys: str, **names: str) -> Callable[[JsonObject, str], dict[str, str]]:
    """Return a reader of the values of these keys.

    :param names: names of properties by their keys, if they differ.
    """
    names = {key: key for key in keys} | names
    return lambda facet, _: {name: _text(facet[key]) for key, name in names.items() if facet.get(key) is not None}


def _spark_properties(facet: JsonObject, pattern: str) -> dict[str, str]:
    return _flattened(as_object(facet.get("properties")), pattern)


def _application(facet: JsonObject, pattern: str) -> dict[str, str]:
    return {
        _APPLICATION_KEYS.get(key, key): redact(key, _text(value), pattern)
        for key, value in _content(facet).items()
        if value is not None
    }


# Facets that both the flow and the job show, in this order.
_SHARED = ("processing_engine", "spark_version", "spark_jobDetails", "spark_properties")
# Readers by run facet. They get the facet and the job's own redaction pattern.
_LAYERS: dict[str, Callable[[JsonObject, str], dict[str, str]]] = {
    "processing_engine": _named(
        "openlineageAdapterVersion", name="processingEngine", version="processingEngineVersion"
    ),
    "spark_version": _named("spark-version", "openlineage-spark-version"),
    "spark_jobDetails": _named("jobId", "jobDescription", "jobGroup", "jobCallSite"),
    "spark_properties": _spark_properties,
    _APPLICATION_FACET: _application,
}


def _content(facet: JsonObject) -> dict[str, Any]:
    """Return a facet without the spec's own keys."""
    return {key: value for key, value in facet.items() if key not in ("_producer", "_schemaURL")}


def _redaction_pattern(run_facets: Facets) -> str:
    properties = as_object(run_facets["spark_properties"].get("properties"))
    return as_text(properties.get("spark.redaction.regex"))


# Nobody reads a property that is nested deeper, and it could be as deep as Python's stack.
_MAX_DEPTH = 50


def _flattened(properties: Mapping[str, Any], pattern: str, depth: int = 0) -> dict[str, str]:
    """Return the leaves under their own keys, without the keys above them, as the Java listener does; the last wins."""
    leaves: dict[str, str] = {}
    for key, value in properties.items():
        if isinstance(value, dict):
            leaves.update(_flattened(value, pattern, depth + 1) if depth < _MAX_DEPTH else {})
        elif value is not None:
            leaves[key] = redact(key, _text(value), pattern)
    return leaves


def _without_nulls(value: Any, depth: int = 0) -> Any:
    if depth > _MAX_DEPTH:
        return _ELLIPSIS
    if isinstance(value, dict):
        return {key: _without_nulls(item, depth + 1) for key, item in value.items() if item is not None}
    return [_without_nulls(item, depth + 1) for item in value] if isinstance(value, list) else value


_ELLIPSIS = "…"


def _text(value: object, depth: int = 0) -> str:
    """Return a JSON value as Java's ``toString`` prints it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if depth > _MAX_DEPTH:
        return _ELLIPSIS
    if isinstance(value, list):
        return f"[{', '.join(_text(item, depth + 1) for item in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={_text(item, depth + 1)}" for key, item in value.items()) + "}"
    return "null" if value is None else str(value)
