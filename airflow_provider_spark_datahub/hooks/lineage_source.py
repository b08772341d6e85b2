"""Lineage of attempts for Airflow's servers, from the outbox and from the reports of tasks in XCom.

Everything here works while DataHub is down. It runs in the API server and reads Airflow's database.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any, ClassVar, NamedTuple, Self, get_type_hints

import msgspec
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskinstancehistory import TaskInstanceHistory
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from sqlalchemy import select, tuple_

from airflow_provider_spark_datahub.conversion import Impact, Records
from airflow_provider_spark_datahub.delivery import Deadline
from airflow_provider_spark_datahub.delivery.outbox import (
    AttemptRecord,
    DrainLimits,
    EntryName,
    Histories,
    Outbox,
    OutboxRecords,
)
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from airflow_provider_spark_datahub.foundation.text import counted
from airflow_provider_spark_datahub.hooks.airflow_context import stored_result
from airflow_provider_spark_datahub.hooks.datahub import airflow_connections
from airflow_provider_spark_datahub.hooks.storage import configured_outbox
from airflow_provider_spark_datahub.task import XCOM_KEY, LineageReport, drain

_DELIVERY_SECONDS = 20.0
"""Time for a delivery while a person waits for it."""
_FIELDS = get_type_hints(LineageReport)


class TaskReport(NamedTuple):
    """Report of a task's last attempt
    (:class:`~airflow_provider_spark_datahub.task.LineageReport`), as plain JSON.

    :param created_ms: when the task pushed it, in milliseconds since 1970 UTC.
    """

    key: AttemptKey
    report: dict[str, Any]
    created_ms: int

    @classmethod
    def read(cls, key: AttemptKey, value: object, created_ms: int) -> Self | None:
        """Return the report in an XCom without its badly typed fields; ``None`` if it is none. Any
        task may push one.

        :param value: as stored. It is read as JSON, as by Airflow's own API: to deserialize it
            would import classes.
        """
        if isinstance(value, str):
            with suppress(ValueError, RecursionError):
                value = json.loads(value)
        if not isinstance(value, dict):
            return None
        report = {}
        for name, kind in _FIELDS.items():
            with suppress(KeyError, msgspec.ValidationError):
                report[name] = msgspec.convert(value[name], kind)
        return cls(key, report, created_ms)

    @property
    def has_lineage(self) -> bool:
        """Whether the attempt has inputs or outputs."""
        return bool(self.report.get("inputs") or self.report.get("outputs"))

    @property
    def was_pending(self) -> bool:
        """Whether something was not delivered, or not even converted, when the task ended."""
        return bool(self.report.get("pending") or self.report.get("failed"))

    def state(self, settled: Collection[tuple[str, int, str]]) -> str:
        """Return the state of an attempt without an undelivered entry in the outbox.

        It is unknown if it was pending and the outbox has no receipt: it may be in one that this
        server cannot read.

        :param settled: the entries with a receipt (:meth:`LineageSource.settled`).
        """
        entry = EntryName.parse("/".join(str(self.report.get("outbox_entry")).split("/")[-3:]))
        if (
            self.was_pending
            and entry
            and (entry.instance_hash, entry.try_number, entry.connection) in settled
        ):
            return "delivered"
        if not self.has_lineage:
            return "no lineage"
        return "unknown" if self.was_pending else "delivered"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why there is no lineage, or why it was not delivered when the task ended: one sentence,
        or none.
        """
        reason = self.report.get("reason")
        return (str(reason),) if reason else ()


class Scope(NamedTuple):
    """Selection of a DAG run, or of one task instance of it."""

    dag_id: str
    run_id: str
    task_id: str | None = None
    map_index: int = -1

    def matches(self, key: AttemptKey) -> bool:
        """Return whether an attempt is selected."""
        same_run = (key.dag_id, key.run_id) == (self.dag_id, self.run_id)
        return same_run and (
            self.task_id is None or (key.task_id, key.map_index) == (self.task_id, self.map_index)
        )

    def conditions(self, table: Any) -> list[Any]:
        """Return the conditions by which the rows of a table of Airflow's are selected."""
        conditions = [table.dag_id == self.dag_id, table.run_id == self.run_id]
        if self.task_id is not None:
            conditions += [table.task_id == self.task_id, table.map_index == self.map_index]
        return conditions


