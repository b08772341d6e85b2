"""Reading of an attempt's events, line by line: once, or while a running job appends to them.

Files are streamed in bounded memory. A missing, torn or unreadable file or line is a result with a
reason, not an exception, because lineage never stops a task.
"""

from __future__ import annotations

import enum
import errno
import json
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Generic, NoReturn, Protocol, TypeAlias, TypeVar, runtime_checkable

import msgspec

from airflow_provider_spark_datahub.foundation.files import NotRegularFileError, open_regular
from airflow_provider_spark_datahub.foundation.text import counted

log = logging.getLogger(__name__)

T = TypeVar("T")

_MEBIBYTE = 1024 * 1024
_SKIP_CHUNK_BYTES = _MEBIBYTE
MAX_EVENT_BYTES = 128 * _MEBIBYTE
"""Size of the longest line; a longer one is quarantined and never held in memory."""
_MOST_DESCRIBED = 20
"""Bad lines that a report describes; all are counted."""
EVENT_FILE = ".ndjson"
"""Suffix of event files."""
EVENT_FOLDER = ".events"
"""Suffix of folders of event files."""


@runtime_checkable
class EventSource(Protocol):
    """File that can be opened: a ``pathlib.Path``, or a path in an object store with the same
    method.
    """

    def open(self, mode: str, /) -> IO[Any]:
        """Open for reading bytes (``"rb"``)."""


class Outcome(enum.Enum):
    """Result of reading event files; the value is the message for people.

    A later one explains better why the lineage of several files is incomplete.
    """

    COMPLETE = "the event file was read to its end"
    EMPTY = "the event file holds no event: the listener started but sent nothing, or the file was emptied"
    MISSING = (
        "there is no event file: the OpenLineage listener did not run, could not write there, "
        "or wrote on another machine"
    )
    TORN = "the last line of the event file is cut off: the driver was killed while it wrote, or still writes"
    UNREADABLE = "the event file cannot be read"
    UNAVAILABLE = "the event file cannot be read at the moment"
    REPLACED = "the event file was cut or replaced while the job wrote it: earlier events may not have been read"
    TIMED_OUT = "the time for reading events was used up before all of them were converted"


UNREAD = frozenset({Outcome.UNREADABLE, Outcome.UNAVAILABLE, Outcome.TIMED_OUT})
"""Outcomes after which there may be events that nobody has read."""


class _QuarantinedLine(msgspec.Struct, frozen=True):
    """Line that does not hold an event.

    :param reason: message for people, without any of the line's content.
    """

    source: str
    line: int
    reason: str


class CollectionReport(msgspec.Struct):
    """Counts and outcome of reading, filled while events are iterated and final when the iteration
    has ended.

    :param lines: number of lines, including blank and bad ones.
    :param torn: number of files whose last line is cut off. A torn line does not count as bad.
    :param quarantined: the first bad lines; :attr:`quarantined_count` counts all of them.
    :param detail: file, and error of the operating system if there was one.
    """

    lines: int = 0
    events: int = 0
    blank: int = 0
    torn: int = 0
    bytes_read: int = 0
    quarantined: list[_QuarantinedLine] = []
    quarantined_count: int = 0
    outcome: Outcome = Outcome.MISSING
    detail: str = ""

    def end(self, outcome: Outcome, detail: str = "") -> None:
        """Set the outcome."""
        self.outcome, self.detail = outcome, detail

    def quarantine(self, source: str, line: int, reason: str) -> None:
        """Count a bad line, and describe it unless too many are described already."""
        self.quarantined_count += 1
        if len(self.quarantined) < _MOST_DESCRIBED:
            self.quarantined.append(_QuarantinedLine(source, line, reason))

    @property
    def is_whole(self) -> bool:
        """Return whether everything was read and used, so that the events are not needed any more."""
        return self.outcome not in UNREAD and not self.quarantined_count

    @property
    def sentence(self) -> str:
        """Outcome for people, with its detail."""
        if self.outcome is Outcome.EMPTY and self.quarantined:
            bad, more = self.quarantined[0], self.quarantined_count - 1
            others = (
                f", and {counted(more, 'other line is', 'other lines are')} unusable"
                if more
                else ""
            )
            return f"no line of the events can be used: {bad.source}, line {bad.line}: {bad.reason}{others}"
        return f"{self.outcome.value} ({self.detail})" if self.detail else self.outcome.value


