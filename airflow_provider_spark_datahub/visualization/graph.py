"""Building the graph from proposals: the latest aspect wins, run events add up, patches change edges."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Struct

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.visualization import model
from airflow_provider_spark_datahub.visualization.names import Column, JobParts, last_part

_RUN = "dataProcessInstance"
_STATEMENT = "statement."  # prefix of the job properties with the statements that edges name as evidence
_NO_QUERY_PARTS = 3  # parts that follow the transformation in a patch's path: downstream, query, upstream
_LATEST_WINS = {
    "dataProcessInstanceProperties": _RUN,
    "dataProcessInstanceRelationships": _RUN,
    "dataProcessInstanceInput": _RUN,
    "dataProcessInstanceOutput": _RUN,
    "dataJobInfo": "dataJob",
    "dataPlatformInstance": "dataset",
    "schemaMetadata": "dataset",
}
_PATCHED_SIDES = {"inputDatasetEdges": "inputs", "outputDatasetEdges": "outputs", "inputDatajobEdges": "jobs"}

_Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


# Aspects, as far as a view shows them. Lists and texts may be missing or null.


class _Result(Struct):
    type: str | None = None


class _RunEvent(Struct, rename="camel"):
    timestamp_millis: _Long
    status: Literal["STARTED", "COMPLETE"]
    attempt: _Long | None = None
    result: _Result | None = None
    duration_millis: _Long | None = None


class _EdgeProperties(Struct):
    properties: dict[str, str] | None = None


class _Edge(_EdgeProperties, rename="camel", kw_only=True):
    destination_urn: str


class _Created(Struct):
    time: _Long | None = None


class _Field(Struct, rename="camel"):
    field_path: str
    native_data_type: str | None = None


class _Aspect(Struct, rename="camel"):
    """An aspect whose latest version wins; each has some of these fields."""

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


class _ColumnEdge(Struct, rename="camel"):
    upstreams: list[str] | None = None
    downstreams: list[str] | None = None
    transform_operation: str | None = None


class _JobEdges(Struct, rename="camel"):
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


def build_graph(proposals: Iterable[Proposal]) -> model.Graph:
    """Build the graph of a set of proposals.

    The last ``UPSERT`` of an aspect replaces those before it. Run events add up, duplicates are dropped. A ``PATCH`` of
    ``dataJobInputOutput`` changes the edges that are known at that point. Malformed proposals are skipped and reported
    in :attr:`Graph.problems`.
    """
    builder = _GraphBuilder()
    for proposal in proposals:
        builder.take(proposal)
    return builder.graph()


class _GraphBuilder:
    def __init__(self) -> None:
        self.read = 0
        self.problems: list[str] = []
        self.latest: dict[str, dict[str, _Aspect]] = {}
        self.events: dict[str, dict[model.RunStateEvent, None]] = {}
        self.edges: dict[str, _Edges] = {}

    def take(self, proposal: Proposal) -> None:
        self.read += 1
        try:
            self._take_aspect(proposal.entity_urn, proposal.aspect_name, proposal)
        except msgspec.ValidationError as error:
            self.problems.append(f"{proposal.aspect_name} of {proposal.entity_urn} skipped: {error}")

    def _take_aspect(self, urn: str, name: str, proposal: Proposal) -> None:
        if not urn.startswith("urn:li:"):
            raise msgspec.ValidationError("the entity has no valid URN")
        patch = proposal.change_type == "PATCH"
        if name == "dataJobInputOutput":
            edges = self.edges.get(urn, _Edges())
            self.edges[urn] = edges.patched(proposal.aspect) if patch else _Edges.of_aspect(proposal.aspect)
        elif patch:
            return  # of an aspect that no view shows
        elif name == "dataProcessInstanceRunEvent":
            event = msgspec.convert(proposal.aspect, _RunEvent)
            result = event.result.type if event.result else None
            state = model.RunStateEvent(
                event.timestamp_millis, event.status, event.attempt, result or None, event.duration_millis
            )
            self.events.setdefault(urn, {})[state] = None
        elif _LATEST_WINS.get(name) == proposal.entity_type:
            self.latest.setdefault(urn, {})[name] = msgspec.convert(proposal.aspect, _Aspect)

    def graph(self) -> model.Graph:
        urns = dict.fromkeys([*self.latest, *self.events])
        runs = {urn: self._run(urn) for urn in urns if urn.startswith(f"urn:li:{_RUN}:")}
        return model.Graph(
            roots=tuple(self._tree(runs)),
            jobs=tuple(self._job(urn, edges) for urn, edges in self.edges.items()),
            instances={
                urn: last_part(instance).strip("()").split(",")[-1]
                for urn, aspects in self.latest.items()
                if (instance := aspects.get("dataPlatformInstance", _NOTHING).instance)
            },
            schemas={
                urn: {Column.plain_path(each.field_path): each.native_data_type or "" for each in schema.fields or ()}
                for urn, aspects in self.latest.items()
                if (schema := aspects.get("schemaMetadata"))
            },
            read=self.read,
            problems=tuple(self.problems),
        )

    def _aspect(self, urn: str | None, name: str) -> _Aspect:
        return self.latest.get(urn or "", {}).get(name, _NOTHING)

    def _run(self, urn: str) -> model.RunNode:
        properties = self._aspect(urn, "dataProcessInstanceProperties")
        relationships = self._aspect(urn, "dataProcessInstanceRelationships")
        reads = self._aspect(urn, "dataProcessInstanceInput")
        writes = self._aspect(urn, "dataProcessInstanceOutput")
        template = relationships.parent_template or None
        return model.RunNode(
            urn=urn,
            name=properties.name or last_part(urn),
            kind=model.RunKind.of(template),
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

    def _job(self, urn: str, edges: _Edges) -> model.GraphJob:
        info, job_id = self._aspect(urn, "dataJobInfo"), JobParts.of(urn).job
        statements = {
            key.removeprefix(_STATEMENT): text
            for key, text in (info.custom_properties or {}).items()
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
        name = info.name or (last_part(urn) if job_id is None else job_id)
        return model.GraphJob(urn, name, inputs, outputs, columns, tuple(edges.jobs))

    def _tree(self, runs: Mapping[str, model.RunNode]) -> list[model.RunNode]:
        """Put every run below its parent, and return the runs without one, all by time."""
        roots: list[model.RunNode] = []
        for run in sorted(runs.values(), key=lambda run: (math.inf if run.started is None else run.started, run.name)):
            siblings = runs[run.parent].children if run.parent and run.parent in runs else roots
            siblings.append(run)
        shown = {run.urn for run in model.Graph(tuple(roots)).runs()}
        self.problems += (f"{urn} is not shown: its parents form a cycle" for urn in runs if urn not in shown)
        return roots


class _Edges(Struct):
    """Edges of a DataJob, in the order in which the proposals name them; those to datasets with their properties.

    :param columns: the input columns by output column and transformation.
    """

    inputs: dict[str, Mapping[str, str]] = {}
    outputs: dict[str, Mapping[str, str]] = {}
    jobs: dict[str, Mapping[str, str]] = {}
    columns: dict[tuple[Column, str | None], dict[Column, None]] = {}

    @classmethod
    def of_aspect(cls, value: Any) -> _Edges:
        """Return the edges of a whole ``dataJobInputOutput`` aspect."""
        aspect = msgspec.convert(value, _JobEdges)
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
        """Return these edges with a JSON patch applied; operations on other parts of the aspect are ignored."""
        operations = patch.get("patch") if isinstance(patch, Mapping) else patch
        columns = {key: dict(inputs) for key, inputs in self.columns.items()}
        edges = _Edges(dict(self.inputs), dict(self.outputs), dict(self.jobs), columns)
        for operation in msgspec.convert(operations, list[_Operation]):
            edges._apply(operation)
        return edges

    def _add_column(self, downstream: str, transformation: str | None, upstreams: Sequence[str]) -> None:
        sources = self.columns.setdefault((_column(downstream), transformation or None), {})
        sources.update(dict.fromkeys(map(_column, upstreams)))

    def _apply(self, operation: _Operation) -> None:
        first, *rest = (part.replace("~1", "/").replace("~0", "~") for part in operation.path[1:].split("/"))
        if first in _PATCHED_SIDES and rest:
            side: dict[str, Mapping[str, str]] = getattr(self, _PATCHED_SIDES[first])
            if operation.op == "remove":
                side.pop("/".join(rest), None)
            else:
                side["/".join(rest)] = msgspec.convert(operation.value or {}, _EdgeProperties).properties or {}
        elif first == "fineGrainedLineages" and len(rest) > _NO_QUERY_PARTS:
            self._apply_column(rest, operation.op)

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
        raise msgspec.ValidationError(f"neither a column nor a dataset: {urn[:100]!r}")
    return column


def _properties_by_urn(edges: Sequence[_Edge] | None, urns: Sequence[str] | None) -> dict[str, Mapping[str, str]]:
    """Return the properties of edges by URN; edges of the older list of plain URNs have none."""
    by_urn: dict[str, Mapping[str, str]] = {edge.destination_urn: edge.properties or {} for edge in edges or ()}
    return by_urn | {urn: {} for urn in urns or () if urn not in by_urn}
