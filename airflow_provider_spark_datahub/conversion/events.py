"""OpenLineage run events as typed values.

Events are read tolerantly: a null or a wrong type costs only the value itself. From text, only the
facets that a rule asks for are decoded.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import NAMESPACE_URL, uuid5

import msgspec
from msgspec import Raw

from airflow_provider_spark_datahub.conversion.interruption import in_time
from airflow_provider_spark_datahub.conversion.redaction import (
    json_without_secrets,
    redact,
    redact_name,
    redact_text,
)
from airflow_provider_spark_datahub.foundation.text import decoded_json, encoded_json

_T = TypeVar("_T")

TERMINAL_TYPES = frozenset({"COMPLETE", "FAIL", "ABORT"})
FAILED_TYPES = frozenset({"FAIL", "ABORT"})
APPLICATION, SQL_JOB, RDD_JOB = "APPLICATION", "SQL_JOB", "RDD_JOB"
QUERY_TYPES = frozenset({SQL_JOB, RDD_JOB})
_OF_SPARK = QUERY_TYPES | {APPLICATION}

NOT_DECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The errors of decoding text: bad JSON, bad UTF-8, and values that are nested too deeply."""

JsonObject = Mapping[str, Any]
_NO_OBJECT: JsonObject = {}


class EventError(ValueError):
    """Run event that cannot be converted; the message names the part at fault and the reason."""


class DatasetId(NamedTuple):
    """OpenLineage's name of a dataset; :func:`dataset_id` makes one without secrets."""

    namespace: str
    name: str


