"""Run tree: DAG runs, task runs, and the Spark runs below them (Airflow identity rules)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Literal

import msgspec
from msgspec import structs

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.aspects import input_output
from airflow_provider_spark_datahub.conversion.events import iso_instant
from airflow_provider_spark_datahub.conversion.facets.run import (
    KIND,
    DataInterval,
    ProcessInstance,
    RunType,
    run_event,
)
from airflow_provider_spark_datahub.conversion.history.changes import SilentTasks
from airflow_provider_spark_datahub.conversion.proposals import (
    Proposal,
    added_owners,
    added_tags,
    described,
)
from airflow_provider_spark_datahub.conversion.runs.coalesce import JobLineage
from airflow_provider_spark_datahub.conversion.runs.evidence import EVENT
from airflow_provider_spark_datahub.conversion.runs.lineage import JobDataset
from airflow_provider_spark_datahub.conversion.settings import ENVIRONMENTS, LineageSettings
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey

_ORCHESTRATOR = "airflow"
AttemptResult = Literal["SUCCESS", "UP_FOR_RETRY", "FAILURE", "SKIPPED"]

# The types of an Airflow task and of an owner that acryl-datahub's Airflow plugin writes.
_TASK_TYPE = {"string": "COMMAND"}
_OWNER_TYPE = "DEVELOPER"


class AirflowSite(msgspec.Struct, frozen=True):
    """Identity of an Airflow installation, from the section ``[datahub]`` that DataHub's own
    Airflow plugin reads.
    """

    cluster: str = "prod"
    platform_instance: str | None = None

    @property
    def environment(self) -> dict[str, str]:
        """The field ``env`` of DataFlow and DataJob, if the cluster is one of DataHub's
        environments.
        """
        env = self.cluster.upper()
        return {"env": env} if env in ENVIRONMENTS else {}

    def flow_urn(self, dag_id: str) -> str:
        """Return the URN of a DAG's DataFlow."""
        flow_id = f"{self.platform_instance}.{dag_id}" if self.platform_instance else dag_id
        return urns.FlowIdentity(_ORCHESTRATOR, flow_id, self.cluster).urn

    def job_urn(self, dag_id: str, task_id: str) -> str:
        """Return the URN of a task's DataJob."""
        return urns.datajob_urn(self.flow_urn(dag_id), task_id)

    def task_run_urn(self, dag_id: str, task_id: str, run_id: str, map_index: int = -1) -> str:
        """Return the URN of a task run's DataProcessInstance, which all its attempts share.

        :param map_index: -1 for a task that is not mapped.
        """
        key = {
            "cluster": self.cluster,
            "orchestrator": _ORCHESTRATOR,
            "id": f"{dag_id}_{task_id}_{run_id}",
        }
        if map_index >= 0:
            key["map_index"] = str(map_index)
        return urns.dpi_urn(urns.guid(key))


def owner_urns(names: Iterable[str], *, as_groups: bool = False) -> tuple[str, ...]:
    """Return the URNs of users or groups, sorted. A name that is a URN already stays as it is."""
    kind = "corpGroup" if as_groups else "corpuser"
    return tuple(
        sorted(
            name if name.startswith("urn:li:") else f"urn:li:{kind}:{urns.encode(name)}"
            for name in names
        )
    )


def tag_urns(names: Iterable[str]) -> tuple[str, ...]:
    """Return the URNs of tags, sorted."""
    return tuple(sorted(map(urns.tag_urn, names)))


@dataclass(frozen=True, slots=True)
class AirflowInfo:
    """Airflow's description of a DAG or a task, for its DataFlow or DataJob.

    :param properties: custom properties, named as DataHub's own Airflow plugin names them.
    :param owners: URNs of users or groups; they are added to those in DataHub, and so are
        :attr:`tags`, also URNs.
    """

    description: str | None = None
    url: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    owners: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    def details(self) -> dict[str, Any]:
        """Return the fields that ``dataFlowInfo`` and ``dataJobInfo`` share."""
        known = {"externalUrl": self.url, "description": self.description}
        return {
            "customProperties": dict(self.properties),
            **{key: value for key, value in known.items() if value},
        }

    def classification(self, entity_type: str, urn: str) -> Iterator[Proposal]:
        """Yield owners and tags. Those that users added in DataHub stay."""
        yield from added_owners(entity_type, urn, ((owner, _OWNER_TYPE) for owner in self.owners))
        yield from added_tags(entity_type, urn, self.tags)


