"""Format of the outbox: names of its objects, manifests, and entries as JSON lines (docs/outbox.md)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

import msgspec

from airflow_provider_spark_datahub import __version__
from airflow_provider_spark_datahub.attempt_key import AttemptKey
from airflow_provider_spark_datahub.conversion import Proposal, ProposalFormatError
from airflow_provider_spark_datahub.delivery.sink import OutboxItem, RawEvent

FORMAT = "spark-datahub-outbox"
_FORMAT_VERSION = 2

PENDING = "pending"
LEASES = "leases"
RECEIPTS = "receipts"
QUARANTINED = "quarantined"
CORRUPT = "corrupt"

# DataHub keeps these by time: a later one does not overwrite an earlier one.
_TIMESERIES = frozenset({"dataProcessInstanceRunEvent", "operation"})


class EntryFormatError(ValueError):
    """Object in the outbox that is not an entry, or not a whole one."""


class OtherVersionError(EntryFormatError):
    """Entry that another version of this package wrote: it is left alone, not thrown away."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """First line of an entry, and the content of a receipt.

    :param connection_id: the Airflow connection for which the entry is meant.
    :param created_ms: when the entry was made, in ms since the epoch.
    :param state: ``unfinished`` from the submit until the events are converted; then ``pending``.
    :param content: the kind of the items: ``proposals``, or ``events`` for an OpenLineage backend. Items of any other
        kind are left alone.
    :param collected: the number of proposals into which the events were converted.
    :param pending: the number of items that the entry holds now.
    :param delivered: how many items were acknowledged.
    :param rejected: how many items went to the quarantine.
    :param superseded: how many items were left out, since a later attempt had delivered the same aspects.
    :param upserts: short hashes of the delivered aspects that replace earlier ones.
    :param spark_succeeded: whether the attempt's Spark job succeeded, so that a retry only has to deliver.
    :param awaits_retry: the attempt failed for its lineage alone: the next one delivers, and does not run Spark.
    :param events: where the raw events are: the name of an object of the outbox, or an absolute path of the worker.
    :param redo: the other inputs of the conversion.
    :param delivered_ms: in a receipt: when the last item was settled.
    :param stored: in a receipt: as in :class:`~airflow_provider_spark_datahub.delivery.sink.Delivery`.
    """

    key: AttemptKey
    connection_id: str
    created_ms: int
    state: Literal["unfinished", "pending", "quarantined", "delivered"] = "pending"
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
    created_by: str = f"airflow-provider-spark-datahub {__version__}"

    def to_line(self) -> bytes:
        """Return the manifest as a line of JSON."""
        return _json_line({"format": FORMAT, "version": _FORMAT_VERSION, **asdict(self)})

    @classmethod
    def from_obj(cls, obj: Any) -> Self:
        """Return the manifest of a decoded :meth:`line <to_line>`.

        :raises OtherVersionError: if it has another version of the format.
        :raises EntryFormatError: for anything else.
        """
        if not isinstance(obj, dict) or obj.get("format") != FORMAT:
            raise EntryFormatError("its first line is not a manifest of an outbox")
        if obj.get("version") != _FORMAT_VERSION:
            raise OtherVersionError(f"it has version {obj.get('version')!r} of the format, not {_FORMAT_VERSION}")
        fields = {name: value for name, value in obj.items() if name not in ("format", "version")}
        try:
            fields = {**fields, "key": AttemptKey(**fields["key"]), "upserts": tuple(fields["upserts"])}
            return cls(**fields)
        except (KeyError, TypeError) as error:
            raise EntryFormatError(f"its manifest has other fields: {error}") from error

    @classmethod
    def read(cls, content: bytes) -> Self:
        """Return the manifest at the beginning of an entry, of a quarantined part of one, or of a receipt.

        :raises EntryFormatError: if there is none.
        """
        return cls.from_obj(_json(content.split(b"\n", 1)[0]))

    def entry_lines(self, items: Sequence[OutboxItem]) -> Iterator[bytes]:
        """Yield the lines of an entry: the manifest, then one line per item."""
        yield self.to_line()
        for item in items:
            yield f"{item.to_json()}\n".encode("utf-8", "backslashreplace")

    @classmethod
    def read_entry(cls, content: bytes) -> tuple[Self, tuple[OutboxItem, ...]]:
        """Return what :meth:`entry_lines` wrote.

        :raises EntryFormatError: if it is incomplete, or not an entry.
        """
        lines = content.split(b"\n")
        manifest = cls.from_obj(_json(lines[0]))
        if manifest.content not in ("proposals", "events"):
            return manifest, ()
        items = tuple(_item(_json(line)) for line in lines[1:-1])
        if lines[-1] or len(items) != manifest.pending:
            raise EntryFormatError(f"it holds {len(items)} proposals where its manifest says {manifest.pending}")
        return manifest, items

    def quarantine_lines(self, rejected: Iterable[tuple[str, OutboxItem]]) -> Iterator[bytes]:
        """Yield the lines of an object in the quarantine: the manifest, then one line per item with the reason."""
        yield replace(self, state="quarantined").to_line()
        for reason, item in rejected:
            yield _json_line({"reason": reason, "proposal": item.to_obj()})

    @classmethod
    def read_quarantined(cls, content: bytes) -> tuple[Self, tuple[tuple[str, OutboxItem], ...]]:
        """Return what :meth:`quarantine_lines` wrote.

        :raises EntryFormatError: if it cannot be read.
        """
        head, *lines = content.split(b"\n")
        manifest = cls.from_obj(_json(head))
        rejected = []
        for line in filter(None, lines):
            obj = _json(line)
            if not isinstance(obj, dict) or not isinstance(obj.get("reason"), str):
                raise EntryFormatError("one of its lines has no reason")
            rejected.append((obj["reason"], _item(obj.get("proposal"))))
        return manifest, tuple(rejected)

    def receipt(self, delivered_ms: int, *, stored: bool | None) -> Manifest:
        """Return the receipt of an entry that holds no more items."""
        return replace(self, state="delivered", delivered_ms=delivered_ms, stored=stored, redo=None, events=None)

    def holding(self, items: Sequence[OutboxItem]) -> Manifest:
        """Return the manifest of an entry that gets its items."""
        return replace(self, state="pending", collected=len(items), pending=len(items))


@dataclass(frozen=True, slots=True, order=True)
class EntryName:
    """Name of an entry's object, by which the entries of a task instance are ordered.

    :param connection: short hash of the connection's id.
    """

    instance: str
    try_number: int
    created_ms: int
    connection: str
    random: str

    @classmethod
    def of(cls, key: AttemptKey, connection_id: str, created_ms: int, random: str) -> Self:
        """Return the name of a new entry. :param random: 8 hexadecimal digits that keep two processes apart."""
        return cls(key.instance, key.try_number, created_ms, cls.connection_hash(connection_id), random)

    @staticmethod
    def connection_hash(connection_id: str) -> str:
        """Return a connection's id as 8 hexadecimal digits."""
        return _hash(connection_id, 8)

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Return the parts of an object's name; ``None`` if the object is not an entry."""
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
        """The name of the raw events beside the entry."""
        return f"{PENDING}/{self.instance}/{self.stem}{EVENTS_SUFFIX}"

    @property
    def quarantined_events(self) -> str:
        """The name of the raw events in the quarantine."""
        return f"{QUARANTINED}/{self.instance}/{self.stem}{EVENTS_SUFFIX}"

    @property
    def group(self) -> tuple[str, str]:
        """The task instance and the connection, whose entries are delivered one after the other."""
        return self.instance, self.connection


