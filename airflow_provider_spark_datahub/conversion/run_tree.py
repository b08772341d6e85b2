"""The run tree: DAG run, task run and what hangs below them (Airflow identity rules)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from msgspec import structs

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.aspects import input_output
from airflow_provider_spark_datahub.conversion.events import iso_instant
from airflow_provider_spark_datahub.conversion.facets.run import KIND, DataInterval, RunType, run_event, run_properties
from airflow_provider_spark_datahub.conversion.proposals import Proposal, platform_instance, status
from airflow_provider_spark_datahub.conversion.runs.coalesce import JobLineage
from airflow_provider_spark_datahub.conversion.runs.lineage import JobDataset

ORCHESTRATOR = "airflow"
TryResult = Literal["SUCCESS", "UP_FOR_RETRY", "FAILURE", "SKIPPED"]

# What acryl-datahub's Airflow plugin writes as the type of an Airflow task.
_TASK_TYPE = {"string": "COMMAND"}


@dataclass(frozen=True, slots=True)
class AirflowSite:
    """Which Airflow it is, by the settings that DataHub's own Airflow plugin reads (section ``[datahub]``).

    :param cluster: used verbatim.
    :param platform_instance: ``None`` where there is none.
    """

    cluster: str = "prod"
    platform_instance: str | None = None

    def flow_urn(self, dag_id: str) -> str:
        """The DataFlow of a DAG."""
        flow_id = f"{self.platform_instance}.{dag_id}" if self.platform_instance else dag_id
        return urns.dataflow_urn(ORCHESTRATOR, flow_id, self.cluster)

    def job_urn(self, dag_id: str, task_id: str) -> str:
        """The DataJob of a task."""
        return urns.datajob_urn(self.flow_urn(dag_id), task_id)

    def dag_run_urn(self, dag_id: str, run_id: str) -> str:
        """The DataProcessInstance of a DAG run."""
        key = {"cluster": self.cluster, "orchestrator": ORCHESTRATOR, "dag_id": dag_id, "run_id": run_id}
        return urns.dpi_urn(urns.guid(key))

    def task_run_urn(self, dag_id: str, task_id: str, run_id: str, map_index: int = -1) -> str:
        """The DataProcessInstance of a task run: one for all of its tries.

        :param map_index: -1 for a task that is not mapped.
        """
        key = {"cluster": self.cluster, "orchestrator": ORCHESTRATOR, "id": f"{dag_id}_{task_id}_{run_id}"}
        if map_index >= 0:
            key["map_index"] = str(map_index)
        return urns.dpi_urn(urns.guid(key))


@dataclass(frozen=True, slots=True)
class DagRun:
    """A DAG run. Times are in ms since the epoch.

    :param url: of its page in Airflow's UI; likewise :attr:`dag_url`.
    :param start_ms: ``None`` where it is not known.
    :param interval: the data that the run is for; ``None`` where it is for none, as a run by hand may be.
    """

    site: AirflowSite
    dag_id: str
    run_id: str
    kind: RunType = "BATCH_AD_HOC"
    start_ms: int | None = None
    url: str | None = None
    dag_url: str | None = None
    dag_description: str | None = None
    interval: DataInterval | None = None

    @property
    def urn(self) -> str:
        """The DAG run's DataProcessInstance."""
        return self.site.dag_run_urn(self.dag_id, self.run_id)


@dataclass(frozen=True, slots=True)
class UpstreamTask:
    """A task of the same DAG that the task waits for.

    :param map_indexes: those of its runs that count, where it is mapped.
    """

    task_id: str
    map_indexes: tuple[int, ...] = (-1,)


