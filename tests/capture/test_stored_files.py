"""Files as they are stored: chunks, and archives, plain and compressed, whole and damaged."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Generator
from typing import IO

import pytest
import zstandard

from airflow_provider_spark_datahub.capture import (
    CollectedEvents,
    DamagedFileError,
    Outcome,
    checked_text,
    decompressed,
    read_lines,
    stored_files,
)
from airflow_provider_spark_datahub.capture.stored_files import ChunkStream

LINES = [b'{"n":%d,"text":"%s"}\n' % (number, b"x" * (number % 3000)) for number in range(3000)]
CONTENT = b"".join(LINES)


def zstd(content: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(content)


def read(name: str, content: bytes) -> list[tuple[int, bytes]]:
    return list(read_lines(name, io.BytesIO(content)))


def damage(name: str, content: bytes) -> tuple[int, DamagedFileError]:
    """Return the number of lines before the damage, and the reason."""
    count = 0
    with pytest.raises(DamagedFileError) as raised:
        for count, _ in enumerate(read_lines(name, io.BytesIO(content)), start=1):  # noqa: B007 (asked for after the loop)
            pass
    return count, raised.value


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.ndjson", CONTENT),
        ("a.ndjson.gz", gzip.compress(CONTENT)),
        ("a.gz", gzip.compress(CONTENT[:5000]) + gzip.compress(CONTENT[5000:])),
        ("a.ndjson.zst", zstd(CONTENT)),
        ("a.zstd", zstd(CONTENT[:5000]) + zstd(CONTENT[5000:])),
    ],
)
def test_lines_come_with_their_offsets_however_the_file_is_compressed(
    name: str, content: bytes
) -> None:
    found = read(name, content)
    assert [line for _, line in found] == LINES
    assert all(CONTENT.startswith(line, offset) for offset, line in found)


def test_blank_lines_count_in_offsets_alone() -> None:
    assert read("a", b"\n  \nx\r\n\ny") == [(4, b"x\r\n"), (8, b"y")]


@pytest.mark.parametrize(
    ("name", "content"), [("a.gz", gzip.compress(CONTENT)), ("a.zst", zstd(CONTENT))]
)
def test_a_file_that_is_cut_off_is_read_as_far_as_it_goes(name: str, content: bytes) -> None:
    count, error = damage(name, content[: len(content) // 2])
    assert 0 < count < len(LINES)
    assert str(error) == "the compressed file is cut off"
    assert error.offset == len(b"".join(LINES[:count]))


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.gz", b"no gzip at all", "damaged gzip file"),
        ("a.zst", b"no zstd at all", "damaged zstd file"),
        ("a.gz", gzip.compress(CONTENT)[:-8] + bytes(8), "damaged gzip file"),
    ],
)
def test_a_broken_file_is_refused_with_its_reason(name: str, content: bytes, reason: str) -> None:
    assert reason in damage(name, content)[1].args[0]


@pytest.mark.parametrize("packed", [gzip.compress, zstd], ids=["gzip", "zstd"])
def test_a_bomb_is_not_read_to_its_end(
    packed: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_files, "_MOST_BYTES", 128 * 1024)
    events = CollectedEvents(Packed(packed(b'{"a": 1}\n' + b"\n" * 10**6)), checked_text)
    assert list(events) == [b'{"a": 1}']
    assert "expands to more than 131072 bytes" in events.report.sentence
    assert events.report.outcome is Outcome.UNREADABLE


class Packed:
    def __init__(self, content: bytes) -> None:
        self.content = content

    def open(self, _: str, /) -> IO[bytes]:
        return decompressed(io.BytesIO(self.content))


def test_a_line_beyond_the_limit_ends_the_reading() -> None:
    lines = read_lines("a", io.BytesIO(b"123\n" + b"x" * 11), limit=10)
    assert next(lines) == (0, b"123\n")
    with pytest.raises(DamagedFileError, match="more than 10 bytes"):
        next(lines)


# -- chunks as a file


def chunks_of(*chunks: bytes, closed: list[bool] | None = None) -> Generator[bytes]:
    try:
        yield from chunks
    finally:
        if closed is not None:
            closed.append(True)


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_lines_may_span_several_chunks(size: int) -> None:
    stream = io.BufferedReader(ChunkStream(chunks_of(b"on", b"", b"e\ntwo\nth", b"ree")), size)
    assert stream.readlines() == [b"one\n", b"two\n", b"three"]
    assert stream.read() == b""


def test_an_error_in_a_chunk_is_raised_by_the_read() -> None:
    def broken() -> Generator[bytes]:
        yield b"one\n"
        raise EOFError

    stream = io.BufferedReader(ChunkStream(broken()))
    assert stream.readline() == b"one\n"
    with pytest.raises(EOFError):
        stream.readline()


def test_closing_the_stream_closes_the_chunks() -> None:
    closed: list[bool] = []
    with io.BufferedReader(ChunkStream(chunks_of(b"one\n", b"two\n", closed=closed)), 4) as stream:
        stream.readline()
    assert closed == [True]
