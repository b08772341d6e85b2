"""The ``spark-submit`` call that is extended with lineage, and the output that it prints."""

from __future__ import annotations

import itertools
import os
import re
import stat
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from airflow_provider_spark_datahub.foundation.text import SECRET_NAME

DRIVER_CLASS_PATH = "spark.driver.extraClassPath"
DRIVER_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_DISABLED_PROPERTY = "spark.openlineage.disabled"
_DISABLED_VARIABLE = "OPENLINEAGE_DISABLED"


class InjectionError(Exception):
    """The listener cannot be added without risk to the job.

    Its text is for the user: which option, property or file is the cause, and what to do.
    """


_MOST_ARGUMENT_BYTES = 6 * 1024 * 1024
"""Bytes of all arguments and the environment that Linux takes at most, however large the stack may
be.
"""
_SPARKS_SHARE = 0.25
"""Part of that for Spark's own scripts, which repeat the class path and the Java options for Java.
"""


def check_command_line(arguments: Iterable[str], env: Mapping[str, str], others: int = 0) -> None:
    """Raise InjectionError if the operating system may not take all arguments and the environment
    together.

    :param others: bytes of further arguments.
    """
    strings = itertools.chain(arguments, (f"{name}={value}" for name, value in env.items()))
    # Each string has an end and a pointer to it.
    size = others + sum(len(string.encode("utf-8", "surrogatepass")) + 9 for string in strings)
    most = min(os.sysconf("SC_ARG_MAX"), _MOST_ARGUMENT_BYTES)
    if size > (1 - _SPARKS_SHARE) * most:
        raise InjectionError(
            f"with the listener's part, the command line and the environment are {size} bytes long, too close to the "
            f"{most} that this machine takes: shorten them, e.g. by a --properties-file"
        )


_PLAIN_NAME = re.compile(r"spark\.[!-<>-~]+")
# Values that mean the same in a file and on a command line. Spark trims values of a file. Its
# scripts remove carriage returns from arguments, and Java decodes non-ASCII arguments by the
# locale, but a file as UTF-8.
_PLAIN_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?")

_PRIVATE = "spark-datahub-"
"""Beginning of the names of properties files, and of folders for them."""
_ABANDONED_SECONDS = 3600.0
"""Age of a properties file whose Spark, if it ever started, has read it."""


_TEMPORARY = ("/tmp", "/var/tmp")
"""Usual places of temporary files. ``TMPDIR`` may be below a private folder."""


