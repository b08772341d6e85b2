"""Files that are written completely or not at all, even if the machine crashes."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

_ATTEMPTS = 5


def write_durably(path: Path, chunks: Iterable[bytes]) -> None:
    """Replace the content of ``path`` by ``chunks``; make its folder if it is missing.

    The content is written beside it under a name that starts with a dot, synced to the disk, then renamed: a crash
    leaves the old state or the new one.

    :raises OSError: if the disk is full, the folder is read-only ...; ``path`` is unchanged.
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
    # If the folder is gone, another process has taken the file already.
    with suppress(FileNotFoundError):
        sync_folder(path.parent)


def _created(draft: Path) -> BinaryIO:
    """Open a new draft; repeat if another process finds the folder empty and removes it first."""
    for _ in range(_ATTEMPTS):
        with suppress(FileNotFoundError):
            make_folder(draft.parent)
            return draft.open("xb")
    make_folder(draft.parent)
    return draft.open("xb")


def make_folder(folder: Path) -> None:
    """Make ``folder`` and its parents durably if they are missing."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Write the names in ``folder`` to the disk: syncing a file does not include its name."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
