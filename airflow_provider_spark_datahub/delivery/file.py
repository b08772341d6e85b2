"""The file sink: proposals appended to a local file that other processes append to as well."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlsplit

from airflow_provider_spark_datahub.conversion.proposals import Proposal
from airflow_provider_spark_datahub.delivery.connection import ConnectionParts
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.durable import make_folder, sync_folder, write_durably
from airflow_provider_spark_datahub.delivery.file_forms import (
    FileForm,
    ForeignFileError,
    JsonArray,
    JsonLines,
    Junction,
)
from airflow_provider_spark_datahub.delivery.finding import Finding, Verdict
from airflow_provider_spark_datahub.delivery.sink import DeliveryRecord, Sink, SinkSettingsError

log = logging.getLogger(__name__)


class FileSink(Sink):
    """Appends to a file: JSON lines where its name ends in ``.jsonl`` or ``.ndjson``, else the array of objects that
    ``datahub ingest`` reads.

    Its lock is the one of DataHub's ``SynchronizedFileEmitter``, so that both may write the same file. An append
    costs what is appended, not what is there, and is on the disk when it is acknowledged. What an append left that
    was cut off by a crash is moved to ``<path>.torn-N`` by the next one. A reader that takes no lock may see an
    append half done.

    :param path: the file; it and its folder are made where they are missing.
    """

    name: ClassVar[str] = "file"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._form: FileForm = JsonLines() if path.suffix.lower() in (".jsonl", ".ndjson") else JsonArray()

    @classmethod
    def from_connection(cls, connection: ConnectionParts) -> FileSink:
        """The sink of a ``datahub-file`` connection, whose host is a path or a ``file://`` URI.

        :raises SinkSettingsError: where the host is empty or no local file.
        """
        text = (connection.host or "").strip()
        if "://" in text:
            uri = urlsplit(text)
            if uri.scheme.lower() != "file" or uri.netloc not in ("", "localhost"):
                raise SinkSettingsError(f"The connection's host must be a local path or file:///path, not {text!r}.")
            text = unquote(uri.path)
        if not text or text.endswith("/"):
            raise SinkSettingsError("The connection's host must be the path of the file to write.")
        return cls(Path(text))

    def describe(self) -> str:
        """``the file PATH``."""
        return f"the file {self._path}"

    def check(self, deadline: Deadline) -> list[Finding]:  # noqa: ARG002 (the disk is asked, no server)
        """Whether the file, or the folder that it would be made in, can be written, and holds metadata only."""
        place = next(one for one in (self._path, *self._path.absolute().parents) if one.exists())
        is_folder = place.is_dir()
        if is_folder == (place == self._path) or not os.access(place, os.W_OK | os.X_OK if is_folder else os.W_OK):
            return [Finding("DataHub", Verdict.BAD, f"{place} cannot be written by this user")]
        try:
            if self._path.exists():
                with FileIO(self._path) as file:
                    self._form.junction(file)
        except ForeignFileError as error:
            advice = "name another file in the connection"
            return [Finding("DataHub", Verdict.BAD, f"Nothing can be appended to {self.describe()}: {error}", advice)]
        except OSError as error:
            return [Finding("DataHub", Verdict.BAD, f"Cannot read {self.describe()}: {error.strerror or error}")]
        return [Finding("DataHub", Verdict.GOOD, f"The file {self._path} can be written")]

    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:
        """Append all proposals, or none."""
        from filelock import FileLock, Timeout

        items = record.pending()
        try:
            make_folder(self._path.parent)
            # with_suffix, not a suffix added: that is how SynchronizedFileEmitter names its lock.
            with FileLock(self._path.with_suffix(".lock"), timeout=deadline.remaining()):
                if deadline.expired:
                    record.stop(f"No time was left to write {self.describe()}.")
                    return
                self._append(proposal for _, proposal in items)
        except Timeout:
            record.stop(f"Another process held the lock of {self.describe()} until the time for lineage was over.")
        except ForeignFileError as error:
            record.stop(f"Nothing was appended to {self.describe()}: {error}; name another file in the connection.")
        except OSError as error:
            record.stop(f"Cannot write {self.describe()}: {error.strerror or error}.")
        else:
            record.confirm(items, stored=True)

    def _append(self, proposals: Iterable[Proposal]) -> None:
        with FileIO(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+") as file:
            junction = self._form.junction(file)
            if junction.torn:
                self._repair(file, junction)
            _replace_end(file, junction.at, self._pieces(proposals, junction))
        sync_folder(self._path.parent)

    def _pieces(self, proposals: Iterable[Proposal], junction: Junction) -> Iterator[bytes]:
        lead = self._form.opening if junction.empty else self._form.separator
        for proposal in proposals:
            text = json.dumps(proposal.to_obj(), ensure_ascii=False)
            # Half of a surrogate pair can only stand inside a JSON string, where its escape means the same.
            yield lead + text.encode("utf-8", "backslashreplace")
            lead = self._form.separator
        yield self._form.closing

    def _repair(self, file: FileIO, junction: Junction) -> None:
        file.seek(junction.at)
        rest = file.readall()
        if rest.strip(b" \t\r\n,["):
            aside = _free_name(self._path)
            write_durably(aside, [rest])
            log.warning("%s ended in a torn append: moved %d bytes to %s", self._path, len(rest), aside)
        _replace_end(file, junction.at, [] if junction.empty else [self._form.closing])


def _replace_end(file: FileIO, at: int, pieces: Iterable[bytes]) -> None:
    """Put ``pieces`` in the place of what stands from ``at`` on; where the disk refuses, put that back."""
    file.seek(at)
    before = file.readall()
    try:
        file.truncate(at)
        file.seek(at)
        for piece in pieces:
            _write_all(file, piece)
        os.fsync(file.fileno())
    except OSError:
        file.truncate(at)
        file.seek(at)
        _write_all(file, before)
        raise


def _write_all(file: FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def _free_name(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}.torn-{number}")).exists():
        number += 1
    return aside
