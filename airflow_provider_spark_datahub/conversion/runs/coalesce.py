"""Jobs with their lineage: one for all runs of an application, or one for each event
(``coalesce_jobs`` off).

See the conversion rules, section 7.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.datasets import DatasetNamer
from airflow_provider_spark_datahub.conversion.diagnostics import MAX_LISTED, Diagnostics, TextLimit
from airflow_provider_spark_datahub.conversion.events import (
    APPLICATION,
    FAILED_TYPES,
    QUERY_TYPES,
    RDD_JOB,
    TERMINAL_TYPES,
    DatasetId,
    RunEvent,
    iso_instant,
)
from airflow_provider_spark_datahub.conversion.facets.run import (
    NO_DETAILS,
    PropertyLayers,
    RunDetails,
)
from airflow_provider_spark_datahub.conversion.runs.effects import with_whole_folders
from airflow_provider_spark_datahub.conversion.runs.fold import Application, Fold, RunState
from airflow_provider_spark_datahub.conversion.runs.lineage import Lineage, Operation, operations_of
from airflow_provider_spark_datahub.conversion.runs.versions import DatasetUses
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.conversion.urns import (
    FlowIdentity,
    display_name,
    job_id_and_name,
)

_STREAMS = (
    "the job has streaming queries: their file sinks, and a job for each of them, are in Spark's event log, which "
    "was not read"
)
_ADAPTIVE = (
    "OpenLineage {version} leaves out each query with a shuffle that writes files if Delta's extension is set "
    "(its issue 4299): they are in Spark's event log, which was not read"
)
# The last version in which this was seen, by its first two numbers.
_LAST_WITHOUT_ADAPTIVE = (1, 53)
_FLOW_TIMES = ("startedAt", "finishedAt")
"""Properties of a coalesced flow: begin and end of its application."""
JOB_TIMES = ("startTime", "endTime")
"""The same for a coalesced job."""


@dataclass(frozen=True, slots=True)
class Ending:
    """End of a job, as reported by other sources than its events.

    :param succeeded: whether ``spark-submit`` returned 0, which decides the run's result (Deviation
        13); ``None`` if it is unknown.
    :param events_complete: no event was torn, quarantined or left unread.
    :param final: the job is over; else this is a snapshot.
    :param one_submission: all events belong to one ``spark-submit``, unlike those of an archive.
    """

    succeeded: bool | None = None
    events_complete: bool = True
    final: bool = True
    one_submission: bool = True


class RunResult(msgspec.Struct, frozen=True):
    """Result of a run. :param native: the OpenLineage event type that stands for it."""

    type: Literal["SUCCESS", "FAILURE"]
    native: str

    @classmethod
    def of(cls, succeeded: bool, failure: str = "FAIL") -> RunResult:
        """Return the result. :param failure: event type of a failed run."""
        return cls("SUCCESS", "COMPLETE") if succeeded else cls("FAILURE", failure)


class JobDefinition(msgspec.Struct, kw_only=True, gc=False):
    """Flow and job without their runs.

    :param tags: of the flow.
    :param upstream_jobs: URNs of DataJobs that come before this one.
    """

    flow: FlowIdentity
    id: str
    name: str
    flow_properties: Mapping[str, str]
    properties: Mapping[str, str]
    description: str | None = None
    owners: tuple[str, ...] = ()
    tags: Sequence[str] | None = None
    job_tags: tuple[str, ...] = ()
    created_ms: int | None = None
    upstream_jobs: tuple[str, ...] = ()


class JobRun(msgspec.Struct, kw_only=True, gc=False):
    """Run of a job. Times are in ms since the epoch.

    :param result: ``None`` if no end of the run is known.
    :param is_application: it is the run of an application, not of a query.
    :param execution_counts: properties with the number of SQL executions in Spark's event log, in
        all and with lineage.
    :param dataset_properties: properties with the versions, rows and bytes that it read and wrote.
    """

    id: str
    start_ms: int | None
    end_ms: int | None
    result: RunResult | None
    started: bool
    details: RunDetails = NO_DETAILS
    parent_urn: str | None = None
    is_application: bool = True
    session_properties: dict[str, str] = {}
    execution_counts: dict[str, str] = {}
    dataset_properties: dict[str, str] = {}


class JobLineage(msgspec.Struct, gc=False):
    """Job with its run and its lineage.

    :param patch_edges: edges are added to those in DataHub, as they may be incomplete (Deviation
        10); else they replace those in DataHub.
    :param is_shared: other runs of a mapped task write edges of the same job: edges are only added,
        too.
    :param may_split: outputs with other inputs may have DataJobs of their own. The job of one event
        does so only if the event says what reaches which.
    :param uses: versions, amounts and schemas, if they are known.
    """

    definition: JobDefinition
    run: JobRun
    lineage: Lineage
    diagnostics: Diagnostics
    patch_edges: bool
    is_shared: bool = False
    may_split: bool = True
    operations: Sequence[Operation] = ()
    uses: DatasetUses | None = None

    @property
    def only_adds(self) -> bool:
        """Whether its edges are added to those in DataHub; else they replace them."""
        return self.patch_edges or self.is_shared

    @property
    def job_urn(self) -> str:
        """The DataJob's URN."""
        return urns.datajob_urn(self.definition.flow.urn, self.definition.id)

    @property
    def run_urn(self) -> str:
        """The run's DataProcessInstance."""
        return urns.dpi_urn(self.run.id)


