"""What differs between two sets of proposals: runs, edges, column edges, schemas, entities and other aspects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.visualization.graph import build_graph
from airflow_provider_spark_datahub.visualization.model import Graph, RunNode, short_name
from airflow_provider_spark_datahub.visualization.tables import ways

_SHOWN_BY_PARTS = frozenset(
    {
        "dataJobInputOutput",
        "dataProcessInstanceInput",
        "dataProcessInstanceOutput",
        "dataProcessInstanceProperties",
        "dataProcessInstanceRelationships",
        "dataProcessInstanceRunEvent",
        "schemaMetadata",
    }
)
_RUN = "urn:li:dataProcessInstance:"
_PROPERTIES_OF_A_RUN = ("appId", "attemptId", "endTime", "finishedAt", "startTime", "startedAt", "uiWebUrl")
_VALUES_OF_A_RUN = ("created", "lastModified", "lastUpdatedTimestamp", "timestampMillis", "messageId")


class Part(StrEnum):
    """What a change is of, in the order in which changes are told."""

    RUN = "run"
    EDGE = "edge"
    COLUMN_EDGE = "column edge"
    SCHEMA = "schema"
    ENTITY = "entity"
    ASPECT = "aspect"


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that differs.

    :param urn: of the run, job, dataset or other entity.
    :param what: which part of it: words and URNs, e.g. ``("reads", dataset)``, ``("column", path)``.
    :param before: its value in the first set, None where it is not there.
    :param after: its value in the second set, None where it is not there.
    """

    part: Part
    urn: str
    what: tuple[str, ...]
    before: Any
    after: Any

    @property
    def kind(self) -> str:
        """``added``, ``removed`` or ``changed``."""
        return "added" if self.before is None else "removed" if self.after is None else "changed"


@dataclass(frozen=True, slots=True)
class Difference:
    """All that differs.

    :param changes: by part, then by entity.
    :param problems: one sentence for each proposal of either set that could not be read.
    """

    changes: tuple[Change, ...]
    problems: tuple[str, ...]


def compare(before: Iterable[Proposal], after: Iterable[Proposal], *, ignore_run_ids: bool = False) -> Difference:
    """What differs between two sets; neither the order of proposals nor times of edges and run events count.

    :param ignore_run_ids: the sets are of different runs of the same jobs: the first run of a job is compared with its
        first run, and so on, and what belongs to one run only (its times, its application's id) is left out.
    """
    sides = [_Side(proposals, ignore_run_ids=ignore_run_ids) for proposals in (before, after)]
    changes = [change for part in Part for change in _changes(part, sides[0].parts[part], sides[1].parts[part])]
    whole = {(change.urn, change.kind) for change in changes if not change.what}
    details = (Part.RUN, Part.SCHEMA, Part.ASPECT)  # of what is new or gone as a whole they are not told one by one
    told = [
        change
        for change in changes
        if not (change.what and change.part in details and (change.urn, change.kind) in whole)
    ]
    return Difference(tuple(told), (*sides[0].graph.problems, *sides[1].graph.problems))


_Facts = dict[tuple[str, ...], Any]
"""Per thing that can differ (URN first) its value."""


def _changes(part: Part, before: _Facts, after: _Facts) -> Iterator[Change]:
    for key in sorted({*before, *after}):
        if before.get(key) != after.get(key):
            yield Change(part, key[0], key[1:], before.get(key), after.get(key))


