"""What an event's facets tell of its run beside lineage: where it is shown, what it is for, why it failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from msgspec import Raw

from airflow_provider_spark_datahub.conversion.events import (
    Facets,
    JsonObject,
    RunEvent,
    as_object,
    as_objects,
    as_text,
    parse_time_ms,
)
from airflow_provider_spark_datahub.conversion.redaction import redact, redact_text, redact_url
from airflow_provider_spark_datahub.conversion.run_aspects import DataInterval, RunType

_AIRFLOW_RUN_TYPES: dict[str, RunType] = {
    **dict.fromkeys(("manual", "operator_triggered"), "BATCH_AD_HOC"),
    **dict.fromkeys(("scheduled", "backfill", "asset_triggered", "dataset_triggered"), "BATCH_SCHEDULED"),
}
_SPARK_APPLICATION = "spark_applicationDetails"
# Spark's pages of an application: the history server's outlives it, the driver's own is gone with it.
_SPARK_PAGES = ("historyUrl", "proxyUrl", "uiWebUrl")
_APPLICATION_PROPERTIES = {
    "applicationId": "appId",
    "applicationAttemptId": "attemptId",
    "userName": "sparkUser",
    "master": "master",
    "deployMode": "deployMode",
}


@dataclass(slots=True)
class RunDetails:
    """What facets tell of a run. Events share what their facets have in common: not to be changed once it is read.

    :param url: of its page in the system that ran it.
    :param attempt: which try it is, from 1.
    :param upstream_runs: ids of the runs that it waited for.
    """

    url: str = ""
    run_type: RunType | None = None
    attempt: int | None = None
    interval: DataInterval | None = None
    properties: dict[str, str] = field(default_factory=dict)
    upstream_runs: dict[str, None] = field(default_factory=dict)


NO_DETAILS = RunDetails()


def details_of(event: RunEvent) -> RunDetails | None:
    """What an event tells of its run; ``None`` where that is nothing."""
    details = event.run_facets.once(_details)
    if not event.job_facets.once(_is_streaming):
        return details
    return replace(details or NO_DETAILS, run_type="STREAMING")


def _is_streaming(facets: Facets) -> bool:
    return facets["jobType"].get("processingType") == "STREAMING"


def _details(facets: Facets) -> RunDetails | None:
    names = _READERS.keys() & facets.facets.keys()
    if not names:
        return None
    if names == {_SPARK_APPLICATION} and isinstance(facet := facets.kept(_SPARK_APPLICATION), bytes):
        return _of_spark_application(facet)
    details = RunDetails()
    for name, read in _READERS.items():
        if name in names:
            read(details, facets[name])
    return details


@lru_cache(maxsize=256)
def _of_spark_application(facet: bytes) -> RunDetails:
    """The queries of an application repeat it byte by byte."""
    details = RunDetails()
    _spark_application(details, as_object(Raw(facet)))
    return details


def with_later(known: RunDetails | None, told: RunDetails | None) -> RunDetails | None:
    """What two events of one run tell of it: of each part the later one's counts, where it tells it."""
    if known is None or told is None or known is told:
        return told or known
    return RunDetails(
        url=told.url or known.url,
        run_type=told.run_type or known.run_type,
        attempt=told.attempt or known.attempt,
        interval=told.interval or known.interval,
        properties=known.properties | told.properties,
        upstream_runs=known.upstream_runs | told.upstream_runs,
    )


def merged_details(own: RunDetails | None, others: Iterable[RunDetails | None]) -> RunDetails:
    """What the runs of one application tell of it.

    :param own: the application's own run's: its try and the runs that it waited for count alone.
    :param others: of each of their other parts the first that tells it counts.
    """
    merged = replace(own or NO_DETAILS)
    for one in others:
        if one is not None:
            merged.url = merged.url or one.url
            merged.run_type = merged.run_type or one.run_type
            merged.interval = merged.interval or one.interval
            merged.properties = one.properties | merged.properties
    return merged


def _nominal_time(known: RunDetails, facet: JsonObject) -> None:
    known.interval = _interval(facet.get("nominalStartTime"), facet.get("nominalEndTime")) or known.interval
    known.run_type = known.run_type or "BATCH_SCHEDULED"


def _interval(start: object, end: object) -> DataInterval | None:
    start_ms, end_ms = parse_time_ms(start), parse_time_ms(end)
    return DataInterval(start_ms, end_ms) if start_ms is not None and end_ms is not None else None


def _spark_application(known: RunDetails, facet: JsonObject) -> None:
    known.url = next((url for page in _SPARK_PAGES if (url := _url(facet.get(page)))), known.url)
    known.properties |= _plain(facet, _APPLICATION_PROPERTIES)


def _airflow(known: RunDetails, facet: JsonObject) -> None:
    task_instance, dag_run = as_object(facet.get("taskInstance")), as_object(facet.get("dagRun"))
    known.url = _url(task_instance.get("log_url")) or known.url
    attempt = task_instance.get("try_number")
    if type(attempt) is int and 0 < attempt <= _MAX_INT:
        known.attempt = attempt
    known.run_type = _AIRFLOW_RUN_TYPES.get(as_text(dag_run.get("run_type")), known.run_type)
    interval = _interval(dag_run.get("data_interval_start"), dag_run.get("data_interval_end"))
    known.interval = interval or known.interval


def _error(known: RunDetails, facet: JsonObject) -> None:
    message = as_text(facet.get("message")).strip()
    if message:
        known.properties["errorMessage"] = redact_text(message)


def _external_query(known: RunDetails, facet: JsonObject) -> None:
    known.properties |= _plain(facet, {"externalQueryId": "externalQueryId", "source": "externalQuerySource"})


def _extraction_error(known: RunDetails, facet: JsonObject) -> None:
    known.properties |= _plain(facet, {"totalTasks": "extractionTotalTasks", "failedTasks": "extractionFailedTasks"})


def _tags(known: RunDetails, facet: JsonObject) -> None:
    for tag in as_objects(facet.get("tags")):
        key = as_text(tag.get("key")).strip()
        value = _plain(tag, {"value": key})
        if key and value:
            known.properties[key] = redact(key, value[key])


def _dependencies(known: RunDetails, facet: JsonObject) -> None:
    for job in as_objects(facet.get("upstream")):
        run_id = as_text(as_object(job.get("run")).get("runId")).strip().lower()
        if run_id:
            known.upstream_runs[run_id] = None


def _plain(facet: JsonObject, names: Mapping[str, str]) -> dict[str, str]:
    """Texts and numbers by our names for them."""
    told = ((name, facet.get(key)) for key, name in names.items())
    return {name: redact_text(str(value)) for name, value in told if isinstance(value, str | int | float)}


def _url(value: object) -> str:
    text = as_text(value).strip()
    return redact_url(text) if text.startswith(("http://", "https://")) else ""


# The largest ``int`` of DataHub's aspects.
_MAX_INT = 2**31 - 1
# Where several tell the same, the later one counts.
_READERS: dict[str, Callable[[RunDetails, JsonObject], None]] = {
    _SPARK_APPLICATION: _spark_application,
    "spark.exception": _error,
    "errorMessage": _error,
    "externalQuery": _external_query,
    "extractionError": _extraction_error,
    "tags": _tags,
    "jobDependencies": _dependencies,
    "airflowDagRun": _airflow,
    "airflow": _airflow,
    "nominalTime": _nominal_time,
}
