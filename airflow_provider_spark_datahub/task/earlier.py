"""What the earlier attempts of a task run left in the outbox, and what an attempt leaves to later
ones.

Tests: ``tests/task/test_attempt_delivery.py`` and ``tests/operators/test_orphans.py``.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from airflow_provider_spark_datahub.capture import remove_abandoned_properties
from airflow_provider_spark_datahub.delivery import Deadline
from airflow_provider_spark_datahub.delivery.outbox import Entry, ListenerFailures, Outbox
from airflow_provider_spark_datahub.task.submitted import UnfinishedAttempt

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.conversion import WrittenDataset
    from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
    from airflow_provider_spark_datahub.task.options import Connections, LineageOptions

log = logging.getLogger(__name__)

_LOOK_SECONDS = 8.0
"""Time for the outbox before the submit, to look for earlier attempts. If it hangs, half of it is
waited for.
"""
_RETRY_SECONDS = 20.0
"""Time to record that only lineage is missing. Without that record, ``lineage_on_failure`` cannot
fail the task.

The time for lineage is usually over then: that is why it is pending.
"""


class SucceededAttempt(NamedTuple):
    """Earlier attempt whose Spark job succeeded and whose lineage a later attempt delivers.

    :param written: what its job wrote.
    """

    try_number: int
    written: Sequence[WrittenDataset]


@dataclass
class EarlierAttempts:
    """What the earlier attempts of a task run left in the outbox, and what this one leaves to later
    ones.

    :param run_start_ms: start of the DAG run.
    :param warnings: of the attempt's report.
    """

    _options: LineageOptions
    _key: AttemptKey
    _run_start_ms: int
    _connections: Connections
    _warnings: list[str]

    @cached_property
    def _outbox(self) -> Outbox:
        return self._connections.outbox(self._options)

    @cached_property
    def _look_deadline(self) -> Deadline:
        """Deadline for looking before the submit; one, since a disk that hangs costs once."""
        return Deadline.after(_LOOK_SECONDS)

    def _entries(self, deadline: Deadline) -> list[Entry]:
        self._outbox.deadline = deadline
        return list(self._outbox.entries(self._key.instance))

    def _unfinished(self, deadline: Deadline) -> Iterator[UnfinishedAttempt]:
        """Yield the records of earlier attempts that are not converted yet."""
        for entry in self._entries(deadline):
            manifest = entry.manifest
            if manifest.state == "unfinished" and manifest.key.try_number < self._key.try_number:
                with suppress(ValueError):
                    yield UnfinishedAttempt.from_obj(manifest.redo)

    def event_files_of(self, try_number: int) -> dict[str, Any] | None:
        """Return :attr:`.UnfinishedAttempt.event_files` of an earlier attempt; ``None`` if it left
        no record here.

        :raises OSError: if the outbox does not answer.
        """
        records = self._unfinished(Deadline.after(_LOOK_SECONDS))
        return next(
            (record.event_files for record in records if record.task_try.try_number == try_number),
            None,
        )

    # -- jobs that killed attempts left running

    def warn_of_orphans(self) -> None:
        """Warn of each spark-submit that an earlier attempt, whose task was killed, left running on
        this machine.

        Properties files that killed tasks of this user left are removed, since they hold
        credentials.
        """
        for path in remove_abandoned_properties():
            log.debug("Removed the properties file that a killed task left: %s", path)
        if self._key.try_number == 1:
            return
        killed = (record for record in self._unfinished(self._look_deadline) if record.is_killed)
        self._warnings += [
            f"the spark-submit of attempt {record.task_try.try_number}, whose task was killed, still runs on "
            f"{socket.gethostname()} (pid {process}) and may write beside this attempt's: stop it"
            for record in killed
            for process in record.orphans()
        ]

    # -- a listener that made the job fail

    def leave_listener_failure(self, failure: str) -> str:
        """Record that later attempts of the task run must do without the listener, and return the
        failure.

        :raises OSError: if the outbox refuses.
        """
        self._outbox.deadline = Deadline.after(_LOOK_SECONDS)
        failures = ListenerFailures(self._outbox.storage)
        failures.write(self._key, self._run_start_ms, failure, max_age=self._outbox.limits.max_age)
        return failure

    @property
    def listener_failure(self) -> str | None:
        """How the listener made an earlier attempt's job fail; ``None`` if it did not."""
        if self._key.try_number == 1:
            return None
        try:
            self._outbox.deadline = self._look_deadline
            return ListenerFailures(self._outbox.storage).of_task_run(self._key, self._run_start_ms)
        except OSError as error:
            self._warnings.append(
                f"cannot look into the outbox for failures of the listener: {error}"
            )
            return None

    # -- a job that succeeded, in an attempt that failed for its lineage alone

    def to_deliver(self, remembered: object) -> SucceededAttempt | None:
        """Return the earlier attempt whose lineage is all that this one has to deliver, if there is
        one.

        :param remembered: result of :meth:`leave_to_retry` from the task's state, if Airflow keeps
            one.
        """
        if self._options.on_failure == "warn":
            return None
        if isinstance(remembered, dict) and remembered.get("for_try") == self._key.try_number:
            return SucceededAttempt(self._key.try_number - 1, _read_written(remembered))
        try:
            manifests = [
                entry.manifest
                for entry in self._entries(self._look_deadline)
                if entry.manifest.awaits_retry
            ]
        except OSError as error:
            self._warnings.append(
                f"Spark runs: cannot look into the outbox for what earlier attempts left: {error}"
            )
            return None
        earlier = [
            manifest for manifest in manifests if manifest.key.try_number < self._key.try_number
        ]
        last = max(earlier, key=lambda manifest: manifest.key.try_number, default=None)
        return (
            SucceededAttempt(last.key.try_number, _read_written(last.redo))
            if last is not None
            else None
        )

    def problem_with(self, succeeded: SucceededAttempt, deadline: Deadline) -> str | None:
        """Return why the lineage of that attempt cannot be delivered from this worker's outbox."""
        number = succeeded.try_number
        try:
            if any(entry.manifest.awaits_retry for entry in self._entries(deadline)):
                return None
        except OSError as error:
            return f"the lineage of attempt {number} is pending, since the outbox failed: {error}"
        return (
            f"Spark succeeded in attempt {number}, but its lineage is not in the outbox "
            f"{self._options.outbox_location} of this worker: set outbox_location to a place that all workers share"
        )

    def leave_to_retry(self, written: Sequence[WrittenDataset]) -> dict[str, Any]:
        """Record that the next attempt only has to deliver.

        :param written: what the job wrote.
        :returns: the same for the task's state, in case the next attempt runs on a worker without
            this outbox.
        :raises OSError: if the outbox refuses; the next attempt would run Spark again.
        """
        # Airflow's state of tasks takes JSON only, without tuples.
        left = {"written": msgspec.json.decode(msgspec.json.encode(written))}
        for entry in self._entries(Deadline.after(_RETRY_SECONDS)):
            entry.update(awaits_retry=True, redo={**(entry.manifest.redo or {}), **left})
        return {
            "for_try": self._key.try_number + 1,
            "outbox": str(self._options.outbox_location),
            **left,
        }

    def leave_to_others(self) -> None:
        """Record that no attempt only has to deliver: whoever clears the task now wants Spark to
        run again.

        :raises OSError: if the outbox refuses.
        """
        for entry in self._entries(Deadline.after(_RETRY_SECONDS)):
            if entry.manifest.awaits_retry:
                entry.update(awaits_retry=False)


def _read_written(left: object) -> list[WrittenDataset]:
    """Return what :meth:`EarlierAttempts.leave_to_retry` kept; nothing if an older version kept it."""
    from airflow_provider_spark_datahub.conversion import WrittenDataset

    kept = left.get("written") if isinstance(left, dict) else None
    try:
        return msgspec.convert(kept or [], list[WrittenDataset])
    except msgspec.ValidationError as error:
        log.warning(
            "Cannot read which datasets the earlier attempt wrote, so they get no asset event: %s",
            error,
        )
        return []
