"""The checks of ``spark-datahub doctor``.

``spark-datahub doctor``: whether everything that lineage needs is there, and what to do where it is not.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_provider_spark_datahub.cli.console import EXIT_INCOMPLETE
from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery import Deadline, Finding, Verdict

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.delivery.outbox import Outbox
    from airflow_provider_spark_datahub.task import LineageOptions

DISTRIBUTION = "airflow-provider-spark-datahub"
OLDEST_SPARK, NEWEST_SPARK = (3, 5), (4, 3)
OLDEST_OPENLINEAGE = (1, 37)
"""The versions that docs/compatibility.md names."""

_SHOWN = frozenset(
    {
        "acryl-datahub",
        "apache-airflow",
        "apache-airflow-providers-apache-spark",
        "apache-airflow-providers-openlineage",
        "openlineage-python",
    }
)
_PLUGIN = "spark_datahub"
_PROBE = "doctor-probe"
_OLD_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Patient:
    """What is to be checked.

    :param connection: an Airflow connection; None for the configured one; ``outbox`` likewise.
    :param spark_binary: the ``spark-submit`` that tasks call.
    :param seconds: for each server that is asked.
    :param write: whether a proposal is delivered, too.
    """

    connection: str | None
    outbox: str | None
    spark_binary: str
    seconds: float
    write: bool


def check_all(patient: Patient) -> Iterator[Finding]:
    """All checks, one after the other; one that fails keeps no other from its turn."""
    yield from check_versions()
    yield from check_plugin()
    options, findings = check_configuration()
    yield from findings
    yield from check_connection(patient)
    yield from check_outbox(patient.outbox)
    yield from check_spark(patient, options)


def check_versions() -> Iterator[Finding]:
    """Whether what is installed fits what this package asks for."""
    from packaging.requirements import Requirement

    found = {DISTRIBUTION: metadata.version(DISTRIBUTION), "Python": sys.version.split()[0]}
    for requirement in map(Requirement, metadata.requires(DISTRIBUTION) or ()):
        wanted = f"{requirement.name}{requirement.specifier}"
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            if requirement.marker is None:  # else it is of an extra
                yield _bad("version", f"{wanted} is not installed", f"pip install '{wanted}'")
            continue
        if requirement.specifier.contains(version, prereleases=True):
            found |= {requirement.name: version} if requirement.name in _SHOWN else {}
        else:
            words = f"{requirement.name} {version} is installed, {wanted} is needed"
            yield _bad("version", words, f"pip install '{wanted}'")
    yield _good("version", ", ".join(f"{name} {version}" for name, version in found.items()))


def check_plugin() -> Iterator[Finding]:
    """Whether Airflow loads the listener that tells how DAG runs end."""
    try:
        from airflow.plugins_manager import get_plugin_info

        ours = next((plugin for plugin in get_plugin_info() if plugin.get("name") == _PLUGIN), None)
    except ImportError as error:
        yield _bad("plugin", f"Airflow's plugins cannot be listed: {error}")
        return
    if ours and ours.get("listeners"):
        yield _good("plugin", "Airflow loads the listener that tells how DAG runs end")
    else:
        advice = "install the package where the scheduler runs; `airflow plugins` lists what it loads"
        yield _bad("plugin", "Airflow does not load the listener: nobody would tell how DAG runs end", advice)


def check_configuration() -> tuple[LineageOptions | None, list[Finding]]:
    """The options of the section ``[spark_datahub]``, where it can be understood, and whether events can be written."""
    from airflow_provider_spark_datahub.conversion import SettingsError
    from airflow_provider_spark_datahub.hooks.airflow_context import configuration
    from airflow_provider_spark_datahub.task import OptionError

    try:
        options = configuration().resolve()
        enabled = configuration().is_enabled()
    except (OptionError, SettingsError, ValueError) as error:
        return None, [_bad("configuration", str(error), "mend it in airflow.cfg, or in AIRFLOW__SPARK_DATAHUB__...")]
    found = [_warning("configuration", note) for note in options.notes]
    if not enabled:
        words = "[spark_datahub] enabled is off: tasks run without lineage unless they ask for it"
        found.append(_warning("configuration", words))
    folder = options.events_location
    place = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
        found.append(_good("events", f"Spark can write its events below {folder}"))
    else:
        advice = "set [spark_datahub] events_location to a folder that it can write"
        found.append(_bad("events", f"{place} cannot be written by this user", advice))
    return options, found


def check_connection(patient: Patient) -> Iterator[Finding]:
    """Whether the connection leads to a destination that answers, and, where asked for, takes a proposal."""
    from airflow_provider_spark_datahub.hooks.airflow_context import configuration
    from airflow_provider_spark_datahub.hooks.datahub import open_sink

    name = patient.connection or configuration().connection_id
    sink, problem = open_sink(name)
    if sink is None:
        advice = f"airflow connections add {name} --conn-type datahub-rest --conn-host http://gms:8080"
        yield _bad("connection", problem or "", advice)
        return
    with sink:
        yield _good("connection", f"{name} leads to {sink.describe()}")
        found = sink.check(Deadline.after(patient.seconds))
        yield from found
        if not patient.write or any(finding.verdict is Verdict.BAD for finding in found):
            return
        delivery = sink.deliver([probe()], Deadline.after(patient.seconds))
    if delivery.rejected:
        yield _bad("delivery", f"The proposal was rejected: {delivery.rejected[0].reason}")
    elif delivery.pending:
        yield _bad("delivery", delivery.problem or "The proposal was not acknowledged.")
    else:
        yield _good(
            "delivery", "A proposal was stored" if delivery.stored else "A proposal was accepted, to be stored later"
        )


def check_outbox(location: str | None) -> Iterator[Finding]:
    """Whether the outbox can be written, how full it is, and what waits in it."""
    from airflow_provider_spark_datahub.hooks.airflow_context import configuration
    from airflow_provider_spark_datahub.hooks.storage import open_outbox
    from airflow_provider_spark_datahub.task import OptionError

    try:
        outbox = open_outbox(configuration().outbox_location(location), configuration().outbox_limits())
        outbox.storage.write(_PROBE, [b"written by spark-datahub doctor"])
        outbox.storage.remove(_PROBE)
        yield _good("outbox", f"{outbox} can be written")
        yield from _content(outbox)
    except (OptionError, OSError) as error:
        yield _bad("outbox", str(error), "set [spark_datahub] outbox_location to a place that this user can write")


def _content(outbox: Outbox) -> Iterator[Finding]:
    from airflow_provider_spark_datahub.delivery.outbox import CORRUPT, PENDING, QUARANTINED

    folders = {folder: outbox.storage.stored(folder) for folder in (PENDING, QUARANTINED, CORRUPT)}
    held, most = sum(one.size for stored in folders.values() for one in stored), outbox.limits.max_bytes
    full = f"{held:,} bytes of {most:,}"
    if held * 10 > most * 9:
        yield _bad(
            "outbox", f"It is nearly full: {full}", "spark-datahub emit; or raise [spark_datahub] outbox_max_bytes"
        )
    else:
        yield _good("outbox", f"It holds {full}")
    waiting = len(outbox.names())
    oldest = max((entry.age for entry in outbox.entries()), default=0.0) if waiting else 0.0
    if oldest > _OLD_SECONDS:
        words = f"{waiting} entries wait for their delivery, the oldest for {oldest / 3600:.0f} h"
        yield _warning("outbox", words, "spark-datahub emit delivers them and says why it cannot")
    else:
        yield _good("outbox", f"{waiting} entries wait for their delivery")
    for folder, advice in (
        (QUARANTINED, "spark-datahub pending tells why; spark-datahub requeue tries again"),
        (CORRUPT, "beside each one a .reason.txt tells why"),
    ):
        count = sum(one.name.endswith(".jsonl") for one in folders[folder])
        if count:
            yield _warning("outbox", f"{count} entries are {folder}", advice)


def check_spark(patient: Patient, options: LineageOptions | None) -> Iterator[Finding]:
    """Whether there is a Spark that is supported, and an OpenLineage jar that fits it."""
    from airflow_provider_spark_datahub.capture import (
        DEFAULT_OPENLINEAGE_JAR,
        IvyResolver,
        JarProblemError,
        Submission,
        base_properties,
        choose_jar,
        find_installation,
        version_banner,
    )

    env = dict(os.environ)
    installation = find_installation(patient.spark_binary, env)
    versions = None if installation else version_banner(patient.spark_binary, env, patient.seconds)
    known = installation or versions
    if known is None:
        advice = "run this where tasks run, set SPARK_HOME, or name it with --spark-submit"
        yield _warning("Spark", f"There is no Spark here that {patient.spark_binary} would start", advice)
        return
    yield _spark_version(known.spark_version, installation.home if installation else None)
    submission = Submission(base_properties=base_properties(installation, None))
    setting = (options.openlineage_jar if options else "") or DEFAULT_OPENLINEAGE_JAR
    try:
        jar = choose_jar(
            setting,
            submission,
            installation=installation,
            local_driver=True,
            resolver=IvyResolver(installation, submission, env, patient.seconds) if installation else None,
            scala_version=known.scala_version,
        )
    except JarProblemError as error:
        yield _bad("OpenLineage", error.reason, "name a jar that fits in [spark_datahub] openlineage_jar")
    else:
        yield _listener(jar.origin)


def _listener(origin: str) -> Finding:
    """Where the listener comes from, and whether it is too old, where its name tells its version."""
    found = re.search(r"openlineage-spark\S*?[-:](\d+)\.(\d+)\.\d+", origin)
    words = f"The listener comes from {origin}"
    if found and (int(found[1]), int(found[2])) < OLDEST_OPENLINEAGE:
        oldest = ".".join(map(str, OLDEST_OPENLINEAGE))
        return _warning("OpenLineage", f"{words}, which is older than {oldest}, the oldest that is supported")
    return _good("OpenLineage", words)


def _spark_version(version: str | None, home: Path | None) -> Finding:
    where = f" in {home}" if home else ""
    numbers = tuple(int(part) for part in (version or "").split(".")[:2] if part.isdecimal())
    if len(numbers) < 2:
        return _warning("Spark", f"The version of Spark{where} is not known")
    if numbers < OLDEST_SPARK:
        oldest = ".".join(map(str, OLDEST_SPARK))
        return _bad("Spark", f"Spark {version}{where} is older than {oldest}, the oldest that is supported")
    if numbers > NEWEST_SPARK:
        newest = ".".join(map(str, NEWEST_SPARK))
        return _warning("Spark", f"Spark {version}{where} is newer than {newest}, the newest that was tried")
    return _good("Spark", f"Spark {version}{where}")


def probe() -> Proposal:
    """A proposal that changes nothing that anyone sees: a DataFlow of its own, marked as removed."""
    urn = "urn:li:dataFlow:(spark,spark-datahub-doctor,doctor)"
    return Proposal("dataFlow", urn, "status", {"removed": True})


def _good(subject: str, words: str) -> Finding:
    return Finding(subject, Verdict.GOOD, words)


def _warning(subject: str, words: str, advice: str = "") -> Finding:
    return Finding(subject, Verdict.WARNING, words, advice)


def _bad(subject: str, words: str, advice: str = "") -> Finding:
    return Finding(subject, Verdict.BAD, words, advice)


_MARKS = {Verdict.GOOD: ("✓", "ok"), Verdict.WARNING: ("!", "! "), Verdict.BAD: ("✗", "NO")}
_COLOURS = {Verdict.GOOD: typer.colors.GREEN, Verdict.WARNING: typer.colors.YELLOW, Verdict.BAD: typer.colors.RED}


def doctor(
    connection: Annotated[
        str | None, typer.Option(help="The Airflow connection to check; default: that of Airflow's configuration.")
    ] = None,
    outbox: Annotated[
        str | None, typer.Option(help="The outbox to check; default: that of Airflow's configuration.")
    ] = None,
    spark_binary: Annotated[str, typer.Option("--spark-submit", help="The one that tasks call.")] = "spark-submit",
    write: Annotated[
        bool, typer.Option("--write", help="Deliver one harmless proposal, too: a DataFlow marked as removed.")
    ] = False,
    seconds: Annotated[float, typer.Option(help="Time for each thing that is asked.", min=0.1)] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON, for scripts.")] = False,
) -> None:
    """Check what lineage needs, where tasks run: versions, configuration, plugin, connection, outbox, Spark, jar.

    Exit status: 0 where lineage can work (warnings included), 1 where something keeps it from working, 2 for wrong
    options.
    """

    found = []
    for finding in check_all(Patient(connection, outbox, spark_binary, seconds, write=write)):
        found.append(finding)
        if not as_json:
            _tell(finding)
    if as_json:
        bad = any(finding.verdict is Verdict.BAD for finding in found)
        typer.echo(json.dumps({"good": not bad, "findings": [finding.to_obj() for finding in found]}, indent=2))
    if any(finding.verdict is Verdict.BAD for finding in found):
        raise typer.Exit(EXIT_INCOMPLETE)


def _tell(finding: Finding) -> None:
    fancy = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    mark = _MARKS[finding.verdict][0 if fancy else 1]
    typer.echo(f"{typer.style(mark, fg=_COLOURS[finding.verdict])} {finding.subject}: {finding.words}")
    if finding.advice:
        typer.echo(f"    {'→' if fancy else '->'} {finding.advice}")
