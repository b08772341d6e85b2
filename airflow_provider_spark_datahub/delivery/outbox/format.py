"""Format of the outbox: names of its objects, manifests, and entries as JSON lines
(docs/outbox.md).

Each object begins with a sealed line: JSON with its own checksum, and the length and checksum of
everything behind it. So damage is noticed before anything is used.

Tests: ``tests/delivery/test_outbox.py`` and ``tests/delivery/test_outbox_damage.py``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar

import msgspec
from msgspec.structs import replace

from airflow_provider_spark_datahub import __version__
from airflow_provider_spark_datahub.conversion import Proposal, ProposalFormatError, json_lines
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from airflow_provider_spark_datahub.foundation.text import counted, decoded_json, encoded_json

_T = TypeVar("_T")

FORMAT = "spark-datahub-outbox"
_FORMAT_VERSION = 3


class Folder(StrEnum):
    """Folder of an outbox, with one kind of object (docs/outbox.md)."""

    PENDING = "pending"
    RECEIPTS = "receipts"
    DELIVERED = "delivered"
    QUARANTINED = "quarantined"
    CORRUPT = "corrupt"
    EDGES = "edges"
    JOBS = "jobs"
    LISTENER_FAILURES = "listener_failures"
    LEASES = "leases"
    HISTORY = "history"


class Naming:
    """Names of the outbox's objects, and parts of them (docs/outbox.md)."""

    PART_SUFFIX = ".part.json"
    REASON_SUFFIX = ".reason.txt"

    ENTRY = re.compile(
        rf"{Folder.PENDING}/(?P<instance>[A-Za-z0-9._-]+-[0-9a-f]{{20}})/"
        r"try-([0-9]{5,10})-(?P<created_ms>[0-9]{13,15})-([0-9a-f]{8})-([0-9a-f]{8})\.jsonl"
    )
    RECEIPT = re.compile(
        rf"{Folder.RECEIPTS}/([^/]+)/([0-9]{{13,15}})-try-([0-9]{{5,10}})-([0-9a-f]{{8}})-([0-9a-f]{{8}})"
        r"-([0-9a-f]{20})(?:\.part)?\.json"
    )
    DELIVERED = re.compile(
        rf"{Folder.DELIVERED}/[^/]+/(?P<created_ms>[0-9]{{13,15}})-.*-(?P<instance>[0-9a-f]{{20}})-[0-9]+\.jsonl\.gz"
    )
    QUARANTINED = re.compile(
        rf"{Folder.QUARANTINED}/(?P<instance>[^/]+)/try-[0-9]{{5,10}}-(?P<created_ms>[0-9]{{13,15}})-.*\.jsonl"
    )

    @staticmethod
    def label(named: str) -> str:
        """Return the readable part of the name of a task or of a task instance, which may be that
        of several tasks.
        """
        return named.rpartition("-")[0]


# Time-series aspects: a later one does not overwrite an earlier one.
_TIMESERIES = frozenset({"dataProcessInstanceRunEvent", "operation"})


class EntryFormatError(ValueError):
    """Damaged, incomplete or foreign object in the outbox."""


class OtherVersionError(EntryFormatError):
    """Object that another version of this package wrote: it is left alone, not thrown away."""


_SEAL = b',"sha256":"'


def seal(record: dict[str, Any] | msgspec.Struct, body: Iterable[bytes] | _Body = ()) -> bytes:
    """Return the first line of an object: JSON with the length and the checksum of ``body``, and
    its own checksum.
    """
    described = body if isinstance(body, _Body) else _Body.of(body)
    fields = record if isinstance(record, dict) else msgspec.structs.asdict(record)
    fields = {**fields.pop("unknown"), **fields} if isinstance(record, Manifest) else fields
    return _sealed(
        encoded_json({"format": FORMAT, "version": _FORMAT_VERSION, **fields, "body": described})[
            :-1
        ]
    )


def _sealed(head: bytes) -> bytes:
    return head + _SEAL + hashlib.sha256(head).hexdigest().encode() + b'"}\n'


class _Body(msgspec.Struct, frozen=True, kw_only=True):
    """Length and checksum of everything behind the first line of an object."""

    size: int = msgspec.field(name="bytes")
    sha256: str

    @classmethod
    def of(cls, chunks: Iterable[bytes]) -> _Body:
        """Return the description of these bytes."""
        digest, size = hashlib.sha256(), 0
        for chunk in chunks:
            digest.update(chunk)
            size += len(chunk)
        return cls(size=size, sha256=digest.hexdigest())


