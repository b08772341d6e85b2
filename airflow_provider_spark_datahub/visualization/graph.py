"""Building the graph from proposals: the latest aspect wins, run events add up, patches change edges."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.visualization import model
from airflow_provider_spark_datahub.visualization.names import Column, JobParts, last_part, plain_path

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
_STATEMENT = "statement."  # prefix of the job properties with the statements that edges name as evidence
_NO_QUERY_PARTS = 3  # parts that follow the transformation in a patch's path: downstream, query, upstream
_PATCHED_SIDES = {"inputDatasetEdges": "inputs", "outputDatasetEdges": "outputs", "inputDatajobEdges": "jobs"}


def build_graph(proposals: Iterable[Proposal]) -> model.Graph:
    """Build the graph of a set of proposals.

    The last ``UPSERT`` of an aspect replaces those before it. Run events add up, duplicates are dropped. A ``PATCH`` of
    ``dataJobInputOutput`` changes the edges that are known at that point. Malformed proposals are skipped and reported
    in :attr:`Graph.problems`; aspects that no view shows are counted in :attr:`Graph.unread`.
    """
    builder = _GraphBuilder()
    for proposal in proposals:
        builder.take(proposal)
    return builder.graph()


class _GraphBuilder:
    def __init__(self) -> None:
        self.read = 0
        self.unread: Counter[str] = Counter()
        self.problems: list[str] = []
        self.latest: dict[str, dict[str, Mapping[str, Any]]] = {}
        self.events: dict[str, dict[model.RunStateEvent, None]] = {}
        self.edges: dict[str, _Edges] = {}

    def take(self, proposal: Proposal) -> None:
        self.read += 1
        try:
            if not self._take_aspect(proposal):
                self.unread[str(proposal.aspect_name)] += 1
        except _MalformedAspectError as error:
            self.problems.append(f"{proposal.aspect_name} of {proposal.entity_urn} skipped: {error}")

    def _take_aspect(self, proposal: Proposal) -> bool:
        """Return whether a view shows the aspect."""
        urn, name = proposal.entity_urn, proposal.aspect_name
        if not urn.startswith("urn:li:"):
            raise _MalformedAspectError("the entity has no valid URN")
        patch = proposal.change_type == "PATCH"
        if name == "dataJobInputOutput":
            edges = self.edges.get(urn, _Edges())
            self.edges[urn] = edges.patched(proposal.aspect) if patch else _Edges.of_aspect(proposal.aspect)
        elif patch:
            return False
        elif name == "dataProcessInstanceRunEvent":
            event = _run_event(proposal.aspect)
            self.events.setdefault(urn, {})[event] = None
        elif _LATEST_WINS.get(name) == proposal.entity_type:
            self.latest.setdefault(urn, {})[name] = _json_object(proposal.aspect, name)
        else:
            return False
        return True

    def graph(self) -> model.Graph:
        urns = dict.fromkeys([*self.latest, *self.events])
        runs = {urn: self._run(urn) for urn in urns if urn.startswith(f"urn:li:{_RUN}:")}
        return model.Graph(
            roots=tuple(self._tree(runs)),
            jobs=tuple(self._job(urn, edges) for urn, edges in self.edges.items()),
            instances={
                urn: last_part(instance).strip("()").split(",")[-1]
                for urn, aspects in self.latest.items()
                if (instance := _text(aspects.get("dataPlatformInstance", {}).get("instance")))
            },
            schemas=self._schemas(),
            read=self.read,
            unread=dict(self.unread),
            problems=tuple(self.problems),
        )

    def _run(self, urn: str) -> model.RunNode:
        aspects = self.latest.get(urn, {})
        properties = aspects.get(f"{_RUN}Properties", {})
        relationships = aspects.get(f"{_RUN}Relationships", {})
        created = properties.get("created")
        template = _text(relationships.get("parentTemplate"))
        return model.RunNode(
            urn=urn,
            name=_text(properties.get("name")) or last_part(urn),
            kind=model.RunKind.of(template),
            template=template,
            job_name=_text(self.latest.get(template or "", {}).get("dataJobInfo", {}).get("name")),
            parent=_text(relationships.get("parentInstance")),
            created=_whole(created.get("time")) if isinstance(created, Mapping) else None,
            properties=_texts(properties, "customProperties"),
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
            return _urns(aspect, key)
        except _MalformedAspectError as error:
            self.problems.append(f"part of {urn} skipped: {error}")
            return []

    def _job(self, urn: str, edges: _Edges) -> model.GraphJob:
        info = self.latest.get(urn, {}).get("dataJobInfo", {})
        job_id = JobParts.of(urn).job
        name = _text(info.get("name")) or (last_part(urn) if job_id is None else job_id)
        statements = {
            key.removeprefix(_STATEMENT): text
            for key, text in _texts(info, "customProperties").items()
            if key.startswith(_STATEMENT)
        }
        columns = tuple(
            model.ColumnLineage(output, tuple(inputs), transformation)
            for (output, transformation), inputs in edges.columns.items()
        )
        inputs, outputs = (
            {dataset: model.EdgeEvidence.of(properties, statements) for dataset, properties in side.items()}
            for side in (edges.inputs, edges.outputs)
        )
        return model.GraphJob(urn, name, inputs, outputs, columns, tuple(edges.jobs))

    def _schemas(self) -> dict[str, dict[str, str]]:
        schemas = {}
        for urn, aspects in self.latest.items():
            try:
                if "schemaMetadata" in aspects:
                    schemas[urn] = _column_types(aspects["schemaMetadata"])
            except _MalformedAspectError as error:
                self.problems.append(f"schemaMetadata of {urn} skipped: {error}")
        return schemas

    def _tree(self, runs: Mapping[str, model.RunNode]) -> list[model.RunNode]:
        """Put every run below its parent, and return the runs without one."""
        parents = {urn: run.parent for urn, run in runs.items() if run.parent is not None and run.parent in runs}
        for urn in _cut_points(parents):
            self.problems.append(f"{urn} is its own ancestor: shown without its parent")
            del parents[urn]
        for urn, parent in parents.items():
            runs[parent].children.append(runs[urn])
        for run in runs.values():
            run.children = _in_upstream_order(run.children)
        return _in_upstream_order([run for urn, run in runs.items() if urn not in parents])


def _cut_points(parents: Mapping[str, str]) -> list[str]:
    """Return the first run of every cycle of parents."""
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


def _in_upstream_order(runs: Sequence[model.RunNode]) -> list[model.RunNode]:
    """Sort runs: upstream runs first, then by time; a cycle of upstream runs begins with its earliest run."""
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
    ordered: dict[str, model.RunNode] = {}
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


def _run_event(aspect: Any) -> model.RunStateEvent:
    event = _json_object(aspect, "the run event")
    time, status, result = _whole(event.get("timestampMillis")), event.get("status"), event.get("result")
    if time is None:
        raise _MalformedAspectError("timestampMillis is not an integer of 64 bits")
    if status not in _STATUSES:
        raise _MalformedAspectError(f"status is {str(status)[:40]!r}, not one of {', '.join(_STATUSES)}")
    return model.RunStateEvent(
        time=time,
        status=status,
        attempt=_whole(event.get("attempt")),
        result=_text(result.get("type")) if isinstance(result, Mapping) else None,
        duration=_whole(event.get("durationMillis")),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _whole(value: Any) -> int | None:
    """Return an integer of the aspects' models, which have at most 64 bits."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and -(2**63) <= value < 2**63 else None


