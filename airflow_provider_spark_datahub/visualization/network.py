"""The lineage of a graph as a network: labelled boxes for datasets and jobs, the links between
them, their layout.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from zlib import crc32

from airflow_provider_spark_datahub.visualization.layout import Layout, Link, Size
from airflow_provider_spark_datahub.visualization.model import (
    ColumnLineage,
    EdgeEvidence,
    Graph,
    GraphJob,
    RunNode,
)
from airflow_provider_spark_datahub.visualization.names import (
    Column,
    JobParts,
    ShortName,
    ShortNames,
    dataset_parts,
    harmless,
    harmless_lines,
)

_TITLE_SIZE, _NOTE_SIZE = 13.0, 12.0
"""Font sizes of the two lines of a box, in pixels."""

DATASET_HEIGHT, _JOB_HEIGHT = 44.0, 40.0
"""Heights of boxes, in pixels: of a dataset without its columns."""
COLUMN_HEIGHT = 17.0
_COLUMN_SIZE = 12.0
_PADDING = 30.0
_LEAST_WIDTH, _MOST_WIDTH = 112.0, 264.0
_WIDEST = 1.05
_EMS = {
    **dict.fromkeys("ijl.,:;'|! ", 0.38),
    **dict.fromkeys('frtI()[]{}/\\-_"`*', 0.5),
    **dict.fromkeys("<>=+~&#$%", 0.84),
    **dict.fromkeys("mwMW@—…", _WIDEST),
}
"""Widths of characters in the widest of the usual fonts, bold."""
_PLATFORM_COLOURS = 8
_USUAL_PLATFORMS = (
    "file", "hive", "s3", "kafka", "delta-lake", "iceberg", "postgres", "hdfs",
    "abs", "glue", "gcs", "snowflake", "bigquery", "mysql", "redshift", "mssql", "dbfs", "databricks", "hudi", "oracle",
)  # fmt: skip
"""Platforms in an order in which those that often appear together get different colours."""


@dataclass(frozen=True)
class ColumnSource:
    """A column that another column comes from.

    :param column: its key.
    :param label: the transformation, in a few words.
    :param job: the key of the job.
    :param statement: the number of the statement among those of the written dataset, from 1; 0 if
        there is none.
    """

    column: str
    label: str
    job: str
    statement: int = 0

    @property
    def is_indirect(self) -> bool:
        """Return whether the source only affects the choice or order of rows, as in a filter."""
        return self.label.startswith("indirect ")


_Statement = tuple[str, str]
"""The key of a job, and a query with which it writes a dataset."""
_Evidence = tuple[str, bool, EdgeEvidence]
"""The key of a job, whether it writes the dataset, and the evidence of that."""


@dataclass(frozen=True)
class NetworkColumn:
    """A column of a dataset, with its sources.

    :param key: ``d1-2`` for the second column of ``d1``.
    :param type: empty if no schema contains it.
    """

    key: str
    name: str
    type: str
    sources: tuple[ColumnSource, ...]

    @property
    def label(self) -> str:
        """The name as it fits into a box; a column without one stands for the table as a whole."""
        return _cut(self.name or "(the table as a whole)", _COLUMN_SIZE)


@dataclass(frozen=True)
class Box:
    """A dataset or a job.

    :param key: ``d1`` or ``j1``: safe to use as an id in HTML.
    :param title: its name, shortened to fit the box.
    :param note: the second line: platform and path of a dataset, orchestrator and last result of a
        job.
    :param full: its whole name.
    :param platform: of a dataset, as in its URN; empty if it has none.
    :param state: of a job, the result of its last run; empty if it is unknown.
    :param error: of a job, the reason of its last failed run in one line; empty if it is unknown.
    :param columns: of a dataset; one without a name stands for the dataset as a whole.
    :param statements: the queries that write a dataset.
    :param evidence: of a dataset's edges.
    """

    key: str
    urn: str
    title: str
    note: str
    full: str
    platform: str = ""
    state: str = ""
    error: str = ""
    columns: tuple[NetworkColumn, ...] = ()
    statements: tuple[_Statement, ...] = ()
    evidence: tuple[_Evidence, ...] = ()

    @property
    def is_job(self) -> bool:
        """Return whether it is a job."""
        return self.key.startswith("j")

    def size(self, *, unfolded: bool) -> Size:
        """Return width and height in pixels, with room for the columns or without."""
        columns = self.columns if unfolded else ()
        names = [_text_width(column.label, _COLUMN_SIZE) for column in columns]
        wanted = (
            max(_text_width(self.title, _TITLE_SIZE), _text_width(self.note, _NOTE_SIZE), *names)
            + _PADDING
        )
        width = min(max(_LEAST_WIDTH, wanted), _MOST_WIDTH + _PADDING)
        below = (len(columns) + 0.5) * COLUMN_HEIGHT if columns else 0.0
        return round(width), _JOB_HEIGHT if self.is_job else DATASET_HEIGHT + below


@dataclass(frozen=True)
class Network:
    """Boxes and links.

    :param boxes: by key.
    :param links: pairs of keys, in the direction of the data.
    :param sizes: width and height of each box, in pixels.
    :param unfolded: whether the boxes of datasets have room for their columns.
    """

    boxes: Mapping[str, Box]
    links: tuple[Link, ...]
    layout: Layout
    sizes: Mapping[str, Size]
    unfolded: bool = False

    @classmethod
    def of(cls, graph: Graph, *, unfolded: bool = False) -> Network:
        """Lay out the lineage of a graph."""
        jobs = {f"j{number}": job for number, job in enumerate(graph.steps(), 1)}
        names = ShortNames(graph.instances)
        sides = {key: (_sources(job), _targets(job)) for key, job in jobs.items()}
        urns = dict.fromkeys(
            urn for sources, targets in sides.values() for urn in (*sources, *targets)
        )
        keys = {urn: f"d{number}" for number, urn in enumerate(urns, 1)}
        tails, last_runs = names.tails(urns), graph.last_runs()
        links: list[Link] = []
        evidence: dict[str, list[_Evidence]] = {}
        for key, (sources, targets) in sides.items():
            links += [(keys[urn], key) for urn in sources]
            links += [(key, keys[urn]) for urn in targets]
            for urn, writes, of_edge in _evidence(jobs[key]):
                evidence.setdefault(urn, []).append((key, writes, of_edge))
        columns = _Columns(graph, jobs, keys)
        boxes = {
            key: replace(
                _dataset_box(key, urn, names.of(urn), tails[urn]),
                columns=columns.of(urn),
                statements=columns.statements(urn),
                evidence=tuple(evidence.get(urn, ())),
            )
            for urn, key in keys.items()
        }
        boxes |= {key: _job_box(key, job, last_runs.get(job.urn)) for key, job in jobs.items()}
        sizes = {key: box.size(unfolded=unfolded) for key, box in boxes.items()}
        return cls(boxes, tuple(dict.fromkeys(links)), Layout.of(sizes, links), sizes, unfolded)

    @property
    def datasets(self) -> list[Box]:
        """The boxes of datasets."""
        return [box for box in self.boxes.values() if not box.is_job]

    @property
    def jobs(self) -> list[Box]:
        """The boxes of jobs; one that is drawn write by write has several."""
        return [box for box in self.boxes.values() if box.is_job]

    @property
    def platform_colours(self) -> dict[str, int]:
        """The number of each platform's colour, which is the same in every picture, in alphabetical
        order.
        """
        usual = {platform: number for number, platform in enumerate(_USUAL_PLATFORMS)}
        platforms = sorted({box.platform for box in self.datasets} - {""})
        return {
            platform: usual.get(platform, crc32(platform.encode())) % _PLATFORM_COLOURS
            for platform in platforms
        }

    @property
    def column_edges(self) -> int:
        """The number of pairs of columns whose values or rows go from one to the other."""
        return sum(
            len({source.column for source in column.sources})
            for box in self.datasets
            for column in box.columns
        )

    @property
    def job_count(self) -> int:
        """The number of different jobs."""
        return len({box.urn for box in self.jobs})


def _evidence(job: GraphJob) -> Iterator[tuple[str, bool, EdgeEvidence]]:
    """Yield the datasets of the edges that have evidence, whether the job writes them, and the
    evidence.
    """
    for urn, evidence in job.outputs.items():
        if evidence:
            yield urn, True, evidence
    for urn, evidence in job.inputs.items():
        if evidence:
            yield urn, False, evidence


def _sources(job: GraphJob) -> dict[str, None]:
    """Return the datasets that the job reads, with those that only its column lineage names."""
    return dict.fromkeys(
        [*job.inputs, *(source.dataset for lineage in job.columns for source in lineage.inputs)]
    )


def _targets(job: GraphJob) -> dict[str, None]:
    return dict.fromkeys([*job.outputs, *(lineage.output.dataset for lineage in job.columns)])


def _dataset_box(key: str, urn: str, name: ShortName, tail: str) -> Box:
    if tail == name.text:
        tail = name.name
    title = _cut(tail, _TITLE_SIZE)
    folder = name.name.removesuffix(tail).rstrip("/")
    note = _cut(" ".join(part for part in (name.platform, name.note, folder) if part), _NOTE_SIZE)
    parts = dataset_parts(urn)
    return Box(key, urn, title, note, name.text, parts[0] if parts else "")


def _job_box(key: str, job: GraphJob, last_run: RunNode | None) -> Box:
    name = harmless(job.name)
    orchestrator, flow, job_id = JobParts.of(job.urn)
    # The number of a step follows the name.
    names = job.name, job.name.rsplit(" ", 1)[0]
    place = (
        next((part for part in (flow, job_id) if part not in names), None)
        if job_id is not None
        else None
    )
    note = " ".join(
        harmless(part) for part in ((orchestrator or "job").capitalize(), place) if part
    )
    state = harmless(last_run.state)[:12] if last_run else ""
    note = _cut(f"{note} · {state}" if state else note, _NOTE_SIZE)
    reason = harmless(last_run.reason) if last_run and state == "FAILURE" else ""
    return Box(key, job.urn, _cut(name, _TITLE_SIZE), note, name, state=state, error=reason)


def _text_width(text: str, size: float) -> float:
    """Estimate the width of a text in a sans-serif font of this size, in pixels; rather too wide
    than too narrow.
    """
    return sum(map(_em, text)) * size


@lru_cache(maxsize=1_000)
def _em(character: str) -> float:
    if unicodedata.combining(character):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return _WIDEST
    return _EMS.get(character) or (0.76 if character.isupper() else 0.66)


def _cut(text: str, size: float) -> str:
    """Cut the middle out of a text that does not fit a box: both ends of a path matter."""
    if len(text) * _WIDEST * size <= _MOST_WIDTH or _text_width(text, size) <= _MOST_WIDTH:
        return text
    head, tail = text[: len(text) // 3], text[len(text) // 3 :]
    while _text_width(f"{head}…{tail}", size) > _MOST_WIDTH:
        if len(head) * 2 > len(tail):
            head = head[:-1]
        else:
            tail = tail[1:]
    return f"{head}…{tail}"


class _Columns:
    """Columns of all datasets, each with a key, and the statements that write them."""

    def __init__(self, graph: Graph, jobs: Mapping[str, GraphJob], keys: Mapping[str, str]) -> None:
        self.sources: dict[
            Column, dict[Column, dict[tuple[str, _Statement | None, str], None]]
        ] = {}
        self.numbers: dict[str, dict[_Statement, int]] = {urn: {} for urn in keys}
        self.types = {urn: dict(graph.schemas.get(urn, {})) for urn in keys}
        for key, job in jobs.items():
            for lineage in job.columns:
                self._take(key, lineage)
        self.column_keys = {
            Column(urn, path): f"{keys[urn]}-{number}"
            for urn, types in self.types.items()
            for number, path in enumerate(types, 1)
        }

    def _take(self, job: str, lineage: ColumnLineage) -> None:
        output, query = lineage.output, lineage.query()
        statement = (job, query) if query else None
        if statement:
            numbers = self.numbers[output.dataset]
            numbers.setdefault(statement, len(numbers) + 1)
        reasons = dict.fromkeys((job, statement, label) for label in lineage.labels())
        for column in (output, *lineage.inputs):  # a schema may lack them
            self.types[column.dataset].setdefault(column.path, "")
        for source in lineage.inputs:
            self.sources.setdefault(output, {}).setdefault(source, {}).update(reasons)

    def statements(self, urn: str) -> tuple[_Statement, ...]:
        return tuple((job, harmless_lines(query)) for job, query in self.numbers[urn])

    def of(self, urn: str) -> tuple[NetworkColumn, ...]:
        return tuple(
            self._column(Column(urn, path), type_) for path, type_ in self.types[urn].items()
        )

    def _column(self, column: Column, type_: str) -> NetworkColumn:
        numbers = self.numbers[column.dataset]
        sources = tuple(
            ColumnSource(
                self.column_keys[source],
                harmless(label),
                job,
                numbers[statement] if statement else 0,
            )
            for source, reasons in self.sources.get(column, {}).items()
            for job, statement, label in reasons
        )
        return NetworkColumn(
            self.column_keys[column], harmless(column.path), harmless(type_), sources
        )
