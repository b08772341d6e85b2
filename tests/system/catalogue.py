"""Proposals of a catalogue, looked up by entity and aspect."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from datahub.emitter.mcp_builder import DatahubKey

from tests.delivery.samples import delivered_lines
from tests.oracles.strict import canonical_violations, violations

Json = dict[str, Any]


class Column(NamedTuple):
    """A column of a dataset."""

    dataset: str
    name: str


class DagRunKey(DatahubKey):
    """The key of a DAG run (run tree, URNs)."""

    cluster: str = "prod"
    orchestrator: str = "airflow"
    dag_id: str
    run_id: str


class TaskRunKey(DatahubKey):
    """The key of a task run, as acryl-datahub's ``DataProcessInstanceKey``."""

    cluster: str = "prod"
    orchestrator: str = "airflow"
    id: str


class MappedTaskRunKey(TaskRunKey):
    """The key of a mapped task's run."""

    map_index: str


def instance(key: DatahubKey) -> str:
    """Return the DataProcessInstance of a key."""
    return f"urn:li:dataProcessInstance:{key.guid()}"


def task_job(dag_id: str, task_id: str) -> str:
    """Return the DataJob of an Airflow task."""
    return f"urn:li:dataJob:(urn:li:dataFlow:(airflow,{dag_id},prod),{task_id})"


def spark_job(dag_id: str, task_id: str, name: str | None = None) -> str:
    """Return the DataJob of a task's Spark application, by default of one that is named after the
    task.
    """
    return f"urn:li:dataJob:(urn:li:dataFlow:(spark,{name or task_id},default),{dag_id}.{task_id})"


def file_dataset(path: Path) -> str:
    """Return a dataset on the local disk."""
    return f"urn:li:dataset:(urn:li:dataPlatform:file,{path},PROD)"


class Catalogue:
    """Proposals in the order in which they arrived, as JSON."""

    def __init__(self, proposals: Iterable[Json]) -> None:
        self.proposals = list(proposals)

    @classmethod
    def of_folder(cls, path: Path) -> Catalogue:
        """Read what the file sink wrote."""
        return cls(json.loads(line) for line in delivered_lines(path))

    def assert_strict(self) -> None:
        """Every proposal is what acryl-datahub would write and GMS would keep."""
        assert self.proposals
        for proposal in self.proposals:
            assert violations(proposal) == [], proposal
            assert canonical_violations(proposal) == [], proposal

    def all(self, urn: str, aspect: str, change_type: str = "UPSERT") -> list[Any]:
        """Return the aspect's values in the order they arrived, repeated ones once."""
        found: list[Any] = []
        for one in self.proposals:
            if (one["entityUrn"], one["aspectName"], one["changeType"]) == (
                urn,
                aspect,
                change_type,
            ):
                value = _content(one["aspect"])
                if value not in found:
                    found.append(value)
        return found

    def one(self, urn: str, aspect: str) -> Any:
        """Return the aspect, which is always the same."""
        (value,) = self.all(urn, aspect)
        return value

    def run_events(self, urn: str) -> list[tuple[str, int | None, str | None]]:
        """Status, attempt and result of a run's events."""
        return [
            (event["status"], event.get("attempt"), (event.get("result") or {}).get("type"))
            for event in self.all(urn, "dataProcessInstanceRunEvent")
        ]

    def children(self, urn: str) -> list[str]:
        """Return the instances whose parent is this one, in the order they arrived."""
        found = [
            one["entityUrn"]
            for one in self.proposals
            if one["aspectName"] == "dataProcessInstanceRelationships"
            and _content(one["aspect"]).get("parentInstance") == urn
        ]
        return list(dict.fromkeys(found))

    @property
    def run_id(self) -> str:
        """Return the id of the only DAG run."""
        (run_id,) = {
            properties["run_id"]
            for urn in self.urns("dataProcessInstance")
            for value in self.all(urn, "dataProcessInstanceProperties")
            if "run_id" in (properties := value.get("customProperties", {}))
        }
        return str(run_id)

    def dag_run(self, dag_id: str) -> str:
        """Return the run of a DAG that ran once."""
        return instance(DagRunKey(dag_id=dag_id, run_id=self.run_id))

    def task_run(self, dag_id: str, task_id: str, map_index: int | None = None) -> str:
        """Return the run of a task of a DAG that ran once."""
        name = f"{dag_id}_{task_id}_{self.run_id}"
        return instance(
            TaskRunKey(id=name)
            if map_index is None
            else MappedTaskRunKey(id=name, map_index=str(map_index))
        )

    @property
    def have_both_sources(self) -> list[bool]:
        """Whether events report queries of each application whose Spark event log was read."""
        runs = (
            self.all(urn, "dataProcessInstanceProperties")
            for urn in sorted(self.urns("dataProcessInstance"))
        )
        counts = (
            run[-1].get("customProperties", {}).get("spark_executions_reported")
            for run in runs
            if run
        )
        return [count != "0" for count in counts if count is not None]

    def urns(self, entity_type: str) -> set[str]:
        """Return all entities of a type."""
        return {one["entityUrn"] for one in self.proposals if one["entityType"] == entity_type}


def _content(aspect: Json) -> Any:
    return aspect["json"] if "json" in aspect else json.loads(aspect["value"])


def output_job(job: str, dataset: str) -> str:
    """Return the DataJob of an output, beside that of its application."""
    platform, name, _ = dataset.removeprefix("urn:li:dataset:(urn:li:dataPlatform:").split(",")
    return f"{job.removesuffix(')')}.{platform}.{name})"


def edges(input_output: Json, side: str) -> set[str]:
    """Return the datasets of a ``dataJobInputOutput``.

    :param side: ``input`` or ``output``.
    """
    return {edge["destinationUrn"] for edge in input_output[f"{side}DatasetEdges"]}


def patched_paths(operations: list[Json]) -> list[str]:
    """Return what a patch adds, as JSON pointers; the URNs in it as they are."""
    assert {operation["op"] for operation in operations} == {"add"}
    return [operation["path"].replace("~1", "/").replace("~0", "~") for operation in operations]


def direct_columns(input_output: Json) -> set[tuple[Column, Column]]:
    """Return pairs of columns; the second is computed from the first."""
    return set(_column_pairs(input_output, "DIRECT"))


def indirect_columns(input_output: Json) -> set[Column]:
    """Columns that decide about rows: filters, joins, groups."""
    return {source for source, _ in _column_pairs(input_output, "INDIRECT")}


def _column_pairs(input_output: Json, kind: str) -> Iterator[tuple[Column, Column]]:
    for lineage in input_output["fineGrainedLineages"]:
        kinds = {part.partition(":")[0] for part in lineage["transformOperation"].split(",")}
        if kind in kinds:
            for source in lineage["upstreams"]:
                for target in lineage["downstreams"]:
                    yield _column(source), _column(target)


def _column(urn: str) -> Column:
    dataset, _, name = urn.removeprefix("urn:li:schemaField:(").removesuffix(")").rpartition(",")
    return Column(dataset, name)