@dataclass(slots=True)
class _Edges:
    """Edges of a DataJob, in the order in which the proposals name them; those to datasets with their properties.

    :param columns: the input columns by output column and transformation.
    """

    inputs: dict[str, Mapping[str, str]] = field(default_factory=dict)
    outputs: dict[str, Mapping[str, str]] = field(default_factory=dict)
    jobs: dict[str, None] = field(default_factory=dict)
    columns: dict[tuple[Column, str | None], dict[Column, None]] = field(default_factory=dict)

    @classmethod
    def of_aspect(cls, value: Any) -> _Edges:
        """Return the edges of a whole ``dataJobInputOutput`` aspect."""
        aspect = _json_object(value, "the aspect")
        edges = cls(
            inputs=_dataset_edges(aspect, "inputDatasetEdges", "inputDatasets"),
            outputs=_dataset_edges(aspect, "outputDatasetEdges", "outputDatasets"),
            jobs=dict.fromkeys([*_urns(aspect, "inputDatajobs"), *_urns(aspect, "inputDatajobEdges")]),
        )
        for lineage in _json_objects(aspect, "fineGrainedLineages", "an entry of fineGrainedLineages"):
            transformation = lineage.get("transformOperation")
            for downstream in _urns(lineage, "downstreams"):
                edges._add_column(downstream, transformation, _urns(lineage, "upstreams"))
        return edges

    def patched(self, patch: Any) -> _Edges:
        """Return these edges with a JSON patch applied; operations on other parts of the aspect are ignored."""
        operations = patch.get("patch") if isinstance(patch, Mapping) else patch
        if not isinstance(operations, list):
            raise _MalformedAspectError("the patch is not a list of operations")
        columns = {key: dict(inputs) for key, inputs in self.columns.items()}
        edges = _Edges(dict(self.inputs), dict(self.outputs), dict(self.jobs), columns)
        for operation in operations:
            edges._apply(_json_object(operation, "an operation of the patch"))
        return edges

    def _add_column(self, downstream: str, transformation: Any, upstreams: list[str]) -> None:
        key = (_column(downstream), transformation if isinstance(transformation, str) and transformation else None)
        self.columns.setdefault(key, {}).update(dict.fromkeys(_column(upstream) for upstream in upstreams))

    def _apply(self, operation: Mapping[str, Any]) -> None:
        kind, path = operation.get("op"), operation.get("path")
        if kind not in ("add", "remove", "replace") or not isinstance(path, str) or not path.startswith("/"):
            raise _MalformedAspectError("an operation of the patch has no known op and path")
        first, *rest = (part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/"))
        if first in _PATCHED_SIDES and rest:
            side: dict[str, Any] = getattr(self, _PATCHED_SIDES[first])
            if kind == "remove":
                side.pop("/".join(rest), None)
            else:
                side["/".join(rest)] = _properties(operation.get("value"))
        elif first == "fineGrainedLineages" and len(rest) > _NO_QUERY_PARTS:
            self._apply_column(rest, kind)

    def _apply_column(self, parts: list[str], kind: str) -> None:
        # Some producers do not escape the "/" of a query, which splits the transformation: count from the end.
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
        raise _MalformedAspectError(f"neither a column nor a dataset: {urn[:100]!r}")
    return column


class _MalformedAspectError(ValueError):
    """An aspect that does not have the shape of its DataHub model."""


def _json_object(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _MalformedAspectError(f"{what} is not a JSON object")
    return value


def _json_objects(aspect: Mapping[str, Any], key: str, what: str) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON objects of the list under a key, which may be missing or null."""
    values = aspect.get(key) or []
    if not isinstance(values, list):
        raise _MalformedAspectError(f"{key} is not a list")
    for value in values:
        yield _json_object(value, what)


def _dataset_edges(aspect: Mapping[str, Any], key: str, old_key: str) -> dict[str, Mapping[str, str]]:
    """Return the properties of edges by URN; edges of the older list of plain URNs have no properties."""
    urns = _urns(aspect, key)
    edges: dict[str, Mapping[str, str]] = dict(zip(urns, map(_properties, aspect.get(key) or []), strict=True))
    return edges | {urn: {} for urn in _urns(aspect, old_key) if urn not in edges}


def _properties(edge: Any) -> dict[str, str]:
    return _texts(edge, "properties") if isinstance(edge, Mapping) else {}


def _texts(aspect: Mapping[str, Any], key: str) -> dict[str, str]:
    """Return the JSON object under a key as texts; it is empty if it is missing, or something else."""
    found = aspect.get(key)
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, Mapping) else {}


def _urns(aspect: Mapping[str, Any], key: str) -> list[str]:
    """Return the URNs of the list under a key, which may be missing or null: a list of edges or of strings."""
    values = aspect.get(key) or []
    if key.endswith("Edges"):
        values = [edge.get("destinationUrn") for edge in _json_objects(aspect, key, f"an edge of {key}")]
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise _MalformedAspectError(f"{key} is not a list of strings")
    return values


def _column_types(schema: Mapping[str, Any]) -> dict[str, str]:
    types = {}
    for column in _json_objects(schema, "fields", "a field"):
        path = column.get("fieldPath")
        if not isinstance(path, str):
            raise _MalformedAspectError("fieldPath is not a string")
        types[plain_path(path)] = str(column.get("nativeDataType") or "")
    return types
