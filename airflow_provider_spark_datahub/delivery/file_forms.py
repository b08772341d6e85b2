"""The two forms of a file of proposals, and where in an existing one the next proposal goes."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from io import FileIO
from typing import Protocol


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
