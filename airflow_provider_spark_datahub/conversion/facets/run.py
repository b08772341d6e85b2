"""Facets of runs: their DataProcessInstances, and custom properties of flows and jobs (conversion
rules, 5 and 6).

Tests: ``tests/conversion/test_run_facets.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

import msgspec

from airflow_provider_spark_datahub.conversion.events import (
    Facets,
    JsonObject,
    RunEvent,
    as_object,
    as_objects,
    as_text,
    iso_instant,
    parse_time_ms,
)
from airflow_provider_spark_datahub.conversion.proposals import Proposal, audit_stamp, status
from airflow_provider_spark_datahub.conversion.redaction import redact, redact_text

KIND = "dataProcessInstance"
NOT_PARTITIONED = {"partition": "FULL_TABLE_SNAPSHOT", "type": "FULL_TABLE"}
"""The default of a time-series aspect's ``partitionSpec``, which acryl-datahub writes out."""

RunType = Literal["BATCH_SCHEDULED", "BATCH_AD_HOC", "STREAMING"]
"""DataHub's ``DataProcessType``."""

_SECOND_MS = 1_000
# The coarsest unit that an interval is a multiple of is its granularity. A month or a year has no
# length of its own.
_UNITS = (
    ("WEEK", 604_800_000),
    ("DAY", 86_400_000),
    ("HOUR", 3_600_000),
    ("MINUTE", 60_000),
    ("SECOND", _SECOND_MS),
)


