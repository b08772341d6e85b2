"""Functions for ``mapInArrow``, which run in Spark's tasks: read events, convert groups of them,
and compact aspects.

Each works on a stream of rows, and holds a megabyte or so of them besides what the conversion
itself needs.
"""

from __future__ import annotations

import gc
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from airflow_provider_spark_datahub.backfill.plan import PROPOSAL_COLUMN
from airflow_provider_spark_datahub.capture import (
    BadLineError,
    DamagedFileError,
    checked_text,
    read_lines,
)
from airflow_provider_spark_datahub.conversion import EventError, LineageSettings, archive
from airflow_provider_spark_datahub.foundation.memory import batches_of

Row = tuple[Any, ...]
Step = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_BATCH_BYTES = 1024 * 1024
_BATCH_ROWS = 10_000
_ROW_BYTES = 64  # approximate size of a row without its texts
_MOST_HEADS = 50_000
_RARE_COLLECTIONS = (100_000, 20, 100)
"""Number of new objects, and of collections of the next younger generation, that start a garbage
collection.
"""

_STRING, _INTEGER = pa.string(), pa.int64()
_PROBLEM = {"file": _STRING, "offset": _INTEGER, "reason": _STRING}
LINKS = pa.schema(dict.fromkeys(archive.Link._fields, _STRING))
EVENTS = pa.schema(
    {
        **_PROBLEM,
        "time_ms": _INTEGER,
        "group": _STRING,
        "links": pa.list_(pa.struct(LINKS)),
        "text": pa.binary(),
        "size": _INTEGER,
    }
)
"""An event with its group and new links, or the reason why a line holds none."""
_VERSION = {**dict.fromkeys(archive.AspectVersion._fields, _STRING), "content": pa.binary()}
_VERSION |= {"time_ms": _INTEGER, "number": _INTEGER}
CONVERTED = pa.schema({**_VERSION, **_PROBLEM, "runs": _INTEGER})
"""An :class:`AspectVersion`, a problem, or the number of runs of a group."""
KEPT = pa.schema(
    {
        "entity_urn": _STRING,
        "aspect_name": _STRING,
        "change_type": _STRING,
        PROPOSAL_COLUMN: _STRING,
        "time_ms": _INTEGER,
        "reason": _STRING,
    }
)
"""A proposal to write, as JSON, with the time of its last version and the reason why it is kept."""


def _step(convert: Callable[[Iterator[Row]], Iterable[Sequence[Any]]], schema: pa.Schema) -> Step:
    def step(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # A worker converts group after group: what existed before is never garbage, and the rest
        # seldom.
        gc.set_threshold(*_RARE_COLLECTIONS)
        rows = (
            row
            for batch in batches
            for row in zip(*(column.to_pylist() for column in batch), strict=True)
        )
        for together in batches_of(convert(rows), _row_size, _BATCH_BYTES, _BATCH_ROWS):
            columns = map(pa.array, zip(*together, strict=True), schema.types)
            yield pa.RecordBatch.from_arrays(list(columns), schema=schema)

    return step


def _row_size(row: Sequence[Any]) -> int:
    return _ROW_BYTES + sum(
        len(value) for value in row if type(value) is str or type(value) is bytes
    )


# -- read


def read_files() -> Step:
    """Return the step that makes :data:`EVENTS` of files: the path and content of each."""

    def events(files: Iterable[Row]) -> Iterator[Row]:
        lines = _Lines()
        for path, content in files:
            try:
                for offset, line in read_lines(path, io.BytesIO(content)):
                    yield lines.event(path, offset, line)
            except DamagedFileError as error:
                yield _problem(path, error.offset, str(error))

    return _step(events, EVENTS)


def read_parts() -> Step:
    """Return the step that makes :data:`EVENTS` of lines: path, offset of the file's part, and
    content of each.

    Lines of one part are together and in order.
    """

    def events(rows: Iterable[Row]) -> Iterator[Row]:
        lines = _Lines()
        for (path, start), part in groupby(rows, key=itemgetter(0, 1)):
            offset = start
            for *_, line in part:
                if line.strip():
                    yield lines.event(path, offset, line + b"\n")
                offset += len(line) + 1

    return _step(events, EVENTS)


class _Lines:
    """Lines of a task. The links of equal heads are in the row of the first one."""

    def __init__(self) -> None:
        self._heads: set[Row] = set()
        self._head = archive.EventHead.reader()

    def event(self, path: str, offset: int, line: bytes) -> Row:
        try:
            head, text = self._head_and_text(line)
        except (BadLineError, EventError) as error:
            torn = isinstance(error, BadLineError) and not line.endswith(b"\n")
            return _problem(
                path, offset, f"cut off: its writer was killed ({error})" if torn else str(error)
            )
        return (
            path,
            offset,
            None,
            head.time_ms,
            head.group,
            self._new_links(head),
            text,
            len(text),
        )

    def _new_links(self, head: archive.EventHead) -> list[dict[str, str]]:
        # Most events of a run have the same head, except for the time.
        if head[1:] in self._heads:
            return []
        if len(self._heads) >= _MOST_HEADS:
            self._heads.clear()
        self._heads.add(head[1:])
        return [link._asdict() for link in head.links()]

    def _head_and_text(self, line: bytes) -> tuple[archive.EventHead, bytes]:
        text = line.strip()
        # Looking for a single backslash first is much faster.
        if not text.isascii() or (b"\\" in text and (b"\\ud" in text or b"\\uD" in text)):
            text = checked_text(line)
        try:
            return self._head(text), text
        except EventError:
            # If the line is not JSON at all, this raises with that reason, which explains more.
            checked_text(line)
            raise


def _problem(path: str, offset: int, reason: str) -> Row:
    return (path, offset, reason, *[None] * (len(EVENTS) - len(_PROBLEM)))


# -- convert


def convert_groups(
    settings: LineageSettings, wanted: archive.ArchiveFilter, facts: archive.ArchiveFacts
) -> Step:
    """Return the step that makes :data:`CONVERTED` of events: the group of each, and its
    :class:`ArchivedEvent`.

    Events of one group are together and in order.
    """
    no_version, no_problem = [None] * len(_VERSION), [None] * len(_PROBLEM)

    def converted(rows: Iterable[Row]) -> Iterator[Row]:
        for _, events in groupby(rows, key=itemgetter(0)):
            group = archive.GroupConverter(settings, wanted, facts)
            for _, *event in events:
                group.add(archive.ArchivedEvent(*event))
            for version in group.finish():
                yield (*version, *no_problem, None)
            for problem in group.problems:
                yield (*no_version, *problem, None)
            yield (*no_version, *no_problem, group.job_count)

    return _step(converted, CONVERTED)


# -- compact


def compact_versions(wanted: archive.ArchiveFilter) -> Step:
    """Return the step that makes :data:`KEPT` of :class:`AspectVersion`: those of a place together
    and in order.
    """

    def proposals(rows: Iterable[Row]) -> Iterator[Row]:
        versions = (archive.AspectVersion(*row) for row in rows)
        for _, time_ms, proposal, reason in archive.compact_versions(
            versions, run_history=wanted.run_history
        ):
            urn, aspect_name, change_type = (
                proposal.entity_urn,
                proposal.aspect_name,
                proposal.change_type,
            )
            yield urn, aspect_name, change_type, proposal.to_json(), time_ms, reason

    return _step(proposals, KEPT)
