"""The graph that every view shows: runs with their attempts, and the lineage of jobs, built from
proposals.

The latest aspect wins, run events add up, patches change edges.

Tests: ``tests/visualization/test_graph.py``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Struct

from airflow_provider_spark_datahub.conversion import APPLICATION_JOB, Proposal
from airflow_provider_spark_datahub.foundation.text import counted
from airflow_provider_spark_datahub.visualization.names import Column, JobParts, harmless, last_part

MOST_UPSTREAMS = 6
"""Upstream runs that a view names; a mapped task has as many as its upstream task has map indexes.
"""
_TRACEBACK = "Traceback (most recent call last):"
_COUNT = re.compile("[0-9]{1,18}")
_TRANSFORMATION_TYPES = re.compile(r"(IN)?DIRECT:[A-Z_]+(,(IN)?DIRECT:[A-Z_]+)*")
_RUN = "dataProcessInstance"
_STATEMENT = (
    "statement."  # prefix of the job properties with the statements that edges name as evidence
)
_NO_QUERY_PARTS = (
    3  # parts that follow the transformation in a patch's path: downstream, query, upstream
)
_LATEST_WINS = {
    "dataProcessInstanceProperties": _RUN,
    "dataProcessInstanceRelationships": _RUN,
    "dataProcessInstanceInput": _RUN,
    "dataProcessInstanceOutput": _RUN,
    "dataJobInfo": "dataJob",
    "dataPlatformInstance": "dataset",
    "schemaMetadata": "dataset",
}
_PATCHED_SIDES = {
    "inputDatasetEdges": "inputs",
    "outputDatasetEdges": "outputs",
    "inputDatajobEdges": "jobs",
}

_Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class RunKind(StrEnum):
    """Kind of a DataProcessInstance, by its template."""

    DAG_RUN = "DAG run"
    TASK_RUN = "task"
    APPLICATION_RUN = "application"
    UNKNOWN = "run"

    @classmethod
    def of(cls, template: str | None) -> RunKind:
        """Return the kind of the runs of a DataFlow or DataJob."""
        parts = JobParts.of(template or "")
        if parts.orchestrator is None:
            return cls.UNKNOWN
        if parts.orchestrator != "airflow":
            return cls.APPLICATION_RUN
        return cls.DAG_RUN if parts.job is None else cls.TASK_RUN


class _Result(Struct, frozen=True):
    type: str | None = None


class _RunStateEvent(Struct, frozen=True):
    """Content of a ``dataProcessInstanceRunEvent``; time (since 1970 UTC) and duration in
    milliseconds.

    :param attempt: the try number, from 1.
    """

    time: _Long = msgspec.field(name="timestampMillis")
    status: Literal["STARTED", "COMPLETE"]
    attempt: _Long | None = None
    outcome: _Result | None = msgspec.field(default=None, name="result")
    duration: _Long | None = msgspec.field(default=None, name="durationMillis")

    @property
    def result(self) -> str | None:
        """The result of a ``COMPLETE`` event: ``SUCCESS``, ``FAILURE``, ``UP_FOR_RETRY`` or
        ``SKIPPED``.
        """
        return self.outcome.type or None if self.outcome else None

    def attempt_among(self, attempts: Sequence[Attempt]) -> Attempt | None:
        """Return the known attempt that the event belongs to.

        DataHub's own Airflow plugin names the attempt when it starts, but not when it ends.
        """
        if self.attempt is not None:
            return next((attempt for attempt in attempts if attempt.number == self.attempt), None)
        still_open = [attempt for attempt in attempts if attempt.ended is None]
        if still_open:
            return still_open[-1]
        return attempts[-1] if attempts and self.status != "STARTED" else None


@dataclass
class Attempt:
    """An attempt of a run, put together from its events; times and duration in milliseconds."""

    number: int | None
    started: int | None = None
    ended: int | None = None
    result: str | None = None
    duration: int | None = None

    @property
    def label(self) -> str:
        """``try 2``, as Airflow counts."""
        return f"try {'?' if self.number is None else self.number}"

    @property
    def state(self) -> str:
        """The result, or ``RUNNING`` until an event reports the end."""
        return self.result or ("COMPLETE" if self.ended is not None else "RUNNING")

    def covers(self, run: RunNode) -> bool:
        """Return whether the run started during this attempt."""
        if run.started is None or self.started is None:
            return False
        return self.started <= run.started and (self.ended is None or run.started <= self.ended)


@dataclass(eq=False)
class RunNode:
    """A DataProcessInstance and the runs below it.

    :param name: the name in its properties, else the last part of its URN.
    :param template: the URN of the DataFlow or DataJob that it is a run of.
    :param job_name: the name of that DataJob, if it has one.
    :param parent: the URN of the run that it belongs to, even if no proposal is about that run.
    :param created: in milliseconds since 1970 UTC.
    :param events: in order of time.
    :param children: by time.
    :param upstreams: the URNs of the runs that came before it.
    """

    urn: str
    name: str
    kind: RunKind = RunKind.UNKNOWN
    template: str | None = None
    job_name: str | None = None
    parent: str | None = None
    created: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    external_url: str | None = None
    events: tuple[_RunStateEvent, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    upstreams: tuple[str, ...] = ()
    children: list[RunNode] = field(default_factory=list, repr=False)

    @property
    def started(self) -> int | None:
        """The time of the first event, else of the creation, in milliseconds since 1970 UTC."""
        return self.events[0].time if self.events else self.created

    @property
    def state(self) -> str:
        """The state of the last attempt; empty without one."""
        attempts = self.attempts()
        return attempts[-1].state if attempts else ""

    @property
    def error(self) -> str | None:
        """Spark's message about the run's failure, in one or more lines; ``None`` without a failure
        or a message.
        """
        failed = self.state not in ("", "SUCCESS", "RUNNING", "SKIPPED")
        return self.properties.get("errorMessage", "").strip() or None if failed else None

    @property
    def reason(self) -> str:
        """The reason of the run's failure in one line; empty if :attr:`error` is ``None``.

        If a Python exception ended a Spark task, Spark's message begins with the task. The
        exception comes after the traceback.
        """
        error = self.error or ""
        first, _, rest = error.partition("\n")
        if first.endswith(_TRACEBACK):
            exception = next(
                (line for line in rest.split("\n") if line and not line[0].isspace()), ""
            )
            return (
                f"{exception} ({first.removesuffix(_TRACEBACK).rstrip(': ')})"
                if exception
                else first
            )
        return first

    def attempts(self) -> list[Attempt]:
        """Return the attempts by number; if no event names an attempt, there is one without number."""
        attempts: list[Attempt] = []
        for event in sorted(self.events, key=lambda event: (event.time, event.status != "STARTED")):
            attempt = event.attempt_among(attempts)
            if attempt is None:
                attempts.append(attempt := Attempt(event.attempt))
            if event.status == "STARTED":
                attempt.started = event.time if attempt.started is None else attempt.started
            else:
                attempt.ended = event.time
                attempt.result = event.result or attempt.result
                attempt.duration = (
                    event.duration if event.duration is not None else attempt.duration
                )
        for attempt in attempts:
            if (
                attempt.duration is None
                and attempt.started is not None
                and attempt.ended is not None
            ):
                attempt.duration = attempt.ended - attempt.started
        return sorted(attempts, key=lambda attempt: attempt.number or 0)

    def only_attempt(self) -> Attempt | None:
        """Return the attempt of a run whose events name no attempts: it is shown on the line of the
        run itself.
        """
        attempts = self.attempts()
        return (
            attempts[-1]
            if attempts and all(attempt.number is None for attempt in attempts)
            else None
        )

    def title(self) -> tuple[str, str, str]:
        """Return the kind, the name, and a note that identifies the run if the name does not."""
        orchestrator, flow, job = JobParts.of(self.template or "")
        subject = flow if job is None else self.job_name or job
        kind = (
            str(orchestrator).capitalize()
            if self.kind is RunKind.APPLICATION_RUN
            else str(self.kind)
        )
        if subject is None:
            return kind, harmless(self.name), ""
        if self.kind is RunKind.TASK_RUN:
            index = self.properties.get("map_index", "-1")
            return kind, harmless(subject if index == "-1" else f"{subject}[{index}]"), ""
        note = self.properties.get("run_id") or self.name.removeprefix(f"{subject}_")
        return harmless(kind), harmless(subject), harmless(note)


@dataclass(frozen=True)
class TreeItem:
    """An item of the displayed run tree: a run, or one of its attempts with the runs that started
    during it.
    """

    run: RunNode
    attempt: Attempt | None = None
    runs_during: tuple[RunNode, ...] = ()

    @property
    def shown_attempt(self) -> Attempt | None:
        """The attempt on the item's line."""
        return self.attempt or self.run.only_attempt()

    @property
    def fails(self) -> bool:
        """Whether the attempt, or the last one of the run, failed."""
        return (self.attempt or self.run).state == "FAILURE"

    def children(self) -> list[TreeItem]:
        """Return the attempts of a run, each with the applications that started during it, then all
        other runs.
        """
        if self.attempt is not None:
            return [TreeItem(run) for run in self.runs_during]
        attempts = self.run.attempts()
        remaining = list(self.run.children)
        items = []
        if any(attempt.number is not None for attempt in attempts):
            for attempt in attempts:
                during = [
                    run
                    for run in remaining
                    if run.kind is RunKind.APPLICATION_RUN and attempt.covers(run)
                ]
                remaining = [run for run in remaining if run not in during]
                items.append(TreeItem(self.run, attempt, tuple(during)))
        return [*items, *(TreeItem(run) for run in remaining)]