class DataInterval(msgspec.Struct, frozen=True):
    """Time whose data a run processes: Airflow's data interval or OpenLineage's nominal time.

    :param end_ms: the first moment after the interval, in ms since the epoch.
    """

    start_ms: int
    end_ms: int

    @property
    def granularity(self) -> dict[str, Any] | None:
        """DataHub's ``TimeWindowSize``; ``None`` if the length is zero or has a fraction of a
        second.
        """
        length = self.end_ms - self.start_ms
        for unit, unit_ms in _UNITS:
            if length > 0 and length % unit_ms == 0:
                return {"unit": unit, "multiple": length // unit_ms}
        return None


def partition_spec(interval: DataInterval | None, partitions: Sequence[str] = ()) -> dict[str, Any]:
    """Return the ``partitionSpec``: the part of the data that a run or an operation processed.

    The interval is a text in ``partition``: GMS does not index a ``timePartition``
    (``TimeseriesAspectTransformer``).

    :param partitions: the producer's names of partitions; they have priority over the interval.
    """
    if partitions:
        return {"partition": ",".join(sorted(partitions)), "type": "PARTITION"}
    if interval is None or interval.granularity is None:
        return NOT_PARTITIONED
    return {
        "partition": f"{iso_instant(interval.start_ms)}/{iso_instant(interval.end_ms)}",
        "type": "PARTITION",
    }


@dataclass(frozen=True, slots=True)
class ProcessInstance:
    """DataProcessInstance: the run of a job, a DAG, a task or a Hive session.

    :param template_urn: the flow or job that it is a run of.
    :param upstream_urns: runs that it waited for.
    """

    urn: str
    name: str
    created_ms: int | None
    properties: Mapping[str, str]
    url: str | None = None
    run_type: RunType | None = None
    template_urn: str | None = None
    parent_urn: str | None = None
    upstream_urns: Sequence[str] = ()

    def proposals(self) -> Iterator[Proposal]:
        """Yield its properties, its status and its relationships.

        DataHub's garbage collection deletes runs softly: without the status, a cleared task's run
        would stay hidden.
        """
        aspect: dict[str, Any] = {"customProperties": self.properties}
        if self.url:
            aspect["externalUrl"] = self.url
        aspect["name"] = self.name
        if self.run_type:
            aspect["type"] = self.run_type
        aspect["created"] = audit_stamp(self.created_ms)
        yield Proposal(KIND, self.urn, "dataProcessInstanceProperties", aspect)
        yield status(KIND, self.urn)
        yield self.relationships()

    def relationships(self) -> Proposal:
        """Return only its relationships."""
        above = {"parentTemplate": self.template_urn, "parentInstance": self.parent_urn}
        known = {name: urn for name, urn in above.items() if urn}
        aspect = {**known, "upstreamInstances": list(self.upstream_urns)}
        return Proposal(KIND, self.urn, "dataProcessInstanceRelationships", aspect)


def run_event(
    urn: str,
    time_ms: int,
    status: Literal["STARTED", "COMPLETE"],
    *,
    result: Mapping[str, str] | None = None,
    interval: DataInterval | None = None,
    partitions: Sequence[str] = (),
    kind: str | None = None,
    **more: Any,
) -> Proposal:
    """Return a run event of a DataProcessInstance.

    GMS keeps one per run, time, granularity, partition and message id. The message id keeps apart a
    start and an end, or two attempts, in the same millisecond, and makes a replay replace the first
    delivery.

    :param kind: distinguishes run events with the same status, as the OpenLineage event type does.
    :param more: ``attempt``, ``durationMillis``, ``externalUrl``; left out if ``None``.
    """
    attempt = more.get("attempt")
    aspect: dict[str, Any] = {"timestampMillis": time_ms}
    if interval is not None and interval.granularity is not None:
        aspect["eventGranularity"] = interval.granularity
    aspect["partitionSpec"] = partition_spec(interval, partitions)
    aspect["messageId"] = (kind or status) if attempt is None else f"{kind or status} {attempt}"
    aspect["status"] = status
    if result is not None:
        aspect["result"] = result
    aspect |= {key: value for key, value in more.items() if value is not None}
    return Proposal(KIND, urn, "dataProcessInstanceRunEvent", aspect)


_AIRFLOW_RUN_TYPES: dict[str, RunType] = {
    **dict.fromkeys(("manual", "operator_triggered"), "BATCH_AD_HOC"),
    **dict.fromkeys(
        ("scheduled", "backfill", "asset_triggered", "dataset_triggered"), "BATCH_SCHEDULED"
    ),
}
# Spark's pages of an application. The history server's page outlives the application, the driver's
# own does not.
_SPARK_PAGES = ("historyUrl", "proxyUrl", "uiWebUrl")
_APPLICATION_FACET = "spark_applicationDetails"
_APPLICATION_KEYS = {
    "applicationId": "appId",
    "applicationAttemptId": "attemptId",
    "userName": "sparkUser",
}
_APPLICATION_PROPERTIES = {**_APPLICATION_KEYS, "master": "master", "deployMode": "deployMode"}


@dataclass(frozen=True, slots=True)
class RunDetails:
    """Details of a run from its facets, which events share.

    :param url: page of the run in the system that ran it.
    :param attempt: the attempt's number, from 1.
    """

    url: str = ""
    run_type: RunType | None = None
    attempt: int | None = None
    interval: DataInterval | None = None
    properties: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of(event: RunEvent) -> RunDetails | None:
        """Read the details in an event's facets; ``None`` if there are none."""
        details = event.run_facets.once(_details)
        if not event.job.texts.is_streaming:
            return details
        return replace(details or NO_DETAILS, run_type="STREAMING")

    @staticmethod
    def updated(known: RunDetails | None, later: RunDetails | None) -> RunDetails | None:
        """Return the details of two events of one run; the later event has priority."""
        if known is None or later is None or known is later:
            return later or known
        return RunDetails(
            url=later.url or known.url,
            run_type=later.run_type or known.run_type,
            attempt=later.attempt or known.attempt,
            interval=later.interval or known.interval,
            properties=known.properties | later.properties,
        )

    @staticmethod
    def merged(own: RunDetails | None, others: Iterable[RunDetails | None]) -> RunDetails:
        """Return the details of an application.

        :param own: details of the application's own run. Only its attempt counts.
        :param others: details of its other runs, by priority, for the details that its own run
            lacks.
        """
        known: RunDetails | None = None
        for details in (*reversed([*others]), own):
            known = RunDetails.updated(known, details)
        return replace(known or NO_DETAILS, attempt=own.attempt if own else None)


NO_DETAILS = RunDetails()


def _details(facets: Facets) -> RunDetails | None:
    details: RunDetails | None = None
    for name, read in _READERS.items():
        if name in facets.facets:
            details = RunDetails.updated(details, read(facets[name]))
    if details is not None and details.run_type is None and "nominalTime" in facets:
        return replace(details, run_type="BATCH_SCHEDULED")
    return details


def _nominal_time(facet: JsonObject) -> RunDetails:
    return RunDetails(
        interval=_interval(facet.get("nominalStartTime"), facet.get("nominalEndTime"))
    )


def _interval(start: object, end: object) -> DataInterval | None:
    start_ms, end_ms = parse_time_ms(start), parse_time_ms(end)
    return DataInterval(start_ms, end_ms) if start_ms is not None and end_ms is not None else None


def _spark_application(facet: JsonObject) -> RunDetails:
    url = next((url for page in _SPARK_PAGES if (url := _url(facet.get(page)))), "")
    return RunDetails(url=url, properties=_plain(facet, _APPLICATION_PROPERTIES))


def _airflow(facet: JsonObject) -> RunDetails:
    task_instance, dag_run = as_object(facet.get("taskInstance")), as_object(facet.get("dagRun"))
    attempt = task_instance.get("try_number")
    return RunDetails(
        url=_url(task_instance.get("log_url")),
        attempt=attempt if type(attempt) is int and 0 < attempt <= _MAX_INT else None,
        run_type=_AIRFLOW_RUN_TYPES.get(as_text(dag_run.get("run_type"))),
        interval=_interval(dag_run.get("data_interval_start"), dag_run.get("data_interval_end")),
    )


def _error(facet: JsonObject) -> RunDetails:
    message = as_text(facet.get("message")).strip()
    return RunDetails(properties={"errorMessage": message} if message else {})


def _tags(facet: JsonObject) -> RunDetails:
    tags = (
        (as_text(tag.get("key")).strip(), _plain(tag, {"value": "value"}))
        for tag in as_objects(facet.get("tags"))
    )
    return RunDetails(
        properties={key: redact(key, plain["value"]) for key, plain in tags if key and plain}
    )


def _plain(facet: JsonObject, names: Mapping[str, str]) -> dict[str, str]:
    """Return the texts and numbers of a facet, under our names for them."""
    values = ((name, facet.get(key)) for key, name in names.items())
    return {name: str(value) for name, value in values if isinstance(value, str | int | float)}


def _url(value: object) -> str:
    text = as_text(value).strip()
    return text if text.startswith(("http://", "https://")) else ""


# The largest ``int`` of DataHub's aspects.
_MAX_INT = 2**31 - 1
# If several facets have the same detail, the last one counts.
_READERS: dict[str, Callable[[JsonObject], RunDetails]] = {
    _APPLICATION_FACET: _spark_application,
    "spark.exception": _error,
    "errorMessage": _error,
    "tags": _tags,
    "airflowDagRun": _airflow,
    "airflow": _airflow,
    "nominalTime": _nominal_time,
}


# -- properties of flows and jobs

HIVE_SESSION = "hive_session"
_SESSION_KEYS = ("username", "clientIp", "sessionId", "creationTime")


def hive_session_properties(facet: JsonObject) -> dict[str, str]:
    """Return the custom properties of a Hive query's run and job: the facet's texts under the
    facet's own keys.

    A key that is missing, empty or not a text is skipped. User and client address are not redacted:
    the purpose of the facet is to name the owner of the session.
    """
    return {
        key: redact_text(text) for key in _SESSION_KEYS if (text := as_text(facet.get(key)).strip())
    }


class _Layer(dict[str, str]):
    """Properties of one facet, which never change. As a key, a layer equals only itself."""

    __slots__ = ()
    __hash__ = object.__hash__  # type: ignore[assignment]


class PropertyLayers(msgspec.Struct, frozen=True, gc=False):
    """Properties of a job and of its flow, one layer per facet. If two layers have the same key,
    the later one counts.

    Facets with the same text are the same layer object, so most queries of an application have
    equal layers.
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
        """Merge the properties of events, sorted by key; for each key, the first event that has it
        counts.

        :param events: the layers of each event, in the order of the events.
        :returns: the properties of the job and those of the flow.
        """
        return _merged_layers([layers.job for layers in events]), _merged_layers(
            [layers.flow for layers in events]
        )


def _merged_layers(events: Sequence[Sequence[Mapping[str, str]]]) -> dict[str, str]:
    """Merge the layers of events, sorted by key; for each key, the last layer of the first event
    that has it counts.
    """
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
    return lambda facet, _: {
        name: _text(facet[key]) for key, name in names.items() if facet.get(key) is not None
    }


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
    """Return the leaves under their own keys, without the keys above them, as the Java listener
    does; the last wins.
    """
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
        return {
            key: _without_nulls(item, depth + 1) for key, item in value.items() if item is not None
        }
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
        return (
            "{" + ", ".join(f"{key}={_text(item, depth + 1)}" for key, item in value.items()) + "}"
        )
    return "null" if value is None else str(value)