class CoalescedJob:
    """Job made of the runs of one application. :ivar patch_edges: as in :class:`JobLineage`."""

    def __init__(self, application: Application, settings: LineageSettings, ending: Ending) -> None:
        self._application, self._settings, self._ending = application, settings, ending
        self._flow, self._id, self._name = _identity(application.runs, settings)
        self._result = _result(application, ending)
        self._ended_well = self._result is not None and self._result.type == "SUCCESS"
        self._unreported_queries = application.unreported_queries
        self.job_urn = urns.datajob_urn(self._flow.urn, self._id)
        # Other edges in DataHub are outdated if the events name all that the job read and wrote.
        own = application.own_run
        seen = own is not None and own.ended and (own.started or own.job_type != APPLICATION)
        # A write that was refused now may have been done by an earlier run: its edges are still
        # true.
        is_complete = (
            self._ended_well and ending.events_complete and seen and not self._unreported_queries
        )
        is_complete = is_complete and not application.doubts
        is_complete = is_complete and not any(run.refused for run in application.runs)
        self.patch_edges = settings.use_patch or not is_complete

    def lineage(self, namer: DatasetNamer) -> JobLineage:
        """Return the job with its lineage."""
        application, settings, own = self._application, self._settings, self._application.own_run
        runs, details = application.runs, application.details
        start_ms = min((run.start_ms for run in runs if run.start_ms is not None), default=None)
        end_ms = max((run.end_ms for run in runs if run.end_ms is not None), default=None)
        diagnostics = Diagnostics(unreported_queries=self._unreported_queries)
        lineage = Lineage.of(
            runs,
            namer,
            settings,
            diagnostics,
            in_flight=self._in_flight(),
            succeeded=self._ended_well,
            with_gaps=True,
            has_log=application.has_log,
        )
        if own is not None and not application.execution_counts:
            streams = [_STREAMS] if any(run.is_streaming for run in runs) else []
            diagnostics.gaps = (*_adaptive_gap(runs), *streams, *diagnostics.gaps)
        diagnostics.gaps = (*application.doubts, *diagnostics.gaps)
        limit = TextLimit(settings.max_string_length, diagnostics.truncations)
        times = start_ms, end_ms if self._ending.final else None
        definition = _definition(runs, (self._flow, self._id, self._name), settings, limit, times)
        run = JobRun(
            id=application.run_id,
            start_ms=start_ms,
            end_ms=end_ms,
            result=self._result,
            started=True,
            details=replace(details, properties=limit.properties(details.properties)),
            # The parent facet of the application's own run (Deviation 4).
            parent_urn=urns.dpi_urn(own.parent_run_id)
            if own is not None and own.parent_run_id
            else None,
            execution_counts=application.execution_counts,
        )
        operations = operations_of(runs, namer)
        uses = DatasetUses(runs, namer, lineage, operations)
        run.dataset_properties = uses.properties()
        diagnostics.gaps = (*diagnostics.gaps, *uses.empty_reads())[:MAX_LISTED]
        return JobLineage(
            definition,
            run,
            lineage,
            diagnostics,
            self.patch_edges,
            operations=operations,
            uses=uses,
        )

    def _in_flight(self) -> frozenset[str]:
        """Return the job types whose queries wrote nothing if they have no end: the driver died
        while they ran.

        A driver that is stopped (SIGTERM) still sends the application's end. An RDD job often sends
        no end at all.
        """
        own = self._application.own_run
        if (
            own is None
            or own.job_type != APPLICATION
            or self._result is None
            or self._result.type != "FAILURE"
        ):
            return frozenset()
        return QUERY_TYPES - {RDD_JOB} if own.ended else QUERY_TYPES | {""}


