"""The aspects of a DataProcessInstance: the run of a job, of a DAG or of a session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from airflow_provider_spark_datahub.conversion.events import iso_instant
from airflow_provider_spark_datahub.conversion.proposals import Proposal
from airflow_provider_spark_datahub.conversion.shared_aspects import audit_stamp, status

KIND = "dataProcessInstance"
NOT_PARTITIONED = {"partition": "FULL_TABLE_SNAPSHOT", "type": "FULL_TABLE"}
"""The default of a time-series aspect's ``partitionSpec``, which acryl-datahub writes out."""

RunType = Literal["BATCH_SCHEDULED", "BATCH_AD_HOC", "STREAMING"]
"""DataHub's ``DataProcessType``."""

_SECOND_MS = 1_000
# The coarsest unit that an interval is a multiple of is its granularity. A month or a year has no length of its own.
_UNITS = (("WEEK", 604_800_000), ("DAY", 86_400_000), ("HOUR", 3_600_000), ("MINUTE", 60_000), ("SECOND", _SECOND_MS))


@dataclass(frozen=True, slots=True)
class DataInterval:
    """The time whose data a run is for: Airflow's data interval, OpenLineage's nominal time. In ms since the epoch.

    :param end_ms: the first moment after it.
    """

    start_ms: int
    end_ms: int

    @property
    def granularity(self) -> dict[str, Any] | None:
        """DataHub's ``TimeWindowSize``; ``None`` where it is no whole number of seconds, or a moment."""
        length = self.end_ms - self.start_ms
        for unit, unit_ms in _UNITS:
            if length > 0 and length % unit_ms == 0:
                return {"unit": unit, "multiple": length // unit_ms}
        return None


def partition_spec(interval: DataInterval | None, partitions: Sequence[str] = ()) -> dict[str, Any]:
    """Which part of the data a run or an operation was about.

    The interval is spelled in ``partition``: GMS refuses to index a spec that has a ``timePartition`` beside it
    (``TimeseriesAspectTransformer``), and ``partition`` must be there.

    :param partitions: what the producer calls them; they count before the interval.
    """
    if partitions:
        return {"partition": ",".join(sorted(partitions)), "type": "PARTITION"}
    if interval is None or interval.granularity is None:
        return NOT_PARTITIONED
    return {"partition": f"{iso_instant(interval.start_ms)}/{iso_instant(interval.end_ms)}", "type": "PARTITION"}


def run_properties(
    urn: str,
    *,
    name: str,
    created_ms: int | None,
    custom: Mapping[str, str],
    url: str | None = None,
    run_type: RunType | None = None,
) -> Iterator[Proposal]:
    """What a run is, and that it is there.

    One that was deleted softly, as DataHub's garbage collection does, and happens again (a task that is cleared) would
    else stay hidden.
    """
    aspect: dict[str, Any] = {"customProperties": custom}
    if url:
        aspect["externalUrl"] = url
    aspect["name"] = name
    if run_type:
        aspect["type"] = run_type
    aspect["created"] = audit_stamp(created_ms)
    yield Proposal(KIND, urn, "dataProcessInstanceProperties", aspect)
    yield status(KIND, urn)


def run_event(
    urn: str,
    time_ms: int,
    status: Literal["STARTED", "COMPLETE"],
    *,
    result: Mapping[str, str] | None = None,
    interval: DataInterval | None = None,
    partitions: Sequence[str] = (),
    kind: str | None = None,
    **more: Any,
) -> Proposal:
    """A run event of a DataProcessInstance.

    GMS keeps one per run, time, granularity, partition and message id: with the id a start and an end, or two tries, of
    one millisecond are two, and a replay is none more.

    :param kind: what tells the event from others of the run that have its status, as its OpenLineage event type does.
    :param more: ``attempt``, ``durationMillis``, ``externalUrl``; left out where ``None``.
    """
    attempt = more.get("attempt")
    aspect: dict[str, Any] = {"timestampMillis": time_ms}
    if interval is not None and interval.granularity is not None:
        aspect["eventGranularity"] = interval.granularity
    aspect |= {
        "partitionSpec": partition_spec(interval, partitions),
        "messageId": " ".join(str(part) for part in (kind or status, attempt) if part is not None),
        "status": status,
    }
    optional = {"result": result, **more}
    aspect |= {key: value for key, value in optional.items() if value is not None}
    return Proposal(KIND, urn, "dataProcessInstanceRunEvent", aspect)
