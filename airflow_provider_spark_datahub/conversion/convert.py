"""The converter's two entry points: a single run event, and all events of a job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.aspects import proposals_of
from airflow_provider_spark_datahub.conversion.coalesce import Ending, JobLineage, RunResult, coalesce
from airflow_provider_spark_datahub.conversion.events import (
    FAILED_TYPES,
    TERMINAL_TYPES,
    DatasetId,
    EventError,
    RunEvent,
    parse_run_event,
)
from airflow_provider_spark_datahub.conversion.fold import Fold
from airflow_provider_spark_datahub.conversion.identity import job_id_and_name
from airflow_provider_spark_datahub.conversion.properties import airflow_tags, flow_properties, job_properties
from airflow_provider_spark_datahub.conversion.proposals import Proposal
from airflow_provider_spark_datahub.conversion.settings import LineageSettings

MAX_LISTED_PROBLEMS = 20
"""How many unusable events are told one by one; the others are counted."""


@dataclass
class Conversion:
    """What a stream of events came to.

    :param events: events that went into the jobs.
    :param rejected: events that could not be converted.
    :param problems: why, for the first of them.
    """

    jobs: list[JobLineage] = field(default_factory=list)
    events: int = 0
    rejected: int = 0
    problems: list[str] = field(default_factory=list)

    def reject(self, error: EventError) -> None:
        """Count an event that cannot be converted."""
        self.rejected += 1
        if len(self.problems) < MAX_LISTED_PROBLEMS:
            self.problems.append(str(error))

    @property
    def inputs(self) -> list[str]:
        """URNs of all datasets read, sorted."""
        return sorted({urn for job in self.jobs for urn in job.inputs})

    @property
    def outputs(self) -> list[str]:
        """URNs of all datasets written, sorted."""
        return sorted({urn for job in self.jobs for urn in job.outputs})

    @property
    def unusable(self) -> dict[DatasetId, str]:
        """Datasets that no URN can be made of, and why."""
        return {dataset: reason for job in self.jobs for dataset, reason in job.unusable.items()}

    def proposals(self, settings: LineageSettings) -> list[Proposal]:
        """All jobs as proposals."""
        return [proposal for job in self.jobs for proposal in proposals_of(job, settings)]


class Converter:
    """Takes the events of a job one by one; what it keeps grows with their distinct content, not their number."""

    def __init__(self, settings: LineageSettings) -> None:
        self._settings = settings
        self._fold = Fold(settings)
        self._conversion = Conversion()

    def add(self, event: object) -> None:
        """Take one more event, as decoded JSON. One that cannot be converted costs only itself."""
        try:
            self._fold.add(parse_run_event(event))
        except EventError as error:
            self._conversion.reject(error)
        else:
            self._conversion.events += 1

    def finish(self, ending: Ending) -> Conversion:
        """Everything that the events came to, one DataJob per application.

        :param ending: how the job ended, where more is known than its events tell.
        """
        if self._conversion.rejected:
            ending = replace(ending, events_complete=False)
        self._conversion.jobs = coalesce(
            self._fold.applications(), self._fold.symlinks.by_dataset, self._settings, ending
        )
        return self._conversion


def convert_events(events: Iterable[object], settings: LineageSettings, ending: Ending | None = None) -> Conversion:
    """All events of a job (or of several applications), one DataJob per application.

    :param events: decoded JSON, in the order in which they were written; read once.
    """
    converter = Converter(settings)
    for event in events:
        converter.add(event)
    return converter.finish(ending or Ending())


def convert_run_event(event: object, settings: LineageSettings) -> list[Proposal]:
    """One event by itself, not coalesced: the job is the query that the event tells of.

    This function is public API: its signature and, within a minor version, what it returns stay as they are.

    :param event: an OpenLineage run event as decoded JSON, of any producer.
    :raises EventError: where it is no run event, or nothing tells which platform ran the job.
    """
    parsed = parse_run_event(event)
    fold = Fold(settings)
    fold.add(parsed)
    (job,) = coalesce(fold.applications(), fold.symlinks.by_dataset, settings, Ending(final=False))
    job_id, job_name = job_id_and_name(parsed, settings)
    return proposals_of(
        replace(
            job,
            job_id=job_id,
            job_name=job_name,
            run_id=parsed.run_id,
            flow_properties=dict(sorted(flow_properties(parsed, spark_plan=settings.capture_spark_plan).items())),
            job_properties=dict(sorted(job_properties(parsed).items())),
            tags=_tags(parsed, settings),
            created_ms=parsed.time_ms,
            result=_result(parsed),
            started=parsed.type in ("START", "RUNNING"),
            adds_only=settings.use_patch or parsed.type in FAILED_TYPES,
            parent_instance=urns.dpi_urn(parsed.parent_run_id) if parsed.parent_run_id else None,
        ),
        settings,
    )


def _tags(event: RunEvent, settings: LineageSettings) -> Sequence[str] | None:
    return settings.tags or airflow_tags(event)


def _result(event: RunEvent) -> RunResult | None:
    if event.type not in TERMINAL_TYPES:
        return None
    return RunResult("FAILURE" if event.type in FAILED_TYPES else "SUCCESS", event.type)
