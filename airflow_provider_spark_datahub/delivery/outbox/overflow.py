"""Overflow of an outbox: records of attempts that its storage refused, in a folder on another disk."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.outbox.format import EntryName, Folder
from airflow_provider_spark_datahub.delivery.outbox.lease import is_gone, machine, process_start
from airflow_provider_spark_datahub.delivery.outbox.storage import LocalStorage
from airflow_provider_spark_datahub.files import PRIVATE_ACCESS, FileAccess, UnreadFileError

log = logging.getLogger(__name__)

_at_work = set[str]()
"""Paths of the records that this process works on, through any overflow."""
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
        """Return whether the process has ended, on this machine, or gave the record up."""
        if self.machine != _machine():
            return False
        return self.process == 0 or is_gone(machine(), self.process, self.started or None)


class Overflow:
    """Records of attempts that began while the outbox was full or away.

    An unfinished entry holds no proposals, but it names the place of the attempt's events, so that they can be
    converted later. The overflow is beside the event files: if that disk is full as well, the job has written no events
    either. A record belongs to the process that its name contains. When that process has ended, another one renames
    the record, which only one process can do, and moves it to the outbox. A step that was left behind may give a record
    to this process later: it is moved as well. Methods raise OSError if the disk refuses.

    :param folder: for one outbox alone; made when it is first needed.
    """

    def __init__(self, folder: Path, access: FileAccess = PRIVATE_ACCESS) -> None:
        self._folder = folder.name
        self._storage = LocalStorage(folder.parent, access)
        self._own = set[EntryName]()
        """Entries that have a record for which this overflow is at work."""
        self._warned = False

    @classmethod
    def of(cls, location: str, events_folder: Path, access: FileAccess = PRIVATE_ACCESS) -> Overflow:
        """Return the overflow of the outbox at a location.

        :param events_folder: folder of the event files on this machine.
        """
        return cls(events_folder / ".unfinished" / hashlib.sha256(location.encode()).hexdigest()[:12], access)

    def set_deadline(self, deadline: Deadline | None) -> None:
        """Set the deadline of the outbox's user."""
        self._storage.deadline = deadline

    def path(self, name: EntryName) -> str:
        """Return the path of this process's record of an entry."""
        return self._storage.describe(self._name(name, _Owner.this()))

    def __contains__(self, name: EntryName) -> bool:
        """Return whether this process has a record of an entry here."""
        return name in self._own

    def keep(self, name: EntryName, line: bytes) -> None:
        """Write a record durably."""
        self._storage.write(self._name(name, _Owner.this()), [line])
        self._begin_work(name)
        log.debug("Kept beside the outbox: %s", self.path(name))

    def remove(self, name: EntryName) -> None:
        """Remove this process's record of an entry, if there is one."""
        if name in self._own:
            self._storage.remove(self._name(name, _Owner.this()))
            self._end_work(name)

    def release(self, name: EntryName) -> None:
        """Give up this process's record of an entry, if there is one: any process may move it to the outbox."""
        if name in self._own:
            with suppress(OSError):  # this process takes it again later, or others when it has ended
                self._storage.move(self._name(name, _Owner.this()), self._name(name, _Owner.nobody()))
            self._end_work(name)

    def _begin_work(self, name: EntryName) -> None:
        self._own.add(name)
        _at_work.add(self.path(name))

    def _end_work(self, name: EntryName) -> None:
        self._own.discard(name)
        _at_work.discard(self.path(name))

    def take_back(self, put: Callable[[EntryName, bytes], None]) -> None:
        """Move the records of processes that have ended to the outbox, by age, until the outbox refuses one.

        Failures are only logged, since the entries in the outbox do not depend on these records.

        :param put: writes one of them there, and raises OSError if the outbox refuses.
        """
        try:
            for name, content in self._orphans():
                self._begin_work(name)
                try:
                    put(name, content)
                    self.remove(name)
                except OSError as error:
                    self._warn(
                        "The outbox refuses the records of attempts. They stay beside it, the oldest in %s: %s",
                        self.path(name),
                        error,
                    )
                    return
                finally:
                    self.release(name)
        except OSError as error:
            self._warn("Attempts beside the outbox cannot be read: %s", error)

    def _orphans(self) -> Iterator[tuple[EntryName, bytes]]:
        """Take over records; yield their entries' names and content."""
        this = _Owner.this()
        for name, owner in self._listed():
            taken = self._name(name, this)
            if self._storage.describe(taken) in _at_work if owner == this else not owner.is_gone:
                continue
            try:
                if owner != this:
                    self._storage.move(self._name(name, owner), taken)
                content = self._storage.read(taken)
            except FileNotFoundError:
                log.debug("Another process has just taken the record of %s", name)
            except UnreadFileError as error:
                self._warn("A record beside the outbox is left alone: %s.", error)
            else:
                yield name, content

    def _warn(self, text: str, *details: object) -> None:
        """Log the first problem as a warning, further ones at DEBUG."""
        log.log(logging.DEBUG if self._warned else logging.WARNING, text, *details)
        self._warned = True

    def names(self) -> list[EntryName]:
        """Return the names of all entries that have a record, by age."""
        return [name for name, _ in self._listed()]

    def _listed(self) -> list[tuple[EntryName, _Owner]]:
        records = []
        with suppress(NotADirectoryError):
            for path in self._storage.names(self._folder):
                match = _NAME.fullmatch(path.removeprefix(f"{self._folder}/"))
                name = EntryName.parse(f"{Folder.PENDING}/{match[1]}/{match[2]}.jsonl") if match else None
                if match is not None and name is not None:
                    records.append((name, _Owner(match[3], int(match[4]), int(match[5]))))
        return sorted(records, key=lambda record: (record[0].created_ms, record[0]))

    def _name(self, name: EntryName, owner: _Owner) -> str:
        own = f"{owner.machine}-{owner.process}-{owner.started}"
        return f"{self._folder}/{name.instance}~{name.stem}~{own}.jsonl"


def _machine() -> str:
    return hashlib.sha256(machine().encode()).hexdigest()[:12]