def private_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a context with a folder of this user that others could pass through, if there is a
    place for it.
    """
    places = (
        place for place in (tempfile.gettempdir(), *_TEMPORARY) if _lets_others_pass(Path(place))
    )
    return tempfile.TemporaryDirectory(
        prefix=_PRIVATE, dir=next(places, None), ignore_cleanup_errors=True
    )


def _lets_others_pass(folder: Path) -> bool:
    with suppress(OSError):
        is_open = all(place.stat().st_mode & stat.S_IXOTH for place in (folder, *folder.parents))
        return is_open and os.access(folder, os.W_OK)
    return False


def remove_abandoned_properties() -> list[Path]:
    """Remove the properties files of this user that killed tasks left, and return them; their
    folders stay.
    """
    removed = []
    folder = Path(tempfile.gettempdir())
    for file in (*folder.glob(f"{_PRIVATE}*.conf"), *folder.glob(f"{_PRIVATE}*/{_PRIVATE}*.conf")):
        with suppress(OSError):
            status = file.lstat()
            is_old = time.time() - status.st_mtime > _ABANDONED_SECONDS
            if is_old and status.st_uid == os.geteuid() and stat.S_ISREG(status.st_mode):
                file.unlink()
                removed.append(file)
    return removed


def _write_private(lines: Iterable[bytes], folder: Path | None) -> Path:
    descriptor, path = tempfile.mkstemp(".conf", _PRIVATE, folder)  # with the mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(lines)
    except OSError:
        Path(path).unlink()
        raise
    return Path(path)


@dataclass(frozen=True)
class Submission:
    """Arguments of one ``spark-submit`` call that concern listeners, jars and Spark properties.

    Lists are separated by commas, as on the command line.

    :param properties: the ``--conf`` properties; values may be of any type, spark-submit sees their
        ``str()``.
    :param application: the script or jar that is submitted, if it is known.
    :param base_properties: those of ``--properties-file`` or ``spark-defaults.conf``;
        :attr:`base_file` is its path.
    :param private: names of :attr:`properties` whose values everyone could read on a command line:
        :meth:`hand_over`.
    :param replaceable: Spark surely reads :attr:`base_file` and nothing else below ``--conf``, so
        that a copy with more properties can take its place.
    """

    properties: Mapping[str, object] = field(default_factory=dict)
    jars: str | None = None
    packages: str | None = None
    driver_class_path: str | None = None
    repositories: str | None = None
    application: str | None = None
    base_properties: Mapping[str, str] = field(default_factory=dict)
    base_file: Path | None = None
    private: frozenset[str] = frozenset()
    replaceable: bool = False

    def hand_over(self, folder: Path | None = None) -> tuple[dict[str, object], Path | None]:
        """Return the properties for the command line, and a new ``--properties-file`` that holds
        the private ones.

        Spark reads one such file only, so this one begins with the content of the file that it
        replaces. The caller removes it. If the file is :attr:`replaceable`, secrets of the user's
        own call go into it, too.

        :param folder: for the file; the system's folder for temporary files by default.
        :returns: ``None`` for the file if there are no private properties.
        :raises OSError: if the file cannot be written.
        """
        private = self.private | self.secrets if self.replaceable else self.private
        if not private:
            return dict(self.properties), None
        content = self.base_file.read_bytes() if self.base_file is not None else b""
        # Two line ends, in case the content's last line continues (with a backslash) on the next
        # line.
        lines = [
            content,
            b"\n\n",
            *(_property_line(name, str(self.properties[name])) for name in sorted(private)),
        ]
        file = _write_private(lines, folder)
        return {name: value for name, value in self.properties.items() if name not in private}, file

    @property
    def arguments(self) -> list[str]:
        """The arguments of ``spark-submit`` for this submission, without the application's."""
        options = {
            "--jars": self.jars,
            "--packages": self.packages,
            "--driver-class-path": self.driver_class_path,
            "--repositories": self.repositories,
        }
        given = ((option, value) for option, value in options.items() if value)
        properties = (("--conf", f"{name}={value}") for name, value in self.properties.items())
        return [part for pair in itertools.chain(properties, given) for part in pair]

    @property
    def secrets(self) -> frozenset[str]:
        """Names of secrets in :attr:`properties` that Spark reads from a file exactly as from a
        command line.
        """
        return frozenset(
            name
            for name, value in self.properties.items()
            if SECRET_NAME.search(name)
            and _PLAIN_NAME.fullmatch(name)
            and _PLAIN_VALUE.fullmatch(str(value))
        )

    def effective(self, name: str) -> str | None:
        """Return the value that Spark would see for a property; ``None`` if it is not set."""
        if name in self.properties:
            return str(self.properties[name])
        return self.base_properties.get(name)

    def disabled_by(self, env: Mapping[str, str]) -> str | None:
        """Return the setting that disables the listener, for people; ``None`` if it is enabled.

        :param env: the driver's environment.
        """
        value, name = self.effective(_DISABLED_PROPERTY), f"the property {_DISABLED_PROPERTY}"
        if value is None:
            value, name = (
                env.get(_DISABLED_VARIABLE, ""),
                f"the environment variable {_DISABLED_VARIABLE}",
            )
        return name if value.strip().lower() == "true" else None

    def effective_properties(self) -> dict[str, str]:
        """Return all properties that Spark would see."""
        return {
            **self.base_properties,
            **{name: str(value) for name, value in self.properties.items()},
        }

    def effective_jars(self) -> tuple[str, ...]:
        """Return the jars of the job: ``--jars`` replaces ``spark.jars``."""
        return split_list(self.jars or self.effective("spark.jars"))

    def effective_packages(self) -> tuple[str, ...]:
        """Return the packages of the job: ``--packages`` replaces ``spark.jars.packages``."""
        return split_list(self.packages or self.effective("spark.jars.packages"))

    def effective_repositories(self) -> tuple[str, ...]:
        """Return additional Maven repositories: ``--repositories`` replaces
        ``spark.jars.repositories``.
        """
        return split_list(self.repositories or self.effective("spark.jars.repositories"))

    def effective_driver_class_path(self) -> tuple[str, ...]:
        """Return the entries of the driver's additional class path."""
        entries = self.driver_class_path or self.effective(DRIVER_CLASS_PATH) or ""
        return tuple(entry for entry in entries.split(":") if entry.strip())


