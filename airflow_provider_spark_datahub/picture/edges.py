"""The edges of one DataJob: its ``dataJobInputOutput`` aspect, whole or as the sum of patches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_spark_datahub.picture.model import Column, ColumnLineage, JobLineage, SchemaField
from airflow_provider_spark_datahub.picture.urns import dataset_parts, field_parts, plain_path

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
