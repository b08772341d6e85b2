"""Records of task runs for other runs of the task (docs/outbox.md).

*Edges* are for siblings and for later DAG runs. Task runs that share a DataJob only add edges. When their DAG run has
ended, these records show which edges earlier DAG runs wrote and this one did not.

*Failures of the listener* are for later attempts of the same task run, which run without it.
"""

from __future__ import annotations

import gzip
import logging
import zlib
from collections.abc import Collection, Iterable, Mapping

import msgspec

from airflow_provider_spark_datahub.attempt_key import AttemptKey
from airflow_provider_spark_datahub.delivery.outbox.format import EntryName, Folder
from airflow_provider_spark_datahub.delivery.outbox.storage import OutboxStorage

log = logging.getLogger(__name__)

_LONGEST_FAILURE = 64 * 1024


class EdgeRecord(msgspec.Struct, frozen=True):
    """Edges of one task run that succeeded and whose events were complete.

    :param run_start_ms: start of its DAG run.
    :param run_due_ms: when its DAG run was due, which orders DAG runs.
    :param edges: paths of JSON patches by the URN of the DataJob; only of DataJobs that are shared.
    :param inputs: platform and name in DataHub of each dataset that was read; likewise :attr:`outputs`.
    """

    key: AttemptKey
    connection_id: str
    run_start_ms: int
    run_due_ms: int
    edges: Mapping[str, tuple[str, ...]]
    inputs: tuple[tuple[str, str], ...] = ()
    outputs: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """Name of the record's object: one for all attempts of a task run."""
        connection = EntryName.connection_hash(self.connection_id)
        return f"{Folder.EDGES}/{self.key.task}/{self.run_start_ms:013d}-{self.key.instance}-{connection}.json.gz"


class EdgeRecords:
    """Records in an outbox. Methods raise OSError if its storage refuses."""

    def __init__(self, storage: OutboxStorage) -> None:
        self._storage = storage

    def write(self, record: EdgeRecord, *, max_age: float) -> None:
        """Write a record durably, and remove those of the task's DAG runs that began ``max_age`` seconds before."""
        self._storage.write(record.name, [gzip.compress(msgspec.json.encode(record), 1, mtime=0)])
        _remove_older(self._storage, record.name, record.run_start_ms - max_age * 1000)

    def of_task(self, dag_id: str, task_id: str, connection_id: str) -> list[EdgeRecord]:
        """Return the records of a task's runs, the oldest DAG run first. Unreadable records are skipped and logged."""
        folder = f"{Folder.EDGES}/{AttemptKey(dag_id, '', task_id, -1, 1).task}"
        records = [record for name in self._storage.stored(folder) if (record := self._read(name)) is not None]
        found = [record for record in records if record.connection_id == connection_id]
        return sorted(found, key=lambda record: record.run_due_ms)

    def drop(self, records: Iterable[EdgeRecord]) -> None:
        """Remove records."""
        for record in records:
            self._storage.remove(record.name)

    def _read(self, name: str) -> EdgeRecord | None:
        try:
            return msgspec.json.decode(gzip.decompress(self._storage.read(name)), type=EdgeRecord)
        except FileNotFoundError:
            return None
        except (OSError, EOFError, ValueError, zlib.error, RecursionError) as error:
            log.warning("The record of edges %s cannot be read: %s", self._storage.describe(name), error)
            return None


class ListenerFailures:
    """Records in an outbox of how OpenLineage's listener made a task run's job fail.

    Methods raise OSError if its storage refuses.
    """

    def __init__(self, storage: OutboxStorage) -> None:
        self._storage = storage

    def write(self, key: AttemptKey, run_start_ms: int, failure: str, *, max_age: float) -> None:
        """Record a failure durably, and remove those of the task's DAG runs that began ``max_age`` seconds before.

        :param run_start_ms: start of the DAG run.
        """
        name = self._name(key, run_start_ms)
        self._storage.write(name, [failure.encode("utf-8", "replace")[:_LONGEST_FAILURE]])
        _remove_older(self._storage, name, run_start_ms - max_age * 1000)

    def of_task_run(self, key: AttemptKey, run_start_ms: int) -> str | None:
        """Return the failure in an earlier attempt of a task run; ``None`` if there was none."""
        try:
            return self._storage.read(self._name(key, run_start_ms), most=_LONGEST_FAILURE).decode("utf-8", "replace")
        except FileNotFoundError:
            return None

    @staticmethod
    def _name(key: AttemptKey, run_start_ms: int) -> str:
        return f"{Folder.LISTENER_FAILURES}/{key.task}/{run_start_ms:013d}-{key.instance}.txt"


def _remove_older(storage: OutboxStorage, name: str, before_ms: float) -> None:
    """Remove the records in the folder of a record whose DAG runs began before a time."""
    for stored in storage.stored(name.rpartition("/")[0]):
        start = stored.rpartition("/")[2].partition("-")[0]
        if start.isdigit() and int(start) < before_ms:
            storage.remove(stored)


def outdated_edges(
    records: Collection[EdgeRecord], run_id: str, task_runs: Mapping[str, Collection[int]]
) -> tuple[dict[str, set[str]], list[EdgeRecord]]:
    """Return the edges that earlier DAG runs wrote and this one did not, and the records that this one replaces.

    A task keeps its earlier edges unless each of its runs in this DAG run has a record: its edges are not all known.

    :param records: of the DAG's tasks, for one connection.
    :param run_id: of the DAG run that has ended.
    :param task_runs: map indexes of the task runs of this DAG run, by task.
    :returns: paths of JSON patches by the URN of the DataJob; and records of earlier DAG runs.
    """
    own = [record for record in records if record.key.run_id == run_id]
    recorded = {(record.key.task_id, record.key.map_index) for record in own}
    complete = {
        task_id
        for task_id, indexes in task_runs.items()
        if indexes and all((task_id, index) in recorded for index in indexes)
    }
    due_ms = min((record.run_due_ms for record in own), default=0)
    old = [record for record in records if record.run_due_ms < due_ms and record.key.task_id in complete]
    names = {record.name for record in old}
    kept = _edges(record for record in records if record.name not in names)
    outdated = {urn: paths - kept.get(urn, set()) for urn, paths in _edges(old).items()}
    return {urn: paths for urn, paths in outdated.items() if paths}, old


def _edges(records: Iterable[EdgeRecord]) -> dict[str, set[str]]:
    edges: dict[str, set[str]] = {}
    for record in records:
        for urn, paths in record.edges.items():
            edges.setdefault(urn, set()).update(paths)
    return edges
