"""Where an outbox keeps its objects: a flat space of names, as a local folder or an object store has it."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.durable import make_folder, sync_folder, write_durably


@dataclass(frozen=True, slots=True)
class Stored:
    """An object that is there. :param size: in bytes."""

    name: str
    size: int


class OutboxStorage(ABC):
    """What an outbox needs of the place that it is in.

    Names are relative, with ``/`` between their parts. An object appears whole or not at all, and what was written
    before a listing began is in the listing: a POSIX folder and S3 promise both, and the leases rest on it.

    :ivar deadline: the moment until which whoever uses it has time, where there is one.
    """

    deadline: Deadline | None = None

    @abstractmethod
    def describe(self, name: str = "") -> str:
        """The path or URI of an object, or of the whole; for people."""

    @abstractmethod
    def stored(self, folder: str) -> list[Stored]:
        """All objects below ``folder``, at any depth, in the order of their names; none where there is no such folder.

        :raises OSError: the place cannot be read.
        """

    @abstractmethod
    def read(self, name: str) -> bytes:
        """The content of an object.

        :raises FileNotFoundError: there is none of this name (any more).
        :raises OSError: the place cannot be read.
        """

    @abstractmethod
    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Make the object hold ``chunks``, replacing what it held. When this returns, a crash does not lose it.

        :raises OSError: the place is full, read-only ...; the object is as it was.
        """

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove an object, where it is there. A crash of the machine may bring it back.

        :raises OSError: the place refuses.
        """

    def move(self, name: str, target: str) -> None:
        """Move an object; a crash on the way leaves it in both places.

        :raises OSError: the place refuses.
        """
        self.write(target, [self.read(name)])
        self.remove(name)


class LocalStorage(OutboxStorage):
    """A folder of a POSIX file system, which may be shared by hosts. It must be this package's alone.

    :param root: made where it is missing.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def describe(self, name: str = "") -> str:
        """The path."""
        return str(self._root / name)

    def stored(self, folder: str) -> list[Stored]:
        """All files below ``folder``; drafts of writes under way, whose names start with a dot, are left out."""
        return sorted(self._walk(folder), key=lambda one: one.name)

    def _walk(self, folder: str) -> Iterator[Stored]:
        # A folder or a file may go while it is listed: another process has settled it.
        with suppress(FileNotFoundError), os.scandir(self._root / folder) as listed:
            for one in listed:
                name = f"{folder}/{one.name}"
                if one.is_dir(follow_symlinks=False):
                    yield from self._walk(name)
                elif not one.name.startswith("."):
                    with suppress(FileNotFoundError):
                        yield Stored(name, one.stat().st_size)

    def read(self, name: str) -> bytes:
        """The bytes of a file."""
        return (self._root / name).read_bytes()

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Written beside, synced, renamed, and the folder synced."""
        write_durably(self._root / name, chunks)

    def remove(self, name: str) -> None:
        """Remove a file, and its folders where they are empty then."""
        path = self._root / name
        path.unlink(missing_ok=True)
        with suppress(OSError):
            while path.parent != self._root:
                path = path.parent
                path.rmdir()

    def move(self, name: str, target: str) -> None:
        """Rename."""
        goal = self._root / target
        make_folder(goal.parent)
        (self._root / name).replace(goal)
        sync_folder(goal.parent)
        self.remove(name)
