"""Files on a disk: written completely or not at all, even if the machine crashes, and opened only if they are regular.

This module belongs to no layer: event files, the outbox and file sinks all use it.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

_ATTEMPTS = 5
_FIRST_MODE = 0o666
"""Mode of a new file before the umask."""


class NotRegularFileError(OSError):
    """Name that leads to something else than a regular file: a FIFO, a socket, a device, a folder or a link."""


def open_regular(path: str | Path, *, follow: bool = False) -> BinaryIO:
    """Open a regular file for reading; never wait for a writer, a driver or another host.

    A plain ``open`` of a FIFO waits until somebody writes into it, and opening a device may do something.

    :param follow: whether a symbolic link to a regular file may be followed.
    :raises NotRegularFileError: if the name leads to anything else.
    :raises OSError: if the file cannot be opened, e.g. FileNotFoundError.
    """
    # Not opened at all, if possible; checked again below, since the name may have changed its meaning meanwhile.
    _check_regular(path, os.stat(path, follow_symlinks=follow).st_mode)  # noqa: PTH116 (paths are text as well)
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    file = os.fdopen(os.open(path, flags if follow else flags | os.O_NOFOLLOW), "rb")
    try:
        _check_regular(path, os.fstat(file.fileno()).st_mode)
    except NotRegularFileError:
        file.close()
        raise
    return file


def read_regular(path: str | Path, size: int = -1) -> tuple[bytes, int]:
    """Read a regular file as :func:`open_regular` opens it.

    :param size: how many bytes to read at most; -1 for all.
    :returns: the bytes, and the size of the whole file.
    """
    with open_regular(path) as file:
        return file.read(size), os.fstat(file.fileno()).st_size


def _check_regular(path: str | Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise NotRegularFileError(f"{os.fspath(path)} is not a regular file ({stat.filemode(mode)})")


def write_durably(path: Path, chunks: Iterable[bytes], *, sync: bool = True) -> None:
    """Replace the content of ``path`` by ``chunks``; make its folder if it is missing.

    The content is written beside it under a name that starts with a dot, synced to the disk, then renamed: a crash
    leaves the old state or the new one.

    :param sync: False if the file may be lost or damaged by a crash of the machine; others see it completely or not at
        all in any case.
    :raises OSError: if the disk is full, the folder is read-only ...; ``path`` is unchanged.
    """
    draft = path.with_name(f".{secrets.token_hex(8)}.draft")
    try:
        with _created(draft, sync=sync) as file:
            file.writelines(chunks)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    if sync:
        # If the folder is gone, another process has taken the file already.
        with suppress(FileNotFoundError):
            sync_folder(path.parent)


def _created(draft: Path, *, sync: bool) -> BinaryIO:
    """Open a new draft; repeat if another process finds the folder empty and removes it first."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    for attempt in range(_ATTEMPTS):
        with suppress(FileNotFoundError):
            if attempt:
                make_folder(draft.parent, sync=sync)
            return os.fdopen(os.open(draft, flags, _FIRST_MODE), "wb")
    make_folder(draft.parent, sync=sync)
    return os.fdopen(os.open(draft, flags, _FIRST_MODE), "wb")


def make_folder(folder: Path, *, sync: bool = True) -> None:
    """Make ``folder`` and its parents if they are missing.

    :param sync: whether they survive a crash of the machine.
    """
    if folder.is_dir():
        return
    make_folder(folder.parent, sync=sync)
    folder.mkdir(exist_ok=True)
    if sync:
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Write the names in ``folder`` to the disk: syncing a file does not include its name."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
