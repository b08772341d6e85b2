"""The converter's two entry points: a single run event, and all events of a job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from msgspec import structs

from airflow_provider_spark_datahub.conversion.aspects import proposals_of
from airflow_provider_spark_datahub.conversion.events import DatasetId, EventError, RunEvent, parse_run_event
from airflow_provider_spark_datahub.conversion.limits import sentences, summed
from airflow_provider_spark_datahub.conversion.proposals import Proposal
from airflow_provider_spark_datahub.conversion.runs.coalesce import Ending, JobLineage, RunResult, SingleEvents
from airflow_provider_spark_datahub.conversion.runs.fold import Application, Fold, merged
from airflow_provider_spark_datahub.conversion.runs.hive_sessions import (
    HiveSession,
    HiveSessions,
    is_of_hive,
    session_proposals,
)
from airflow_provider_spark_datahub.conversion.runs.incremental import is_told, settled
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.conversion.spark_log.log import SparkLog
from airflow_provider_spark_datahub.conversion.spark_log.recovery import LostLineage
from airflow_provider_spark_datahub.conversion.spark_log.streaming import (
    LogReading,
    application_ids,
    coalesce_with_queries,
)
from airflow_provider_spark_datahub.conversion.spark_log.unreported import (
    LostExecution,
    sentences as sentences_of_untold,
    told_executions,
)

MAX_LISTED_PROBLEMS = 20
"""How many unusable events are told one by one; the others are counted."""
MERGED_RUNS, MERGED_AFTER = 10_000, 1_000
"""With so many runs, those that tell the same are merged, but for those of the last events."""
KEPT_EXECUTIONS = 1000
"""How many of an application's latest SQL executions are kept when the others are forgotten."""


