"""The operator's lineage options: its arguments, each with a default in Airflow's configuration."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from airflow.providers.common.compat.sdk import conf

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.conversion.settings import LineageSettings
    from airflow_provider_spark_datahub.delivery.outbox import OutboxLimits

SECTION = "spark_datahub"
OnFailure = Literal["warn", "retry", "fail"]


class OptionError(ValueError):
    """An option of the operator has a wrong value; the message names it and what to write instead."""


@dataclass(frozen=True, slots=True)
class LineageOptions:
    """The options of one try, resolved and checked.

    :param settings: of the converter.
    :param on_failure: what becomes of the task when Spark succeeded and its lineage did not arrive.
    :param events_location: folder of the event files, on the machine of the driver.
    :param outbox_location: folder, or URI in an object store, of what waits for its delivery.
    :param outbox_limits: what may wait there; ``None``: the defaults.
    :param timeout: seconds after Spark's end in which the lineage steps must be over.
    :param openlineage_jar: path, URI, Maven coordinate or ``provided``.
    :param namespace: OpenLineage namespace of the Spark jobs, which is the cluster in their flows' URNs.
    :param emit_periodically: seconds between two deliveries of what the job did so far; ``None``: only at its end.
    :param openlineage_connection: of a backend that gets the raw events, too; ``None``: there is none.
    :param keep_events: leave event files in place when their lineage is delivered.
    :param notes: what to tell the user of options that are accepted without effect.
    """

    connection: str
    settings: LineageSettings
    on_failure: OnFailure
    events_location: Path
    outbox_location: str
    timeout: float
    openlineage_jar: str
    namespace: str
    keep_events: bool
    outbox_limits: OutboxLimits | None = None
    openlineage_connection: str | None = None
    emit_periodically: float | None = None
    notes: tuple[str, ...] = ()


def is_enabled(argument: object) -> bool:
    """Whether lineage is switched on, by the operator's argument or the configuration.

    :raises OptionError: where the value is neither true nor false.
    """
    if argument is None:
        return bool(conf.getboolean(SECTION, "enabled", fallback=True))
    return _truth("enabled", argument)


def resolve_options(
    *,
    datahub_conn_id: str | None,
    openlineage_conn_id: str | None = None,
    lineage: Mapping[str, Any] | LineageSettings | str | None,
    lineage_on_failure: str | None,
    events_location: str | None,
    outbox_location: str | None,
    lineage_timeout: float | str | None,
    openlineage_jar: str | None,
    emit_periodically: float | str | None = None,
) -> LineageOptions:
    """The options of one try: an argument that is ``None`` has its default in the section ``[spark_datahub]``.

    :raises OptionError: where an option has a wrong value.
    :raises SettingsError: where one of the converter's options has.
    """
    on_failure = lineage_on_failure or _configured("lineage_on_failure", "warn")
    if on_failure not in get_args(OnFailure):
        raise OptionError(f"lineage_on_failure is {on_failure!r}, want one of {', '.join(get_args(OnFailure))}")
    timeout = lineage_timeout if lineage_timeout is not None else _configured("lineage_timeout", "30")
    period = emit_periodically if emit_periodically is not None else _configured("emit_periodically", "0")
    settings, notes = _settings(lineage)
    return LineageOptions(
        connection=datahub_conn_id or connection_id(),
        openlineage_connection=openlineage_conn_id or _configured("openlineage_conn_id", "") or None,
        settings=settings,
        notes=tuple(notes),
        on_failure=cast("OnFailure", on_failure),
        events_location=_folder("events", events_location),
        outbox_location=resolve_outbox_location(outbox_location),
        outbox_limits=outbox_limits(),
        timeout=_seconds("lineage_timeout", timeout),
        openlineage_jar=openlineage_jar or _configured("openlineage_jar", ""),
        namespace=_configured("namespace", "default"),
        keep_events=conf.getboolean(SECTION, "keep_events", fallback=False),
        emit_periodically=_period(period),
    )


def connection_id() -> str:
    """The configured connection, for tasks that name none."""
    return _configured("datahub_conn_id", "datahub_rest_default")


def resolve_outbox_location(argument: str | None = None) -> str:
    """Where the outbox is: an absolute path, or the URI of an object store."""
    configured = argument or _configured("outbox_location", "")
    if "://" in configured and not configured.startswith("file://"):
        return configured
    return str(_folder("outbox", argument))


def outbox_limits() -> OutboxLimits:
    """What the outbox may hold, and for how long.

    :raises OptionError: where an option has a wrong value.
    """
    from airflow_provider_spark_datahub.delivery.outbox import DAY_SECONDS, OutboxLimits

    default = OutboxLimits()
    return OutboxLimits(
        max_bytes=int(_positive("outbox_max_bytes", default.max_bytes)),
        max_age=_positive("outbox_max_age", default.max_age / DAY_SECONDS) * DAY_SECONDS,
        receipts=_positive("receipt_days", default.receipts / DAY_SECONDS) * DAY_SECONDS,
    )


def _positive(option: str, default: float) -> float:
    text = _configured(option, str(default))
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    # Written so that NaN, which compares with nothing, is refused as well.
    if not 0 < number < float("inf"):
        raise OptionError(f"[{SECTION}] {option} is {text!r}, want a number above 0")
    return number


def _configured(option: str, fallback: str) -> str:
    return conf.get(SECTION, option, fallback=fallback) or fallback


def _settings(lineage: Mapping[str, Any] | LineageSettings | str | None) -> tuple[LineageSettings, list[str]]:
    """The converter's settings, and what is to be told of options without effect."""
    from airflow_provider_spark_datahub.conversion.settings import LineageSettings

    if isinstance(lineage, LineageSettings):
        return lineage, []
    layers = lineage_layers(lineage)
    return LineageSettings.from_mapping(*layers), LineageSettings.notes(*layers)


