"""The settings of the object store sink, read from a ``datahub-object-store`` connection.

The object store sink: each batch is one object, named by when its events happened and by its content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar
from urllib.parse import urlsplit

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery.connection import ConnectionParts, Reader, read_extra, text
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.failure import Backoff, Failure, FailureKind, one_line
from airflow_provider_spark_datahub.delivery.outbox.storage import LEAST_SECONDS, ObjectStorage
from airflow_provider_spark_datahub.delivery.sink import DeliveryRecord, Finding, Sink, SinkSettingsError, Verdict
from airflow_provider_spark_datahub.delivery.sinks.file import JsonArray


@dataclass(frozen=True, slots=True)
class ObjectStoreSettings:
    """Where in an object store proposals go.

    :param uri: bucket and prefix, e.g. ``s3://bucket/lineage``.
    :param storage_conn_id: the Airflow connection that reaches the store; None for the store's own defaults, such as
        the machine's role.
    """

    uri: str
    storage_conn_id: str | None = None

    @classmethod
    def from_connection(cls, connection: ConnectionParts) -> ObjectStoreSettings:
        """The settings that an Airflow connection holds.

        :param connection: ``host`` is the URI of bucket and prefix, for which Airflow's form
            ``s3://connection@bucket/prefix`` will do, too; ``extra`` may have ``storage_conn_id``.
        :raises SinkSettingsError: where a part is missing, unknown or of the wrong type.
        """
        settings = read_extra(connection.extra, _EXTRA)
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
        if in_uri and "storage_conn_id" in settings:
            raise SinkSettingsError(
                "The store's connection is given twice: in the host, and as 'storage_conn_id' in the extra. "
                "Leave one out."
            )
        return cls(uri, settings.get("storage_conn_id", in_uri))


_WANTED = "The connection's host must be the URI of a bucket, with a prefix or without: e.g. s3://bucket/lineage."
_EXTRA: dict[str, Reader] = {"storage_conn_id": text}


_NEVER_WRITTEN = "spark-datahub-doctor"
UNDATED = "undated"
"""In the place of the time in the name of a batch that tells of no run."""


class ObjectStoreSink(Sink):
    """Writes each batch as one object: the array of proposals that ``datahub ingest``'s file source reads.

    The name of an object sorts by the time of its events, and ends in the SHA-256 of its content: to deliver a batch
    again, from wherever, writes the same object.

    :param storage: the place; of this sink alone.
    :param backoff: the waits between attempts.
    """

    name: ClassVar[str] = "object-store"

    def __init__(self, storage: ObjectStorage, *, backoff: Backoff | None = None) -> None:
        self._storage = storage
        self._backoff = backoff or Backoff()

    def describe(self) -> str:
        """``the object store at URI``."""
        return f"the object store at {self._storage.describe()}"

    def check(self, deadline: Deadline) -> list[Finding]:
        """Whether the store answers, with these keys; only writing tells whether they may write."""
        self._storage.deadline = deadline
        verdict, words = Verdict.GOOD, "answers"
        try:
            self._storage.read(_NEVER_WRITTEN)
        except FileNotFoundError:
            pass
        except PermissionError as error:
            verdict, words = Verdict.WARNING, f"does not let us read ({one_line(str(error))}); it may let us write"
        except OSError as error:
            verdict, words = Verdict.BAD, Failure(FailureKind.UNAVAILABLE, one_line(str(error))).verdict(_REMEDY)
        return [Finding("DataHub", verdict, f"{self.describe()} {words}", "" if verdict is Verdict.GOOD else _REMEDY)]

    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:
        """Write all proposals as one object, or none."""
        items = record.pending()
        content = _content(proposal for _, proposal in items)
        name = object_name([proposal for _, proposal in items], content)
        self._storage.deadline = deadline
        first, attempt = None, 1
        while (failure := self._write(name, content)) is not None:
            wait = self._backoff.delay(attempt)
            first = first or failure
            if failure.kind is not FailureKind.UNAVAILABLE or deadline.remaining() < wait + 2 * LEAST_SECONDS:
                # The first attempt had the most time to find out more than that there was no answer.
                told = first if failure.kind is FailureKind.UNAVAILABLE else failure
                record.stop(f"{self.describe()} {told.verdict(_REMEDY)}.")
                return
            self._backoff.sleep(wait)
            attempt += 1
        record.confirm(items, stored=True)

    def _write(self, name: str, content: bytes) -> Failure | None:
        try:
            self._storage.write(name, [content])
        except PermissionError as error:
            return Failure(FailureKind.UNAUTHORISED, one_line(str(error)))
        except FileNotFoundError as error:
            return Failure(FailureKind.MISCONFIGURED, one_line(str(error)))
        except OSError as error:
            return Failure(FailureKind.UNAVAILABLE, one_line(str(error)))
        return None


_REMEDY = "check the keys of the connection that storage_conn_id names, and what they may write"


def object_name(proposals: Sequence[Proposal], content: bytes) -> str:
    """The name of the object that holds a batch: ``2026-01-31T235959.999Z-<SHA-256>.json``.

    The time is that of the last thing that a run event in the batch tells, so it is the same whenever it is delivered.
    """
    moments = [moment for proposal in proposals if (moment := _moment(proposal)) is not None]
    when = _written(max(moments)) if moments else UNDATED
    return f"{when}-{hashlib.sha256(content).hexdigest()}.json"


def _moment(proposal: Proposal) -> int | None:
    """When what a proposal tells happened, in milliseconds since 1970."""
    if proposal.aspect_name != "dataProcessInstanceRunEvent" or not isinstance(proposal.aspect, dict):
        return None
    moment = proposal.aspect.get("timestampMillis")
    return moment if isinstance(moment, int) and 0 <= moment < _YEAR_10000 else None


def _written(moment: int) -> str:
    """Without colons, which not every tool takes in a name."""
    return f"{datetime.fromtimestamp(moment // 1000, UTC):%Y-%m-%dT%H%M%S}.{moment % 1000:03d}Z"


_YEAR_10000 = 253_402_300_800_000  # the first millisecond that has no date in four digits


def _content(proposals: Iterable[Proposal]) -> bytes:
    form = JsonArray()
    # Half of a surrogate pair can only stand inside a JSON string, where its escape means the same.
    lines = (proposal.to_json().encode("utf-8", "backslashreplace") for proposal in proposals)
    return form.opening + form.separator.join(lines) + form.closing
