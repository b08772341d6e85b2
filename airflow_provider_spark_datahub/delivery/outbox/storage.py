"""Storage of an outbox: objects with names, in a local folder or, through fsspec, in an object
store.

Tests: ``tests/delivery/test_outbox_storage.py``.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import stat
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from airflow_provider_spark_datahub.delivery.deadline import Deadline, step_in_time
from airflow_provider_spark_datahub.delivery.failure import LibraryError, call_library
from airflow_provider_spark_datahub.delivery.outbox.processes import is_of_nobody, mark
from airflow_provider_spark_datahub.foundation.files import (
    PRIVATE_ACCESS,
    FileAccess,
    TooLargeFileError,
    make_folder,
    open_regular,
    refusal,
    sync_path,
    write_durably,
)

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_Method = TypeVar("_Method", bound=Callable[..., Any])

_MOST_BYTES = 64 * 1024 * 1024
"""Longest first line, and largest object that needs no limit of its own. An outbox of 1 GB may hold
a single entry, and its receipt names each of its proposals in a sixteenth of the proposal's size.
"""


class OutboxError(OSError):
    """Outbox that cannot be written, or is full; the message names the object and the reason."""


@contextmanager
def storage_errors(what: str, *subjects: object) -> Iterator[None]:
    """Raise other errors of the storage as OutboxError. :param subjects: put into ``what`` if there
    is an error.
    """
    try:
        yield
    except OutboxError:
        raise
    except OSError as error:
        raise OutboxError(f"Cannot {what.format(*subjects)}: {refusal(error)}.") from error


class OutboxStorage(ABC):
    """Place where an outbox keeps its objects, by relative names with ``/`` between their parts.

    An object appears whole or not at all, and a listing contains everything that was written before
    it began: a POSIX folder and S3 promise both, and the leases rely on it. Methods raise OSError
    if the storage refuses or hangs.

    :ivar deadline: of the storage's user: no step takes much longer (:func:`.step_in_time`).
    """

    deadline: Deadline | None = None
    unlisted = 0
    """Number of folders that could not be listed."""

    def now_ms(self) -> int:
        """Return this host's time in ms since the epoch. Hosts that share an outbox need clocks
        that agree (NTP).
        """
        return round(time.time() * 1000)

    @abstractmethod
    def describe(self, name: str = "") -> str:
        """Return the path or URI of an object, or of the whole storage, for people."""

    @abstractmethod
    def stored(self, folder: str) -> dict[str, int]:
        """Return the sizes in bytes of all objects below ``folder``, at any depth, by name and in
        order.
        """

    def names(self, folder: str) -> list[str]:
        """Return the names of :meth:`stored`, which may cost less."""
        return list(self.stored(folder))

    @abstractmethod
    def read(self, name: str, *, most: int = _MOST_BYTES) -> bytes:
        """Return the content of an object.

        :param most: the largest size, in bytes.
        :raises FileNotFoundError: if there is none of this name (any more).
        :raises TooLargeFileError: if it is larger.
        """

    def first_line(self, name: str) -> tuple[bytes, int]:
        """Return the first line of an object, with its newline, and the size of the whole object in
        bytes.

        A line that is too long is cut.

        :raises FileNotFoundError: as :meth:`read`.
        """
        content = self.read(name)
        line, newline, _ = content.partition(b"\n")
        return line + newline, len(content)

    @abstractmethod
    def write(self, name: str, chunks: Iterable[bytes], *, sync: bool = True) -> None:
        """Replace the content of an object by ``chunks``. When this returns, a crash does not lose
        it.

        If it fails, e.g. since the storage is full, the object is unchanged.

        :param sync: False if a crash of the machine may lose or damage it, or until :meth:`sync` is
            called.
        """

    def sync(self, names: Sequence[str]) -> None:  # noqa: B027 (an object store has nothing to do)
        """Make objects durable that were written without ``sync``; many of them cost little more
        than one.
        """

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove an object if it exists. A crash of the machine may bring it back."""

    def free_bytes(self) -> int:
        """Return how many bytes are free on the disk; an object store has room."""
        return sys.maxsize

    def remove_drafts(self) -> int:
        """Remove what killed writers left, as the listings since the last call show; return the
        bytes of the rest.
        """
        return 0

    def move(self, name: str, target: str) -> None:
        """Move an object; a crash on the way leaves it in both places."""
        self.write(target, [self.read(name)])
        self.remove(name)