def _adaptive_gap(runs: Sequence[RunState]) -> Iterator[str]:
    """Yield a sentence if the listener may have left out queries of an application with tables of
    Delta.
    """
    version = next(
        (found for run in runs if (found := run.job_property("openlineageAdapterVersion"))), ""
    )
    numbers = tuple(int(number) for number in version.split(".")[:2] if number.isdigit())
    has_delta = (
        state.layer == "delta"
        for run in runs
        for state in (*run.inputs.values(), *run.outputs.values())
    )
    if (
        len(numbers) == len(_LAST_WITHOUT_ADAPTIVE)
        and numbers <= _LAST_WITHOUT_ADAPTIVE
        and any(has_delta)
    ):
        yield _ADAPTIVE.format(version=version)


def coalesce(
    applications: Sequence[Application],
    symlinks: Mapping[DatasetId, DatasetId],
    settings: LineageSettings,
    ending: Ending,
    query_jobs: Sequence[JobLineage] = (),
) -> Iterator[JobLineage]:
    """Yield one job per application, and then the jobs of streaming queries.

    :param applications: without the runs of those queries.
    :param symlinks: the tables behind paths.
    """
    batches = [with_whole_folders(application) for application in applications if application.runs]
    # If spark-submit failed, its last application failed. The results of the others are in their
    # events.
    others = replace(ending, succeeded=None) if ending.succeeded is False else ending
    pending = deque(
        CoalescedJob(batch, settings, ending if batch is batches[-1] else others)
        for batch in batches
    )
    # Several runs of one job in one conversion: sessions of one name, queries under one
    # ``pipeline_name``. The first replaces the edges in DataHub if the edges of all are complete,
    # and the others only add edges.
    patches: dict[str, bool] = {}
    shared: list[CoalescedJob | JobLineage] = (
        [*pending, *query_jobs] if ending.one_submission else []
    )
    for each in shared:
        patches[each.job_urn] = patches.get(each.job_urn, False) or each.patch_edges

    def with_patches(job: JobLineage) -> JobLineage:
        if (urn := job.job_urn) in patches:
            job.patch_edges, patches[urn] = patches[urn], True
        return job

    # Many applications together may exceed the memory: each is released when its job has been
    # taken.
    del applications, batches, shared
    namer = DatasetNamer(settings, symlinks)
    while pending:
        yield with_patches(pending.popleft().lineage(namer))
    yield from map(with_patches, query_jobs)


def time_properties(
    names: tuple[str, str], start_ms: int | None, end_ms: int | None
) -> dict[str, str]:
    """Return start and end, if they are known, as ISO instants under :data:`_FLOW_TIMES` or
    :data:`JOB_TIMES`.
    """
    times = zip(names, (start_ms, end_ms), strict=True)
    return {name: iso_instant(time_ms) for name, time_ms in times if time_ms is not None}


def _identity(runs: Sequence[RunState], settings: LineageSettings) -> tuple[FlowIdentity, str, str]:
    """Return the flow, and id and name of the job: the last event's, under the application's name
    if any has it.
    """
    last = max(runs, key=lambda run: run.last_index)
    # The first events of a session may still have the name of the session before.
    session_names = [run.session_name for run in runs if run.session_name]
    app_name = next(
        (run.app_name for run in runs if run.app_name), session_names[-1] if session_names else ""
    )
    flow_id = settings.flow_id(app_name) if app_name else last.flow.flow_id
    flow = FlowIdentity(last.flow.orchestrator, flow_id, last.flow.cluster)
    # Only Spark's queries are parts of an application: each run of another engine is a job of its
    # own.
    if flow.orchestrator == "spark" or any(run.job_type == APPLICATION for run in runs):
        return flow, flow_id, flow_id
    return flow, last.job_name, display_name(last.job_name)