@dataclass(frozen=True)
class ColumnLineage:
    """The columns that an output column comes from.

    :param transformation: as in the proposal. OpenLineage's types may come first (``--
        DIRECT:IDENTITY``), the query on the lines below them.
    """

    output: Column
    inputs: tuple[Column, ...]
    transformation: str | None = None

    def labels(self) -> tuple[str, ...]:
        """Return the transformations in a few words: ``("identity", "indirect filter")``, else
        their first line.
        """
        return _labels_and_query(self.transformation or "")[0]

    def query(self) -> str:
        """Return the query: the lines below the types; all lines if there are several and the first
        has no types.
        """
        return _labels_and_query(self.transformation or "")[1]


@lru_cache(maxsize=32)  # the columns that one statement writes have few different ones
def _labels_and_query(transformation: str) -> tuple[tuple[str, ...], str]:
    first, _, rest = transformation.strip().partition("\n")
    first, rest = first.strip().removeprefix("-- ").strip(), rest.strip()
    if not _TRANSFORMATION_TYPES.fullmatch(first):
        return (first,), f"{first}\n{rest}" if rest else ""
    kinds = (
        kind.removeprefix("DIRECT:").replace(":", " ").replace("_", " ").lower()
        for kind in first.split(",")
    )
    return tuple(kinds), rest


