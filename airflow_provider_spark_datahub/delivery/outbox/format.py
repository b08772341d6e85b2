"""Raw OpenLineage events as items of the outbox and of a sink, which know proposals.

The format of the outbox: names of its objects, the manifest, and entries as JSON lines (docs/outbox.md).

Which entries of an outbox are meant, by the ids in their manifests.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

import msgspec

from airflow_provider_spark_datahub import __version__
from airflow_provider_spark_datahub.attempt_key import AttemptKey
from airflow_provider_spark_datahub.conversion import Proposal, ProposalFormatError, to_json_lines

CONTENT = "events"
"""The content of an outbox's entry that holds events."""
ASPECT = "openLineageEvent"
_ENTITY = "openLineageRun"


def as_items(events: Iterable[bytes]) -> Iterator[Proposal]:
    """Each event in the form of a proposal: the event, as it is, in the place of the aspect.

    It is no proposal to DataHub, and goes only where :func:`event_of` is asked.

    :param events: JSON texts, each of an object.
    """
    for event in events:
        yield Proposal(_ENTITY, "", ASPECT, msgspec.Raw(event))


def event_of(item: Proposal) -> Mapping[str, Any] | None:
    """The event in an item that :func:`as_items` made and the outbox kept; ``None`` where it is a proposal."""
    is_event = item.entity_type == _ENTITY and item.aspect_name == ASPECT and isinstance(item.aspect, dict)
    return item.aspect if is_event else None


FORMAT = "spark-datahub-outbox"
FORMAT_VERSION = 2
CREATED_BY = f"airflow-provider-spark-datahub {__version__}"

PENDING = "pending"
LEASES = "leases"
RECEIPTS = "receipts"
QUARANTINED = "quarantined"
CORRUPT = "corrupt"

State = Literal["unfinished", "pending", "quarantined", "delivered"]

# They are kept by time: a later one of them stands beside an earlier one, and overwrites nothing.
_TIMESERIES = frozenset({"dataProcessInstanceRunEvent", "operation", ASPECT})
_CONTENTS = ("proposals", CONTENT)


class EntryFormatError(ValueError):
    """An object in the outbox that is no entry, or not a whole one."""


class OtherVersionError(EntryFormatError):
    """An entry that another version of this package wrote: to be left alone, not to be thrown away."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The first line of an entry.

    :param connection_id: the Airflow connection that it is meant for.
    :param created_ms: when the entry was made, in ms since the epoch.
    :param state: ``unfinished`` from the submit until the events are converted; then ``pending``.
    :param content: what the lines after the manifest are: ``proposals``, or ``events`` for an OpenLineage backend. An
        entry of other content is left to who knows it.
    :param collected: the number of proposals that were made from the events.
    :param pending: the number of proposals that the entry holds now.
    :param delivered: how many were acknowledged; likewise rejected, and left out since a later try had delivered the
        same aspects (superseded).
    :param upserts: short hashes of the aspects that were delivered and replace what they find.
    :param spark_succeeded: whether the try's Spark job ended well, so that a retry only has to deliver.
    :param awaits_retry: the try failed for its lineage alone: the next one delivers, and does not run Spark.
    :param events: where the raw events are: the name of an object of the outbox, or an absolute path of the worker.
    :param redo: what a conversion needs beside the events.
    :param delivered_ms: when nothing was pending any more, in a receipt.
    :param stored: in a receipt, as in :class:`~airflow_provider_spark_datahub.delivery.sink.Delivery`.
    """

    key: AttemptKey
    connection_id: str
    created_ms: int
    state: State = "pending"
    content: str = "proposals"
    collected: int = 0
    pending: int = 0
    delivered: int = 0
    rejected: int = 0
    superseded: int = 0
    upserts: tuple[str, ...] = ()
    spark_succeeded: bool = False
    awaits_retry: bool = False
    events: str | None = None
    redo: dict[str, Any] | None = field(default=None, hash=False)
    delivered_ms: int | None = None
    stored: bool | None = None
    created_by: str = CREATED_BY

    def to_obj(self) -> dict[str, Any]:
        """The manifest as JSON."""
        return {"format": FORMAT, "version": FORMAT_VERSION, **asdict(self)}

    @classmethod
    def from_obj(cls, obj: Any) -> Self:
        """The manifest that :meth:`to_obj` wrote.

        :raises OtherVersionError: another version of the format.
        :raises EntryFormatError: anything else.
        """
        if not isinstance(obj, dict) or obj.get("format") != FORMAT:
            raise EntryFormatError("its first line is no manifest of an outbox")
        if obj.get("version") != FORMAT_VERSION:
            raise OtherVersionError(f"it has version {obj.get('version')!r} of the format, not {FORMAT_VERSION}")
        fields = {name: value for name, value in obj.items() if name not in ("format", "version")}
        try:
            fields = {**fields, "key": AttemptKey(**fields["key"]), "upserts": tuple(fields["upserts"])}
            return cls(**fields)
        except (KeyError, TypeError) as error:
            raise EntryFormatError(f"its manifest has other fields: {error}") from error

    def receipt(self, delivered_ms: int, *, stored: bool | None) -> Manifest:
        """What is kept of an entry when nothing of it is pending."""
        return replace(self, state="delivered", delivered_ms=delivered_ms, stored=stored, redo=None, events=None)

    def with_proposals(self, proposals: Sequence[Proposal]) -> Manifest:
        """The manifest of an entry whose events were converted to these."""
        return replace(self, state="pending", collected=len(proposals), pending=len(proposals))


