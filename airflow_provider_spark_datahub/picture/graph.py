"""Folds proposals into the graph of what they say: the latest aspect wins, run events add up, patches add."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from airflow_provider_spark_datahub.conversion.proposals import Proposal
from airflow_provider_spark_datahub.picture.edges import (
    Edges,
    MalformedAspectError,
    fields_of,
    obj,
    texts,
    urns_of,
)
from airflow_provider_spark_datahub.picture.model import (
    Attempt,
    Column,
    ColumnLineage,
    Graph,
    JobLineage,
    RunEvent,
    RunKind,
    RunNode,
    SchemaField,
    kind_of,
)
from airflow_provider_spark_datahub.picture.urns import job_parts, last_part

__all__ = ["Attempt", "Column", "ColumnLineage", "Graph", "JobLineage", "RunEvent", "RunKind", "RunNode", "fold"]

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


def fold(proposals: Iterable[Proposal]) -> Graph:
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
