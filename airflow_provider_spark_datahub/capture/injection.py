"""Injection of the OpenLineage listener, and of Spark's own event log, into a ``spark-submit``
call.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from airflow_provider_spark_datahub.capture.openlineage_jar import JarChoice, SparkSubmit
from airflow_provider_spark_datahub.capture.spark_submit import (
    DRIVER_CLASS_PATH,
    DRIVER_JAVA_OPTIONS,
    InjectionError,
    Submission,
    split_list,
)
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from airflow_provider_spark_datahub.foundation.files import is_file
from airflow_provider_spark_datahub.foundation.text import SECRET_NAME

_LISTENER = "io.openlineage.spark.agent.OpenLineageSparkListener"
_OUR_TRANSPORT = "airflow_datahub"
_USERS_TRANSPORT = "users"

_EXTRA_LISTENERS = "spark.extraListeners"
# Without it the listener logs one InaccessibleObjectException with its stack trace per application
# on Java 17.
_ADD_OPENS = "--add-opens=java.base/java.security=ALL-UNNAMED"
_OPENLINEAGE = "spark.openlineage."
_TRANSPORT = "spark.openlineage.transport."
_MEMBERS = "spark.openlineage.transport.transports."
# OpenLineage reads the rest of such a name as one key, dots included, but only directly under
# "transport.".
_FREE_KEYS = ("properties.", "urlParams.", "headers.")
_HTTP_PATH = re.compile("/?|/api/[^/]+/lineage")
"""Paths of a URL that mean the same in a transport of its own and in a part of a composite one."""

TRANSPORTS = {"s3": "s3", "s3a": "s3", "gs": "gcs"}
"""OpenLineage's transports to object stores, by the schemes of their addresses; ``s3a`` is
Hadoop's.
"""

_LONGEST_ARGUMENT = 120_000
"""Bytes of an argument that is extended; Linux takes 131,072 (MAX_ARG_STRLEN), and Spark's scripts
add their own.
"""

_EVENT_LOG = "spark.eventLog."
_DEFAULT_EVENT_LOG_DIR = "file:///tmp/spark-events"
# Events that grow with the number of tasks and describe no query. Spark 4.1 and later can leave
# them out.
_UNREAD_EVENTS = (
    "SparkListenerJobEnd",
    "SparkListenerTaskStart",
    "SparkListenerTaskEnd",
    "SparkListenerStageSubmitted",
    "SparkListenerStageCompleted",
    "SparkListenerTaskGettingResult",
    "SparkListenerSpeculativeTaskSubmitted",
    "SparkListenerStageExecutorMetrics",
    "SparkListenerUnpersistRDD",
    "org.apache.spark.sql.execution.ui.SparkListenerSQLAdaptiveExecutionUpdate",
    "org.apache.spark.sql.execution.ui.SparkListenerSQLAdaptiveSQLMetricUpdates",
)
# A store shows a file when Spark closes it: of a killed driver, the parts before the last remain.
# 10 MiB is the least.
_ROLLING = {"rolling.enabled": "true", "rolling.maxFileSize": "10m"}
# Spark names 25 columns of a command and paths of 100 characters by default, and leaves out the
# others.
_WHOLE_PLANS = {
    "spark.sql.debug.maxToStringFields": "2000",
    "spark.sql.maxMetadataStringLength": "10000",
}


_TRIMMER = "io.openlineage.client.dataset.partition.trimmer."
WHOLE_PATHS = {
    "dataset.disabledTrimmers": ";".join(
        f"{_TRIMMER}{name}Trimmer" for name in ("Date", "KeyValue", "MultiDirDate", "YearMonth")
    )
}
"""Properties of a listener that does not cut the ends of paths."""


class ParentRun(msgspec.Struct, frozen=True):
    """An OpenLineage run that the application belongs to.

    :param run_id: a UUID.
    """

    namespace: str
    job_name: str
    run_id: str


@dataclass(frozen=True)
class LineageInjection:
    """Configuration of the listener for one attempt.

    :param events_file: absolute path of the attempt's event file, on the driver's machine, or
        address of its folder in an object store (``s3://bucket/folder``).
    :param properties: the listener's properties by their names without prefix, where the job does
        not set them.
    :param endpoint: address of an S3 server other than Amazon's, as the driver reaches it.
    """

    events_file: str
    jar: JarChoice
    parent: ParentRun
    root: ParentRun | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    endpoint: str | None = None


@dataclass(frozen=True)
class Injection:
    """Result of :func:`inject`.

    :param users_parent: the user's own parent run is kept; the application is not below the task
        run.
    :param secrets: credentials of the user's transport that move onto the command line: mask them
        in logs.
    """

    submission: Submission
    users_parent: bool
    secrets: tuple[str, ...] = ()


def inject(submission: Submission, lineage: LineageInjection) -> Injection:
    """Return the submission with the listener; ``submission`` is not changed.

    All settings of the user are kept. Listeners, jars, packages and Java options are appended to
    the value that Spark would see, because ``--conf`` replaces ``spark-defaults.conf`` and
    ``--jars`` replaces ``spark.jars``. The user's namespace and other properties win. Injecting
    twice gives the same as injecting once.

    :raises InjectionError: if the user's own transport cannot be combined with ours, or an extended
        value gets too long for a command line.
    """
    transport = _transport(submission.effective_properties(), _our_transport(lineage))
    users_parent = _is_users_parent(submission, lineage.parent)
    properties: dict[str, object] = {
        **submission.properties,
        _EXTRA_LISTENERS: _extended(submission.effective(_EXTRA_LISTENERS), [_LISTENER]),
        DRIVER_JAVA_OPTIONS: _java_options(submission.effective(DRIVER_JAVA_OPTIONS)),
        **transport,
        **({} if users_parent else _parents(lineage.parent, lineage.root)),
        **_where_unset(
            submission,
            {f"{_OPENLINEAGE}{name}": value for name, value in lineage.properties.items()},
        ),
    }
    options = {"jars": submission.jars, "packages": submission.packages}
    for name, added in (("jars", lineage.jar.jars), ("packages", lineage.jar.packages)):
        # An option hides the property.
        if added and options[name]:
            options[name] = _extended(options[name], added)
        elif added:
            in_conf = "spark.jars" if name == "jars" else "spark.jars.packages"
            properties[in_conf] = _extended(submission.effective(in_conf), added)
    class_path = submission.driver_class_path
    if lineage.jar.class_path:
        users = submission.effective_driver_class_path()
        entries = ":".join(
            (*users, *(path for path in lineage.jar.class_path if path not in users))
        )
        class_path = entries if class_path is not None else None
        properties.update({} if class_path is not None else {DRIVER_CLASS_PATH: entries})
    private = submission.private | _moved_from_file(submission, transport)
    injected = replace(
        submission,
        properties=properties,
        jars=options["jars"],
        packages=options["packages"],
        driver_class_path=class_path,
        private=private,
    )
    _check_arguments(submission, injected)
    return Injection(
        submission=injected,
        users_parent=users_parent,
        secrets=tuple(
            value
            for name, value in transport.items()
            if SECRET_NAME.search(name.rpartition(".")[2])
        ),
    )


def _check_arguments(users: Submission, injected: Submission) -> None:
    """Raise InjectionError if the operating system does not accept the extended command."""
    added = {
        name: value
        for name, value in injected.properties.items()
        if users.properties.get(name) != value
    }
    for option in ("jars", "packages", "driver_class_path"):
        value = getattr(injected, option)
        if value != getattr(users, option):
            added[f"--{option.replace('_', '-')}"] = value
    for name, value in added.items():
        text = str(value)
        if len(text.encode("utf-8", "surrogatepass")) > _LONGEST_ARGUMENT:
            raise InjectionError(
                f"with the listener's part, {name} is longer than {_LONGEST_ARGUMENT} bytes, and a command line takes "
                "131,072 in one argument: shorten it, e.g. by a folder of jars"
            )
        if "\0" in text:
            raise InjectionError(
                f"the value of {name} for the listener holds a NUL, which no command line takes"
            )


class _EventLogInjection(msgspec.Struct, frozen=True):
    """Result of :func:`inject_event_log`.

    :param folder: folder of the event log on this machine; ``None`` if there is none to read here.
    :param ours: the log belongs to this attempt: its folder must exist before the job starts, and
        may be removed after it was read. Otherwise it is the user's, and holds logs of other
        applications too.
    :param reason: why there is no event log to read; empty if there is one.
    :param uri: address of the user's log in an object store, which is read through a connection to
        it.
    """

    submission: Submission
    folder: Path | None = None
    ours: bool = False
    reason: str = ""
    uri: str | None = None


def inject_event_log(
    submission: Submission,
    folder: Path,
    *,
    local_driver: bool,
    store: str | None = None,
    reads_stores: bool = False,
    compress: bool = False,
) -> _EventLogInjection:
    """Return the submission with Spark's own event log; ``submission`` is not changed.

    A log that the user configured is kept, and read if it is on this machine or in an object store;
    a job that disables the log stays without. The plans of a log that is read name all columns and
    whole paths, unless the job sets limits. Injecting twice gives the same as injecting once.

    :param folder: absolute folder of this attempt alone. The caller creates it; without it, the job
        fails to start.
    :param local_driver: the driver runs on this machine; elsewhere the folder does not exist.
    :param store: address of the attempt's folder in an object store, for a driver elsewhere, which
        must be able to write there; ``None`` if there is none.
    :param reads_stores: a connection to the user's log in an object store is known.
    :param compress: compress a log of ours with zstd, whose reader must be here; such a log is not
        followed.
    """
    enabled = (submission.effective(f"{_EVENT_LOG}enabled") or "").strip().lower()
    ours = folder.as_uri() if local_driver else store
    own_folder = folder if local_driver else None
    if enabled == "true" and submission.effective(f"{_EVENT_LOG}dir") == ours:
        return _EventLogInjection(_with_whole_plans(submission), own_folder, ours=True)
    if enabled == "true":
        place = (submission.effective(f"{_EVENT_LOG}dir") or _DEFAULT_EVENT_LOG_DIR).strip()
        if urlsplit(place).scheme in TRANSPORTS and reads_stores:
            return _EventLogInjection(_with_whole_plans(submission), uri=place)
        users, reason = _local_folder(place)
        if users is not None and not local_driver:
            users, reason = (
                None,
                "the driver, and so the job's own Spark event log, is on another machine",
            )
        return _EventLogInjection(
            submission if users is None else _with_whole_plans(submission), users, reason=reason
        )
    if enabled or ours is None:
        reason = "the driver runs on another machine: no Spark event log is written"
        return _EventLogInjection(
            submission, reason=f"the job sets {_EVENT_LOG}enabled={enabled}" if enabled else reason
        )
    log = _own_log(ours, rolling=ours == store, compress=compress)
    injected = replace(submission, properties={**submission.properties, **log})
    return _EventLogInjection(_with_whole_plans(injected), own_folder, ours=True)


def _own_log(place: str, *, rolling: bool, compress: bool) -> dict[str, str]:
    """Return the properties of an event log that is written for lineage alone."""
    settings = {
        "enabled": "true",
        "dir": place,
        "compress": str(compress).lower(),
        **({"compression.codec": "zstd"} if compress else {}),
        **(_ROLLING if rolling else {"rolling.enabled": "false"}),
        "logBlockUpdates.enabled": "false",
        "logStageExecutorMetrics": "false",
        "excludedPatterns": ",".join(_UNREAD_EVENTS),
    }
    return {f"{_EVENT_LOG}{name}": value for name, value in settings.items()}


def _with_whole_plans(submission: Submission) -> Submission:
    """Return the submission with plans that name all columns and paths, unless the job sets how
    many they name.
    """
    raised = _where_unset(submission, _WHOLE_PLANS)
    return (
        replace(submission, properties={**submission.properties, **raised})
        if raised
        else submission
    )


def _local_folder(place: str) -> tuple[Path | None, str]:
    """Return the folder that ``spark.eventLog.dir`` names, or why it cannot be read; a path without
    scheme is local.
    """
    parts = urlsplit(place)
    if parts.scheme in TRANSPORTS:
        remedy = "set the option event_log_conn_id, or events_location to an address in that store"
        return (
            None,
            f"the job's own Spark event log is in {place}, to which no connection is known: {remedy}",
        )
    if parts.scheme not in ("", "file"):
        return None, f"the job's own Spark event log is in {parts.scheme}://, which is not read"
    return Path(unquote(parts.path) if parts.scheme else place), ""


def _extended(value: str | None, entries: Iterable[str]) -> str:
    """Return a comma-separated list with the missing ``entries`` appended."""
    present = split_list(value)
    missing = [entry for entry in entries if entry not in present]
    return ",".join((*present, *missing)) if missing else value or ""


def _java_options(value: str | None) -> str:
    options = value or ""
    return options if _ADD_OPENS in options.split() else f"{options} {_ADD_OPENS}".strip()


def _is_users_parent(submission: Submission, ours: ParentRun) -> bool:
    # spark.openlineage.context is the newer property, and the listener prefers it.
    run_id = (submission.effective(f"{_OPENLINEAGE}parentRunId") or "").strip()
    context = (submission.effective(f"{_OPENLINEAGE}context") or "").strip()
    return bool(context) or run_id not in ("", ours.run_id)


def _parents(parent: ParentRun, root: ParentRun | None) -> dict[str, str]:
    runs = {"parent": parent} | ({"rootParent": root} if root else {})
    return {
        f"{_OPENLINEAGE}{prefix}{part}": value
        for prefix, run in runs.items()
        for part, value in (
            ("JobNamespace", run.namespace),
            ("JobName", run.job_name),
            ("RunId", run.run_id),
        )
    }


def _where_unset(submission: Submission, values: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in values.items()
        if not (submission.effective(name) or "").strip()
    }


def _our_transport(lineage: LineageInjection) -> dict[str, str]:
    """Return the properties of the transport that writes the attempt's events."""
    if "://" not in lineage.events_file:
        return {"type": "file", "location": lineage.events_file}
    parts = urlsplit(lineage.events_file)
    kind = TRANSPORTS.get(parts.scheme)
    if kind is None or not parts.hostname:
        raise InjectionError(
            f"OpenLineage has no transport to {lineage.events_file!r}: events_location is a folder, or an address such "
            "as s3://bucket/folder or gs://bucket/folder"
        )
    endpoint = {"endpoint": lineage.endpoint} if lineage.endpoint and kind == "s3" else {}
    # The prefix of a "folder" ends with a slash; another one is followed by an underscore.
    # Credentials and region are those that the driver's environment has.
    bucket = parts.netloc.rpartition("@")[2]
    return {
        "type": kind,
        "bucketName": bucket,
        "fileNamePrefix": f"{parts.path.strip('/')}/",
        **endpoint,
    }


def _transport(effective: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    """Return our transport, alone or as one more member of a composite transport."""
    # OpenLineage ignores a blank value.
    users = {
        name.removeprefix(_TRANSPORT): value
        for name, value in effective.items()
        if name.startswith(_TRANSPORT) and value.strip()
    }
    kind = users.pop("type", None)
    if kind is None and users:
        raise InjectionError(
            f"the job sets {_TRANSPORT}{min(users)} but no {_TRANSPORT}type: "
            "OpenLineage refuses that; set the type, or drop these properties"
        )
    if kind is None or {"type": kind, **users} == ours:
        return {f"{_TRANSPORT}{name}": value for name, value in ours.items()}
    if kind == "composite":
        return _with_member(users, ours)
    return _composite_of(kind, users, ours)


def _with_member(users: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    for name in users:
        member, _, rest = name.removeprefix("transports.").partition(".")
        if name.startswith("transports.") and rest:
            _refuse_dotted_key(f"{_MEMBERS}{member}.", rest)
        elif name == "transports" or name.startswith("transports."):
            raise InjectionError(
                f"{_TRANSPORT}{name} is not a member of a composite OpenLineage transport"
            )
    result = {f"{_TRANSPORT}type": "composite"}
    # The first versions of the composite transport stop at a transport that fails unless this is
    # set.
    if "continueOnFailure" not in users:
        result[f"{_TRANSPORT}continueOnFailure"] = "true"
    return result | _member(_OUR_TRANSPORT, ours)


def _composite_of(kind: str, users: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    for name in users:
        _refuse_dotted_key(_TRANSPORT, name)
    url = urlsplit(users.get("url", ""))
    if kind == "http" and (url.query or not _HTTP_PATH.fullmatch(url.path)):
        raise InjectionError(
            f"{_TRANSPORT}url sets more than the address, which OpenLineage only understands in a transport of its "
            f"own: set the rest by properties of their own, such as {_TRANSPORT}auth.apiKey"
        )
    member = {"type": kind, **users}
    result = {f"{_TRANSPORT}type": "composite", f"{_TRANSPORT}continueOnFailure": "true"}
    # A composite transport ignores its members' properties at the top level, also those in
    # spark-defaults.conf.
    return result | _member(_USERS_TRANSPORT, member) | _member(_OUR_TRANSPORT, ours)


def _member(member: str, transport: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a member of a composite transport."""
    return {f"{_MEMBERS}{member}.{name}": value for name, value in transport.items()}


def _moved_from_file(submission: Submission, transport: Mapping[str, str]) -> frozenset[str]:
    """Return the names of properties with credentials that come from a file, not from the user's
    own call.
    """
    base = submission.base_properties
    names = (
        {DRIVER_JAVA_OPTIONS}
        if SECRET_NAME.search(base.get(DRIVER_JAVA_OPTIONS, ""))
        else set[str]()
    )
    if any(name.startswith(_TRANSPORT) for name in base):
        names.update(
            name for name in transport if not name.startswith(f"{_MEMBERS}{_OUR_TRANSPORT}.")
        )
    return frozenset(names - submission.properties.keys())


def _refuse_dotted_key(prefix: str, name: str) -> None:
    for free in _FREE_KEYS:
        if name.startswith(free) and "." in name.removeprefix(free):
            raise InjectionError(
                f"{prefix}{name} belongs to an OpenLineage transport that cannot be part of a composite one: its "
                f"key {name.removeprefix(free)!r} holds a dot, which OpenLineage only reads directly under {_TRANSPORT}"
            )


_TRANSPORT_VARIABLE = "OPENLINEAGE__TRANSPORT"
_TRANSPORT_SECTION = re.compile(r"^[\"']?transport[\"']?\s*:", re.MULTILINE)


def check_listener(submission: Submission, spark: SparkSubmit) -> str:
    """Return what the user must know of a transport that ours overrides; empty if there is none.

    OpenLineage also reads ``openlineage.yml`` and ``OPENLINEAGE__TRANSPORT...`` variables, which
    Spark properties replace: the user's transport gets no more events.

    :raises InjectionError: if the user switches the listener off.
    """
    if off := submission.disabled_by(spark.env):
        raise InjectionError(f"{off} switches the OpenLineage listener off")
    replaced = _overridden_transport(spark.env) if spark.local_driver else None
    return (
        f"the OpenLineage transport of {replaced} gets none of this job's events"
        if replaced
        else ""
    )


def _overridden_transport(env: Mapping[str, str]) -> str | None:
    variables = sorted(name for name in env if name.startswith(_TRANSPORT_VARIABLE))
    if variables:
        return f"the environment variable {variables[0]}"
    folder = Path.cwd()
    named = [folder / env["OPENLINEAGE_CONFIG"]] if env.get("OPENLINEAGE_CONFIG") else []
    files = [*named, folder / "openlineage.yml"]
    with suppress(RuntimeError):  # a container's user may have no home
        files.append(Path.home() / ".openlineage" / "openlineage.yml")
    file = next(filter(is_file, files), None)
    try:
        return (
            str(file)
            if file and _TRANSPORT_SECTION.search(file.read_text("utf-8", "replace"))
            else None
        )
    except OSError:
        return None


EVENT_LOG_FOLDER = ".eventlog"
"""Suffix of the folder of an attempt's own event log."""
_PART_LENGTH = 60
_HASH_LENGTH = 16
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


def event_file(root: Path, key: AttemptKey, ti_id: str = "") -> Path:
    """Return the event file of one attempt:
    ``<root>/<dag>/<run>/<task>/[map3-]try2-<hash>.ndjson``.

    Ids may hold anything (``:``, ``/``, ``..``), so each part of the path is reduced to
    ``[A-Za-z0-9_-]`` and cut; a hash of the exact ids keeps files apart.

    :param ti_id: Airflow's id of the task instance, new for every attempt; empty if there is none.
    :raises InjectionError: if ``root`` is relative: driver and worker would resolve it against
        different folders.
    """
    if not root.is_absolute():
        raise InjectionError(
            f"the folder for events, {str(root)!r}, is a relative path: give an absolute one"
        )
    exact = json.dumps([*astuple(key), ti_id]).encode("ascii")
    short_hash = hashlib.sha256(exact).hexdigest()[:_HASH_LENGTH]
    mapped = f"map{key.map_index}-" if key.map_index >= 0 else ""
    folder = root.joinpath(*map(_slug, (key.dag_id, key.run_id, key.task_id)))
    return folder / f"{mapped}try{key.try_number}-{short_hash}.ndjson"


def unused_path(path: Path) -> Path:
    """Return ``path``, or the first of ``<stem>-2``, ``<stem>-3``, ... that does not exist.

    An existing file was left by an earlier execution with the same key (a cleared task), and would
    be appended to.
    """
    others = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in itertools.count(2))
    return next(free for free in itertools.chain([path], others) if not os.path.lexists(free))


def event_log_folder(events_file: Path) -> Path:
    """Return the folder of Spark's own event log, next to the event file; the caller creates it."""
    return events_file.with_suffix(EVENT_LOG_FOLDER)


def _slug(text: str) -> str:
    return _UNSAFE.sub("_", text)[:_PART_LENGTH].strip("_-") or "x"