class LineageSource:
    """Reports and outbox entries of attempts, with the actions that a person can take on them."""

    MOST_TASKS: ClassVar = 500
    """Most task instances of a DAG run that a page shows."""

    def records(self, scope: Scope) -> list[AttemptRecord]:
        """Return the outbox's records of a DAG run or task instance, oldest first.

        :raises OSError: if the outbox cannot be read.
        """
        return OutboxRecords(self._outbox()).of(self._keys(scope))

    def newest(
        self, most: int | None, dag_ids: set[str] | None, *, undelivered: bool
    ) -> list[AttemptRecord]:
        """Return the newest records of these DAGs, newest first, without their proposals; ``None``
        for all DAGs.

        :raises OSError: if the outbox cannot be read.
        """
        return OutboxRecords(self._outbox()).newest(most, dag_ids, undelivered=undelivered)

    def settled(self, reports: Iterable[TaskReport]) -> set[tuple[str, int, str]]:
        """Return task instance, try number and connection of the entries with a receipt, if a
        report was pending.

        :raises OSError: if the outbox cannot be read.
        """
        return (
            OutboxRecords(self._outbox()).settled()
            if any(report.was_pending for report in reports)
            else set()
        )

    def run_states(self, runs: Collection[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """Return Airflow's states of DAG runs, by DAG and run; those that it does not know are left
        out.
        """
        ids = (DagRun.dag_id, DagRun.run_id)
        query = select(*ids, DagRun.state).where(tuple_(*ids).in_(runs))
        with create_session() as session:
            return {
                (dag_id, run_id): str(state) for dag_id, run_id, state in session.execute(query)
            }

    def reports(
        self,
        dag_ids: Collection[str] | None,
        scope: Scope | None = None,
        most: int | None = MOST_TASKS,
        since: datetime | None = None,
    ) -> list[TaskReport]:
        """Return the reports of these DAGs' tasks, newest first.

        :param dag_ids: ``None`` for all DAGs.
        :param most: ``None`` for all reports.
        :param since: only reports that tasks pushed at this time or later.
        """
        query = select(
            XComModel.dag_id, XComModel.run_id, XComModel.task_id, XComModel.map_index, XComModel.value,
            XComModel.timestamp,
        ).where(XComModel.key == XCOM_KEY)  # fmt: skip
        if dag_ids is not None:
            query = query.where(XComModel.dag_id.in_(dag_ids))
        if since is not None:
            query = query.where(XComModel.timestamp >= since)
        if scope is not None:
            query = query.where(*scope.conditions(XComModel))
        with create_session() as session:
            rows = session.execute(query.order_by(XComModel.timestamp.desc()).limit(most)).all()
        reports = []
        for dag_id, run_id, task_id, map_index, value, timestamp in rows:
            key = AttemptKey(dag_id, run_id, task_id, map_index, 0)
            reports.append(TaskReport.read(key, value, round(timestamp.timestamp() * 1000)))
        return [report for report in reports if report is not None]

    def impact(self, scope: Scope, dataset: str) -> Impact:
        """Return what the writes of a dataset by a DAG run or task instance reached. :param
        dataset: its URN.

        :raises OSError: if the outbox cannot be read.
        """
        records = Records(Histories(self._outbox().storage).all())
        written = records.writes.get(dataset, ())
        return records.impact(
            [write for write in written if write.record and scope.matches(write.record.key)]
        )

    def deliver(self, scope: Scope) -> str:
        """Deliver the pending entries of a selection, newest first; return the result and up to
        three reasons.

        :raises OSError: if the outbox cannot be read.
        """
        deadline, outbox = Deadline.after(_DELIVERY_SECONDS), self._outbox()
        instances = {key.instance for key in self._keys(scope, most=None)}
        limits = DrainLimits(_DELIVERY_SECONDS, _DELIVERY_SECONDS / 2)
        names = [name for name in reversed(outbox.names()) if name.instance in instances]
        connections = airflow_connections(stored_result)
        drained = drain(outbox, connections, limits, stopped=lambda: deadline.expired).run(names)
        # The same reason may have different details in brackets: numbers of requests, seconds.
        reasons = {problem.partition(" (")[0]: problem for problem in drained.problems}
        return " ".join(
            f"{text.removesuffix('.')}." for text in [drained.sentence, *list(reasons.values())[:3]]
        )

    def requeue(self, scope: Scope) -> str:
        """Make the quarantined entries of a selection pending again, and return the result in one
        sentence.

        :raises OSError: if the outbox cannot be read or written.
        """
        outbox = self._outbox()
        entries = [entry for entry in outbox.quarantined() if scope.matches(entry.manifest.key)]
        for entry in entries:
            outbox.requeue(entry)
        return f"{counted(len(entries), 'quarantined entry is', 'quarantined entries are')} pending again"

    def _keys(self, scope: Scope, most: int | None = MOST_TASKS) -> list[AttemptKey]:
        """Return a key of each task instance, and of the end of the DAG run."""
        if scope.task_id is not None:
            return [AttemptKey(scope.dag_id, scope.run_id, scope.task_id, scope.map_index, 1)]
        return [AttemptKey(scope.dag_id, scope.run_id, "", -1, 1), *self.attempts(scope, most)]

    def attempts(self, scope: Scope, most: int | None = MOST_TASKS) -> dict[AttemptKey, str]:
        """Return Airflow's states of all attempts of the newest task instances."""
        states: dict[AttemptKey, str] = {}
        with create_session() as session:
            for each in (TaskInstanceHistory, TaskInstance):
                columns = (each.task_id, each.map_index, each.try_number, each.state)
                query = select(*columns).where(*scope.conditions(each))
                query = query.order_by(each.start_date.is_(None), each.start_date.desc()).limit(
                    most
                )
                for task_id, map_index, number, state in session.execute(query):
                    states[AttemptKey(scope.dag_id, scope.run_id, task_id, map_index, number)] = (
                        str(state or "")
                    )
        return states

    def _outbox(self) -> Outbox:
        return configured_outbox()
