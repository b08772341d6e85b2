"""The differences between two sets of proposals: runs, edges, column edges, schemas, entities and other aspects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.visualization.graph import build_graph
from airflow_provider_spark_datahub.visualization.model import Graph, RunNode
from airflow_provider_spark_datahub.visualization.names import short_name

_SHOWN_BY_PARTS = ("dataJobInputOutput", "schemaMetadata")  # and all aspects of runs
_RUN = "urn:li:dataProcessInstance:"
_PROPERTIES_OF_A_RUN = ("appId", "attemptId", "endTime", "finishedAt", "startTime", "startedAt", "uiWebUrl")
_VALUES_OF_A_RUN = ("created", "lastModified", "lastUpdatedTimestamp", "timestampMillis", "messageId")


class ChangedPart(StrEnum):
    """Part of the graph that a change belongs to, in the order of the report."""

    RUN = "run"
    EDGE = "edge"
    COLUMN_EDGE = "column edge"
    SCHEMA = "schema"
    ENTITY = "entity"
    ASPECT = "aspect"


@dataclass(frozen=True, slots=True)
class Change:
    """One difference.

    :param urn: of the run, job, dataset or other entity.
    :param what: the detail that differs: words and URNs, e.g. ``("reads", dataset)``, ``("column", path)``.
    :param before: its value in the first set, ``None`` if it is not there.
    :param after: its value in the second set, ``None`` if it is not there.
    """

    part: ChangedPart
    urn: str
    what: tuple[str, ...]
    before: Any
    after: Any

    @property
    def kind(self) -> str:
        """``added``, ``removed`` or ``changed``."""
        return "added" if self.before is None else "removed" if self.after is None else "changed"


def compare(
    before: Iterable[Proposal], after: Iterable[Proposal], *, ignore_run_ids: bool = False
) -> tuple[list[Change], list[str]]:
    """Compare two sets; the order of proposals and the times of edges and run events are ignored.

    :param ignore_run_ids: the sets are from different runs of the same jobs: compare the first run of a job with its
        first run, and so on, and ignore values that belong to one run only (its times, its application's id).
    :returns: the changes, sorted by part, then by entity; a sentence for each proposal that could not be read.
    """
    sides = [_Side(proposals, ignore_run_ids=ignore_run_ids) for proposals in (before, after)]
    changes = []
    for part in ChangedPart:
        old, new = (side.parts[part] for side in sides)
        keys = (key for key in sorted({*old, *new}) if old.get(key) != new.get(key))
        changes += [Change(part, key[0], key[1:], old.get(key), new.get(key)) for key in keys]
    # The details of an entity that is new or gone as a whole are not listed one by one.
    whole = {(change.urn, change.kind) for change in changes if not change.what}
    details = (ChangedPart.RUN, ChangedPart.SCHEMA, ChangedPart.ASPECT)
    listed = [
        change
        for change in changes
        if not (change.what and change.part in details and (change.urn, change.kind) in whole)
    ]
    return listed, [*sides[0].graph.problems, *sides[1].graph.problems]


_Facts = dict[tuple[str, ...], Any]
"""Values by what they describe: the URN first, then words."""


class _Side:
    """One of the two sets, as values that can be compared."""

    def __init__(self, proposals: Iterable[Proposal], *, ignore_run_ids: bool) -> None:
        kept = list(proposals)
        self.graph = build_graph(kept)
        self.ignore_run_ids = ignore_run_ids
        self.names = _names(self.graph) if ignore_run_ids else {}
        self.parts: dict[ChangedPart, _Facts] = {
            ChangedPart.RUN: dict(self._runs()),
            ChangedPart.EDGE: dict(self._edges()),
            ChangedPart.COLUMN_EDGE: self._column_edges(),
            ChangedPart.SCHEMA: dict(self._schemas()),
            ChangedPart.ENTITY: {(p.entity_urn,): True for p in kept if not p.entity_urn.startswith(_RUN)},
            ChangedPart.ASPECT: dict(self._aspects(kept)),
        }

    def _runs(self) -> Iterator[tuple[tuple[str, ...], Any]]:
        for run in self.graph.runs():
            urn = self.names.get(run.urn, run.urn)
            yield (urn,), run.template or run.name
            for attempt in run.attempts():
                yield (urn, "result" if attempt.number is None else f"result of try {attempt.number}"), attempt.state
            if run.parent:
                yield (urn, "parent"), self.names.get(run.parent, run.parent)
            for word, others in (("reads", run.inputs), ("writes", run.outputs), ("after", run.upstreams)):
                for other in others:
                    yield (urn, word, self.names.get(other, other)), True

    def _edges(self) -> Iterator[tuple[tuple[str, ...], bool]]:
        for job in self.graph.jobs:
            for word, urns in (("reads", job.inputs), ("writes", job.outputs), ("belongs to", job.upstream_jobs)):
                for urn in urns:
                    yield (job.urn, word, urn), True

    def _column_edges(self) -> _Facts:
        labels: dict[tuple[str, ...], set[str]] = {}
        for job in self.graph.jobs:
            for lineage in job.columns:
                for source in lineage.inputs:
                    key = (job.urn, source.dataset, source.path, lineage.output.dataset, lineage.output.path)
                    labels.setdefault(key, set()).update(lineage.labels())
        return {key: ", ".join(sorted(texts)) for key, texts in labels.items()}

    def _schemas(self) -> Iterator[tuple[tuple[str, ...], str]]:
        for urn, types in self.graph.schemas.items():
            for path, type_ in types.items():
                yield (urn, "column", path), type_

    def _aspects(self, proposals: Sequence[Proposal]) -> Iterator[tuple[tuple[str, ...], Any]]:
        latest: dict[tuple[str, str], Any] = {}
        for proposal in proposals:
            urn, name = proposal.entity_urn, proposal.aspect_name
            if name in _SHOWN_BY_PARTS or urn.startswith(_RUN):
                continue
            if proposal.change_type == "PATCH":
                latest.setdefault((urn, f"patch of {name}"), []).append(proposal.aspect)
            else:
                latest[urn, name] = proposal.aspect
        for (urn, name), aspect in latest.items():
            for path, value in _leaves(aspect):
                if not (self.ignore_run_ids and _is_of_a_run(path)):
                    yield (urn, name, ".".join(path)), value


def _names(graph: Graph) -> dict[str, str]:
    """Return a name for each run that does not contain its id: ``run 2 of spark daily``."""
    by_template: dict[str, list[RunNode]] = {}
    for run in graph.runs():
        by_template.setdefault(run.template or "no job", []).append(run)
    return {
        run.urn: f"run {number} of {short_name(template)}"
        for template, runs in by_template.items()
        for number, run in enumerate(sorted(runs, key=lambda run: (run.started or 0, run.urn)), 1)
    }


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each value of a JSON document with its path; empty lists and objects are values."""
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
