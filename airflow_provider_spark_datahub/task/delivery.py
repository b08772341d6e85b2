"""How the proposals of one task try reach DataHub: outbox first, older tries first, and what a later try has to do."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_spark_datahub.attempt_key import AttemptKey
from airflow_provider_spark_datahub.task.report import LineageReport

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.conversion import Proposal
    from airflow_provider_spark_datahub.delivery import Deadline, Delivery, Sink
    from airflow_provider_spark_datahub.delivery.outbox import Entry, EntryName, Lease, Outbox, OutboxLimits
    from airflow_provider_spark_datahub.task.options import LineageOptions

log = logging.getLogger(__name__)

LOGGED_CHARS = 10_000
"""How much of a proposal is logged; the schema of a wide table would be most of the task's log."""
REJECTIONS_TOLD = 10
"""How many rejected proposals a report names; all are counted, and in the outbox's quarantine."""
_BEGIN_SECONDS = 4.0
"""How long an outbox in an object store may hold up the submit."""
_LEASE_MARGIN = 30.0
"""Seconds that the lease outlasts the delivery: to record what became of it."""


@dataclass(frozen=True, slots=True)
class Connections:
    """Access to sinks and outbox. How connections are stored is known to the launcher alone.

    :param open_sink: returns the sink of a connection, or ``None`` and the reason.
    :param open_outbox: returns the outbox at a location. Raises ``OutboxError`` if it cannot be opened.
    """

    open_sink: Callable[[str], tuple[Sink | None, str | None]]
    open_outbox: Callable[[str, OutboxLimits | None], Outbox]

    def outbox(self, options: LineageOptions) -> Outbox:
        """Return the outbox of an attempt.

        :raises OutboxError: if it cannot be opened.
        """
        return self.open_outbox(options.outbox_location, options.outbox_limits)