_SOURCES = {
    "EVENT": "OpenLineage's events",
    "STATEMENT": "the statement",
    "SPARK_PLAN": "the plan in Spark's event log",
    "STREAMING_PROGRESS": "the progress of the streaming query",
    "UI": "entered by hand in DataHub",
}


@dataclass(frozen=True)
class EdgeQuery:
    """A query that is evidence of an edge.

    :param run: OpenLineage's run id; ``execution 7`` for an execution that is only in Spark's event
        log.
    :param statement: the query's statement, or else its name in the events; empty if neither is
        known.
    """

    run: str
    statement: str = ""


@dataclass(frozen=True)
class EdgeEvidence:
    """Evidence of a job's edge: its source and its queries.

    :param source: as in the edge's properties, such as ``EVENT``.
    :param more_queries: number of further queries, which are not listed.
    """

    source: str
    queries: tuple[EdgeQuery, ...] = ()
    more_queries: int = 0

    @classmethod
    def of(
        cls, properties: Mapping[str, str], statements: Mapping[str, str]
    ) -> EdgeEvidence | None:
        """Read the properties of an edge; ``None`` if they do not name its source.

        :param statements: statements of the job, by id.
        """
        if "source" not in properties:
            return None
        pairs = [
            query.partition(" ") for query in properties.get("queries", "").split(", ") if query
        ]
        queries = [EdgeQuery(run_id, statements.get(identity, "")) for run_id, _, identity in pairs]
        executions = [number for number in properties.get("executions", "").split(", ") if number]
        more = [properties.get(name, "") for name in ("moreQueries", "moreExecutions")]
        return cls(
            properties["source"],
            (*queries, *(EdgeQuery(f"execution {number}") for number in executions)),
            sum(int(count) for count in more if _COUNT.fullmatch(count)),
        )

    @property
    def words(self) -> str:
        """The source for people."""
        return " and ".join(_SOURCES.get(source, source) for source in self.source.split(", "))

    def to_obj(self) -> dict[str, Any]:
        """Return the evidence as JSON."""
        return asdict(self, dict_factory=json_object)


