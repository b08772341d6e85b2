"""Where an outbox keeps its objects: a flat space of names, as a local folder or an object store has it.

The storage of an outbox in an object store, through a file system of the kind that fsspec defines.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from airflow_provider_spark_datahub.delivery.deadline import Deadline, within
from airflow_provider_spark_datahub.delivery.durable import make_folder, sync_folder, write_durably
from airflow_provider_spark_datahub.delivery.failure import ThirdPartyError, third_party


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


T = TypeVar("T")

REQUEST_SECONDS = 10.0
"""How long the store may take for one request, with its client's own repetitions."""
LEAST_SECONDS = 0.5
"""How long one request may take even where less is left until the deadline."""


class FileSystem(Protocol):
    """What is used of fsspec's ``AbstractFileSystem``; paths are without the protocol."""

    def invalidate_cache(self, path: str) -> None:
        """Forget listings: other processes write here as well."""

    def find(self, path: str, *, detail: bool) -> Mapping[str, Mapping[str, Any]]:
        """All objects below a path, with their sizes."""

    def cat_file(self, path: str) -> bytes:
        """The content of an object."""

    def pipe_file(self, path: str, value: bytes) -> None:
        """Write an object as a whole."""

    def rm_file(self, path: str) -> None:
        """Remove an object."""


class ObjectStorage(OutboxStorage):
    """Objects below a prefix. The store must show in a listing what was written before it began, as S3 does.

    Each request ends in time: within :data:`REQUEST_SECONDS`, and half of what is left until :attr:`deadline`.

    :param root: bucket and prefix.
    :param uri: the same for people, without secrets.
    """

    def __init__(self, file_system: FileSystem, root: str, uri: str) -> None:
        self._fs = file_system
        self._root = root.rstrip("/")
        self._uri = uri.rstrip("/")

    def describe(self, name: str = "") -> str:
        """The URI."""
        return f"{self._uri}/{name}" if name else self._uri

    def stored(self, folder: str) -> list[Stored]:
        """All objects below ``folder``."""
        prefix = f"{self._root}/{folder}"

        def find() -> Mapping[str, Mapping[str, Any]]:
            self._fs.invalidate_cache(prefix)
            return self._fs.find(prefix, detail=True)

        try:
            found = self._request(folder, find)
        except FileNotFoundError:
            return []
        names = ((path.removeprefix(f"{self._root}/"), info) for path, info in found.items())
        return sorted(
            (Stored(name, int(info.get("size") or 0)) for name, info in names if name.startswith(f"{folder}/")),
            key=lambda one: one.name,
        )

    def read(self, name: str) -> bytes:
        """The content of an object."""
        return self._request(name, lambda: self._fs.cat_file(f"{self._root}/{name}"))

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """One PUT, or one multipart upload: the object appears when it is complete."""
        content = b"".join(chunks)
        self._request(name, lambda: self._fs.pipe_file(f"{self._root}/{name}", content))

    def remove(self, name: str) -> None:
        """One DELETE."""
        with suppress(FileNotFoundError):
            self._request(name, lambda: self._fs.rm_file(f"{self._root}/{name}"))

    def _request(self, name: str, call: Callable[[], T]) -> T:
        answer: list[T] = []
        seconds = REQUEST_SECONDS
        if self.deadline is not None:
            seconds = min(seconds, max(LEAST_SECONDS, self.deadline.remaining() / 2))
        try:
            in_time = within(Deadline.after(seconds), lambda: answer.append(third_party(call, OSError)))
        except ThirdPartyError as error:
            # Each store's client has errors of its own, and not all of them are OSErrors.
            raise OSError(f"{self.describe(name)}: {error}") from error
        if not in_time:
            raise TimeoutError(f"{self.describe(name)}: no answer within {seconds:.1f} s")
        return answer[0]
