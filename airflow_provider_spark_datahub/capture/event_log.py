"""Reads Spark's own event logs in bounded memory, reduced to the events and keys that matter for
lineage.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, TypeAlias

from airflow_provider_spark_datahub.capture.event_lines import (
    UNREAD,
    BadLineError,
    CollectedEvents,
    CollectionReport,
    FileFollower,
    Outcome,
    decoded_event,
)
from airflow_provider_spark_datahub.capture.event_objects import ObjectStore, StoreFolder
from airflow_provider_spark_datahub.capture.stored_files import ChunkStream, decompressed_zstd
from airflow_provider_spark_datahub.foundation.files import open_regular
from airflow_provider_spark_datahub.foundation.text import counted

log = logging.getLogger(__name__)

_BUFFER_BYTES = 1024 * 1024


class _DiskFolder(NamedTuple):
    path: Path

    def files(self, names: Collection[str] | None) -> Iterator[str]:
        for path in self.path.iterdir():
            if not path.name.startswith(_ROLLED):
                yield path.name
            elif path.is_dir() and _is_wanted(path.name.removeprefix(_ROLLED), names):
                yield f"{path.name}/"
                yield from (f"{path.name}/{file.name}" for file in path.iterdir())

    def open(self, name: str) -> IO[Any]:
        return open_regular(self.path / name)

    def __str__(self) -> str:
        return str(self.path)


_MARK = ".of-an-attempt"
_LATEST_ATTEMPTS = 3
_CLOCKS_MS = 600_000
_RANGE_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class LogObjects(StoreFolder):
    """Event logs in an object store, where a file appears when Spark closes it.

    :param since_ms: start of the attempt: logs that were closed before it are not opened.
    """

    since_ms: int | None = None

    def files(self, names: Collection[str] | None) -> Iterator[str]:
        """Yield the names of the objects. Rolled logs are looked up by name, since a History
        Server's folder is large.

        :param names: wanted logs, as files spell them; ``None`` for all.
        :raises OSError: if the store does not answer.
        """
        store, found = self.store(), False
        for name in names or ():
            for attempt in ("", *(f"_{number}" for number in range(1, _LATEST_ATTEMPTS + 1))):
                for file in store.stored(f"{self.folder}/{_ROLLED}{name}{attempt}"):
                    found = True
                    yield file.partition("/")[2]
        if not found:
            yield from (
                file.partition("/")[2]
                for file in store.stored(self.folder)
                if self._is_recent(store, file)
            )

    def _is_recent(self, store: ObjectStore, file: str) -> bool:
        closed_ms = store.modified_ms(file) if self.since_ms is not None else None
        return self.since_ms is None or closed_ms is None or closed_ms > self.since_ms - _CLOCKS_MS

    def open(self, name: str) -> IO[Any]:
        """Return an object as a file."""
        return _open_object(self.store(), f"{self.folder}/{name}")

    def make(self) -> None:
        """Make the folder, without which Spark does not start: Hadoop's connectors need any object
        in it.

        :raises OSError: if the store refuses.
        """
        self.store().write(f"{self.folder}/{_MARK}", [b"The event log of one attempt\n"])

    def sizes(self) -> dict[str, int]:
        """Return the size of each file of the logs, in bytes, by its name in the store.

        :raises OSError: if the store does not answer.
        """
        sizes = super().sizes()
        sizes.pop(f"{self.folder}/{_MARK}", None)
        return sizes

    def last_ms(self) -> int | None:
        """Return when the last file was closed, in ms since the epoch; ``None`` if there is none.

        :raises OSError: if the store does not answer.
        """
        store = self.store()
        return max(
            (ms for name in self.sizes() if (ms := store.modified_ms(name)) is not None),
            default=None,
        )

    def is_closed(self) -> bool:
        """Return whether Spark has closed what it began to log here.

        :raises OSError: if the store does not answer.
        """
        status = [
            name for name in self.sizes() if "/appstatus_" in name
        ]  # which Spark renames in the end
        return bool(status) and not any(name.endswith(_IN_PROGRESS) for name in status)

    def remove(self, *, keep_folder: bool = False) -> None:
        """Remove all logs in the folder, and the folder.

        :param keep_folder: keep what :meth:`make` made.
        :raises OSError: if the store refuses.
        """
        store, kept = self.store(), f"{self.folder}/{_MARK}" if keep_folder else ""
        for name in sorted(
            store.stored(self.folder), reverse=True
        ):  # what marks a folder comes last
            if name != kept:
                store.remove(name)


def _open_object(store: ObjectStore, name: str) -> IO[Any]:
    """Return an object as a file that requests one part of it after the other.

    Reading raises OSError if the store does not answer.
    """

    def parts() -> Generator[bytes]:
        start = 0
        while content := store.read_range(name, start, start + _RANGE_BYTES):
            yield content
            start += len(content)
            if len(content) < _RANGE_BYTES:
                return

    return io.BufferedReader(ChunkStream(parts()), _RANGE_BYTES)


LogPlace: TypeAlias = "Path | LogObjects"
"""Folder of event logs: on a disk, or in an object store."""
_LogFolder: TypeAlias = "_DiskFolder | LogObjects"


class _LogPart(NamedTuple):
    """File of an event log."""

    folder: _LogFolder
    name: str

    def open(self, _mode: str, /) -> IO[bytes] | io.BufferedReader:
        """Open the file for decompressed bytes; one that its killed driver cut off is read as far
        as it goes.

        :raises OSError: if the file cannot be opened, or its codec cannot be read here.
        """
        file = PurePosixPath(self.name)
        codec = next((suffix[1:] for suffix in file.suffixes if suffix[1:] in _CODECS), "")
        if not codec:
            return self.folder.open(self.name)
        if codec != _READ_CODEC:
            remedy = f"set spark.eventLog.compression.codec={_READ_CODEC} or spark.eventLog.compress=false"
            raise OSError(f"{file.name} is compressed with {codec}, which is not read: {remedy}")
        if find_spec("zstandard") is None:
            remedy = "install the Python package zstandard, or set spark.eventLog.compress=false"
            raise OSError(f"{file.name} is compressed with {codec}: {remedy}")
        return io.BufferedReader(ChunkStream(self._chunks()), _BUFFER_BYTES)

    def _chunks(self) -> Generator[bytes]:
        with self.folder.open(self.name) as stream, suppress(EOFError):
            yield from decompressed_zstd(stream)

    def __str__(self) -> str:
        return f"{self.folder}/{self.name}"


_READ_CODEC = "zstd"
_CODECS = (_READ_CODEC, "lz4", "snappy", "lzf")
"""Values of ``spark.eventLog.compression.codec``, which end the names of compressed logs."""
_IN_PROGRESS = ".inprogress"
_ROLLED = "eventlog_v2_"
_STATUS = "appstatus_"
_SUFFIXES = "|".join(_CODECS)
_SINGLE_FILE = re.compile(rf"(?P<log>[^.].*?)(?:\.(?:{_SUFFIXES}))?(?:\.inprogress)?")
_ROLLED_FILE = re.compile(
    rf"events_(?P<index>\d+)_.*?(?:\.(?:{_SUFFIXES}))?(?P<compacted>\.compact)?"
)
_COMPACTED = ".compact"
# The RDD of rows that the driver sends to the executors.
_ROWS_OF_DRIVER = "ParallelCollectionRDD"
_EVENT_NAME = re.compile(rb'\s*\{\s*"Event"\s*:\s*"([^"\\]*)"')

_STREAMING_EVENTS = "org.apache.spark.sql.streaming.StreamingQueryListener$"
_SQL_EVENTS = "org.apache.spark.sql.execution.ui.SparkListener"
_QUERY_KEYS = ("id", "runId", "name", "timestamp", "progress", "exception")
_EXECUTION_KEYS = (
    "executionId", "rootExecutionId", "description", "physicalPlanDescription", "time", "errorMessage", "jobGroupId",
    "modifiedConfigs",
)  # fmt: skip
_APPLICATION_KEYS = ("App ID", "App Name", "Timestamp", "User")
_KEPT_KEYS = {
    **dict.fromkeys(
        (f"{_STREAMING_EVENTS}Query{what}Event" for what in ("Started", "Progress", "Terminated")),
        _QUERY_KEYS,
    ),
    **dict.fromkeys(
        (f"{_SQL_EVENTS}SQLExecution{what}" for what in ("Start", "End")), _EXECUTION_KEYS
    ),
    f"{_SQL_EVENTS}DriverAccumUpdates": ("executionId", "accumUpdates"),
    **dict.fromkeys(
        ("SparkListenerApplicationStart", "SparkListenerApplicationEnd"), _APPLICATION_KEYS
    ),
    "SparkListenerLogStart": ("Spark Version",),
    "SparkListenerEnvironmentUpdate": (
        "System Properties",
        "Hadoop Properties",
        "Spark Properties",
    ),
    "SparkListenerJobStart": ("Job ID", "Properties", "Submission Time"),
}
_WANTED = frozenset(name.encode() for name in _KEPT_KEYS)
# Properties with the places of tables and the namespace of the jobs. All others may hold secrets.
_KEPT_PROPERTIES = re.compile(
    r"user\.dir|fs\.defaultFS|(?:spark\.hadoop\.)?hive\.metastore\.uris|spark\.sql\.warehouse\.dir"
    r"|(?:spark\.hadoop\.)?hive\.metastore\.(?:client\.factory\.class|glue\.catalogid)|spark\.glue\.accountId"
    r"|spark\.sql\.catalog\.[^.]+(?:\.(?:type|catalog-impl|warehouse|ur[il]))?|spark\.openlineage\.namespace"
    r"|spark\.sql\.sources\.partitionOverwriteMode|spark\.eventLog\.(?:enabled|excludedPatterns)|spark\.sql\.execution\.id|spark\.rdd\.scope"
)
ATTEMPT_PROPERTY = "spark.airflow.datahub.attempt"
"""Spark property by which an attempt finds its application's log among those of others."""
# Methods of SparkContext that read files: RDD of the path's name, in the scope of the method.
_READS_FILES = re.compile(
    r'"name":"(?:textFile|wholeTextFiles|binaryFiles|binaryRecords|sequenceFile|objectFile|hadoopFile|newAPIHadoopFile)"'
)
# Of files that a scan reads and a command writes, of Iceberg's scans and commits, and of Delta's
# MERGE and UPDATE.
_METRICS = frozenset(
    {
        "size of files read",
        "written output",
        "number of written files",
        "total data file size (bytes)",
        "total size of added files (bytes)",
        "number of added data files",
        "number of added records",
        "total number of data files",
        "total number of records",
        "number of target bytes added",
        "number of bytes added",
    }
)
_ROWS = "number of output rows"
_HEAD_LINES = 8
_MAX_EVENT_BYTES = 64 * 1024 * 1024
"""Longer lines are skipped and never held in memory."""
_TEXT_CHARS = 16 * 1024
"""How much is kept of a text."""
_PLAN_CHARS = 1024 * 1024
"""Likewise of a plan: the last node of a large plan names what the query writes."""


