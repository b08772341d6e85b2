"""Sinks that write the arrays of proposals which ``datahub ingest``'s file source reads: files of a
local folder, and objects of a store.

Tests: ``tests/delivery/test_file.py`` and ``tests/delivery/test_object_store.py``.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlsplit

from airflow_provider_spark_datahub.conversion import Proposal, json_lines
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.failure import Backoff, Failure, FailureKind, shorten
from airflow_provider_spark_datahub.delivery.outbox.storage import ObjectStorage
from airflow_provider_spark_datahub.delivery.sink import (
    CheckResult,
    CheckStatus,
    DeliveryRecord,
    Sink,
    SinkSettingsError,
)
from airflow_provider_spark_datahub.delivery.sinks.batches import BatchSink
from airflow_provider_spark_datahub.delivery.sinks.settings import ConnectionParts, Read
from airflow_provider_spark_datahub.foundation.files import exists, is_folder, write_durably
from airflow_provider_spark_datahub.foundation.text import counted

log = logging.getLogger(__name__)


def _json_array(proposals: Iterable[Proposal]) -> bytes:
    """Return proposals as a JSON array, one a line."""
    return b"[\n" + b",\n".join(json_lines(proposals).splitlines()) + b"\n]\n"


@dataclass(frozen=True)
class FileSink(Sink):
    """Sink that writes each delivery as one file: the array of proposals that ``datahub ingest``'s
    file source reads.

    Read the files in the order of their names, which is that of the deliveries. An acknowledged
    file is on the disk.

    :param folder: made if it is missing.
    """

    name: ClassVar[str] = "file"
    _folder: Path

    @classmethod
    def from_connection(cls, connection: ConnectionParts) -> FileSink:
        """Return the sink of a ``datahub-file`` connection, whose host is a path or a ``file://``
        URI.

        :raises SinkSettingsError: if the host is empty or not a local folder.
        """
        text = (connection.host or "").strip()
        if "://" in text:
            uri = urlsplit(text)
            if uri.scheme.lower() != "file" or uri.netloc not in ("", "localhost"):
                raise SinkSettingsError(
                    f"The connection's host must be a local path or file:///path, not {text!r}."
                )
            text = unquote(uri.path)
        if not text:
            raise SinkSettingsError(
                "The connection's host must be the path of the folder to write to."
            )
        return cls(Path(text).expanduser())

    def describe(self) -> str:
        """Return ``the folder PATH``."""
        return f"the folder {self._folder}"

    def check(self, deadline: Deadline) -> list[CheckResult]:  # noqa: ARG002 (the disk is asked, not a server)
        """Check that the folder can be written, or the nearest folder around it that exists."""
        if not self._folder.is_absolute():
            words = f"{self._folder} would be below the working directory of each task"
            return [
                CheckResult(
                    "DataHub", CheckStatus.BAD, words, "give the connection an absolute path"
                )
            ]
        place = next(
            path for path in (self._folder, *self._folder.absolute().parents) if exists(path)
        )
        if not is_folder(place) or not os.access(place, os.W_OK | os.X_OK):
            return [
                CheckResult(
                    "DataHub",
                    CheckStatus.BAD,
                    f"{place} is not a folder that this user can write to",
                )
            ]
        return [
            CheckResult("DataHub", CheckStatus.GOOD, f"The folder {self._folder} can be written")
        ]

    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:
        """Write all proposals, or none."""
        items = record.pending()
        if deadline.expired:
            record.stop(f"No time was left to write to {self.describe()}.")
            return
        content = _json_array(proposal for _, proposal in items)
        # Without colons, which not every tool accepts in a name. The hash keeps two writers apart.
        name = f"{datetime.now(UTC):%Y-%m-%dT%H%M%S.%fZ}-{hashlib.sha256(content).hexdigest()[:12]}.json"
        try:
            write_durably(self._folder / name, [content])
        except OSError as error:
            record.stop(f"Cannot write to {self.describe()}: {error.strerror or error}.")
        else:
            record.confirm(items, stored=True)


_WANTED = "The connection's host must be the URI of a bucket, with a prefix or without: e.g. s3://bucket/lineage."
_NEVER_WRITTEN = "spark-datahub-doctor"
_LAST_BYTES = 3  # of an object, which are read back


class ObjectStoreSink(BatchSink):
    """Sink that writes each batch as one object: the array of proposals that ``datahub ingest``'s
    file source reads.

    The name of an object sorts by the time of its events and ends in the SHA-256 of its content. A
    batch that is delivered again, from anywhere, writes the same object.

    :param storage: the place, used by this sink alone.
    :param backoff: the waits between attempts.
    """

    name: ClassVar[str] = "object-store"
    server = "the object store"
    remedy = "check the keys of the connection that storage_conn_id names, and what they may write"

    def __init__(self, storage: ObjectStorage, *, backoff: Backoff | None = None) -> None:
        super().__init__(backoff)
        self._storage = storage

    @classmethod
    def from_connection(
        cls, connection: ConnectionParts, open_storage: Callable[[str, str | None], ObjectStorage]
    ) -> ObjectStoreSink:
        """Return the sink of a ``datahub-object-store`` connection.

        :param connection: ``host`` is the URI of bucket and prefix, also in Airflow's form
            ``s3://connection@bucket/prefix``; ``extra`` may have ``storage_conn_id``.
        :param open_storage: opens the store at a URI through the Airflow connection of an id, or,
            for ``None``, with the store's own defaults, such as the machine's role.
        :raises SinkSettingsError: if a part is missing, unknown or of the wrong type.
        """
        conn_id = Read.extra(connection.extra, {"storage_conn_id": Read.text}).get(
            "storage_conn_id"
        )
        uri = (connection.host or "").strip().rstrip("/")
        try:
            parts = urlsplit(uri)
            secret, bucket, in_uri = parts.password, parts.hostname, parts.username
        except ValueError as error:
            raise SinkSettingsError(_WANTED) from error
        if not (parts.scheme and "://" in uri and bucket):
            raise SinkSettingsError(_WANTED)
        if secret is not None or parts.query or parts.fragment:
            raise SinkSettingsError(
                "The connection's host must be a plain URI: keys belong into the connection that 'storage_conn_id' in "
                "its extra names."
            )
        if in_uri and conn_id is not None:
            raise SinkSettingsError(
                "The store's connection is given twice: in the host, and as 'storage_conn_id' in the extra. "
                "Leave one out."
            )
        return cls(open_storage(uri, conn_id or in_uri))

    def describe(self) -> str:
        """Return ``the object store at URI``."""
        return f"the object store at {self._storage.describe()}"

    def check(self, deadline: Deadline) -> list[CheckResult]:
        """Check that the store answers with these keys; only a write would show whether they may
        write.
        """
        self._storage.deadline = deadline
        status, text = CheckStatus.GOOD, "answers"
        try:
            self._storage.read(_NEVER_WRITTEN)
        except FileNotFoundError:
            pass
        except PermissionError as error:
            status, text = (
                CheckStatus.WARNING,
                f"does not let us read ({shorten(str(error))}); it may let us write",
            )
        except OSError as error:
            status, text = CheckStatus.BAD, _failure(error).predicate(self.remedy)
        advice = "" if status is CheckStatus.GOOD else self.remedy
        return [CheckResult("DataHub", status, f"{self.describe()} {text}", advice)]

    def open_client(self, deadline: Deadline) -> _ObjectWriter:
        """Return a writer of objects."""
        return _ObjectWriter(self._storage, deadline)


@dataclass
class _ObjectWriter:
    """Client that writes a batch as one object."""

    _storage: ObjectStorage
    _deadline: Deadline

    def post(self, proposals: Sequence[Proposal]) -> bool | Failure:
        content = _json_array(proposals)
        name = _object_name(proposals, content)
        # A new deadline object for each attempt: if one request hangs, the next may still be
        # answered.
        self._storage.deadline = replace(self._deadline)
        try:
            self._storage.write(name, [content])
            if not self._holds(name, content):
                return Failure(
                    FailureKind.UNAVAILABLE, f"it acknowledged {name}, but does not hold it"
                )
        except OSError as error:
            return _failure(error)
        log.debug(
            "Wrote %s (%d bytes) as %s", counted(len(proposals), "proposal"), len(content), name
        )
        return True

    def _holds(self, name: str, content: bytes) -> bool:
        """Return whether the end of an object can be read: a proxy or a wrong server may answer 200
        to anything.
        """
        try:
            return (
                self._storage.read_range(name, len(content) - _LAST_BYTES, len(content))
                == content[-_LAST_BYTES:]
            )
        except PermissionError:
            return True  # keys that may only write
        except FileNotFoundError:
            return False

    def close(self) -> None:
        pass


def _failure(error: OSError) -> Failure:
    kind = (
        FailureKind.UNAUTHORISED if isinstance(error, PermissionError) else FailureKind.UNAVAILABLE
    )
    kind = FailureKind.MISCONFIGURED if isinstance(error, FileNotFoundError) else kind
    return Failure(kind, shorten(str(error)))


def _object_name(proposals: Sequence[Proposal], content: bytes) -> str:
    """Return the name of the object that holds a batch: ``2026-01-31T235959.999Z-<SHA-256>.json``.

    The time is that of the last run event in the batch, so it does not depend on when the batch is
    delivered.
    """
    times = [
        time_ms for proposal in proposals if (time_ms := _run_event_time(proposal)) is not None
    ]
    timestamp = "undated"
    if times:
        seconds, milliseconds = divmod(max(times), 1000)
        # Without colons, which not every tool accepts in a name.
        timestamp = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H%M%S}.{milliseconds:03d}Z"
    return f"{timestamp}-{hashlib.sha256(content).hexdigest()}.json"


def _run_event_time(proposal: Proposal) -> int | None:
    """Return the time of a run event, in milliseconds since 1970."""
    if proposal.aspect_name != "dataProcessInstanceRunEvent" or not isinstance(
        proposal.aspect, dict
    ):
        return None
    time_ms = proposal.aspect.get("timestampMillis")
    return time_ms if isinstance(time_ms, int) and 0 <= time_ms < _YEAR_10000 else None


_YEAR_10000 = 253_402_300_800_000  # the first millisecond that has no date in four digits
