"""Reads the event file of a try: streaming, in bounded memory, and never by an exception.

Chunks of bytes that come one by one, as a file.

The lines of one file of an archive of events, with their offsets, decompressed where the file is compressed.

Follows files that a running job writes: what was appended since, in complete lines and in bounded memory.
"""

from __future__ import annotations

import enum
import gzip
import io
import json
import math
import os
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeVar, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

T = TypeVar("T")

MEBIBYTE = 1024 * 1024
_SKIP_CHUNK_BYTES = MEBIBYTE
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@runtime_checkable
class EventSource(Protocol):
    """A file that can be opened: a ``pathlib.Path``, or a path of an object store of the same shape."""

    def open(self, mode: str, /) -> IO[Any]:
        """Open for reading bytes (``"rb"``)."""


class Outcome(enum.Enum):
    """How the collection ended; the value is the sentence for people."""

    COMPLETE = "the event file was read to its end"
    TORN = "the last line of the event file is cut off: the driver was killed while it wrote, or still writes"
    EMPTY = "the event file holds no event: the listener started but sent nothing, or the file was emptied"
    MISSING = (
        "there is no event file: the OpenLineage listener did not run, could not write there, "
        "or wrote on another machine"
    )
    UNREADABLE = "the event file cannot be read"
    REPLACED = "the event file was cut or replaced while the job wrote it: what it held before may not have been read"
    TIMED_OUT = "the time for reading events was used up before the end of the event file"


@dataclass(frozen=True, slots=True)
class CollectLimits:
    """Bounds of a collection.

    :param max_event_bytes: a longer line is quarantined without being held in memory.
    :param max_quarantined: how many bad lines are described; all are counted.
    """

    max_event_bytes: int = 256 * MEBIBYTE
    max_quarantined: int = 20


@dataclass(frozen=True, slots=True)
class QuarantinedLine:
    """A line that is no event.

    :param source: the file.
    :param line: 1 for the first line.
    :param offset: of the line's first byte in the file, in bytes.
    :param reason: for people, without any of the line's content.
    """

    source: str
    line: int
    offset: int
    reason: str


@dataclass(slots=True)
class CollectionReport:
    """What was read; filled while the events are iterated, final when the iteration has ended.

    :param lines: all lines, blank and bad ones included.
    :param bytes_read: over all files.
    :param torn: files whose last line is cut off.
    :param quarantined: the first bad lines, :attr:`quarantined_count` counts all of them. A torn line is no bad line.
    :param detail: which file and which error of the operating system, where the outcome has one.
    """

    lines: int = 0
    events: int = 0
    blank: int = 0
    torn: int = 0
    bytes_read: int = 0
    quarantined: list[QuarantinedLine] = field(default_factory=list)
    quarantined_count: int = 0
    outcome: Outcome = Outcome.MISSING
    detail: str = ""

    @property
    def sentence(self) -> str:
        """The outcome for people, with its detail."""
        return f"{self.outcome.value} ({self.detail})" if self.detail else self.outcome.value


class Collection(Generic[T]):
    """The events of one or more files, once: iterate over it, then read :attr:`report`."""

    def __init__(self, events: Iterator[T], report: CollectionReport) -> None:
        self._events = events
        self.report = report

    def __iter__(self) -> Iterator[T]:
        return self._events


def collect(
    sources: EventSource | Iterable[EventSource],
    *,
    limits: CollectLimits | None = None,
    deadline: Callable[[], bool] | None = None,
) -> Collection[dict[str, Any]]:
    """Read the events of one file, or of several in their order, decoded.

    Nothing is opened before the first event is asked for. What is wrong with a file or a line is in the report, never
    an exception.

    :param deadline: says True when the time is up; asked between lines.
    """
    return _collect(decoded_event(), sources, limits, deadline)


def collect_text(
    sources: EventSource | Iterable[EventSource],
    *,
    limits: CollectLimits | None = None,
    deadline: Callable[[], bool] | None = None,
) -> Collection[bytes]:
    """The same, each event as its JSON text in UTF-8: checked, but not decoded, which costs a tenth.

    The parameters are those of :func:`collect`.
    """
    return _collect(checked_text(), sources, limits, deadline)


def _collect(
    parse: Callable[[bytes], T],
    sources: EventSource | Iterable[EventSource],
    limits: CollectLimits | None,
    deadline: Callable[[], bool] | None,
) -> Collection[T]:
    listed = [sources] if isinstance(sources, EventSource) else list(sources)
    report = CollectionReport()
    reader = LineReader(parse, report, limits or CollectLimits(), deadline or _never)
    return Collection(reader.read_all(listed), report)


