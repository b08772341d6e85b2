"""The ``hive_session`` run facet, which OpenLineage's Hive hook puts on each query (conversion rules, section 9)."""

from __future__ import annotations

from airflow_provider_spark_datahub.conversion.events import Facets, JsonObject, RunEvent, as_text
from airflow_provider_spark_datahub.conversion.redaction import redact

FACET = "hive_session"
_KEYS = ("username", "clientIp", "sessionId", "creationTime")


def hive_session_properties(facet: JsonObject) -> dict[str, str]:
    """Custom properties of a query's run and job: the facet's texts under the facet's own keys.

    A key that is missing, empty or no text costs only itself. User and client address are shown, as the Spark user is:
    whose session it was is what the facet is for.
    """
    return {key: redact(key, text) for key in _KEYS if (text := as_text(facet.get(key)).strip())}


def hive_session_id(event: RunEvent) -> str:
    """The id of the Hive session that the event's run belongs to, or empty."""
    return event.run_facets.once(_session_id)


def _session_id(run_facets: Facets) -> str:
    return as_text(run_facets[FACET].get("sessionId")).strip()