@dataclass
class Conversion:
    """What a stream of events came to.

    :param events: events that went into the jobs.
    :param rejected: events that could not be converted.
    :param problems: why, for the first of them.
    :param sessions: Hive sessions that the jobs' runs belong to.
    :param lost: SQL executions that Spark's event log tells of, and OpenLineage does not.
    :param unusable: datasets that no URN can be made of, and why.
    :param cut_counts: how much was too long for the limits, by what it is.
    :param column_gaps: why statements tell nothing of columns: the first of the sentences.
    :param untold: queries that wrote tables which no event names: the first of them.
    :param untold_tables: tables that only Spark's event log names: the first of them.
    """

    jobs: list[JobLineage] = field(default_factory=list)
    events: int = 0
    rejected: int = 0
    problems: list[str] = field(default_factory=list)
    sessions: list[HiveSession] = field(default_factory=list)
    lost: list[LostExecution] = field(default_factory=list)
    unusable: dict[DatasetId, str] = field(default_factory=dict)
    cut_counts: dict[str, int] = field(default_factory=dict)
    column_gaps: dict[str, None] = field(default_factory=dict)
    untold: dict[str, None] = field(default_factory=dict)
    untold_tables: list[str] = field(default_factory=list)

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
        return sentences([self.cut_counts])

    @property
    def table_gaps(self) -> list[str]:
        """What the events do not tell of tables, in sentences."""
        return sentences_of_untold(list(self.untold), self.untold_tables)

    def note(self, job: JobLineage) -> None:
        """Take what of the job could not be converted."""
        self.unusable.update(job.unusable)
        self.cut_counts = summed((self.cut_counts, job.cut))
        for told, listed in ((job.column_gaps, self.column_gaps), (job.untold, self.untold)):
            for one in told:
                if len(listed) < MAX_LISTED_PROBLEMS:
                    listed[one] = None

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
        self._forgotten = False
        self._merge_at = MERGED_RUNS

    @property
    def application_ids(self) -> set[str]:
        """Spark's ids of the applications, as far as their events told yet."""
        return application_ids(self._fold.applications())

    @property
    def all_ended(self) -> bool:
        """Whether every application has told its end by now."""
        return all(one.own_run is not None and one.own_run.ended for one in self._fold.applications())

    def add_log_event(self, event: Mapping[str, Any]) -> None:
        """Take one event of Spark's own event log, decoded."""
        self._spark_log.add(event)

    def add(self, event: object) -> EventError | None:
        """Take one more event, as JSON text or decoded. One that cannot be converted costs only itself.

        :returns: why it cannot be converted.
        """
        try:
            parsed = _parsed(event, self._settings)
            if self._settings.coalesce_jobs:
                self._fold.add(parsed)
            else:
                self._jobs.append(self._single.job(parsed))
        except EventError as error:
            self._conversion.reject(error)
            return error
        self._conversion.events += 1
        self._sessions.observe(parsed)
        return None

    @property
    def run_count(self) -> int:
        """How many runs of the coalesced applications are kept."""
        return self._fold.run_count

    def so_far(self, *, with_log: bool = False) -> Conversion:
        """What the events told so far, for while the job runs: only what its end cannot take back.

        With ``coalesce_jobs`` off, what the events told since the last time.

        :param with_log: Spark's event log is read as well, after the events.
        """
        if not self._settings.coalesce_jobs:
            # Its own events may say COMPLETE where spark-submit is about to fail (Deviation 13).
            jobs = [structs.replace(job, result=None) if job.is_application else job for job in self._jobs]
            self._jobs.clear()
            return _with_jobs(self._conversion, jobs)
        until_ms = self._known_until_ms(with_log=with_log)
        applications = [told for one in self._fold.applications() if (told := settled(one, until_ms))]
        # What is written at a point in time cannot be taken back: the end tells which query really did it.
        jobs = [structs.replace(job, operations=()) for job in self._coalesced(applications, Ending(final=False))]
        return _with_jobs(self._conversion, jobs)

    def keep_few(self) -> None:
        """Of an application with very many queries keep one of those that tell the same, but for the last ones.

        To be called after each event; what comes of them stays the same. Not for whoever adds Spark's event log as
        well, which tells of each query. Where operations are captured, each query stands for itself.
        """
        if self._fold.run_count < self._merge_at or self._settings.capture_operations:
            return
        self._fold.reduce(lambda runs, count: merged(runs, count - MERGED_AFTER, MERGED_RUNS // 10))
        # Where they are not alike, it is not tried again and again.
        self._merge_at = max(MERGED_RUNS, 2 * self._fold.run_count)

    def forget(self, *, with_log: bool = False) -> None:
        """Let go of the queries that :meth:`so_far` told: what it and :meth:`finish` tell of an application is then
        what it did since, and takes no edges away.

        :param with_log: as in :meth:`so_far`.
        """
        until_ms = self._known_until_ms(with_log=with_log)
        over = [run for one in self._fold.applications() for run in one.runs if is_told(run, until_ms)]
        self._fold.forget(lambda run: is_told(run, until_ms))
        self._spark_log.forget_executions(KEPT_EXECUTIONS, lambda logged: told_executions(logged, over))
        self._forgotten = True

    def restart_log(self) -> None:
        """Forget Spark's event log, which is to be read from its beginning."""
        self._spark_log = SparkLog()

    def finish(self, ending: Ending, *, log_complete: bool = True, known_until_ms: int | None = None) -> Conversion:
        """Everything that the events came to: one DataJob per application, or (``coalesce_jobs`` off) one per event.

        :param ending: how the job ended, where more is known than its events tell.
        :param log_complete: Spark's event log was read to its end.
        :param known_until_ms: up to when there are no more events of these runs, where that is later than the last one.
        """
        if self._conversion.rejected or self._forgotten:
            ending = replace(ending, events_complete=False)
        sessions = self._sessions.sessions(known_until_ms)
        jobs = list(self._finished(self._fold.applications(), ending, sessions, log_complete=log_complete))
        return replace(_with_jobs(self._conversion, jobs), sessions=sessions)

    def proposals(self, ending: Ending, *, log_complete: bool = True) -> Iterator[Proposal]:
        """The proposals of :meth:`finish`, where there may be more than memory holds: one job after the other.

        What the converter has kept of a job is gone when its proposals have been taken. :attr:`conversion` is whole
        after the last of them, but for the jobs themselves. The parameters are those of :meth:`finish`.
        """
        if self._conversion.rejected or self._forgotten:
            ending = replace(ending, events_complete=False)
        sessions = self._conversion.sessions = self._sessions.sessions()
        for session in sessions:
            yield from session_proposals(session)
        for job in self._finished(self._fold.take_applications(), ending, sessions, log_complete=log_complete):
            self._conversion.note(job)
            yield from proposals_of(job, self._settings)

    @property
    def conversion(self) -> Conversion:
        """What the events came to so far, without the jobs."""
        return self._conversion

    def _finished(
        self, applications: list[Application], ending: Ending, sessions: Sequence[HiveSession], *, log_complete: bool
    ) -> Iterator[JobLineage]:
        jobs: Iterable[JobLineage] = self._jobs
        if self._settings.coalesce_jobs:
            symlinks = self._fold.symlinks.by_dataset
            lost = LostLineage(applications, self._spark_log.applications, symlinks, self._settings)
            self._conversion.lost = lost.executions
            self._conversion.untold_tables = lost.untold_tables[:MAX_LISTED_PROBLEMS]
            if lost.executions or lost.untold_tables:
                ending = replace(ending, events_complete=False)
            jobs = map(lost.add_edges, self._coalesced(applications, ending, log_complete=log_complete))
        else:
            _let_exit_decide(self._jobs, ending)
        del applications
        for job in jobs:
            _put_below_session(job, sessions, self._sessions)
            yield job

    def _coalesced(
        self, applications: Sequence[Application], ending: Ending, *, log_complete: bool = True
    ) -> Iterator[JobLineage]:
        prefix = self._settings.streaming_app_id_prefix
        log = LogReading(self._spark_log.applications, log_complete, app_id_prefix=prefix)
        return coalesce_with_queries(applications, log, self._fold.symlinks.by_dataset, self._settings, ending)

    def _known_until_ms(self, *, with_log: bool) -> int | None:
        return (self._spark_log.latest_ms or 0) if with_log else None


def _with_jobs(conversion: Conversion, jobs: list[JobLineage]) -> Conversion:
    told = replace(conversion, jobs=jobs, unusable={}, cut_counts={}, column_gaps={}, untold={})
    for job in jobs:
        told.note(job)
    return told


def _put_below_session(job: JobLineage, found: Sequence[HiveSession], sessions: HiveSessions) -> None:
    """The run of a Hive query becomes a child of its session's run."""
    urn = sessions.parent_of(job.run_id) if found else None
    if urn is not None:
        job.parent_instance = urn
        job.run_properties = dict(next((one.properties for one in found if one.urn == urn), {}))


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
    job, sessions = _alone(event, settings)
    proposals = proposals_of(job, settings)
    if sessions:
        return [*(proposal for session in sessions for proposal in session_proposals(session)), *proposals]
    return proposals


def convert_by_itself(event: object, settings: LineageSettings) -> Conversion:
    """:func:`convert_run_event`, with what of the event could not be told."""
    job, sessions = _alone(event, settings)
    conversion = Conversion([job], events=1, sessions=sessions)
    conversion.note(job)
    return conversion


def _alone(event: object, settings: LineageSettings) -> tuple[JobLineage, list[HiveSession]]:
    """The job that an event tells of, and the session that it belongs to, if any."""
    parsed = _parsed(event, settings)
    job = _single_events(settings).job(parsed)
    if not is_of_hive(parsed):
        return job, []
    known = HiveSessions(settings.hive_session_timeout * 1000, settings.platform_instance)
    known.observe(parsed)
    sessions = known.sessions()
    _put_below_session(job, sessions, known)
    return job, sessions


def _parsed(event: object, settings: LineageSettings) -> RunEvent:
    longest = settings.max_event_bytes
    if longest is not None and isinstance(event, bytes | bytearray) and len(event) > longest:
        raise EventError(f"the event is {len(event)} bytes long, more than max_event_bytes, {longest}, lets through")
    return parse_run_event(event)


_single_events = lru_cache(maxsize=4)(SingleEvents)