_DRAFT = re.compile(r"\.([0-9a-f]{12}-[0-9]{1,10}-[0-9]{1,20})\.draft$")
_OLD_DRAFT_MS = 3_600_000
"""Age of a draft that nobody works on any more, wherever that may be: each write has a much shorter
deadline.
"""
_SYNC_THREADS = 16


def _in_time(use: _Method) -> _Method:
    """Make a method that uses the disk one step, which ends even if the disk hangs."""

    @wraps(use)
    def step(self: LocalStorage, *args: Any, **options: Any) -> Any:
        call = partial(use, self, *args, **options)
        if self.deadline is None:
            return call()
        return step_in_time(self._root, self.deadline, call)

    return cast(_Method, step)


class LocalStorage(OutboxStorage):
    """Folder of a POSIX file system, which hosts may share. Nothing else may use it.

    :param root: made if it is missing.
    :param access: of files and folders.
    """

    def __init__(self, root: Path, access: FileAccess = PRIVATE_ACCESS) -> None:
        self._access = access
        # Text, since making a Path takes longer than most system calls.
        self._root = os.fspath(root)
        self._drafts = set[str]()
        """Unfinished files and empty folders, as the latest listings say."""

    def describe(self, name: str = "") -> str:
        """Return the path."""
        return f"{self._root}/{name}" if name else self._root

    @_in_time
    def stored(self, folder: str) -> dict[str, int]:
        """Return all files below ``folder``, except drafts, whose names start with a dot."""
        sizes = {}
        for name, child in self._walk(folder):
            # Another process may settle an entry during the listing, so that its file is gone.
            with suppress(FileNotFoundError):
                status = child.stat(follow_symlinks=False)
                # A file with holes takes less than its size.
                is_small = status.st_size <= _MOST_BYTES
                sizes[name] = (
                    status.st_size if is_small else min(status.st_size, status.st_blocks * 512)
                )
        return {name: sizes[name] for name in sorted(sizes)}

    @_in_time
    def names(self, folder: str) -> list[str]:
        """Return the same without asking for each file's size."""
        return sorted([name for name, _ in self._walk(folder)])

    def _walk(self, folder: str) -> list[tuple[str, os.DirEntry[str]]]:
        try:
            found, folders = self._list(folder)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            # Something else is in its place: what other folders hold is delivered nevertheless.
            log.warning("%s is not a folder: %s.", self.describe(folder), error.strerror or error)
            return []
        for subfolder in folders:  # an outbox has no deeper ones
            try:
                found += self._list(subfolder)[0]
            except OSError as error:
                # A folder that cannot be listed must not hide the others.
                self.unlisted += 1
                log.warning(
                    "The folder %s cannot be listed: %s.",
                    self.describe(subfolder),
                    error.strerror or error,
                )
        return found

    def _list(self, folder: str) -> tuple[list[tuple[str, os.DirEntry[str]]], list[str]]:
        """Return the files and the folders in a folder."""
        found, folders, is_empty = [], [], True
        # Another process may settle a folder's entries during the listing, so that the folder is
        # gone.
        with suppress(FileNotFoundError), os.scandir(f"{self._root}/{folder}") as listing:
            for child in listing:
                is_empty = False
                if child.is_dir(follow_symlinks=False):
                    folders.append(f"{folder}/{child.name}")
                elif not child.name.startswith("."):
                    found.append((f"{folder}/{child.name}", child))
                elif child.name.endswith(".draft"):
                    self._drafts.add(f"{folder}/{child.name}")
            if is_empty and folder:
                self._drafts.add(folder)
        return found, folders

    @_in_time
    def remove_drafts(self) -> int:
        """Remove drafts whose process has ended; of other machines, and empty folders, those older
        than an hour.
        """
        with suppress(OSError):
            self._list("")
        drafts, self._drafts, size = self._drafts, set(), 0
        for path in (f"{self._root}/{name}" for name in drafts):
            with suppress(OSError):
                status, marked = os.stat(path, follow_symlinks=False), _DRAFT.search(path)
                is_folder = stat.S_ISDIR(status.st_mode)
                is_old = self.now_ms() - status.st_mtime * 1000 > _OLD_DRAFT_MS
                if not (is_old or (marked and is_of_nobody(marked[1]))):
                    size += 0 if is_folder else status.st_size
                elif is_folder:
                    # An administrator's folder has another owner or mode.
                    if (
                        status.st_uid == os.geteuid()
                        and not (status.st_mode ^ self._access.folder) & 0o777
                    ):
                        os.rmdir(path)
                else:
                    os.unlink(path)
                    self._remove_empty_folders(path)
        return size

    @_in_time
    def read(self, name: str, *, most: int = _MOST_BYTES) -> bytes:
        """Return the bytes of a file. Anything but a regular file raises an OSError, and is not
        opened.
        """
        path = f"{self._root}/{name}"
        with open_regular(path) as file:
            TooLargeFileError.check(path, os.fstat(file.fileno()).st_size, most)
            return file.read()

    @_in_time
    def first_line(self, name: str) -> tuple[bytes, int]:
        """Return the first line of a file, and the file's size, without reading the rest."""
        with open_regular(f"{self._root}/{name}") as file:
            return file.readline(_MOST_BYTES), os.fstat(file.fileno()).st_size

    def write(self, name: str, chunks: Iterable[bytes], *, sync: bool = True) -> None:
        """Write a file beside it, sync it, rename it, and sync the folder."""
        left_behind = threading.Event()

        def rename(draft: str, goal: str) -> None:
            if left_behind.is_set():
                raise TimeoutError("the disk was too slow")  # something newer may be in its place
            os.replace(draft, goal)

        try:
            self._write(f"{self._root}/{name}", chunks, rename, sync=sync)
        except TimeoutError:
            left_behind.set()
            raise

    @_in_time
    def _write(
        self, path: str, chunks: Iterable[bytes], rename: Callable[[str, str], None], *, sync: bool
    ) -> None:
        write_durably(
            path, chunks, sync=sync, access=self._access, rename=rename, mark=f".{mark()}"
        )

    @_in_time
    def free_bytes(self) -> int:
        """Return how many bytes are free on the disk."""
        try:
            disk = os.statvfs(self._root)
        except FileNotFoundError:  # the first object makes the folder
            return sys.maxsize
        return disk.f_bavail * disk.f_frsize

    @_in_time
    def sync(self, names: Sequence[str]) -> None:
        """Sync files and their folders at the same time: the file system writes its journal once
        for many of them.
        """
        paths = [f"{self._root}/{name}" for name in names]
        # Files first, then the folders that hold their names, up to the root.
        while paths and paths != [self._root]:
            _sync_at_once(paths)
            paths = [*dict.fromkeys(os.path.dirname(path) for path in paths)]

    @_in_time
    def remove(self, name: str) -> None:
        """Remove a file, and then its empty folders."""
        path = f"{self._root}/{name}"
        with suppress(FileNotFoundError):
            os.unlink(path)
        self._remove_empty_folders(path)

    def _remove_empty_folders(self, path: str) -> None:
        with suppress(OSError):
            while (path := os.path.dirname(path)) != self._root:
                os.rmdir(path)

    @_in_time
    def move(self, name: str, target: str) -> None:
        """Rename a file."""
        path, goal = f"{self._root}/{name}", f"{self._root}/{target}"
        make_folder(os.path.dirname(goal), access=self._access)
        os.replace(path, goal)
        sync_path(os.path.dirname(goal))
        # If this step was left behind while it synced, something newer may be at the old path.
        self._remove_empty_folders(path)