def _property_line(name: str, value: str) -> bytes:
    """Return a line of a file of Java properties, in ASCII."""
    escaped = ["".join(map(_escaped, text)) for text in (name, value)]
    return f"{escaped[0]}={escaped[1]}\n".encode("ascii")


def _escaped(character: str) -> str:
    if character in "\\=:#! ":
        return f"\\{character}"
    if " " < character <= "~":
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at] * 256 + units[at + 1]:04x}" for at in range(0, len(units), 2))


def split_list(value: str | None) -> tuple[str, ...]:
    """Split a comma-separated option of spark-submit; blank entries are dropped."""
    return tuple(entry.strip() for entry in (value or "").split(",") if entry.strip())


T = TypeVar("T")

_FRAME = re.compile(r"\s+at \S")
"""Line of a Java stack trace below its exception."""
_OF_LISTENER = " io.openlineage."
_NO_LISTENER = re.compile(
    r"\bat io\.openlineage\.spark\.agent\.OpenLineageSparkListener\.<(?:cl)?init>"
    r"|(?:ClassNotFoundException|NoClassDefFoundError): io[./]openlineage[./]spark[./]agent[./]OpenLineageSparkListener"
)
_OUT_OF_MEMORY = "java.lang.OutOfMemoryError"
# org.apache.spark.SparkContext, which stops its listeners in between
_STOPPING, _STOPPED = "SparkContext is stopping with exitCode", "Successfully stopped SparkContext"
_SHUTDOWN = "Invoking stop() from shutdown hook"
_LOG_LINE = re.compile(r"[\d/:. -]+ (TRACE|DEBUG|INFO|WARN) ")
_HANG_SECONDS = 10.0
"""Time after which a Spark that has not stopped hangs."""
_LINE_CHARS = 10_000
_EXCEPTION = re.compile(
    r'(?:Caused by: |: |Exception in thread "[^"]{0,200}" )?'
    r"(?!py4j\.)((?:[\w$]{1,200}\.){0,20}[\w$]{0,200}(?:Exception|Error)(?:: .*|$))"
)
_DROPPED = re.compile(
    r"\bDropp(?:ing event from queue|ed \d+ events from) (?P<queue>eventLog|shared)\b"
)
_SCRIPT_ERROR = re.compile(r"\S+: line \d+: (.*)")
"""Characters of a line that are looked at, and remembered; a program may print megabytes without an
end of line.
"""