class _ApplicationLog(NamedTuple):
    """Event log of one application, or of one of its attempts.

    :param name: id of the application as Spark spells it in file names, with the attempt if there
        are several.
    :param parts: its files, in the order in which they were written.
    :param in_progress: the driver runs, or was killed.
    """

    name: str
    parts: tuple[_LogPart, ...]
    in_progress: bool


@dataclass
class EventLog:
    """Events of streaming queries, SQL executions and applications that Spark logged in a folder:
    iterate over it once.

    An event is decoded JSON, reduced to the keys that matter for lineage. The events of an
    application begin with its ``SparkListenerApplicationStart``. Counts and problems are final
    after the iteration, which raises no error.

    :param application_ids: applications whose logs are read; ``None`` for all.
    :param deadline: returns ``True`` when the time is up; called between lines.
    :param attempt: reads only logs with this value of :data:`ATTEMPT_PROPERTY`; ``None`` for all.
    :ivar logs: applications whose logs were found.
    :ivar events: number of yielded events.
    :ivar problems: logs that were not read to their ends, and why.
    :ivar is_unavailable: whether their disk or store failed, so that they may be read later.
    """

    folder: LogPlace
    application_ids: Collection[str] | None = None
    max_event_bytes: int = _MAX_EVENT_BYTES
    deadline: Callable[[], bool] = lambda: False
    attempt: str | None = None
    logs: list[str] = field(default_factory=list)
    events: int = 0
    problems: list[str] = field(default_factory=list)
    is_unavailable: bool = False

    @property
    def complete(self) -> bool:
        """Return whether at least one log was found, and every log was read to its end."""
        return bool(self.logs) and not self.problems

    def __iter__(self) -> Iterator[dict[str, Any]]:
        folder = _DiskFolder(self.folder) if isinstance(self.folder, Path) else self.folder
        try:
            logs = _find_logs(folder, self.application_ids)
        except OSError as error:
            self.problems.append(
                f"the Spark event log in {self.folder} cannot be read: {error.strerror or error}"
            )
            self.is_unavailable = True
            return
        for application in logs:
            if self.attempt is not None and _attempt_of(application) != self.attempt:
                continue
            self.logs.append(application.name)
            collected = CollectedEvents(
                application.parts,
                _reduced,
                max_event_bytes=self.max_event_bytes,
                deadline=self.deadline,
                unwanted=_is_unwanted,
            )
            for event in filter(None, collected):
                self.events += 1
                yield event
            read = collected.report
            self.problems += _problems(application, read)
            self.is_unavailable = self.is_unavailable or read.outcome is Outcome.UNAVAILABLE
            events = counted(self.events, "event")
            log.debug(
                "Read the Spark event log of %s: %s, %s.",
                application.name,
                events,
                read.outcome.name,
            )
            if read.outcome is Outcome.TIMED_OUT:
                return


