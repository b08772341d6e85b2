"""How the proposals of one task try reach DataHub: outbox first, older tries first, and what a later try has to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_spark_datahub.capture.location import TryIdentity
from airflow_provider_spark_datahub.report import LineageReport

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.conversion.proposals import Proposal
    from airflow_provider_spark_datahub.delivery.deadline import Deadline
    from airflow_provider_spark_datahub.delivery.outbox import Entry, OutboxKey
    from airflow_provider_spark_datahub.delivery.sink import Delivery, Sink
    from airflow_provider_spark_datahub.operators.options import LineageOptions

REJECTIONS_TOLD = 10
"""How many rejected proposals a report names; all are counted, and in the outbox's quarantine."""


class TaskDelivery:
    """Delivery of one try, told in its report.

    :param sink: ``None`` where the connection cannot be used; ``sink_problem`` says why.
    :param report: of the try; its counts and reasons of the delivery are filled in here.
    """

    def __init__(
        self,
        options: LineageOptions,
        identity: TryIdentity,
        sink: Sink | None,
        sink_problem: str | None,
        report: LineageReport,
    ) -> None:
        self._options = options
        self._identity = identity
        self._sink = sink
        self._sink_problem = sink_problem
        self._report = report

    def send(self, proposals: Sequence[Proposal], deadline: Deadline) -> Delivery:
        """Send proposals as they are, not by way of the outbox: for what is told again at the end of the try."""
        from airflow_provider_spark_datahub.delivery.sink import Delivery

        if self._sink is None:
            return Delivery(0, pending=tuple(proposals), problem=self._sink_problem)
        return self._sink.deliver(proposals, deadline)

    def deliver(self, proposals: Sequence[Proposal], deadline: Deadline, *, spark_succeeded: bool) -> None:
        """Keep proposals in the outbox, and deliver what is there of the task: the oldest try's first.

        :param spark_succeeded: whether a retry of the task would only have to deliver them.
        :raises OutboxError: where it cannot be recorded in the outbox what of it arrived.
        """
        from airflow_provider_spark_datahub.delivery.outbox import Outbox, OutboxError

        self._report.proposals = len(proposals)
        try:
            entry = Outbox(self._options.outbox_location).put(
                self._outbox_key(),
                proposals,
                spark_succeeded=spark_succeeded,
                connection_id=self._options.connection,
            )
        except OutboxError as error:
            self._report.warnings.append(f"not kept in the outbox before the delivery: {error}")
            self._count(self.send(proposals, deadline))
        else:
            self._deliver_entries(deadline, own=entry)

    # -- a try after one that failed for its lineage alone

    def awaited_try(self, remembered: object) -> int | None:
        """The try whose Spark job succeeded and whose lineage this try has to deliver; ``None`` where there is none.

        :param remembered: what :meth:`await_retry` handed to the task's state, where Airflow keeps one.
        """
        if self._options.on_failure == "warn":
            return None
        if isinstance(remembered, dict) and remembered.get("for_try") == self._identity.try_number:
            return self._identity.try_number - 1
        tries = [entry.manifest.key.try_number for entry in self._entries() if entry.manifest.awaits_retry]
        earlier = [number for number in tries if number < self._identity.try_number]
        return max(earlier, default=None)

    def await_retry(self) -> dict[str, Any]:
        """Record that the next try only has to deliver.

        :returns: the same for the task's state, for a next try on a worker that does not see this outbox.
        :raises OSError: the outbox refuses; the next try would run Spark again.
        """
        for entry in self._entries():
            entry.await_retry()
        return {"for_try": self._identity.try_number + 1, "outbox": str(self._options.outbox_location)}

    def look_for(self, awaited: int) -> None:
        """Say in the report where the lineage of the try ``awaited`` is not in this worker's outbox."""
        if not any(entry.manifest.awaits_retry for entry in self._entries()):
            self._report.reason = (
                f"Spark succeeded in try {awaited}, whose lineage is not in the outbox {self._options.outbox_location} "
                "of this worker"
            )

    # -- the outbox's entries

    def _entries(self) -> list[Entry]:
        from airflow_provider_spark_datahub.delivery.outbox import Outbox

        one = self._identity
        return Outbox(self._options.outbox_location).entries(one.dag_id, one.run_id, one.task_id, one.map_index)

    def _outbox_key(self) -> OutboxKey:
        from airflow_provider_spark_datahub.delivery.outbox import OutboxKey

        one = self._identity
        return OutboxKey(one.dag_id, one.run_id, one.task_id, one.map_index, one.try_number)

    def _deliver_entries(self, deadline: Deadline, own: Entry) -> None:
        from airflow_provider_spark_datahub.delivery.drain import deliver_in_order

        problem = None
        for settled in deliver_in_order(self._entries(), lambda entry: self.send(entry.proposals(), deadline)):
            problem = settled.delivery.problem
            if settled.entry.path == own.path:
                self._count(settled.delivery)
                self._report.outbox_entry = str(settled.remaining.path) if settled.remaining else None
                return
        self._report.pending = own.manifest.pending
        self._report.outbox_entry = str(own.path)
        self._report.reason = (
            self._report.reason or f"the lineage of an earlier try goes first, and is pending: {problem}"
        )

    def _count(self, delivery: Delivery) -> None:
        report = self._report
        report.delivered, report.stored = delivery.delivered, delivery.stored
        report.rejected, report.pending = len(delivery.rejected), len(delivery.pending)
        report.warnings += [
            f"rejected {one.proposal.aspect_name} of {one.proposal.entity_urn}: {one.reason}"
            for one in delivery.rejected[:REJECTIONS_TOLD]
        ]
        if delivery.problem:
            report.reason = f"{report.reason}; {delivery.problem}" if report.reason else delivery.problem
