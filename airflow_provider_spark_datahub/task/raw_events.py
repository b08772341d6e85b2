"""The raw events of a try as the outbox keeps them: compressed, and without the secrets that jobs have in them.

The raw events of one task try to a second destination, by way of the outbox.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_spark_datahub.attempt_key import AttemptKey
from airflow_provider_spark_datahub.capture import CollectionReport, Outcome, collect_text
from airflow_provider_spark_datahub.conversion import event_without_secrets
from airflow_provider_spark_datahub.task.report import LineageReport

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.delivery import Deadline
    from airflow_provider_spark_datahub.delivery.outbox import Outbox
    from airflow_provider_spark_datahub.task.delivery import Connections
    from airflow_provider_spark_datahub.task.options import LineageOptions

_GZIP = 31
"""zlib's window bits for a gzip header."""


def kept_events(events_file: Path, expired: Callable[[], bool]) -> bytes | None:
    """The events that can be read, one per line, compressed by gzip.

    :param expired: says True when the time is up.
    :returns: ``None`` where there are none, or the time was too short for all of them.
    """
    compressor = zlib.compressobj(1, wbits=_GZIP)
    collection = collect_text(events_file, deadline=expired)
    content = b"".join(compressor.compress(event_without_secrets(event) + b"\n") for event in collection)
    if not collection.report.events or collection.report.outcome is Outcome.TIMED_OUT:
        return None
    return content + compressor.flush()


class EventForwarding:
    """Forwards events to the backend of ``openlineage_conn_id``; does nothing where there is none.

    They are an entry of the outbox of their own, so that neither destination waits for the other. What becomes of them
    is told in the report's warnings, and changes neither whether the lineage is complete nor the task.

    :param report: of the try.
    """

    def __init__(
        self, options: LineageOptions, key: AttemptKey, connections: Connections, report: LineageReport
    ) -> None:
        self._options = options
        self._key = key
        self._connections = connections
        self._report = report

    def keep(self, events_file: Path | None, deadline: Deadline) -> bool:
        """Put the events into the outbox. :returns: False where the file must stay, since they are not there."""
        from airflow_provider_spark_datahub.delivery.outbox import OutboxError

        connection = self._options.openlineage_connection
        if connection is None or events_file is None:
            return True
        try:
            report = keep_events(self._outbox(deadline), self._key, connection, events_file, lambda: deadline.expired)
        except OutboxError as error:
            self._warn(f"the events stay in {events_file}: {error}")
            return False
        if report.outcome in (Outcome.TIMED_OUT, Outcome.UNREADABLE):
            self._warn(f"the events stay in {events_file}: {report.sentence}")
            return False
        return True

    def deliver(self, deadline: Deadline) -> None:
        """Deliver what this try and those before it left."""
        from airflow_provider_spark_datahub.delivery.outbox import Drain, DrainLimits, connection_hash

        connection = self._options.openlineage_connection
        if connection is None:
            return
        left = deadline.remaining()
        try:
            outbox = self._outbox(deadline)
            names = [
                name for name in outbox.names(self._key.instance) if name.connection == connection_hash(connection)
            ]
            limits = DrainLimits(seconds=left, entry_seconds=max(left, 0.1))
            drained = Drain(outbox, self._connections.open_sink, limits).run(names)
        except OSError as error:
            self._warn(str(error))
            return
        self._report.forwarded = drained.delivered
        if drained.rejected:
            self._warn(f"{drained.rejected} events were refused: they are in the quarantine, with the backend's words")
        if drained.waiting or drained.elsewhere:
            why = "; ".join(drained.problems) or "no time was left, or another drainer is at work on them"
            self._warn(f"events wait in the outbox: {why}")

    def _outbox(self, deadline: Deadline) -> Outbox:
        outbox = self._connections.outbox(self._options)
        outbox.storage.deadline = deadline
        return outbox

    def _warn(self, words: str) -> None:
        self._report.warnings.append(f"OpenLineage backend ({self._options.openlineage_connection}): {words}")


def keep_events(
    outbox: Outbox, key: AttemptKey, connection_id: str, events_file: Path, expired: Callable[[], bool]
) -> CollectionReport:
    """Put the events of a file into the outbox, without their secrets, as an entry for an OpenLineage backend.

    :param expired: says True when the time is up; nothing is put then.
    :raises OutboxError: the outbox refuses.
    """
    from airflow_provider_spark_datahub.capture import follow_events
    from airflow_provider_spark_datahub.conversion import event_without_secrets
    from airflow_provider_spark_datahub.delivery.outbox import CONTENT, as_items

    events = follow_events(events_file)
    items = list(as_items(map(event_without_secrets, events.rest(expired))))
    if items and events.report.outcome not in (Outcome.TIMED_OUT, Outcome.UNREADABLE):
        outbox.put(key, items, spark_succeeded=False, connection_id=connection_id, content=CONTENT)
    return events.report
