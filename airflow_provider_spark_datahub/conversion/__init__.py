"""From OpenLineage run events to DataHub proposals: pure functions, no I/O, no clock.

The names in ``__all__`` are public API (``docs/conversion.md``); everything below this package is not. They are
imported when they are first asked for: what a DAG file imports stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.conversion.coalesce import Ending
    from airflow_provider_spark_datahub.conversion.convert import (
        Conversion,
        Converter,
        convert_events,
        convert_run_event,
    )
    from airflow_provider_spark_datahub.conversion.events import EventError
    from airflow_provider_spark_datahub.conversion.proposals import Proposal
    from airflow_provider_spark_datahub.conversion.settings import LineageSettings, SettingsError

__all__ = [
    "Conversion",
    "Converter",
    "Ending",
    "EventError",
    "LineageSettings",
    "Proposal",
    "SettingsError",
    "convert_events",
    "convert_run_event",
]

_MODULES = {
    "Conversion": "convert",
    "Converter": "convert",
    "Ending": "coalesce",
    "EventError": "events",
    "LineageSettings": "settings",
    "Proposal": "proposals",
    "SettingsError": "settings",
    "convert_events": "convert",
    "convert_run_event": "convert",
}


def __getattr__(name: str) -> Any:
    """A public name (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    """The public names, beside what is there already."""
    return sorted({*globals(), *__all__})