@dataclass(frozen=True, slots=True, order=True)
class EntryName:
    """The name of an entry's object: what orders the entries of a task instance can be read off it.

    :param connection: short hash of the connection's id.
    """

    instance: str
    try_number: int
    created_ms: int
    connection: str
    random: str

    @classmethod
    def of(cls, key: AttemptKey, connection_id: str, created_ms: int, random: str) -> Self:
        """The name of a new entry. :param random: 8 hexadecimal digits that keep two processes apart."""
        return cls(key.instance, key.try_number, created_ms, connection_hash(connection_id), random)

    @classmethod
    def parsed(cls, name: str) -> Self | None:
        """The parts of an object's name; ``None`` where it is no entry's."""
        match = _ENTRY_NAME.fullmatch(name)
        if match is None:
            return None
        instance, try_number, created_ms, connection, random = match.groups()
        return cls(instance, int(try_number), int(created_ms), connection, random)

    @property
    def stem(self) -> str:
        """The name without its folder and suffix."""
        return f"try-{self.try_number:05d}-{self.created_ms:013d}-{self.connection}-{self.random}"

    @property
    def path(self) -> str:
        """The object's name."""
        return f"{PENDING}/{self.instance}/{self.stem}.jsonl"

    @property
    def events(self) -> str:
        """The name of the raw events beside it."""
        return f"{PENDING}/{self.instance}/{self.stem}{EVENTS_SUFFIX}"

    @property
    def held_events(self) -> str:
        """Their name in the quarantine."""
        return f"{QUARANTINED}/{self.instance}/{self.stem}{EVENTS_SUFFIX}"

    @property
    def group(self) -> tuple[str, str]:
        """What is delivered one after the other: the entries of one task instance for one connection."""
        return self.instance, self.connection


EVENTS_SUFFIX = ".events.ndjson.gz"
_ENTRY_NAME = re.compile(rf"{PENDING}/([^/]+)/try-(\d+)-(\d+)-([0-9a-f]{{8}})-([0-9a-f]{{8}})\.jsonl")


def connection_hash(connection_id: str) -> str:
    """A connection's id in 8 hexadecimal digits."""
    return _hash(connection_id.encode("utf-8", "backslashreplace"), 8)


def upsert_hash(proposal: Proposal) -> str | None:
    """What a proposal replaces, in 12 hexadecimal digits; ``None`` where it replaces nothing."""
    if proposal.change_type != "UPSERT" or proposal.aspect_name in _TIMESERIES:
        return None
    return _hash(f"{proposal.entity_urn}\n{proposal.aspect_name}".encode("utf-8", "backslashreplace"), 12)


