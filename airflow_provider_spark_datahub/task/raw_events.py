"""Raw events of one attempt: redacted, compressed, kept in the outbox and forwarded to an OpenLineage backend."""

from __future__ import annotations

import gzip
import io
import logging
import zlib
from typing import TYPE_CHECKING

from airflow_provider_spark_datahub.attempt_key import AttemptKey
from airflow_provider_spark_datahub.capture import UNREAD, CollectionReport, EventPlace, Outcome, checked_text, follow
from airflow_provider_spark_datahub.conversion import (
    EventError,
    OutOfTimeError,
    event_without_secrets,
    time_limit,
)
from airflow_provider_spark_datahub.delivery import Deadline, RawEvent, run_with_deadline
from airflow_provider_spark_datahub.delivery.outbox import Drain, DrainLimits, EntryName, OutboxError
from airflow_provider_spark_datahub.printable import counted
from airflow_provider_spark_datahub.task.report import LineageReport

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.delivery.outbox import Outbox
    from airflow_provider_spark_datahub.task.options import Connections, LineageOptions

log = logging.getLogger(__name__)

_GZIP = 31
"""zlib's window bits for a gzip header."""
GRACE_SECONDS = 2.0
"""Seconds for which a read may go on after its deadline. The read checks the deadline itself, within events, too."""
STUCK = "a read of them has not ended"
"""Detail of a report on events if a read did not end in time."""


class RawEvents:
    """Readable events of one attempt, without their secrets, compressed in memory.

    :param report: report of the reader that adds the events; final when :meth:`compressed` is called.
    :ivar left_out: number of events that are missing because their secrets cannot be found.
    """

    def __init__(self, report: CollectionReport) -> None:
        self.report = report
        self._compressor = zlib.compressobj(1, wbits=_GZIP)
        self._chunks: list[bytes] = []
        self._content: bytes | None = None
        self.left_out = 0
        self._why = ""

    @classmethod
    def read(cls, events_file: EventPlace, deadline: Deadline) -> RawEvents:
        """Read an event file until the deadline. If the disk hangs, give up a little later."""
        follower = follow(events_file, checked_text())
        events = cls(follower.report)

        def read() -> None:
            try:
                with time_limit(lambda: deadline.expired):
                    for event in follower.rest(lambda: deadline.expired):
                        events.add(event)
            except OutOfTimeError:
                events.report.outcome, events.report.detail = Outcome.TIMED_OUT, f"within event {events.report.events}"

        if not run_with_deadline(Deadline.after(deadline.remaining() + GRACE_SECONDS), read):
            return cls(CollectionReport(outcome=Outcome.TIMED_OUT, detail=STUCK))
        return events

    @property
    def is_whole(self) -> bool:
        """Return whether everything that can be read was read."""
        return self.report.outcome not in UNREAD

    def add(self, event: bytes) -> None:
        """Add the JSON text of an event; leave it out if its secrets cannot be found."""
        try:
            text = event_without_secrets(event)
        except EventError as error:
            self.left_out += 1
            self._why = self._why or str(error)
        else:
            self._chunks.append(self._compressor.compress(text + b"\n"))

    @property
    def problem(self) -> str | None:
        """Number of events that are left out, with the reason of the first one; ``None`` if all are there."""
        return f"{counted(self.left_out, 'event is', 'events are')} left out: {self._why}" if self.left_out else None

    def compressed(self) -> bytes | None:
        """Return the events, one per line, compressed by gzip. No event can be added afterwards.

        :returns: ``None`` if there are none, or the time was too short to read all of them.
        """
        if self.report.events <= self.left_out or self.report.outcome is Outcome.TIMED_OUT:
            return None
        if self._content is None:
            self._content = b"".join([*self._chunks, self._compressor.flush()])
            self._chunks.clear()
        return self._content

    def forward(self, outbox: Outbox, key: AttemptKey, connection_id: str) -> None:
        """Put the events into the outbox, as an entry for an OpenLineage backend.

        :raises OutboxError: if the outbox refuses the entry.
        """
        with gzip.open(io.BytesIO(self.compressed() or b"")) as lines:
            items = [RawEvent.from_json(line.removesuffix(b"\n")) for line in lines]
        if items:
            outbox.put(key, items, spark_succeeded=False, connection_id=connection_id)
        log.debug("Put %d raw events into the outbox for %s", len(items), connection_id)


class EventForwarding:
    """Forwards raw events to the backend of ``openlineage_conn_id``, if one is configured.

    The events are an outbox entry of their own, so that DataHub and the backend do not wait for each other. Problems
    are reported as warnings. They affect neither the completeness of the lineage nor the task.
    """

    def __init__(
        self, options: LineageOptions, key: AttemptKey, connections: Connections, report: LineageReport
    ) -> None:
        self._connection = options.openlineage_connection
        self._options = options
        self._key = key
        self._connections = connections
        self._report = report

    def keep(self, events: RawEvents, events_file: EventPlace, deadline: Deadline) -> bool:
        """Put the events into the outbox; return False if this fails, so that the event file must stay."""
        if self._connection is None:
            return True
        if not events.is_whole:
            self._warn(f"the events stay in {events_file}: {events.report.sentence}")
            return False
        try:
            events.forward(self._outbox(deadline), self._key, self._connection)
        except OutboxError as error:
            self._warn(f"the events stay in {events_file}: {error}")
            return False
        if events.problem:
            self._warn(f"{events.problem}; they stay in {events_file}")
        return not events.left_out

    def deliver(self, deadline: Deadline) -> None:
        """Deliver the events of this attempt, and those that earlier attempts left in the outbox."""
        if self._connection is None:
            return
        seconds = deadline.remaining()
        digest = EntryName.connection_hash(self._connection)
        try:
            outbox = self._outbox(deadline)
            names = [name for name in outbox.names(self._key.instance) if name.connection == digest]
            limits = DrainLimits(seconds=seconds, entry_seconds=max(seconds, 0.1))
            drained = Drain(outbox, self._connections.open_sink, limits).run(names)
        except OSError as error:
            self._warn(str(error))
            return
        log.debug("Forwarded %s to %s", counted(drained.delivered, "raw event"), self._connection)
        self._report.forwarded = drained.delivered
        if drained.rejected:
            rejected = counted(drained.rejected, "event")
            self._warn(f"the backend rejected {rejected}: its reasons are in the outbox's quarantine")
        if drained.waiting or drained.elsewhere:
            why = "; ".join(drained.problems) or "no time was left, or another drainer holds them"
            self._warn(f"events are pending in the outbox: {why}")

    def _outbox(self, deadline: Deadline) -> Outbox:
        outbox = self._connections.outbox(self._options)
        outbox.deadline = deadline
        return outbox

    def _warn(self, problem: str) -> None:
        self._report.warnings.append(f"OpenLineage backend ({self._connection}): {problem}")
