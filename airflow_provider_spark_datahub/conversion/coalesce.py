"""The runs of one application as one job (conversion rules, section 7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.columns import ColumnLimits, DatasetColumns, fine_grained_lineages
from airflow_provider_spark_datahub.conversion.dataset_notes import DatasetNotes, read_notes, with_field_tags
from airflow_provider_spark_datahub.conversion.datasets import DatasetName, DatasetNamer
from airflow_provider_spark_datahub.conversion.events import DatasetId, JsonObject, iso_instant
from airflow_provider_spark_datahub.conversion.fold import APPLICATION, RDD_JOB, Application, DatasetState, RunState
from airflow_provider_spark_datahub.conversion.identity import FlowIdentity, display_name
from airflow_provider_spark_datahub.conversion.limits import Cuts
from airflow_provider_spark_datahub.conversion.operations import Operation, operations
from airflow_provider_spark_datahub.conversion.paths import is_parent_folder
from airflow_provider_spark_datahub.conversion.properties import PropertyLayers, first_wins
from airflow_provider_spark_datahub.conversion.renames import under_last_names
from airflow_provider_spark_datahub.conversion.schema import schema_metadata
from airflow_provider_spark_datahub.conversion.settings import LineageSettings

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


@dataclass(slots=True)
class JobDataset:
    """A dataset of a job with what is to be written of it."""

    name: DatasetName
    ids: list[DatasetId] = field(default_factory=list)
    schema: dict[str, Any] | None = None
    notes: DatasetNotes = field(default_factory=DatasetNotes)


@dataclass(slots=True)
class JobLineage:
    """One job with its lineage and its run, ready to be written as aspects. Times are in ms since the epoch.

    :param adds_only: what is known may not be all: edges are added to the catalogue's, none is taken away
        (Deviation 10).
    :param result: ``None`` where the run has not ended, as far as is known.
    """

    flow: FlowIdentity
    job_id: str
    job_name: str
    run_id: str
    flow_properties: dict[str, str]
    job_properties: dict[str, str]
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
    unusable: dict[DatasetId, str] = field(default_factory=dict)
    run_properties: dict[str, str] = field(default_factory=dict)
    operations: Sequence[Operation] = ()
    cut: Mapping[str, int] = field(default_factory=dict)
    """How much was too long for the limits, by what it is."""
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


@dataclass(frozen=True, slots=True)
class RunLineage:
    """What runs read and wrote, by the URNs of the datasets.

    :param unusable: datasets that no URN can be made of, and why.
    """

    inputs: dict[str, JobDataset]
    outputs: dict[str, JobDataset]
    fine_grained: list[dict[str, Any]]
    operations: Sequence[Operation]
    unusable: dict[DatasetId, str]


def lineage_of(
    application: Application,
    namer: DatasetNamer,
    settings: LineageSettings,
    cuts: Cuts,
    *,
    lost_in_flight: bool = False,
) -> RunLineage:
    """The lineage of an application's runs.

    :param cuts: takes how much was left out.
    :param lost_in_flight: queries without end were still running when the driver died.
    """
    renamed = replace(application, runs=under_last_names(application.runs, namer))
    edges = _Edges(renamed, namer, lost_in_flight=lost_in_flight, settings=settings, cuts=cuts)
    return RunLineage(
        inputs=edges.inputs(),
        outputs=edges.outputs(),
        fine_grained=fine_grained_lineages(edges.columns(), namer, ColumnLimits.of(settings), cuts.counts),
        operations=operations(application.runs, namer) if settings.capture_operations else (),
        unusable=namer.unusable,
    )


def coalesce(
    applications: Sequence[Application],
    symlinks: Mapping[DatasetId, DatasetId],
    settings: LineageSettings,
    ending: Ending,
) -> list[JobLineage]:
    """One job per application.

    :param symlinks: the tables behind paths.
    :param ending: where it tells of a failure, the last application is the one that failed.
    """
    namer = DatasetNamer(settings, symlinks)
    jobs = []
    for number, application in enumerate(applications, start=1):
        own = ending
        if ending.succeeded is False and number < len(applications):
            own = replace(ending, succeeded=None)
        jobs.append(_coalesce_one(application, namer, settings, own))
    return jobs


def keep_each_others_edges(jobs: Iterable[JobLineage]) -> None:
    """Of several runs of one job (sessions of one name, queries under one ``pipeline_name``), what is written last must
    not take away what the others did: the first replaces the catalogue's edges, if all tell the whole story, and the
    others add theirs.

    :param jobs: all that is to be written, in its order; to be called once.
    """
    by_urn: dict[str, list[JobLineage]] = {}
    for job in jobs:
        by_urn.setdefault(job.job_urn, []).append(job)
    for same in by_urn.values():
        adds_only = any(job.adds_only for job in same)
        for number, job in enumerate(same):
            job.adds_only = adds_only or number > 0


def _coalesce_one(
    application: Application, namer: DatasetNamer, settings: LineageSettings, ending: Ending
) -> JobLineage:
    runs = application.runs
    last = max(runs, key=lambda run: run.last_index)
    flow = _flow(last, runs, settings)
    result = _result(application, ending)
    # Only Spark's queries are parts of an application: what other engines ran is a job of its own each.
    is_application = flow.orchestrator == SPARK or any(run.job_type == APPLICATION for run in runs)
    starts = [run.start_ms for run in runs if run.start_ms is not None]
    ends = [run.end_ms for run in runs if run.end_ms is not None]
    start_ms, end_ms = min(starts, default=None), max(ends, default=None)
    cuts, in_flight = Cuts(settings.max_string_length), _lost_in_flight(application, result)
    lineage = lineage_of(application, namer, settings, cuts, lost_in_flight=in_flight)
    job_properties, flow_properties = map(cuts.properties, first_wins(_told_in_order(runs)))
    flow_properties |= time_properties(FLOW_TIMES, start_ms, end_ms if ending.final else None)
    job_properties |= time_properties(JOB_TIMES, start_ms, end_ms if ending.final else None)
    return JobLineage(
        flow=flow,
        job_id=flow.flow_id if is_application else last.job_name,
        job_name=flow.flow_id if is_application else display_name(last.job_name),
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
        adds_only=settings.use_patch or not _whole_story(application, result, ending),
        parent_instance=_parent_instance(application),
        upstream_jobs=(settings.parent_job_urn,) if settings.parent_job_urn else (),
        unusable=lineage.unusable,
        operations=lineage.operations,
        cut=cuts.counts,
    )


def time_properties(names: tuple[str, str], start_ms: int | None, end_ms: int | None) -> dict[str, str]:
    """Start and end as ISO instants, each where it is known.

    :param names: :data:`FLOW_TIMES` or :data:`JOB_TIMES`.
    """
    times = zip(names, (start_ms, end_ms), strict=True)
    return {name: iso_instant(time_ms) for name, time_ms in times if time_ms is not None}


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
    return bool(ending.final and ending.events_complete and seen and result and result.type == "SUCCESS")


class _Edges:
    """The datasets of an application's runs that are edges of its job."""

    def __init__(
        self,
        application: Application,
        namer: DatasetNamer,
        *,
        lost_in_flight: bool,
        settings: LineageSettings,
        cuts: Cuts,
    ) -> None:
        self._runs = application.runs
        self._cuts = cuts
        self._with_schemas = settings.materialize_dataset and settings.include_schema_metadata
        self._with_descriptions = settings.capture_dataset_documentation
        self._namer = namer
        self._lost_in_flight = lost_in_flight

    def outputs(self) -> dict[str, JobDataset]:
        """What was written, by URN."""
        return self._by_urn((dataset, state) for run in self._runs for dataset, state in self._written(run))

    def inputs(self) -> dict[str, JobDataset]:
        """What was read, by URN: inputs of queries, and what only column lineage names (Deviation 8)."""
        phantoms = self._phantom_reads()
        return self._by_urn(
            (dataset, state) for run in self._runs for dataset, state in self._read(run) if dataset not in phantoms
        )

    def columns(self) -> Iterator[tuple[str, DatasetColumns]]:
        """Column lineage of what was written: the output's URN with what one query says of it."""
        for run in self._runs:
            for dataset, state in self._written(run):
                name = self._namer.name(dataset)
                if state.columns is not None and name is not None:
                    yield name.urn, state.columns

    def _written(self, run: RunState) -> Iterator[tuple[DatasetId, DatasetState]]:
        if run.failure or (self._lost_in_flight and not run.ended):
            return
        yield from run.written

    def _read(self, run: RunState) -> Iterator[tuple[DatasetId, DatasetState]]:
        yield from run.inputs.items()
        for output, state in self._written(run):
            if state.columns is not None:
                own = self._namer.name(output)
                for dataset in state.columns.inputs:
                    if dataset not in run.inputs and self._namer.name(dataset) != own:
                        yield dataset, DatasetState()

    def _phantom_reads(self) -> set[DatasetId]:
        """Deviation 5: what only RDD jobs of an application with queries read, where a query's dataset is the same
        or lies below: file listing, schema inference, reading back the own output."""
        listed = {dataset for run in self._runs if run.job_type == RDD_JOB for dataset in run.inputs}
        if not listed:
            return set()
        queries = [run for run in self._runs if run.job_type != RDD_JOB]
        read = {dataset for run in queries for dataset, _ in self._read(run)}
        touched = read.union(*(run.outputs for run in queries))
        paths: dict[str, list[str]] = {}
        for dataset in touched:
            paths.setdefault(dataset.namespace, []).append(dataset.name)
        return {
            dataset
            for dataset in listed - read
            if dataset in touched
            or any(is_parent_folder(dataset.name, path) for path in paths.get(dataset.namespace, ()))
        }

    def _by_urn(self, datasets: Iterable[tuple[DatasetId, DatasetState]]) -> dict[str, JobDataset]:
        found: dict[str, JobDataset] = {}
        schemas: dict[str, tuple[int, JsonObject | bytes]] = {}
        notes: dict[str, dict[str, tuple[int, JsonObject]]] = {}
        for dataset, state in datasets:
            name = self._namer.name(dataset)
            if name is None:
                continue
            urn = name.urn
            entry = found.setdefault(urn, JobDataset(name))
            if dataset not in entry.ids:
                entry.ids.append(dataset)
            if state.schema is not None and state.schema_index >= schemas.get(urn, (-1, b""))[0]:
                schemas[urn] = (state.schema_index, state.schema)
            for facet_name, (index, facet) in state.notes.items():
                known = notes.setdefault(urn, {})
                if index >= known.get(facet_name, (-1, None))[0]:
                    known[facet_name] = index, facet
        for urn, facets in notes.items():
            read = read_notes({facet_name: facet for facet_name, (_, facet) in facets.items()})
            found[urn].notes = replace(read, description=self._cuts.text(read.description))
        for urn, (_, schema) in schemas.items() if self._with_schemas else ():
            self._describe(found[urn], schema)
        return dict(sorted(found.items()))

    def _describe(self, dataset: JobDataset, facet: JsonObject | bytes) -> None:
        platform = urns.platform_urn(dataset.name.platform)
        schema = schema_metadata(facet, platform, with_descriptions=self._with_descriptions)
        if schema is not None:
            dataset.schema = with_field_tags(self._cuts.schema(schema), dataset.notes)
