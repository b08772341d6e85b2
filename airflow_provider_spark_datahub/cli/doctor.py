"""Commands for the machine that runs tasks: ``doctor`` checks what lineage needs, ``warm`` makes
Spark start faster.

Tests: ``tests/cli/test_doctor.py`` and ``test_warm.py``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer
from packaging.requirements import Requirement

from airflow_provider_spark_datahub import capture, hooks
from airflow_provider_spark_datahub.cli import console
from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery import CheckResult, CheckStatus, Deadline, Sink
from airflow_provider_spark_datahub.delivery.outbox import Folder, Outbox
from airflow_provider_spark_datahub.foundation.files import described, exists, is_folder
from airflow_provider_spark_datahub.foundation.text import counted, nearest, printable
from airflow_provider_spark_datahub.task import (
    LineageOptions,
    OptionError,
    may_run,
    unawaited_events,
)
from airflow_provider_spark_datahub.visualization import format_duration

_DISTRIBUTION = "airflow-provider-spark-datahub"
_OLDEST_SPARK, _NEWEST_SPARK = (3, 5), (4, 3)
_OLDEST_OPENLINEAGE = (1, 37)
"""The versions that docs/compatibility.md names."""

_SHOWN = ("acryl-datahub", "apache-airflow", "openlineage-python")
"""Beginnings of the names of packages whose versions are shown."""
_PLUGIN = "spark_datahub"
_PROBE = "doctor-probe"
_OUTBOX_SECONDS = 60.0
_START_ADVICE = (
    "jobs would not start either: check JAVA_HOME and SPARK_HOME; pyspark and pyspark-client in one environment "
    "overwrite each other's files, so install Spark in an environment of its own, or as an archive"
)


_NO_JAVA = re.compile(r"JAVA_HOME is not set|java: (?:command )?not found|java: No such file")
_CORRECT = "correct airflow.cfg or AIRFLOW__SPARK_DATAHUB__..."
_PROBE_PROPOSAL = Proposal(
    "dataFlow", "urn:li:dataFlow:(spark,spark-datahub-doctor,doctor)", "status", {"removed": True}
)
"""A proposal without visible effect: a separate DataFlow, marked as removed."""


@dataclass(frozen=True)
class _HealthChecks:
    """The checks; each yields its results, and a failed one does not prevent the others.

    :param connection: id of an Airflow connection; ``None`` for the configured one. Likewise
        ``outbox``.
    :param spark_binary: the ``spark-submit`` that tasks call.
    :param seconds: timeout for each server.
    :param write: whether to deliver a proposal, too.
    """

    connection: str | None
    outbox: str | None
    spark_binary: str
    seconds: float
    write: bool

    def run(self) -> Iterator[CheckResult]:
        yield from self.check_versions()
        yield from self.check_plugin()
        options, results = self.check_configuration()
        yield from results
        for subject, check in (
            ("connection", self.check_connection()),
            ("outbox", self.check_outbox()),
            ("Spark", self.check_spark(options)),
        ):
            try:
                yield from check
            except OSError as error:
                yield _bad(subject, described(error))

    @staticmethod
    def check_versions() -> Iterator[CheckResult]:
        """Check the installed versions against the requirements of this package."""
        versions = {
            _DISTRIBUTION: metadata.version(_DISTRIBUTION),
            "Python": sys.version.split()[0],
        }
        for requirement in map(Requirement, metadata.requires(_DISTRIBUTION) or ()):
            wanted = f"{requirement.name}{requirement.specifier}"
            try:
                version = metadata.version(requirement.name)
            except metadata.PackageNotFoundError:
                if requirement.marker is None:  # otherwise it belongs to an extra
                    yield _bad("version", f"{wanted} is not installed", f"pip install '{wanted}'")
                continue
            if requirement.specifier.contains(version, prereleases=True):
                versions |= (
                    {requirement.name: version} if requirement.name.startswith(_SHOWN) else {}
                )
            else:
                words = f"{requirement.name} {version} is installed, {wanted} is needed"
                yield _bad("version", words, f"pip install '{wanted}'")
        yield _good("version", ", ".join(f"{name} {version}" for name, version in versions.items()))

    @staticmethod
    def check_plugin() -> Iterator[CheckResult]:
        """Check that Airflow loads the listener that reports the end of DAG runs."""
        try:
            from airflow.plugins_manager import get_plugin_info

            ours = next(
                (plugin for plugin in get_plugin_info() if plugin.get("name") == _PLUGIN), None
            )
        except ImportError as error:
            yield _bad("plugin", f"Airflow's plugins cannot be listed: {error}")
            return
        if ours and ours.get("listeners"):
            yield _good("plugin", "Airflow loads the listener that reports the end of DAG runs")
        else:
            advice = "install the package where the scheduler runs; `airflow plugins` lists what it loads"
            yield _bad(
                "plugin",
                "Airflow does not load the listener that reports the end of DAG runs",
                advice,
            )

    @staticmethod
    def check_configuration() -> tuple[LineageOptions | None, list[CheckResult]]:
        """Check ``[spark_datahub]`` and the folder of the events; return the options, if valid, and
        the results.
        """
        from airflow_provider_spark_datahub.plugins.policy import (
            DROP_INS,
        )  # Airflow logs to the output at its import

        try:
            options = hooks.configuration().resolve()
            enabled = hooks.configuration().is_enabled()
        except ValueError as error:
            return None, [_bad("configuration", str(error), _CORRECT)]
        results = [_bad("configuration", problem, _CORRECT) for problem in options.problems]
        results += [_warning("configuration", note) for note in options.notes]
        for name in map(str.strip, (hooks.configuration().read("auto") or "").split(",")):
            close = (
                None
                if any(operator in name for operator in DROP_INS)
                else nearest(name, DROP_INS, cutoff=0.8)
            )
            if close:
                results.append(
                    _warning(
                        "configuration",
                        f"[spark_datahub] auto names {name!r}",
                        f"set it to {close}",
                    )
                )
        if not enabled:
            words = (
                "[spark_datahub] enabled is off: tasks run without lineage unless they enable it"
            )
            results.append(_warning("configuration", words))
        folder = options.events_location
        place = next(path for path in (folder, *folder.absolute().parents) if exists(path))
        if is_folder(place) and os.access(place, os.W_OK | os.X_OK):
            results.append(_good("events", f"Spark can write its events below {folder}"))
        else:
            advice = "set [spark_datahub] events_location to a folder that this user can write"
            results.append(_bad("events", f"{place} cannot be written by this user", advice))
        return options, results

    def check_connection(self) -> Iterator[CheckResult]:
        """Check that the connection's sink answers and, with :attr:`write`, accepts a proposal."""
        name = self.connection or hooks.configuration().connection_id
        sink, problem = hooks.open_sink(name)
        if sink is None:
            yield _bad("connection", problem or "")
            return
        yield _good("connection", f"{name} connects to {sink.describe()}")
        results = hooks.check_sink(name, sink, Deadline.after(self.seconds))
        yield from results
        if self.write and not any(result.status is CheckStatus.BAD for result in results):
            yield from self._check_delivery(sink)

    def _check_delivery(self, sink: Sink) -> Iterator[CheckResult]:
        """Write a probe that is marked as removed (DataHub's soft delete), so that nobody sees it."""
        delivery = sink.deliver([_PROBE_PROPOSAL], Deadline.after(self.seconds))
        if delivery.rejected:
            yield _bad("delivery", f"The proposal was rejected: {delivery.rejected[0].reason}")
        elif delivery.pending:
            yield _bad("delivery", delivery.problem or "The proposal was not acknowledged.")
        else:
            stored = "stored" if delivery.stored else "accepted; it is stored later"
            yield _good("delivery", f"A probe, marked as removed, was {stored}")

    def check_outbox(self) -> Iterator[CheckResult]:
        """Check that the outbox can be written, how full it is, and its entries."""
        try:
            outbox = hooks.configured_outbox(self.outbox)
            outbox.deadline = Deadline.after(_OUTBOX_SECONDS)
            outbox.storage.write(_PROBE, [b"written by spark-datahub doctor"])
            outbox.storage.remove(_PROBE)
            yield _good("outbox", f"{outbox} can be written")
            yield from _content(outbox)
            if files := [] if self.outbox else unawaited_events(outbox):
                words = f"{counted(len(files), 'event file')} without an entry in the outbox, the first {files[0]}"
                yield _warning(
                    "events", words, "read them with spark-datahub convert, then remove them"
                )
        except (OptionError, OSError) as error:
            words = described(error) if isinstance(error, OSError) else str(error)
            yield _bad(
                "outbox",
                words,
                "set [spark_datahub] outbox_location to a place that this user can write",
            )

    def check_spark(self, options: LineageOptions | None) -> Iterator[CheckResult]:
        """Check that there is a supported Spark, and an OpenLineage jar that fits it."""
        env = dict(os.environ)
        installation = capture.SparkInstallation.find(self.spark_binary, env)
        if installation:
            versions = installation.spark_version, installation.scala_version
        else:
            versions = capture.banner_versions(self.spark_binary, env, self.seconds) or (None, None)
        if installation is None and versions[0] is None:
            advice = "run this where tasks run, set SPARK_HOME, or use --spark-submit"
            yield self._start() or _warning(
                "Spark", f"{self.spark_binary} would start no Spark here", advice
            )
            return
        yield self._start() or _spark_version(
            versions[0], installation.home if installation else None
        )
        submission = capture.Submission(base_properties=capture.base_properties(installation, None))
        setting = (options.openlineage_jar if options else "") or capture.DEFAULT_OPENLINEAGE_JAR
        spark = capture.SparkSubmit(
            self.spark_binary, env, True, scala_version=versions[1], banner_seconds=0
        )
        try:
            jar = spark.choose_jar(setting, submission, seconds=self.seconds)
        except capture.InjectionError as error:
            yield _bad(
                "OpenLineage", str(error), "set [spark_datahub] openlineage_jar to a jar that fits"
            )
        else:
            yield _listener(jar)
            if options is not None and options.class_archives is not None:
                archives = capture.ClassArchives.at(options.class_archives)
                yield from _class_archives(archives, submission, installation, jar)

    def _start(self) -> CheckResult | None:
        """Return why ``spark-submit`` does not start; ``None`` if it does, or is not on the
        ``PATH`` at all.
        """
        binary = shutil.which(self.spark_binary)
        if binary is None:
            return (
                _bad("Spark", f"There is no {self.spark_binary}")
                if os.sep in self.spark_binary
                else None
            )
        try:
            answer = subprocess.run(
                [binary, "--version"], capture_output=True, timeout=self.seconds, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return _bad("Spark", f"{binary} --version does not start: {error}", _START_ADVICE)
        if answer.returncode == 0:
            return None
        lines = (answer.stdout + answer.stderr).decode("utf-8", "replace").split("\n")
        said = next(
            (line.strip() for line in reversed(lines) if line.strip()), "it printed nothing"
        )
        advice = (
            "install Java 17, and set JAVA_HOME to it" if _NO_JAVA.search(said) else _START_ADVICE
        )
        return _bad(
            "Spark", f"{binary} --version ends with exit code {answer.returncode}: {said}", advice
        )


def _content(outbox: Outbox) -> Iterator[CheckResult]:
    folders = {
        folder: outbox.storage.stored(folder)
        for folder in (Folder.PENDING, Folder.QUARANTINED, Folder.CORRUPT)
    }
    size, most = sum(sum(files.values()) for files in folders.values()), outbox.limits.max_bytes
    full = f"{size:,} bytes of {most:,}"
    if size * 10 > most * 9:
        advice = "run spark-datahub emit, or raise [spark_datahub] outbox_max_bytes"
        yield _bad("outbox", f"It is nearly full: {full}", advice)
    else:
        yield _good("outbox", f"It contains {full}")
    if ages := [entry.age for entry in outbox.entries() if not may_run(entry.manifest)]:
        words = f"{counted(len(ages), 'entry')} pending, the oldest for {format_duration(round(max(ages) * 1000))}"
        yield _warning(
            "outbox", words, "run spark-datahub emit: it delivers them, or says why it cannot"
        )
    else:
        yield _good("outbox", "nothing is pending")
    for folder, advice in (
        (
            Folder.QUARANTINED,
            "spark-datahub pending shows why; spark-datahub requeue makes them pending again",
        ),
        (Folder.CORRUPT, "a .reason.txt next to each entry says why"),
    ):
        count = sum(name.endswith(".jsonl") for name in folders[folder])
        if count:
            yield _warning("outbox", f"{counted(count, 'entry')} {folder}", advice)


def _listener(jar: capture.JarChoice) -> CheckResult:
    """Report the origin of the listener, and whether it is too old if its name contains its
    version.
    """
    version, words = _numbers(jar.version), f"The listener comes from {jar.origin}"
    if version and version < _OLDEST_OPENLINEAGE:
        oldest = ".".join(map(str, _OLDEST_OPENLINEAGE))
        return _warning(
            "OpenLineage", f"{words}, which is older than {oldest}, the oldest that is supported"
        )
    return _good("OpenLineage", words)


def _class_archives(
    archives: capture.ClassArchives,
    submission: capture.Submission,
    installation: capture.SparkInstallation | None,
    jar: capture.JarChoice,
) -> Iterator[CheckResult]:
    """Check that Java maps the archive of classes of a job with the listener on its class path."""
    try:
        archive = archives.find(submission, installation, os.environ, jar)
        problem = archive.problem()
    except (capture.ClassArchiveError, OSError, subprocess.TimeoutExpired) as error:
        yield _warning("class archive", f"Spark starts without an archive of Java classes: {error}")
        return
    if problem:
        yield _warning(
            "class archive",
            f"Java does not map {archive.path}: {problem}",
            "run spark-datahub warm --force",
        )
    else:
        yield _good("class archive", f"Java maps {archive.path}")


def _spark_version(version: str | None, home: Path | None) -> CheckResult:
    where = f" in {home}" if home else ""
    numbers = _numbers(version or "")
    if numbers is None:
        return _warning("Spark", f"The version of Spark{where} is unknown")
    if numbers < _OLDEST_SPARK:
        oldest = ".".join(map(str, _OLDEST_SPARK))
        return _bad(
            "Spark", f"Spark {version}{where} is older than {oldest}, the oldest that is supported"
        )
    if numbers > _NEWEST_SPARK:
        newest = ".".join(map(str, _NEWEST_SPARK))
        return _warning(
            "Spark", f"Spark {version}{where} is newer than {newest}, the newest that was tested"
        )
    return _good("Spark", f"Spark {version}{where}")


def _numbers(version: str) -> tuple[int, int] | None:
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else None


def _result(status: CheckStatus, subject: str, words: str, advice: str = "") -> CheckResult:
    return CheckResult(subject, status, words, advice)


_good, _warning, _bad = (
    partial(_result, each) for each in (CheckStatus.GOOD, CheckStatus.WARNING, CheckStatus.BAD)
)


_MARKS = {
    CheckStatus.GOOD: ("✓", "ok", typer.colors.GREEN),
    CheckStatus.WARNING: ("!", "! ", typer.colors.YELLOW),
    CheckStatus.BAD: ("✗", "NO", typer.colors.RED),
}


def doctor(
    connection: Annotated[
        str | None,
        typer.Option(help="The Airflow connection to check; default: the configured one."),
    ] = None,
    outbox: Annotated[
        str | None, typer.Option(help="The outbox to check; default: the configured one.")
    ] = None,
    spark_binary: console.SparkSubmitOption = "spark-submit",
    write: Annotated[
        bool,
        typer.Option(
            "--write",
            help="Also write a harmless probe, a DataFlow marked as removed, and read it back.",
        ),
    ] = False,
    seconds: Annotated[float, typer.Option(help="Seconds for each check.", min=0.1)] = 30.0,
    as_json: console.JsonOption = False,
) -> None:
    """Check what lineage needs on this machine: versions, configuration, plugin, connection,
    outbox, Spark, jar.

    Run it on a worker, as the user that runs tasks.

    Exit status: 0 if lineage can work (warnings included), 1 if something prevents it, 2 for wrong
    options.
    """
    results = []
    checks = _HealthChecks(connection, outbox, spark_binary, seconds, write)
    with console.airflow_logs_to_stderr() if as_json else nullcontext():
        for result in checks.run():
            results.append(result)
            if not as_json:
                _print(result)
    bad = any(result.status is CheckStatus.BAD for result in results)
    if as_json:
        console.show_json({"good": not bad, "findings": [result.to_obj() for result in results]})
    if bad:
        raise typer.Exit(console.EXIT_INCOMPLETE)


def _print(result: CheckResult) -> None:
    fancy = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    mark, plain_mark, colour = _MARKS[result.status]
    message = printable(f"{result.subject}: {result.message}")
    typer.echo(f"{typer.style(mark if fancy else plain_mark, fg=colour)} {message}")
    if result.advice:
        console.show_line(f"    {'→' if fancy else '->'} {result.advice}")


def warm(
    folder: Annotated[
        Path | None,
        typer.Option(help="Folder of the archives; default: the folder that tasks use."),
    ] = None,
    spark_binary: console.SparkSubmitOption = "spark-submit",
    openlineage_jar: Annotated[
        str | None,
        typer.Option(help="The OpenLineage jar; default: [spark_datahub] openlineage_jar."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also rewrite archives that still fit.")
    ] = False,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds for each Spark job.")] = 1800,
) -> None:
    """Write the archives of Java classes that make Spark's drivers start faster, and remove those
    that no longer fit.

    It runs two small Spark jobs: one with the listener on the driver's class path, and one for jobs
    that bring jars of their own.

    Exit status: 0 if the archives fit; 1 if one could not be written; 2 for wrong options.
    """
    folder = folder or hooks.configuration().class_archives
    setting = (
        openlineage_jar
        or hooks.configuration().read("openlineage_jar")
        or capture.DEFAULT_OPENLINEAGE_JAR
    )
    env = dict(os.environ)
    installation = capture.SparkInstallation.find(spark_binary, env)
    if installation is None:
        console.fail(
            f"cannot find the Spark that {spark_binary} starts: set SPARK_HOME, or use --spark-submit"
        )
    try:
        jar = capture.SparkSubmit(spark_binary, env, True).choose_jar(
            setting, capture.Submission(), seconds=seconds
        )
    except capture.InjectionError as error:
        console.fail(str(error))
    archives = capture.ClassArchives.at(folder)
    for path, reason in archives.remove_outdated():
        console.say(f"Removed {path}: {reason}")
    try:
        for line in _archive_lines(
            archives, installation, env, jar.class_path, force=force, seconds=seconds
        ):
            console.show_line(line)
    except (capture.ClassArchiveError, OSError) as error:
        console.fail(f"The archive was not written: {error}", console.EXIT_INCOMPLETE)


def _archive_lines(
    archives: capture.ClassArchives,
    installation: capture.SparkInstallation,
    env: Mapping[str, str],
    listener: tuple[str, ...],
    *,
    force: bool,
    seconds: float,
) -> Iterator[str]:
    """Write the archives, and yield a line for each."""
    for on_class_path in dict.fromkeys((listener, ())):
        what = (
            "with the listener"
            if on_class_path or not listener
            else "for jobs with jars of their own"
        )
        try:
            archive = archives.find(
                capture.Submission(), installation, env, capture.JarChoice(class_path=on_class_path)
            )
        except capture.ClassArchiveError:
            archive = None
        if archive is not None and not force:
            yield f"{archive.path} fits ({what})"
            continue
        started = time.monotonic()
        beside = () if on_class_path else listener
        archive = archives.build(installation, env, on_class_path, beside, seconds=seconds)
        size = Path(archive.path).stat().st_size / 2**20
        yield f"{archive.path} written ({what}): {size:.0f} MiB in {time.monotonic() - started:.0f} s"