def _attempt_of(application: _ApplicationLog) -> str | None:
    """Return the value of :data:`ATTEMPT_PROPERTY`, which is among the first lines of a log;
    ``None`` without one.
    """
    try:
        with application.parts[0].open("rb") as stream:
            for line in islice(stream, _HEAD_LINES):
                if (
                    b'"SparkListenerEnvironmentUpdate"' in line
                    and ATTEMPT_PROPERTY.encode() in line
                ):
                    properties = decoded_event(line).get("Spark Properties")
                    return (
                        str(properties.get(ATTEMPT_PROPERTY))
                        if isinstance(properties, dict)
                        else None
                    )
    except (IndexError, OSError, BadLineError):
        log.debug("Skipped the Spark event log of %s, which cannot be read.", application.name)
    return None


def _problems(application: _ApplicationLog, read: CollectionReport) -> Iterator[str]:
    if application.in_progress:
        yield f"the Spark event log of {application.name} was not closed: its driver was killed, or still runs"
    elif read.outcome is Outcome.TORN:
        yield f"the last line of the Spark event log of {application.name} is cut off"
    if any(part.name.endswith(_COMPACTED) for part in application.parts):
        yield f"a History Server removed ended executions from the Spark event log of {application.name}"
    # A rolled log whose driver was killed at once has a folder without files.
    is_gone = read.outcome is Outcome.REPLACED or (
        read.outcome is Outcome.MISSING and application.parts
    )
    if is_gone or read.outcome in UNREAD:
        yield f"the Spark event log of {application.name} was not read to its end: {read.detail}"
    if read.quarantined_count:
        first = read.quarantined[0]
        yield (
            f"{counted(read.quarantined_count, 'line')} of the Spark event log of {application.name} skipped, "
            f"the first in line {first.line}: {first.reason}"
        )