@dataclass(frozen=True, slots=True)
class DagRun:
    """DAG run. Times are in ms since the epoch, and ``None`` if they are not known.

    :param parent_urn: run that triggered this one, of another DAG.
    :param upstream_urns: runs of other DAGs that wrote the assets that triggered this one.
    :param due_ms: when the run was due, which orders DAG runs: a cleared run starts after newer
        runs.
    :param logical_ms: its logical date.
    """

    site: AirflowSite
    dag_id: str
    run_id: str
    kind: RunType = "BATCH_AD_HOC"
    start_ms: int | None = None
    url: str | None = None
    dag: AirflowInfo = AirflowInfo()
    interval: DataInterval | None = None
    parent_urn: str | None = None
    upstream_urns: tuple[str, ...] = ()
    due_ms: int | None = None
    logical_ms: int | None = None

    @property
    def urn(self) -> str:
        """URN of the DAG run's DataProcessInstance."""
        key = {
            "cluster": self.site.cluster,
            "orchestrator": _ORCHESTRATOR,
            "dag_id": self.dag_id,
            "run_id": self.run_id,
        }
        return urns.dpi_urn(urns.guid(key))

    def end_proposals(
        self, end_ms: int, result: Literal["SUCCESS", "FAILURE"], *, written_by_plugin: bool = False
    ) -> list[Proposal]:
        """Return the end of the DAG run, with the DAG and the run itself, since its tasks may never
        have run.

        :param written_by_plugin: see :class:`TaskAttempt`.
        """
        outcome = {"type": result, "nativeResultType": _ORCHESTRATOR}
        duration = end_ms - self.start_ms if self.start_ms is not None else None
        shared: dict[str, Any] = {
            "interval": self.interval,
            "durationMillis": duration,
            "externalUrl": self.url,
        }
        end = run_event(self.urn, end_ms, "COMPLETE", result=outcome, **shared)
        return [*_dag_run(self, written_by_plugin=written_by_plugin), end]


class UpstreamTask(msgspec.Struct, frozen=True):
    """Upstream task in the same DAG: the nearest whose runs are written to DataHub.

    :param map_indexes: its runs that the task depends on, -1 if it is not mapped; empty if it did
        not run.
    :param is_nearest: whether it is the nearest one in the DAG; else it replaces a nearer task that
        did not run.
    """

    task_id: str
    map_indexes: tuple[int, ...] = (-1,)
    is_nearest: bool = True


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """Attempt (try number) of a task run. Times are in ms since the epoch.

    :param end_ms: ``None`` while it runs, and so is :attr:`result`.
    :param written_by_plugin: DataHub's own Airflow plugin writes the DAG, the task and the task
        run; only the rest is written here.
    :param only_adds: the edges in DataHub stay: a newer DAG run has already run the task, Spark ran
        before in this attempt, or the attempt's end was not recorded.
    :param read_before: URNs of datasets that an earlier Spark job of this attempt read;
        :attr:`written_before` of those that it wrote.
    """

    dag_run: DagRun
    task_id: str
    try_number: int
    map_index: int = -1
    start_ms: int | None = None
    end_ms: int | None = None
    result: AttemptResult | None = None
    log_url: str | None = None
    task: AirflowInfo = AirflowInfo()
    upstream: tuple[UpstreamTask, ...] = ()
    written_by_plugin: bool = False
    only_adds: bool = False
    read_before: tuple[str, ...] = ()
    written_before: tuple[str, ...] = ()
    silent: SilentTasks = field(default_factory=SilentTasks)

    @property
    def is_mapped(self) -> bool:
        """Return whether the task run is one of several of its task in the DAG run."""
        return self.map_index >= 0

    @property
    def key(self) -> AttemptKey:
        """Key of the attempt's events and outbox entries."""
        run = self.dag_run
        return AttemptKey(run.dag_id, run.run_id, self.task_id, self.map_index, self.try_number)

    @property
    def urn(self) -> str:
        """URN of the task run's DataProcessInstance."""
        run = self.dag_run
        return run.site.task_run_urn(run.dag_id, self.task_id, run.run_id, self.map_index)

    @property
    def run_of_plugin(self) -> TaskAttempt:
        """The task run as DataHub's plugin identifies it: one for all runs of a mapped task."""
        return replace(self, map_index=-1)

    @property
    def job_urn(self) -> str:
        """URN of the task's DataJob."""
        return self.dag_run.site.job_urn(self.dag_run.dag_id, self.task_id)

    def ended(self, end_ms: int, result: AttemptResult) -> TaskAttempt:
        """Return the attempt after its end."""
        return replace(self, end_ms=end_ms, result=result)

    def end_events(self) -> list[Proposal]:
        """Return only the end of the attempt, for a caller that knows nothing else about it."""
        return [event for event in _task_events(self) if event.aspect["status"] == "COMPLETE"]

    def attach(
        self, jobs: Sequence[JobLineage], settings: LineageSettings, sessions: Iterable[str] = ()
    ) -> list[JobLineage]:
        """Attach Spark jobs: their runs become children of the task run, and the task's job their
        upstream.

        A job gets an id of the task's own, unless the settings keep the application's: no other
        task writes its edges. The run of a query stays a child of its application's or Hive
        session's run. A run whose events have no kind or data interval gets the DAG run's.
        """
        runs = {job.run_urn for job in jobs} | set(sessions)
        return [_attached(job, self, runs, of_task=settings.spark_job_id == "task") for job in jobs]

    def proposals(self, jobs: Sequence[JobLineage] | None = None) -> list[Proposal]:
        """Return the attempt's Airflow entities: the DAG with its run, and the task with its run,
        parents first.

        :param jobs: jobs of the task's Spark applications; ``None`` if they are not known (yet).
        """
        proposals = list(_dag_run(self.dag_run, written_by_plugin=self.written_by_plugin))
        if self.written_by_plugin:
            proposals.append(_task_run(self.run_of_plugin, self.dag_run.urn).relationships())
            if not self.is_mapped:
                return proposals
        else:
            proposals += _task_job(self)
        # Beside the plugin, the runs of a mapped task are below the single run of the plugin.
        parent_urn = self.run_of_plugin.urn if self.written_by_plugin else self.dag_run.urn
        proposals += _task_run(self, parent_urn).proposals()
        if jobs is not None:
            proposals += _run_datasets(self, jobs)
            if not self.written_by_plugin:
                proposals += _job_datasets(self, jobs)
        return [*proposals, *_task_events(self)]