def _sync_at_once(paths: Sequence[str]) -> None:
    """Sync files or folders at the same time."""
    try:
        with ThreadPoolExecutor(
            min(_SYNC_THREADS, len(paths)), thread_name_prefix="lineage-sync"
        ) as threads:
            for _ in threads.map(sync_path, paths):
                pass
    except RuntimeError:
        # The interpreter is about to end, and starts no more threads.
        for path in paths:
            sync_path(path)


_MODIFIED = ("LastModified", "last_modified", "updated", "mtime")
"""Names under which clients of S3, Azure Blob Storage and GCS list the time of an object."""


def _milliseconds(moment: object) -> int | None:
    """Return a time in ms since the epoch, rounded up, since stores cut it to seconds: nothing was
    written later.
    """
    if isinstance(moment, str):
        with suppress(ValueError):
            moment = datetime.fromisoformat(moment)
    if not isinstance(moment, datetime):
        return None
    milliseconds = round(
        (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000
    )
    return milliseconds + 999 if milliseconds % 1000 == 0 else milliseconds


class ObjectStorage(OutboxStorage):
    """Objects of a store below a prefix. A listing must contain everything that was written before
    it, as on S3.

    :param root: bucket and prefix.
    :param uri: the same for people, without secrets.
    """

    def __init__(self, file_system: Any, root: str, uri: str) -> None:
        self._modified_ms: dict[str, int | None] = {}
        """As the latest listings say."""
        self._sizes: dict[str, int] = {}
        """Likewise, in bytes."""
        self._fs = file_system
        self._root = root.rstrip("/")
        self._uri = uri.rstrip("/")

    def describe(self, name: str = "") -> str:
        """Return the URI."""
        return f"{self._uri}/{name}" if name else self._uri

    def stored(self, folder: str) -> dict[str, int]:
        """Return all objects below ``folder``."""
        prefix = f"{self._root}/{folder}"

        def find() -> Any:
            self._fs.invalidate_cache(prefix)  # other processes write here as well
            return self._fs.find(prefix, detail=True)

        try:
            listing = self._request(folder, find)
        except FileNotFoundError:
            return {}
        infos = {path.removeprefix(f"{self._root}/"): info for path, info in listing.items()}
        for name, info in infos.items():
            self._modified_ms[name] = _milliseconds(
                next((info[key] for key in _MODIFIED if key in info), None)
            )
        sizes = {
            name: int(infos[name].get("size") or 0)
            for name in sorted(infos)
            if name.startswith(f"{folder}/")
        }
        self._sizes.update(sizes)
        return sizes

    def modified_ms(self, name: str) -> int | None:
        """Return when an object was written by the store's clock, from a listing or by one HEAD
        request.

        :returns: ms since the epoch; ``None`` if the client does not know it.
        """
        if self._modified_ms.get(name) is None:
            try:
                moment = self._request(name, lambda: self._fs.modified(f"{self._root}/{name}"))
            except OSError as error:
                log.debug(
                    "The store does not say when %s was written: %s", self.describe(name), error
                )
                return None
            self._modified_ms[name] = _milliseconds(moment)
        return self._modified_ms[name]

    def read(self, name: str, *, most: int = _MOST_BYTES) -> bytes:
        """Return the content of an object, unless the latest listing says that it is too large."""
        TooLargeFileError.check(self.describe(name), self._sizes.get(name, 0), most)
        content: bytes = self._request(name, lambda: self._fs.cat_file(f"{self._root}/{name}"))
        return content

    def first_line(self, name: str) -> tuple[bytes, int]:
        """Return the first line of an object, and the object's size; only the beginning of a large
        object is read.
        """
        size = self._sizes.get(name, 0)
        if size <= _MOST_BYTES:
            return super().first_line(name)
        line, newline, _ = self.read_range(name, 0, _MOST_BYTES).partition(b"\n")
        return line + newline, size

    def read_all(self, names: Sequence[str]) -> list[bytes | Exception]:
        """Return the content of several objects, requested at the same time, or why one cannot be
        read.
        """
        paths = [f"{self._root}/{name}" for name in names]
        contents = self._request("", lambda: self._fs.cat(paths, on_error="return"))
        # Some file systems answer with a leading slash, or without one.
        by_path = {path.lstrip("/"): content for path, content in contents.items()}
        return [by_path.get(path.lstrip("/"), FileNotFoundError(path)) for path in paths]

    def read_range(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes of an object from ``start`` to ``end`` at most."""
        path = f"{self._root}/{name}"
        part: bytes = self._request(name, lambda: self._fs.cat_file(path, start=start, end=end))
        return part

    def write(
        self,
        name: str,
        chunks: Iterable[bytes],
        *,
        sync: bool = True,  # noqa: ARG002 (always lasting)
    ) -> None:
        """Write an object by one PUT or one multipart upload: it appears when it is complete."""
        content = b"".join(chunks)
        self._modified_ms.pop(name, None)
        self._sizes.pop(name, None)
        self._request(name, lambda: self._fs.pipe_file(f"{self._root}/{name}", content))

    def remove(self, name: str) -> None:
        """Remove an object by one DELETE."""
        with suppress(FileNotFoundError):
            self._request(name, lambda: self._fs.rm_file(f"{self._root}/{name}"))

    def _request(self, name: str, call: Callable[[], _T]) -> _T:
        try:
            return step_in_time(self._uri, self.deadline, lambda: call_library(call, OSError))
        except TimeoutError as error:
            raise TimeoutError(f"{self.describe(name)}: {error.strerror or error}") from error
        except OSError as error:
            if str(error).startswith("Forbidden: "):  # the client of GCS has no class for it
                raise PermissionError(str(error)) from error
            raise
        except LibraryError as error:
            # Each store's client has its own errors, and not all of them are OSErrors.
            raise OSError(f"{self.describe(name)}: {error}") from error