def _find_logs(
    folder: _LogFolder, application_ids: Collection[str] | None = None
) -> list[_ApplicationLog]:
    """Return the event logs in a folder, sorted by name; raises OSError if it cannot be listed."""
    wanted = (
        None
        if application_ids is None
        else {_file_name(application_id) for application_id in application_ids}
    )
    files: dict[str, list[str]] = {}
    for file in folder.files(wanted):
        top, slash, _ = file.partition("/")
        files.setdefault(f"{top}{slash}", []).append(file)
    found = []
    for top in sorted(files):
        if top.endswith("/"):
            name = top[:-1].removeprefix(_ROLLED) if top.startswith(_ROLLED) else ""
            if name and _is_wanted(name, wanted):
                found.append(_rolled_log(folder, name, files[top]))
        elif (matched := _SINGLE_FILE.fullmatch(top)) and _is_wanted(matched["log"], wanted):
            found.append(
                _ApplicationLog(
                    matched["log"], (_LogPart(folder, top),), top.endswith(_IN_PROGRESS)
                )
            )
    return found


def _is_wanted(name: str, names: Collection[str] | None) -> bool:
    """Return whether a log has one of the names, which the number of an attempt may follow."""
    return names is None or name in names or re.sub(r"_\d+$", "", name) in names


