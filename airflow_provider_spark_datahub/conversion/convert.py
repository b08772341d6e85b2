"""Entry points of the conversion: a single run event, a stream of events, and snapshots of a
running job.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from airflow_provider_spark_datahub.conversion import runs, spark_log
from airflow_provider_spark_datahub.conversion.aspects import proposals_of
from airflow_provider_spark_datahub.conversion.diagnostics import UNCOUNTED, Diagnostics
from airflow_provider_spark_datahub.conversion.events import (
    DatasetId,
    EventError,
    EventReader,
    RunEvent,
)
from airflow_provider_spark_datahub.conversion.facets.dataset import NOT_COUNTED
from airflow_provider_spark_datahub.conversion.proposals import Proposal
from airflow_provider_spark_datahub.conversion.runs.coalesce import (
    Ending,
    JobLineage,
    RunResult,
    coalesce,
    job_of_event,
)
from airflow_provider_spark_datahub.conversion.runs.effects import with_effects
from airflow_provider_spark_datahub.conversion.runs.fold import Application, Fold
from airflow_provider_spark_datahub.conversion.runs.lineage import Operation
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.foundation.memory import grouped_by

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.conversion.runs import HiveSession, HiveSessions
    from airflow_provider_spark_datahub.conversion.spark_log import LoggedApplication, SparkLog

_HIVE_SESSION_MS = 3_600_000
"""Time without events after which a Hive session is over."""
KEPT_EXECUTIONS = 1000
"""How many of an application's latest SQL executions are kept after
:meth:`Converter.discard_reported`.
"""


class WrittenDataset(msgspec.Struct, frozen=True):
    """Dataset that a job wrote, with the known facts about the write.

    :param name: its name in DataHub, without the platform instance.
    :param run_urn: the Spark run's DataProcessInstance.
    :param rows: number of written rows, if the producer counts them; :attr:`size` in bytes.
    :param schema_hash: hash of the names and types of its fields. It needs the schema to be
        written.
    """

    urn: str
    platform: str
    name: str
    env: str
    run_urn: str
    rows: int | None = None
    size: int | None = None
    schema_hash: str | None = None
    partitions: tuple[str, ...] = ()


@dataclass
class Conversion:
    """Result of converting a stream of events. :param events: number of events that were converted."""

    jobs: list[JobLineage] = field(default_factory=list)
    events: int = 0
    sessions: list[HiveSession] = field(default_factory=list)
    diagnostics: Diagnostics = field(default_factory=Diagnostics)

    @property
    def inputs(self) -> list[str]:
        """URNs of all datasets that were read, sorted."""
        return sorted({urn for job in self.jobs for urn in job.lineage.inputs})

    @property
    def outputs(self) -> list[str]:
        """URNs of all datasets that were written, sorted."""
        return sorted({urn for job in self.jobs for urn in job.lineage.outputs})

    @property
    def written(self) -> list[WrittenDataset]:
        """All datasets that were written, sorted by URN. If several jobs wrote one, it has the
        facts of the last.
        """
        found: dict[str, WrittenDataset] = {}
        for job in self.jobs:
            operations = grouped_by(job.operations, lambda operation: operation.dataset)
            found |= {
                urn: _written(job, urn, operations.get(urn, ())) for urn in job.lineage.outputs
            }
        return [found[urn] for urn in sorted(found)]

    def proposals(self, settings: LineageSettings) -> list[Proposal]:
        """Return the proposals of all jobs, after those of the Hive sessions."""
        proposals = [proposal for session in self.sessions for proposal in session.proposals()]
        for job in self.jobs:
            proposals += proposals_of(job, settings)
        return proposals


def _written(job: JobLineage, urn: str, operations: Sequence[Operation]) -> WrittenDataset:
    dataset = job.lineage.outputs[urn]
    total = Operation.joined(operations) if operations else None
    amount = total.statistics if total is not None else NOT_COUNTED
    fields = [
        (field["fieldPath"], field["nativeDataType"])
        for field in (dataset.schema or {}).get("fields", ())
    ]
    return WrittenDataset(
        urn=urn,
        platform=dataset.name.platform,
        name=dataset.name.name,
        env=dataset.name.env,
        run_urn=job.run_urn,
        rows=amount.rows,
        size=amount.size,
        schema_hash=hashlib.sha256(msgspec.json.encode(fields)).hexdigest()[:16]
        if fields
        else None,
        partitions=total.partitions if total is not None else (),
    )


_Merged = tuple[list[Application], Mapping[DatasetId, DatasetId]]
"""Applications with the queries of their logs, and the tables behind paths."""


class Converter:
    """Converter of a stream of events. Its memory grows with their runs: see
    :meth:`discard_reported`.

    :ivar conversion: numbers and diagnostics up to now, without jobs. Complete after the last of
        :meth:`proposals`.
    """

    def __init__(self, settings: LineageSettings) -> None:
        self._settings = settings
        self._reader = EventReader()
        self._fold = Fold(settings)
        self._jobs: list[JobLineage] = []
        self._sessions: HiveSessions | None = None
        self._latest_ms: int | None = None
        self.conversion = Conversion()
        self._spark_log: SparkLog | None = None
        self._discarded = False

    @property
    def application_ids(self) -> set[str]:
        """Spark's ids of the applications, as far as events have named them."""
        runs = (run for application in self._fold.applications() for run in application.runs)
        return {app_id for run in runs if (app_id := run.flow_property("appId"))}

    @property
    def all_ended(self) -> bool:
        """Return whether every application has sent its end."""
        return all(
            application.own_run is not None and application.own_run.ended
            for application in self._fold.applications()
        )

    @property
    def run_count(self) -> int:
        """Number of runs that are kept of the coalesced applications."""
        return self._fold.run_count

    def add(self, event: object) -> EventError | None:
        """Add an event, as JSON text or decoded. An event that cannot be converted is skipped and
        counted.

        :returns: the reason if the event cannot be converted.
        """
        try:
            parsed = self._reader.read(event)
            if self._settings.coalesce_jobs:
                self._fold.add(parsed)
            else:
                self._jobs.append(job_of_event(parsed, self._settings))
        except EventError as error:
            self.conversion.diagnostics.reject(error)
            return error
        self.conversion.events += 1
        if parsed.time_ms is not None and (
            self._latest_ms is None or parsed.time_ms > self._latest_ms
        ):
            self._latest_ms = parsed.time_ms
        if parsed.is_of_hive:
            self._sessions = self._sessions or _hive_sessions(self._settings)
            self._sessions.observe(parsed)
        return None

    def add_log_event(self, event: Mapping[str, Any]) -> None:
        """Add a decoded event of Spark's own event log."""
        self._spark_log = self._spark_log or spark_log.SparkLog()
        self._spark_log.add(event)

    def restart_log(self) -> None:
        """Forget Spark's event log, to read it again from its beginning."""
        self._spark_log = None

    @property
    def _logs(self) -> Sequence[LoggedApplication]:
        """Applications of Spark's event log."""
        return self._spark_log.applications if self._spark_log is not None else ()

    def snapshot(self, *, with_log: bool = False) -> Conversion:
        """Return the lineage of a running job: only what its end cannot take back.

        With ``coalesce_jobs`` off, return the events since the last snapshot.

        :param with_log: Spark's event log is read as well, after the events.
        """
        if not self._settings.coalesce_jobs:
            # The application's events may say COMPLETE although spark-submit is about to fail
            # (Deviation 13).
            jobs = [
                structs.replace(job, run=structs.replace(job.run, result=None))
                if job.run.is_application
                else job
                for job in self._jobs
            ]
            self._jobs.clear()
            return self._with_jobs(jobs)
        log_ms = self._log_ms(with_log=with_log)
        certain = (application.certain(log_ms) for application in self._fold.applications())
        merged = self._merged((application for application in certain if application), final=False)
        jobs = list(self._coalesced(merged, Ending(final=False)))
        for job in jobs:
            # An operation has a point in time and cannot be taken back: only the end knows which
            # query it was.
            job.operations = ()
        return self._with_jobs(jobs)

    def discard_reported(self, *, with_log: bool = False) -> None:
        """Discard the queries that the last :meth:`snapshot` reported in full.

        Later results have only what the job did since, and never remove edges.

        :param with_log: as in :meth:`snapshot`.
        """
        log_ms = self._log_ms(with_log=with_log)
        reported = [
            run
            for application in self._fold.applications()
            for run in application.runs
            if run.is_final(log_ms)
        ]
        self._fold.discard(reported)
        if self._spark_log is not None:
            self._spark_log.forget_executions(KEPT_EXECUTIONS, reported)
        self._discarded = True

    def finish(
        self, ending: Ending, *, log_complete: bool = True, known_until_ms: int | None = None
    ) -> Conversion:
        """Return the result: one DataJob per application, or one per event with ``coalesce_jobs``
        off.

        :param ending: how the job ended, if more is known than its events say.
        :param log_complete: Spark's event log was read to its end.
        :param known_until_ms: up to when there are no more events of these runs, if that is later
            than the last event.
        """
        self._add_logged_applications()
        sessions = self._hive_sessions(known_until_ms)
        jobs = list(
            self._finished(self._fold.applications(), ending, sessions, log_complete=log_complete)
        )
        return replace(self._with_jobs(jobs), sessions=sessions)

    def proposals(self, ending: Ending, *, log_complete: bool = True) -> Iterator[Proposal]:
        """Yield the proposals of :meth:`finish` job by job, and free each job when they have been
        taken.
        """
        self._add_logged_applications()
        sessions = self.conversion.sessions = self._hive_sessions()
        for session in sessions:
            yield from session.proposals()
        for job in self._finished(
            self._fold.take_applications(), ending, sessions, log_complete=log_complete
        ):
            self.conversion.diagnostics.merge(job.diagnostics)
            yield from proposals_of(job, self._settings)

    def _hive_sessions(self, known_until_ms: int | None = None) -> list[HiveSession]:
        if self._sessions is None:
            return []
        known = [ms for ms in (self._latest_ms, known_until_ms) if ms is not None]
        return self._sessions.sessions(max(known, default=None))

    def _add_logged_applications(self) -> None:
        """Add the events of applications that are only in Spark's event log."""
        logs = self._logs
        if not (logs and self._settings.coalesce_jobs):
            return
        reported = self._fold.applications()
        for logged in [logged for logged in logs if logged.match(reported, logs) is None]:
            for event in spark_log.application_events(logged):
                self._fold.add(RunEvent.parse(event))
            self.conversion.events += len(logged.executions)

    def _finished(
        self,
        applications: list[Application],
        ending: Ending,
        sessions: Sequence[HiveSession],
        *,
        log_complete: bool,
    ) -> Iterator[JobLineage]:
        jobs = self._ended_jobs(applications, ending, log_complete=log_complete)
        # Each application is freed when its job has been taken.
        del applications
        for job in jobs:
            if self._sessions is not None:
                _attach_to_session(job, sessions, self._sessions)
            if self._discarded:
                _leave_out_counts(job)
            yield job

    def _ended_jobs(
        self, applications: list[Application], ending: Ending, *, log_complete: bool
    ) -> Iterable[JobLineage]:
        if not self._settings.coalesce_jobs:
            # The last application has the result of spark-submit (Deviation 13).
            ends = [
                job for job in self._jobs if job.run.is_application and job.run.result is not None
            ]
            if ends and ending.succeeded is not None:
                ends[-1].run.result = RunResult.of(ending.succeeded)
            return self._jobs
        merged, diagnostics = self._merged(applications), self.conversion.diagnostics
        missing = (diagnostics.lost_executions, diagnostics.unnamed_sources)
        if diagnostics.rejected_events or self._discarded or any(missing):
            ending = replace(ending, events_complete=False)
        return self._coalesced(merged, ending, log_complete=log_complete)

    def _merged(self, applications: Iterable[Application], *, final: bool = True) -> _Merged:
        """Return the applications with the queries that only Spark's event log shows, without
        writes that failed.
        """
        applications, symlinks = list(applications), self._fold.symlinks.by_dataset
        if not self._logs:
            return [
                with_effects(application).without_columns_of_changes()
                for application in applications
            ], symlinks
        queries = spark_log.queries_of_logs(
            applications, self._logs, symlinks, self._settings, final=final
        )
        self.conversion.diagnostics.lost_executions = queries.lost
        self.conversion.diagnostics.unnamed_sources = tuple(queries.unnamed)
        return queries.applications, queries.symlinks

    def _coalesced(
        self, merged: _Merged, ending: Ending, *, log_complete: bool = True
    ) -> Iterator[JobLineage]:
        applications, symlinks = merged
        if not self._logs:
            return coalesce(applications, symlinks, self._settings, ending)
        return spark_log.coalesce_with_queries(
            applications, self._logs, symlinks, self._settings, ending, log_complete=log_complete
        )

    def _log_ms(self, *, with_log: bool) -> int | None:
        latest_ms = self._spark_log.latest_ms if self._spark_log is not None else None
        return (latest_ms or 0) if with_log else None

    def _with_jobs(self, jobs: list[JobLineage]) -> Conversion:
        diagnostics = Diagnostics()
        diagnostics.merge(self.conversion.diagnostics)
        for job in jobs:
            diagnostics.merge(job.diagnostics)
        return replace(self.conversion, jobs=jobs, diagnostics=diagnostics)


