"""File sink: writes each delivery as one file of a local folder."""

from __future__ import annotations

import hashlib
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlsplit

from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.sink import (
    CheckResult,
    CheckStatus,
    DeliveryRecord,
    Sink,
    SinkSettingsError,
)
from airflow_provider_spark_datahub.delivery.sinks.batches import json_array
from airflow_provider_spark_datahub.delivery.sinks.settings import ConnectionParts
from airflow_provider_spark_datahub.foundation.files import exists, is_folder, write_durably


class FileSink(Sink):
    """Sink that writes each delivery as one file: the array of proposals that ``datahub ingest``'s
    file source reads.

    Read the files in the order of their names, which is that of the deliveries. An acknowledged
    file is on the disk.

    :param folder: made if it is missing.
    """

    name: ClassVar[str] = "file"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

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
        content = json_array(proposal for _, proposal in items)
        # Without colons, which not every tool accepts in a name. The hash keeps two writers apart.
        name = f"{datetime.now(UTC):%Y-%m-%dT%H%M%S.%fZ}-{hashlib.sha256(content).hexdigest()[:12]}.json"
        try:
            write_durably(self._folder / name, [content])
        except OSError as error:
            record.stop(f"Cannot write to {self.describe()}: {error.strerror or error}.")
        else:
            record.confirm(items, stored=True)
