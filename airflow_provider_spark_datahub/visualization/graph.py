"""The edges of one DataJob: its ``dataJobInputOutput`` aspect, whole or as the sum of patches.

Folds proposals into the graph of what they say: the latest aspect wins, run events add up, patches add.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.visualization.model import (
    Column,
    ColumnLineage,
    Graph,
    JobLineage,
    RunEvent,
    RunNode,
    SchemaField,
    dataset_parts,
    field_parts,
    job_parts,
    kind_of,
    last_part,
    plain_path,
)

_NO_QUERY_PARTS = 3  # downstream, query, upstream: what follows the transformation in the path of a patch
_PATCHED_SIDES = {"inputDatasetEdges": "inputs", "outputDatasetEdges": "outputs", "inputDatajobEdges": "jobs"}


class MalformedAspectError(ValueError):
    """An aspect that does not have the shape that its name promises."""


def obj(value: Any, what: str) -> Mapping[str, Any]:
    """The value as a JSON object.

    :raises MalformedAspectError: where it is none.
    """
    if not isinstance(value, Mapping):
        raise MalformedAspectError(f"{what} is no JSON object")
    return value


def texts(aspect: Mapping[str, Any], key: str) -> list[str]:
    """The list of strings under a key; none where the key is missing or null.

    :raises MalformedAspectError: where it is something else.
    """
    values = aspect.get(key) or []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise MalformedAspectError(f"{key} is no list of strings")
    return values


def urns_of(aspect: Mapping[str, Any], key: str) -> list[str]:
    """The destinations of the list of edges under a key.

    :raises MalformedAspectError: where it is something else.
    """
    edges = aspect.get(key) or []
    if not isinstance(edges, list):
        raise MalformedAspectError(f"{key} is no list")
    destinations = [obj(edge, f"an edge of {key}").get("destinationUrn") for edge in edges]
    return texts({key: destinations}, key)


def fields_of(aspect: Mapping[str, Any]) -> tuple[SchemaField, ...]:
    """The columns that a ``schemaMetadata`` lists.

    :raises MalformedAspectError: where it lists something else.
    """
    fields = aspect.get("fields") or []
    if not isinstance(fields, list):
        raise MalformedAspectError("fields is no list")
    found = {}
    for each in fields:
        (path,) = texts({"path": [obj(each, "a field").get("fieldPath")]}, "path")
        found[plain_path(path)] = SchemaField(plain_path(path), str(each.get("nativeDataType") or ""))
    return tuple(found.values())


@dataclass(slots=True)
class Edges:
    """What a DataJob reads and writes, each in the order in which it was said first.

    :param columns: per output column and transformation the columns that it comes from.
    """

    inputs: dict[str, None] = field(default_factory=dict)
    outputs: dict[str, None] = field(default_factory=dict)
    jobs: dict[str, None] = field(default_factory=dict)
    columns: dict[tuple[Column, str | None], dict[Column, None]] = field(default_factory=dict)

    @classmethod
    def of_aspect(cls, value: Any) -> Edges:
        """The edges that a whole aspect states.

        :raises MalformedAspectError: where it cannot be read.
        """
        aspect = obj(value, "the aspect")
        edges = cls(
            inputs=dict.fromkeys([*urns_of(aspect, "inputDatasetEdges"), *texts(aspect, "inputDatasets")]),
            outputs=dict.fromkeys([*urns_of(aspect, "outputDatasetEdges"), *texts(aspect, "outputDatasets")]),
            jobs=dict.fromkeys([*texts(aspect, "inputDatajobs"), *urns_of(aspect, "inputDatajobEdges")]),
        )
        lineages = aspect.get("fineGrainedLineages") or []
        if not isinstance(lineages, list):
            raise MalformedAspectError("fineGrainedLineages is no list")
        for lineage in lineages:
            entry = obj(lineage, "an entry of fineGrainedLineages")
            transformation = entry.get("transformOperation")
            for downstream in texts(entry, "downstreams"):
                edges._add_column(downstream, transformation, texts(entry, "upstreams"))
        return edges

    def patched(self, patch: Any) -> Edges:
        """These edges after a JSON patch; operations on other parts of the aspect change nothing.

        :raises MalformedAspectError: where the patch cannot be read; then no operation of it counts.
        """
        operations = patch.get("patch") if isinstance(patch, Mapping) else patch
        if not isinstance(operations, list):
            raise MalformedAspectError("the patch is no list of operations")
        edges = Edges(
            dict(self.inputs),
            dict(self.outputs),
            dict(self.jobs),
            {key: dict(inputs) for key, inputs in self.columns.items()},
        )
        for operation in operations:
            edges._apply(obj(operation, "an operation of the patch"))
        return edges

    def lineage(self, urn: str, name: str) -> JobLineage:
        """The finished lineage of the job that has this URN and name."""
        columns = tuple(
            ColumnLineage(output, tuple(inputs), transformation)
            for (output, transformation), inputs in self.columns.items()
        )
        return JobLineage(urn, name, tuple(self.inputs), tuple(self.outputs), columns, tuple(self.jobs))

    def _add_column(self, downstream: str, transformation: Any, upstreams: list[str]) -> None:
        key = (_column(downstream), transformation if isinstance(transformation, str) and transformation else None)
        self.columns.setdefault(key, {}).update(dict.fromkeys(_column(upstream) for upstream in upstreams))

    def _apply(self, operation: Mapping[str, Any]) -> None:
        kind, path = operation.get("op"), operation.get("path")
        if kind not in ("add", "remove", "replace") or not isinstance(path, str) or not path.startswith("/"):
            raise MalformedAspectError("an operation of the patch has no known op and path")
        first, *rest = (part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/"))
        if first in _PATCHED_SIDES and rest:
            side: dict[str, None] = getattr(self, _PATCHED_SIDES[first])
            _put(side, "/".join(rest), kind)
        elif first == "fineGrainedLineages" and len(rest) > _NO_QUERY_PARTS:
            self._apply_column(rest, kind)

    def _apply_column(self, parts: list[str], kind: str) -> None:
        # A producer that leaves the "/" of a query as it is splits the transformation: only the end is sure.
        downstream, upstream = parts[-3], parts[-1]
        transformation = "/".join(parts[:-3])
        if kind != "remove":
            self._add_column(downstream, None if transformation == "NONE" else transformation, [upstream])
            return
        key = (_column(downstream), None if transformation == "NONE" else transformation)
        inputs = self.columns.get(key, {})
        inputs.pop(_column(upstream), None)
        if not inputs:
            self.columns.pop(key, None)


def _put(side: dict[str, None], urn: str, kind: str) -> None:
    if kind == "remove":
        side.pop(urn, None)
    else:
        side[urn] = None


def _column(urn: str) -> Column:
    parts = field_parts(urn)
    if parts:
        return Column(*parts)
    if dataset_parts(urn):
        return Column(urn, "")
    raise MalformedAspectError(f"neither a column nor a dataset: {urn[:100]!r}")


_RUN = "dataProcessInstance"
_LATEST_WINS = {
    "dataProcessInstanceProperties": _RUN,
    "dataProcessInstanceRelationships": _RUN,
    "dataProcessInstanceInput": _RUN,
    "dataProcessInstanceOutput": _RUN,
    "dataJobInfo": "dataJob",
    "dataPlatformInstance": "dataset",
    "schemaMetadata": "dataset",
}
_STATUSES = ("STARTED", "COMPLETE")


def build_graph(proposals: Iterable[Proposal]) -> Graph:
    """The graph of what the proposals say.

    The last ``UPSERT`` of an aspect replaces those before it, run events add up (the same one twice is one), a
    ``PATCH`` of ``dataJobInputOutput`` changes the edges so far. Nothing that a proposal says makes this fail: one
    that cannot be read is named in :attr:`Graph.problems`, aspects without a picture are counted in
    :attr:`Graph.unread`.
    """
    folding = _Folding()
    for proposal in proposals:
        folding.take(proposal)
    return folding.graph()


class _Folding:
    def __init__(self) -> None:
        self.read = 0
        self.unread: Counter[str] = Counter()
        self.problems: list[str] = []
        self.latest: dict[str, dict[str, Mapping[str, Any]]] = {}
        self.events: dict[str, dict[RunEvent, None]] = {}
        self.edges: dict[str, Edges] = {}

    def take(self, proposal: Proposal) -> None:
        self.read += 1
        try:
            if not self._understood(proposal):
                self.unread[str(proposal.aspect_name)] += 1
        except MalformedAspectError as error:
            self.problems.append(f"{proposal.aspect_name} of {proposal.entity_urn} skipped: {error}")

    def _understood(self, proposal: Proposal) -> bool:
        urn, name = proposal.entity_urn, proposal.aspect_name
        if not urn.startswith("urn:li:"):
            raise MalformedAspectError("the entity's URN is none")
        patch = proposal.change_type == "PATCH"
        if name == "dataJobInputOutput":
            edges = self.edges.get(urn, Edges())
            self.edges[urn] = edges.patched(proposal.aspect) if patch else Edges.of_aspect(proposal.aspect)
        elif patch:
            return False
        elif name == "dataProcessInstanceRunEvent":
            event = _run_event(proposal.aspect)
            self.events.setdefault(urn, {})[event] = None
        elif _LATEST_WINS.get(name) == proposal.entity_type:
            aspect = obj(proposal.aspect, name)
            self.latest.setdefault(urn, {})[name] = aspect
        else:
            return False
        return True

    def graph(self) -> Graph:
        urns = dict.fromkeys([*self.latest, *self.events])
        runs = {urn: self._run(urn) for urn in urns if urn.startswith(f"urn:li:{_RUN}:")}
        roots = self._tree(runs)
        jobs = tuple(self._job(urn, edges) for urn, edges in self.edges.items())
        return Graph(
            roots=tuple(roots),
            jobs=jobs,
            instances=MappingProxyType(self._instances()),
            schemas=MappingProxyType(self._schemas()),
            read=self.read,
            unread=MappingProxyType(dict(self.unread)),
            problems=tuple(self.problems),
        )

    def _run(self, urn: str) -> RunNode:
        aspects = self.latest.get(urn, {})
        properties = aspects.get(f"{_RUN}Properties", {})
        relationships = aspects.get(f"{_RUN}Relationships", {})
        custom = properties.get("customProperties")
        created = properties.get("created")
        template = _text(relationships.get("parentTemplate"))
        return RunNode(
            urn=urn,
            name=_text(properties.get("name")) or last_part(urn),
            kind=kind_of(template),
            template=template,
            parent=_text(relationships.get("parentInstance")),
            created=_whole(created.get("time")) if isinstance(created, Mapping) else None,
            properties={str(key): str(value) for key, value in custom.items()} if isinstance(custom, Mapping) else {},
            external_url=_text(properties.get("externalUrl")),
            events=tuple(sorted(self.events.get(urn, {}), key=lambda event: event.time)),
            inputs=self._datasets(urn, "Input", "inputs", "inputEdges"),
            outputs=self._datasets(urn, "Output", "outputs", "outputEdges"),
            upstreams=tuple(self._readable(urn, relationships, "upstreamInstances")),
        )

    def _datasets(self, urn: str, side: str, listed: str, edges: str) -> tuple[str, ...]:
        aspect = self.latest.get(urn, {}).get(f"{_RUN}{side}", {})
        return tuple(dict.fromkeys([*self._readable(urn, aspect, listed), *self._readable(urn, aspect, edges)]))

    def _readable(self, urn: str, aspect: Mapping[str, Any], key: str) -> list[str]:
        try:
            return urns_of(aspect, key) if key.endswith("Edges") else texts(aspect, key)
        except MalformedAspectError as error:
            self.problems.append(f"part of {urn} skipped: {error}")
            return []

    def _job(self, urn: str, edges: Edges) -> JobLineage:
        parts = job_parts(urn)
        name = _text(self.latest.get(urn, {}).get("dataJobInfo", {}).get("name"))
        return edges.lineage(urn, name or (parts[1] if parts else last_part(urn)))

    def _instances(self) -> dict[str, str]:
        found = {
            urn: _text(aspects.get("dataPlatformInstance", {}).get("instance")) for urn, aspects in self.latest.items()
        }
        return {urn: last_part(instance).strip("()").split(",")[-1] for urn, instance in found.items() if instance}

    def _schemas(self) -> dict[str, tuple[SchemaField, ...]]:
        schemas = {}
        for urn, aspects in self.latest.items():
            if "schemaMetadata" in aspects:
                try:
                    schemas[urn] = fields_of(aspects["schemaMetadata"])
                except MalformedAspectError as error:
                    self.problems.append(f"schemaMetadata of {urn} skipped: {error}")
        return schemas

    def _tree(self, runs: Mapping[str, RunNode]) -> list[RunNode]:
        """Hangs every run under its parent, and returns those that have none."""
        parents = {urn: run.parent for urn, run in runs.items() if run.parent is not None and run.parent in runs}
        for urn in _cut_points(parents):
            self.problems.append(f"{urn} is among its own parents: shown as if it had none")
            del parents[urn]
        for urn, parent in parents.items():
            runs[parent].children.append(runs[urn])
        for run in runs.values():
            run.children = _in_upstream_order(run.children)
        return _in_upstream_order([run for urn, run in runs.items() if urn not in parents])


def _cut_points(parents: Mapping[str, str]) -> list[str]:
    """Of every circle of parents the one that was seen first."""
    order = {urn: index for index, urn in enumerate(parents)}
    done: set[str] = set()
    cuts = []
    for start in parents:
        path: dict[str, None] = {}
        urn: str | None = start
        while urn is not None and urn not in done and urn not in path:
            path[urn] = None
            urn = parents.get(urn)
        if urn is not None and urn in path:
            walked = list(path)
            cuts.append(min(walked[walked.index(urn) :], key=order.__getitem__))
        done.update(path)
    return cuts


def _in_upstream_order(runs: Sequence[RunNode]) -> list[RunNode]:
    """Upstream runs first, then by time; where runs wait for each other, the earliest goes first."""
    by_urn = {run.urn: run for run in runs}
    waits_for = {run.urn: {urn for urn in run.upstreams if urn in by_urn and urn != run.urn} for run in runs}
    followers: dict[str, list[str]] = {}
    for urn, upstreams in waits_for.items():
        for upstream in upstreams:
            followers.setdefault(upstream, []).append(urn)
    keys = {run.urn: (math.inf if run.started is None else run.started, run.name, run.urn) for run in runs}
    ready = [keys[urn] for urn, upstreams in waits_for.items() if not upstreams]
    stuck = sorted(keys.values())
    heapq.heapify(ready)
    ordered: dict[str, RunNode] = {}
    while len(ordered) < len(runs):
        urn = heapq.heappop(ready)[-1] if ready else next(key[-1] for key in stuck if key[-1] not in ordered)
        if urn in ordered:
            continue
        ordered[urn] = by_urn[urn]
        for follower in followers.get(urn, ()):
            waits_for[follower].discard(urn)
            if not waits_for[follower]:
                heapq.heappush(ready, keys[follower])
    return list(ordered.values())


def _run_event(aspect: Any) -> RunEvent:
    event = obj(aspect, "the run event")
    time, status, result = _whole(event.get("timestampMillis")), event.get("status"), event.get("result")
    if time is None:
        raise MalformedAspectError("timestampMillis is no whole number")
    if status not in _STATUSES:
        raise MalformedAspectError(f"status is {str(status)[:40]!r}, not one of {', '.join(_STATUSES)}")
    return RunEvent(
        time=time,
        status=status,
        attempt=_whole(event.get("attempt")),
        result=_text(result.get("type")) if isinstance(result, Mapping) else None,
        duration=_whole(event.get("durationMillis")),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