class CollectedEvents(Generic[T]):
    """Events of one file, or of several in their order: iterate over it once, then read
    :attr:`report`.

    Files are opened during iteration. Problems with a file or a line are in the report, never an
    exception.

    :param parse: :func:`checked_text` or :func:`decoded_event`; checking costs a tenth of decoding.
    :param deadline: returns ``True`` when the time is up; called between lines.
    :param unwanted: returns whether an event may be skipped unread, by the beginning of its line.
    """

    def __init__(
        self,
        sources: EventSource | Iterable[EventSource],
        parse: Callable[[bytes], T],
        *,
        max_event_bytes: int = MAX_EVENT_BYTES,
        deadline: Callable[[], bool] = lambda: False,
        unwanted: Callable[[bytes], bool] = lambda _: False,
    ) -> None:
        self.report = CollectionReport()
        listed = [sources] if isinstance(sources, EventSource) else sources
        followers = (
            FileFollower(source, parse, max_event_bytes, unwanted=unwanted, report=self.report)
            for source in listed
        )
        self._events = _in_turn(self.report, (follower.rest(deadline) for follower in followers))

    def __iter__(self) -> Iterator[T]:
        return self._events


class BadLineError(Exception):
    """A line does not hold an event; the message says why."""


class _DeadlineError(Exception):
    """The deadline has passed: the caller has no more time."""


_SEVERITY = list(Outcome)


def _in_turn(report: CollectionReport, files: Iterable[Iterator[T]]) -> Iterator[T]:
    """Yield the events of several files; report the worst of their outcomes."""
    endings = []
    for events in files:
        yield from events
        endings.append((report.outcome, report.detail))
        if report.outcome is Outcome.TIMED_OUT:
            break
    if endings:
        report.end(*max(endings, key=lambda ending: _SEVERITY.index(ending[0])))


# Errors that do not go away: something else in place of the file, missing rights, an impossible
# name.
_LASTING = (NotRegularFileError, PermissionError, IsADirectoryError, NotADirectoryError)
_LASTING_NUMBERS = frozenset({errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL})


def _outcome_of(error: OSError) -> Outcome:
    """Return the outcome of a read that failed: a disk or a store that fails at the moment may
    answer later.
    """
    is_lasting = isinstance(error, _LASTING) or error.errno in _LASTING_NUMBERS
    return Outcome.UNREADABLE if is_lasting else Outcome.UNAVAILABLE


def checked_text(raw: bytes) -> bytes:
    """Return a line unchanged if it holds an event, or raise :class:`BadLineError`."""
    text = raw.strip()
    try:
        if b"\\ud" in text or b"\\uD" in text:
            return json.dumps(decoded_event(text), ensure_ascii=False).encode()
        # The check of JSON grammar does not look into strings.
        if not text.isascii():
            text.decode()
        _check_grammar(text)
    except (ValueError, msgspec.DecodeError, RecursionError) as error:
        raise _bad_line(error) from error
    if not text.startswith(b"{"):
        raise BadLineError("not a JSON object")
    return text


def decoded_event(raw: bytes) -> dict[str, Any]:
    """Return the event that a line holds, or raise :class:`BadLineError`."""
    try:
        event = _decode(raw.decode("utf-8"))
        if b"\\ud" in raw or b"\\uD" in raw:
            event = _without_lone_surrogates(event)
    except (ValueError, RecursionError) as error:
        raise _bad_line(error) from error
    if not isinstance(event, dict):
        raise BadLineError(f"not a JSON object but {type(event).__name__}")
    return event


def _bad_line(error: Exception) -> BadLineError:
    if isinstance(error, UnicodeDecodeError):
        return BadLineError(f"not UTF-8 at byte {error.start} of the line")
    if isinstance(error, json.JSONDecodeError):
        return BadLineError(f"not valid JSON: {error.msg} at character {error.pos} of the line")
    if isinstance(error, msgspec.DecodeError):
        return BadLineError(f"not valid JSON: {error}")
    if isinstance(error, RecursionError):
        return BadLineError("JSON nested too deeply")
    # Python refuses to parse numbers of more than some thousand digits.
    return BadLineError(f"JSON that cannot be used: {error}")


