"""The runs of one application as one job (conversion rules, section 7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.datasets import DatasetNamer
from airflow_provider_spark_datahub.conversion.events import DatasetId, iso_instant
from airflow_provider_spark_datahub.conversion.fold import APPLICATION, Application, RunState
from airflow_provider_spark_datahub.conversion.identity import FlowIdentity, display_name
from airflow_provider_spark_datahub.conversion.limits import Cuts
from airflow_provider_spark_datahub.conversion.operations import Operation
from airflow_provider_spark_datahub.conversion.properties import PropertyLayers, first_wins
from airflow_provider_spark_datahub.conversion.run_facets import NO_DETAILS, RunDetails
from airflow_provider_spark_datahub.conversion.run_lineage import JobDataset, lineage_of
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.conversion.untold_tables import untold_outputs

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