def _followable_name(part: str) -> str | None:
    """Return the name that a part keeps when it is closed; ``None`` if it is compressed or
    compacted, not lines.
    """
    name = part.removesuffix(_IN_PROGRESS)
    return None if re.search(rf"\.(?:{_SUFFIXES}|compact)$", name) else name


def _rolled_log(folder: _LogFolder, name: str, files: Iterable[str]) -> _ApplicationLog:
    parts: list[tuple[int, bool, str]] = []
    in_progress = False
    for file in files:
        base = file.rpartition("/")[2]
        matched = _ROLLED_FILE.fullmatch(base)
        if matched:
            parts.append((int(matched["index"]), matched["compacted"] is not None, file))
        elif base.startswith(_STATUS) and base.endswith(_IN_PROGRESS):
            in_progress = True
    # A compacted file replaces all files up to its own index.
    start = max(((index, True) for index, compacted, _ in parts if compacted), default=(0, False))
    kept = (
        _LogPart(folder, file)
        for index, compacted, file in sorted(parts)
        if (index, compacted) >= start
    )
    return _ApplicationLog(name, tuple(kept), in_progress)


def _file_name(application_id: str) -> str:
    """Return an application's id as Spark's ``Utils.sanitizeDirName`` spells it in file names."""
    return re.sub(r"[.${}'\"]", "_", re.sub(r"[ :/]", "-", application_id)).lower()


def _is_unwanted(line: bytes) -> bool:
    """Return whether the beginning of a line names an event that says nothing about lineage."""
    named = _EVENT_NAME.match(line)
    return named is not None and named[1] not in _WANTED


def _reduced(line: bytes) -> dict[str, Any]:
    """Return the keys that are kept of a line's event, or raise ``BadLineError``; empty for an
    unwanted event.
    """
    event = decoded_event(line)
    name = event.get("Event")
    if not isinstance(name, str) or name not in _KEPT_KEYS:
        return {}
    kept: dict[str, Any] = {"Event": name}
    for key in _KEPT_KEYS[name]:
        value = event.get(key)
        if key.endswith(("Properties", "Configs")):
            properties = value if isinstance(value, dict) else {}
            kept_properties = (
                (name, text)
                for name, text in properties.items()
                if _KEPT_PROPERTIES.fullmatch(name)
            )
            value = {
                name: _address(str(text)) if name.endswith((".url", ".uri")) else text
                for name, text in kept_properties
            } or None
        if value is not None:
            limit = _PLAN_CHARS if key == "physicalPlanDescription" else _TEXT_CHARS
            kept[key] = value[:limit] if isinstance(value, str) else value
    nodes = [*_plan_nodes(event.get("sparkPlanInfo"))]
    rdds = [*_rdds(event.get("Stage Infos"))]
    if rdds:
        kept["parallelized"] = any(rdd.get("Name") == _ROWS_OF_DRIVER for rdd in rdds)
    found = {
        "scanLocations": [*dict.fromkeys(filter(None, map(_several_paths, nodes)))],
        "countedNodes": [counted for node in nodes if (counted := _counted(node))["metrics"]],
        "rddPaths": _rdd_paths(rdds),
        "subqueryScans": _scans_of_subqueries(nodes),
    }
    return kept | {name: value for name, value in found.items() if value}


