"""OpenLineage run events as typed values, read tolerantly from JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

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
    """A dataset of an event with its facets.

    :param output_facets: what the run did to it (``outputFacets``), undecoded where it came as text.
    """

    id: DatasetId
    facets: JsonObject
    output_facets: object = None


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One OpenLineage run event (OpenLineage spec 2-0-2, ``RunEvent``).

    :param type: upper case; empty where the producer sent none.
    :param time_ms: ``eventTime`` in ms since the epoch; ``None`` where it is missing or unreadable.
    :param run_id: the run's id as sent, lower case.
    :param job_type: ``APPLICATION``, ``SQL_JOB``, ``RDD_JOB`` … (``jobType`` job facet), or empty.
    :param parent_run_id: of the ``parent`` run facet, lower case, or empty.
    :param sql: the statement of the ``sql`` job facet, or empty.
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

    job_type: str
    parent_run_id: str
    sql: str


def as_object(value: object) -> JsonObject:
    """The value where it is a JSON object, else an empty one: producers send ``null`` where the spec says object.

    A facet is decoded when it is first asked for. What cannot be decoded counts as not there.
    """
    if type(value) is dict:
        return value
    if type(value) is Raw:
        text = bytes(value)
        return _decoded_often(text) if len(text) <= _OFTEN_DECODED_BYTES else _decoded(text)
    return value if isinstance(value, dict) else _NO_OBJECT


def _decoded(text: bytes) -> JsonObject:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return _NO_OBJECT
    return value if type(value) is dict else _NO_OBJECT


# An application repeats its small facets, byte by byte, in every event. Nobody changes what was decoded.
_OFTEN_DECODED_BYTES = 2048
_decoded_often = lru_cache(maxsize=1024)(_decoded)


def as_objects(value: object) -> Iterator[JsonObject]:
    """The objects of a JSON array; whatever else it holds is passed over."""
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def as_text(value: object) -> str:
    """The value where it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


class _WireDataset(msgspec.Struct, gc=False, rename="camel"):
    namespace: str = ""
    name: str = ""
    facets: dict[str, Raw] = {}
    output_facets: Raw = Raw(b"null")


class _WireRun(msgspec.Struct, gc=False, rename="camel"):
    run_id: str
    facets: dict[str, Raw] = {}


class _WireJob(msgspec.Struct, gc=False):
    name: str
    namespace: str = ""
    facets: dict[str, Raw] = {}


class _WireEvent(msgspec.Struct, gc=False, rename="camel"):
    run: _WireRun
    job: _WireJob
    event_type: str = ""
    event_time: str = ""
    producer: str = ""
    inputs: list[_WireDataset] = []
    outputs: list[_WireDataset] = []


_decode_event = msgspec.json.Decoder(_WireEvent).decode


def parse_run_event(event: object) -> RunEvent:
    """Read one event: its JSON text in UTF-8, or what that decodes to.

    From text, facets are only decoded when they are asked for, which most never are.

    :raises EventError: where it is no run event, or has no run id or no job name.
    """
    if isinstance(event, bytes | bytearray):
        try:
            return _of_wire(_decode_event(event))
        except (msgspec.MsgspecError, RecursionError):
            # A null or a number where the spec says otherwise costs only itself: read without expecting types.
            event = _decoded_whole(event)
    return _of_object(event)


def _decoded_whole(text: bytes | bytearray) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise EventError(f"no JSON: {error}") from error


def _of_wire(wire: _WireEvent) -> RunEvent:
    return _checked(
        wire.event_type,
        wire.event_time,
        wire.producer,
        (wire.run.run_id, wire.run.facets),
        (wire.job.namespace, wire.job.name, wire.job.facets),
        tuple(EventDataset(DatasetId(one.namespace, one.name), one.facets) for one in wire.inputs),
        tuple(EventDataset(DatasetId(one.namespace, one.name), one.facets, one.output_facets) for one in wire.outputs),
    )


def _of_object(obj: object) -> RunEvent:
    if not isinstance(obj, dict):
        raise EventError(f"not a JSON object but {type(obj).__name__}")
    run, job = as_object(obj.get("run")), as_object(obj.get("job"))
    if not run:
        raise EventError("not a run event: no run (a dataset event or a job event carries no lineage of a run)")
    return _checked(
        as_text(obj.get("eventType")),
        as_text(obj.get("eventTime")),
        as_text(obj.get("producer")),
        (as_text(run.get("runId")), as_object(run.get("facets"))),
        (as_text(job.get("namespace")), as_text(job.get("name")), as_object(job.get("facets"))),
        tuple(_datasets(obj.get("inputs"))),
        tuple(_datasets(obj.get("outputs"))),
    )


def _checked(
    event_type: str,
    event_time: str,
    producer: str,
    run: tuple[str, JsonObject],
    job: tuple[str, str, JsonObject],
    inputs: tuple[EventDataset, ...],
    outputs: tuple[EventDataset, ...],
) -> RunEvent:
    run_id, job_name = run[0].strip().lower(), job[1]
    if not run_id:
        raise EventError("run.runId is missing")
    if not job_name.strip("."):
        raise EventError(f"job.name is {job_name!r}: no flow can be named after it")
    return RunEvent(
        type=event_type.upper(),
        time_ms=parse_time_ms(event_time),
        producer=producer,
        run_id=run_id,
        run_facets=run[1],
        job_namespace=job[0],
        job_name=job_name,
        job_facets=job[2],
        inputs=tuple(one for one in inputs if one.id != _NAMELESS),
        outputs=tuple(one for one in outputs if one.id != _NAMELESS),
        job_type=as_text(as_object(job[2].get("jobType")).get("jobType")),
        parent_run_id=as_text(as_object(as_object(run[1].get("parent")).get("run")).get("runId")).lower(),
        sql=as_text(as_object(job[2].get("sql")).get("query")),
    )


_NAMELESS = DatasetId("", "")


def _datasets(value: object) -> Iterator[EventDataset]:
    for dataset in as_objects(value):
        identity = DatasetId(as_text(dataset.get("namespace")), as_text(dataset.get("name")))
        yield EventDataset(identity, as_object(dataset.get("facets")), dataset.get("outputFacets"))


def parse_time_ms(value: object) -> int | None:
    """An ISO 8601 time in ms since the epoch (a time without zone is taken as UTC), or ``None``."""
    try:
        moment = datetime.fromisoformat(as_text(value))
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        # Overflow: in UTC it lies outside of the years 1 to 9999.
        return None
    return round(moment.timestamp() * 1000)


def iso_instant(time_ms: int) -> str:
    """A time in ms as an ISO instant, the way ``java.time.Instant`` prints it: ``2026-11-21T07:56:31.694Z``."""
    text = datetime.fromtimestamp(time_ms / 1000, tz=UTC).isoformat(timespec="milliseconds")
    return text.replace(".000+00:00", "Z").replace("+00:00", "Z")