class BadLineError(Exception):
    """The line is no event, for the reason given."""


class OutOfTimeError(Exception):
    """The deadline has passed."""


# Later ones say more about why lineage is incomplete than earlier ones.
_SEVERITY = (
    Outcome.COMPLETE,
    Outcome.EMPTY,
    Outcome.MISSING,
    Outcome.TORN,
    Outcome.UNREADABLE,
    Outcome.REPLACED,
    Outcome.TIMED_OUT,
)


@dataclass(slots=True)
class Position:
    """How far a file was read.

    :param offset: of the next byte, in bytes.
    :param line: how many lines there are before it.
    """

    offset: int = 0
    line: int = 0


class LineReader(Generic[T]):
    """Reads the lines of files as events, and tells the report of each line.

    :param parse: makes an event of a line, or raises :class:`BadLineError`.
    """

    def __init__(
        self,
        parse: Callable[[bytes], T],
        report: CollectionReport,
        limits: CollectLimits,
        deadline: Callable[[], bool],
    ) -> None:
        self._report = report
        self._limits = limits
        self._deadline = deadline
        self._parse = parse

    def read_all(self, sources: list[EventSource]) -> Iterator[T]:
        """The events of files, each to its end; the outcome is that of the worst of them."""
        endings = []
        for source in sources:
            before = self._report.events
            self._ended(Outcome.COMPLETE, "")
            yield from self._read_source(source)
            if self._report.outcome is Outcome.COMPLETE and self._report.events == before:
                self._ended(Outcome.EMPTY, str(source))
            endings.append((self._report.outcome, self._report.detail))
            if self._report.outcome is Outcome.TIMED_OUT:
                break
        if endings:
            self._ended(*max(endings, key=lambda ending: _SEVERITY.index(ending[0])))

    def _read_source(self, source: EventSource) -> Iterator[T]:
        try:
            with source.open("rb") as stream:
                yield from self.read_lines(stream, str(source), Position())
        except FileNotFoundError:
            self._ended(Outcome.MISSING, str(source))
        except OSError as error:
            self._ended(Outcome.UNREADABLE, f"{source}: {error.strerror or error}")
        except OutOfTimeError:
            self._ended(Outcome.TIMED_OUT, f"{source}, after {self._report.lines} lines")

    def read_lines(self, stream: IO[bytes], name: str, at: Position, *, growing: bool = False) -> Iterator[T]:
        """The events from ``at``, which is moved on behind each line before its event is handed out.

        :param stream: stands at ``at``.
        :param growing: the last line is left alone until it has its end.
        :raises OutOfTimeError: the deadline has passed.
        """
        limit = self._limits.max_event_bytes
        while True:
            if self._deadline():
                raise OutOfTimeError
            raw = stream.readline(limit + 1)
            if not raw or (growing and not raw.endswith(b"\n")):
                return
            size = len(raw)
            event = None
            if size > limit and not raw.endswith(b"\n"):
                raw = b""
                size += self._skip_rest_of_line(stream)
                self._quarantine(name, at, f"{size} bytes long, the limit is {limit}")
            elif not raw.strip():
                self._report.blank += 1
            else:
                event = self._event_of(raw, name, at)
            at.offset += size
            at.line += 1
            self._report.lines += 1
            self._report.bytes_read += size
            if event is not None:
                yield event

    def _event_of(self, raw: bytes, name: str, at: Position) -> T | None:
        if at.offset == 0:
            raw = raw.removeprefix(_BYTE_ORDER_MARK)
        try:
            event = self._parse(raw)
        except BadLineError as problem:
            if raw.endswith(b"\n"):
                self._quarantine(name, at, str(problem))
            else:
                self._report.torn += 1
                self._ended(Outcome.TORN, f"{name}, line {at.line + 1}")
            return None
        self._report.events += 1
        return event

    def _skip_rest_of_line(self, stream: IO[bytes]) -> int:
        skipped = 0
        while chunk := stream.readline(_SKIP_CHUNK_BYTES):
            skipped += len(chunk)
            if chunk.endswith(b"\n"):
                break
            if self._deadline():
                raise OutOfTimeError
        return skipped

    def _quarantine(self, name: str, at: Position, reason: str) -> None:
        self._report.quarantined_count += 1
        if len(self._report.quarantined) < self._limits.max_quarantined:
            self._report.quarantined.append(QuarantinedLine(name, at.line + 1, at.offset, reason))

    def _ended(self, outcome: Outcome, detail: str) -> None:
        self._report.outcome = outcome
        self._report.detail = detail


