"""Files on a disk: written completely or not at all, even if the machine crashes, and opened only
if they are regular.

Event files, the outbox and file sinks use it.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

exists, is_file, is_folder = os.path.exists, os.path.isfile, os.path.isdir
"""Whether a path leads to anything, a file or a folder; unlike pathlib's, False below a folder that
cannot be read.
"""
_ATTEMPTS = 20
_PIECE_BYTES = 1024 * 1024


class FileAccess(msgspec.Struct, frozen=True):
    """Modes of the files and folders that this package makes.

    :param exact: the umask does not restrict them further.
    """

    file: int
    folder: int
    exact: bool = False

    @classmethod
    def of(cls, *, group: bool) -> FileAccess:
        """Return the access of the owner alone, or of the group, too."""
        return _GROUP_ACCESS if group else PRIVATE_ACCESS


PRIVATE_ACCESS = FileAccess(0o600, 0o700)
"""Outbox and events name datasets, users and statements: nobody else reads them, and nobody else
plants anything.
"""
_GROUP_ACCESS = FileAccess(0o660, 0o2770, exact=True)
"""For users that share a group: what they make belongs to the group of the folder."""
_UMASK_ACCESS = FileAccess(0o666, 0o777)


class UnreadFileError(OSError):
    """File that is not read, whatever it holds."""


class NotRegularFileError(UnreadFileError):
    """Name that leads to something else than a regular file: a FIFO, a socket, a device, a folder
    or a link.
    """


class TooLargeFileError(UnreadFileError):
    """File that is larger than anything in its place may be."""

    @classmethod
    def check(cls, path: str | Path, size: int, most: int) -> None:
        """Check the size of a file.

        :raises TooLargeFileError: if it is above the limit.
        """
        if size > most:
            raise cls(f"{os.fspath(path)} has {size} bytes, and at most {most} are read")


def open_regular(path: str | Path, *, follow: bool = False) -> BinaryIO:
    """Open a regular file for reading; never wait for a writer, a driver or another host.

    A plain ``open`` of a FIFO waits until somebody writes into it, and opening a device may do
    something.

    :param follow: whether a symbolic link to a regular file may be followed.
    :raises NotRegularFileError: if the name leads to anything else.
    :raises OSError: if the file cannot be opened, e.g. FileNotFoundError.
    """
    # Not opened at all, if possible; checked again below, since the name may have changed its
    # meaning meanwhile.
    _check_regular(path, os.stat(path, follow_symlinks=follow).st_mode)
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    try:
        _check_regular(path, os.fstat(descriptor).st_mode)
    except OSError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def _check_regular(path: str | Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise NotRegularFileError(
            f"{os.fspath(path)} is not a regular file ({stat.filemode(mode)})"
        )


def write_durably(
    path: str | Path,
    chunks: Iterable[bytes],
    *,
    sync: bool = True,
    access: FileAccess = _UMASK_ACCESS,
    rename: Callable[[str, str], None] | None = None,
    mark: str = "",
) -> None:
    """Replace the content of ``path`` by ``chunks``; make its folder if it is missing.

    The content is written beside it, synced, then renamed: a crash leaves the old state or the new
    one.

    :param sync: False if a crash of the machine may lose or damage the file.
    :param access: of the file, and of folders that are made; by default, what the umask gives.
    :param rename: puts the finished file into its place; ``None`` for ``os.replace``.
    :param mark: part of the unfinished file's name.
    :raises OSError: if the disk is full, the folder is read-only ...; ``path`` is unchanged.
    """
    folder = os.path.dirname(path) or os.curdir
    draft = os.path.join(folder, f".{secrets.token_hex(8)}{mark}.draft")
    renamed = False
    try:
        with os.fdopen(_created(draft, access, sync=sync), "wb", _PIECE_BYTES) as file:
            file.writelines(chunks)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        (rename or os.replace)(draft, os.fspath(path))
        renamed = True
    finally:
        if not renamed:
            with suppress(FileNotFoundError):
                os.unlink(draft)
    if sync:
        # If the folder is gone, another process has taken the file already.
        with suppress(FileNotFoundError):
            sync_path(folder)


def _created(draft: str, access: FileAccess, *, sync: bool) -> int:
    """Open a new draft; repeat if another process finds the folder empty and removes it first."""
    for _ in range(_ATTEMPTS):
        with suppress(FileNotFoundError):
            return _opened(draft, access)
        with suppress(FileNotFoundError):
            make_folder(os.path.dirname(draft), sync=sync, access=access)
    return _opened(draft, access)


def _opened(draft: str, access: FileAccess) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(draft, flags, access.file)
    if access.exact:
        os.fchmod(descriptor, access.file)
    return descriptor


def make_folder(
    folder: str | Path, *, sync: bool = True, access: FileAccess = _UMASK_ACCESS
) -> None:
    """Make ``folder`` and its parents if they are missing.

    :param sync: whether they survive a crash of the machine.
    :param access: of the folders that are made.
    """
    parent = os.path.dirname(folder) or os.curdir
    try:
        os.mkdir(folder, access.folder)
    except FileExistsError:
        return
    except FileNotFoundError:
        make_folder(parent, sync=sync, access=access)
        with suppress(FileExistsError):
            os.mkdir(folder, access.folder)
    if access.exact:
        os.chmod(folder, access.folder)
    if sync:
        sync_path(parent)


def replaceable(path: Path, writers: int = 0o022) -> str:
    """Return how another user could write or replace a file of code, in words; empty if none could.

    :param writers: the bits of a mode by which others write; a sticky bit protects the content of a
        folder from them.
    """
    for place in (path, *path.parents):
        try:
            status = place.lstat()
        except OSError as error:
            return f"{place} cannot be read: {error.strerror}"
        by_others = status.st_mode & writers and not (
            stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        )
        if status.st_uid not in (os.geteuid(), 0) or by_others or stat.S_ISLNK(status.st_mode):
            return (
                f"another user could replace {place}: what leads to code must belong to this user or root, and be "
                "writable for nobody else"
            )
    return ""


def refusal(error: OSError) -> str:
    """Return the reason of an error; of a path that another user keeps to himself, also whose it
    is, and what to do.
    """
    reason = str(error.strerror or error)
    path = Path(os.path.abspath(error.filename or ""))
    for place in (*reversed(path.parents), path) if isinstance(error, PermissionError) else ():
        with suppress(OSError, KeyError):  # a user may have no name
            if not os.access(place, os.R_OK | os.X_OK):
                return (
                    f"{reason}: {place} belongs to {place.owner()} alone: share it by [spark_datahub] group_access, or "
                    "give each user an outbox_location and events_location of its own"
                )
    return reason


def described(error: OSError) -> str:
    """Return the place and the reason of an error."""
    return f"{error.filename}: {refusal(error)}" if error.filename else str(error)


def sync_path(path: str | Path) -> None:
    """Write a file, or the names in a folder, to the disk: syncing a file does not include its
    name.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
