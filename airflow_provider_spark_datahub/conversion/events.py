"""OpenLineage run events as typed values, read tolerantly from JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

TERMINAL_TYPES = frozenset({"COMPLETE", "FAIL", "ABORT"})
FAILED_TYPES = frozenset({"FAIL", "ABORT"})

JsonObject = Mapping[str, Any]
_NO_OBJECT: JsonObject = {}


class EventError(ValueError):
    """A run event that cannot be converted; the message says which part of it and why."""


class DatasetId(NamedTuple):
    """How OpenLineage names a dataset."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class EventDataset:
    """A dataset of an event with its facets."""

    id: DatasetId
    facets: JsonObject


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One OpenLineage run event (OpenLineage spec 2-0-2, ``RunEvent``).

    :param type: upper case; empty where the producer sent none.
    :param time_ms: ``eventTime`` in ms since the epoch; ``None`` where it is missing or unreadable.
    :param run_id: the run's id as sent, lower case.
    """

    type: str
    time_ms: int | None
    producer: str
    run_id: str
    run_facets: JsonObject
    job_namespace: str
    job_name: str
    job_facets: JsonObject
    inputs: tuple[EventDataset, ...]
    outputs: tuple[EventDataset, ...]

    @property
    def job_type(self) -> str:
        """``APPLICATION``, ``SQL_JOB``, ``RDD_JOB`` … (``jobType`` job facet), or empty."""
        return as_text(as_object(self.job_facets.get("jobType")).get("jobType"))

    @property
    def parent_run_id(self) -> str:
        """The run id of the ``parent`` run facet, or empty."""
        return as_text(as_object(as_object(self.run_facets.get("parent")).get("run")).get("runId")).lower()

    @property
    def sql(self) -> str:
        """The statement of the ``sql`` job facet, or empty."""
        return as_text(as_object(self.job_facets.get("sql")).get("query"))


def as_object(value: object) -> JsonObject:
    """The value where it is a JSON object, else an empty one: producers send ``null`` where the spec says object."""
    return value if isinstance(value, dict) else _NO_OBJECT


def as_objects(value: object) -> Iterator[JsonObject]:
    """The objects of a JSON array; whatever else it holds is passed over."""
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def as_text(value: object) -> str:
    """The value where it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def parse_run_event(obj: object) -> RunEvent:
    """Read one decoded event.

    :raises EventError: where it is no run event, or has no run id or no job name.
    """
    if not isinstance(obj, dict):
        raise EventError(f"not a JSON object but {type(obj).__name__}")
    run, job = as_object(obj.get("run")), as_object(obj.get("job"))
    if not run:
        raise EventError("not a run event: no run (a dataset event or a job event carries no lineage of a run)")
    run_id, job_name = as_text(run.get("runId")).strip().lower(), as_text(job.get("name"))
    if not run_id:
        raise EventError("run.runId is missing")
    if not job_name.strip("."):
        raise EventError(f"job.name is {job_name!r}: no flow can be named after it")
    return RunEvent(
        type=as_text(obj.get("eventType")).upper(),
        time_ms=parse_time_ms(obj.get("eventTime")),
        producer=as_text(obj.get("producer")),
        run_id=run_id,
        run_facets=as_object(run.get("facets")),
        job_namespace=as_text(job.get("namespace")),
        job_name=job_name,
        job_facets=as_object(job.get("facets")),
        inputs=tuple(_datasets(obj.get("inputs"))),
        outputs=tuple(_datasets(obj.get("outputs"))),
    )


def _datasets(value: object) -> Iterator[EventDataset]:
    for dataset in as_objects(value):
        identity = DatasetId(as_text(dataset.get("namespace")), as_text(dataset.get("name")))
        if identity.namespace or identity.name:
            yield EventDataset(identity, as_object(dataset.get("facets")))


def parse_time_ms(value: object) -> int | None:
    """An ISO 8601 time in ms since the epoch (a time without zone is taken as UTC), or ``None``."""
    try:
        moment = datetime.fromisoformat(as_text(value))
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def iso_instant(time_ms: int) -> str:
    """A time in ms as an ISO instant, the way ``java.time.Instant`` prints it: ``2026-11-21T07:56:31.694Z``."""
    text = datetime.fromtimestamp(time_ms / 1000, tz=UTC).isoformat(timespec="milliseconds")
    return text.replace(".000+00:00", "Z").replace("+00:00", "Z")