def upsert_hashes(proposals: Iterable[Proposal]) -> tuple[str, ...]:
    """What the proposals replace, each once."""
    return tuple(dict.fromkeys(digits for one in proposals if (digits := upsert_hash(one))))


def content_hash(content: bytes) -> str:
    """A content in 12 hexadecimal digits, for a name that is the same when it is written again."""
    return _hash(content, 12)


def entry_lines(manifest: Manifest, proposals: Sequence[Proposal]) -> Iterator[bytes]:
    """An entry: the manifest, then one line per proposal."""
    yield json_line(manifest.to_obj())
    for line in to_json_lines(proposals):
        yield line.encode("utf-8", "backslashreplace")


def read_manifest(content: bytes) -> Manifest:
    """The manifest of an entry or of a quarantined part of one.

    :raises EntryFormatError: it has none.
    """
    return Manifest.from_obj(_json(content.split(b"\n", 1)[0]))


def read_entry(content: bytes) -> tuple[Manifest, tuple[Proposal, ...]]:
    """What :func:`entry_lines` wrote.

    :raises EntryFormatError: it is not whole, or no entry at all.
    """
    lines = content.split(b"\n")
    manifest = Manifest.from_obj(_json(lines[0]))
    if manifest.content not in _CONTENTS:
        return manifest, ()
    proposals = tuple(_proposal(_json(line)) for line in lines[1:-1])
    if lines[-1] or len(proposals) != manifest.pending:
        raise EntryFormatError(f"it holds {len(proposals)} proposals where its manifest says {manifest.pending}")
    return manifest, proposals


def quarantine_lines(manifest: Manifest, held: Iterable[tuple[str, Proposal]]) -> Iterator[bytes]:
    """What an entry lost to the quarantine: its manifest, then one line per proposal with the reason."""
    yield json_line(replace(manifest, state="quarantined").to_obj())
    for reason, proposal in held:
        yield json_line({"reason": reason, "proposal": proposal.to_obj()})


def read_quarantined(content: bytes) -> tuple[Manifest, list[tuple[str, Proposal]]]:
    """What :func:`quarantine_lines` wrote.

    :raises EntryFormatError: it cannot be read.
    """
    head, *lines = content.split(b"\n")
    manifest = Manifest.from_obj(_json(head))
    held = []
    for line in filter(None, lines):
        obj = _json(line)
        if not isinstance(obj, dict) or not isinstance(obj.get("reason"), str):
            raise EntryFormatError("a line of it tells no reason")
        held.append((obj["reason"], _proposal(obj.get("proposal"))))
    return manifest, held


def json_line(obj: Any) -> bytes:
    """One line of JSON, with its newline."""
    return json.dumps(obj, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def _proposal(obj: Any) -> Proposal:
    try:
        return Proposal.from_obj(obj)
    except ProposalFormatError as error:
        raise EntryFormatError(str(error)) from error


def _json(line: bytes) -> Any:
    try:
        # Five times faster, and an end of a task waits for it.
        return msgspec.json.decode(line)
    except msgspec.DecodeError:
        # Half of a surrogate pair, which JSON can escape; or no JSON.
        pass
    try:
        return json.loads(line)
    except ValueError as error:
        raise EntryFormatError(f"a line of it is no JSON: {error}") from error


def _hash(content: bytes, digits: int) -> str:
    return hashlib.sha256(content).hexdigest()[:digits]


@dataclass(frozen=True, slots=True)
class Selection:
    """Exact ids; of a kind of which none is given, all are meant."""

    dag_ids: tuple[str, ...] = ()
    run_ids: tuple[str, ...] = ()
    task_ids: tuple[str, ...] = ()
    connection_ids: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is selected, so that not everything is meant."""
        return bool(self.dag_ids or self.run_ids or self.task_ids or self.connection_ids)

    def __call__(self, manifest: Manifest) -> bool:
        """Whether the entry of this manifest is meant."""
        key = manifest.key
        return (
            _in(key.dag_id, self.dag_ids)
            and _in(key.run_id, self.run_ids)
            and _in(key.task_id, self.task_ids)
            and _in(manifest.connection_id, self.connection_ids)
        )


def _in(value: str, wanted: tuple[str, ...]) -> bool:
    return not wanted or value in wanted
