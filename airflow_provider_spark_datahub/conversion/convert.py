"""The converter's two entry points: a single run event, and all events of a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from airflow_provider_spark_datahub.conversion.aspects import proposals_of
from airflow_provider_spark_datahub.conversion.coalesce import Ending, JobLineage, RunResult
from airflow_provider_spark_datahub.conversion.events import DatasetId, EventError, RunEvent, parse_run_event
from airflow_provider_spark_datahub.conversion.fold import Fold
from airflow_provider_spark_datahub.conversion.hive_sessions import (
    HiveSession,
    HiveSessions,
    is_of_hive,
    session_proposals,
)
from airflow_provider_spark_datahub.conversion.limits import sentences
from airflow_provider_spark_datahub.conversion.lost_executions import LostExecution, lost_executions
from airflow_provider_spark_datahub.conversion.proposals import Proposal
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.conversion.single_event import SingleEvents
from airflow_provider_spark_datahub.conversion.spark_log import SparkLog
from airflow_provider_spark_datahub.conversion.streaming import LogReading, application_ids, coalesce_with_queries

MAX_LISTED_PROBLEMS = 20
"""How many unusable events are told one by one; the others are counted."""


@dataclass
class Conversion:
    """What a stream of events came to.

    :param events: events that went into the jobs.
    :param rejected: events that could not be converted.
    :param problems: why, for the first of them.
    :param sessions: Hive sessions that the jobs' runs belong to.
    :param lost: SQL executions that Spark's event log tells of, and OpenLineage does not.
    """

    jobs: list[JobLineage] = field(default_factory=list)
    events: int = 0
    rejected: int = 0
    problems: list[str] = field(default_factory=list)
    sessions: list[HiveSession] = field(default_factory=list)
    lost: list[LostExecution] = field(default_factory=list)

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
    def cut(self) -> list[str]:
        """What was too long for the limits, in sentences."""
        return sentences(job.cut for job in self.jobs)

    @property
    def unusable(self) -> dict[DatasetId, str]:
        """Datasets that no URN can be made of, and why."""
        return {dataset: reason for job in self.jobs for dataset, reason in job.unusable.items()}

    def proposals(self, settings: LineageSettings) -> list[Proposal]:
        """All jobs as proposals; the sessions that their runs belong to come first."""
        return [
            *(proposal for session in self.sessions for proposal in session_proposals(session)),
            *(proposal for job in self.jobs for proposal in proposals_of(job, settings)),
        ]


class Converter:
    """Takes the events of a job one by one; what it keeps grows with their distinct content, not their number."""

    def __init__(self, settings: LineageSettings) -> None:
        self._settings = settings
        self._fold = Fold(settings)
        self._single = SingleEvents(settings)
        self._jobs: list[JobLineage] = []
        self._sessions = HiveSessions(settings.hive_session_timeout * 1000, settings.platform_instance)
        self._conversion = Conversion()
        self._spark_log = SparkLog()

    @property
    def application_ids(self) -> set[str]:
        """Spark's ids of the applications, as far as their events told yet."""
        return application_ids(self._fold.applications())

    def add_log_event(self, event: Mapping[str, Any]) -> None:
        """Take one event of Spark's own event log, decoded."""
        self._spark_log.add(event)

    def add(self, event: object) -> None:
        """Take one more event, as JSON text or decoded. One that cannot be converted costs only itself."""
        try:
            parsed = _parsed(event, self._settings)
            if self._settings.coalesce_jobs:
                self._fold.add(parsed)
            else:
                self._jobs.append(self._single.job(parsed))
        except EventError as error:
            self._conversion.reject(error)
        else:
            self._conversion.events += 1
            self._sessions.observe(parsed)

    def finish(self, ending: Ending, *, log_complete: bool = True) -> Conversion:
        """Everything that the events came to: one DataJob per application, or (``coalesce_jobs`` off) one per event.

        :param ending: how the job ended, where more is known than its events tell.
        :param log_complete: Spark's event log was read to its end.
        """
        conversion = self._conversion
        if conversion.rejected:
            ending = replace(ending, events_complete=False)
        if self._settings.coalesce_jobs:
            applications, logged = self._fold.applications(), self._spark_log.applications
            conversion.lost = [lost for one in logged for lost in lost_executions(one, applications)]
            log = LogReading(logged, log_complete, app_id_prefix=self._settings.streaming_app_id_prefix)
            symlinks = self._fold.symlinks.by_dataset
            conversion.jobs = coalesce_with_queries(applications, log, symlinks, self._settings, ending)
        else:
            conversion.jobs = self._jobs
            _let_exit_decide(conversion.jobs, ending)
        conversion.sessions = _put_below_sessions(conversion.jobs, self._sessions)
        return conversion


def _put_below_sessions(jobs: Iterable[JobLineage], sessions: HiveSessions) -> list[HiveSession]:
    """Runs of Hive queries become children of their session's run."""
    found = sessions.sessions()
    for job in jobs if found else ():
        session = sessions.parent_of(job.run_id)
        if session is not None:
            job.parent_instance = session
            shown = next((one.properties for one in found if one.urn == session), {})
            job.run_properties = dict(shown)
    return found


def _let_exit_decide(jobs: list[JobLineage], ending: Ending) -> None:
    """The end of the last application is what spark-submit said (Deviation 13)."""
    ends = [job for job in jobs if job.is_application and job.result is not None]
    if ends and ending.succeeded is not None:
        ends[-1].result = RunResult("SUCCESS", "COMPLETE") if ending.succeeded else RunResult("FAILURE", "FAIL")


def convert_events(events: Iterable[object], settings: LineageSettings, ending: Ending | None = None) -> Conversion:
    """All events of a job (or of several applications), one DataJob per application.

    :param events: JSON texts or decoded, in the order in which they were written; read once.
    """
    converter = Converter(settings)
    for event in events:
        converter.add(event)
    return converter.finish(ending or Ending())


def convert_run_event(event: object, settings: LineageSettings) -> list[Proposal]:
    """One event by itself, not coalesced: the job is the query that the event tells of.

    This function is public API: its signature and, within a minor version, what it returns stay as they are.

    :param event: an OpenLineage run event of any producer: its JSON text in UTF-8 (faster), or what that decodes to.
    :raises EventError: where it is no run event, or nothing tells which platform ran the job.
    """
    parsed = _parsed(event, settings)
    job = _single_events(settings).job(parsed)
    if not is_of_hive(parsed):
        return proposals_of(job, settings)
    sessions = HiveSessions(settings.hive_session_timeout * 1000, settings.platform_instance)
    sessions.observe(parsed)
    return Conversion([job], sessions=_put_below_sessions([job], sessions)).proposals(settings)


def _parsed(event: object, settings: LineageSettings) -> RunEvent:
    longest = settings.max_event_bytes
    if longest is not None and isinstance(event, bytes | bytearray) and len(event) > longest:
        raise EventError(f"the event is {len(event)} bytes long, more than max_event_bytes, {longest}, lets through")
    return parse_run_event(event)


_single_events = lru_cache(maxsize=4)(SingleEvents)
