"""DataHub's memory of the edges of DataJobs: the state after upserts and patches, in the order they
arrived.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Proposal = Mapping[str, Any]

_EDGE_FIELDS = ("inputDatasetEdges", "outputDatasetEdges", "inputDatajobEdges")
# DataHub's own Airflow plugin names datasets without edges.
_URN_FIELDS = ("inputDatajobs", "inputDatasets", "outputDatasets")


@dataclass
class StoredEdges:
    """Edges of one DataJob, by the keys of GMS's patch templates (``DataJobInputOutputTemplate``).

    :ivar columns: downstream and upstream.
    """

    inputs: set[str] = field(default_factory=set)
    outputs: set[str] = field(default_factory=set)
    jobs: set[str] = field(default_factory=set)
    columns: set[tuple[str, str]] = field(default_factory=set)
    _items: dict[tuple[str, ...], Any] = field(default_factory=dict)

    def upsert(self, aspect: Mapping[str, Any]) -> None:
        """Replace all edges."""
        self._items = {
            (name, edge["destinationUrn"]): edge
            for name in _EDGE_FIELDS
            for edge in aspect.get(name) or ()
        } | {(name, urn): urn for name in _URN_FIELDS for urn in aspect.get(name) or ()}
        for lineage in aspect.get("fineGrainedLineages") or ():
            for upstream in lineage["upstreams"]:
                for downstream in lineage["downstreams"]:
                    key = (
                        lineage.get("transformOperation") or "NONE",
                        downstream,
                        "NONE",
                        upstream,
                    )
                    self._items["fineGrainedLineages", *key] = lineage
        self._look()

    def aspect(self) -> dict[str, Any]:
        """Return the edges as an aspect; of column lineage each pair by itself."""
        found: dict[str, Any] = {"inputDatasets": [], "outputDatasets": [], "inputDatajobs": []}
        for (name, *parts), stored in self._items.items():
            item = stored
            if name == "fineGrainedLineages":
                transform, downstream, _, upstream = parts
                item = {
                    "upstreamType": "FIELD_SET",
                    "upstreams": [upstream],
                    "downstreamType": "FIELD",
                    "downstreams": [downstream],
                    "transformOperation": transform,
                    "confidenceScore": stored["confidenceScore"],
                }
            found.setdefault(name, []).append(item)
        return found

    def patch(self, operations: Iterable[Mapping[str, Any]]) -> None:
        """Add and remove edges; the removal of a missing one changes nothing."""
        for operation in operations:
            key = tuple(
                part.replace("~1", "/").replace("~0", "~")
                for part in operation["path"].split("/")[1:]
            )
            if operation["op"] == "remove":
                self._items.pop(key, None)
            else:
                assert operation["op"] == "add"
                self._items[key] = operation["value"]
        self._look()

    def _look(self) -> None:
        self.inputs = {
            key[1] for key in self._items if key[0] in ("inputDatasetEdges", "inputDatasets")
        }
        self.outputs = {
            key[1] for key in self._items if key[0] in ("outputDatasetEdges", "outputDatasets")
        }
        self.jobs = {
            key[1] for key in self._items if key[0] in ("inputDatajobEdges", "inputDatajobs")
        }
        self.columns = {(key[2], key[4]) for key in self._items if key[0] == "fineGrainedLineages"}


def stored_edges(proposals: Iterable[Proposal]) -> dict[str, StoredEdges]:
    """Return the edges of all DataJobs after these proposals, as the file sink writes them."""
    stored: dict[str, StoredEdges] = {}
    for proposal in proposals:
        if proposal["aspectName"] != "dataJobInputOutput":
            continue
        edges, aspect = stored.setdefault(proposal["entityUrn"], StoredEdges()), proposal["aspect"]
        if proposal["changeType"] == "PATCH":
            edges.patch(json.loads(aspect["value"]))
        else:
            edges.upsert(aspect["json"] if "json" in aspect else json.loads(aspect["value"]))
    return stored
