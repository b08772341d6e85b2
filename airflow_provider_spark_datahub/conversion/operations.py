"""What an application's runs did to datasets, as DataHub's operations (Deviation 18)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from airflow_provider_spark_datahub.conversion.datasets import DatasetNamer
from airflow_provider_spark_datahub.conversion.fold import DatasetState, RunState
from airflow_provider_spark_datahub.conversion.output_facets import NOT_COUNTED, OutputStatistics

# What OpenLineage's lifecycle says, in DataHub's words (``OperationType``).
_BY_LIFECYCLE = {
    "ALTER": "ALTER",
    "CREATE": "CREATE",
    "DROP": "DROP",
    "OVERWRITE": "UPDATE",
    "RENAME": "ALTER",
    "TRUNCATE": "DELETE",
}
# Likewise the first words of a statement, as acryl-datahub's ``QueryTypeProps`` and its Delta source have them.
_BY_STATEMENT = {
    "CREATE": "CREATE",
    "DELETE": "DELETE",
    "INSERT": "INSERT",
    "INSERT OVERWRITE": "UPDATE",
    "MERGE": "UPDATE",
    "TRUNCATE": "DELETE",
    "UPDATE": "UPDATE",
}
_WRITTEN = "INSERT"


@dataclass(frozen=True, slots=True)
class Operation:
    """What one run did to one dataset. Times are in ms since the epoch.

    :param dataset: its URN.
    :param kind: one of DataHub's ``OperationType``.
    :param time_ms: when the run ended.
    :param previous: the URN that a renamed dataset had, or empty.
    :param partitions: of the dataset that it was about; empty where it was all of it, or nobody told.
    """

    dataset: str
    run_id: str
    kind: str
    start_ms: int
    time_ms: int
    statistics: OutputStatistics
    previous: str = ""
    partitions: tuple[str, ...] = ()


def operations(runs: Iterable[RunState], namer: DatasetNamer) -> list[Operation]:
    """Operations of the runs that are known to have ended well, by dataset and time.

    A dataset that a run names twice, such as a table by two paths, is one operation.
    """
    found: dict[tuple[str, str], Operation] = {}
    for run in runs:
        for one in _operations_of(run, namer):
            key = one.dataset, one.run_id
            if key not in found or found[key].statistics == NOT_COUNTED:
                found[key] = one
    by_dataset: dict[tuple[str, OutputStatistics], list[Operation]] = {}
    for one in found.values():
        by_dataset.setdefault((one.dataset, one.statistics), []).append(one)
    outer = [one for same in by_dataset.values() for one in _without_inner(same)]
    return sorted(outer, key=lambda one: (one.dataset, one.time_ms, one.run_id))


def _operations_of(run: RunState, namer: DatasetNamer) -> Iterator[Operation]:
    if run.failure or not run.ended or run.start_ms is None or run.end_ms is None:
        return
    for dataset, state in run.changed:
        name = namer.name(dataset)
        if name is None:
            continue
        previous = namer.name(state.previous) if state.previous is not None else None
        yield Operation(
            dataset=name.urn,
            run_id=run.run_id,
            kind=_kind(run, state),
            start_ms=run.start_ms,
            time_ms=run.end_ms,
            statistics=state.statistics,
            previous=previous.urn if previous is not None else "",
            partitions=state.partitions,
        )


def _kind(run: RunState, state: DatasetState) -> str:
    """By the output's lifecycle, else by the statement; a producer that tells neither has written rows."""
    if state.lifecycle:
        return _BY_LIFECYCLE.get(state.lifecycle, "UNKNOWN")
    words = run.sql.upper().split(maxsplit=2)[:2]
    return _BY_STATEMENT.get(" ".join(words)) or _BY_STATEMENT.get(" ".join(words[:1]), _WRITTEN)


def _without_inner(same: list[Operation]) -> Iterator[Operation]:
    """Spark runs a CREATE TABLE AS SELECT as a query around the one that writes, and both count the same rows.

    :param same: operations on one dataset with the same statistics.
    """
    covered_ms = -1
    for one in sorted(same, key=lambda one: (one.start_ms, one.kind != "CREATE", -one.time_ms)):
        if one.statistics != NOT_COUNTED and one.time_ms <= covered_ms:
            continue
        if one.kind == "CREATE":
            covered_ms = max(covered_ms, one.time_ms)
        yield one
