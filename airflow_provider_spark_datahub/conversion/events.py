"""OpenLineage run events as typed values, read tolerantly from JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Raw

T = TypeVar("T")

TERMINAL_TYPES = frozenset({"COMPLETE", "FAIL", "ABORT"})
FAILED_TYPES = frozenset({"FAIL", "ABORT"})

NOT_DECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding text raises; the middle one: bytes that are no UTF-8."""

JsonObject = Mapping[str, Any]
_NO_OBJECT: JsonObject = {}


class EventError(ValueError):
    """A run event that cannot be converted; the message says which part of it and why."""


class DatasetId(NamedTuple):
    """How OpenLineage names a dataset."""

    namespace: str
    name: str


class Facets(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The facets of a run, a job or a dataset, by name.

    Each is decoded when it is first asked for, which most never are. What a rule made of them is kept with them:
    events repeat their facets byte by byte, and equal texts are the same object.

    :param facets: by name, undecoded where they came as text.
    """

    facets: JsonObject = _NO_OBJECT
    made: dict[object, Any] = {}

    def __contains__(self, name: str) -> bool:
        return name in self.facets

    def __getitem__(self, name: str) -> JsonObject:
        """The facet, decoded; empty where there is none, or what is there is no object."""
        return as_object(self.facets.get(name))

    def kept(self, name: str) -> JsonObject | bytes:
        """The facet for :func:`as_object` to decode later, without the text of the event around it."""
        facet = self.facets.get(name)
        return bytes(facet) if type(facet) is Raw else as_object(facet)

    def once(self, rule: Callable[[Facets], T]) -> T:
        """What a rule makes of them, made once.

        :param rule: a function of nothing but the facets.
        """
        try:
            made: T = self.made[rule]
        except KeyError:
            made = self.made[rule] = rule(self)
        return made


class EventDataset(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A dataset of an event with its facets.

    :param output_facets: what the run did to it (``outputFacets``), undecoded where it came as text.
    :param input_facets: what it found in it (``inputFacets``), likewise.
    """

    id: DatasetId
    facets: Facets
    output_facets: object = None
    input_facets: object = None


class RunEvent(msgspec.Struct, frozen=True, eq=False, gc=False):
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
    run_facets: Facets
    job_namespace: str
    job_name: str
    job_facets: Facets
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
    if type(value) is Raw or type(value) is bytes:
        text = bytes(value)
        return _decoded_often(text) if len(text) <= _OFTEN_DECODED_BYTES else _decoded(text)
    return value if isinstance(value, dict) else _NO_OBJECT


def _decoded(text: bytes) -> JsonObject:
    try:
        value = _decoded_whole(text)
    except EventError:
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


class _Job(msgspec.Struct, frozen=True, eq=False, gc=False):
    name: str
    namespace: str
    facets: Facets


class _WireRun(msgspec.Struct, gc=False, rename="camel"):
    run_id: str
    facets: Raw = Raw(b"{}")


class _WireJob(msgspec.Struct, gc=False):
    name: str
    namespace: str = ""
    facets: dict[str, Raw] = {}


class _WireDataset(msgspec.Struct, gc=False, rename="camel"):
    namespace: str = ""
    name: str = ""
    facets: Raw = Raw(b"{}")
    output_facets: Raw = Raw(b"null")
    input_facets: Raw = Raw(b"null")


class _WireEvent(msgspec.Struct, gc=False, rename="camel"):
    run: _WireRun
    job: Raw
    event_type: str = ""
    event_time: str = ""
    producer: str = ""
    inputs: Raw = Raw(b"[]")
    outputs: Raw = Raw(b"[]")


_decode_event = msgspec.json.Decoder(_WireEvent).decode
_decode_job = msgspec.json.Decoder(_WireJob).decode
_decode_facets = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_datasets = msgspec.json.Decoder(list[_WireDataset]).decode

_LONG_BYTES = 16 * 1024


def _read_once(read: Callable[[bytes], T]) -> Callable[[Raw], T]:
    """A reader that remembers what it read of the last texts: the events of a run repeat their parts byte by byte.

    Of long texts (a table may have hundreds of columns) it remembers few.
    """
    read_short, read_long = lru_cache(maxsize=512)(read), lru_cache(maxsize=8)(read)

    def read_again(part: Raw) -> T:
        text = bytes(part)
        return read_short(text) if len(text) <= _LONG_BYTES else read_long(text)

    return read_again


@_read_once
def _facets(text: bytes) -> Facets:
    return Facets(_decode_facets(text))


@_read_once
def _job(text: bytes) -> _Job:
    job = _decode_job(text)
    return _Job(job.name, job.namespace, Facets(job.facets))


@_read_once
def _datasets(text: bytes) -> tuple[EventDataset, ...]:
    return tuple(
        EventDataset(dataset_id(one.namespace, one.name), _facets(one.facets), one.output_facets, one.input_facets)
        for one in _decode_datasets(text)
        if one.namespace or one.name
    )


dataset_id = lru_cache(maxsize=1024)(DatasetId)
"""The same object for the same names, mostly."""


def parse_run_event(event: object) -> RunEvent:
    """Read one event: its JSON text in UTF-8, or what that decodes to.

    From text, facets are only decoded when they are asked for, which most never are.

    :raises EventError: where it is no run event, or has no run id or no job name.
    """
    if isinstance(event, bytes | bytearray):
        try:
            return _of_text(event)
        except NOT_DECODABLE:
            # A null or a number where the spec says otherwise costs only itself: read without expecting types.
            event = _decoded_whole(event)
    return _of_object(event)


def _of_text(text: bytes | bytearray) -> RunEvent:
    wire = _decode_event(text)
    return _checked(
        wire.event_type,
        wire.event_time,
        wire.producer,
        (wire.run.run_id, _facets(wire.run.facets)),
        _job(wire.job),
        _datasets(wire.inputs),
        _datasets(wire.outputs),
    )


def _decoded_whole(text: bytes | bytearray) -> object:
    try:
        return msgspec.json.decode(text)
    except NOT_DECODABLE as error:
        return _decoded_with_half_characters(text, error)


def _decoded_with_half_characters(text: bytes | bytearray, error: Exception) -> object:
    r"""JSON that is right but for half of a surrogate pair (``\ud83d``): a producer cut a text amid a character."""
    if b"\\u" not in text:
        raise EventError(f"no JSON: {error}") from error
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise EventError(f"no JSON: {error}") from error


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


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
        (as_text(run.get("runId")), _facets_of_object(run)),
        _Job(as_text(job.get("name")), as_text(job.get("namespace")), _facets_of_object(job)),
        tuple(_datasets_of_objects(obj.get("inputs"))),
        tuple(_datasets_of_objects(obj.get("outputs"))),
    )


