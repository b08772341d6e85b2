"""First step: the files of an archive as chunks of events by group, links between groups, and what is unreadable."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from airflow_provider_spark_datahub.capture.archive_file import DamagedFileError, lines_of
from airflow_provider_spark_datahub.capture.collect import BadLineError, checked_text
from airflow_provider_spark_datahub.conversion.archive import ArchivedEvent
from airflow_provider_spark_datahub.conversion.event_heads import EventHead, read_head
from airflow_provider_spark_datahub.conversion.events import EventError
from airflow_provider_spark_datahub.conversion.grouping import group_of
from airflow_provider_spark_datahub.spark.chunks import Chunk, OpenChunks
from airflow_provider_spark_datahub.spark.packed_links import OpenLinks, PackedLinks
from airflow_provider_spark_datahub.spark.record_batches import batches_of, rows_of
from airflow_provider_spark_datahub.spark.seldom_collected import seldom_collected

EVENTS, LINKS, BAD = "events", "links", "bad"
"""Kinds of rows."""
CUT_OFF = "cut off: its writer was killed"

SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("group", pa.string()),
        ("time_ms", pa.int64()),
        ("file", pa.string()),
        ("offset", pa.int64()),
        ("until_ms", pa.int64()),
        ("events", pa.int64()),
        ("size", pa.int64()),
        ("payload", pa.binary()),
        ("bucket", pa.int64()),
        ("reason", pa.string()),
    ]
)
"""Of events: see :class:`Chunk`; of links: see :class:`PackedLinks`; of what is unreadable: ``file``, ``offset`` and
the reason."""

_Row = tuple[Any, ...]


def index_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of whole files.

    :param batches: path and content of each file.
    """
    with seldom_collected():
        yield from batches_of(_Index().of_files(rows_of(batches)), SCHEMA)


def index_lines(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of parts of large files.

    :param batches: path, offset of the part, and content of each line, those of one part together and in order.
    """
    with seldom_collected():
        yield from batches_of(_Index().of_lines(rows_of(batches)), SCHEMA)


class _Index:
    def __init__(self) -> None:
        self._chunks = OpenChunks()
        self._links = OpenLinks()
        self._read = event_reader()

    def of_files(self, files: Iterable[_Row]) -> Iterator[_Row]:
        for path, content in files:
            offset = 0
            try:
                for offset, line in lines_of(path, io.BytesIO(content)):
                    yield from self._of_line(path, offset, line)
            except DamagedFileError as error:
                yield bad_row(path, error.offset, error.reason)
        yield from self._rest()

    def of_lines(self, lines: Iterable[_Row]) -> Iterator[_Row]:
        part, offset = None, 0
        for path, start, line in lines:
            if part != (path, start):
                part, offset = (path, start), start
            if line.strip():
                yield from self._of_line(path, offset, line + b"\n")
            offset += len(line) + 1
        yield from self._rest()

    def _of_line(self, path: str, offset: int, line: bytes) -> Iterator[_Row]:
        try:
            head, text = self._read(line)
        except (BadLineError, EventError) as error:
            torn = isinstance(error, BadLineError) and not line.endswith(b"\n")
            yield bad_row(path, offset, f"{CUT_OFF} ({error})" if torn else str(error))
            return
        group = group_of(head)
        yield from map(_chunk, self._chunks.add(group, ArchivedEvent(head.time_ms, path, offset, text)))
        yield from map(_packed, self._links.add(head))

    def _rest(self) -> Iterator[_Row]:
        yield from map(_chunk, self._chunks.rest())
        yield from map(_packed, self._links.rest())


def event_reader() -> Callable[[bytes], tuple[EventHead, bytes]]:
    """Reads one line: the event's head, and its text as :func:`collect_text` gives it."""
    check = checked_text()

    def read(line: bytes) -> tuple[EventHead, bytes]:
        text = line.strip()
        # A backslash is found much faster than what may follow it.
        if not text.isascii() or (b"\\" in text and (b"\\ud" in text or b"\\uD" in text)):
            text = check(line)
        try:
            return read_head(text), text
        except EventError:
            # Where the line is no JSON, that is the reason.
            check(line)
            raise

    return read


def _chunk(chunk: Chunk) -> _Row:
    return (EVENTS, *chunk, None, None)


def _packed(links: PackedLinks) -> _Row:
    return (LINKS, None, None, None, None, None, None, links.size, links.payload, links.bucket, None)


def bad_row(file: str, offset: int, reason: str) -> _Row:
    """The row of something unreadable."""
    return (BAD, None, None, file, offset, None, None, None, None, None, reason)
