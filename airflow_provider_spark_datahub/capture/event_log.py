"""Opens the files of Spark's event log, compressed ones where the codec can be read here.

Reads Spark's event logs: streaming, in bounded memory, and never by an exception.

Formats as Spark 3.5 to 4.3 write them (``EventLogFileWriters.scala``): one JSON object a line, in one file
``<application>[_<attempt>][.<codec>][.inprogress]``, or rolled over in a folder ``eventlog_v2_<application>``.

Follows files that a running job writes: what was appended since, in complete lines and in bounded memory.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from airflow_provider_spark_datahub.capture.collection import (
    ChunkStream,
    CollectLimits,
    FileFollower,
    Outcome,
    collect,
    decoded_event,
)

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from zstandard import ZstdDecompressor

_BUFFER_BYTES = 1024 * 1024
UNREADABLE_CODECS = ("lz4", "snappy", "lzf")
"""Codecs of ``spark.eventLog.compression.codec`` in formats of their own, which no common Python library reads."""


class UnreadableCodecError(OSError):
    """The file is compressed in a way that cannot be read here; the message says what to set."""

    def __init__(self, path: Path, codec: str, remedy: str) -> None:
        super().__init__(f"{path.name} is compressed with {codec}: {remedy}")


def open_log(path: Path) -> io.BufferedIOBase:
    """A file of an event log, decompressed, for reading bytes.

    A compressed file that ends too early, because its driver was killed, is read as far as it goes.

    :raises UnreadableCodecError: its codec cannot be read here.
    :raises OSError: the file cannot be opened.
    """
    codecs = {suffix.removeprefix(".") for suffix in path.suffixes}
    for codec in UNREADABLE_CODECS:
        if codec in codecs:
            raise UnreadableCodecError(
                path, codec, "set spark.eventLog.compression.codec=zstd or spark.eventLog.compress=false"
            )
    return _open_zstd(path) if "zstd" in codecs else path.open("rb")


def _open_zstd(path: Path) -> io.BufferedIOBase:
    try:
        import zstandard
    except ImportError as error:
        raise UnreadableCodecError(
            path, "zstd", "install the Python package zstandard, or set spark.eventLog.compress=false"
        ) from error
    return io.BufferedReader(_ZstdFile(path, zstandard.ZstdDecompressor(), zstandard.ZstdError), _BUFFER_BYTES)


class _ZstdFile(io.RawIOBase):
    """A zstd file, decompressed, whose defects are errors of the operating system to its reader."""

    def __init__(self, path: Path, decompressor: ZstdDecompressor, error: type[Exception]) -> None:
        super().__init__()
        self._name = path.name
        self._file = path.open("rb")
        # Spark begins a new frame whenever it flushes.
        self._stream = decompressor.stream_reader(self._file, read_across_frames=True)
        self._error = error

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill the buffer; 0 at the end.

        :raises OSError: the file is damaged.
        """
        try:
            return self._stream.readinto(buffer)
        except self._error as error:
            raise OSError(f"{self._name} is no intact zstd file: {error}") from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


_CHUNK_BYTES = 1024 * 1024
_IN_PROGRESS = ".inprogress"
_ROLLED = "eventlog_v2_"
_STATUS = "appstatus_"
_CODECS = "zstd|lz4|snappy|lzf"
_SINGLE_FILE = re.compile(rf"(?P<log>[^.].*?)(?:\.(?:{_CODECS}))?(?:\.inprogress)?")
_ROLLED_FILE = re.compile(rf"events_(?P<index>\d+)_.*?(?:\.(?:{_CODECS}))?(?P<compacted>\.compact)?")
_EVENT_NAME = re.compile(rb'\s*\{\s*"Event"\s*:\s*"([^"\\]*)"')

STREAMING_EVENTS = "org.apache.spark.sql.streaming.StreamingQueryListener$"
"""What the names of a streaming query's events begin with."""
SQL_EVENTS = "org.apache.spark.sql.execution.ui.SparkListener"
"""What the names of a SQL execution's events begin with."""

_QUERY_KEYS = ("id", "runId", "name", "timestamp", "progress", "exception")
_EXECUTION_KEYS = (
    "executionId", "rootExecutionId", "description", "physicalPlanDescription", "time", "errorMessage", "jobGroupId",
)  # fmt: skip
_APPLICATION_KEYS = ("App ID", "App Name", "Timestamp")
_KEPT_KEYS = {
    **dict.fromkeys(
        (f"{STREAMING_EVENTS}Query{what}Event" for what in ("Started", "Progress", "Terminated")), _QUERY_KEYS
    ),
    **dict.fromkeys((f"{SQL_EVENTS}SQLExecution{what}" for what in ("Start", "End")), _EXECUTION_KEYS),
    **dict.fromkeys(("SparkListenerApplicationStart", "SparkListenerApplicationEnd"), _APPLICATION_KEYS),
    "SparkListenerEnvironmentUpdate": ("Hadoop Properties",),
}
_WANTED = frozenset(name.encode() for name in _KEPT_KEYS)
_KEPT_HADOOP_PROPERTIES = ("fs.defaultFS",)


