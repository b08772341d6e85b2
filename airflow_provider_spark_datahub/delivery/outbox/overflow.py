"""Overflow of an outbox: records of attempts that its storage refused, in a folder on another disk."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.outbox.format import PENDING, EntryName
from airflow_provider_spark_datahub.delivery.outbox.lease import is_gone, machine, process_start
from airflow_provider_spark_datahub.delivery.outbox.storage import write_in_time
from airflow_provider_spark_datahub.files import PRIVATE_ACCESS, FileAccess, open_regular

log = logging.getLogger(__name__)

_NAME = re.compile(r"(.+)~(try-.+)~([0-9a-f]{12})-([0-9]+)-([0-9]+)\.jsonl")


class _Owner(msgspec.Struct, frozen=True):
    """Process that works on a record; its number alone may belong to another process one day."""

    machine: str
    process: int
    started: int

    @classmethod
    def this(cls) -> _Owner:
        """Return this process."""
        return cls(_machine(), os.getpid(), process_start(os.getpid()) or 0)

    @classmethod
    def nobody(cls) -> _Owner:
        """Return the owner of a record on which no process works."""
        return cls(_machine(), 0, 0)

    @property
    def is_gone(self) -> bool:
        """Whether the process has ended, on this machine, or gave the record up."""
        if self.machine != _machine():
            return False
        return self.process == 0 or is_gone(machine(), self.process, self.started or None)


class Overflow:
    """Records of attempts that began while the outbox was full or away.

    An unfinished entry holds no proposals, but it says where the attempt's events are, so that they can be converted
    one day. The folder is that of the event files: if it is full as well, the job has written no events either. A
    record belongs to the process that its name contains. When that has ended, another one renames it, which only one
    can do, and moves it to the outbox.

    :param folder: for one outbox alone; made when it is first needed.
    """

    def __init__(self, folder: Path, access: FileAccess = PRIVATE_ACCESS) -> None:
        self._folder = folder
        self._access = access

    @classmethod
    def of(cls, location: str, events_folder: Path, access: FileAccess = PRIVATE_ACCESS) -> Overflow:
        """Return the overflow of the outbox at a location.

        :param events_folder: folder of the event files on this machine.
        """
        return cls(events_folder / ".unfinished" / hashlib.sha256(location.encode()).hexdigest()[:12], access)

    def path(self, name: EntryName) -> Path:
        """Return the path of this process's record of an entry."""
        return self._path(name, _Owner.this())

    def keep(self, name: EntryName, line: bytes, deadline: Deadline | None) -> None:
        """Write a record durably.

        :raises OSError: if this disk refuses it, too.
        """
        write_in_time(str(self.path(name)), [line], deadline, self._access)
        log.debug("Kept beside the outbox: %s", self.path(name))

    def remove(self, name: EntryName) -> None:
        """Remove this process's record of an entry, if there is one.

        :raises OSError: if the disk refuses.
        """
        self.path(name).unlink(missing_ok=True)

    def release(self, name: EntryName) -> None:
        """Give up this process's record of an entry, so that any process may move it to the outbox."""
        with suppress(OSError):  # others take it when this process has ended
            self.path(name).replace(self._path(name, _Owner.nobody()))

    def orphans(self) -> Iterator[tuple[EntryName, bytes]]:
        """Take over the records of processes that have ended; yield their entries' names and content, by age."""
        this = _Owner.this()
        for name, owner, file in self._listed():
            if owner == this or not owner.is_gone:
                continue
            with suppress(FileNotFoundError):  # another process was faster
                taken = file.replace(self._path(name, this))
                with open_regular(taken) as record:
                    yield name, record.read()

    def names(self) -> list[EntryName]:
        """Return the names of all entries that have a record, by age."""
        return [name for name, _, _ in self._listed()]

    def _listed(self) -> list[tuple[EntryName, _Owner, Path]]:
        try:
            files = [*self._folder.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        records = []
        for file in files:
            match = _NAME.fullmatch(file.name)
            name = EntryName.parse(f"{PENDING}/{match[1]}/{match[2]}.jsonl") if match else None
            if match is not None and name is not None:
                records.append((name, _Owner(match[3], int(match[4]), int(match[5])), file))
        return sorted(records, key=lambda record: (record[0].created_ms, record[0]))

    def _path(self, name: EntryName, owner: _Owner) -> Path:
        own = f"{owner.machine}-{owner.process}-{owner.started}"
        return self._folder / f"{name.instance}~{name.stem}~{own}.jsonl"


def _machine() -> str:
    return hashlib.sha256(machine().encode()).hexdigest()[:12]
