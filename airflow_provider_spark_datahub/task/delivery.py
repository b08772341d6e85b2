"""Delivery of one attempt's proposals: to the outbox first, then to the sink, after those of
earlier attempts.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_provider_spark_datahub.capture import CollectionReport, Outcome
from airflow_provider_spark_datahub.delivery import Deadline, Delivery, OutageNotes, Rejection
from airflow_provider_spark_datahub.delivery.outbox import (
    EdgeRecord,
    EdgeRecords,
    Entry,
    EntryName,
    Lease,
    Outbox,
    OutboxError,
)
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from airflow_provider_spark_datahub.foundation.text import counted
from airflow_provider_spark_datahub.task.recovery import (
    RecoveryError,
    keep_history,
    recover_entry,
    remove_delivered_events,
)
from airflow_provider_spark_datahub.task.report import LineageReport
from airflow_provider_spark_datahub.task.submitted import UnfinishedAttempt

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.conversion import JobLineage, Proposal
    from airflow_provider_spark_datahub.conversion.run_tree import TaskAttempt
    from airflow_provider_spark_datahub.task.options import Connections, LineageOptions

log = logging.getLogger(__name__)

_LOGGED_CHARS = 10_000
"""Characters of a proposal that are logged; the schema of a wide table would fill the task's log.
"""
_REPORTED_REASONS = 3
"""Different reasons of rejections that a report repeats. All are in the outbox's quarantine."""
_REQUEUE = "when the cause is mended, spark-datahub requeue makes them pending again"
_BEGIN_SECONDS = 8.0
"""Time for the outbox before the submit, to record this attempt. If it hangs, half of it is waited
for.
"""
_LOG_TOO_LONG = "the time for lineage was used up before the end of Spark's event log"
_TURN_SHARE = 0.1
"""Part of the remaining time for which an attempt waits while others deliver, if its task does not
fail for that.
"""
_WHO_DELIVERS = "The end of a DAG run, DeliverLineageOperator or spark-datahub emit delivers it"
_LEASE_MARGIN = 30.0
"""Seconds that the lease outlasts the delivery, to record its outcome."""