def _facets_of_object(obj: JsonObject) -> Facets:
    return Facets(as_object(obj.get("facets")))


def _datasets_of_objects(value: object) -> Iterator[EventDataset]:
    for dataset in as_objects(value):
        identity = DatasetId(as_text(dataset.get("namespace")), as_text(dataset.get("name")))
        if any(identity):
            yield EventDataset(
                identity, _facets_of_object(dataset), dataset.get("outputFacets"), dataset.get("inputFacets")
            )


def _checked(
    event_type: str,
    event_time: str,
    producer: str,
    run: tuple[str, Facets],
    job: _Job,
    inputs: tuple[EventDataset, ...],
    outputs: tuple[EventDataset, ...],
) -> RunEvent:
    run_id, run_facets = run[0].strip().lower(), run[1]
    if not run_id:
        raise EventError("run.runId is missing")
    if not job.name.strip("."):
        raise EventError(f"job.name is {job.name!r}: no flow can be named after it")
    job_type, sql = job.facets.once(_job_type_and_statement)
    return RunEvent(
        type=event_type.upper(),
        time_ms=parse_time_ms(event_time),
        producer=producer,
        run_id=run_id,
        run_facets=run_facets,
        job_namespace=job.namespace,
        job_name=job.name,
        job_facets=job.facets,
        inputs=inputs,
        outputs=outputs,
        job_type=job_type,
        parent_run_id=run_facets.once(_parent_run_id),
        sql=sql,
    )


def _job_type_and_statement(job_facets: Facets) -> tuple[str, str]:
    return as_text(job_facets["jobType"].get("jobType")), as_text(job_facets["sql"].get("query"))


def _parent_run_id(run_facets: Facets) -> str:
    return as_text(as_object(run_facets["parent"].get("run")).get("runId")).strip().lower()


def parse_time_ms(value: object) -> int | None:
    """An ISO 8601 time in ms since the epoch (a time without zone is taken as UTC), or ``None``."""
    try:
        moment = datetime.fromisoformat(as_text(value))
        if moment.tzinfo is not UTC:
            moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        # Overflow: in UTC it lies outside of the years 1 to 9999.
        return None
    return round(moment.timestamp() * 1000)


def iso_instant(time_ms: int) -> str:
    """A time in ms as an ISO instant, the way ``java.time.Instant`` prints it: ``2026-11-21T07:56:31.694Z``."""
    text = datetime.fromtimestamp(time_ms / 1000, tz=UTC).isoformat(timespec="milliseconds")
    return text.replace(".000+00:00", "Z").replace("+00:00", "Z")
