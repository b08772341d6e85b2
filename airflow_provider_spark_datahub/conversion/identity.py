"""Which flow and which job an event belongs to (conversion rules, sections 1 and 2)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.events import (
    EventError,
    Facets,
    RunEvent,
    as_object,
    as_objects,
    as_text,
)
from airflow_provider_spark_datahub.conversion.settings import LineageSettings

_OPENLINEAGE_PRODUCER = re.compile(r"https://github\.com/OpenLineage/OpenLineage/.*/(.*)")
_OTHER_PRODUCERS = {
    "https://github.com/apache/airflow/": "airflow",
    "https://github.com/trinodb/trino/": "trino",
}
_MERGE_JOB = "execute_merge_into_command_edge"
# Of it, an instance of the platform and a flow on it are named too.
_MAX_PLATFORM_BYTES = 100
DEFAULT_CLUSTER = "default"
"""The job namespace that OpenLineage itself falls back to."""


@dataclass(frozen=True, slots=True)
class FlowIdentity:
    """What a DataFlow's URN is made of."""

    orchestrator: str
    flow_id: str
    cluster: str
    urn: str = field(init=False, compare=False)
    """The flow's URN."""

    def __post_init__(self) -> None:
        """Spell the URN once: it stands in half of a flow's aspects."""
        object.__setattr__(self, "urn", urns.dataflow_urn(self.orchestrator, self.flow_id, self.cluster))


def orchestrator_of(event: RunEvent, settings: LineageSettings) -> str:
    """Which platform ran the job.

    :raises EventError: where neither the settings, the engine nor the producer tell.
    """
    if settings.orchestrator:
        return settings.orchestrator
    engine = event.run_facets.once(_engine)
    if engine:
        return engine
    matched = _OPENLINEAGE_PRODUCER.fullmatch(event.producer)
    if matched and matched.group(1):
        return matched.group(1)
    for prefix, orchestrator in _OTHER_PRODUCERS.items():
        if event.producer.startswith(prefix):
            return orchestrator
    raise EventError(
        f"cannot tell which platform ran the job: producer {event.producer!r} is not known and the event has no "
        "processing_engine facet; set the option 'orchestrator'"
    )


def _engine(run_facets: Facets) -> str:
    return as_text(run_facets["processing_engine"].get("name")).strip().lower()


def application_names(event: RunEvent) -> tuple[str, str]:
    """The Spark application's own name, and that of its session; each empty where the event does not carry it."""
    return event.run_facets.once(_application_names)


def _application_names(run_facets: Facets) -> tuple[str, str]:
    details = as_text(run_facets["spark_applicationDetails"].get("appName"))
    properties = as_object(run_facets["spark_properties"].get("properties"))
    return details.strip(), as_text(properties.get("spark.app.name")).strip()


def flow_identity(event: RunEvent, settings: LineageSettings, app_name: str) -> FlowIdentity:
    """The flow of an event.

    :param app_name: the application's own name, from any of its events; empty where none tells.
    :raises EventError: where the platform that ran the job is unknown.
    """
    flow_id = settings.flow_id(app_name or event.job_name.partition(".")[0])
    if not flow_id:
        raise EventError(f"job.name {event.job_name!r} starts with a dot: no flow can be named after it")
    cluster = settings.platform_instance or event.job_namespace or DEFAULT_CLUSTER
    return _flow(urns.shortened(orchestrator_of(event, settings), _MAX_PLATFORM_BYTES), flow_id, cluster)


_flow = lru_cache(maxsize=1024)(FlowIdentity)


def job_id_and_name(event: RunEvent, settings: LineageSettings) -> tuple[str, str]:
    """Id and display name of the job that a single event describes (not coalesced)."""
    job_id = event.job_name
    if settings.enhanced_merge_into_extraction and _MERGE_JOB in job_id:
        table = merge_target(event)
        if table:
            job_id = f"{job_id}.{re.sub('[. ]', '_', table).lower()}"
    return job_id, display_name(job_id)


def display_name(job_id: str) -> str:
    """What follows the first dot of a job's id; all of it where there is none."""
    _, dot, rest = job_id.partition(".")
    return rest if dot else job_id


def merge_target(event: RunEvent) -> str:
    """The table that Delta's MERGE writes to, from the first source that names it, or empty."""
    for line in event.sql.splitlines():
        words = line.split()
        if len(words) > 2 and [word.upper() for word in words[:2]] == ["MERGE", "INTO"]:
            return words[2].replace("`", "")
    names = [dataset.id.name for dataset in event.outputs]
    for name in names:
        if "." in name and not name.startswith("/"):
            return name
    for dataset in event.outputs:
        table = _table_symlink(dataset.facets)
        if table:
            return table
    return next((table for name in names if (table := _warehouse_table(name))), "")


def _table_symlink(facets: Facets) -> str:
    for identifier in as_objects(facets["symlinks"].get("identifiers")):
        if identifier.get("type") == "TABLE":
            return as_text(identifier.get("name")).removeprefix("table/").replace("/", ".")
    return ""


def _warehouse_table(path: str) -> str:
    """``…/warehouse/<db>.db/<table>`` → ``<db>.<table>``."""
    below = path.rpartition("/warehouse/")[2] if "/warehouse/" in path else ""
    database, found, table = below.rpartition(".db/")
    return f"{database}.{table.rstrip('/')}" if found else ""