def _attached(
    job: JobLineage, attempt: TaskAttempt, runs: set[str], *, of_task: bool
) -> JobLineage:
    definition, run, details = job.definition, job.run, job.run.details
    job_id, upstream_jobs = (
        definition.id,
        tuple(dict.fromkeys((*definition.upstream_jobs, attempt.job_urn))),
    )
    if of_task:
        task = f"{attempt.dag_run.dag_id}.{attempt.task_id}"
        job_id = task if job_id == definition.flow.flow_id else f"{task}.{job_id}"
    return structs.replace(
        job,
        # The end of the DAG run removes edges of shared jobs, if it knows all of them.
        patch_edges=job.patch_edges or (attempt.only_adds and not attempt.is_mapped),
        is_shared=attempt.is_mapped,
        definition=structs.replace(definition, id=job_id, upstream_jobs=upstream_jobs),
        run=structs.replace(
            run,
            parent_urn=run.parent_urn if run.parent_urn in runs - {job.run_urn} else attempt.urn,
            details=replace(
                details,
                run_type=details.run_type or attempt.dag_run.kind,
                interval=details.interval or attempt.dag_run.interval,
            ),
        ),
    )


def _run_datasets(attempt: TaskAttempt, jobs: Sequence[JobLineage]) -> list[Proposal]:
    inputs = {*attempt.read_before, *chain.from_iterable(job.lineage.inputs for job in jobs)}
    outputs = {*attempt.written_before, *chain.from_iterable(job.lineage.outputs for job in jobs)}
    proposals = [
        Proposal(KIND, attempt.urn, "dataProcessInstanceInput", {"inputs": sorted(inputs)}),
        Proposal(KIND, attempt.urn, "dataProcessInstanceOutput", {"outputs": sorted(outputs)}),
    ]
    # An attempt that failed before it read or wrote leaves what an earlier one read and wrote.
    return [
        proposal
        for proposal in proposals
        if attempt.result == "SUCCESS" or any(proposal.aspect.values())
    ]


def _job_datasets(attempt: TaskAttempt, jobs: Sequence[JobLineage]) -> list[Proposal]:
    """Return the edges of the task's job: which datasets it wrote.

    It has no inputs: DataHub follows upstream jobs, so that what this task read would be upstream
    of all that its Spark jobs and later tasks write.
    """
    run = attempt.dag_run
    upstream = [task.task_id for task in attempt.upstream if task.is_nearest]
    return input_output(
        attempt.job_urn,
        inputs={},
        outputs=_edges(job.lineage.outputs for job in jobs),
        upstream_jobs=[run.site.job_urn(run.dag_id, task_id) for task_id in upstream],
        time_ms=attempt.end_ms or max((job.run.end_ms or 0 for job in jobs), default=None),
        patch=attempt.is_mapped
        or attempt.only_adds
        or attempt.result != "SUCCESS"
        or not jobs
        or any(job.patch_edges for job in jobs),
    )


