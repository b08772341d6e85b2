"""Options of one attempt, checked, and its access to the connections that they name.

The operator's arguments are laid over the configuration, which is passed in:
``hooks/airflow_context.py`` reads Airflow's section ``[spark_datahub]``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args
from urllib.parse import urlsplit

from airflow_provider_spark_datahub.foundation.files import is_folder
from airflow_provider_spark_datahub.foundation.text import nearest, read_boolean

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.capture import ObjectStore, OpenStore
    from airflow_provider_spark_datahub.conversion import LineageSettings
    from airflow_provider_spark_datahub.conversion.run_tree import AttemptResult
    from airflow_provider_spark_datahub.delivery import Sink
    from airflow_provider_spark_datahub.delivery.outbox import Outbox, OutboxLimits
    from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey

SECTION = "spark_datahub"
"""Section of Airflow's configuration, which error messages name."""
_FailurePolicy = Literal["warn", "retry", "fail"]
_CaptureMode = Literal["listener", "event_log", "auto"]
_DAY_SECONDS = 86_400.0
NAMESPACE = "default"
"""OpenLineage namespace of jobs that have no ``spark.openlineage.namespace``."""


class OptionError(ValueError):
    """An option has a wrong value; the message names the option and says which values are accepted."""

    def __init__(self, option: str, message: str) -> None:
        super().__init__(message)
        self.option = option


@dataclass(frozen=True)
class Option:
    """Option in Airflow's section ``[spark_datahub]``.

    :param meaning: text in the description of Airflow's configuration.
    :param default: text that counts if the option is not configured.
    :param kind: type in Airflow's configuration.
    :param argument: whether it is an argument of the operators, too.
    """

    meaning: str
    default: str = ""
    kind: str = "string"
    example: str | None = None
    argument: bool = True


OPTIONS: Mapping[str, Option] = {
    "auto": Option(
        "Operators that have lineage without a change of their DAGs, by class name, separated by commas. "
        "Their subclasses have it, too. Empty: none.",
        example="SparkSubmitOperator, SparkSqlOperator",
        argument=False,
    ),
    "datahub_conn_id": Option("Connection to DataHub.", default="datahub_rest_default"),
    "datahub_url": Option(
        "Address of DataHub's UI, for links. Empty: from that of GMS, if the one follows from the other.",
        example="https://datahub.example.com",
        argument=False,
    ),
    "lineage": Option(
        "Settings of the converter, as a JSON object.",
        example='{"env": "DEV", "tags": ["nightly"]}',
    ),
    "lineage_on_failure": Option(
        "Effect on a task whose Spark job succeeded and whose lineage was not delivered: warn (none), "
        "retry (the next attempt, if there is one, only delivers) or fail.",
        default="warn",
    ),
    "events_location": Option(
        "Absolute folder for the OpenLineage events of the jobs, on the machine of the driver, or an "
        "address in S3 or GCS: s3://connection@bucket/prefix. Empty: $AIRFLOW_HOME/spark_datahub/events."
    ),
    "outbox_location": Option(
        "Folder, or URI in an object store, for lineage that is not delivered yet. Empty: "
        "$AIRFLOW_HOME/spark_datahub/outbox.",
        example="s3://aws_default@lineage/outbox",
    ),
    "outbox_max_bytes": Option(
        "Bytes that the outbox may hold. A full outbox refuses new entries, and tasks report it.",
        default=str(1024**3),
        kind="integer",
        argument=False,
    ),
    "group_access": Option(
        "Whether users of the same group may read and write outbox and events. Otherwise, the user alone.",
        default="False",
        kind="boolean",
        argument=False,
    ),
    "lineage_timeout": Option(
        "Seconds after Spark's end within which all lineage steps of a task must finish.",
        default="30",
        kind="float",
    ),
    "emit_periodically": Option(
        "Seconds between two deliveries while a job runs. 0: only at its end.",
        default="0",
        kind="float",
    ),
    "openlineage_jar": Option(
        "openlineage-spark: a path, a URI, a Maven coordinate ({scala} stands for Spark's Scala version), "
        "or 'provided'. Empty: the version that this provider was tested with.",
        example="/opt/jars/openlineage-spark_2.13-1.53.0.jar",
    ),
    "capture": Option(
        "Sources of the lineage: 'auto', OpenLineage's listener and Spark's own event log, or one of them if the "
        "other cannot be had; 'listener', OpenLineage's alone; 'event_log', the log alone, without the listener.",
        default="auto",
        example="listener",
    ),
    "event_log_conn_id": Option(
        "Connection that reads a job's own Spark event log in S3 or GCS (spark.eventLog.dir=s3a://...). "
        "Empty: that of events_location, if it is in a store; else such a log is not read.",
        example="aws_default",
        argument=False,
    ),
    "connect_events": Option(
        "Event file of the Spark Connect server whose clients tasks are by SPARK_REMOTE, as the worker "
        "sees it. Empty: such tasks have no lineage.",
        example="/shared/spark-connect/events.ndjson",
    ),
    "enabled": Option(
        "Whether the operator collects lineage at all.", default="True", kind="boolean"
    ),
}
"""All options, by name."""
ARGUMENTS = tuple(name for name, option in OPTIONS.items() if option.argument)
"""Options that are arguments of the operators."""
_LIMITS = ("outbox_max_bytes", "group_access")