@dataclass(frozen=True, slots=True)
class TaskTry:
    """One try of a task run. Times are in ms since the epoch.

    :param end_ms: ``None`` while it runs.
    :param result: ``None`` while it runs.
    :param written_by_plugin: DataHub's own Airflow plugin writes the DAG, the task and the task run: only what it
        lacks is added.
    """

    dag_run: DagRun
    task_id: str
    try_number: int
    map_index: int = -1
    start_ms: int | None = None
    end_ms: int | None = None
    result: TryResult | None = None
    log_url: str | None = None
    upstream: tuple[UpstreamTask, ...] = ()
    written_by_plugin: bool = False

    @property
    def urn(self) -> str:
        """The task run's DataProcessInstance."""
        run = self.dag_run
        return run.site.task_run_urn(run.dag_id, self.task_id, run.run_id, self.map_index)

    @property
    def job_urn(self) -> str:
        """The task's DataJob."""
        return self.dag_run.site.job_urn(self.dag_run.dag_id, self.task_id)

    @property
    def upstream_run_urns(self) -> list[str]:
        """The runs of the upstream tasks, in this DAG run."""
        run = self.dag_run
        return [
            run.site.task_run_urn(run.dag_id, upstream.task_id, run.run_id, map_index)
            for upstream in self.upstream
            for map_index in upstream.map_indexes
        ]

    @property
    def upstream_job_urns(self) -> list[str]:
        """The DataJobs of the upstream tasks."""
        return [self.dag_run.site.job_urn(self.dag_run.dag_id, upstream.task_id) for upstream in self.upstream]

    def ended(self, end_ms: int, result: TryResult) -> TaskTry:
        """The same try after its end."""
        return replace(self, end_ms=end_ms, result=result)


def below(jobs: Sequence[JobLineage], task_try: TaskTry, sessions: Iterable[str] = ()) -> list[JobLineage]:
    """Spark jobs of a try: their runs are children of the task run, the jobs downstream of the task's job.

    A query's run (of jobs that are not coalesced) stays the child of its application's, and one of a Hive session that
    of its session. What the events do not tell of a run's kind and data interval is that of the DAG run.

    :param sessions: URNs of the sessions' runs.
    """
    runs = {job.run_urn for job in jobs} | set(sessions)
    return [
        structs.replace(
            job,
            parent_instance=job.parent_instance if job.parent_instance in runs else task_try.urn,
            upstream_jobs=tuple(dict.fromkeys((*job.upstream_jobs, task_try.job_urn))),
            run=replace(
                job.run,
                run_type=job.run.run_type or task_try.dag_run.kind,
                interval=job.run.interval or task_try.dag_run.interval,
            ),
        )
        for job in jobs
    ]


def task_proposals(task_try: TaskTry, jobs: Sequence[JobLineage] | None = None) -> list[Proposal]:
    """The Airflow side of a try: the DAG with its run, the task with its run, parents before children.

    :param jobs: what the task's Spark applications did; ``None`` where this try tells nothing of it: it still runs,
        or it only delivered what an earlier one collected.
    """
    proposals = list(_dag_run(task_try.dag_run, written_by_plugin=task_try.written_by_plugin))
    if task_try.written_by_plugin:
        return [*proposals, _task_relationships(task_try)]
    proposals += _task_entities(task_try)
    if jobs is not None:
        proposals += _task_datasets(task_try, jobs)
    return [*proposals, *_task_events(task_try)]


def _task_datasets(task_try: TaskTry, jobs: Sequence[JobLineage]) -> list[Proposal]:
    inputs = _edges(job.inputs for job in jobs)
    outputs = _edges(job.outputs for job in jobs)
    return [
        Proposal(KIND, task_try.urn, "dataProcessInstanceInput", {"inputs": list(inputs)}),
        Proposal(KIND, task_try.urn, "dataProcessInstanceOutput", {"outputs": list(outputs)}),
        *input_output(
            task_try.job_urn,
            inputs=inputs,
            outputs=outputs,
            upstream_jobs=task_try.upstream_job_urns,
            fine_grained=[],
            time_ms=task_try.end_ms or max((job.end_ms or 0 for job in jobs), default=None),
            adds_only=task_try.result != "SUCCESS" or not jobs or any(job.adds_only for job in jobs),
        ),
    ]


def _edges(datasets: Iterable[Mapping[str, JobDataset]]) -> dict[str, Mapping[str, str]]:
    """The datasets of several jobs with the properties of their edges: none, where one job knows the edge for sure."""
    found: dict[str, Mapping[str, str]] = {}
    for several in datasets:
        for urn, dataset in several.items():
            if dataset.edge_properties:
                found.setdefault(urn, dataset.edge_properties)
            else:
                found[urn] = {}
    return dict(sorted(found.items()))


