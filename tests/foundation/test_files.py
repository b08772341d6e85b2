from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.foundation.files import (
    FileAccess,
    NotRegularFileError,
    open_regular,
    write_durably,
)


def test_makes_folders_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    write_durably(path, [b"one", b"two"])
    write_durably(path, [b"three"])
    assert path.read_bytes() == b"three"
    assert [each.name for each in path.parent.iterdir()] == ["file"]


def test_a_failure_in_the_middle_leaves_what_was(tmp_path: Path) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"half"
        raise OSError(28, "No space left on device")

    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="No space left"):
        write_durably(path, chunks())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_content_is_on_the_disk_before_its_name_and_the_name_before_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    synced: list[tuple[str, bool]] = []
    fsync = os.fsync

    def spy(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        synced.append((kind, path.exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", spy)
    write_durably(path, [b"content"])
    assert synced == [("file", False), ("folder", True)]


def test_nothing_but_a_regular_file_is_opened(tmp_path: Path) -> None:
    """A FIFO without a writer, a socket and a terminal would block or act; a link may lead to one
    of them.
    """
    file = tmp_path / "file"
    file.write_bytes(b"content")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(file)
    (tmp_path / "to-fifo").symlink_to(tmp_path / "fifo")
    (tmp_path / "dangling").symlink_to(tmp_path / "missing")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
    for name in (
        "fifo",
        "folder",
        "socket",
        "link",
        "to-fifo",
        "dangling",
        "/dev/null",
        "/dev/tty",
    ):
        with pytest.raises(NotRegularFileError, match="is not a regular file"):
            open_regular(tmp_path / name)
    for name in ("file", "link"):
        with open_regular(tmp_path / name, follow=True) as opened:
            assert opened.read() == b"content"
    with pytest.raises(NotRegularFileError):
        open_regular(tmp_path / "to-fifo", follow=True)
    for name, follow in (("missing", False), ("dangling", True)):
        with pytest.raises(FileNotFoundError):
            open_regular(tmp_path / name, follow=follow)


def test_a_file_that_becomes_a_fifo_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    before = path.stat()
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr(os, "stat", lambda *_, **__: before)
    with pytest.raises(NotRegularFileError):
        open_regular(path)


def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    def modes(root: Path) -> list[int]:
        return [
            stat.S_IMODE(path.stat().st_mode)
            for path in (root / "a", root / "a/b", root / "a/b/file")
        ]

    for umask in (0o002, 0o022, 0o077):
        before = os.umask(umask)
        try:
            for group in (False, True):
                write_durably(
                    tmp_path / f"{umask}{group}/a/b/file", [b"x"], access=FileAccess.of(group=group)
                )
            write_durably(tmp_path / f"{umask}/a/b/file", [b"x"])
        finally:
            os.umask(before)
        assert modes(tmp_path / f"{umask}False") == [0o700, 0o700, 0o600]
        assert modes(tmp_path / f"{umask}True") == [0o2770, 0o2770, 0o660]
        assert modes(tmp_path / f"{umask}") == [0o777 & ~umask, 0o777 & ~umask, 0o666 & ~umask]
