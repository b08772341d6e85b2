"""The runs of one application as one job (conversion rules, section 7).

One run event by itself as a job: the query that it tells of (``coalesce_jobs`` off).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import msgspec

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.datasets import DatasetNamer
from airflow_provider_spark_datahub.conversion.events import (
    FAILED_TYPES,
    TERMINAL_TYPES,
    DatasetId,
    EventDataset,
    RunEvent,
    iso_instant,
)
from airflow_provider_spark_datahub.conversion.facets.properties import (
    PropertyLayers,
    airflow_tags,
    description,
    first_wins,
    owner_names,
    property_layers,
)
from airflow_provider_spark_datahub.conversion.facets.run import NO_DETAILS, RunDetails, details_of
from airflow_provider_spark_datahub.conversion.identity import (
    FlowIdentity,
    application_names,
    display_name,
    flow_identity,
    job_id_and_name,
)
from airflow_provider_spark_datahub.conversion.limits import Cuts, summed
from airflow_provider_spark_datahub.conversion.proposals import SharedObject
from airflow_provider_spark_datahub.conversion.runs.fold import APPLICATION, RDD_JOB, Application, Fold, RunState
from airflow_provider_spark_datahub.conversion.runs.lineage import JobDataset, Operation, RunLineage, lineage_of
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.conversion.spark_log.unreported import untold_outputs

SPARK = "spark"
FLOW_TIMES = ("startedAt", "finishedAt")
"""Properties of a coalesced flow: when its application began and ended."""
JOB_TIMES = ("startTime", "endTime")
"""The same, of a coalesced job."""

ResultType = Literal["SUCCESS", "FAILURE"]


@dataclass(frozen=True, slots=True)
class Ending:
    """What is known of a job's end beside its events.

    :param succeeded: what ``spark-submit`` returned, which decides the run's result (Deviation 13): the application
        event says COMPLETE even where the application failed. ``None`` where nobody told.
    :param events_complete: nothing of the events was torn, quarantined or left unread.
    :param final: the job is over; else this is what it did so far.
    :param one_submission: all events are of one ``spark-submit``; else of many, as in an archive, where each run of a
        job replaces what the one before it did (see ``latest.py``).
    """

    succeeded: bool | None = None
    events_complete: bool = True
    final: bool = True
    one_submission: bool = True


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended. :param native: the OpenLineage event type that stands for it."""

    type: ResultType
    native: str


class JobLineage(msgspec.Struct, kw_only=True, gc=False):
    """One job with its lineage and its run, ready to be written as aspects. Times are in ms since the epoch.

    :param adds_only: what is known may not be all: edges are added to the catalogue's, none is taken away
        (Deviation 10).
    :param result: ``None`` where the run has not ended, as far as is known.
    """

    flow: FlowIdentity
    job_id: str
    job_name: str
    run_id: str
    flow_properties: Mapping[str, str]
    job_properties: Mapping[str, str]
    description: str | None
    owners: tuple[str, ...]
    tags: Sequence[str] | None
    inputs: dict[str, JobDataset]
    outputs: dict[str, JobDataset]
    fine_grained: list[dict[str, Any]]
    created_ms: int | None
    start_ms: int | None
    end_ms: int | None
    result: RunResult | None
    started: bool
    adds_only: bool = False
    parent_instance: str | None = None
    upstream_jobs: tuple[str, ...] = ()
    unusable: dict[DatasetId, str] = {}
    column_gaps: tuple[str, ...] = ()
    run_properties: dict[str, str] = {}
    operations: Sequence[Operation] = ()
    run: RunDetails = NO_DETAILS
    partitions: tuple[str, ...] = ()
    """Of the datasets that it wrote."""
    tests: Mapping[str, bool] = {}
    """Data-quality checks by the URN of the test, and whether each was passed."""
    cut: Mapping[str, int] = {}
    """How much was too long for the limits, by what it is."""
    untold: tuple[str, ...] = ()
    """Queries that wrote tables which no event names."""
    is_application: bool = True
    """Its run is an application's, not one of the queries in it."""

    @property
    def job_urn(self) -> str:
        """The DataJob's URN."""
        return urns.datajob_urn(self.flow.urn, self.job_id)

    @property
    def run_urn(self) -> str:
        """The run's DataProcessInstance."""
        return urns.dpi_urn(self.run_id)