def dag_run_ended(dag_run: DagRun, end_ms: int, result: Literal["SUCCESS", "FAILURE"]) -> list[Proposal]:
    """The end of a DAG run, with the run itself, whose tasks may not have delivered it."""
    duration = end_ms - dag_run.start_ms if dag_run.start_ms is not None else None
    outcome = {"type": result, "nativeResultType": ORCHESTRATOR}
    return [
        *_dag_run(dag_run, written_by_plugin=True),
        run_event(
            dag_run.urn,
            end_ms,
            "COMPLETE",
            result=outcome,
            interval=dag_run.interval,
            durationMillis=duration,
            externalUrl=dag_run.url,
        ),
    ]


def _dag_run(dag_run: DagRun, *, written_by_plugin: bool) -> Iterator[Proposal]:
    flow_urn = dag_run.site.flow_urn(dag_run.dag_id)
    if not written_by_plugin:
        yield Proposal("dataFlow", flow_urn, "dataFlowInfo", _flow_info(dag_run))
        yield status("dataFlow", flow_urn)
        if dag_run.site.platform_instance:
            yield platform_instance("dataFlow", flow_urn, ORCHESTRATOR, dag_run.site.platform_instance)
    yield from run_properties(
        dag_run.urn,
        name=f"{dag_run.dag_id}_{dag_run.run_id}",
        created_ms=dag_run.start_ms,
        custom={"dag_id": dag_run.dag_id, "run_id": dag_run.run_id, **_interval_properties(dag_run)},
        url=dag_run.url,
        run_type=dag_run.kind,
    )
    relationships = {"parentTemplate": flow_urn, "upstreamInstances": []}
    yield Proposal(KIND, dag_run.urn, "dataProcessInstanceRelationships", relationships)
    if dag_run.start_ms is not None:
        yield run_event(dag_run.urn, dag_run.start_ms, "STARTED", interval=dag_run.interval, externalUrl=dag_run.url)


def _interval_properties(dag_run: DagRun) -> dict[str, str]:
    if dag_run.interval is None:
        return {}
    start_ms, end_ms = dag_run.interval.start_ms, dag_run.interval.end_ms
    return {"data_interval_start": iso_instant(start_ms), "data_interval_end": iso_instant(end_ms)}


def _flow_info(dag_run: DagRun) -> dict[str, Any]:
    info: dict[str, Any] = {"customProperties": {}}
    if dag_run.dag_url:
        info["externalUrl"] = dag_run.dag_url
    info["name"] = dag_run.dag_id
    if dag_run.dag_description:
        info["description"] = dag_run.dag_description
    return info


def _task_entities(task_try: TaskTry) -> Iterator[Proposal]:
    run, urn = task_try.dag_run, task_try.job_urn
    info = {
        "customProperties": {},
        "name": task_try.task_id,
        "type": _TASK_TYPE,
        "flowUrn": run.site.flow_urn(run.dag_id),
    }
    yield Proposal("dataJob", urn, "dataJobInfo", info)
    yield status("dataJob", urn)
    mapped = {"map_index": str(task_try.map_index)} if task_try.map_index >= 0 else {}
    custom = {"dag_id": run.dag_id, "task_id": task_try.task_id, "run_id": run.run_id, **mapped}
    yield from run_properties(
        task_try.urn,
        name=f"{run.dag_id}_{task_try.task_id}_{run.run_id}{f'_{task_try.map_index}' if mapped else ''}",
        created_ms=task_try.start_ms,
        custom=custom | _interval_properties(run),
        url=task_try.log_url,
        run_type=run.kind,
    )
    yield _task_relationships(task_try)


def _task_relationships(task_try: TaskTry) -> Proposal:
    relationships = {
        "parentTemplate": task_try.job_urn,
        "parentInstance": task_try.dag_run.urn,
        "upstreamInstances": task_try.upstream_run_urns,
    }
    return Proposal(KIND, task_try.urn, "dataProcessInstanceRelationships", relationships)


def _task_events(task_try: TaskTry) -> Iterator[Proposal]:
    told: dict[str, Any] = {
        "interval": task_try.dag_run.interval,
        "attempt": task_try.try_number,
        "externalUrl": task_try.log_url,
    }
    if task_try.start_ms is not None:
        yield run_event(task_try.urn, task_try.start_ms, "STARTED", **told)
    if task_try.end_ms is None or task_try.result is None:
        return
    yield run_event(
        task_try.urn,
        task_try.end_ms,
        "COMPLETE",
        result={"type": task_try.result, "nativeResultType": ORCHESTRATOR},
        durationMillis=task_try.end_ms - task_try.start_ms if task_try.start_ms is not None else None,
        **told,
    )
