"""Writes of an execution's plans: each sink, with what reaches it.

Tests: ``tests/conversion/test_plan_writes.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from airflow_provider_spark_datahub.conversion.spark_log.log import SqlExecution
from airflow_provider_spark_datahub.conversion.spark_log.plans import (
    CHECKPOINT,
    REUSED,
    SUBQUERY,
    Node,
    Plan,
    PlanDataset,
    Tree,
)

_ROWS_OF_DRIVER = "LocalTableScan"
_RDDS = "Scan ExistingRDD"
_OF_MICRO_BATCH = " SQLExecutionRDD["
_EMPTY = "<empty>"
# Delta's own queries, and the rows of its transaction log.
_OF_DELTA = re.compile(r"Delta: |[A-Z]+ operation - ")
_LOG_OF_DELTA = re.compile(r"\btxn#\d+")


@dataclass(slots=True)
class _PlanWrite:
    """Sink of a plan, with what reaches it.

    :param sources: datasets that the plan below the sink reads.
    :param rdd_paths: paths of files whose rows reach it through RDDs.
    :param reads_checkpoint: rows of a checkpoint reach it.
    :param has_driver_rows: the driver held rows that reach it.
    """

    sink: PlanDataset
    sources: dict[PlanDataset, None] = field(default_factory=dict)
    rdd_paths: dict[str, None] = field(default_factory=dict)
    reads_checkpoint: bool = False
    has_driver_rows: bool = False


def writes_of(parts: Sequence[SqlExecution]) -> Iterator[_PlanWrite]:
    """Yield the writes of an execution and its parts."""
    batch = Plan.of(parts[0].plan)
    for part in parts:
        plan = Plan.of(part.plan)
        for tree in plan.trees:
            for number, node in tree.nodes.items():
                for sink in node.sinks():
                    write = _PlanWrite(sink)
                    _add_nodes(write, _below(number, tree, plan), part)
                    if part is not parts[0] and _reads_batch(plan):
                        nodes = [node for tree in batch.trees for node in tree.nodes.values()]
                        _add_nodes(write, nodes, parts[0])
                    yield write


def has_driver_rows(parts: Sequence[SqlExecution]) -> bool:
    """Return whether an execution reads rows that the driver held."""
    for part in parts:
        if not _OF_DELTA.match(part.description):
            for node in Plan.of(part.plan).nodes:
                if _is_of_driver(node, part):
                    return True
    return False


def _add_nodes(write: _PlanWrite, nodes: list[Node], part: SqlExecution) -> None:
    for node in nodes:
        write.sources.update(dict.fromkeys(node.sources()))
        relation = node.relation()
        if relation is not None:
            write.sources[relation] = None
        write.reads_checkpoint = write.reads_checkpoint or CHECKPOINT in node.body
        write.has_driver_rows = write.has_driver_rows or _is_of_driver(node, part)
        if node.head == _RDDS:
            write.rdd_paths.update(part.rdd_paths)


def _below(number: int, tree: Tree, plan: Plan) -> list[Node]:
    """Return a node and all nodes whose rows reach it, also by subqueries and reused parts."""
    reached: dict[int, Node] = {}
    nodes = {one: node for each in plan.trees for one, node in each.nodes.items()}
    subqueries = {each.subquery[1]: next(iter(each.nodes), -1) for each in plan.trees}
    # Scans that the plan draws nowhere are those of subqueries in cached queries.
    undrawn = [node for node in plan.nodes if node.number not in nodes]
    waiting = [number]
    while waiting:
        current = waiting.pop()
        node = tree.nodes.get(current) or nodes.get(current)
        if node is None or current in reached:
            continue
        reached[current] = node
        waiting += node.children
        reused = REUSED.match(node.head)
        if reused is not None:
            waiting.append(int(reused["number"]))
        for subquery in SUBQUERY.finditer(f"{node.head}\n{node.body}"):
            waiting.append(subqueries.get(subquery["id"], -1))
    return [*reached.values(), *undrawn]


def _reads_batch(plan: Plan) -> bool:
    return any(node.head == _RDDS and _OF_MICRO_BATCH in node.body for node in plan.nodes)


def _is_of_driver(node: Node, part: SqlExecution) -> bool:
    if node.head == _ROWS_OF_DRIVER:
        return _EMPTY not in f"{node.head}{node.body}"
    if node.head != _RDDS or part.rdd_paths or part.parallelized is False:
        return False
    marks = (CHECKPOINT, _OF_MICRO_BATCH)
    return not any(mark in node.body for mark in marks) and _LOG_OF_DELTA.search(node.body) is None
