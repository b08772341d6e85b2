"""File sink: appends proposals to a local file, as JSON lines or a JSON array, that other processes may append to."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from itertools import count
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlsplit

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery.connection import ConnectionParts
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.sink import (
    CheckResult,
    CheckStatus,
    DeliveryRecord,
    Sink,
    SinkSettingsError,
)
from airflow_provider_spark_datahub.foundation.files import make_folder, sync_path, write_durably

log = logging.getLogger(__name__)


class _OtherContentError(ValueError):
    """Existing file that holds something other than metadata: nothing may be appended to it."""


@dataclass(frozen=True, slots=True)
class _End:
    """End of a file's content.

    :param at: the position in bytes behind the last whole element.
    :param empty: whether the file has no element yet.
    :param torn: whether the rest of an incomplete append follows, not the form's own closing.
    """

    at: int
    empty: bool
    torn: bool


class _JsonLines:
    """File with one proposal per line."""

    opening = b""
    separator = b"\n"
    closing = b"\n"

    def end(self, file: FileIO, head: bytes) -> _End:
        """Return the end of a file that begins with ``head``; from its end, only the last line is read."""
        if not _begins_metadata(head):
            raise _OtherContentError("it does not begin with a JSON object of DataHub metadata")
        size = file.seek(0, 2)
        line_start = _last_newline(file, size) + 1
        if line_start == size:
            return _End(size - 1, empty=False, torn=False)
        file.seek(line_start)
        with suppress(ValueError):
            if isinstance(json.loads(file.readall()), dict):
                return _End(size, empty=False, torn=False)
        return _End(max(0, line_start - 1), empty=line_start == 0, torn=True)


class _JsonArray:
    """Array that ``datahub ingest``'s file source reads and DataHub's Airflow plugin writes."""

    opening = b"[\n"
    separator = b",\n"
    closing = b"\n]\n"

    def end(self, file: FileIO, head: bytes) -> _End:
        """Return the end of a file that begins with ``head``.

        Only the last block is read, and the whole file only if neither we nor DataHub closed it.
        """
        if not head.startswith(b"["):
            raise _OtherContentError("it does not hold a JSON array")
        first = head[1:].lstrip()
        if first and not first.startswith(b"]") and not _begins_metadata(first):
            raise _OtherContentError("it is a JSON array of something else than DataHub metadata")
        size = file.seek(0, 2)
        start = file.seek(max(0, size - _BLOCK))
        # In both writers' layout only the array's own bracket stands at the start of a line.
        match = re.search(rb"\}(?=\s*\n\]\s*\Z)", file.readall())
        if match:
            return _End(start + match.end(), empty=False, torn=False)
        file.seek(0)
        # Surrogates keep bytes that are not UTF-8, so that positions can be turned back into bytes.
        return _scan(file.readall().decode("utf-8", "surrogateescape"))


_BLOCK = 8192
_FIRST_KEY = re.compile(rb'\{\s*("(?P<key>\w*)(?P<closed>"?)|\Z)')
# The fields of MetadataChangeProposal, MetadataChangeEvent and UsageAggregation, which the file source reads.
_KEYS = frozenset(
    {
        *("auditHeader", "entityType", "entityUrn", "entityKeyAspect", "changeType", "aspectName", "aspect"),
        *("systemMetadata", "headers", "proposedSnapshot", "proposedDelta"),
        *("bucket", "duration", "resource", "metrics"),
    }
)
_SPACE = re.compile(r"\s*")


def _begins_metadata(text: bytes) -> bool:
    """Return whether ``text`` begins with an object whose first key is DataHub's (or is cut off within it)."""
    match = _FIRST_KEY.match(text)
    if match is None:
        return False
    key = (match["key"] or b"").decode("ascii", "replace")
    if match["closed"]:
        return key in _KEYS
    return match.end() == len(text) and any(known.startswith(key) for known in _KEYS)


def _last_newline(file: FileIO, size: int) -> int:
    """Return the position of the file's last newline, -1 if there is none."""
    end = size
    while end > 0:
        start = file.seek(max(0, end - _BLOCK))
        newline = (file.read(end - start) or b"").rfind(b"\n")
        if newline >= 0:
            return start + newline
        end = start
    return -1


def _scan(text: str) -> _End:
    """Find the end of the array ``text``, element by element."""

    def end_at(position: int, *, torn: bool) -> _End:
        at = len(text[:position].encode("utf-8", "surrogateescape")) if position else 0
        return _End(at, empty=position == 0, torn=torn)

    def is_closed(position: int) -> bool:
        return text[position : position + 1] == "]" and not text[position + 1 :].strip()

    decoder = json.JSONDecoder()
    whole = 0  # the end of the last whole element
    position = _skip_space(text, text.index("[") + 1)
    if is_closed(position):
        return end_at(0, torn=False)
    while True:
        try:
            element, end = decoder.raw_decode(text, position)
        except ValueError:
            return end_at(whole, torn=True)
        if not isinstance(element, dict):
            raise _OtherContentError("it is a JSON array of something else than objects")
        whole = end
        position = _skip_space(text, whole)
        if text[position : position + 1] != ",":
            return end_at(whole, torn=not is_closed(position))
        position = _skip_space(text, position + 1)


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