@dataclass(frozen=True, slots=True)
class LogLimits:
    """Bounds of what is read of an event log.

    :param max_event_bytes: a longer line is passed over without being held in memory.
    :param max_text_chars: how much is kept of a description, a plan or an exception.
    """

    max_event_bytes: int = 64 * 1024 * 1024
    max_text_chars: int = 16 * 1024


@dataclass(frozen=True, slots=True)
class ApplicationLog:
    """The event log of one application (of one attempt of it).

    :param name: the application's id as Spark spells it in file names, with the attempt where there are several.
    :param parts: its files, in the order in which they were written.
    :param in_progress: the driver did not close it: it still runs, or was killed.
    """

    name: str
    parts: tuple[Path, ...]
    in_progress: bool


@dataclass(slots=True)
class EventLogReport:
    """What was read; filled while the events are iterated, final when the iteration has ended.

    :param logs: the applications whose logs were found.
    :param events: those that were wanted.
    :param problems: what was not read to its end and why, for people.
    """

    logs: list[str] = field(default_factory=list)
    events: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether all of at least one log was read, and nothing that was found was left out."""
        return bool(self.logs) and not self.problems


class EventLog:
    """The events of all logs of a folder, once: iterate over it, then read :attr:`report`."""

    def __init__(self, events: Iterator[dict[str, Any]], report: EventLogReport) -> None:
        self._events = events
        self.report = report

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._events


def read_event_log(
    folder: Path,
    *,
    application_ids: Collection[str] | None = None,
    limits: LogLimits | None = None,
    deadline: Callable[[], bool] | None = None,
) -> EventLog:
    """The events of streaming queries, SQL executions and applications that Spark logged in a folder.

    Each is the decoded JSON, reduced to the keys that say something of lineage; ``Event`` is its full name. Each
    application's begin with its ``SparkListenerApplicationStart``. Nothing is opened before the first one is asked for.

    :param application_ids: only these applications' logs; ``None`` for a folder of this try alone.
    :param deadline: says True when the time is up; asked between lines.
    """
    report = EventLogReport()
    return EventLog(_read_all(folder, application_ids, limits or LogLimits(), deadline, report), report)


def find_logs(folder: Path, application_ids: Collection[str] | None = None) -> list[ApplicationLog]:
    """The event logs in a folder, by name.

    :raises OSError: the folder cannot be listed.
    """
    names = None if application_ids is None else {_in_file_names(one) for one in application_ids}
    found = []
    for path in sorted(folder.iterdir()):
        matched = _SINGLE_FILE.fullmatch(path.name)
        name = path.name.removeprefix(_ROLLED) if path.name.startswith(_ROLLED) else matched and matched["log"]
        if not name or not (names is None or name in names or re.sub(r"_\d+$", "", name) in names):
            continue
        if not path.name.startswith(_ROLLED):
            found.append(ApplicationLog(name, (path,), path.name.endswith(_IN_PROGRESS)))
        elif path.is_dir():
            found.append(_rolled_log(name, path))
    return found


def followable_name(part: Path) -> str | None:
    """What a part of a log is called from its beginning to its end; ``None`` for one that is not written line by line:
    it is compressed, or compacted."""
    name = part.name.removesuffix(_IN_PROGRESS)
    return None if re.search(rf"\.(?:{_CODECS}|compact)$", name) else name


def _rolled_log(name: str, folder: Path) -> ApplicationLog:
    parts: list[tuple[int, bool, Path]] = []
    in_progress = False
    for path in folder.iterdir():
        matched = _ROLLED_FILE.fullmatch(path.name)
        if matched:
            parts.append((int(matched["index"]), matched["compacted"] is not None, path))
        elif path.name.startswith(_STATUS) and path.name.endswith(_IN_PROGRESS):
            in_progress = True
    # A compacted file stands for all files up to its own index.
    start = max(((index, True) for index, compacted, _ in parts if compacted), default=(0, False))
    return ApplicationLog(name, tuple(path for index, compacted, path in sorted(parts)
                                      if (index, compacted) >= start), in_progress)  # fmt: skip


def _in_file_names(application_id: str) -> str:
    """As Spark's ``Utils.sanitizeDirName`` has it."""
    return re.sub(r"[.${}'\"]", "_", re.sub(r"[ :/]", "-", application_id)).lower()