def _definition(
    runs: Sequence[RunState],
    identity: tuple[FlowIdentity, str, str],
    settings: LineageSettings,
    limit: TextLimit,
    times: tuple[int | None, int | None] = (None, None),
) -> JobDefinition:
    """Return the definition of the job that has these runs.

    :param identity: the flow, and id and name of the job.
    :param times: of a whole application, in ms since the epoch.
    """
    flow, job_id, name = identity
    # The properties of all runs in the order of their events, each once.
    indexed = sorted(
        (indexed for run in runs for indexed in run.properties.items()),
        key=lambda indexed: indexed[1],
    )
    merged = PropertyLayers.merged(list(dict.fromkeys(layers for layers, _ in indexed)))
    job_properties, flow_properties = (
        limit.properties({name: value for name, value in properties.items() if name not in names})
        | time_properties(names, *times)
        for properties, names in zip(merged, (JOB_TIMES, _FLOW_TIMES), strict=True)
    )
    return JobDefinition(
        flow=flow,
        id=job_id,
        name=name,
        flow_properties=flow_properties,
        properties=job_properties,
        description=next((limit.text(run.description) for run in runs if run.description), None),
        owners=tuple(dict.fromkeys(owner for run in runs for owner in run.owners)),
        tags=settings.tags or None,
        job_tags=tuple(dict.fromkeys(tag for run in runs for tag in run.tags)),
        created_ms=runs[0].start_ms,
        upstream_jobs=settings.upstream_jobs,
    )


def _result(application: Application, ending: Ending) -> RunResult | None:
    if not ending.final:
        # The application's events may say COMPLETE although spark-submit is about to fail.
        return None
    own = application.own_run
    failure = next((run.failure for run in application.runs if run.failure), "")
    if ending.succeeded is not None:
        return RunResult.of(ending.succeeded, failure or "FAIL")
    is_over = own.ended if own is not None else any(run.ended for run in application.runs)
    if failure or is_over:
        return RunResult.of(not failure, failure)
    # A Spark driver always sends its application's end, unless it was killed.
    killed = own is not None and own.job_type == APPLICATION
    return RunResult("FAILURE", "FAIL") if killed else None


def job_of_event(event: RunEvent, settings: LineageSettings) -> JobLineage:
    """Return the job that a single event describes.

    :raises EventError: if the platform that ran the job is unknown.
    """
    fold = Fold(settings)
    state = fold.add(event)
    namer, diagnostics = DatasetNamer(settings, fold.symlinks.by_dataset), Diagnostics()
    lineage = Lineage.of((state,), namer, settings, diagnostics)
    # Names that only operations have are not reported.
    diagnostics.unusable_datasets = dict(namer.unusable)
    limit = TextLimit(settings.max_string_length, diagnostics.truncations)
    definition = _definition(
        (state,), (state.flow, *job_id_and_name(event, settings)), settings, limit
    )
    definition.tags = settings.tags or event.airflow_tags
    details = state.details or NO_DETAILS
    run = JobRun(
        id=event.run_id,
        start_ms=event.time_ms,
        end_ms=event.time_ms,
        result=_RESULTS.get(event.type),
        started=event.type in ("START", "RUNNING"),
        details=replace(details, properties=limit.properties(details.properties)),
        parent_urn=urns.dpi_urn(event.names.parent_run_id) if event.names.parent_run_id else None,
        is_application=event.job.texts.job_type == APPLICATION,
    )
    patch_edges = settings.use_patch or event.type in FAILED_TYPES
    return JobLineage(
        definition,
        run,
        lineage,
        diagnostics,
        patch_edges,
        may_split=any(output.reached_by is not None for output in state.outputs.values()),
        operations=operations_of((state,), namer),
    )


_RESULTS = {
    kind: RunResult("FAILURE" if kind in FAILED_TYPES else "SUCCESS", kind)
    for kind in TERMINAL_TYPES
}