def checked_text() -> Callable[[bytes], bytes]:
    """A parser that checks a line, and leaves it as it is.

    It raises :class:`BadLineError`, as does that of :func:`decoded_event`.
    """
    check = msgspec.json.Decoder(msgspec.Raw).decode
    decode = decoded_event()

    def parse(raw: bytes) -> bytes:
        text = raw.strip()
        if b"\\ud" in text or b"\\uD" in text:
            return json.dumps(decode(text), ensure_ascii=False).encode()
        try:
            # The check of the JSON's grammar does not look into strings.
            if not text.isascii():
                text.decode()
            check(text)
        except UnicodeDecodeError as error:
            raise BadLineError(f"no UTF-8 at byte {error.start} of the line") from error
        except msgspec.DecodeError as error:
            raise BadLineError(f"no JSON: {error}") from error
        except RecursionError as error:
            raise BadLineError("JSON nested too deeply") from error
        if not text.startswith(b"{"):
            raise BadLineError("not a JSON object")
        return text

    return parse


def decoded_event() -> Callable[[bytes], dict[str, Any]]:
    """A parser that decodes a line."""
    decoder = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite_float)

    def parse(raw: bytes) -> dict[str, Any]:
        try:
            event = decoder.decode(raw.decode("utf-8"))
            if b"\\ud" in raw or b"\\uD" in raw:
                event = _without_lone_surrogates(event)
        except UnicodeDecodeError as error:
            raise BadLineError(f"no UTF-8 at byte {error.start} of the line") from error
        except json.JSONDecodeError as error:
            raise BadLineError(f"no JSON: {error.msg} at character {error.pos} of the line") from error
        except RecursionError as error:
            raise BadLineError("JSON nested too deeply") from error
        except ValueError as error:
            # Python refuses to parse numbers of more than some thousand digits.
            raise BadLineError(f"no usable JSON: {error}") from error
        if not isinstance(event, dict):
            raise BadLineError(f"not a JSON object but {type(event).__name__}")
        return event

    return parse


def _without_lone_surrogates(event: Any) -> Any:
    # JSON may escape half of a surrogate pair; no UTF-8 can hold it, so nothing behind us could write it.
    return json.loads(json.dumps(event, ensure_ascii=False).encode("utf-8", "replace"))


def _refuse_constant(name: str) -> NoReturn:
    raise BadLineError(f"no JSON: it holds {name}")


def _finite_float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise BadLineError("no usable JSON: it holds a number beyond the range of a float")
    return number


def _never() -> bool:
    return False