def _without_lone_surrogates(event: Any) -> Any:
    # JSON may escape half of a surrogate pair, which UTF-8 cannot encode: no later step could write
    # it.
    return json.loads(json.dumps(event, ensure_ascii=False).encode("utf-8", "replace"))


def _refuse_constant(name: str) -> NoReturn:
    raise BadLineError(f"not valid JSON: it holds {name}")


def _finite_float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise BadLineError(
            "JSON that cannot be used: it holds a number beyond the range of a float"
        )
    return number


_check_grammar = msgspec.json.Decoder(msgspec.Raw).decode
_decode = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite_float).decode


@dataclass
class Follower(Generic[T]):
    """Reader of growing events, which yields each once. Problems are in the report.

    :param place: that of the events, for people.
    :param parse: returns the event of a line, or raises :class:`BadLineError`.
    :ivar report: counts of everything that was read; its outcome is set by :meth:`rest`.
    """

    _unit = "line"

    _place: object
    _parse: Callable[[bytes], T]
    _max_event_bytes: int = MAX_EVENT_BYTES
    report: CollectionReport = field(default_factory=CollectionReport)

    def new(self, stop: Callable[[], bool]) -> Iterator[T]:
        """Yield the events that were written since; none if they are missing or unreadable.

        :param stop: called in between; returns ``True`` to leave the rest for the next call.
        """
        try:
            yield from self._read(stop, final=False)
        except (FileNotFoundError, _DeadlineError):
            return
        except OSError as problem:
            log.debug("Left events in %s for later: %s", self._place, problem)

    def rest(self, deadline: Callable[[], bool]) -> Iterator[T]:
        """Yield all remaining events after the writer has ended. The report is final then.

        :param deadline: returns ``True`` when the time is up; called in between.
        """
        report = self.report
        report.end(Outcome.COMPLETE)
        try:
            yield from self._read(deadline, final=True)
        except FileNotFoundError:
            report.end(Outcome.MISSING, str(self._place))
        except OSError as error:
            # An error of ours has no strerror, and names the place already.
            named = error.strerror is None and str(self._place) in str(error)
            report.end(
                _outcome_of(error),
                str(error) if named else f"{self._place}: {error.strerror or error}",
            )
        except _DeadlineError:
            report.end(
                Outcome.TIMED_OUT, f"{self._place}, after {counted(report.lines, self._unit)}"
            )
        if report.outcome is Outcome.COMPLETE and not report.events:
            report.end(Outcome.EMPTY, str(self._place))

    def _read(self, stop: Callable[[], bool], *, final: bool) -> Iterator[T]:
        """Yield the events that were written since, or raise OSError; call :meth:`_check` in
        between.

        :param final: the writer has ended.
        """
        raise NotImplementedError

    @staticmethod
    def _check(stop: Callable[[], bool]) -> None:
        if stop():
            raise _DeadlineError