class TaskDelivery:
    """Delivery of one try, told in its report.

    :param report: of the try; its counts and reasons of the delivery are filled in here.
    """

    def __init__(
        self,
        options: LineageOptions,
        key: AttemptKey,
        connections: Connections,
        report: LineageReport,
    ) -> None:
        self._options = options
        self._key = key
        self._connections = connections
        self._sink, self.sink_problem = connections.open_sink(options.connection)
        self._report = report
        self._entry: Entry | None = None
        self._lease: Lease | None = None
        self._own: EntryName | None = None

    def send(self, proposals: Sequence[Proposal], deadline: Deadline) -> Delivery:
        """Send proposals as they are, not by way of the outbox: for what is told again at the end of the try."""
        from airflow_provider_spark_datahub.delivery import Delivery

        if self._options.settings.log_mcps:
            _log(proposals)
        if self._sink is None:
            return Delivery(0, pending=tuple(proposals), problem=self.sink_problem)
        return self._sink.deliver(proposals, deadline)

    def deliver_earlier(self) -> None:
        """Deliver what earlier tries left pending, while the job of this one runs; its end tries again what stays."""
        from airflow_provider_spark_datahub.delivery import Deadline
        from airflow_provider_spark_datahub.delivery.outbox import deliver_in_order, take_lease

        if self._key.try_number == 1:
            return
        deadline = Deadline.after(self._options.timeout)
        # One of its own: the end of the try, in another thread, has another deadline.
        outbox = self._connections.outbox(self._options)
        outbox.storage.deadline = deadline
        lease = take_lease(outbox.storage, self._group, self._lease_seconds(deadline))
        if lease is None:
            return
        with lease:
            entries = [one for one in outbox.entries(self._key.instance) if one.name.group == self._group]
            earlier = [one for one in entries if one.name.try_number < self._key.try_number]
            for _ in deliver_in_order(earlier, lambda _, proposals: self.send(proposals, deadline)):
                if deadline.expired:
                    return

    # -- by way of the outbox

    def begin(self, record: dict[str, Any], events_file: str) -> None:
        """Tell the outbox, before the job is submitted, that there will be events, and all that their lineage needs.

        Where the outbox refuses, only a try that is killed loses by it.

        :param record: of the try, as JSON.
        """
        from airflow_provider_spark_datahub.delivery import Deadline
        from airflow_provider_spark_datahub.delivery.outbox import OutboxError

        try:
            self._outbox.storage.deadline = Deadline.after(_BEGIN_SECONDS)
            self._entry = self._outbox.begin(
                self._key, connection_id=self._options.connection, events=events_file, redo=record
            )
        except OutboxError as error:
            self._report.warnings.append(f"not in the outbox before the submit: {error}")

    def take_over(self, record: dict[str, Any], events_file: str) -> None:
        """Tell the outbox that the events are those of an earlier try's job: they are this try's lineage now.

        :raises OSError: the outbox refuses.
        """
        if self._entry is None:
            self.begin(record, events_file)
        else:
            self._entry = self._entry.told(redo=record, events=events_file)
        for entry in self._entries():
            manifest = entry.manifest
            if manifest.state == "unfinished" and manifest.events == events_file and manifest.key != self._key:
                entry.discard()

    @contextmanager
    def at_work(self, deadline: Deadline) -> Iterator[None]:
        """Keep other drainers from what this task left, unless one of them is at it already."""
        from airflow_provider_spark_datahub.delivery.outbox import take_lease

        with suppress(OSError):
            self._outbox.storage.deadline = deadline
            self._lease = take_lease(self._outbox.storage, self._group, self._lease_seconds(deadline))
        try:
            yield
        finally:
            if self._lease is not None:
                self._lease.release()
                self._lease = None

    def ended(self, record: dict[str, Any]) -> None:
        """Tell the outbox how the try ended: whoever makes its lineage now makes the same."""
        if self._entry is None:
            return
        try:
            self._entry = self._entry.told(redo=record)
        except (OSError, ValueError) as error:
            self._report.warnings.append(f"the end of the try is not in the outbox: {error}")

    def deliver(self, proposals: Sequence[Proposal], deadline: Deadline, *, spark_succeeded: bool) -> None:
        """Keep proposals in the outbox, and deliver what is there of the task: the oldest try's first.

        :param spark_succeeded: whether a retry of the task would only have to deliver them.
        :raises OutboxError: where it cannot be recorded in the outbox what of it arrived.
        """
        from airflow_provider_spark_datahub.delivery.outbox import OutboxError

        self._report.proposals = self._report.pending = len(proposals)
        try:
            if self._entry is not None:
                entry = self._entry.finish(proposals, spark_succeeded=spark_succeeded)
            else:
                entry = self._outbox.put(
                    self._key, proposals, spark_succeeded=spark_succeeded, connection_id=self._options.connection
                )
        except OutboxError as error:
            self._report.warnings.append(f"not kept in the outbox before the delivery: {error}")
            self._count(self.send(proposals, deadline))
            if self._entry is not None and self._report.is_complete:
                with suppress(OutboxError):
                    self._entry.discard()
        else:
            self._deliver_entries(deadline, own=entry)

    def keep_events(self, events_file: Path, deadline: Deadline) -> None:
        """Put the raw events beside what is pending or quarantined, so that a better converter can do it again.

        Where that is not done by the deadline, they are only where they were.
        """
        from airflow_provider_spark_datahub.task.raw_events import kept_events

        if self._lease is None or self._own is None:
            # Another drainer may be changing the entry.
            return
        try:
            entry = self._outbox.entry(self._own)
            content = kept_events(events_file, lambda: deadline.expired)
            if content is None:
                return
            if entry is not None:
                entry.keep_events([content])
            elif self._report.rejected:
                self._outbox.check_room(len(content))
                self._outbox.storage.write(self._own.held_events, [content])
        except (OSError, ValueError) as error:
            self._report.warnings.append(f"the raw events are not in the outbox: {error}")

    # -- a try after one that failed for its lineage alone

    def awaited_try(self, remembered: object) -> int | None:
        """The try whose Spark job succeeded and whose lineage this try has to deliver; ``None`` where there is none.

        :param remembered: what :meth:`await_retry` handed to the task's state, where Airflow keeps one.
        """
        if self._options.on_failure == "warn":
            return None
        if isinstance(remembered, dict) and remembered.get("for_try") == self._key.try_number:
            return self._key.try_number - 1
        try:
            tries = [entry.manifest.key.try_number for entry in self._entries() if entry.manifest.awaits_retry]
        except OSError as error:
            self._report.warnings.append(f"cannot look into the outbox for what earlier tries left: {error}")
            return None
        earlier = [number for number in tries if number < self._key.try_number]
        return max(earlier, default=None)

    def await_retry(self) -> dict[str, Any]:
        """Record that the next try only has to deliver.

        :returns: the same for the task's state, for a next try on a worker that does not see this outbox.
        :raises OSError: the outbox refuses; the next try would run Spark again.
        """
        for entry in self._entries():
            entry.told(awaits_retry=True)
        return {"for_try": self._key.try_number + 1, "outbox": str(self._options.outbox_location)}

    def look_for(self, awaited: int) -> None:
        """Say in the report where the lineage of the try ``awaited`` is not in this worker's outbox."""
        if not any(entry.manifest.awaits_retry for entry in self._entries()):
            self._report.reason = (
                f"Spark succeeded in try {awaited}, whose lineage is not in the outbox {self._options.outbox_location} "
                "of this worker"
            )

    # -- the outbox's entries

    @cached_property
    def _outbox(self) -> Outbox:
        return self._connections.outbox(self._options)

    @property
    def _group(self) -> tuple[str, str]:
        from airflow_provider_spark_datahub.delivery.outbox import connection_hash

        return self._key.instance, connection_hash(self._options.connection)

    def _entries(self) -> list[Entry]:
        found = self._outbox.entries(self._key.instance)
        return [one for one in found if one.manifest.content == "proposals"]

    def _deliver_entries(self, deadline: Deadline, own: Entry) -> None:
        from airflow_provider_spark_datahub.delivery.outbox import wait_for_lease

        self._report.outbox_entry = str(own)
        self._own = own.name
        if self._lease is not None:
            self._deliver_leased(own, deadline)
            return
        lease = wait_for_lease(self._outbox.storage, self._group, deadline, seconds=self._lease_seconds(deadline))
        if lease is None:
            self._note("it is pending: another drainer of the outbox is at work on what this task left")
            return
        with lease:
            self._deliver_leased(own, deadline)

    def _lease_seconds(self, deadline: Deadline) -> float:
        return deadline.remaining() + _LEASE_MARGIN

    def _deliver_leased(self, own: Entry, deadline: Deadline) -> None:
        """Deliver what the task's tries left, this one's last."""
        from airflow_provider_spark_datahub.delivery.outbox import deliver_in_order
        from airflow_provider_spark_datahub.task.recovery import finish_entry

        entries = [one for one in self._entries() if one.name.group == self._group]
        if own.name not in (one.name for one in entries):
            self._count_settled(own)
            return

        def send(_: Entry, proposals: Sequence[Proposal]) -> Delivery:
            return self.send(proposals, deadline)

        def finish(entry: Entry, *_: object) -> Entry | None:
            # Of an earlier try, which is over, whatever became of it: this one runs.
            return finish_entry(entry, lambda: deadline.expired, over=True)

        problem = None
        for settled in deliver_in_order(entries, send, finish):
            problem = settled.delivery.problem if settled.delivery else None
            if settled.entry.name == own.name:
                if settled.delivery:
                    self._count(settled.delivery)
                    self._report.outbox_entry = str(settled.remaining) if settled.remaining else None
                else:
                    self._count_settled(own)
                self._outbox.expire_receipts(self._key.task)
                return
        self._note(f"the lineage of an earlier try goes first, and is pending: {problem}")

    def _count_settled(self, own: Entry) -> None:
        """Another drainer has settled the entry between its writing and its delivery here."""
        receipt, _ = self._outbox.receipts.about(own.name, own.manifest)
        if receipt is not None:
            report = self._report
            report.delivered, report.rejected, report.stored = receipt.delivered, receipt.rejected, receipt.stored
            report.pending, report.outbox_entry = 0, None

    def _count(self, delivery: Delivery) -> None:
        report = self._report
        report.delivered, report.stored = delivery.delivered, delivery.stored
        report.rejected, report.pending = len(delivery.rejected), len(delivery.pending)
        report.warnings += [
            f"rejected {one.proposal.aspect_name} of {one.proposal.entity_urn}: {one.reason}"
            for one in delivery.rejected[:REJECTIONS_TOLD]
        ]
        if delivery.problem:
            self._note(delivery.problem)

    def _note(self, reason: str) -> None:
        self._report.reason = f"{self._report.reason}; {reason}" if self._report.reason else reason


def _log(proposals: Sequence[Proposal]) -> None:
    """What they hold was redacted when they were made."""
    for proposal in proposals:
        text = proposal.to_json()
        rest = len(text) - LOGGED_CHARS
        log.info("Proposal: %s%s", text[:LOGGED_CHARS], f" … and {rest} more characters" if rest > 0 else "")
