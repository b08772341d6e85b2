from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.delivery.durable import write_durably


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