class Facets(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Facets of a run, a job or a dataset, which are redacted and decoded when a rule asks for
    them.

    :param facets: JSON texts by the facets' names.
    :param made: decoded facets by name, and results by rule: see :meth:`once`.
    """

    facets: Mapping[str, Raw] = {}
    made: dict[object, Any] = {}

    @classmethod
    def of(cls, facets: object) -> Facets:
        """Return facets that are decoded already."""
        return cls({name: _text_of(facet) for name, facet in as_object(facets).items()})

    def __contains__(self, name: str) -> bool:
        return name in self.facets

    def __getitem__(self, name: str) -> JsonObject:
        """Return the facet, decoded; empty if it is missing or not a JSON object."""
        if name not in self.facets:
            return _NO_OBJECT
        decoded: JsonObject | None = self.made.get(name)
        if decoded is None:
            decoded = self.made[name] = _decoded(self.text(name))
        return decoded

    def text(self, name: str) -> bytes:
        """Return the facet for :func:`as_object` to decode later, without the whole event; empty if
        it is missing.
        """
        if name not in self.facets:
            return b""
        return json_without_secrets(bytes(self.facets[name]))

    def once(self, rule: Callable[[Facets], _T]) -> _T:
        """Return the result of a rule, a function of the facets alone, and compute it only once."""
        made: Any = self.made.get(rule, self)
        if made is self:
            made = self.made[rule] = rule(self)
        result: _T = made
        return result


class EventDataset(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Dataset of an event with its facets."""

    id: DatasetId
    facets: Facets
    output_facets: Facets = Facets()
    input_facets: Facets = Facets()

    @property
    def version(self) -> str:
        """The version in its ``version`` facet; empty if there is none."""
        return (
            as_text(self.facets["version"].get("datasetVersion"))
            if "version" in self.facets
            else ""
        )


SPARK_LOG = "https://spark.apache.org/docs/latest/monitoring.html"
"""The producer of events that are made from Spark's own event log."""


class _RunNames(NamedTuple):
    """Names in the facets of a run. A missing name is empty.

    :param parent_run_id: run id in the ``parent`` facet, in lower case.
    :param application: names of the Spark application and of its session.
    :param engine: name in the ``processing_engine`` facet, in lower case.
    """

    parent_run_id: str
    application: tuple[str, str]
    engine: str
    hive_session_id: str


class _JobTexts(NamedTuple):
    """Texts in the facets of a job. A missing text is empty.

    :param sql: with its secrets, which the columns that it reads depend on.
    :param is_streaming: the ``jobType`` facet marks the run as part of a streaming query.
    """

    job_type: str
    sql: str
    description: str | None
    owner_names: tuple[str, ...]
    tags: tuple[str, ...]
    is_streaming: bool


class _Job(msgspec.Struct, frozen=True, eq=False, gc=False):
    name: str
    namespace: str
    facets: Facets
    texts: _JobTexts


class RunEvent(msgspec.Struct, frozen=True, eq=False, gc=False):
    """OpenLineage run event (OpenLineage spec 2-0-2, ``RunEvent``). A missing text is empty.

    :param type: event type in upper case.
    :param time_ms: ``eventTime`` in ms since the epoch; ``None`` if it is missing or unreadable.
    :param job: the job, which the events of a run share.
    """

    type: str
    time_ms: int | None
    producer: str
    run_id: str
    run_facets: Facets
    names: _RunNames
    job: _Job
    inputs: tuple[EventDataset, ...]
    outputs: tuple[EventDataset, ...]

    @classmethod
    def parse(cls, event: object) -> RunEvent:
        """Read one event.

        :param event: its JSON text, or the decoded JSON object.
        :raises EventError: if it is not a run event, or has no run id or no job name.
        """
        return EventReader().read(event)

    def has_datasets_of(self, other: RunEvent) -> bool:
        """Return whether one reader read both events, and they end with the same job, inputs and
        outputs.
        """
        return (
            self.job is other.job and self.inputs is other.inputs and self.outputs is other.outputs
        )

    @property
    def is_of_hive(self) -> bool:
        """Return whether the event may belong to a Hive session."""
        names, job = self.names, self.job
        if (
            names.hive_session_id
            or self.producer.endswith("/integration/hive")
            or job.namespace.startswith("hive://")
        ):
            return True
        return names.engine == "hive" and job.texts.job_type not in _OF_SPARK

    @property
    def airflow_tags(self) -> list[str] | None:
        """The tags of the DAG in Airflow's own event, a list or the text of one; ``None`` if there
        are none.
        """
        return self.run_facets.once(_airflow_tags)


def _run_names(facets: Facets) -> _RunNames:
    properties = as_object(facets["spark_properties"].get("properties"))
    return _RunNames(
        parent_run_id=as_text(as_object(facets["parent"].get("run")).get("runId")).strip().lower(),
        application=(
            as_text(facets["spark_applicationDetails"].get("appName")).strip(),
            as_text(properties.get("spark.app.name")).strip(),
        ),
        engine=as_text(facets["processing_engine"].get("name")).lower(),
        hive_session_id=as_text(facets["hive_session"].get("sessionId")).strip(),
    )


def _job_texts(facets: Facets) -> _JobTexts:
    job_type, owners = facets["jobType"], as_objects(facets["ownership"].get("owners"))
    names = (as_text(owner.get("name")).strip() for owner in owners)
    return _JobTexts(
        job_type=as_text(job_type.get("jobType")),
        sql=as_text(as_object(facets.facets.get("sql")).get("query")).strip(),
        description=as_text(facets["documentation"].get("description")) or None,
        owner_names=tuple(name for name in names if name and not name.endswith(":")),
        tags=tuple(
            name for tag in as_objects(facets["tags"].get("tags")) if (name := tag_name(tag))
        ),
        is_streaming=job_type.get("processingType") == "STREAMING",
    )


def tag_name(tag: JsonObject) -> str:
    """Return ``key`` or ``key:value``; OpenLineage gives a tag without a value the value ``true``."""
    key, value = as_text(tag.get("key")).strip(), as_text(tag.get("value")).strip()
    return key if not key or value.lower() in ("", "true") else f"{key}:{redact(key, value)}"


def _airflow_tags(run_facets: Facets) -> list[str] | None:
    tags: Any = as_object(run_facets["airflow"].get("dag")).get("tags")
    if isinstance(tags, str):
        # The text of a list as Python writes it.
        try:
            tags = ast.literal_eval(tags.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    if not isinstance(tags, list):
        return None
    return [name for tag in tags if isinstance(tag, str) and (name := tag.strip())]


def as_object(value: object) -> JsonObject:
    """Return a JSON object, decoded if it is text; an empty object for any other value or bad text."""
    if type(value) is dict:
        return value
    if type(value) is Raw or type(value) is bytes:
        return _decoded(bytes(value))
    return value if isinstance(value, dict) else _NO_OBJECT


def _decoded(text: bytes) -> JsonObject:
    try:
        value = decoded_json(text)
    except ValueError:
        return _NO_OBJECT
    return value if type(value) is dict else _NO_OBJECT


def as_objects(value: object) -> Iterator[JsonObject]:
    """Yield the objects of a JSON array; skip all other values."""
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def as_text(value: object) -> str:
    """Return the value if it is a string, else an empty string."""
    return value if isinstance(value, str) else ""


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
_decode_facets = msgspec.json.Decoder(dict[str, Raw] | None).decode
_decode_datasets = msgspec.json.Decoder(list[_WireDataset]).decode

_MOST_BYTES = 4 * 1024 * 1024


class _Parts(Generic[_T]):
    """Reader of parts of events. It keeps what it has read of the last megabytes of texts."""

    def __init__(self, read: Callable[[bytes], _T]) -> None:
        self._read = read
        self._results: dict[bytes, _T] = {}
        self._bytes = 0

    def read(self, part: Raw | bytes) -> _T:
        """Return what a text says."""
        text = bytes(part)
        result = self._results.get(text)
        if result is None:
            result = self._read(text)
            self._bytes += len(text)
            if self._bytes > _MOST_BYTES:
                self._results.clear()
                self._bytes = len(text)
            self._results[text] = result
        return result


class EventReader:
    """Reader of the events of one conversion, which repeat their parts byte by byte: it reads each
    of them once.
    """

    def __init__(self) -> None:
        self._facets = _Parts(_facets)
        self._uses = _Parts(_facets)
        self._job = _Parts(_job)
        self._datasets = _Parts(partial(_datasets, self._facets, self._uses))

    def read(self, event: object) -> RunEvent:
        """Read one event, as :meth:`RunEvent.parse` does."""
        if isinstance(event, str):
            event = event.encode("utf-8", "replace")
        if isinstance(event, bytes | bytearray):
            try:
                return self._of_text(event)
            except NOT_DECODABLE:
                # A null or a wrong type must cost only the value itself: read without expecting
                # types.
                try:
                    event = decoded_json(event)
                except ValueError as error:
                    raise EventError(str(error)) from error
        return _of_object(event)

    def _of_text(self, text: bytes | bytearray) -> RunEvent:
        wire = _decode_event(text)
        run = wire.run.run_id, self._facets.read(wire.run.facets)
        job, inputs, outputs = (
            self._job.read(wire.job),
            *map(self._datasets.read, (wire.inputs, wire.outputs)),
        )
        return _checked(wire.event_type, wire.event_time, wire.producer, run, job, inputs, outputs)


def _facets(text: bytes) -> Facets:
    return Facets(_decode_facets(text) or {})


def _job(text: bytes) -> _Job:
    job = _decode_job(text)
    facets = Facets(job.facets)
    return _Job(redact_text(job.name), redact_text(job.namespace), facets, _job_texts(facets))


def _datasets(
    facets: _Parts[Facets], uses: _Parts[Facets], text: bytes
) -> tuple[EventDataset, ...]:
    return tuple(
        EventDataset(
            dataset_id(wire.namespace, wire.name),
            facets.read(wire.facets),
            uses.read(wire.output_facets),
            uses.read(wire.input_facets),
        )
        for wire in in_time(_decode_datasets(text))
        if wire.namespace or wire.name
    )


_PARTITION_FOLDER = re.compile(r"[A-Za-z_]\w*=[^/]*")
PART_FILE = re.compile(
    r"part-(?:[mr]-)?\d{5}(?:[-.].*)?|part-\d+\..+|\d{6}_\d+(?:\..*)?", re.DOTALL
)
"""Name of a file that Spark, Hive or Arrow writes: part-00000-<UUID>-c000.snappy.parquet, 000000_0,
part-0.parquet.
"""


@lru_cache(maxsize=1024)
def dataset_id(namespace: str, name: str) -> DatasetId:
    """Return the names without secrets and a last slash; of a file that Spark wrote, its folder.

    Equal names mostly give the same object.
    """
    path = name.rstrip("/") or name
    folder, _, file = path.rpartition("/")
    if PART_FILE.fullmatch(file):
        path = without_partition_folders(folder) or path
    return DatasetId(redact_name(namespace), redact_name(path))


def without_partition_folders(path: str, partition: re.Pattern[str] = _PARTITION_FOLDER) -> str:
    """Return a path without the folders of partitions at its end, cut one by one: this takes linear
    time.

    :param partition: matches the name of one folder.
    """
    end = len(path)
    while (start := path.rfind("/", 0, end)) >= 0 and partition.fullmatch(path, start + 1, end):
        end = start
    return path[:end]


def _text_of(facet: object) -> Raw:
    try:
        return Raw(encoded_json(facet))
    except (TypeError, ValueError, RecursionError):
        # It is not a JSON value, or nested too deeply.
        return Raw(b"null")


def _of_object(obj: object) -> RunEvent:
    if not isinstance(obj, dict):
        raise EventError(f"not a JSON object but {type(obj).__name__}")
    run, job = as_object(obj.get("run")), as_object(obj.get("job"))
    if not run:
        obj = _with_static_job(obj)
        run, job = as_object(obj["run"]), as_object(obj["job"])
    name, namespace = (redact_text(as_text(job.get(key))) for key in ("name", "namespace"))
    job_facets = Facets.of(job.get("facets"))
    return _checked(
        as_text(obj.get("eventType")),
        as_text(obj.get("eventTime")),
        as_text(obj.get("producer")),
        (as_text(run.get("runId")), Facets.of(run.get("facets"))),
        _Job(name, namespace, job_facets, _job_texts(job_facets)),
        tuple(_datasets_of_objects(obj.get("inputs"))),
        tuple(_datasets_of_objects(obj.get("outputs"))),
    )


def _with_static_job(obj: JsonObject) -> JsonObject:
    """Return a job event or a dataset event with the facet ``lineage`` like the event of a run.

    :raises EventError: if it has no such facet.
    """
    dataset, job = as_object(obj.get("dataset")), as_object(obj.get("job"))
    holder = dataset or job
    if "lineage" not in as_object(holder.get("facets")):
        raise EventError(
            "not a run event: it has no run, and no facet lineage, without which dataset events and job events "
            "have no lineage"
        )
    identity = f"{as_text(holder.get('namespace'))} {as_text(holder.get('name'))}"
    outputs = {"outputs": [dataset], "job": {"name": dataset.get("name")}} if dataset else {}
    return {**obj, **outputs, "run": {"runId": f"{STATIC}{uuid5(NAMESPACE_URL, identity)}"}}


def _datasets_of_objects(value: object) -> Iterator[EventDataset]:
    for dataset in as_objects(value):
        identity = dataset_id(as_text(dataset.get("namespace")), as_text(dataset.get("name")))
        if any(identity):
            yield EventDataset(
                identity,
                *(
                    Facets.of(dataset.get(kind))
                    for kind in ("facets", "outputFacets", "inputFacets")
                ),
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
    return RunEvent(
        type=event_type.upper(),
        time_ms=parse_time_ms(event_time),
        producer=producer,
        run_id=run_id,
        run_facets=run_facets,
        names=run_facets.once(_run_names),
        job=job,
        inputs=inputs,
        outputs=outputs,
    )


STATIC = "static-"
"""Begin of the run id of lineage that no run reports."""
LATEST_MS = 253_402_300_799_999
"""The end of the year 9999, in ms since the epoch: later instants have no ISO form."""


def parse_time_ms(value: object) -> int | None:
    """Return an ISO 8601 time in ms since the epoch, or ``None``. A time without a zone is in UTC."""
    try:
        moment = datetime.fromisoformat(value)  # type: ignore[arg-type]
        if moment.tzinfo is not UTC:
            moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (TypeError, ValueError, OverflowError):
        # Overflow: in UTC, the time is outside of the years 1 to 9999.
        return None
    return min(round(moment.timestamp() * 1000), LATEST_MS)


def iso_instant(time_ms: int) -> str:
    """Return a time in ms as ``java.time.Instant`` prints it: ``2026-11-21T07:56:31.694Z``."""
    text = datetime.fromtimestamp(time_ms / 1000, tz=UTC).isoformat(timespec="milliseconds")
    return text.replace(".000+00:00", "Z").replace("+00:00", "Z")
