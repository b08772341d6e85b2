"""What a picture on a page shows of a graph's lineage: boxes for datasets and jobs, with their words, and the links."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_spark_datahub.visualization.layout import Layout, Link, Size, lay_out
from airflow_provider_spark_datahub.visualization.model import (
    Column,
    ColumnLineage,
    DatasetName,
    DatasetNames,
    Graph,
    JobLineage,
    SchemaField,
    flow_parts,
    harmless,
    harmless_lines,
    job_parts,
    orchestrator_of,
    plain_path,
)
from airflow_provider_spark_datahub.visualization.tables import statement, ways

TITLE_SIZE, NOTE_SIZE = 13.0, 11.0
"""The height of the two lines of a box's words, in pixels."""

_DATASET_HEIGHT, _JOB_HEIGHT = 44.0, 40.0
_PADDING = 30.0
_LEAST_WIDTH, _MOST_WIDTH = 96.0, 264.0
_EMS = {
    **dict.fromkeys("ijl.,:;'|! ", 0.38),
    **dict.fromkeys('frtI()[]{}/\\-_"`*', 0.5),
    **dict.fromkeys("<>=+~&#$%", 0.84),
    **dict.fromkeys("mwMW@—…", 1.05),
}
"""Widths in the widest of the usual fonts, bold."""


@dataclass(frozen=True, slots=True)
class Box:
    """A dataset or a job in a picture.

    :param key: ``d1`` or ``j1``: what a page may use as an id, whatever the names are.
    :param title: its name, short enough for the box.
    :param note: what stands below it: platform and path of a dataset, orchestrator and last result of a job.
    :param full: its whole name.
    :param state: of a job, the result of its last run; empty where it is unknown.
    """

    key: str
    urn: str
    title: str
    note: str
    full: str
    state: str = ""

    @property
    def is_job(self) -> bool:
        """Whether it is a job."""
        return self.key.startswith("j")


@dataclass(frozen=True, slots=True)
class Source:
    """One way in which a column comes from another.

    :param column: the key of that column (or of the dataset as a whole).
    :param job: the key of the job that does it.
    :param statement: which of the statements of the written dataset tells it, from 1; 0 where none does.
    """

    column: str
    way: str
    job: str
    statement: int = 0


@dataclass(frozen=True, slots=True)
class Statement:
    """A query that writes to a dataset, and the key of its job."""

    job: str
    text: str


@dataclass(frozen=True, slots=True)
class NetworkColumn:
    """A column of a dataset, with the columns that it comes from.

    :param key: ``d1-2`` for the second column of ``d1``.
    :param type: empty where no schema tells it.
    """

    key: str
    name: str
    type: str
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class Network:
    """Boxes, links, and the columns of the datasets.

    :param boxes: by key.
    :param links: between their keys, as the data goes.
    :param columns: per dataset's key its columns; one without a name stands for the dataset as a whole.
    :param statements: per dataset's key the queries that its columns come from.
    :param sizes: width and height of each box, in pixels.
    """

    boxes: Mapping[str, Box]
    links: tuple[Link, ...]
    columns: Mapping[str, tuple[NetworkColumn, ...]]
    statements: Mapping[str, tuple[Statement, ...]]
    layout: Layout
    sizes: Mapping[str, Size]


def build_network(graph: Graph) -> Network:
    """The lineage of a graph, laid out."""
    jobs = {f"j{number}": job for number, job in enumerate(filter(_reads_or_writes, graph.telling_jobs()), 1)}
    names = DatasetNames(graph.instances)
    sides = {key: (_sources(job), _targets(job)) for key, job in jobs.items()}
    urns = dict.fromkeys(urn for sources, targets in sides.values() for urn in (*sources, *targets))
    keys = {urn: f"d{number}" for number, urn in enumerate(urns, 1)}
    tails, states = names.tails(urns), _states(graph)
    links: list[Link] = []
    for key, (sources, targets) in sides.items():
        links += [(keys[urn], key) for urn in sources]
        links += [(key, keys[urn]) for urn in targets]
    datasets = [_dataset_box(keys[urn], urn, names.of(urn), tails[urn]) for urn in urns]
    workers = [_job_box(key, job, states.get(job.urn, "")) for key, job in jobs.items()]
    boxes = {box.key: box for box in (*datasets, *workers)}
    sizes = {key: _size(box) for key, box in boxes.items()}
    columns = _Columns(graph, jobs, keys)
    layout = lay_out(sizes, links)
    return Network(boxes, tuple(dict.fromkeys(links)), columns.by_dataset(), columns.statements(), layout, sizes)


def _reads_or_writes(job: JobLineage) -> bool:
    return bool(_sources(job) or _targets(job))


def _sources(job: JobLineage) -> dict[str, None]:
    """What the job reads, with what only its column lineage names."""
    return dict.fromkeys([*job.inputs, *(source.dataset for each in job.columns for source in each.inputs)])


def _targets(job: JobLineage) -> dict[str, None]:
    return dict.fromkeys([*job.outputs, *(each.output.dataset for each in job.columns)])