@dataclass
class DriverOutput:
    """Watcher of the driver's output, which client mode prints, for what OpenLineage's listener
    broke.

    :ivar last_line: the last line that is not empty, nor of a log about less than an error.
    :ivar cause: the last exception, without those of py4j that only wrap one, or the first error of
        Spark's scripts.
    :ivar dropping_queues: queues of Spark's event bus that dropped events: ``eventLog``, or
        ``shared``, the listeners' own.
    """

    last_line: str = ""
    cause: str = ""
    dropping_queues: dict[str, None] = field(default_factory=dict)
    _error: str = ""
    _failure: str = ""
    _stopping_since: float | None = None
    _killed_at: float | None = None

    def watched(self, lines: Iterable[T]) -> Iterator[T]:
        """Yield the lines unchanged."""
        for line in lines:
            if isinstance(line, str) and (start := line[:_LINE_CHARS].strip()):
                if not _LOG_LINE.match(start):  # Spark logs how it stops
                    self.last_line = start
                    # What fails after memory is out, fails for that.
                    found = _OUT_OF_MEMORY not in self.cause and _EXCEPTION.match(start)
                    if found := found or (not self.cause and _SCRIPT_ERROR.match(start)):
                        self.cause = found[1]
                self._watch(line[:_LINE_CHARS])
            yield line

    def _watch(self, line: str) -> None:
        dropped = _DROPPED.search(line)
        if dropped is not None:
            self.dropping_queues[dropped["queue"]] = None
        is_frame = _FRAME.match(line) is not None
        if not is_frame:
            self._error = line.strip(" :\r\n")
        if "openlineage" in line and not self._failure:
            if _NO_LISTENER.search(line):
                self._failure = f"OpenLineage's listener did not start ({self._error})"
            elif is_frame and _OF_LISTENER in line and _OUT_OF_MEMORY in self._error:
                self._failure = f"OpenLineage's listener ran out of memory ({self._error})"
        elif self._killed_at is None:
            if _STOPPING in line:
                self._stopping_since = time.monotonic()
            elif _STOPPED in line:
                self._stopping_since = None
            elif _SHUTDOWN in line:
                self.mark_killed()

    def mark_killed(self) -> None:
        """Record that the task stops the driver now."""
        self._killed_at = self._killed_at or time.monotonic()

    @property
    def is_killed(self) -> bool:
        """Return whether the task has stopped the driver."""
        return self._killed_at is not None

    @property
    def listener_failure(self) -> str:
        """How the listener made the job fail, if it failed; empty if the output does not show that
        it did.
        """
        if self._failure or self._stopping_since is None or self._killed_at is None:
            return self._failure
        seconds = self._killed_at - self._stopping_since
        if seconds < _HANG_SECONDS:
            return ""
        return f"Spark had been stopping for {seconds:.0f} s when the task was stopped: it waits for its listeners then"


_EVENT_PROPERTIES = ("spark.openlineage.transport", "spark.eventLog.dir=")
"""Beginnings of the properties that name a place of events."""


def running_submits(*places: str) -> list[int]:
    """Return the ids of this machine's processes of ``spark-submit`` that name one of the places of
    events. Only Linux.

    A place is a file, or a folder of files, which only one attempt has. In cluster mode, the
    process is left out: the driver runs elsewhere. So are those of users who own neither the place
    nor its folder: anybody may name it.
    """
    marks, users = tuple(filter(None, places)), {os.geteuid()}
    for place in {path for mark in marks for path in (Path(mark), Path(mark).parent)}:
        with suppress(OSError):
            users.add(place.stat().st_uid)
    return sorted(
        int(folder.name)
        for folder in Path("/proc").glob("[0-9]*")
        if _writes_to(folder, marks, users)
    )


def _writes_to(process: Path, marks: tuple[str, ...], users: Collection[int]) -> bool:
    try:
        if process.stat().st_uid not in users:
            return False
        arguments = (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return False
    folders = [f"{mark}/" for mark in marks]
    names_place = any(
        argument.endswith(marks) or any(folder in argument for folder in folders)
        for argument in arguments
        if argument.startswith(_EVENT_PROPERTIES)
    )
    return names_place and ("--deploy-mode", "cluster") not in itertools.pairwise(arguments)
