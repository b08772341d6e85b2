"""Which SQL executions OpenLineage lost: those that Spark's event log knows, and no event."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from airflow_provider_spark_datahub.conversion.fold import Application, RunState
from airflow_provider_spark_datahub.conversion.spark_log import LoggedApplication, SqlExecution

# Roots and inner nodes of plans that write data. OpenLineage leaves out on purpose what only reads (collect, show,
# count) and some commands (its SparkNodesFilter, CreateViewFilter), so that nothing else is told to be lost.
_WRITES = re.compile(
    r"\b(?:InsertInto\w*|Create\w*TableAsSelect\w*|Replace\w*TableAsSelect\w*|SaveIntoDataSourceCommand"
    r"|MergeInto\w*|MergeRows|AppendData\w*|Overwrite(?:ByExpression|PartitionsDynamic)\w*|ReplaceData|WriteDelta"
    r"|WriteIntoDelta\w*|DeleteFromTable\w*|DeleteCommand\w*|UpdateCommand\w*|UpdateTable\w*)\b"
)
_REASON = "it wrote data, and OpenLineage sent no event of it"
# The tree comes first; "formatted" plans describe each node below it, after two empty lines.
_END_OF_TREE = "\n\n\n"


@dataclass(frozen=True, slots=True)
class LostExecution:
    """A SQL execution without lineage.

    :param id: Spark's number of the execution, as in its UI.
    :param description: as in Spark's UI: the call site or the user's own; empty where it is not known.
    :param reason: for people.
    :param plans: its physical plan and those of its parts.
    """

    id: int
    description: str
    reason: str
    plans: tuple[str, ...] = field(default=(), compare=False, repr=False)


def lost_executions(logged: LoggedApplication, applications: Sequence[Application]) -> list[LostExecution]:
    """What an application did and OpenLineage did not tell of.

    An execution was told of where a run began or ended in the very millisecond in which it did: OpenLineage takes its
    times from Spark's events. To give no false alarm, nothing is said of micro-batches (their query's progress names
    source and sink), of what failed, of parts of an execution that was told of, and of what OpenLineage leaves out on
    purpose: only of what wrote data. An execution with its parts is told once.

    :param applications: the application's; others do no harm.
    """
    if not any(one.runs for one in applications):
        # The listener did not run: nothing was lost one by one.
        return []
    told = told_executions(logged, (run for one in applications for run in one.runs))
    lost: dict[int, LostExecution] = {}
    for execution in logged.executions.values():
        if execution.query_run_id or execution.failed or execution.id in told:
            continue
        if wrote_data(execution) and execution.root_id not in lost:
            plans = tuple(one.plan for one in logged.executions.values() if one.root_id == execution.root_id)
            lost[execution.root_id] = LostExecution(execution.id, execution.description, _REASON, plans)
    return list(lost.values())


def told_executions(logged: LoggedApplication, runs: Iterable[RunState]) -> set[int]:
    """The executions of which runs tell: of themselves, of the one that they are part of, or of a part of it.

    A CREATE TABLE AS SELECT is an execution around another, and events may tell of either.
    """
    starts, ends = _told_times(runs)
    roots = {
        one.root_id
        for one in logged.executions.values()
        if one.start_ms in starts or (one.end_ms and one.end_ms in ends)
    }
    return {one.id for one in logged.executions.values() if one.root_id in roots}


def wrote_data(execution: SqlExecution) -> bool:
    """Whether it ended, and its plan is one that writes data."""
    return execution.end_ms is not None and bool(_WRITES.search(execution.plan.partition(_END_OF_TREE)[0]))


def _told_times(runs: Iterable[RunState]) -> tuple[set[int], set[int]]:
    starts: set[int] = set()
    ends: set[int] = set()
    for run in runs:
        if run.started and run.start_ms is not None:
            starts.add(run.start_ms)
        if run.ended and run.end_ms is not None:
            ends.add(run.end_ms)
    return starts, ends
