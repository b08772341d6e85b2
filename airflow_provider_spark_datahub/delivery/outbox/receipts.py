"""Records of task runs for other runs of the task (docs/outbox.md).

*Receipts* of settled entries name the delivered aspects, which nothing older may overwrite.

*Edges* are for siblings and for later DAG runs. Task runs that share a DataJob only add edges. When
their DAG run has ended, these records show which edges earlier DAG runs wrote and this one did not.

*Failures of the listener* are for later attempts of the same task run, which run without it.

*Jobs* are the DataJobs that a task's runs sent to DataHub, until ``spark-datahub retire`` removes
them.

*Histories* are fingerprints of attempts, which show what changed since the last green run.

Tests: ``tests/delivery/test_outbox_receipts.py``.
"""

from __future__ import annotations

import gzip
import logging
import math
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import msgspec

from airflow_provider_spark_datahub.conversion import (
    FEW_GREENS,
    MOST_COMPARED,
    Fingerprint,
    JobRecord,
    Proposal,
    Revision,
    changes_since,
    revise,
)
from airflow_provider_spark_datahub.delivery.outbox.format import (
    EntryFormatError,
    EntryName,
    Folder,
    Manifest,
    Naming,
    StoredObject,
)
from airflow_provider_spark_datahub.delivery.outbox.storage import OutboxStorage
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from airflow_provider_spark_datahub.foundation.files import UnreadFileError

log = logging.getLogger(__name__)

_Record = TypeVar("_Record", bound=msgspec.Struct)
_BLOCK_BYTES = 4096
"""Bytes that a small file takes on most disks."""
_MOST_READ = 10_000
"""Receipts whose aspects are remembered at the same time."""


@dataclass
class _Records:
    """Records in an outbox."""

    _storage: OutboxStorage
    _unread: set[str] = field(default_factory=set)
    """Names of those that could not be read."""

    def _read(self, names: Iterable[str], kind: type[_Record]) -> Iterator[_Record]:
        """Yield the records of these names, without those that are gone or cannot be read."""
        for name in names:
            try:
                unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
                content = unpacking.decompress(self._storage.read(name), _LONGEST_RECORD)
                # One that is cut or much too long has no end.
                yield msgspec.json.decode(content if unpacking.eof else b"", type=kind)
            except FileNotFoundError:
                pass  # another process has just removed it
            except (OSError, ValueError, zlib.error, RecursionError) as error:
                log.warning("The record %s cannot be read: %s", self._storage.describe(name), error)
                self._unread.add(name)

    def _remove_older(self, folder: str, before_ms: float) -> None:
        """Remove the objects below a folder whose names begin with an earlier time."""
        for name in self._storage.names(folder):
            start = name.rpartition("/")[2].partition("-")[0]
            if start.isdecimal() and int(start) < before_ms:
                self._storage.remove(name)


class _ReceiptName(msgspec.Struct, frozen=True):
    created_ms: int
    name: str
    try_number: int
    connection: str
    instance_hash: str

    @classmethod
    def parse(cls, name: str) -> _ReceiptName | None:
        """Return the parts of a receipt's name; ``None`` if it is none."""
        match = Naming.RECEIPT.fullmatch(name)
        return cls(int(match[2]), name, int(match[3]), match[4], match[6]) if match else None

    def is_newer(self, entry: EntryName, now_ms: int) -> bool:
        """Return whether this is of a later attempt or run, whose aspects an entry must not
        overwrite.

        Attempts are ordered by their numbers, runs by time. A host whose clock was ahead makes
        receipts of runs from the future, which do not count yet.
        """
        if self.connection != entry.connection:
            return False
        if self.instance_hash == entry.instance_hash:
            return self.try_number > entry.try_number
        return entry.created_ms < self.created_ms <= now_ms

    def is_needed(self, oldest_ms: Mapping[str, int]) -> bool:
        """Return whether an entry that may be delivered one day is older.

        :param oldest_ms: when the oldest one of each task was made, by :meth:`.Naming.label`.
        """
        return self.created_ms >= oldest_ms.get(Naming.label(self.name.split("/")[1]), math.inf)


