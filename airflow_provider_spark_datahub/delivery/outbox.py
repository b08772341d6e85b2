"""The outbox: proposals on the worker's disk from before the first send until they are acknowledged.

Layout below the root (names are slugs with a hash, since ids may hold anything)::

    <dag>.<task>-<hash of dag, run, task, map index>/try-00001-0001-<random>.jsonl
    quarantined/<the same>/...   what the destination will never take, with its words
    corrupt/<the same>/...       what cannot be read, with the reason beside it

An entry is JSON lines: the manifest, then one line per proposal.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from airflow_provider_spark_datahub.conversion.proposals import Proposal, ProposalFormatError, to_json_lines
from airflow_provider_spark_datahub.delivery.durable import make_folder, sync_folder, write_durably
from airflow_provider_spark_datahub.delivery.sink import Delivery, Rejection

log = logging.getLogger(__name__)

FORMAT = "spark-datahub-outbox"
FORMAT_VERSION = 1
CREATED_BY = "airflow-provider-spark-datahub"

_QUARANTINED = "quarantined"
_CORRUPT = "corrupt"


class OutboxError(OSError):
    """The outbox cannot be written: says which file and why."""


class EntryFormatError(ValueError):
    """A file in the outbox that is no entry, or not a whole one."""


class NewerFormatError(EntryFormatError):
    """An entry that a newer version of this package wrote: to be left alone, not to be thrown away."""


@dataclass(frozen=True, slots=True)
class OutboxKey:
    """The try of a task that the proposals come from.

    :param map_index: -1 where the task is not mapped.
    :param try_number: the first is 1.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    try_number: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The first line of an entry.

    :param collected: the number of proposals when the entry was made.
    :param pending: the number of proposals that the entry holds now.
    :param spark_succeeded: whether the try's Spark job ended well, so that a retry only has to deliver.
    :param connection_id: the Airflow connection they are meant for.
    :param awaits_retry: the try failed for its lineage alone: the next one delivers, and does not run Spark.
    """

    key: OutboxKey
    collected: int
    pending: int
    spark_succeeded: bool
    connection_id: str
    awaits_retry: bool = False
    created_by: str = CREATED_BY

    def to_obj(self) -> dict[str, Any]:
        """The manifest as JSON."""
        return {"format": FORMAT, "version": FORMAT_VERSION, **asdict(self)}

    @classmethod
    def from_obj(cls, obj: Any) -> Manifest:
        """The manifest that :meth:`to_obj` wrote.

        :raises NewerFormatError: a later version of the format.
        :raises EntryFormatError: anything else.
        """
        if not isinstance(obj, dict) or obj.get("format") != FORMAT:
            raise EntryFormatError("its first line is no manifest of an outbox")
        if obj.get("version") != FORMAT_VERSION:
            raise NewerFormatError(f"it has version {obj.get('version')!r} of the format, not {FORMAT_VERSION}")
        fields = {name: value for name, value in obj.items() if name not in ("format", "version")}
        try:
            return cls(**{**fields, "key": OutboxKey(**fields["key"])})
        except (KeyError, TypeError) as error:
            raise EntryFormatError(f"its manifest has other fields: {error}") from error


@dataclass(frozen=True, slots=True)
class Entry:
    """The proposals of one try that wait for their delivery.

    :param path: the entry's file.
    :param root: the outbox it belongs to.
    """

    path: Path
    root: Path
    manifest: Manifest

    def proposals(self) -> tuple[Proposal, ...]:
        """What the entry holds, in order.

        :raises EntryFormatError: the file changed since the entry was listed, or cannot be read as one.
        :raises OSError: the file is gone, or cannot be read at all.
        """
        return _read(self.path)[1]

    def settle(self, delivery: Delivery) -> Entry | None:
        """Record what became of the entry's proposals.

        What was rejected goes to the quarantine, what is pending stays. Durable; a crash on the way leaves more
        behind, never less.

        :param delivery: the result of delivering *all* of :meth:`proposals`.
        :returns: the entry as it is now; None where nothing of it is pending.
        :raises ValueError: ``delivery`` does not account for each proposal of the entry.
        :raises OutboxError: the disk refuses.
        """
        accounted = delivery.delivered + len(delivery.rejected) + len(delivery.pending)
        if accounted != self.manifest.pending:
            raise ValueError(f"a delivery of {accounted} proposals cannot settle {self.path}: {self.manifest.pending}")
        try:
            if delivery.rejected:
                self._quarantine(delivery.rejected)
            if not delivery.pending:
                self.path.unlink(missing_ok=True)
                sync_folder(self.path.parent)
                return None
            manifest = self._manifest_of(len(delivery.pending))
            if manifest != self.manifest:
                write_durably(self.path, _lines(manifest, delivery.pending))
            return Entry(self.path, self.root, manifest)
        except OSError as error:
            raise OutboxError(f"Cannot settle the outbox's entry {self.path}: {error.strerror or error}.") from error

    def await_retry(self) -> Entry:
        """Record, durably, that the task's next try only has to deliver this entry.

        :raises EntryFormatError: the file changed since the entry was listed, or cannot be read as one.
        :raises OSError: the disk refuses.
        """
        manifest = replace(self.manifest, awaits_retry=True)
        write_durably(self.path, _lines(manifest, self.proposals()))
        return replace(self, manifest=manifest)

    def _manifest_of(self, pending: int) -> Manifest:
        return replace(self.manifest, pending=pending)

    def _quarantine(self, rejected: Sequence[Rejection]) -> None:
        lines = [_dump({**self._manifest_of(0).to_obj(), "rejected": len(rejected)})]
        lines += [_dump({"reason": one.reason, "proposal": one.proposal.to_obj()}) for one in rejected]
        content = b"".join(lines)
        # Named by content: to settle again after a crash writes the same file.
        name = f"{self.path.stem}-{hashlib.sha256(content).hexdigest()[:12]}.jsonl"
        write_durably(self.root / _QUARANTINED / self.path.parent.name / name, [content])


class Outbox:
    """Proposals that wait for their delivery, below one folder of a local disk.

    :param root: the folder; made where it is missing. It must be this package's alone.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, key: OutboxKey, proposals: Sequence[Proposal], *, spark_succeeded: bool, connection_id: str) -> Entry:
        """Write an entry durably: when this returns, a crash of the machine does not lose it.

        A second ``put`` of the same try makes a second entry; the first stays until it is settled.

        :raises OutboxError: the disk is full, the folder is read-only ...
        """
        manifest = Manifest(key, len(proposals), len(proposals), spark_succeeded, connection_id)
        folder = self._root / _folder_name(key.dag_id, key.run_id, key.task_id, key.map_index)
        try:
            make_folder(folder)
            earlier = [match for path in folder.iterdir() if (match := _ENTRY_NAME.fullmatch(path.name))]
            number = 1 + max((int(match["number"]) for match in earlier), default=0)
            # The random part keeps two processes apart that take the same number.
            name = f"try-{key.try_number:05d}-{number:04d}-{secrets.token_hex(4)}.jsonl"
            write_durably(folder / name, _lines(manifest, proposals))
        except OSError as error:
            raise OutboxError(f"Cannot write to the outbox {folder}: {error.strerror or error}.") from error
        return Entry(folder / name, self._root, manifest)

    def entries(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> list[Entry]:
        """The entries of a task instance, the oldest try first.

        DataHub keeps what arrives last. So that an older try never overwrites what a newer one delivered, deliver
        them in this order and stop at the first of which something stays pending.

        Files that cannot be read as entries are moved to ``corrupt/`` and logged.
        """
        return self._entries_in(self._root / _folder_name(dag_id, run_id, task_id, map_index))

    def all_entries(self) -> list[Entry]:
        """The entries of every task instance, those of one next to each other, its oldest try first."""
        if not self._root.is_dir():
            return []
        folders = sorted(path for path in self._root.iterdir() if path.name not in (_QUARANTINED, _CORRUPT))
        return [entry for folder in folders for entry in self._entries_in(folder)]

    def _entries_in(self, folder: Path) -> list[Entry]:
        if not folder.is_dir():
            return []
        found = sorted((path for path in folder.iterdir() if _ENTRY_NAME.fullmatch(path.name)), key=_age)
        return [entry for path in found if (entry := self._entry(path)) is not None]

    def _entry(self, path: Path) -> Entry | None:
        try:
            return Entry(path, self._root, _read(path)[0])
        except NewerFormatError as error:
            log.warning("The outbox's entry %s is left alone: %s.", path, error)
        except EntryFormatError as error:
            self._set_aside(path, str(error))
        except OSError as error:  # also: another process has just delivered it
            log.warning("The outbox's entry %s cannot be read: %s.", path, error.strerror or error)
        return None

    def _set_aside(self, path: Path, reason: str) -> None:
        aside = self._root / _CORRUPT / path.parent.name / path.name
        try:
            write_durably(aside.with_suffix(".reason.txt"), [f"{reason}\n".encode("utf-8", "backslashreplace")])
            path.rename(aside)
            sync_folder(aside.parent)
            sync_folder(path.parent)
        except OSError as error:
            log.warning("The outbox's entry %s is corrupt (%s) and cannot be moved: %s.", path, reason, error)
        else:
            log.warning("The outbox's entry %s is corrupt (%s): moved to %s.", path, reason, aside)


_ENTRY_NAME = re.compile(r"try-(?P<try>\d+)-(?P<number>\d+)-[0-9a-f]{8}\.jsonl")


def _age(path: Path) -> tuple[int, int, str]:
    match = _ENTRY_NAME.fullmatch(path.name)
    return (int(match["try"]), int(match["number"]), path.name) if match else (0, 0, path.name)


def _folder_name(dag_id: str, run_id: str, task_id: str, map_index: int) -> str:
    identity = json.dumps([dag_id, run_id, task_id, map_index]).encode()
    return f"{_slug(dag_id)}.{_slug(task_id)}-{hashlib.sha256(identity).hexdigest()[:20]}"


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[:40] or "_"


def _dump(obj: Any) -> bytes:
    return json.dumps(obj, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def _lines(manifest: Manifest, proposals: Sequence[Proposal]) -> Iterator[bytes]:
    yield _dump(manifest.to_obj())
    for line in to_json_lines(proposals):
        yield line.encode("utf-8", "backslashreplace")


def _read(path: Path) -> tuple[Manifest, tuple[Proposal, ...]]:
    with path.open("rb") as file:
        lines = file.read().split(b"\n")
    try:
        manifest = Manifest.from_obj(json.loads(lines[0]))
        proposals = tuple(Proposal.from_obj(json.loads(line)) for line in lines[1:-1])
    except ProposalFormatError as error:
        raise EntryFormatError(str(error)) from error
    except ValueError as error:
        if isinstance(error, EntryFormatError):
            raise
        raise EntryFormatError(f"a line of it is no JSON: {error}") from error
    if lines[-1] or len(proposals) != manifest.pending:
        raise EntryFormatError(f"it holds {len(proposals)} proposals where its manifest says {manifest.pending}")
    return manifest, proposals