@dataclass(frozen=True)
class LineageOptions:
    """Options of one attempt, resolved and checked, as :data:`OPTIONS` describes them; ``None``
    switches one off.

    :param settings: the option ``lineage``.
    :param events_location: folder of the event files, also of the Sparks below a task if events go
        to a store.
    :param events_store: URI of the folder for events in an object store.
    :param outbox_limits: ``None`` for the defaults.
    :param class_archives: folder of the archives of Java classes; ``None`` if ``spark-datahub
        warm`` made none.
    :param event_log_connection: empty for the store's own defaults; ``None`` if a log in a store is
        not read.
    :param notes: messages for the user about options that are accepted without effect.
    :param problems: messages for the user about options and settings that are left out, since they
        cannot be used.
    """

    connection: str
    settings: LineageSettings
    on_failure: _FailurePolicy
    events_location: Path
    outbox_location: str
    timeout: float
    openlineage_jar: str
    outbox_limits: OutboxLimits | None = None
    emit_periodically: float | None = None
    capture: _CaptureMode = "auto"
    datahub_url: str = ""
    class_archives: Path | None = None
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    events_store: str | None = None
    connect_events: Path | None = None
    event_log_connection: str | None = None

    @property
    def reads_event_log(self) -> bool:
        """Return whether the job writes Spark's own event log for its lineage."""
        return self.capture != "listener" and self.settings.coalesce_jobs


