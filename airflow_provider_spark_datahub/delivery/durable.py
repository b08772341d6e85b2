"""Files that are there whole or not at all, also after a crash of the machine."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

_ATTEMPTS = 5


def write_durably(path: Path, chunks: Iterable[bytes]) -> None:
    """Make ``path`` hold ``chunks``, replacing what it held; its folder is made where it is missing.

    Written beside it under a name that starts with a dot, synced to the disk, then renamed: a crash leaves the old
    state, or the new one.

    :raises OSError: the disk is full, the folder is read-only ...; ``path`` is as it was.
    """
    draft = path.with_name(f".{secrets.token_hex(8)}.draft")
    try:
        with _created(draft) as file:
            file.writelines(chunks)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    # Where the folder is gone, another process has taken the file already.
    with suppress(FileNotFoundError):
        sync_folder(path.parent)


def _created(draft: Path) -> BinaryIO:
    """The draft, open; another process that finds its folder empty may remove it before."""
    for _ in range(_ATTEMPTS):
        with suppress(FileNotFoundError):
            make_folder(draft.parent)
            return draft.open("xb")
    make_folder(draft.parent)
    return draft.open("xb")


def make_folder(folder: Path) -> None:
    """Make ``folder`` and its parents where they are missing, durably."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Put the names in ``folder`` on the disk: the sync of a file does not include its name."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