def endings(count: int, ending: Ending) -> Iterator[Ending]:
    """How each of so many applications ended: where one failed it was the last, and the others' events tell."""
    others = replace(ending, succeeded=None) if ending.succeeded is False else ending
    yield from (ending if number == count else others for number in range(1, count + 1))


class EachOthersEdges:
    """Of several runs of one job (sessions of one name, queries under one ``pipeline_name``), what is written last must
    not take away what the others did: the first replaces the catalogue's edges, if all tell the whole story, and the
    others add theirs.
    """

    def __init__(self) -> None:
        self._adds_only: dict[str, bool] = {}

    def learn(self, told: Iterable[tuple[str, bool]]) -> None:
        """Take the jobs that are to be written: of each its URN, and whether what is known of it may not be all."""
        for urn, adds_only in told:
            self._adds_only[urn] = self._adds_only.get(urn, False) or adds_only

    def keep(self, job: JobLineage) -> JobLineage:
        """The job as it is to be written, where it was learnt; to be asked in the order of writing."""
        urn = job.job_urn
        if urn in self._adds_only:
            job.adds_only, self._adds_only[urn] = self._adds_only[urn], True
        return job


def told_of_job(application: Application, settings: LineageSettings, ending: Ending) -> tuple[str, bool]:
    """What :class:`EachOthersEdges` has to know of an application's job."""
    flow, job_id, _ = _identity(application.runs, settings)
    return urns.datajob_urn(flow.urn, job_id), _adds_only(application, settings, ending)


def coalesce(application: Application, namer: DatasetNamer, settings: LineageSettings, ending: Ending) -> JobLineage:
    """The job of an application."""
    runs = application.runs
    flow, job_id, job_name = _identity(runs, settings)
    result = _result(application, ending)
    starts = [run.start_ms for run in runs if run.start_ms is not None]
    ends = [run.end_ms for run in runs if run.end_ms is not None]
    start_ms, end_ms = min(starts, default=None), max(ends, default=None)
    cuts, in_flight = Cuts(settings.max_string_length), _lost_in_flight(application, result)
    lineage = lineage_of(application, namer, settings, cuts, lost_in_flight=in_flight)
    details = application.details
    job_properties, flow_properties = map(cuts.properties, first_wins(_told_in_order(runs)))
    flow_properties |= time_properties(FLOW_TIMES, start_ms, end_ms if ending.final else None)
    job_properties |= time_properties(JOB_TIMES, start_ms, end_ms if ending.final else None)
    return JobLineage(
        flow=flow,
        job_id=job_id,
        job_name=job_name,
        run_id=application.run_id,
        flow_properties=flow_properties,
        job_properties=job_properties,
        description=next((cuts.text(run.description) for run in runs if run.description), None),
        owners=tuple(dict.fromkeys(owner for run in runs for owner in run.owners)),
        tags=settings.tags or None,
        inputs=lineage.inputs,
        outputs=lineage.outputs,
        fine_grained=lineage.fine_grained,
        created_ms=runs[0].start_ms,
        start_ms=start_ms,
        end_ms=end_ms,
        result=result,
        started=True,
        adds_only=_adds_only(application, settings, ending),
        parent_instance=_parent_instance(application),
        upstream_jobs=(settings.parent_job_urn,) if settings.parent_job_urn else (),
        unusable=lineage.unusable,
        column_gaps=lineage.column_gaps,
        operations=lineage.operations,
        run=replace(details, properties=cuts.properties(details.properties)),
        partitions=lineage.partitions,
        tests=lineage.tests,
        cut=cuts.counts,
        untold=untold_outputs(runs),
    )


def time_properties(names: tuple[str, str], start_ms: int | None, end_ms: int | None) -> dict[str, str]:
    """Start and end as ISO instants, each where it is known.

    :param names: :data:`FLOW_TIMES` or :data:`JOB_TIMES`.
    """
    times = zip(names, (start_ms, end_ms), strict=True)
    return {name: iso_instant(time_ms) for name, time_ms in times if time_ms is not None}


