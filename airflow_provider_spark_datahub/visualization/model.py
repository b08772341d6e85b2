"""The parts of the URNs that a picture shows.

The graph that a picture shows: the runs with their attempts, and the lineage of the jobs.

Names as they may stand in a terminal: short, and unable to steer it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

_DATASET = re.compile(r"urn:li:dataset:\(urn:li:dataPlatform:([^,]+),(.*),([^,]+)\)", re.DOTALL)
_FIELD = re.compile(r"urn:li:schemaField:\((urn:li:dataset:\(.*\)),(.*)\)", re.DOTALL)
_FLOW = re.compile(r"urn:li:dataFlow:\(([^,]+),(.*),([^,]+)\)", re.DOTALL)
_JOB = re.compile(r"urn:li:dataJob:\((urn:li:dataFlow:\(.*\)),([^,]*)\)", re.DOTALL)
_TYPE_OF_PATH = re.compile(r"\[(?:version|type|key)=[^\]]*\]\.?")
_ENCODED = re.compile(r"%(25|28|29|2C)", re.IGNORECASE)


def decoded(part: str) -> str:
    """A part of a URN without the %-encoding that acryl-datahub gives its reserved ``%``, ``,``, ``(`` and ``)``."""
    return _ENCODED.sub(lambda match: chr(int(match[1], 16)), part)


def dataset_parts(urn: str) -> tuple[str, str, str] | None:
    """Platform, name and environment of a dataset's URN."""
    match = _DATASET.fullmatch(urn)
    return (decoded(match[1]), decoded(match[2]), match[3]) if match else None


def field_parts(urn: str) -> tuple[str, str] | None:
    """The dataset's URN and the field path of a schemaField's URN."""
    match = _FIELD.fullmatch(urn)
    return (match[1], decoded(match[2])) if match else None


def plain_path(path: str) -> str:
    """A field path without the types that version 2 of DataHub's field paths holds in brackets."""
    return _TYPE_OF_PATH.sub("", path).removesuffix(".") or path


def flow_parts(urn: str) -> tuple[str, str] | None:
    """Orchestrator and flow id of a DataFlow's URN."""
    match = _FLOW.fullmatch(urn)
    return (decoded(match[1]), decoded(match[2])) if match else None


def job_parts(urn: str) -> tuple[str, str] | None:
    """The DataFlow's URN and the job id of a DataJob's URN."""
    match = _JOB.fullmatch(urn)
    return (match[1], decoded(match[2])) if match else None


def orchestrator_of(urn: str) -> str | None:
    """The orchestrator of a DataFlow or DataJob."""
    job = job_parts(urn)
    flow = flow_parts(job[0] if job else urn)
    return flow[0] if flow else None


def last_part(urn: str) -> str:
    """What remains of any URN without ``urn:li:<entity type>:``."""
    return decoded(urn.split(":", 3)[-1])


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


LONGEST_NAME = 300
"""Characters of a name that are shown at most; a query or a plan may have ended up in one."""
LONGEST_QUERY = 20_000
"""Characters of a query that are shown at most."""

_STEERING = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_VARIATION_SELECTOR = re.compile("[\ufe00-\ufe0f]")


def harmless(text: str, encoding: str = "utf-8") -> str:
    r"""The text without anything that a terminal would obey or that would break a line.

    Control, direction and other invisible characters become visible escapes (``\x1b``), as does what the encoding
    cannot express.
    """
    return _visible(_cut(text, LONGEST_NAME), encoding)


def harmless_lines(text: str) -> str:
    """A query line by line, without anything else that could steer what shows it."""
    return "\n".join(_visible(line, "utf-8") for line in _cut(text, LONGEST_QUERY).expandtabs(4).splitlines())


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 3] + "..."


def _visible(text: str, encoding: str) -> str:
    visible = "".join(_escaped(character) if _steers(character) else character for character in text)
    return visible.encode(encoding, "backslashreplace").decode(encoding)


def _steers(character: str) -> bool:
    return unicodedata.category(character) in _STEERING or bool(_VARIATION_SELECTOR.match(character))


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def short_name(urn: str) -> str:
    """What a person calls an entity: ``hive sales.orders``, ``spark daily``; what is no such URN stays as it is."""
    if dataset_parts(urn):
        return DatasetNames().of(urn).text
    if urn.startswith("urn:li:dataProcessInstance:"):
        return f"run {last_part(urn)}"
    job = job_parts(urn)
    flow = flow_parts(job[0] if job else urn)
    if flow is None:
        return urn
    return " ".join([flow[0], flow[1] if job is None or job[1] == flow[1] else f"{flow[1]}.{job[1]}"])


@dataclass(frozen=True, slots=True)
class DatasetName:
    """A dataset for the eye.

    :param platform: e.g. ``hive``; empty for what is no dataset URN.
    :param name: the name without platform instance.
    :param note: platform instance and environment where they say something, e.g. ``(eu, DEV)``.
    """

    platform: str
    name: str
    note: str = ""

    @property
    def text(self) -> str:
        """All of it, e.g. ``hive sales.orders (DEV)``."""
        return " ".join(part for part in (self.platform, self.name, self.note) if part)

    def tails(self) -> list[str]:
        """Ever longer ends of the name, the last path segment first, all with platform last."""
        segments = [segment for segment in self.name.split("/") if segment]
        ends = ["/".join(segments[-count:]) for count in range(1, len(segments))]
        return [*ends, self.name, self.text]


@dataclass(slots=True)
class DatasetNames:
    """The names of a picture's datasets.

    :param instances: the platform instance of the datasets that have one, by URN.
    :param encoding: what the terminal can show.
    """

    instances: Mapping[str, str] = field(default_factory=dict)
    encoding: str = "utf-8"

    def of(self, urn: str) -> DatasetName:
        """The name of a dataset: platform, name, and what sets it apart from production."""
        parts = dataset_parts(urn)
        if parts is None:
            return DatasetName("", harmless(last_part(urn), self.encoding))
        platform, name, env = parts
        instance = self.instances.get(urn)
        if instance:
            name = name.removeprefix(f"{instance}.")
        notes = [note for note in (instance, env if env != "PROD" else None) if note]
        note = f"({', '.join(notes)})" if notes else ""
        return DatasetName(*(harmless(part, self.encoding) for part in (platform, name, note)))

    def tails(self, urns: Iterable[str]) -> dict[str, str]:
        """Per dataset the shortest end of its name that no other of them has too."""
        names = {urn: self.of(urn) for urn in dict.fromkeys(urns)}
        taken = Counter(tail for name in names.values() for tail in set(name.tails()))
        return {urn: next((end for end in name.tails() if taken[end] == 1), name.text) for urn, name in names.items()}
