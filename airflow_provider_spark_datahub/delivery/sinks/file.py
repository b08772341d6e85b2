"""The two forms of a file of proposals, and where in an existing one the next proposal goes.

The file sink: proposals appended to a local file that other processes append to as well.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import ClassVar, Protocol
from urllib.parse import unquote, urlsplit

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery.connection import ConnectionParts
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.durable import make_folder, sync_folder, write_durably
from airflow_provider_spark_datahub.delivery.sink import DeliveryRecord, Finding, Sink, SinkSettingsError, Verdict

log = logging.getLogger(__name__)


class ForeignFileError(ValueError):
    """An existing file that holds something other than metadata: nothing may be appended to it."""


@dataclass(frozen=True, slots=True)
class Junction:
    """Where a file's content ends.

    :param at: the position in bytes behind the last whole element.
    :param empty: whether there is no element yet.
    :param torn: whether what follows is the rest of an append that was cut off, not the form's own closing.
    """

    at: int
    empty: bool
    torn: bool


class FileForm(Protocol):
    """How elements, each one JSON object on one line, are joined to a file."""

    @property
    def opening(self) -> bytes:
        """What stands before the first element."""

    @property
    def separator(self) -> bytes:
        """What stands between two elements."""

    @property
    def closing(self) -> bytes:
        """What stands behind the last element."""

    def junction(self, file: FileIO) -> Junction:
        """Where the content of ``file`` ends.

        :raises ForeignFileError: where the file is not of this form.
        """


class JsonLines:
    """One proposal per line."""

    opening = b""
    separator = b"\n"
    closing = b"\n"

    def junction(self, file: FileIO) -> Junction:
        """Reads the first block, and from the end the last line."""
        head = _head(file)
        if not head:
            return Junction(0, empty=True, torn=False)
        if not _begins_metadata(head):
            raise ForeignFileError("it does not begin with a JSON object of DataHub metadata")
        size = file.seek(0, 2)
        line_start = _last_newline(file, size) + 1
        if line_start == size:
            return Junction(size - 1, empty=False, torn=False)
        file.seek(line_start)
        if _is_object(file.readall()):
            return Junction(size, empty=False, torn=False)
        return Junction(max(0, line_start - 1), empty=line_start == 0, torn=True)


class JsonArray:
    """The array that ``datahub ingest``'s file source reads and DataHub's Airflow plugin writes."""

    opening = b"[\n"
    separator = b",\n"
    closing = b"\n]\n"

    def junction(self, file: FileIO) -> Junction:
        """Reads the first and the last block; the whole file only where it does not end as we or DataHub end it."""
        head = _head(file)
        if not head:
            return Junction(0, empty=True, torn=False)
        if not head.startswith(b"["):
            raise ForeignFileError("it is no JSON array")
        first = head[1:].lstrip()
        if first and not first.startswith(b"]") and not _begins_metadata(first):
            raise ForeignFileError("it is a JSON array of something else than DataHub metadata")
        size = file.seek(0, 2)
        start = file.seek(max(0, size - _BLOCK))
        # In both writers' layout only the array's own bracket stands at the start of a line.
        end = re.search(rb"\}(?=\s*\n\]\s*\Z)", file.readall())
        if end:
            return Junction(start + end.end(), empty=False, torn=False)
        file.seek(0)
        # Surrogates keep bytes that are no UTF-8, so that positions can be turned back into bytes.
        text = file.readall().decode("utf-8", "surrogateescape")
        return _scan(text)


_BLOCK = 8192
_FIRST_KEY = re.compile(rb'\{\s*("(?P<key>\w*)(?P<closed>"?)|\Z)')
# The fields of MetadataChangeProposal, MetadataChangeEvent and UsageAggregation: what the file source reads.
_KEYS = frozenset(
    {
        "auditHeader",
        "entityType",
        "entityUrn",
        "entityKeyAspect",
        "changeType",
        "aspectName",
        "aspect",
        "systemMetadata",
        "headers",
        "proposedSnapshot",
        "proposedDelta",
        "bucket",
        "duration",
        "resource",
        "metrics",
    }
)
_SPACE = re.compile(r"\s*")


def _head(file: FileIO) -> bytes:
    file.seek(0)
    head = file.read(_BLOCK) or b""
    return head.lstrip()


def _begins_metadata(text: bytes) -> bool:
    """Whether ``text`` begins with an object whose first key is one of DataHub's (or is cut off within it)."""
    match = _FIRST_KEY.match(text)
    if match is None:
        return False
    key = (match["key"] or b"").decode("ascii", "replace")
    if match["closed"]:
        return key in _KEYS
    return match.end() == len(text) and any(known.startswith(key) for known in _KEYS)


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _last_newline(file: FileIO, size: int) -> int:
    """The position of the file's last newline, -1 where there is none."""
    end = size
    while end > 0:
        start = file.seek(max(0, end - _BLOCK))
        found = (file.read(end - start) or b"").rfind(b"\n")
        if found >= 0:
            return start + found
        end = start
    return -1