class FileSink(Sink):
    """Sink that appends to a file: JSON lines if its name ends in ``.jsonl`` or ``.ndjson``, else the array of objects
    that ``datahub ingest`` reads.

    It uses the lock of DataHub's ``SynchronizedFileEmitter``, so that both may write the same file. An acknowledged
    append is on the disk. If a crash cuts an append off, the next one moves its remains to ``<path>.torn-N``.

    :param path: the file; it and its folder are made if they are missing.
    """

    name: ClassVar[str] = "file"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._form = _JsonLines() if path.suffix.lower() in (".jsonl", ".ndjson") else _JsonArray()

    @classmethod
    def from_connection(cls, connection: ConnectionParts) -> FileSink:
        """Return the sink of a ``datahub-file`` connection, whose host is a path or a ``file://`` URI.

        :raises SinkSettingsError: if the host is empty or not a local file.
        """
        text = (connection.host or "").strip()
        if "://" in text:
            uri = urlsplit(text)
            if uri.scheme.lower() != "file" or uri.netloc not in ("", "localhost"):
                raise SinkSettingsError(f"The connection's host must be a local path or file:///path, not {text!r}.")
            text = unquote(uri.path)
        if not text or text.endswith("/"):
            raise SinkSettingsError("The connection's host must be the path of the file to write.")
        return cls(Path(text))

    def describe(self) -> str:
        """Return ``the file PATH``."""
        return f"the file {self._path}"

    def check(self, deadline: Deadline) -> list[CheckResult]:  # noqa: ARG002 (the disk is asked, not a server)
        """Check that the file, or its future folder, can be written, and that the file holds metadata only."""
        place = next(path for path in (self._path, *self._path.absolute().parents) if path.exists())
        is_folder = place.is_dir()
        if is_folder == (place == self._path) or not os.access(place, os.W_OK | os.X_OK if is_folder else os.W_OK):
            return [CheckResult("DataHub", CheckStatus.BAD, f"{place} cannot be written by this user")]
        if not is_folder and not place.is_file():
            return [CheckResult("DataHub", CheckStatus.BAD, f"{place} is not a regular file")]
        status, text, advice = CheckStatus.GOOD, f"The file {self._path} can be written", ""
        try:
            if self._path.exists():
                with FileIO(self._path) as file:
                    self._end(file)
        except _OtherContentError as error:
            status, text = CheckStatus.BAD, f"Nothing can be appended to {self.describe()}: {error}"
            advice = "name another file in the connection"
        except OSError as error:
            status, text = CheckStatus.BAD, f"Cannot read {self.describe()}: {error.strerror or error}"
        return [CheckResult("DataHub", status, text, advice)]

    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:
        """Append all proposals, or none."""
        from filelock import FileLock, Timeout

        items = record.pending()
        try:
            make_folder(self._path.parent)
            # with_suffix, not a suffix added: that is how SynchronizedFileEmitter names its lock.
            with FileLock(self._path.with_suffix(".lock"), timeout=deadline.remaining()):
                if deadline.expired:
                    record.stop(f"No time was left to write {self.describe()}.")
                    return
                self._append(proposal for _, proposal in items)
        except Timeout:
            record.stop(f"Another process held the lock of {self.describe()} until the time for lineage was over.")
        except _OtherContentError as error:
            record.stop(f"Nothing was appended to {self.describe()}: {error}; name another file in the connection.")
        except OSError as error:
            record.stop(f"Cannot write {self.describe()}: {error.strerror or error}.")
        else:
            record.confirm(items, stored=True)

    def _append(self, proposals: Iterable[Proposal]) -> None:
        with FileIO(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+") as file:
            end = self._end(file)
            if end.torn:
                self._repair(file, end)
            _replace_end(file, end.at, self._pieces(proposals, end))
            log.debug("Appended %d bytes to %s at %d", file.tell() - end.at, self._path, end.at)
        sync_path(self._path.parent)

    def _end(self, file: FileIO) -> _End:
        file.seek(0)
        head = (file.read(_BLOCK) or b"").lstrip()
        return self._form.end(file, head) if head else _End(0, empty=True, torn=False)

    def _pieces(self, proposals: Iterable[Proposal], end: _End) -> Iterator[bytes]:
        lead = self._form.opening if end.empty else self._form.separator
        for proposal in proposals:
            text = json.dumps(proposal.to_obj(), ensure_ascii=False)
            # Half of a surrogate pair can only stand inside a JSON string, where its escape means the same.
            yield lead + text.encode("utf-8", "backslashreplace")
            lead = self._form.separator
        yield self._form.closing

    def _repair(self, file: FileIO, end: _End) -> None:
        file.seek(end.at)
        rest = file.readall()
        if rest.strip(b" \t\r\n,["):
            names = (f"{self._path.name}.torn-{number}" for number in count(1))
            aside = next(path for name in names if not (path := self._path.with_name(name)).exists())
            write_durably(aside, [rest])
            log.warning("%s ended in an incomplete append: moved %d bytes to %s", self._path, len(rest), aside)
        _replace_end(file, end.at, [] if end.empty else [self._form.closing])


def _replace_end(file: FileIO, at: int, pieces: Iterable[bytes]) -> None:
    """Replace everything from ``at`` on by ``pieces``; restore it if the disk refuses."""
    file.seek(at)
    before = file.readall()
    try:
        file.truncate(at)
        file.seek(at)
        for piece in pieces:
            _write_all(file, piece)
        os.fsync(file.fileno())
    except OSError:
        file.truncate(at)
        file.seek(at)
        _write_all(file, before)
        raise


def _write_all(file: FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