def unseal(line: bytes, kind: type[_T]) -> tuple[_T, _Body]:
    """Return the record in a first line that :func:`seal` made, and the description of what follows
    it.

    :raises OtherVersionError: if it has another version of the format.
    :raises EntryFormatError: if it is damaged, or anything else.
    """
    if not line.endswith(b"\n"):
        raise EntryFormatError("its first line has no end")
    head, _, _ = line.rpartition(_SEAL)
    whole = line == _sealed(head)
    obj = _json(line)
    if not isinstance(obj, dict) or obj.pop("format", None) != FORMAT:
        raise EntryFormatError("its first line is not a manifest of an outbox")
    version, has_seal, body = (
        obj.pop("version", None),
        obj.pop("sha256", None),
        obj.pop("body", None),
    )
    if version != _FORMAT_VERSION and type(version) is int and (whole or has_seal is None):
        raise OtherVersionError(f"it has version {version} of the format, not {_FORMAT_VERSION}")
    if not whole:
        raise EntryFormatError("its first line does not match its checksum")
    if kind is Manifest:
        obj["unknown"] = {name: obj[name] for name in obj.keys() - _MANIFEST_FIELDS}
    try:
        return msgspec.convert(obj, kind), msgspec.convert(body, _Body)
    except msgspec.ValidationError as error:
        raise EntryFormatError(f"its first line has other fields: {error}") from error


_Number = Annotated[int, msgspec.Meta(ge=0, le=10**15)]
"""Number in a manifest; as ms since the epoch, the largest is far in the future."""


class Manifest(msgspec.Struct, frozen=True):
    """First line of an entry, and the content of a receipt.

    :param connection_id: the Airflow connection for which the entry is meant.
    :param created_ms: when the entry was made, in ms since the epoch.
    :param state: ``unfinished`` from the submit until the events are converted; then ``pending``.
    :param collected: the number of proposals into which the events were converted.
    :param pending: the number of items that the entry holds now.
    :param delivered: how many items were acknowledged.
    :param rejected: how many items went to the quarantine.
    :param superseded: how many items were left out, since a later attempt had delivered the same
        aspects.
    :param upserts: short hashes of the delivered aspects that replace earlier ones.
    :param spark_succeeded: whether the attempt's Spark job succeeded, so that a retry only has to
        deliver.
    :param awaits_retry: the attempt failed only because of its lineage: the next one delivers it
        without running Spark.
    :param events: where the raw events are: an absolute path of the worker, or the address of an
        object store.
    :param redo: all other inputs of the conversion.
    :param failure: how the attempt's Spark failed, for people; :attr:`problem`: why its last
        delivery did.
    :param delivered_ms: in a receipt: when the last item was settled.
    :param stored: in a receipt: as in
        :class:`~airflow_provider_spark_datahub.delivery.sink.Delivery`.
    :param unknown: fields of a later release, which are kept. What an older one must not ignore
        needs another version of the format.
    """

    key: AttemptKey
    connection_id: str
    created_ms: _Number
    state: Literal["unfinished", "pending", "quarantined", "delivered"] = "pending"
    collected: _Number = 0
    pending: _Number = 0
    delivered: _Number = 0
    rejected: _Number = 0
    superseded: _Number = 0
    upserts: tuple[str, ...] = ()
    spark_succeeded: bool = False
    awaits_retry: bool = False
    events: str | None = None
    redo: dict[str, Any] | None = None
    failure: str | None = None
    problem: str | None = None
    delivered_ms: _Number | None = None
    stored: bool | None = None
    created_by: str = f"airflow-provider-spark-datahub {__version__}"
    unknown: dict[str, Any] = {}

    @property
    def progress(self) -> tuple[str, int, int, int, int]:
        """State and counts, which change with each step of the entry."""
        return self.state, self.pending, self.delivered, self.rejected, self.superseded

    def quarantine_lines(self, rejected: Iterable[tuple[str, Proposal]]) -> list[bytes]:
        """Return the lines of an object in the quarantine: the manifest, then one line per item
        with the reason.
        """
        body = [
            encoded_json({"reason": reason, "proposal": item.to_obj()}) + b"\n"
            for reason, item in rejected
        ]
        return [seal(replace(self, state="quarantined"), body), *body]

    def receipt(self, delivered_ms: int, *, stored: bool | None) -> Manifest:
        """Return the receipt of an entry that holds no more items."""
        return replace(
            self,
            state="delivered",
            delivered_ms=delivered_ms,
            stored=stored,
            redo=None,
            events=None,
        )

    @staticmethod
    def upserts_of(items: Iterable[Proposal]) -> list[str]:
        """Return 12 hexadecimal digits for the aspect that each item replaces; empty text for
        patches and events.
        """
        return [
            ""
            if item.change_type != "UPSERT" or item.aspect_name in _TIMESERIES
            else _hash(f"{item.entity_urn}\n{item.aspect_name}", 12)
            for item in items
        ]

    def holding(self, items: Sequence[Proposal]) -> Manifest:
        """Return the manifest of an entry that gets its items."""
        return replace(self, state="pending", collected=len(items), pending=len(items))


_MANIFEST_FIELDS = frozenset(Manifest.__struct_fields__) - {"unknown"}