class _Side:
    """One of the two sets."""

    def __init__(self, proposals: Iterable[Proposal], *, ignore_run_ids: bool) -> None:
        kept = list(proposals)
        self.graph = build_graph(kept)
        self.ignore_run_ids = ignore_run_ids
        self.names = _names(self.graph) if ignore_run_ids else {}
        self.parts: dict[Part, _Facts] = {
            Part.RUN: dict(self._runs()),
            Part.EDGE: dict(self._edges()),
            Part.COLUMN_EDGE: self._column_edges(),
            Part.SCHEMA: dict(self._schemas()),
            Part.ENTITY: {(one.entity_urn,): True for one in kept if not one.entity_urn.startswith(_RUN)},
            Part.ASPECT: dict(self._aspects(kept)),
        }

    def _run_name(self, urn: str | None) -> str | None:
        return urn if urn is None else self.names.get(urn, urn)

    def _runs(self) -> Iterator[tuple[tuple[str, ...], Any]]:
        for run in self.graph.runs():
            urn = self.names.get(run.urn, run.urn)
            yield (urn,), run.template or run.name
            for attempt in run.attempts():
                yield (urn, "result" if attempt.number is None else f"result of try {attempt.number}"), attempt.state
            yield from self._run_facts(urn, run)

    def _run_facts(self, urn: str, run: RunNode) -> Iterator[tuple[tuple[str, ...], Any]]:
        if run.parent:
            yield (urn, "parent"), self._run_name(run.parent)
        for word, urns in (("reads", run.inputs), ("writes", run.outputs), ("after", run.upstreams)):
            for other in urns:
                yield (urn, word, str(self._run_name(other))), True

    def _edges(self) -> Iterator[tuple[tuple[str, ...], bool]]:
        for job in self.graph.jobs:
            for word, urns in (("reads", job.inputs), ("writes", job.outputs), ("belongs to", job.upstream_jobs)):
                for urn in urns:
                    yield (job.urn, word, urn), True

    def _column_edges(self) -> _Facts:
        found: dict[tuple[str, ...], set[str]] = {}
        for job in self.graph.jobs:
            for lineage in job.columns:
                for source in lineage.inputs:
                    key = (job.urn, source.dataset, source.path, lineage.output.dataset, lineage.output.path)
                    found.setdefault(key, set()).update(ways(lineage.transformation))
        return {key: ", ".join(sorted(each)) for key, each in found.items()}

    def _schemas(self) -> Iterator[tuple[tuple[str, ...], str]]:
        for urn, fields in self.graph.schemas.items():
            for field in fields:
                yield (urn, "column", field.path), field.type

    def _aspects(self, proposals: Sequence[Proposal]) -> Iterator[tuple[tuple[str, ...], Any]]:
        latest: dict[tuple[str, str], Any] = {}
        for one in proposals:
            if one.aspect_name in _SHOWN_BY_PARTS or one.entity_urn.startswith(_RUN):
                continue
            if one.change_type == "PATCH":
                latest.setdefault((one.entity_urn, f"patch of {one.aspect_name}"), []).append(one.aspect)
            else:
                latest[one.entity_urn, one.aspect_name] = one.aspect
        for (urn, name), aspect in latest.items():
            for path, value in _leaves(aspect):
                if not (self.ignore_run_ids and _is_of_a_run(path)):
                    yield (urn, name, ".".join(path)), value


def _names(graph: Graph) -> dict[str, str]:
    """A name for each run that the next run of the same job has as well."""
    by_template: dict[str, list[RunNode]] = {}
    for run in graph.runs():
        by_template.setdefault(run.template or "no job", []).append(run)
    return {
        run.urn: f"run {number} of {short_name(template)}"
        for template, runs in by_template.items()
        for number, run in enumerate(sorted(runs, key=lambda run: (run.started or 0, run.urn)), 1)
    }


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each value of a JSON document with its path; what is empty is a value."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*path, str(key)))
    elif isinstance(value, list) and value:
        for number, inner in enumerate(value):
            yield from _leaves(inner, (*path, str(number)))
    else:
        yield path, "null" if value is None else value


def _is_of_a_run(path: Sequence[str]) -> bool:
    in_properties = len(path) > 1 and path[0] == "customProperties" and path[1] in _PROPERTIES_OF_A_RUN
    return in_properties or (bool(path) and path[0] in _VALUES_OF_A_RUN)