def _states(graph: Graph) -> dict[str, str]:
    """The result of each job's last run."""
    last: dict[str, tuple[int, str]] = {}
    for run in graph.runs():
        attempts = run.attempts()
        if run.template and attempts:
            found = (run.started or 0, attempts[-1].state)
            last[run.template] = max(last.get(run.template, found), found)
    return {urn: state for urn, (_, state) in last.items()}


def _dataset_box(key: str, urn: str, name: DatasetName, tail: str) -> Box:
    if tail == name.text:
        tail = name.name
    title = _cut(tail, TITLE_SIZE)
    folder = name.name.removesuffix(tail).rstrip("/")
    note = _cut(" ".join(part for part in (name.platform, name.note, folder) if part), NOTE_SIZE)
    return Box(key, urn, title, note, name.text)


def _job_box(key: str, job: JobLineage, state: str) -> Box:
    name = harmless(job.name)
    parts = job_parts(job.urn)
    flow = flow_parts(parts[0]) if parts else None
    said = [(orchestrator_of(job.urn) or "job").capitalize(), flow[1] if flow and flow[1] != job.name else ""]
    state = harmless(state)[:12]
    words = " ".join(harmless(part) for part in said if part)
    return Box(
        key, job.urn, _cut(name, TITLE_SIZE), _cut(f"{words} · {state}" if state else words, NOTE_SIZE), name, state
    )


def _size(box: Box) -> Size:
    wanted = max(text_width(box.title, TITLE_SIZE), text_width(box.note, NOTE_SIZE)) + _PADDING
    width = min(max(_LEAST_WIDTH, wanted), _MOST_WIDTH + _PADDING)
    return round(width), _JOB_HEIGHT if box.is_job else _DATASET_HEIGHT


def text_width(text: str, size: float) -> float:
    """About how many pixels a text takes in a sans-serif font of this size; rather more than less."""
    return sum(map(_em, text)) * size


def _em(character: str) -> float:
    if unicodedata.combining(character):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return 1.05
    return _EMS.get(character) or (0.76 if character.isupper() else 0.66)


def _cut(text: str, size: float) -> str:
    """The text, its middle left out where it is wider than a box may be: both ends of a path tell."""
    if text_width(text, size) <= _MOST_WIDTH:
        return text
    head, tail = text[: len(text) // 3], text[len(text) // 3 :]
    while text_width(f"{head}…{tail}", size) > _MOST_WIDTH:
        if len(head) * 2 > len(tail):
            head = head[:-1]
        else:
            tail = tail[1:]
    return f"{head}…{tail}"


class _Columns:
    """The columns of all datasets, each with a key, and the statements that tell of them."""

    def __init__(self, graph: Graph, jobs: Mapping[str, JobLineage], keys: Mapping[str, str]) -> None:
        self.keys = keys
        self.sources: dict[Column, dict[Column, dict[tuple[str, Statement | None, str], None]]] = {}
        self.told: dict[str, dict[Statement, int]] = {urn: {} for urn in keys}
        self.fields = {urn: {field.path: field for field in graph.schemas.get(urn, ())} for urn in keys}
        for key, job in jobs.items():
            for lineage in job.columns:
                self._take(key, lineage)
        self.column_keys = {
            Column(urn, path): f"{keys[urn]}-{number}"
            for urn, fields in self.fields.items()
            for number, path in enumerate(fields, 1)
        }

    def _take(self, job: str, lineage: ColumnLineage) -> None:
        output = self._known(lineage.output)
        text = statement(lineage.transformation)
        told = Statement(job, text) if text else None
        if told:
            numbers = self.told[output.dataset]
            numbers.setdefault(told, len(numbers) + 1)
        known = dict.fromkeys((job, told, way) for way in ways(lineage.transformation))
        for source in map(self._known, lineage.inputs):
            self.sources.setdefault(output, {}).setdefault(source, {}).update(known)

    def _known(self, column: Column) -> Column:
        """The column as the schema has it, which it joins where no schema tells of it."""
        path = plain_path(column.path)
        self.fields[column.dataset].setdefault(path, SchemaField(path, ""))
        return Column(column.dataset, path)

    def statements(self) -> dict[str, tuple[Statement, ...]]:
        return {
            self.keys[urn]: tuple(Statement(told.job, harmless_lines(told.text)) for told in numbers)
            for urn, numbers in self.told.items()
        }

    def by_dataset(self) -> dict[str, tuple[NetworkColumn, ...]]:
        return {
            self.keys[urn]: tuple(self._column(Column(urn, path), field) for path, field in fields.items())
            for urn, fields in self.fields.items()
        }

    def _column(self, column: Column, field: SchemaField) -> NetworkColumn:
        numbers = self.told[column.dataset]
        sources = tuple(
            Source(self.column_keys[source], harmless(way), job, numbers[told] if told else 0)
            for source, known in self.sources.get(column, {}).items()
            for job, told, way in known
        )
        return NetworkColumn(self.column_keys[column], harmless(field.path), harmless(field.type), sources)