@dataclass
class Receipts(_Records):
    """Receipts of settled entries, in one folder per task, over its runs.

    They are kept for a while, for people, and to keep older entries from overwriting delivered
    aspects.
    """

    _remembers: bool = False
    _listed: dict[str, list[_ReceiptName]] = field(default_factory=dict)
    """Receipts by task, as the latest listing says."""
    _aspects: dict[str, frozenset[str]] = field(default_factory=dict)
    """Aspects that receipts name. A receipt that was read stays true."""

    def find(
        self, entry: EntryName, manifest: Manifest, asked: Collection[str] | None = None
    ) -> tuple[Manifest | None, set[str]]:
        """Return the receipt of an entry that was settled before, and the aspects that newer
        receipts name.

        :param asked: hashes of the aspects that matter; ``None`` for all.
        :returns: the entry's own receipt, if there is one; and hashes of the aspects that later
            attempts and runs of the task delivered to the same connection.
        """
        own, own_name, newer = None, entry.receipt(manifest.key.task), set[str]()
        now_ms = self._storage.now_ms()
        for receipt in self._of_task(manifest.key.task):
            if receipt.name == own_name:
                own = self._read_receipt(own_name)
            elif receipt.is_newer(entry, now_ms):
                aspects = self._aspects_of(receipt.name)
                newer.update(aspects if asked is None else aspects.intersection(asked))
        return own, newer

    def _of_task(self, task: str) -> list[_ReceiptName]:
        if task in self._listed:
            return self._listed[task]
        listed = [
            *filter(None, map(_ReceiptName.parse, self._storage.names(f"{Folder.RECEIPTS}/{task}")))
        ]
        if self._remembers:
            self._listed[task] = listed
        return listed

    def _aspects_of(self, name: str) -> frozenset[str]:
        if name in self._aspects:
            return self._aspects[name]
        manifest = self._read_receipt(name)
        aspects = frozenset(manifest.upserts if manifest is not None else ())
        # A part grows until its entry is settled.
        if self._remembers and not name.endswith(Naming.PART_SUFFIX):
            if len(self._aspects) >= _MOST_READ:
                self._aspects.clear()
            self._aspects[name] = aspects
        return aspects

    def _read_receipt(self, name: str) -> Manifest | None:
        """Return a receipt; ``None`` if it is gone or damaged, in which case some aspects are sent
        again.
        """
        try:
            return StoredObject.read(self._storage.read(name)).whole()
        except FileNotFoundError:
            pass  # another process has just removed it
        except (EntryFormatError, UnreadFileError) as error:
            log.warning("The receipt %s is ignored: %s.", self._storage.describe(name), error)
        return None

    def later_attempts_ms(self, entry: EntryName, manifest: Manifest) -> list[int]:
        """Return when the entries of later attempts were made, if they are settled."""
        instance, receipts = entry.instance_hash, self._of_task(manifest.key.task)
        later = (receipt for receipt in receipts if receipt.try_number > entry.try_number)
        return [receipt.created_ms for receipt in later if receipt.instance_hash == instance]

    @contextmanager
    def remembered(self) -> Iterator[Callable[[], None]]:
        """List each task's receipts once only, and read each receipt once, while the context is
        open.

        :returns: a function that forgets the listings; call it whenever other processes may have
            written receipts.
        """
        self._remembers = True
        try:
            yield self._listed.clear
        finally:
            self._remembers = False
            self._listed.clear()
            self._aspects.clear()

    def expire(
        self, before_ms: float, oldest_ms: Callable[[], Mapping[str, int]], task: str | None = None
    ) -> int:
        """Remove the receipts of entries from before a moment, with the proposals beside them;
        return their number.

        :param oldest_ms: returns by :meth:`.Naming.label` the time from which on receipts of a task
            stay.
        :param task: of one task only.
        """
        parsed = map(
            _ReceiptName.parse,
            self._storage.names(f"{Folder.RECEIPTS}/{task}" if task else Folder.RECEIPTS),
        )
        old = [
            receipt for receipt in parsed if receipt is not None and receipt.created_ms < before_ms
        ]
        needed_ms = oldest_ms() if old else {}
        expired = [receipt.name for receipt in old if not receipt.is_needed(needed_ms)]
        for name in expired:
            self._storage.remove(name)
        if old:
            self._remove_older(
                f"{Folder.DELIVERED}/{task}" if task else Folder.DELIVERED, before_ms
            )
        return len(expired)

    def size(self) -> int:
        """Return the bytes that all receipts take on a disk, with the kept proposals and the
        histories.
        """
        return sum(
            sum(map(_on_disk, self._storage.stored(folder).values()))
            for folder in (Folder.RECEIPTS, Folder.DELIVERED, Folder.HISTORY)
        )

    def shrink(self, excess: int, oldest_ms: Callable[[], Mapping[str, int]]) -> None:
        """Remove the oldest kept proposals, histories, then receipts until so many bytes are free.

        :param oldest_ms: as in :meth:`expire`.
        """
        needed_ms = oldest_ms()
        receipts = {
            name: size
            for name, size in self._storage.stored(Folder.RECEIPTS).items()
            if (receipt := _ReceiptName.parse(name)) is not None
            and not receipt.is_needed(needed_ms)
        }
        copies, histories = (
            self._storage.stored(Folder.DELIVERED),
            self._storage.stored(Folder.HISTORY),
        )
        log.info(
            "Making room for the outbox %s: %d bytes of its oldest receipts",
            self._storage.describe(),
            excess,
        )
        for name, size in (
            *_oldest_first(copies),
            *_oldest_first(histories),
            *_oldest_first(receipts),
        ):
            if excess <= 0:
                return
            self._storage.remove(name)
            excess -= size