def json_object(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the fields of a dataclass as JSON; empty texts are null."""
    return {name: None if value == "" else value for name, value in pairs}


@dataclass(frozen=True)
class GraphJob:
    """A DataJob with its edges, or a Spark job with those of all its DataJobs.

    :param name: the name in its ``dataJobInfo``, else its id.
    :param inputs: the evidence of the edge, if it is known, by dataset URN; ``outputs`` likewise.
    :param upstream_jobs: the URNs of the DataJobs that it names as inputs: the Airflow task that
        started it.
    :param writes: the DataJobs of a Spark job, each with its URN and name.
    """

    urn: str
    name: str
    inputs: Mapping[str, EdgeEvidence | None] = field(default_factory=dict)
    outputs: Mapping[str, EdgeEvidence | None] = field(default_factory=dict)
    columns: tuple[ColumnLineage, ...] = ()
    upstream_jobs: tuple[str, ...] = ()
    writes: tuple[GraphJob, ...] = field(default=(), repr=False)

    @classmethod
    def of_writes(cls, urn: str, name: str, writes: Iterable[GraphJob]) -> GraphJob:
        """Return a job with the edges of all its DataJobs."""
        ordered = by_rank([write for write in writes if write.dataset_edges() or write.columns])
        inputs: dict[str, EdgeEvidence | None] = {}
        outputs: dict[str, EdgeEvidence | None] = {}
        for write in ordered:
            inputs |= write.inputs
            outputs |= write.outputs
        columns = tuple(lineage for write in ordered for lineage in write.columns)
        return cls(urn, name, inputs, outputs, columns, writes=tuple(ordered))

    def steps(self) -> list[GraphJob]:
        """Return a step for each DataJob of the job with datasets, numbered if there are several."""
        count = len(self.writes)
        if count == 1:
            return list(self.writes)
        return [
            replace(write, name=f"{self.name} {number}/{count}")
            for number, write in enumerate(self.writes, 1)
        ]

    def dataset_edges(self) -> set[tuple[str, str]]:
        """Return the edges to datasets, each with its direction."""
        return {("reads", urn) for urn in self.inputs} | {("writes", urn) for urn in self.outputs}


def by_rank(jobs: Sequence[GraphJob]) -> list[GraphJob]:
    """Sort jobs so that each follows the writers of its inputs; from a cycle on, they keep their
    order.
    """
    writers: dict[str, list[int]] = {}
    for number, job in enumerate(jobs):
        for urn in job.outputs:
            writers.setdefault(urn, []).append(number)
    ranks = TopologicalSorter(
        {
            number: {
                writer for urn in job.inputs for writer in writers.get(urn, ()) if writer != number
            }
            for number, job in enumerate(jobs)
        }
    )
    with suppress(CycleError):
        ranks.prepare()
    order: list[int] = []
    while rank := ranks.get_ready():
        order += sorted(rank)
        ranks.done(*rank)
    return [jobs[number] for number in dict.fromkeys([*order, *range(len(jobs))])]


@dataclass(frozen=True)
class Graph:
    """Runs, jobs and schemas of a set of proposals.

    :param roots: the runs whose parent is not there, by time.
    :param jobs: the DataJobs that have lineage, in the order of the proposals.
    :param instances: the platform instances by dataset URN.
    :param schemas: by dataset URN, the type of each column (``decimal(10,2)``) by its path
        (``address.street``).
    :param read: number of all proposals.
    :param problems: one sentence for each proposal that was skipped and each contradiction that was
        resolved.
    """

    roots: tuple[RunNode, ...] = ()
    jobs: tuple[GraphJob, ...] = ()
    instances: Mapping[str, str] = field(default_factory=dict)
    schemas: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    read: int = 0
    problems: tuple[str, ...] = ()

    @classmethod
    def of(cls, proposals: Iterable[Proposal]) -> Graph:
        """Build the graph of a set of proposals.

        The last ``UPSERT`` of an aspect replaces those before it. Run events add up, duplicates are
        dropped. A ``PATCH`` of ``dataJobInputOutput`` changes the edges that are known at that
        point. Malformed proposals are skipped and reported in :attr:`problems`.
        """
        builder = _GraphBuilder()
        for proposal in proposals:
            builder.take(proposal)
        return builder.graph()

    def listed_problems(self, most: int) -> list[str]:
        """Return the first problems, and a line with the number of the others."""
        more = len(self.problems) - most
        return [*self.problems[:most], *([f"and {more} more like these"] if more > 0 else [])]

    def why_nothing(self) -> str:
        """Return the reason why there is neither a run nor lineage to show."""
        if not self.read:
            return "there are no proposals."
        if len(self.problems) == self.read:
            return f"none of {counted(self.read, 'proposal')} can be read."
        return f"{counted(self.read, 'proposal')}, but none of a run or of what a job reads and writes."

    def last_runs(self) -> dict[str, RunNode]:
        """Return the last run of each DataFlow or DataJob that has begun, by its URN."""
        begun = sorted((run for run in self.runs() if run.events), key=lambda run: run.started or 0)
        return {run.template: run for run in begun if run.template}

    def runs(self) -> Iterable[RunNode]:
        """Yield every run, parents first."""
        waiting = list(reversed(self.roots))
        while waiting:
            run = waiting.pop()
            yield run
            waiting.extend(reversed(run.children))

    def distinct_jobs(self) -> list[GraphJob]:
        """Return the jobs without Airflow tasks that only repeat the lineage of the Spark
        applications they started.

        Without DataHub's own plugin, an Airflow task has the datasets of its Spark job. If both
        were drawn, each edge would appear twice.
        """
        started: dict[str, set[tuple[str, str]]] = {}
        for job in self.jobs:
            for upstream in job.upstream_jobs:
                if upstream != job.urn and JobParts.of(job.urn).orchestrator != "airflow":
                    started.setdefault(upstream, set()).update(job.dataset_edges())
        return [
            job
            for job in self.jobs
            if job.urn not in started or not job.dataset_edges() <= started[job.urn]
        ]

    def steps(self) -> list[GraphJob]:
        """Return the steps of all distinct jobs."""
        return [step for job in self.distinct_jobs() for step in job.steps()]


# Aspects, as far as a view shows them. Lists and texts may be missing or null.


class _EdgeProperties(Struct):
    properties: dict[str, str] | None = None


class _Edge(_EdgeProperties, rename="camel", kw_only=True):
    destination_urn: str


class _Created(Struct):
    time: _Long | None = None


class _Field(Struct, rename="camel"):
    field_path: str
    native_data_type: str | None = None


class _ColumnEdge(Struct, rename="camel"):
    upstreams: list[str] | None = None
    downstreams: list[str] | None = None
    transform_operation: str | None = None


class _Aspect(Struct, rename="camel"):
    """An aspect; each has some of these fields."""

    name: str | None = None
    created: _Created | None = None
    custom_properties: dict[str, str] | None = None
    external_url: str | None = None
    parent_template: str | None = None
    parent_instance: str | None = None
    upstream_instances: list[str] | None = None
    inputs: list[str] | None = None
    input_edges: list[_Edge] | None = None
    outputs: list[str] | None = None
    output_edges: list[_Edge] | None = None
    instance: str | None = None
    fields: list[_Field] | None = None
    input_datasets: list[str] | None = None
    output_datasets: list[str] | None = None
    input_datajobs: list[str] | None = None
    input_dataset_edges: list[_Edge] | None = None
    output_dataset_edges: list[_Edge] | None = None
    input_datajob_edges: list[_Edge] | None = None
    fine_grained_lineages: list[_ColumnEdge] | None = None


class _Operation(Struct):
    op: Literal["add", "remove", "replace"]
    path: Annotated[str, msgspec.Meta(pattern="^/")]
    value: Any = None


_NOTHING = _Aspect()


class _GraphBuilder:
    def __init__(self) -> None:
        self.read = 0
        self.problems: list[str] = []
        self.latest: dict[str, dict[str, _Aspect]] = {}
        self.events: dict[str, dict[_RunStateEvent, None]] = {}
        self.edges: dict[str, _Edges] = {}

    def take(self, proposal: Proposal) -> None:
        self.read += 1
        try:
            self._take_aspect(proposal.entity_urn, proposal.aspect_name, proposal)
        except msgspec.ValidationError as error:
            self.problems.append(
                f"{proposal.aspect_name} of {proposal.entity_urn} skipped: {error}"
            )

    def _take_aspect(self, urn: str, name: str, proposal: Proposal) -> None:
        if not urn.startswith("urn:li:"):
            raise msgspec.ValidationError("the entity has no valid URN")
        patch = proposal.change_type == "PATCH"
        if name == "dataJobInputOutput":
            edges = self.edges.get(urn, _Edges())
            self.edges[urn] = (
                edges.patched(proposal.aspect) if patch else _Edges.of_aspect(proposal.aspect)
            )
        elif patch:
            return  # of an aspect that no view shows
        elif name == "dataProcessInstanceRunEvent":
            event = msgspec.convert(proposal.aspect, _RunStateEvent)
            self.events.setdefault(urn, {})[event] = None
        elif _LATEST_WINS.get(name) == proposal.entity_type:
            self.latest.setdefault(urn, {})[name] = msgspec.convert(proposal.aspect, _Aspect)

    def graph(self) -> Graph:
        urns = dict.fromkeys([*self.latest, *self.events])
        runs = {urn: self._run(urn) for urn in urns if urn.startswith(f"urn:li:{_RUN}:")}
        return Graph(
            roots=tuple(self._tree(runs)),
            jobs=tuple(self._jobs(runs.values())),
            instances={
                urn: last_part(instance).strip("()").split(",")[-1]
                for urn, aspects in self.latest.items()
                if (instance := aspects.get("dataPlatformInstance", _NOTHING).instance)
            },
            schemas={
                urn: {
                    Column.plain_path(each.field_path): each.native_data_type or ""
                    for each in schema.fields or ()
                }
                for urn, aspects in self.latest.items()
                if (schema := aspects.get("schemaMetadata"))
            },
            read=self.read,
            problems=tuple(self.problems),
        )

    def _aspect(self, urn: str | None, name: str) -> _Aspect:
        return self.latest.get(urn or "", {}).get(name, _NOTHING)

    def _run(self, urn: str) -> RunNode:
        properties = self._aspect(urn, "dataProcessInstanceProperties")
        relationships = self._aspect(urn, "dataProcessInstanceRelationships")
        reads = self._aspect(urn, "dataProcessInstanceInput")
        writes = self._aspect(urn, "dataProcessInstanceOutput")
        template = relationships.parent_template or None
        return RunNode(
            urn=urn,
            name=properties.name or last_part(urn),
            kind=RunKind.of(template),
            template=template,
            job_name=self._aspect(template, "dataJobInfo").name or None,
            parent=relationships.parent_instance or None,
            created=properties.created.time if properties.created else None,
            properties=properties.custom_properties or {},
            external_url=properties.external_url or None,
            events=tuple(sorted(self.events.get(urn, {}), key=lambda event: event.time)),
            inputs=tuple(_properties_by_urn(reads.input_edges, reads.inputs)),
            outputs=tuple(_properties_by_urn(writes.output_edges, writes.outputs)),
            upstreams=tuple(relationships.upstream_instances or ()),
        )

    def _jobs(self, runs: Iterable[RunNode]) -> Iterator[GraphJob]:
        """Yield each Spark job with its DataJobs and what only its last run names as read, and every
        other DataJob.
        """
        writes: dict[str, list[GraphJob]] = {}
        for urn, edges in self.edges.items():
            properties = self._aspect(urn, "dataJobInfo").custom_properties or {}
            job_urn = properties.get(APPLICATION_JOB, urn)
            writes.setdefault(job_urn, []).append(self._write(job_urn, edges))
        last_runs = {run.template: run for run in runs if run.kind is RunKind.APPLICATION_RUN}
        for template, run in last_runs.items():
            job_urn = template or ""
            known = {urn for write in writes.get(job_urn, ()) for urn in write.inputs}
            inputs = dict.fromkeys(urn for urn in run.inputs if urn not in known)
            if inputs:
                reads = replace(self._write(job_urn, _Edges()), inputs=inputs)
                writes.setdefault(job_urn, []).append(reads)
        for urn, of_job in writes.items():
            job = GraphJob.of_writes(urn, of_job[0].name, of_job)
            yield replace(job, upstream_jobs=of_job[0].upstream_jobs)

    def _write(self, job_urn: str, edges: _Edges) -> GraphJob:
        """Return a DataJob, with name, URN and statements of its Spark job."""
        info, job_id = self._aspect(job_urn, "dataJobInfo"), JobParts.of(job_urn).job
        statements = {
            key.removeprefix(_STATEMENT): text
            for key, text in (info.custom_properties or {}).items()
            if key.startswith(_STATEMENT)
        }
        columns = tuple(
            ColumnLineage(output, tuple(inputs), transformation)
            for (output, transformation), inputs in edges.columns.items()
        )
        inputs, outputs = (
            {
                dataset: EdgeEvidence.of(properties, statements)
                for dataset, properties in side.items()
            }
            for side in (edges.inputs, edges.outputs)
        )
        name = info.name or (last_part(job_urn) if job_id is None else job_id)
        return GraphJob(job_urn, name, inputs, outputs, columns, tuple(edges.jobs))

    def _tree(self, runs: Mapping[str, RunNode]) -> list[RunNode]:
        """Put every run below its parent, and return the runs without one, all by time."""
        roots: list[RunNode] = []
        for run in sorted(
            runs.values(),
            key=lambda run: (math.inf if run.started is None else run.started, run.name),
        ):
            siblings = runs[run.parent].children if run.parent and run.parent in runs else roots
            siblings.append(run)
        shown = {run.urn for run in Graph(tuple(roots)).runs()}
        self.problems += (
            f"{urn} is not shown: its parents form a cycle" for urn in runs if urn not in shown
        )
        return roots


class _Edges(Struct):
    """Edges of a DataJob, in the order in which the proposals name them; those to datasets with
    their properties.

    :param columns: the input columns by output column and transformation.
    """

    inputs: dict[str, Mapping[str, str]] = {}
    outputs: dict[str, Mapping[str, str]] = {}
    jobs: dict[str, Mapping[str, str]] = {}
    columns: dict[tuple[Column, str | None], dict[Column, None]] = {}

    @classmethod
    def of_aspect(cls, value: Any) -> _Edges:
        """Return the edges of a whole ``dataJobInputOutput`` aspect."""
        aspect = msgspec.convert(value, _Aspect)
        edges = cls(
            inputs=_properties_by_urn(aspect.input_dataset_edges, aspect.input_datasets),
            outputs=_properties_by_urn(aspect.output_dataset_edges, aspect.output_datasets),
            jobs=_properties_by_urn(aspect.input_datajob_edges, aspect.input_datajobs),
        )
        for lineage in aspect.fine_grained_lineages or ():
            for downstream in lineage.downstreams or ():
                edges._add_column(downstream, lineage.transform_operation, lineage.upstreams or ())
        return edges

    def patched(self, patch: Any) -> _Edges:
        """Return these edges with a JSON patch applied; operations on other parts of the aspect are
        ignored.
        """
        operations = patch.get("patch") if isinstance(patch, Mapping) else patch
        columns = {key: dict(inputs) for key, inputs in self.columns.items()}
        edges = _Edges(dict(self.inputs), dict(self.outputs), dict(self.jobs), columns)
        for operation in msgspec.convert(operations, list[_Operation]):
            edges._apply(operation)
        return edges

    def _add_column(
        self, downstream: str, transformation: str | None, upstreams: Sequence[str]
    ) -> None:
        sources = self.columns.setdefault((_column(downstream), transformation or None), {})
        sources.update(dict.fromkeys(map(_column, upstreams)))

    def _apply(self, operation: _Operation) -> None:
        first, *rest = (
            part.replace("~1", "/").replace("~0", "~") for part in operation.path[1:].split("/")
        )
        if first in _PATCHED_SIDES and rest:
            side: dict[str, Mapping[str, str]] = getattr(self, _PATCHED_SIDES[first])
            if operation.op == "remove":
                side.pop("/".join(rest), None)
            else:
                side["/".join(rest)] = (
                    msgspec.convert(operation.value or {}, _EdgeProperties).properties or {}
                )
        elif first == "fineGrainedLineages" and len(rest) > _NO_QUERY_PARTS:
            self._apply_column(rest, operation.op)

    def _apply_column(self, parts: list[str], kind: str) -> None:
        # Some producers do not escape the "/" of a query, which splits the transformation: count
        # from the end.
        downstream, upstream = parts[-3], parts[-1]
        text = "/".join(parts[:-3])
        transformation = None if text == "NONE" else text
        if kind != "remove":
            self._add_column(downstream, transformation, [upstream])
            return
        key = (_column(downstream), transformation)
        inputs = self.columns.get(key, {})
        inputs.pop(_column(upstream), None)
        if not inputs:
            self.columns.pop(key, None)


def _column(urn: str) -> Column:
    column = Column.of(urn)
    if column is None:
        raise msgspec.ValidationError(f"neither a column nor a dataset: {urn[:100]!r}")
    return column


def _properties_by_urn(
    edges: Sequence[_Edge] | None, urns: Sequence[str] | None
) -> dict[str, Mapping[str, str]]:
    """Return the properties of edges by URN; edges of the older list of plain URNs have none."""
    by_urn: dict[str, Mapping[str, str]] = {
        edge.destination_urn: edge.properties or {} for edge in edges or ()
    }
    return by_urn | {urn: {} for urn in urns or () if urn not in by_urn}
