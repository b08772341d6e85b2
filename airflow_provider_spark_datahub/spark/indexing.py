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
from airflow_provider_spark_datahub.conversion.grouping import group_of, links_of
from airflow_provider_spark_datahub.spark.chunks import Chunk, OpenChunks
from airflow_provider_spark_datahub.spark.record_batches import batches_of, rows_of

EVENTS, BAD = "events", "bad"
"""Kinds of rows beside the kinds of links."""
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
        ("text", pa.string()),
    ]
)
"""Of a chunk: all but ``text``; of a link: ``group`` and the run's id as ``text``; of what is unreadable: ``file``,
``offset`` and the reason as ``text``."""

_Row = tuple[Any, ...]
_KNOWN_HEADS = 50_000


def index_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of whole files.

    :param batches: path and content of each file.
    """
    yield from batches_of(_Index().of_files(rows_of(batches)), SCHEMA)


def index_lines(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of parts of large files.

    :param batches: path, offset of the part, and content of each line, those of one part together and in order.
    """
    yield from batches_of(_Index().of_lines(rows_of(batches)), SCHEMA)


class _Index:
    def __init__(self) -> None:
        self._chunks = OpenChunks()
        self._heads: set[_Row] = set()
        self._links: set[_Row] = set()
        self._read = event_reader()

    def of_files(self, files: Iterable[_Row]) -> Iterator[_Row]:
        for path, content in files:
            offset = 0
            try:
                for offset, line in lines_of(path, io.BytesIO(content)):
                    yield from self._of_line(path, offset, line)
            except DamagedFileError as error:
                yield _bad(path, error.offset, error.reason)
        yield from map(_chunk, self._chunks.rest())

    def of_lines(self, lines: Iterable[_Row]) -> Iterator[_Row]:
        part, offset = None, 0
        for path, start, line in lines:
            if part != (path, start):
                part, offset = (path, start), start
            if line.strip():
                yield from self._of_line(path, offset, line + b"\n")
            offset += len(line) + 1
        yield from map(_chunk, self._chunks.rest())

    def _of_line(self, path: str, offset: int, line: bytes) -> Iterator[_Row]:
        try:
            head, text = self._read(line)
        except (BadLineError, EventError) as error:
            torn = isinstance(error, BadLineError) and not line.endswith(b"\n")
            yield _bad(path, offset, f"{CUT_OFF} ({error})" if torn else str(error))
            return
        group = group_of(head)
        yield from map(_chunk, self._chunks.add(group, ArchivedEvent(head.time_ms, path, offset, text)))
        if head[1:] not in self._heads:
            yield from self._new_links(head)

    def _new_links(self, head: EventHead) -> Iterator[_Row]:
        if len(self._heads) >= _KNOWN_HEADS:
            self._heads.clear()
            self._links.clear()
        # But for its time: most events of a run have the same.
        self._heads.add(head[1:])
        for kind, run_id, linked in links_of(head):
            link = (kind, linked, None, None, None, None, None, None, None, run_id)
            if link not in self._links:
                self._links.add(link)
                yield link


def event_reader() -> Callable[[bytes], tuple[EventHead, bytes]]:
    """Reads one line: the event's head, and its text as :func:`collect_text` gives it."""
    check = checked_text()

    def read(line: bytes) -> tuple[EventHead, bytes]:
        text = line.strip()
        if not text.isascii() or b"\\ud" in text or b"\\uD" in text:
            text = check(line)
        try:
            return read_head(text), text
        except EventError:
            # Where the line is no JSON, that is the reason.
            check(line)
            raise

    return read


def _chunk(chunk: Chunk) -> _Row:
    return (EVENTS, *chunk, None)


def _bad(path: str, offset: int, reason: str) -> _Row:
    return (BAD, None, None, path, offset, None, None, None, None, reason)