@dataclass(frozen=True)
class LineageConfiguration:
    """Defaults of all options, and the arguments laid over them.

    :param read: returns the configured text of an option; empty if it is not configured.
    :param home: folder of events and outbox if no location is configured.
    :param names: names of the configured options, known or not.
    """

    read: Callable[[str], str]
    home: Path
    names: tuple[str, ...] = ()

    def resolve(self, **arguments: Any) -> LineageOptions:
        """Return the options of one attempt. An argument that is ``None`` takes its configured
        value.

        A value that cannot be used is left out (:attr:`LineageOptions.problems`): lineage does not
        depend on it.

        :param arguments: by the names of :data:`ARGUMENTS`.
        """
        configuration, problems = (
            self,
            [_unknown(name, ARGUMENTS) for name in arguments if name not in ARGUMENTS],
        )
        while True:
            try:
                options = configuration._resolved(arguments)
            except OptionError as error:
                problems.append(str(error))
                if arguments.pop(error.option, None) is None:
                    configuration = configuration._without(error.option)
            else:
                return replace(options, problems=(*problems, *options.problems))

    def _without(self, option: str) -> LineageConfiguration:
        """Return the configuration with the default of an option."""
        return replace(self, read=lambda name: "" if name == option else self.read(name))

    def _resolved(self, arguments: Mapping[str, Any]) -> LineageOptions:
        """Return the options, or raise OptionError for the first one with a wrong value."""
        _boolean("enabled", self._given(arguments, "enabled"))
        events, text = arguments.get("events_location"), partial(self._given, arguments)
        settings, notes, problems = self._settings(arguments.get("lineage"))
        return LineageOptions(
            connection=text("datahub_conn_id"),
            datahub_url=text("datahub_url").rstrip("/"),
            settings=settings,
            notes=tuple(notes),
            problems=(
                *(
                    f"[{SECTION}]: {_unknown(name, OPTIONS)}"
                    for name in self.names
                    if name not in OPTIONS
                ),
                *problems,
            ),
            on_failure=self._one_of(_FailurePolicy, "lineage_on_failure", arguments),
            events_location=self.events_location(events),
            events_store=self._uri("events", events),
            connect_events=Path(file).expanduser() if (file := text("connect_events")) else None,
            outbox_location=self.outbox_location(arguments.get("outbox_location")),
            outbox_limits=self.outbox_limits() if any(map(self.read, _LIMITS)) else None,
            timeout=self._seconds(
                arguments,
                "lineage_timeout",
                lambda seconds: 0 < seconds < _DAY_SECONDS,
                "more than 0 and less than a day",
            ),
            openlineage_jar=text("openlineage_jar"),
            emit_periodically=self._seconds(
                arguments,
                "emit_periodically",
                lambda seconds: seconds == 0 or 1 <= seconds < _DAY_SECONDS,
                "from 1 to less than a day, or 0 for never",
            )
            or None,
            capture=self._one_of(_CaptureMode, "capture", arguments),
            class_archives=folder if is_folder(folder := self.class_archives) else None,
            event_log_connection=self._event_log_connection(events),
        )

    def _given(self, arguments: Mapping[str, Any], name: str) -> str:
        """Return the text of an option: the argument's, else the configured one, else the default."""
        return cast("str", arguments.get(name) or self._text(name))

    @property
    def class_archives(self) -> Path:
        """Folder of the archives of Java classes, which ``spark-datahub warm`` makes."""
        return self.home / "classes"

    def _seconds(
        self,
        arguments: Mapping[str, Any],
        option: str,
        is_valid: Callable[[float], bool],
        wanted: str,
    ) -> float:
        """Return the seconds of an option: the argument's, also 0, else the configured ones."""
        argument = arguments.get(option)
        given = self._text(option) if argument is None else argument
        seconds = _number(given)
        if not is_valid(seconds):
            raise OptionError(option, f"{option} is {given!r}, want seconds, {wanted}")
        return seconds

    @property
    def connection_id(self) -> str:
        """Id of the connection for tasks that name none."""
        return self._text("datahub_conn_id")

    def is_enabled(self, argument: object = None) -> bool:
        """Return whether lineage is switched on, by the operator's argument or else by the
        configuration.

        A value that is neither true nor false switches nothing off; :meth:`resolve` reports it.
        """
        return (
            read_boolean(str(self._text("enabled") if argument is None else argument)) is not False
        )

    def events_location(self, argument: str | None = None) -> Path:
        """Return the folder of the event files; the default one if the events go to an object
        store.
        """
        return (
            self._folder("events", argument)
            if self._uri("events", argument) is None
            else self.home / "events"
        )

    def outbox_location(self, argument: str | None = None) -> str:
        """Return the location of the outbox: an absolute path, or a URI in an object store."""
        return self._uri("outbox", argument) or str(self._folder("outbox", argument))

    def outbox_limits(self) -> OutboxLimits:
        """Return the limits of the outbox: its size, and who may read it.

        :raises OptionError: if one of them has a wrong type, or the size is not above 0.
        """
        from airflow_provider_spark_datahub.delivery.outbox import OutboxLimits

        text = self._text("outbox_max_bytes")
        most = _number(text)
        # NaN fails every comparison, so it is refused as well.
        if not 0 < most < float("inf"):
            problem = f"[{SECTION}] outbox_max_bytes is {text!r}, want a number above 0"
            raise OptionError("outbox_max_bytes", problem)
        shared = _boolean("group_access", self._text("group_access"))
        return OutboxLimits(max_bytes=int(most), group_access=shared)

    def setting_layers(
        self, lineage: Mapping[str, Any] | str | None = None
    ) -> tuple[dict[str, Any], ...]:
        """Return the converter's settings in layers, as ``LineageSettings.from_mapping`` takes
        them.

        The configuration comes first, then ``lineage``; a later layer overrides an earlier one.

        :raises OptionError: if a layer is not an object.
        """
        defaults = _object(f"[{SECTION}] lineage", self._text("lineage") or "{}")
        return tuple(layer for layer in (defaults, _object("lineage", lineage or {})) if layer)

    def _settings(
        self, lineage: Mapping[str, Any] | LineageSettings | str | None
    ) -> tuple[LineageSettings, list[str], list[str]]:
        """Return the converter's settings, notes on those without effect, and sentences on those
        that are left out.
        """
        from airflow_provider_spark_datahub.conversion import LineageSettings

        if isinstance(lineage, LineageSettings):
            return lineage, [], []
        settings, used, problems = LineageSettings.usable(*self.setting_layers(lineage))
        return settings, LineageSettings.notes(*used), problems

    def _text(self, option: str) -> str:
        return self.read(option) or OPTIONS[option].default

    def _one_of(self, values: Any, option: str, arguments: Mapping[str, Any]) -> Any:
        value = self._given(arguments, option)
        if value not in get_args(values):
            close = nearest(str(value), get_args(values))
            hint = f"; did you mean {close!r}?" if close else ""
            raise OptionError(
                option, f"{option} is {value!r}, want one of {', '.join(get_args(values))}{hint}"
            )
        return value

    def _event_log_connection(self, events_location: str | None) -> str | None:
        events_store = self._uri("events", events_location)
        inherited = None if events_store is None else urlsplit(events_store).username or ""
        return self.read("event_log_conn_id") or inherited

    def _uri(self, kind: str, argument: str | None) -> str | None:
        """Return a location in an object store; ``None`` for a folder."""
        location = argument or self.read(f"{kind}_location")
        return location if "://" in location and not location.startswith("file://") else None

    def _folder(self, kind: str, argument: str | None) -> Path:
        location = argument or self.read(f"{kind}_location")
        return Path(location.removeprefix("file://")).expanduser() if location else self.home / kind