def _oldest_first(sizes: dict[str, int]) -> list[tuple[str, int]]:
    """Return objects by age, each with the bytes that it takes on a disk."""
    return [
        (name, _on_disk(sizes[name]))
        for name in sorted(sizes, key=lambda name: name.rpartition("/")[2])
    ]


def _on_disk(size: int) -> int:
    return -(-size // _BLOCK_BYTES) * _BLOCK_BYTES


_LONGEST_FAILURE = 64 * 1024
_LONGEST_RECORD = 64 * 1024 * 1024


class EdgeRecord(msgspec.Struct, frozen=True):
    """Edges of one task run that succeeded and whose events were complete.

    :param run_start_ms: start of its DAG run.
    :param run_due_ms: when its DAG run was due, which orders DAG runs.
    :param edges: paths of JSON patches by the URN of the DataJob; only of DataJobs that are shared.
        The DataJobs of applications are listed even without edges.
    :param outputs: platform and name in DataHub of each dataset that was written.
    """

    key: AttemptKey
    connection_id: str
    run_start_ms: int
    run_due_ms: int
    edges: Mapping[str, tuple[str, ...]]
    outputs: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """Name of the record's object: one for all attempts of a task run."""
        connection = EntryName.connection_hash(self.connection_id)
        return f"{Folder.EDGES}/{self.key.task}/{self.run_start_ms:013d}-{self.key.instance}-{connection}.json.gz"


@dataclass(frozen=True)
class _OutdatedEdges:
    """Edges that no run writes any more.

    :param paths: of JSON patches, by the URN of the DataJob.
    :param unused_jobs: URNs of the DataJobs that no run has any more.
    :param records: of the DAG runs that wrote them.
    """

    paths: dict[str, set[str]]
    unused_jobs: list[str]
    records: list[EdgeRecord]


class EdgeRecords(_Records):
    """Records in an outbox. Methods raise OSError if its storage refuses."""

    def write(self, record: EdgeRecord, *, max_age: float) -> None:
        """Write a record durably, and remove those of the task's DAG runs that began ``max_age``
        seconds before.
        """
        self._storage.write(record.name, [_packed(record)])
        self._remove_older(
            f"{Folder.EDGES}/{record.key.task}", record.run_start_ms - max_age * 1000
        )

    def of_task(self, dag_id: str, task_id: str, connection_id: str) -> list[EdgeRecord]:
        """Return the records of a task's runs, the oldest DAG run first. Unreadable records are
        skipped and logged.
        """
        folder = f"{Folder.EDGES}/{AttemptKey(dag_id, '', task_id, -1, 1).task}"
        records = self._read(self._storage.names(folder), EdgeRecord)
        found = [record for record in records if record.connection_id == connection_id]
        return sorted(found, key=lambda record: record.run_due_ms)

    def drop(self, records: Iterable[EdgeRecord]) -> None:
        """Remove records."""
        for record in records:
            self._storage.remove(record.name)

    @staticmethod
    def outdated(
        records: Collection[EdgeRecord], run_id: str, task_runs: Mapping[str, Collection[int]]
    ) -> _OutdatedEdges:
        """Return the edges that earlier DAG runs wrote and this one did not.

        A task keeps its earlier edges unless each of its runs in this DAG run has a record: else
        its edges are not all known.

        :param records: of the DAG's tasks, for one connection.
        :param run_id: of the DAG run that has ended.
        :param task_runs: map indexes of the task runs of this DAG run, by task.
        """
        own = [record for record in records if record.key.run_id == run_id]
        recorded = {(record.key.task_id, record.key.map_index) for record in own}
        complete = {
            task_id
            for task_id, indexes in task_runs.items()
            if indexes and all((task_id, index) in recorded for index in indexes)
        }
        due_ms = min((record.run_due_ms for record in own), default=0)
        old = [
            record
            for record in records
            if record.run_due_ms < due_ms and record.key.task_id in complete
        ]
        names = {record.name for record in old}
        kept = _edges(record for record in records if record.name not in names)
        outdated = {urn: paths - kept.get(urn, set()) for urn, paths in _edges(old).items()}
        paths_of = {urn: paths for urn, paths in outdated.items() if paths}
        return _OutdatedEdges(paths_of, sorted(paths_of.keys() - kept.keys()), old)


def _packed(record: msgspec.Struct) -> bytes:
    return gzip.compress(msgspec.json.encode(record), 1, mtime=0)


class JobRecords(_Records):
    """Records in an outbox of the DataJobs that runs of a task sent to DataHub."""

    def revise(
        self, key: AttemptKey, connection_id: str, proposals: Sequence[Proposal]
    ) -> Revision:
        """Compare the proposals of an attempt with the record of its task (:func:`.revise`).

        The record names their DataJobs before they are sent. If it cannot be read or written, this
        is logged, and the next complete run retires less.
        """
        stored = self._read([_record_name(key, connection_id)], JobRecord)
        record = next(stored, JobRecord(key, connection_id))
        revision = revise(msgspec.structs.replace(record, key=key), proposals)
        if revision.before.applications != record.applications:
            _warn_of_dates(record, revision.before)
            self.keep(revision.before)
        return revision

    def commit(self, revision: Revision) -> None:
        """Record that the proposals are in the outbox."""
        if revision.after.applications != revision.before.applications:
            self.keep(revision.after)

    def keep(self, record: JobRecord) -> None:
        """Write a record durably, or remove one without applications; log why not."""
        name = _record_name(record.key, record.connection_id)
        try:
            if record.applications:
                self._storage.write(name, [_packed(record)])
            else:
                self._storage.remove(name)
        except (OSError, ValueError) as error:
            log.warning("Could not record the jobs in %s: %s", self._storage.describe(name), error)

    def all(self) -> Iterator[JobRecord]:
        """Return the records of all tasks and connections."""
        return self._read(self._storage.names(Folder.JOBS), JobRecord)


def _record_name(key: AttemptKey, connection_id: str) -> str:
    return f"{Folder.JOBS}/{key.task}/{EntryName.connection_hash(connection_id)}.json.gz"


_DATE = re.compile(r"[0-9]+")


def _warn_of_dates(earlier: JobRecord, record: JobRecord) -> None:
    """Warn if the names of a task's applications differ from run to run in their digits."""
    names = [_DATE.sub("", urn) for urn in earlier.applications]
    for urn in record.applications.keys() - earlier.applications.keys():
        if names.count(_DATE.sub("", urn)) > 1:
            log.warning(
                "The application's name changes from run to run, so that DataHub gets a new job each time: %s. "
                "Set pipeline_name to a name without the date.",
                urn,
            )
            return


class ListenerFailures(_Records):
    """Records in an outbox of how OpenLineage's listener made a task run's job fail.

    Methods raise OSError if its storage refuses.
    """

    def write(self, key: AttemptKey, run_start_ms: int, failure: str, *, max_age: float) -> None:
        """Record a failure durably, and remove those of the task's DAG runs that began ``max_age``
        seconds before.

        :param run_start_ms: start of the DAG run.
        """
        name = self._name(key, run_start_ms)
        self._storage.write(name, [failure.encode("utf-8", "replace")[:_LONGEST_FAILURE]])
        self._remove_older(f"{Folder.LISTENER_FAILURES}/{key.task}", run_start_ms - max_age * 1000)

    def of_task_run(self, key: AttemptKey, run_start_ms: int) -> str | None:
        """Return the failure in an earlier attempt of a task run; ``None`` if there was none."""
        try:
            return self._storage.read(self._name(key, run_start_ms), most=_LONGEST_FAILURE).decode(
                "utf-8", "replace"
            )
        except FileNotFoundError:
            return None

    @staticmethod
    def _name(key: AttemptKey, run_start_ms: int) -> str:
        return f"{Folder.LISTENER_FAILURES}/{key.task}/{run_start_ms:013d}-{key.instance}.txt"


_LAST_KEPT = 10
"""Records of each task that are kept however old they are, with the last green one."""
_MOST_OTHERS = 200
"""Most records of other tasks that one comparison reads."""


class _HistoryName(NamedTuple):
    name: str
    end_ms: int
    instance: str
    map_index: int
    try_number: int
    is_green: bool

    @classmethod
    def parse(cls, name: str) -> _HistoryName | None:
        match = _HISTORY.fullmatch(name.rpartition("/")[2])
        return (
            cls(name, int(match[1]), match[2], int(match[3]), int(match[4]), match[5] == "green")
            if match
            else None
        )


_HISTORY = re.compile(
    r"([0-9]{13,15})-(.+-[0-9a-f]{20})-(-1|[0-9]+)-([0-9]+)\.(green|red)\.json\.gz"
)


class Histories(_Records):
    """Fingerprints of the latest attempts in an outbox, by task. Methods raise OSError if its
    storage refuses.
    """

    @property
    def unread(self) -> int:
        """Number of fingerprints, and of folders with some, that could not be read. Each was
        logged.
        """
        return len(self._unread) + self._storage.unlisted

    def write(self, record: Fingerprint, *, max_age: float) -> None:
        """Write a fingerprint, and remove those of the task that are neither among the last ones
        nor young enough.

        :param max_age: seconds.
        """
        key, state = record.key, "green" if record.succeeded else "red"
        stem = f"{record.end_ms:013d}-{key.instance}-{key.map_index}-{key.try_number}"
        name = f"{Folder.HISTORY}/{key.task}/{stem}.{state}.json.gz"
        self._storage.write(name, [_packed(record)], sync=False)
        known = [other for other in self._names(key.task) if other.map_index == key.map_index]
        green = next((other for other in known if other.is_green), None)
        for place, other in enumerate(known):
            is_old = (
                place >= _LAST_KEPT
                and other.end_ms < record.end_ms - max_age * 1000
                and other is not green
            )
            is_same = (other.instance, other.try_number) == (
                key.instance,
                key.try_number,
            ) and other.name != name
            if is_old or is_same:
                self._storage.remove(other.name)

    def of_task(self, key: AttemptKey) -> Iterator[Fingerprint]:
        """Return the fingerprints of a task's runs, the newest first, of the same index if it is
        mapped.
        """
        names = self._names(key.task)
        return self._fingerprints(name for name in names if name.map_index == key.map_index)

    def changes(self, record: Fingerprint) -> list[str]:
        """Return at most five lines on what changed since the task's last green run before this
        attempt.
        """
        key = record.key
        names = [
            name
            for name in self._names(key.task)
            if name.is_green and name.end_ms < record.end_ms and name.instance != key.instance
        ]
        names = [name for name in names if name.map_index == key.map_index]
        greens = [*self._fingerprints(names[:1])]
        if not greens:
            return []
        lines = changes_since(record, greens)
        if record.succeeded and not lines and not record.needs_more_than(greens[0]):
            return []
        greens += self._fingerprints(names[1:MOST_COMPARED])
        # A run that succeeded without other changes is not worth so many reads.
        others = (
            self._of_others(record, greens[:FEW_GREENS]) if lines or not record.succeeded else ()
        )
        return changes_since(record, greens, others)

    def _of_others(
        self, record: Fingerprint, greens: Sequence[Fingerprint]
    ) -> Iterator[Fingerprint]:
        """Yield what other tasks did since the oldest of these runs, and the last before, those of
        the DAG first.
        """
        since_ms, prefix = (
            min(green.start_ms for green in greens),
            AttemptKey.dag_prefix(record.key.dag_id),
        )
        tasks: dict[str, list[_HistoryName]] = {}
        for name in self._names():
            if name.end_ms <= record.end_ms:
                tasks.setdefault(name.name.split("/")[1], []).append(name)
        tasks.pop(record.key.task, None)
        wanted = list[_HistoryName]()
        for task in sorted(
            tasks, key=lambda task: (not task.startswith(prefix), -tasks[task][0].end_ms)
        ):
            newer = [name for name in tasks[task] if name.end_ms >= since_ms]
            wanted += tasks[task][: len(newer) + 1]
        for name in wanted[:_MOST_OTHERS]:
            if self._storage.deadline is not None and self._storage.deadline.expired:
                return
            yield from self._fingerprints([name])

    def all(self) -> Iterator[Fingerprint]:
        """Return all fingerprints, the newest first."""
        return self._fingerprints(self._names())

    def _names(self, task: str = "") -> list[_HistoryName]:
        listed = self._storage.names(f"{Folder.HISTORY}/{task}" if task else Folder.HISTORY)
        parsed = [(name, _HistoryName.parse(name)) for name in listed]
        # Those of another version.
        self._unread |= {name for name, found in parsed if found is None}
        return sorted(
            (found for _, found in parsed if found), key=lambda name: name.end_ms, reverse=True
        )

    def _fingerprints(self, names: Iterable[_HistoryName]) -> Iterator[Fingerprint]:
        return self._read((name.name for name in names), Fingerprint)


def _edges(records: Iterable[EdgeRecord]) -> dict[str, set[str]]:
    edges: dict[str, set[str]] = {}
    for record in records:
        for urn, paths in record.edges.items():
            edges.setdefault(urn, set()).update(paths)
    return edges