def _scan(text: str) -> Junction:
    """Where the array ``text`` ends, element by element."""

    def junction(position: int, *, torn: bool) -> Junction:
        at = len(text[:position].encode("utf-8", "surrogateescape")) if position else 0
        return Junction(at, empty=position == 0, torn=torn)

    decoder = json.JSONDecoder()
    whole = 0  # the end of the last whole element
    position = _skip_space(text, text.index("[") + 1)
    if text[position : position + 1] == "]" and not text[position + 1 :].strip():
        return junction(0, torn=False)
    while True:
        try:
            element, end = decoder.raw_decode(text, position)
        except ValueError:
            return junction(whole, torn=True)
        if not isinstance(element, dict):
            raise ForeignFileError("it is a JSON array of something else than objects")
        whole = end
        position = _skip_space(text, whole)
        if text[position : position + 1] == "]" and not text[position + 1 :].strip():
            return junction(whole, torn=False)
        if text[position : position + 1] != ",":
            return junction(whole, torn=True)
        position = _skip_space(text, position + 1)


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


class FileSink(Sink):
    """Appends to a file: JSON lines where its name ends in ``.jsonl`` or ``.ndjson``, else the array of objects that
    ``datahub ingest`` reads.

    Its lock is the one of DataHub's ``SynchronizedFileEmitter``, so that both may write the same file. An append
    costs what is appended, not what is there, and is on the disk when it is acknowledged. What an append left that
    was cut off by a crash is moved to ``<path>.torn-N`` by the next one. A reader that takes no lock may see an
    append half done.

    :param path: the file; it and its folder are made where they are missing.
    """

    name: ClassVar[str] = "file"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._form: FileForm = JsonLines() if path.suffix.lower() in (".jsonl", ".ndjson") else JsonArray()

    @classmethod
    def from_connection(cls, connection: ConnectionParts) -> FileSink:
        """The sink of a ``datahub-file`` connection, whose host is a path or a ``file://`` URI.

        :raises SinkSettingsError: where the host is empty or no local file.
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
        """``the file PATH``."""
        return f"the file {self._path}"

    def check(self, deadline: Deadline) -> list[Finding]:  # noqa: ARG002 (the disk is asked, no server)
        """Whether the file, or the folder that it would be made in, can be written, and holds metadata only."""
        place = next(one for one in (self._path, *self._path.absolute().parents) if one.exists())
        is_folder = place.is_dir()
        if is_folder == (place == self._path) or not os.access(place, os.W_OK | os.X_OK if is_folder else os.W_OK):
            return [Finding("DataHub", Verdict.BAD, f"{place} cannot be written by this user")]
        try:
            if self._path.exists():
                with FileIO(self._path) as file:
                    self._form.junction(file)
        except ForeignFileError as error:
            advice = "name another file in the connection"
            return [Finding("DataHub", Verdict.BAD, f"Nothing can be appended to {self.describe()}: {error}", advice)]
        except OSError as error:
            return [Finding("DataHub", Verdict.BAD, f"Cannot read {self.describe()}: {error.strerror or error}")]
        return [Finding("DataHub", Verdict.GOOD, f"The file {self._path} can be written")]

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
        except ForeignFileError as error:
            record.stop(f"Nothing was appended to {self.describe()}: {error}; name another file in the connection.")
        except OSError as error:
            record.stop(f"Cannot write {self.describe()}: {error.strerror or error}.")
        else:
            record.confirm(items, stored=True)

    def _append(self, proposals: Iterable[Proposal]) -> None:
        with FileIO(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+") as file:
            junction = self._form.junction(file)
            if junction.torn:
                self._repair(file, junction)
            _replace_end(file, junction.at, self._pieces(proposals, junction))
        sync_folder(self._path.parent)

    def _pieces(self, proposals: Iterable[Proposal], junction: Junction) -> Iterator[bytes]:
        lead = self._form.opening if junction.empty else self._form.separator
        for proposal in proposals:
            text = json.dumps(proposal.to_obj(), ensure_ascii=False)
            # Half of a surrogate pair can only stand inside a JSON string, where its escape means the same.
            yield lead + text.encode("utf-8", "backslashreplace")
            lead = self._form.separator
        yield self._form.closing

    def _repair(self, file: FileIO, junction: Junction) -> None:
        file.seek(junction.at)
        rest = file.readall()
        if rest.strip(b" \t\r\n,["):
            aside = _free_name(self._path)
            write_durably(aside, [rest])
            log.warning("%s ended in a torn append: moved %d bytes to %s", self._path, len(rest), aside)
        _replace_end(file, junction.at, [] if junction.empty else [self._form.closing])


def _replace_end(file: FileIO, at: int, pieces: Iterable[bytes]) -> None:
    """Put ``pieces`` in the place of what stands from ``at`` on; where the disk refuses, put that back."""
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


def _free_name(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}.torn-{number}")).exists():
        number += 1
    return aside