@dataclass
class TaskDelivery:
    """Delivery of one attempt, which fills in the counts and reasons of its report."""

    _options: LineageOptions
    _key: AttemptKey
    _connections: Connections
    _report: LineageReport
    _entry: Entry | None = None
    _is_kept: bool = False
    """Whether the entry is in the outbox."""
    _lease: Lease | None = None

    def __post_init__(self) -> None:
        self._sink, self.sink_problem = self._connections.open_sink(self._options.connection)

    def page_of(self, urn: str) -> str:
        """Return the address of a run or job in DataHub's UI; empty if the address of the UI is not
        known.
        """
        web = self._options.datahub_url or (
            self._sink.web_address if self._sink is not None else ""
        )
        path = "tasks" if urn.startswith("urn:li:dataJob:") else "dataProcessInstance"
        return f"{web}/{path}/{quote(urn, safe=':(),')}" if web else ""

    def send(
        self, proposals: Sequence[Proposal], deadline: Deadline, *, patient: bool = False
    ) -> Delivery:
        """Send proposals without the outbox. The end of the attempt sends again what fails here.

        :param patient: try until the deadline, even if the server cannot be reached or was out a
            moment ago.
        """
        # Their secrets were redacted when they were made.
        for proposal in proposals if log.isEnabledFor(logging.DEBUG) else ():
            log.debug("Proposal: %s", proposal.to_json()[:_LOGGED_CHARS])
        if self._sink is None:
            # Airflow may answer now, or somebody have added the connection.
            self._sink, self.sink_problem = self._connections.open_sink(self._options.connection)
        if self._sink is None:
            return Delivery(0, pending=tuple(proposals), problem=self.sink_problem)
        server = self._sink.describe()
        refusal = (
            None if patient else self._outages.refusal(self._options.connection, server, deadline)
        )
        if refusal:
            log.debug("Not sent: %s", refusal)
            return Delivery(0, pending=tuple(proposals), problem=refusal)
        delivery = self._sink.deliver(proposals, deadline, patient=patient)
        self._outages.record(self._options.connection, server, delivery, deadline)
        return delivery

    def revise(self, proposals: Sequence[Proposal]) -> list[Proposal]:
        """Return the proposals of a running job without the edges that DataHub has; the outbox
        records its DataJobs, which the end retires if it does not have them.
        """
        # As in deliver_earlier, an outbox of its own.
        outbox = self._connections.outbox(self._options)
        outbox.deadline = Deadline.after(_BEGIN_SECONDS)
        return outbox.jobs.revise(self._key, self._options.connection, proposals).proposals

    def deliver_earlier(self) -> None:
        """Deliver what earlier attempts left pending, while the job of this one runs."""
        from airflow_provider_spark_datahub.delivery.outbox import deliver_in_order

        if self._key.try_number == 1:
            return
        deadline = Deadline.after(self._options.timeout)
        # An outbox of its own, since the end of the attempt, in another thread, has another
        # deadline.
        outbox = self._connections.outbox(self._options)
        outbox.deadline = deadline
        lease = Lease.take(
            outbox.storage, self._group, seconds=self._lease_seconds(deadline), run=self._run
        )
        if lease is None:
            return
        with lease:
            entries = [
                entry
                for entry in outbox.entries(self._key.instance)
                if entry.name.group == self._group
            ]
            earlier = [entry for entry in entries if entry.name.try_number < self._key.try_number]

            def send(_: Entry, proposals: Sequence[Proposal]) -> Delivery:
                return self.send(proposals, deadline)

            for _ in deliver_in_order(earlier, send, settled=remove_delivered_events):
                if deadline.expired:
                    return

    # -- through the outbox

    def begin(self, record: UnfinishedAttempt) -> None:
        """Create the outbox entry before the job is submitted.

        If the outbox refuses, lineage is lost only if the attempt is killed.
        """
        self._outbox.deadline = Deadline.after(_BEGIN_SECONDS)
        self._entry, refusal = self._outbox.begin(
            self._key,
            connection_id=self._options.connection,
            events=record.events_file,
            redo=record.to_obj(),
        )
        if refusal is not None:
            self._report.warnings.append(f"not in the outbox before the submit: {refusal}")
        self._is_kept = refusal is None
        if self._is_kept:
            self._report.outbox_entry = str(self._entry)

    def take_over(self, record: UnfinishedAttempt) -> None:
        """Record that the job of an earlier attempt, and with it its events, belongs to this
        attempt now.

        :raises OSError: if the outbox refuses.
        """
        # The driver may be found long after the submit.
        self._outbox.deadline = Deadline.after(_BEGIN_SECONDS)
        if self._entry is None or not self._is_kept:
            self.begin(record)
        else:
            self._entry = self._entry.update(redo=record.to_obj(), events=record.events_file)
        own = self._entry.name if self._entry is not None and self._is_kept else None
        # A deferred attempt left its entries under the same key.
        for entry in self._entries() if own else ():
            manifest = entry.manifest
            if (
                manifest.state == "unfinished"
                and manifest.events == record.events_file
                and entry.name != own
            ):
                entry.discard()

    @contextmanager
    def leased(self, deadline: Deadline) -> Iterator[None]:
        """Hold the lease of the task instance's entries, if no other drainer holds it."""
        with suppress(OSError):
            self._outbox.deadline = deadline
            seconds = self._lease_seconds(deadline)
            self._lease = Lease.take(
                self._outbox.storage, self._group, seconds=seconds, run=self._run, delivers=False
            )
        try:
            yield
        finally:
            if self._lease is not None:
                self._lease.release()
                self._lease = None

    def record_end(self, record: UnfinishedAttempt) -> None:
        """Record in the outbox how the attempt ended, so that its recovery makes the same lineage."""
        if self._entry is None or not self._is_kept:
            return
        try:
            self._entry = self._entry.update(redo=record.to_obj())
        except (OSError, ValueError) as error:
            self._report.warnings.append(
                f"could not record the end of the attempt in the outbox: {error}"
            )

    def leave_unfinished(self, collected: CollectionReport, *, is_stuck: bool) -> bool:
        """Leave an attempt whose events could not all be read now to the next attempt or a drain.

        Nothing is lost: the entry stays unfinished, and everything is converted from the event
        file.

        :param is_stuck: nothing that was read can be delivered: :attr:`.JobEvents.is_stuck`.
        :returns: False if the attempt has no entry, so that only the part that was read can be
            delivered.
        """
        report = self._report
        if not self._is_kept:
            if is_stuck:
                report.failed = True
                self._add_reason(f"{collected.sentence}. The events stay in {report.events_file}")
            return is_stuck
        report.failed, report.events, report.outbox_entry = True, collected.events, str(self._entry)
        report.bad_events = collected.quarantined_count
        is_unavailable = collected.outcome is Outcome.UNAVAILABLE
        why = (
            collected.sentence
            if is_unavailable or collected.outcome is Outcome.TIMED_OUT
            else _LOG_TOO_LONG
        )
        self._add_reason(
            f"{why}. The attempt stays in the outbox, and the next attempt or a drain (spark-datahub emit) converts "
            f"all events{'' if is_unavailable else ': raise lineage_timeout if this happens often'}"
        )
        return True

    def deliver(
        self, proposals: Sequence[Proposal], deadline: Deadline, *, spark_succeeded: bool
    ) -> None:
        """Put proposals into the outbox, and deliver the entries of the task instance, the oldest
        first.

        :param spark_succeeded: whether a retry of the task would only have to deliver them.
        """
        self._report.proposals = self._report.pending = len(proposals)
        started = time.monotonic()
        try:
            if self._entry is not None:
                failure = self._report.failure
                entry = self._entry.finish(
                    proposals, spark_succeeded=spark_succeeded, failure=failure
                )
            else:
                entry = self._outbox.put(
                    self._key,
                    proposals,
                    spark_succeeded=spark_succeeded,
                    connection_id=self._options.connection,
                )
        except OutboxError as error:
            self._report.warnings.append(f"not kept in the outbox before the delivery: {error}")
            self._count(self.send(proposals, deadline, patient=True))
            if self._entry is not None and self._report.is_complete:
                with suppress(OutboxError):
                    self._entry.discard()
                    self._report.outbox_entry = None
        else:
            self._report.proposals = self._report.pending = entry.manifest.pending
            try:
                # What stays pending takes as long to record as the entry took to write.
                self._deliver_entries(
                    Deadline.after(deadline.remaining() - (time.monotonic() - started)), own=entry
                )
            except OSError as error:
                # Before the delivery, or after it: sending a proposal once more does no harm.
                self._add_reason(f"it is pending, since the outbox failed: {error}")

    # -- edges for siblings and later DAG runs

    def keep_edges(self, edges: EdgeRecord) -> None:
        """Keep the edges of a complete attempt, for its siblings and for later DAG runs."""
        try:
            EdgeRecords(self._outbox.storage).write(edges, max_age=self._outbox.limits.max_age)
        except OSError as error:
            self._report.warnings.append(
                f"could not record the edges in the outbox, so that edges of earlier DAG runs stay in DataHub: {error}"
            )

    def kept_edges(self) -> list[EdgeRecord]:
        """Return the edges of the task's other runs, in this DAG run and in the latest one before
        it.
        """
        try:
            self._outbox.deadline = Deadline.after(_BEGIN_SECONDS)
            key = self._key
            records = EdgeRecords(self._outbox.storage).of_task(
                key.dag_id, key.task_id, self._options.connection
            )
        except OSError as error:
            log.warning("Could not read which datasets other runs of this task named: %s", error)
            return []
        earlier = [record.key.run_id for record in records if record.key.run_id != self._key.run_id]
        return [
            record for record in records if record.key.run_id in (self._key.run_id, *earlier[-1:])
        ]

    def compare(
        self, attempt: TaskAttempt, jobs: Sequence[JobLineage], deadline: Deadline, *more: Any
    ) -> None:
        """Keep the history of the task, and report what changed since its last green run
        (:func:`.keep_history`).
        """
        self._outbox.deadline = deadline
        self._report.changes = keep_history(self._outbox, attempt, jobs, *more)

    # -- the outbox's entries

    @cached_property
    def _outages(self) -> OutageNotes:
        location, events = self._options.outbox_location, self._options.events_location
        return OutageNotes((events if "://" in location else Path(location)) / OutageNotes.FOLDER)

    @cached_property
    def _outbox(self) -> Outbox:
        return self._connections.outbox(self._options)

    @property
    def _group(self) -> tuple[str, str]:
        return self._key.instance, EntryName.connection_hash(self._options.connection)

    def _entries(self) -> list[Entry]:
        return list(self._outbox.entries(self._key.instance))

    def _deliver_entries(self, deadline: Deadline, own: Entry) -> None:
        self._report.outbox_entry = str(own)
        if deadline.expired:
            # To read the entry of a huge job takes seconds, and a sink would not even begin.
            self._add_reason(
                f"it is pending: the time for lineage was over before its delivery. {_WHO_DELIVERS}"
            )
            return
        # A tenth of the time left is for another run, or all of it if the task would fail without
        # its lineage.
        share = _TURN_SHARE if self._options.on_failure == "warn" else 1.0
        started, until = time.monotonic(), Deadline.after(deadline.remaining() * share)
        if self._lease is not None:
            if self._has_turn(self._lease, until):
                self._deliver_leased(own, deadline)
            else:
                self._add_no_turn("another run of this task is being delivered", started)
            return
        seconds = self._lease_seconds(deadline)
        lease = Lease.wait_for(
            self._outbox.storage, self._group, until, seconds=seconds, run=self._run
        )
        if lease is None:
            self._add_no_turn(
                "another drainer of the outbox holds the entries of this task", started
            )
            return
        with lease:
            self._deliver_leased(own, deadline)

    def _add_no_turn(self, why: str, started: float) -> None:
        self._add_reason(
            f"it is pending: {why}, and after {time.monotonic() - started:.1f} s this attempt waits no longer. "
            f"{_WHO_DELIVERS}"
        )

    def _has_turn(self, lease: Lease, deadline: Deadline) -> bool:
        try:
            return lease.take_turn(deadline)
        except OSError as error:
            log.debug("Delivering without a turn: %s", error)
            return True

    @property
    def _run(self) -> str:
        """The DAG run, for leases: its task instances deliver at the same time."""
        return hashlib.sha256(self._key.run_id.encode()).hexdigest()[:12]

    def _lease_seconds(self, deadline: Deadline) -> float:
        return deadline.remaining() + _LEASE_MARGIN

    def _deliver_leased(self, own: Entry, deadline: Deadline) -> None:
        """Deliver the entries of all attempts, this one's last."""
        from airflow_provider_spark_datahub.delivery.outbox import deliver_in_order

        entries = [entry for entry in self._entries() if entry.name.group == self._group]
        if own.name not in (entry.name for entry in entries):
            self._count_settled(own)
            return
        # What this attempt has just written need not be read again.
        entries = [own if entry.is_as(own) else entry for entry in entries]

        def finish(entry: Entry, *_: object) -> Entry | None:
            # Earlier attempts are over, since this one runs.
            return recover_entry(entry, deadline, over=True)

        def settle(entry: Entry) -> None:
            if entry.name != own.name:  # the end of this attempt removes its own
                remove_delivered_events(entry)

        # A task that fails for undelivered lineage gets what its budget can give.
        patient = self._options.on_failure != "warn"

        def send(_: Entry, proposals: Sequence[Proposal]) -> Delivery:
            return self.send(proposals, deadline, patient=patient)

        problem: object = None
        try:
            for settled in deliver_in_order(entries, send, finish, settle):
                problem = settled.delivery.problem if settled.delivery else None
                if settled.entry.name == own.name:
                    if settled.delivery:
                        self._count(settled.delivery, settled.superseded)
                        self._report.outbox_entry = (
                            str(settled.remaining) if settled.remaining else None
                        )
                    else:
                        self._count_settled(own)
                    self._outbox.expire_receipts(self._key.task)
                    return
        except RecoveryError as error:
            problem = error
        self._add_reason(f"the lineage of an earlier attempt goes first, and is pending: {problem}")

    def _count_settled(self, own: Entry) -> None:
        """Count an entry that another drainer settled before its delivery here."""
        receipt, _ = self._outbox.receipts.find(own.name, own.manifest)
        if receipt is not None:
            report = self._report
            report.delivered, report.rejected, report.stored = (
                receipt.delivered,
                receipt.rejected,
                receipt.stored,
            )
            report.pending, report.outbox_entry = 0, None

    def _count(self, delivery: Delivery, superseded: int = 0) -> None:
        report = self._report
        if superseded:
            report.warnings.append(
                f"{counted(superseded, 'proposal')} not sent: a later run of the task has delivered the same aspects"
            )
        report.delivered, report.stored = delivery.delivered, delivery.stored
        report.rejected, report.pending = len(delivery.rejected), len(delivery.pending)
        if delivery.rejected:
            report.warnings.append(_rejections(delivery.rejected))
        if delivery.problem:
            self._add_reason(delivery.problem)

    def _add_reason(self, reason: str) -> None:
        self._report.reason = f"{self._report.reason}; {reason}" if self._report.reason else reason


def _rejections(rejections: Sequence[Rejection]) -> str:
    """Return one sentence about rejected proposals, with their reasons, the most frequent first."""
    reasons = Counter(rejection.reason for rejection in rejections).most_common()
    examples = {rejection.reason: rejection.subject for rejection in reversed(rejections)}
    described = [
        f"{counted(count, 'time')} {reason.rstrip('.')} (e.g. {examples[reason]})"
        for reason, count in reasons[:_REPORTED_REASONS]
    ]
    more = len(reasons) - len(described)
    rejected = counted(len(rejections), "proposal was", "proposals were")
    others = f"; {counted(more, 'other reason')}" if more else ""
    return f"{rejected} rejected, and kept in the outbox's quarantine: {'; '.join(described)}{others}; {_REQUEUE}"