def _unknown(name: str, known: Iterable[str]) -> str:
    close = nearest(name, known)
    return f"unknown option {name!r}" + (f"; did you mean {close!r}?" if close else "")


def _object(name: str, value: Mapping[str, Any] | str) -> dict[str, Any]:
    try:
        decoded = json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise OptionError("lineage", f"{name} is not valid JSON: {error}") from error
    if not isinstance(decoded, Mapping):
        raise OptionError("lineage", f"{name} is {decoded!r}, want an object of settings")
    return dict(decoded)


def _number(value: object) -> float:
    """Return a value as a number, or NaN, which is outside every range, if it is none."""
    try:
        return float(cast("float | str", value))
    except (TypeError, ValueError):
        return float("nan")


def _boolean(name: str, value: object) -> bool:
    known = read_boolean(str(value))
    if known is None:
        raise OptionError(name, f"{name} is {value!r}, want true or false")
    return known


def _no_store(uri: str) -> ObjectStore:
    raise OSError(f"Cannot open {uri}: this launcher knows no object stores")


@dataclass(frozen=True)
class Connections:
    """Access to sinks, outbox and object stores. Only the launcher knows how connections are
    stored.

    :param open_sink: returns the sink of a connection, or ``None`` and the reason.
    :param open_outbox: returns the outbox at a location. Raises ``OutboxError`` if it cannot be
        opened.
    :param final_result: returns the result of a task instance that is known to be over, so that its
        events can be converted; else ``None``.
    :param open_store: opens the object store at a URI, for the events in it. Raises ``OSError`` if
        it cannot be opened.
    :param s3_endpoint: returns the address of the S3 server at a URI if it is not Amazon's.
    """

    open_sink: Callable[[str], tuple[Sink | None, str | None]]
    open_outbox: Callable[[str, OutboxLimits | None], Outbox]
    final_result: Callable[[AttemptKey], AttemptResult | None] = lambda _: None
    open_store: OpenStore = _no_store
    s3_endpoint: Callable[[str], str | None] = lambda _: None

    def outbox(self, options: LineageOptions) -> Outbox:
        """Return the outbox of an attempt, or raise ``OutboxError``."""
        return self.open_outbox(options.outbox_location, options.outbox_limits)