class ChunkStream(io.RawIOBase):
    """Reads what a generator yields; what that raises, reading raises. To close it closes the generator."""

    def __init__(self, chunks: Generator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill the buffer, from one chunk at most; 0 at the end."""
        target = memoryview(buffer).cast("B")
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        size = min(len(target), len(self._rest))
        target[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def close(self) -> None:
        """Nothing more is read."""
        self._chunks.close()
        super().close()


COMPRESSED = (".gz", ".zst", ".zstd")
"""Ends of the names of compressed files."""
_BUFFER_BYTES = 128 * 1024
# Events may be a thousandth of their size when compressed: what is read at once must not fill the memory.
_COMPRESSED_BYTES = 16 * 1024


class DamagedFileError(OSError):
    """A file that cannot be read to its end.

    :param offset: of the first byte that cannot be read, decompressed.
    """

    def __init__(self, reason: str, offset: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset


def lines_of(name: str, stream: IO[bytes], limits: CollectLimits | None = None) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not blank, each with its offset, decompressed, in bytes.

    :param name: of the file, which tells how it is compressed.
    :param stream: its bytes, as they are stored.
    :raises DamagedFileError: where it cannot be read on; what came before counts.
    """
    limit = (limits or CollectLimits()).max_event_bytes
    opened = _decompressed(name, stream)
    offset = 0
    try:
        while line := opened.readline(limit + 1):
            if len(line) > limit and not line.endswith(b"\n"):
                raise DamagedFileError(f"a line of more than {limit} bytes", offset)
            start, offset = offset, offset + len(line)
            if start == 0:
                line = line.removeprefix(_BYTE_ORDER_MARK)
            if line.strip():
                yield start, line
    except EOFError as error:
        raise DamagedFileError("the compressed file is cut off", offset) from error
    except (zlib.error, gzip.BadGzipFile) as error:
        raise DamagedFileError(f"no intact gzip file: {error}", offset) from error
    except _BrokenZstdError as error:
        raise DamagedFileError(str(error), offset) from error


def _decompressed(name: str, stream: IO[bytes]) -> IO[bytes] | io.BufferedReader:
    if name.endswith(".gz"):
        return io.BufferedReader(gzip.GzipFile(fileobj=stream), _BUFFER_BYTES)
    if name.endswith((".zst", ".zstd")):
        return io.BufferedReader(ChunkStream(_decompressed_zstd(stream)), _BUFFER_BYTES)
    return stream


class _BrokenZstdError(Exception):
    """The bytes are no zstd."""


def _decompressed_zstd(stream: IO[bytes]) -> Generator[bytes]:
    """A zstd stream of any number of frames; one that is cut off ends with EOFError."""
    try:
        import zstandard
    except ImportError as error:
        raise DamagedFileError("to read zstd files, Python needs the package zstandard") from error
    frame, in_frame = zstandard.ZstdDecompressor().decompressobj(), False
    while True:
        compressed = b""
        if frame.eof:
            # Between two frames, what was read beyond the first one's end belongs to the next.
            compressed = frame.unused_data
            frame, in_frame = zstandard.ZstdDecompressor().decompressobj(), False
        compressed = compressed or stream.read(_COMPRESSED_BYTES)
        if not compressed:
            break
        in_frame = True
        try:
            yield frame.decompress(compressed)
        except zstandard.ZstdError as error:
            raise _BrokenZstdError(f"no intact zstd file: {error}") from error
    if in_frame:
        raise EOFError


class FileFollower(Generic[T]):
    """Reads a growing file, each line once. Nothing that is wrong with the file is an exception.

    The file is opened anew each time: a file system of the network shows then what another machine appended.

    :param parse: makes an event of a line, or raises :class:`BadLineError
        <airflow_provider_spark_datahub.capture.collection.BadLineError>`.
    :ivar report: over all that was read; its outcome is that of :meth:`rest`.
    """

    def __init__(self, path: Path, parse: Callable[[bytes], T], limits: CollectLimits | None = None) -> None:
        self.report = CollectionReport()
        self._path = path
        self._parse = parse
        self._limits = limits or CollectLimits()
        self._at = Position()
        self._file: tuple[int, int] | None = None
        self._replaced = False

    def moved(self, path: Path) -> None:
        """The file has another name now."""
        self._path = path

    def new(self, stop: Callable[[], bool]) -> Iterator[T]:
        """The events of the lines that were completed since; none while there is no file, or it cannot be read.

        :param stop: asked between lines; what it leaves is for the next time.
        """
        try:
            yield from self._read(stop, growing=True)
        except (OSError, OutOfTimeError):
            return

    def rest(self, deadline: Callable[[], bool]) -> Iterator[T]:
        """All other events, the last line included: nobody writes the file any more. The report is final then.

        :param deadline: says True when the time is up; asked between lines.
        """
        report = self.report
        report.outcome = Outcome.COMPLETE
        try:
            yield from self._read(deadline, growing=False)
        except FileNotFoundError:
            self._replaced = self._at.offset > 0
            report.outcome, report.detail = Outcome.MISSING, str(self._path)
        except OSError as error:
            report.outcome, report.detail = Outcome.UNREADABLE, f"{self._path}: {error.strerror or error}"
        except OutOfTimeError:
            report.outcome, report.detail = Outcome.TIMED_OUT, f"{self._path}, after {self._at.line} lines"
        if report.outcome is Outcome.COMPLETE and not report.events:
            report.outcome, report.detail = Outcome.EMPTY, str(self._path)
        if self._replaced and report.outcome not in (Outcome.UNREADABLE, Outcome.TIMED_OUT):
            report.outcome, report.detail = Outcome.REPLACED, str(self._path)

    def _read(self, stop: Callable[[], bool], *, growing: bool) -> Iterator[T]:
        with self._path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            file = status.st_dev, status.st_ino
            if status.st_size < self._at.offset or (self._at.offset and file != self._file):
                self._at, self._replaced = Position(), True
            self._file = file
            stream.seek(self._at.offset)
            reader = LineReader(self._parse, self.report, self._limits, stop)
            yield from reader.read_lines(stream, str(self._path), self._at, growing=growing)


def follow_events(path: Path) -> FileFollower[bytes]:
    """Follows the event file of a try; each event is its JSON text in UTF-8, checked but not decoded."""
    return FileFollower(path, checked_text())