class StoredObject(NamedTuple):
    """Object that was read: an entry, a quarantined part of one, or a receipt. Damage raises
    EntryFormatError.

    :param lines: behind the manifest, unchecked; ``body`` describes them.
    """

    manifest: Manifest
    body: _Body
    lines: bytes

    @classmethod
    def of(cls, manifest: Manifest, items: Iterable[Proposal]) -> Self:
        """Return an entry: behind the manifest, one line per item."""
        lines = json_lines(items)
        return cls(manifest, _Body.of([lines]), lines)

    def chunks(self) -> list[bytes]:
        """Return the content of the object: the manifest's line, and the lines behind it."""
        return [seal(self.manifest, self.body), self.lines]

    @classmethod
    def read(cls, content: bytes, size: int | None = None) -> Self:
        """Return the object, after checking the manifest.

        :param size: bytes of the object, if ``content`` is its first line alone.
        """
        line, newline, lines = content.partition(b"\n")
        manifest, body = unseal(line + newline, Manifest)
        behind = len(lines) if size is None else size - len(content)
        if behind != body.size:
            raise EntryFormatError(
                f"{behind} bytes follow its first line, which announces {body.size}"
            )
        return cls(manifest, body, lines)

    def whole(self) -> Manifest:
        """Return the manifest, after checking the lines behind it."""
        if hashlib.sha256(self.lines).hexdigest() != self.body.sha256:
            raise EntryFormatError("the lines behind its first line do not match their checksum")
        return self.manifest

    def items(self) -> tuple[Proposal, ...]:
        """Return the items of an entry."""
        pending = self.whole().pending
        items = tuple(_item(_json(line)) for line in self._split())
        if len(items) != pending:
            raise EntryFormatError(
                f"it holds {counted(len(items), 'proposal')}, but its manifest says {pending}"
            )
        return items

    def rejected(self) -> tuple[tuple[str, Proposal], ...]:
        """Return the reasons and items of a part of the quarantine."""
        self.whole()
        rejected = []
        for line in self._split():
            obj = _json(line)
            if not isinstance(obj, dict) or not isinstance(obj.get("reason"), str):
                raise EntryFormatError("one of its lines has no reason")
            rejected.append((obj["reason"], _item(obj.get("proposal"))))
        return tuple(rejected)

    def _split(self) -> list[bytes]:
        return self.lines.split(b"\n")[:-1]


class EntryName(NamedTuple):
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
        """Return the name of a new entry. :param random: 8 hexadecimal digits that keep two
        processes apart.
        """
        return cls(
            key.instance, key.try_number, created_ms, cls.connection_hash(connection_id), random
        )

    @staticmethod
    @lru_cache(maxsize=64)
    def connection_hash(connection_id: str) -> str:
        """Return a connection's id as 8 hexadecimal digits."""
        return _hash(connection_id, 8)

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Return the parts of an object's name; ``None`` if the object is not an entry."""
        match = Naming.ENTRY.fullmatch(name)
        if match is None:
            return None
        instance, try_number, created_ms, connection, random = match.groups()
        return cls(instance, int(try_number), int(created_ms), connection, random)

    def check(self, manifest: Manifest) -> None:
        """Check that an entry has the name that its manifest gives it.

        :raises EntryFormatError: if it has the name of another entry.
        """
        key = manifest.key
        named = (self.instance, self.try_number, self.created_ms, self.connection)
        if named != (
            key.instance,
            key.try_number,
            manifest.created_ms,
            self.connection_hash(manifest.connection_id),
        ):
            raise EntryFormatError("its manifest belongs to another entry")

    @property
    def stem(self) -> str:
        """The name without its folder and suffix."""
        return f"try-{self.try_number:05d}-{self.created_ms:013d}-{self.connection}-{self.random}"

    @property
    def path(self) -> str:
        """The object's name."""
        return f"{Folder.PENDING}/{self.instance}/{self.stem}.jsonl"

    def receipt(self, task: str, folder: str = Folder.RECEIPTS, suffix: str = ".json") -> str:
        """Return the name of the entry's receipt, or of its like in another folder or with another
        suffix.
        """
        stem = f"{self.created_ms:013d}-try-{self.try_number:05d}-{self.connection}-{self.random}"
        return f"{folder}/{task}/{stem}-{self.instance_hash}{suffix}"

    @property
    def instance_hash(self) -> str:
        """The hash at the end of the task instance's name."""
        return self.instance.rpartition("-")[2]

    @property
    def group(self) -> tuple[str, str]:
        """The task instance and the connection, whose entries are delivered one after the other."""
        return self.instance, self.connection


def _hash(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:digits]


def _item(obj: Any) -> Proposal:
    try:
        proposal = Proposal.from_obj(obj)
    except (ProposalFormatError, RecursionError) as error:
        raise EntryFormatError(
            f"one of its lines is not a proposal: {error.__cause__ or error}"
        ) from error
    if obj["changeType"] != proposal.change_type:
        raise EntryFormatError(f"one of its lines has the change type {obj['changeType'][:40]!r}")
    return proposal


def _json(line: bytes) -> Any:
    try:
        return decoded_json(line)
    except ValueError as error:
        raise EntryFormatError(f"one of its lines is {error}") from error


class EntryFilter(msgspec.Struct, frozen=True):
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
        wanted = (
            (self.dag_ids, key.dag_id),
            (self.run_ids, key.run_id),
            (self.task_ids, key.task_id),
            (self.connection_ids, manifest.connection_id),
        )
        return all(not ids or own in ids for ids, own in wanted)