def _plan_nodes(plan: object) -> Iterator[dict[str, Any]]:
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            children = node.get("children")
            waiting += children if isinstance(children, list) else ()


def _scans_of_subqueries(nodes: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """Return the names and locations of the scans in subqueries: a plan's text lacks those of a
    cached query.
    """
    below = (
        node for one in nodes if one.get("nodeName") == "Subquery" for node in _plan_nodes(one)
    )
    names = ((str(node.get("nodeName")), _location(node)) for node in below)
    return [[*scan] for scan in dict.fromkeys(names) if "Scan " in scan[0]]


def _location(node: Mapping[str, Any]) -> str:
    metadata = node.get("metadata")
    location = metadata.get("Location") if isinstance(metadata, dict) else None
    return location if isinstance(location, str) and len(location) <= _PLAN_CHARS else ""


def _several_paths(node: Mapping[str, Any]) -> str:
    """Return the list of several paths that a scan reads: the plan's text names the first one only."""
    return "" if "(1 paths)" in _location(node) else _location(node)


def _counted(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the name and the location of a node, and the ids of those of its metrics that the
    driver counts.
    """
    metrics = node.get("metrics")
    listed = (
        [metric for metric in metrics if isinstance(metric, dict)]
        if isinstance(metrics, list)
        else []
    )
    ids = {metric.get("name"): metric.get("accumulatorId") for metric in listed}
    known = [name for name in ids if name in _METRICS]
    kept = {name: ids[name] for name in (*known, _ROWS) if known and name in ids}
    return {"node": node.get("nodeName"), "location": _location(node), "metrics": kept}


def _rdds(stages: object) -> Iterator[dict[str, Any]]:
    """Yield the RDDs of a job's stages."""
    for stage in stages if isinstance(stages, list) else ():
        listed = stage.get("RDD Info") if isinstance(stage, dict) else None
        for rdd in listed if isinstance(listed, list) else ():
            if isinstance(rdd, dict):
                yield rdd


def _rdd_paths(rdds: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the paths of files that the RDDs of a job read: the first RDD of ``textFile`` has the
    path as name.
    """
    found: dict[str, None] = {}
    for rdd in rdds:
        scope, name = rdd.get("Scope"), rdd.get("Name")
        if not (isinstance(scope, str) and isinstance(name, str) and _READS_FILES.search(scope)):
            continue
        # The user may rename the RDDs behind the first, which wholeTextFiles does not name.
        is_path = "/" in name and len(name) <= _TEXT_CHARS
        if is_path and (not rdd.get("Parent IDs") or "wholeTextFiles" in scope):
            found[name] = None
    return [*found]


def _address(url: str) -> str:
    """Return the address of a database without the user and the options, which may hold secrets."""
    scheme, separator, rest = re.split("[?;]", url, maxsplit=1)[0].partition("//")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


@dataclass
class LogFollower:
    """Reader of growing, uncompressed event logs in a folder."""

    _folder: Path
    _parts: dict[str, FileFollower[dict[str, Any]]] = field(default_factory=dict)

    @property
    def found(self) -> bool:
        """Return whether there was any log."""
        return bool(self._parts)

    def new(
        self, application_ids: Collection[str] | None, stop: Callable[[], bool]
    ) -> Iterator[dict[str, Any]]:
        """Yield the wanted events that were logged since, decoded and reduced.

        :param application_ids: applications whose logs are read; ``None`` for all.
        :param stop: called between lines; ``True`` leaves the rest for the next call.
        """
        try:
            logs = _find_logs(_DiskFolder(self._folder), application_ids)
        except OSError:
            # A missing or unreadable folder is reported at the end of the attempt.
            return
        for part in (part.name for log in logs for part in log.parts):
            name = _followable_name(part)
            if name is None:
                continue
            follower = self._parts.get(name)
            if follower is None:
                path = self._folder / part
                follower = self._parts[name] = FileFollower(
                    path, _reduced, _MAX_EVENT_BYTES, unwanted=_is_unwanted
                )
            follower.rename(self._folder / part)
            yield from (event for event in follower.new(stop) if event)
