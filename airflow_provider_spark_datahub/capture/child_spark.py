"""Lineage of every ``spark-submit`` below a process, whatever starts it.

Spark's scripts and PySpark source ``spark-env.sh`` of ``SPARK_CONF_DIR`` before they start Java.
:meth:`ChildInjection.write` writes a folder with another ``spark-env.sh``. It sources the user's
    own one, and then
calls :func:`_rewrite` in this Python, which adds the listener to the arguments. Each Spark has its
own event file.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from airflow_provider_spark_datahub.capture.class_archive import ClassArchiveError, ClassArchives
from airflow_provider_spark_datahub.capture.event_lines import EVENT_FILE
from airflow_provider_spark_datahub.capture.injection import (
    LineageInjection,
    ParentRun,
    check_listener,
    inject,
    inject_event_log,
)
from airflow_provider_spark_datahub.capture.openlineage_jar import (
    DEFAULT_OPENLINEAGE_JAR,
    SparkSubmit,
)
from airflow_provider_spark_datahub.capture.spark_submit import (
    InjectionError,
    Submission,
    check_command_line,
)
from airflow_provider_spark_datahub.foundation.files import open_regular

_SPARK_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
# This class starts a Python, which starts the spark-submit that gets the listener.
_SPARK_PIPELINES = "org.apache.spark.deploy.SparkPipelines"
_USERS_CONF_DIR = "SPARK_DATAHUB_USERS_CONF_DIR"
_LOADED = "SPARK_ENV_LOADED"
_REQUEST = "request.json"
_SCRIPT = "spark-env.sh"
_NOTE = ".note"
_LARGEST_NOTE = 4096
"""Longest note of a launch that the report repeats, in bytes."""

# org.apache.spark.launcher.SparkSubmitOptionParser
_FLAG = re.compile(r"-h|-v|--(help|load-spark-defaults|supervise|usage-error|verbose|version)")
_VALUE = re.compile(
    r"-c|--(archives|class|conf|deploy-mode|driver-class-path|driver-cores|driver-default-class-path|driver-java-options"
    r"|driver-library-path|driver-memory|exclude-packages|executor-cores|executor-memory|files|jars|keytab|kill|master"
    r"|name|num-executors|packages|principal|properties-file|proxy-user|py-files|queue|remote|repositories|status"
    r"|total-executor-cores)"
)
_ENDS_WITHOUT_A_JOB = frozenset({"--help", "-h", "--kill", "--status", "--version"})
# org.apache.spark.launcher.SparkSubmitCommandBuilder: these take their own options between those of
# Spark.
_SHELLS = frozenset({"pyspark-shell-main", "sparkr-shell-main"})
_MIXED_CLASSES = re.compile(
    r"org\.apache\.spark\.(repl\.Main|sql\.hive\.thriftserver\.\w+|sql\.connect\.service\.\w+|sql\.application\.ConnectRepl)"
)


@dataclass(frozen=True)
class ChildInjection:
    """Configuration of the listener for all Sparks below one attempt.

    :param events_folder: absolute folder of their event files, one for each Spark.
    :param properties: as of :class:`LineageInjection`.
    :param class_archives: folder of archives of Java classes; ``None`` for none.
    :param event_log: absolute folder for Spark's own event logs, which exists; ``None`` for none.
    """

    events_folder: str
    parent: ParentRun
    root: ParentRun | None = None
    properties: dict[str, str] = field(default_factory=dict)
    openlineage_jar: str = DEFAULT_OPENLINEAGE_JAR
    event_log: str | None = None
    class_archives: str | None = None

    def write(self, folder: Path, env: Mapping[str, str]) -> dict[str, str | None]:
        """Write a configuration folder of Spark that adds lineage to the Sparks of child processes.

        The user's own configuration stays in effect, from ``SPARK_CONF_DIR`` or from each Spark's
        home.

        :param folder: an empty folder whose path has no blank: Spark's scripts do not quote it.
        :returns: the variables to set in it; ``None`` to remove one.
        :raises InjectionError: if its path holds a blank.
        """
        if re.search(r"\s", str(folder)):
            raise InjectionError(
                f"the folder {str(folder)!r} contains a blank: set TMPDIR to a path without blanks"
            )
        root = str(Path(__file__).parents[2])
        bootstrap = (
            f"import sys; sys.path.insert(0, {root!r}); from {__name__} import _main; _main()"
        )
        (folder / _REQUEST).write_bytes(msgspec.json.encode(self))
        values = {
            "users": _USERS_CONF_DIR,
            "submit": _SPARK_SUBMIT,
            "pipelines": _SPARK_PIPELINES,
            "loaded": _LOADED,
            "folder": shlex.quote(str(folder)),
            "python": shlex.quote(sys.executable),
            "bootstrap": shlex.quote(bootstrap),
        }
        script = (
            Path(__file__).with_name(_SCRIPT).read_text()
        )  # where @users@ and the like stand for these values
        (folder / _SCRIPT).write_text(re.sub("@([a-z]+)@", lambda name: values[name[1]], script))
        # A Spark of another user that gets these variables (sudo -E) reads the script, and starts
        # without lineage.
        folder.chmod(0o711)
        (folder / _SCRIPT).chmod(0o644)
        users = env.get(_USERS_CONF_DIR) or env.get("SPARK_CONF_DIR")
        return {"SPARK_CONF_DIR": str(folder), _USERS_CONF_DIR: users or None, _LOADED: None}

    @staticmethod
    def notes(events_folder: Path) -> Iterator[str]:
        """Yield the notes of launches for the report, in the order of the launches."""
        for path in sorted(events_folder.glob(f"*{_NOTE}")):
            try:
                with open_regular(path) as file:
                    yield file.read(_LARGEST_NOTE).decode("utf-8", "replace")
            except OSError as error:
                yield f"the note of a launch cannot be read: {path}: {error.strerror or error}"


@dataclass(frozen=True)
class SubmitArguments:
    """Arguments of Spark's class ``SparkSubmit``, parsed as Spark parses them.

    :param options: the options before the application, each with its value (``None`` for a flag)
        and its position.
    :param start: position of the first option.
    :param application: the script or jar.
    """

    arguments: tuple[str, ...]
    options: tuple[tuple[str, str | None, slice], ...]
    start: int
    application: str | None = None

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> SubmitArguments:
        """Parse the arguments after the name of the class."""
        start = (
            1 if arguments[:1] and (arguments[0] in _SHELLS or arguments[0] == "run-example") else 0
        )
        mixed = bool(start) and arguments[0] in _SHELLS
        options: list[tuple[str, str | None, slice]] = []
        position = start
        while position < len(arguments):
            name, value, end = _option_at(arguments, position)
            if _FLAG.fullmatch(name) or (_VALUE.fullmatch(name) and value is not None):
                options.append(("--conf" if name == "-c" else name, value, slice(position, end)))
                mixed = mixed or (name == "--class" and bool(_MIXED_CLASSES.fullmatch(value or "")))
            elif mixed:
                end = position + 1
            else:
                break
            position = end
        application = arguments[position] if position < len(arguments) else None
        return cls(tuple(arguments), tuple(options), start, application)

    def value(self, name: str) -> str | None:
        """Return the value of an option; the last one counts."""
        return next((value for option, value, _ in reversed(self.options) if option == name), None)

    @property
    def properties(self) -> dict[str, str]:
        """The properties of ``--conf``."""
        pairs = (
            value.partition("=")
            for option, value, _ in self.options
            if option == "--conf" and value
        )
        return {name: value for name, _, value in pairs}

    @property
    def names(self) -> set[str]:
        """Names of the options."""
        return {option for option, _, _ in self.options}

    @property
    def submission(self) -> Submission:
        """The arguments as a submission."""
        return Submission(
            properties=self.properties,
            jars=self.value("--jars"),
            packages=self.value("--packages"),
            driver_class_path=self.value("--driver-class-path"),
            repositories=self.value("--repositories"),
            application=self.application,
        )

    def with_submission(
        self, submission: Submission, properties_file: Path | None = None
    ) -> list[str]:
        """Return the arguments of another submission. Options that it does not change stay where
        they are.

        :param properties_file: replaces the arguments' own ``--properties-file``.
        """
        before = self.properties
        changed = {
            name: str(value)
            for name, value in submission.properties.items()
            if before.get(name) != str(value)
        }
        lists = {
            "--jars": submission.jars,
            "--packages": submission.packages,
            "--driver-class-path": submission.driver_class_path,
            "--properties-file": str(properties_file) if properties_file else None,
        }
        lists = {
            option: value
            for option, value in lists.items()
            if value and value != self.value(option)
        }
        dropped = {
            position
            for option, value, place in self.options
            for position in range(place.start, place.stop)
            if option in lists
            or (option == "--conf" and (value or "").partition("=")[0] in changed)
        }
        new = [part for name, value in changed.items() for part in ("--conf", f"{name}={value}")]
        new += [part for option, value in lists.items() for part in (option, value or "")]
        kept = [
            argument for position, argument in enumerate(self.arguments) if position not in dropped
        ]
        return [*kept[: self.start], *new, *kept[self.start :]]


def _option_at(arguments: Sequence[str], position: int) -> tuple[str, str | None, int]:
    """Return the name and value of an option, and the position after it."""
    argument = arguments[position]
    if _VALUE.fullmatch(argument) and position + 1 < len(arguments):
        return argument, arguments[position + 1], position + 2
    name, equals, value = argument.partition("=")
    return (
        (name, value, position + 1)
        if equals and _VALUE.fullmatch(name)
        else (argument, None, position + 1)
    )


def _rewrite(
    arguments: Sequence[str],
    injection: ChildInjection,
    env: Mapping[str, str],
    event_file: str,
    private: Path,
) -> tuple[list[str], str]:
    """Return the arguments of ``SparkSubmit`` with the listener, and a note for the user; empty if
    there is none.

    :param env: environment of the launch, with ``SPARK_HOME`` and the user's ``SPARK_CONF_DIR``.
    :param private: folder for a file of the properties that may not be on a command line.
    :raises InjectionError: if lineage cannot be added without risk to the job.
    """
    parsed = SubmitArguments.parse(arguments)
    if parsed.names & _ENDS_WITHOUT_A_JOB:
        return list(arguments), ""
    remote = (
        parsed.value("--remote")
        or parsed.properties.get("spark.remote")
        or env.get("SPARK_REMOTE")
        or ""
    )
    if remote.startswith("sc://"):
        raise InjectionError(
            f"it is a client of the Spark Connect server {remote.partition(';')[0]}: configure OpenLineage there"
        )
    has_defaults, file = "--load-spark-defaults" in parsed.names, parsed.value("--properties-file")
    spark = SparkSubmit(
        "spark-submit", env, True, file, also_defaults=has_defaults, banner_seconds=0
    )
    submission = replace(spark.with_base(parsed.submission), replaceable=False)
    local_driver = (
        parsed.value("--deploy-mode") or submission.effective("spark.submit.deployMode")
    ) != "cluster"
    spark = replace(spark, local_driver=local_driver)
    note = check_listener(submission, spark)
    jar = spark.choose_jar(injection.openlineage_jar, submission)
    listener = LineageInjection(
        event_file, jar, injection.parent, injection.root, injection.properties
    )
    users, submission = submission, inject(submission, listener).submission
    if injection.class_archives and local_driver:
        with suppress(ClassArchiveError):
            archives = ClassArchives.at(injection.class_archives)
            submission = archives.find(users, spark.installation, env, jar).added_to(submission)
    if injection.event_log:
        submission = inject_event_log(
            submission, Path(injection.event_log), local_driver=local_driver
        ).submission
    check_command_line(parsed.with_submission(submission), env)
    properties, private_file = submission.hand_over(private)
    submission = replace(submission, properties=properties, base_properties={})
    return parsed.with_submission(submission, private_file), note


def _main() -> None:
    """Write the arguments of one launch into a file for ``spark-env.sh``, after its configuration
    folder.
    """
    folder, answer, java_class, *arguments = sys.argv[1:]
    injection = msgspec.json.decode((Path(folder) / _REQUEST).read_bytes(), type=ChildInjection)
    events = Path(injection.events_folder)
    name = f"{time.time_ns()}-{os.getpid()}"
    users = Path(os.environ["SPARK_CONF_DIR"])
    rewritten, note = arguments, ""
    files: list[Path] | None = None
    try:
        files = [*users.iterdir()] if users.is_dir() else []
        if java_class == _SPARK_SUBMIT:
            rewritten, note = _rewrite(
                arguments, injection, os.environ, str(events / f"{name}{EVENT_FILE}"), Path(folder)
            )
    except (InjectionError, OSError) as error:
        note = f"a Spark of this task ran without lineage: {error}"
    if note:
        (events / f"{name}{_NOTE}").write_text(note)
    if files is None:
        return  # without an answer, the launch keeps its folder and its arguments
    conf_dir = Path(folder) / name
    conf_dir.mkdir()
    conf_dir.chmod(0o755)
    for path in files:
        if path.name != _SCRIPT:
            (conf_dir / path.name).symlink_to(path.resolve())
    (conf_dir / _SCRIPT).symlink_to(Path(folder) / _SCRIPT)
    parts = [str(conf_dir), java_class, *rewritten]
    Path(answer).write_bytes(b"".join(os.fsencode(part) + b"\0" for part in parts))