@dataclass
class FileFollower(Follower[T]):
    """Reader of the lines of a file.

    The file is reopened each time, because a network file system may only then show what another
    machine appended.

    :param offset: position of the next byte to read.
    :param unwanted: returns whether an event may be skipped unread, by the beginning of its line.
    """

    _place: EventSource
    offset: int = 0
    unwanted: Callable[[bytes], bool] = lambda _: False
    _line: int = 0
    _file: tuple[int, int] | None = None
    _replaced: bool = False

    def rename(self, path: Path) -> None:
        """Continue with the same file under another name."""
        self._place = path

    def rest(self, deadline: Callable[[], bool]) -> Iterator[T]:
        """Yield all remaining events, including the last line, after the writer has ended. The
        report is final then.
        """
        yield from super().rest(deadline)
        if self.report.outcome is Outcome.MISSING:
            self._replaced = self.offset > 0
        if self._replaced and self.report.outcome not in UNREAD:
            self.report.end(Outcome.REPLACED, str(self._place))

    def _read(self, stop: Callable[[], bool], *, final: bool) -> Iterator[T]:
        if not isinstance(self._place, Path):
            with self._place.open("rb") as stream:
                yield from self._lines(stream, stop, final=final)
            return
        with open_regular(self._place) as stream:
            status = os.fstat(stream.fileno())
            file = status.st_dev, status.st_ino
            if status.st_size < self.offset or (self._file and file != self._file):
                self.offset, self._line, self._replaced = 0, 0, True
            self._file = file
            stream.seek(self.offset)
            yield from self._lines(stream, stop, final=final)

    def _lines(self, stream: IO[bytes], stop: Callable[[], bool], *, final: bool) -> Iterator[T]:
        """Yield the events of the next lines; the position is advanced past each line before its
        event is yielded.
        """
        limit, report = self._max_event_bytes, self.report
        while True:
            self._check(stop)
            # The name of an event stands first, so that no unwanted line is held whole.
            raw = stream.readline(min(limit, _SKIP_CHUNK_BYTES) + 1)
            is_kept = not self.unwanted(raw)
            if is_kept and not raw.endswith(b"\n"):
                raw += stream.readline(limit + 1 - len(raw))
            size, is_whole, event = len(raw), raw.endswith(b"\n"), None
            is_too_long = size > limit and not is_whole
            if (final and is_too_long) or not (is_kept or is_whole):
                size, is_whole = self._skip_rest_of_line(stream, stop, size)
            if not raw or not (final or is_whole):
                return
            if not is_kept:
                report.events += 1
            elif is_too_long:
                self._quarantine(f"{size} bytes long, the limit is {limit}")
            elif not raw.strip():
                report.blank += 1
            else:
                event = self._event_of(raw)
            del raw
            self.offset += size
            self._line += 1
            report.lines += 1
            report.bytes_read += size
            if event is not None:
                yield event
            del event

    def _skip_rest_of_line(
        self, stream: IO[bytes], stop: Callable[[], bool], size: int
    ) -> tuple[int, bool]:
        """Return the size of a line whose first ``size`` bytes are read, and whether its end is
        there.
        """
        while chunk := stream.readline(_SKIP_CHUNK_BYTES):
            size += len(chunk)
            if chunk.endswith(b"\n"):
                return size, True
            self._check(stop)
        return size, False

    def _event_of(self, raw: bytes) -> T | None:
        try:
            event = self._parse(raw)
        except BadLineError as problem:
            if raw.endswith(b"\n"):
                self._quarantine(str(problem))
            else:
                self.report.torn += 1
                self.report.end(Outcome.TORN, f"{self._place}, line {self._line + 1}")
            return None
        self.report.events += 1
        return event

    def _quarantine(self, reason: str) -> None:
        self.report.quarantine(str(self._place), self._line + 1, reason)


# -- all kinds of places


class _OtherEvents(Protocol):
    """Events that are not in files of their own: objects in a store, or those of a Spark Connect
    session.
    """

    def follow(self, parse: Callable[[bytes], T], /) -> Follower[T]:
        """Return the reader of the events."""

    def sizes(self) -> dict[str, int]:
        """Return the size of each part of the events, in bytes."""

    def last_ms(self) -> int | None:
        """Return the time of the last event, in ms since the epoch; ``None`` if there is none."""

    def remove(self) -> None:
        """Remove the events."""


EventPlace: TypeAlias = Path | _OtherEvents
"""An attempt's event file, folder of event files (:data:`EVENT_FOLDER`), objects in a store, or
Connect session.
"""


def follow(place: EventPlace, parse: Callable[[bytes], T]) -> Follower[T]:
    """Return the reader of an attempt's events."""
    if not isinstance(place, Path):
        return place.follow(parse)
    return (
        _FolderFollower(place, parse)
        if place.suffix == EVENT_FOLDER
        else FileFollower(place, parse)
    )


@dataclass
class _FolderFollower(Follower[T]):
    """Reader of a growing folder of event files, one for each Spark, in the order of their names.

    :ivar report: its outcome is the worst of the files'.
    """

    _place: Path
    _followers: dict[Path, FileFollower[T]] = field(default_factory=dict)

    def new(self, stop: Callable[[], bool]) -> Iterator[T]:
        for follower in self._found():
            yield from follower.new(stop)

    def rest(self, deadline: Callable[[], bool]) -> Iterator[T]:
        self.report.end(Outcome.MISSING, f"no Spark of this task wrote into {self._place}")
        yield from _in_turn(self.report, [follower.rest(deadline) for follower in self._found()])

    def _found(self) -> list[FileFollower[T]]:
        for path in sorted(self._place.glob(f"*{EVENT_FILE}")):
            if path not in self._followers:
                self._followers[path] = FileFollower(path, self._parse, report=self.report)
        return list(self._followers.values())
