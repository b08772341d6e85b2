"""Chunks as a file."""

from __future__ import annotations

import io
from collections.abc import Generator

import pytest

from airflow_provider_spark_datahub.capture.stored_files import ChunkStream


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