EVENTS_SUFFIX = ".events.ndjson.gz"
_ENTRY_NAME = re.compile(rf"{PENDING}/([^/]+)/try-(\d+)-(\d+)-([0-9a-f]{{8}})-([0-9a-f]{{8}})\.jsonl")


def upsert_hash(item: OutboxItem) -> str | None:
    """Return 12 hexadecimal digits for the aspect that an item replaces; ``None`` if it replaces none."""
    if isinstance(item, RawEvent) or item.change_type != "UPSERT" or item.aspect_name in _TIMESERIES:
        return None
    return _hash(f"{item.entity_urn}\n{item.aspect_name}", 12)


def _hash(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:digits]


def _json_line(obj: Any) -> bytes:
    """Return a line of JSON, with its newline."""
    return json.dumps(obj, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def _item(obj: Any) -> OutboxItem:
    try:
        proposal = Proposal.from_obj(obj)
    except ProposalFormatError as error:
        raise EntryFormatError(str(error)) from error
    return proposal if proposal.entity_type != RawEvent.ENTITY_TYPE else RawEvent.from_stored(proposal) or proposal


def _json(line: bytes) -> Any:
    try:
        # Five times faster, and the end of a task waits for it.
        return msgspec.json.decode(line)
    except msgspec.DecodeError:
        # Half of a surrogate pair, which JSON can escape; or not JSON at all.
        pass
    try:
        return json.loads(line)
    except ValueError as error:
        raise EntryFormatError(f"one of its lines is not JSON: {error}") from error


@dataclass(frozen=True, slots=True)
class EntryFilter:
    """Selection of entries by exact ids; an empty tuple matches all."""

    dag_ids: tuple[str, ...] = ()
    run_ids: tuple[str, ...] = ()
    task_ids: tuple[str, ...] = ()
    connection_ids: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.dag_ids or self.run_ids or self.task_ids or self.connection_ids)

    def __call__(self, manifest: Manifest) -> bool:
        """Return whether the entry of this manifest is selected."""
        key = manifest.key
        return (
            key.dag_id in (self.dag_ids or (key.dag_id,))
            and key.run_id in (self.run_ids or (key.run_id,))
            and key.task_id in (self.task_ids or (key.task_id,))
            and manifest.connection_id in (self.connection_ids or (manifest.connection_id,))
        )