def _identity(runs: Sequence[RunState], settings: LineageSettings) -> tuple[FlowIdentity, str, str]:
    """The flow, with the job's id and name."""
    last = max(runs, key=lambda run: run.last_index)
    flow = _flow(last, runs, settings)
    # Only Spark's queries are parts of an application: what other engines ran is a job of its own each.
    if flow.orchestrator == SPARK or any(run.job_type == APPLICATION for run in runs):
        return flow, flow.flow_id, flow.flow_id
    return flow, last.job_name, display_name(last.job_name)


def _adds_only(application: Application, settings: LineageSettings, ending: Ending) -> bool:
    return settings.use_patch or not _whole_story(application, _result(application, ending), ending)


def _flow(last: RunState, runs: Iterable[RunState], settings: LineageSettings) -> FlowIdentity:
    """The last event's flow, by the name of the application, which not every event carries."""
    # A session that follows another one still has its name in the first events' properties, until it is set anew.
    session_names = [run.session_name for run in runs if run.session_name]
    app_name = next((run.app_name for run in runs if run.app_name), session_names[-1] if session_names else "")
    flow_id = settings.flow_id(app_name) if app_name else last.flow.flow_id
    return FlowIdentity(last.flow.orchestrator, flow_id, last.flow.cluster)


def _parent_instance(application: Application) -> str | None:
    """The run that the ``parent`` facet of the application's own run names (Deviation 4)."""
    parent = application.own_run.parent_run_id if application.own_run else ""
    return urns.dpi_urn(parent) if parent else None


def _told_in_order(runs: Iterable[RunState]) -> list[PropertyLayers]:
    told = sorted((told for run in runs for told in run.properties), key=lambda told: told[0])
    return list(dict.fromkeys(layers for _, layers in told))


def _result(application: Application, ending: Ending) -> RunResult | None:
    if not ending.final:
        # Its own events may say COMPLETE where spark-submit is about to fail.
        return None
    own = application.own_run
    failure = next((run.failure for run in application.runs if run.failure), "")
    if ending.succeeded is not None:
        return RunResult("SUCCESS", "COMPLETE") if ending.succeeded else RunResult("FAILURE", failure or "FAIL")
    is_over = own.ended if own is not None else any(run.ended for run in application.runs)
    if failure:
        return RunResult("FAILURE", failure)
    if is_over:
        return RunResult("SUCCESS", "COMPLETE")
    # A Spark driver always sends its application's end, unless it was killed.
    killed = own is not None and own.job_type == APPLICATION
    return RunResult("FAILURE", "FAIL") if killed else None


def _lost_in_flight(application: Application, result: RunResult | None) -> bool:
    """Whether queries without end were still running when the driver died, so that their outputs are in doubt."""
    own = application.own_run
    died = own is not None and own.job_type == APPLICATION and not own.ended
    return died and result is not None and result.type == "FAILURE"


def _whole_story(application: Application, result: RunResult | None, ending: Ending) -> bool:
    """Whether the events tell all that the job read and wrote, so that edges they lack are no edges any more."""
    own = application.own_run
    seen = own is not None and own.ended and (own.started or own.job_type != APPLICATION)
    ended_well = ending.final and result is not None and result.type == "SUCCESS"
    return bool(ended_well and ending.events_complete and seen) and not untold_outputs(application.runs)


_Datasets = tuple[EventDataset, ...]
_Properties = tuple[dict[str, str], dict[str, str], Mapping[str, int]]
REMEMBERED, REMEMBERED_EDGES = 256, 4096
"""How many lineages are remembered, and how many column edges they have together."""