def lineage_layers(lineage: Mapping[str, Any] | str | None) -> tuple[dict[str, Any], ...]:
    """The converter's options, as :meth:`LineageSettings.from_mapping` takes them: the environment's, the
    configuration's, and these.

    :raises OptionError: where they are no object.
    :raises SettingsError: where the environment has a wrong one.
    """
    from airflow_provider_spark_datahub.conversion.settings import settings_of_environment

    environment = dict[str, Any](settings_of_environment(os.environ))
    defaults = _object("[spark_datahub] lineage", _configured("lineage", "{}"))
    return tuple(layer for layer in (environment, defaults, _object("lineage", lineage or {})) if layer)


def _object(name: str, value: Mapping[str, Any] | str) -> dict[str, Any]:
    try:
        decoded = json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise OptionError(f"{name} is no JSON: {error}") from error
    if not isinstance(decoded, Mapping):
        raise OptionError(f"{name} is {decoded!r}, want an object of options")
    return dict(decoded)


def _folder(kind: str, argument: str | None) -> Path:
    configured = argument or _configured(f"{kind}_location", "")
    if configured:
        return Path(configured.removeprefix("file://")).expanduser()
    from airflow.configuration import AIRFLOW_HOME

    return Path(AIRFLOW_HOME) / SECTION / kind


def _seconds(name: str, value: float | str) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = 0.0
    # Written so that NaN, which compares with nothing, is refused as well.
    if not 0 < seconds < 86400:
        raise OptionError(f"{name} is {value!r}, want seconds, more than 0 and less than a day")
    return seconds


def _period(value: float | str) -> float | None:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = -1.0
    if seconds == 0:
        return None
    if not 1 <= seconds < 86400:
        raise OptionError(f"emit_periodically is {value!r}, want seconds, from 1 to less than a day, or 0 for never")
    return seconds


def _truth(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if str(value).strip().lower() in known:
        return known[str(value).strip().lower()]
    raise OptionError(f"{name} is {value!r}, want true or false")