def _read_all(
    folder: Path,
    application_ids: Collection[str] | None,
    limits: LogLimits,
    deadline: Callable[[], bool] | None,
    report: EventLogReport,
) -> Iterator[dict[str, Any]]:
    try:
        logs = find_logs(folder, application_ids)
    except OSError as error:
        report.problems.append(f"the Spark event log in {folder} cannot be read: {error.strerror or error}")
        return
    for log in logs:
        report.logs.append(log.name)
        collection = collect(
            _LogSource(log), limits=CollectLimits(limits.max_event_bytes, max_quarantined=1), deadline=deadline
        )
        for event in collection:
            kept = _reduced(event, limits.max_text_chars)
            if kept:
                report.events += 1
                yield kept
        read = collection.report
        if log.in_progress:
            report.problems.append(f"the Spark event log of {log.name} was not closed: its driver was killed, or runs")
        elif read.outcome is Outcome.TORN:
            report.problems.append(f"the last line of the Spark event log of {log.name} is cut off")
        if read.outcome in (Outcome.MISSING, Outcome.UNREADABLE, Outcome.TIMED_OUT):
            report.problems.append(f"the Spark event log of {log.name} was not read to its end: {read.detail}")
        if read.quarantined_count:
            first = read.quarantined[0]
            report.problems.append(
                f"{read.quarantined_count} lines of the Spark event log of {log.name} were passed over, "
                f"the first in line {first.line}: {first.reason}"
            )
        if read.outcome is Outcome.TIMED_OUT:
            return


def reduced_event(limits: LogLimits) -> Callable[[bytes], dict[str, Any]]:
    """A parser of single lines: what is kept of an event, empty where it is not wanted.

    It raises :class:`~airflow_provider_spark_datahub.capture.collection.BadLineError`.
    """
    decode = decoded_event()

    def parse(raw: bytes) -> dict[str, Any]:
        named = _EVENT_NAME.match(raw)
        if named is not None and named[1] not in _WANTED:
            return {}
        return _reduced(decode(raw), limits.max_text_chars)

    return parse


def _reduced(event: dict[str, Any], max_chars: int) -> dict[str, Any]:
    """What is kept of an event: nothing of one that is not wanted."""
    name = event.get("Event")
    if not isinstance(name, str) or name not in _KEPT_KEYS:
        return {}
    kept: dict[str, Any] = {"Event": name}
    for key in _KEPT_KEYS[name]:
        value = event.get(key)
        if key == "Hadoop Properties":
            hadoop = value if isinstance(value, dict) else {}
            value = {one: hadoop[one] for one in _KEPT_HADOOP_PROPERTIES if one in hadoop}
        if value is not None:
            kept[key] = value[:max_chars] if isinstance(value, str) else value
    return kept


@dataclass(frozen=True, slots=True)
class _LogSource:
    """All files of a log as one, with an empty line for each event that is not wanted."""

    log: ApplicationLog

    def open(self, _mode: str, /) -> IO[Any]:
        return io.BufferedReader(ChunkStream(_wanted_lines(self.log.parts)), buffer_size=_CHUNK_BYTES)

    def __str__(self) -> str:
        return str(self.log.parts[0].parent if len(self.log.parts) > 1 else self.log.parts[0])


def _wanted_lines(parts: Iterable[Path]) -> Generator[bytes]:
    """The lines of all files: empty where the event is not wanted, in pieces where they are long."""
    for part in parts:
        with open_log(part) as stream:
            while piece := stream.readline(_CHUNK_BYTES):
                named = _EVENT_NAME.match(piece)
                wanted = named is None or named[1] in _WANTED
                while wanted and not piece.endswith(b"\n"):
                    yield piece
                    piece = stream.readline(_CHUNK_BYTES)
                    if not piece:
                        break
                while not wanted and piece and not piece.endswith(b"\n"):
                    piece = stream.readline(_CHUNK_BYTES)
                yield piece if wanted else b"\n"


class LogFollower:
    """Follows the event logs in a folder, as far as they are written uncompressed.

    :param folder: as in :func:`~airflow_provider_spark_datahub.capture.event_log.read_event_log`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._limits = LogLimits()
        self._parts: dict[str, FileFollower[dict[str, Any]]] = {}

    def new(self, application_ids: Collection[str] | None, stop: Callable[[], bool]) -> Iterator[dict[str, Any]]:
        """The wanted events that were logged since, decoded and reduced.

        :param application_ids: only these applications' logs; ``None`` for a folder of this try alone.
        :param stop: asked between lines; what it leaves is for the next time.
        """
        try:
            logs = find_logs(self._folder, application_ids)
        except OSError:
            # Not there yet, or not readable: the end of the try tells of it.
            return
        for part in (part for log in logs for part in log.parts):
            name = followable_name(part)
            if name is None:
                continue
            follower = self._parts.get(name)
            if follower is None:
                limits = CollectLimits(self._limits.max_event_bytes, max_quarantined=0)
                follower = self._parts[name] = FileFollower(part, reduced_event(self._limits), limits)
            follower.moved(part)
            yield from (event for event in follower.new(stop) if event)