class SingleEvents:
    """Makes jobs of single events. It remembers the datasets of the last ones, which the events of a run repeat."""

    def __init__(self, settings: LineageSettings) -> None:
        self._settings = settings
        self._remembered: dict[tuple[_Datasets, _Datasets, str, bool, str], tuple[RunLineage, Mapping[str, int]]] = {}
        self._edges = 0

    def job(self, event: RunEvent) -> JobLineage:
        """The job that the event tells of.

        :raises EventError: where nothing tells which platform ran the job.
        """
        settings = self._settings
        app_name, session_name = application_names(event)
        flow = flow_identity(event, settings, app_name or session_name)
        job_id, job_name = job_id_and_name(event, settings)
        lineage, cut = self._lineage(event)
        properties_of_job, properties_of_flow, cut_properties = self._properties(event)
        run, described, cut_details = self._details(event)
        owners = owner_names(event)
        return JobLineage(
            flow=flow,
            job_id=job_id,
            job_name=job_name,
            run_id=event.run_id,
            flow_properties=properties_of_flow,
            job_properties=properties_of_job,
            description=described,
            owners=tuple(dict.fromkeys(owners)) if owners else (),
            tags=settings.tags or airflow_tags(event),
            inputs=lineage.inputs,
            outputs=lineage.outputs,
            fine_grained=lineage.fine_grained,
            created_ms=event.time_ms,
            start_ms=event.time_ms,
            end_ms=event.time_ms,
            result=_RESULTS.get(event.type),
            started=event.type in ("START", "RUNNING"),
            adds_only=settings.use_patch or event.type in FAILED_TYPES,
            parent_instance=urns.dpi_urn(event.parent_run_id) if event.parent_run_id else None,
            upstream_jobs=(settings.parent_job_urn,) if settings.parent_job_urn else (),
            unusable=lineage.unusable,
            column_gaps=lineage.column_gaps,
            operations=lineage.operations,
            run=run,
            partitions=lineage.partitions,
            cut=summed((cut, cut_properties, cut_details)) if cut_properties or cut_details else cut,
            tests=lineage.tests,
            is_application=event.job_type == APPLICATION,
        )

    def _properties(self, event: RunEvent) -> _Properties:
        # The plan of a query is long, and another one in the next query.
        read = _properties if self._settings.capture_spark_plan else _properties_again
        layers = property_layers(event, spark_plan=self._settings.capture_spark_plan)
        return read(layers, self._settings.max_string_length)

    def _details(self, event: RunEvent) -> tuple[RunDetails, str | None, Mapping[str, int]]:
        """Of the run, and the job's description, with how much of them was too long."""
        run, described = details_of(event) or NO_DETAILS, description(event)
        cuts = Cuts(self._settings.max_string_length)
        kept = cuts.properties(run.properties)
        if kept is not run.properties:
            run = replace(run, properties=kept)
        return run, cuts.text(described) if described else None, cuts.counts

    def _lineage(self, event: RunEvent) -> tuple[RunLineage, Mapping[str, int]]:
        """With how much of it was too long for the limits."""
        if self._settings.capture_operations or self._settings.capture_test_results:
            # Operations have the event's time and run, and tests may be told by the run alone.
            return self._read(event)
        # All that the lineage of a run depends on; datasets that came as the same text are the same object.
        rdd_job = event.job_name if event.job_type == RDD_JOB else ""
        told = (event.inputs, event.outputs, event.sql, event.type in FAILED_TYPES, rdd_job)
        lineage = self._remembered.get(told)
        if lineage is None:
            lineage = self._read(event)
            if len(self._remembered) >= REMEMBERED or self._edges >= REMEMBERED_EDGES:
                self._remembered.clear()
                self._edges = 0
            self._remembered[told] = lineage
            self._edges += len(lineage[0].fine_grained)
        return lineage

    def _read(self, event: RunEvent) -> tuple[RunLineage, Mapping[str, int]]:
        fold, cuts = Fold(self._settings), Cuts(self._settings.max_string_length)
        fold.add(event)
        (application,) = fold.applications()
        namer = DatasetNamer(self._settings, fold.symlinks.by_dataset)
        return lineage_of(application, namer, self._settings, cuts), cuts.counts


def _properties(layers: PropertyLayers, longest: int) -> _Properties:
    """Of the job and of the flow, without the times that only a whole application has, and how much was too long."""
    cuts = Cuts(longest)
    job, flow = first_wins([layers])
    for properties, times in ((job, JOB_TIMES), (flow, FLOW_TIMES)):
        for time in times:
            properties.pop(time, None)
    return cuts.properties(job), cuts.properties(flow), cuts.counts


@lru_cache(maxsize=512)
def _properties_again(layers: PropertyLayers, longest: int) -> _Properties:
    job, flow, counts = _properties(layers, longest)
    return SharedObject(job), SharedObject(flow), counts


_RESULTS = {kind: RunResult("FAILURE" if kind in FAILED_TYPES else "SUCCESS", kind) for kind in TERMINAL_TYPES}
