"""Usage of an outbox: its size and its oldest entry, counted with each write instead of listed."""

from __future__ import annotations

import logging
import time
from contextlib import suppress

import msgspec

from airflow_provider_spark_datahub.delivery.outbox.format import (
    EntryFormatError,
    EntryName,
    Folder,
    seal,
    unseal,
)
from airflow_provider_spark_datahub.delivery.outbox.storage import OutboxStorage
from airflow_provider_spark_datahub.files import UnreadFileError
from airflow_provider_spark_datahub.printable import counted

log = logging.getLogger(__name__)

_NAME = "usage.json"
_CHEAP_SECONDS = 0.1
"""A measurement that took less is repeated whenever its result matters: most outboxes are small."""
_SHARE = 50
"""A longer one is repeated after so many times its duration: it takes at most this part of the time."""
_OLDEST_MS = 86_400_000
"""Age after which the oldest entry of a large outbox is looked up again, so that receipts can expire."""


class _Usage(msgspec.Struct):
    """Result of a measurement, and the bytes written since.

    :param bytes: the measured size and all bytes that were written since: never less than the size, except for what
        others wrote at the same moment.
    :param oldest_ms: no pending entry was made before.
    :param seconds: the duration of the measurement.
    """

    bytes: int
    oldest_ms: int
    measured_ms: int
    seconds: float

    def age_ms(self, now_ms: int) -> float:
        """Return the time since the measurement; infinite if it is in the future, since a clock was wrong then."""
        age = now_ms - self.measured_ms
        return age if age >= 0 else float("inf")


class OutboxUsage:
    """Upper limit of the size of an outbox, and lower limit of the age of its entries, at the cost of one small object.

    Listing a large outbox takes seconds, too long for each write of a task. So each write adds its size to an object
    that all processes share. The outbox is listed only when that sum reaches the limit, and by full drains. Removals
    are not counted, and if two processes add at the same moment, one number may be lost. The next measurement corrects
    both errors.
    """

    def __init__(self, storage: OutboxStorage) -> None:
        self._storage = storage

    def add(self, size: int, limit: int, created_ms: int | None = None) -> int | None:
        """Count bytes that are about to be written.

        :param limit: limit of the whole outbox, in bytes.
        :param created_ms: creation time of the entry that is written.
        :returns: ``None`` if there is room; otherwise the size of the outbox, and nothing is counted.
        :raises OSError: if the outbox must be listed and cannot be.
        """
        usage = self._read() or self.measure()
        if usage.bytes + size > limit and (
            usage.seconds < _CHEAP_SECONDS or usage.age_ms(self._storage.now_ms()) > _SHARE * usage.seconds * 1000
        ):
            usage = self.measure()
        if usage.bytes + size > limit:
            return usage.bytes
        usage.bytes += size
        usage.oldest_ms = min(usage.oldest_ms, created_ms if created_ms is not None else usage.oldest_ms)
        self._write(usage)
        return None

    def observe_time(self) -> None:
        """Let the storage learn its time from the object of this count, if it does not know it yet.

        :raises OSError: if the outbox must be listed and cannot be.
        """
        if not self._storage.knows_time:
            usage, since = self._read() or self.measure(), time.time()
            self._write(usage)
            with suppress(OSError):
                self._storage.observe_time(_NAME, since)

    def oldest_ms(self) -> int:
        """Return a time before which no pending entry was made, in ms since the epoch.

        :raises OSError: if the outbox must be listed and cannot be.
        """
        usage = self._read()
        if usage is None or usage.seconds < _CHEAP_SECONDS or usage.age_ms(self._storage.now_ms()) > _OLDEST_MS:
            usage = self.measure()
        return usage.oldest_ms

    def measure(self) -> _Usage:
        """List the outbox.

        :raises OSError: if it cannot be listed.
        """
        started, measured_ms = time.monotonic(), self._storage.now_ms()
        pending = self._storage.stored(Folder.PENDING)
        size = sum(pending.values())
        size += sum(sum(self._storage.stored(folder).values()) for folder in (Folder.QUARANTINED, Folder.CORRUPT))
        made_ms = [name.created_ms for path in pending if (name := EntryName.parse(path)) is not None]
        usage = _Usage(size, min([measured_ms, *made_ms]), measured_ms, time.monotonic() - started)
        self._write(usage)
        log.debug("Measured the outbox: %s, %d bytes, in %.3f s", counted(len(made_ms), "entry"), size, usage.seconds)
        return usage

    def forget(self) -> None:
        """Make the next write measure the outbox again, because entries with an earlier date came back.

        :raises OSError: if the storage refuses.
        """
        self._storage.remove(_NAME)

    def _read(self) -> _Usage | None:
        try:
            usage = msgspec.convert(unseal(self._storage.read(_NAME))[0], _Usage)
        except FileNotFoundError:
            return None
        except (EntryFormatError, UnreadFileError, msgspec.ValidationError) as error:
            log.debug("The usage of the outbox cannot be read: %s", error)
            with suppress(OSError):
                self._storage.remove(_NAME)
            return None
        return usage if min(usage.bytes, usage.oldest_ms, usage.seconds) >= 0 else None

    def _write(self, usage: _Usage) -> None:
        # If the storage refuses, it will refuse the entry, too; if not, the next measurement corrects the count.
        with suppress(OSError):
            self._storage.write(_NAME, [seal(msgspec.structs.asdict(usage))], sync=False)