def _hive_sessions(settings: LineageSettings) -> HiveSessions:
    return runs.HiveSessions(_HIVE_SESSION_MS, settings.platform_instance)


def _leave_out_counts(job: JobLineage) -> None:
    """Remove the sums of rows and bytes, which would be wrong without the discarded queries."""
    job.operations = [
        structs.replace(operation, statistics=NOT_COUNTED) for operation in job.operations
    ]
    job.diagnostics.gaps = (UNCOUNTED, *job.diagnostics.gaps)
    job.run.dataset_properties = job.uses.properties(is_whole=False) if job.uses is not None else {}


def _attach_to_session(
    job: JobLineage, found: Sequence[HiveSession], sessions: HiveSessions
) -> None:
    """Make the run of a Hive query a child of its session's run."""
    urn = sessions.parent_of(job.run.id) if found else None
    if urn is not None:
        job.run.parent_urn = urn
        job.run.session_properties = dict(
            next((session.properties for session in found if session.urn == urn), {})
        )


def convert_events(
    events: Iterable[object], settings: LineageSettings, ending: Ending | None = None
) -> Conversion:
    """Convert all events of a job, or of several applications, to one DataJob per application.

    :param events: JSON texts or decoded events, in the order in which they were written; read once.
    """
    converter = Converter(settings)
    for event in events:
        converter.add(event)
    return converter.finish(ending or Ending())


def convert_run_event(event: object, settings: LineageSettings) -> list[Proposal]:
    """Convert one event by itself, not coalesced: its job is the query. This function is public
    API.

    :param event: an OpenLineage run event of any producer: its JSON text (faster), or decoded.
    :raises EventError: if it is not a run event, or the platform that ran the job is unknown.
    """
    return convert_single(event, settings).proposals(settings)


def convert_single(event: object, settings: LineageSettings) -> Conversion:
    """Convert one event like :func:`convert_run_event`, and return its diagnostics as well."""
    parsed = RunEvent.parse(event)
    job = job_of_event(parsed, settings)
    sessions: list[HiveSession] = []
    if parsed.is_of_hive:
        observed = _hive_sessions(settings)
        observed.observe(parsed)
        sessions = observed.sessions()
        _attach_to_session(job, sessions, observed)
    return Conversion([job], 1, sessions, job.diagnostics)
