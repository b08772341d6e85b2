"""The graph that a picture shows: the runs with their attempts, and the lineage of the jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from airflow_provider_spark_datahub.picture.urns import job_parts, orchestrator_of


class RunKind(StrEnum):
    """What a DataProcessInstance is a run of, told from its template."""

    DAG_RUN = "DAG run"
    TASK_RUN = "task"
    APPLICATION_RUN = "application"
    UNKNOWN = "run"


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One ``dataProcessInstanceRunEvent``.

    :param time: when, in milliseconds since 1970 UTC.
    :param status: ``STARTED`` or ``COMPLETE``.
    :param attempt: the try number, from 1.
    :param result: ``SUCCESS``, ``FAILURE``, ``UP_FOR_RETRY`` or ``SKIPPED``; of a ``COMPLETE`` event.
    :param duration: in milliseconds.
    """

    time: int
    status: str
    attempt: int | None = None
    result: str | None = None
    duration: int | None = None


@dataclass(slots=True)
class Attempt:
    """One try of a run, put together from its events; times and duration in milliseconds."""

    number: int | None
    started: int | None = None
    ended: int | None = None
    result: str | None = None
    duration: int | None = None

    @property
    def state(self) -> str:
        """The result, or ``RUNNING`` while no event says that it ended."""
        return self.result or ("COMPLETE" if self.ended is not None else "RUNNING")


@dataclass(slots=True, eq=False)
class RunNode:
    """A DataProcessInstance and what runs under it.

    :param name: the name in its properties, else the last part of its URN.
    :param template: the URN of the DataFlow or DataJob that it is a run of.
    :param parent: the URN of the run that it belongs to, whether that is among the proposals or not.
    :param created: in milliseconds since 1970 UTC.
    :param events: in order of time.
    :param children: upstream runs first, then by time.
    :param upstreams: the URNs of the runs that came before it.
    """

    urn: str
    name: str
    kind: RunKind = RunKind.UNKNOWN
    template: str | None = None
    parent: str | None = None
    created: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    external_url: str | None = None
    events: tuple[RunEvent, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    upstreams: tuple[str, ...] = ()
    children: list[RunNode] = field(default_factory=list, repr=False)

    @property
    def started(self) -> int | None:
        """The time of the first event, else of the creation, in milliseconds since 1970 UTC."""
        return self.events[0].time if self.events else self.created

    def attempts(self) -> list[Attempt]:
        """The tries, by number; a run whose events name no try has one without number."""
        return _attempts(self.events)

    def walk(self) -> Iterable[RunNode]:
        """This run and all below it, parents first."""
        waiting = [self]
        while waiting:
            run = waiting.pop()
            yield run
            waiting.extend(reversed(run.children))


@dataclass(frozen=True, slots=True, order=True)
class Column:
    """A column of a dataset; without a path, the dataset as a whole."""

    dataset: str
    path: str


@dataclass(frozen=True, slots=True)
class ColumnLineage:
    """Where one output column comes from, and by which transformation (as the proposal words it)."""

    output: Column
    inputs: tuple[Column, ...]
    transformation: str | None = None


@dataclass(frozen=True, slots=True)
class SchemaField:
    """A column as a schema states it.

    :param path: without the types that a path of version 2 holds: ``address.street``.
    :param type: as the source names it, e.g. ``decimal(10,2)``.
    """

    path: str
    type: str


@dataclass(frozen=True, slots=True)
class JobLineage:
    """What a DataJob reads and writes.

    :param name: the name in its ``dataJobInfo``, else its id.
    :param inputs: dataset URNs.
    :param outputs: dataset URNs.
    :param upstream_jobs: the URNs of the DataJobs that it names as inputs: the Airflow task that started it.
    """

    urn: str
    name: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    columns: tuple[ColumnLineage, ...] = ()
    upstream_jobs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Graph:
    """All that is shown, and what is not.

    :param roots: the runs without a known parent, upstream runs first, then by time.
    :param jobs: the DataJobs that have lineage, in the order of the proposals.
    :param instances: the platform instance of the datasets that have one.
    :param schemas: the columns of the datasets whose schema is told.
    :param read: how many proposals there were.
    :param unread: how many proposals there were of each aspect that no picture shows.
    :param problems: one sentence for each proposal that was skipped and each contradiction that was resolved.
    """

    roots: tuple[RunNode, ...] = ()
    jobs: tuple[JobLineage, ...] = ()
    instances: Mapping[str, str] = field(default_factory=dict)
    schemas: Mapping[str, tuple[SchemaField, ...]] = field(default_factory=dict)
    read: int = 0
    unread: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def runs(self) -> Iterable[RunNode]:
        """Every run, parents first."""
        for root in self.roots:
            yield from root.walk()

    def telling_jobs(self) -> list[JobLineage]:
        """The jobs without those that only repeat the lineage of the Spark applications that they started.

        Without DataHub's own plugin an Airflow task gets the datasets of its Spark job; to draw both would show
        each edge twice.
        """
        told: dict[str, set[str]] = {}
        for job in self.jobs:
            for upstream in job.upstream_jobs:
                if upstream != job.urn and orchestrator_of(job.urn) != "airflow":
                    told.setdefault(upstream, set()).update(_edges(job))
        return [job for job in self.jobs if job.urn not in told or not _edges(job) <= told[job.urn]]


def _edges(job: JobLineage) -> set[str]:
    return {"<" + urn for urn in job.inputs} | {">" + urn for urn in job.outputs}


def kind_of(template: str | None) -> RunKind:
    """What a run of this DataFlow or DataJob is."""
    if template is None or (orchestrator := orchestrator_of(template)) is None:
        return RunKind.UNKNOWN
    if orchestrator != "airflow":
        return RunKind.APPLICATION_RUN
    return RunKind.TASK_RUN if job_parts(template) else RunKind.DAG_RUN


def _attempts(events: Sequence[RunEvent]) -> list[Attempt]:
    attempts: list[Attempt] = []
    for event in sorted(events, key=lambda event: (event.time, event.status != "STARTED")):
        attempt = _attempt_of(event, attempts)
        if attempt is None:
            attempts.append(attempt := Attempt(event.attempt))
        if event.status == "STARTED":
            attempt.started = event.time if attempt.started is None else attempt.started
        else:
            attempt.ended = event.time
            attempt.result = event.result or attempt.result
            attempt.duration = event.duration if event.duration is not None else attempt.duration
    for attempt in attempts:
        if attempt.duration is None and attempt.started is not None and attempt.ended is not None:
            attempt.duration = attempt.ended - attempt.started
    return sorted(attempts, key=lambda attempt: attempt.number or 0)


def _attempt_of(event: RunEvent, attempts: Sequence[Attempt]) -> Attempt | None:
    """The try that the event belongs to, if it is one already seen.

    DataHub's own Airflow plugin names the try when it starts, but not when it ends.
    """
    if event.attempt is not None:
        return next((attempt for attempt in attempts if attempt.number == event.attempt), None)
    still_open = [attempt for attempt in attempts if attempt.ended is None]
    if still_open:
        return still_open[-1]
    return attempts[-1] if attempts and event.status != "STARTED" else None