def _edges(lineages: Iterable[Mapping[str, JobDataset]]) -> dict[str, Mapping[str, str]]:
    """Return the properties of edges, sorted by URN. If lineages disagree, an edge that events name
    wins.
    """
    edges: dict[str, Mapping[str, str]] = {}
    for datasets in lineages:
        for urn, dataset in datasets.items():
            if urn not in edges or dataset.edge_properties.get("source", EVENT).startswith(EVENT):
                edges[urn] = dataset.edge_properties
    return dict(sorted(edges.items()))


def _dag_run(dag_run: DagRun, *, written_by_plugin: bool) -> Iterator[Proposal]:
    flow_urn = dag_run.site.flow_urn(dag_run.dag_id)
    if not written_by_plugin:
        info = {**dag_run.dag.details(), "name": dag_run.dag_id, **dag_run.site.environment}
        yield from described(
            "dataFlow", flow_urn, info, _ORCHESTRATOR, dag_run.site.platform_instance
        )
        yield from dag_run.dag.classification("dataFlow", flow_urn)
    yield from ProcessInstance(
        dag_run.urn,
        name=f"{dag_run.dag_id}_{dag_run.run_id}",
        created_ms=dag_run.start_ms,
        properties={
            "dag_id": dag_run.dag_id,
            "run_id": dag_run.run_id,
            **_interval_properties(dag_run),
        },
        url=dag_run.url,
        run_type=dag_run.kind,
        template_urn=flow_urn,
        parent_urn=dag_run.parent_urn,
        upstream_urns=dag_run.upstream_urns,
    ).proposals()
    if dag_run.start_ms is not None:
        yield run_event(
            dag_run.urn,
            dag_run.start_ms,
            "STARTED",
            interval=dag_run.interval,
            externalUrl=dag_run.url,
        )


def _interval_properties(dag_run: DagRun) -> dict[str, str]:
    if dag_run.interval is None:
        return {}
    start_ms, end_ms = dag_run.interval.start_ms, dag_run.interval.end_ms
    return {"data_interval_start": iso_instant(start_ms), "data_interval_end": iso_instant(end_ms)}


def _task_job(attempt: TaskAttempt) -> Iterator[Proposal]:
    run, urn = attempt.dag_run, attempt.job_urn
    info = {
        **attempt.task.details(),
        "name": attempt.task_id,
        "type": _TASK_TYPE,
        "flowUrn": run.site.flow_urn(run.dag_id),
        **run.site.environment,
    }
    yield from described("dataJob", urn, info, _ORCHESTRATOR, run.site.platform_instance)
    yield from attempt.task.classification("dataJob", urn)


def _task_run(attempt: TaskAttempt, parent_urn: str) -> ProcessInstance:
    run = attempt.dag_run
    mapped = {"map_index": str(attempt.map_index)} if attempt.is_mapped else {}
    custom = {"dag_id": run.dag_id, "task_id": attempt.task_id, "run_id": run.run_id, **mapped}
    custom |= {} if run.logical_ms is None else {"logical_date": iso_instant(run.logical_ms)}
    custom |= attempt.silent.properties
    return ProcessInstance(
        attempt.urn,
        name=f"{run.dag_id}_{attempt.task_id}_{run.run_id}{f'_{attempt.map_index}' if mapped else ''}",
        created_ms=attempt.start_ms,
        properties=custom | _interval_properties(run),
        url=attempt.log_url,
        run_type=run.kind,
        template_urn=attempt.job_urn,
        parent_urn=parent_urn,
        upstream_urns=[
            run.site.task_run_urn(run.dag_id, upstream.task_id, run.run_id, map_index)
            for upstream in attempt.upstream
            for map_index in upstream.map_indexes
        ],
    )


def _task_events(attempt: TaskAttempt) -> Iterator[Proposal]:
    shared: dict[str, Any] = {
        "interval": attempt.dag_run.interval,
        "attempt": attempt.try_number,
        "externalUrl": attempt.log_url,
    }
    if attempt.start_ms is not None:
        yield run_event(attempt.urn, attempt.start_ms, "STARTED", **shared)
    if attempt.end_ms is None or attempt.result is None:
        return
    yield run_event(
        attempt.urn,
        attempt.end_ms,
        "COMPLETE",
        result={"type": attempt.result, "nativeResultType": _ORCHESTRATOR},
        durationMillis=attempt.end_ms - attempt.start_ms if attempt.start_ms is not None else None,
        **shared,
    )
