"""The storage of an outbox in an object store, through a file system of the kind that fsspec defines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from airflow_provider_spark_datahub.delivery.budget import within
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.outbox_storage import OutboxStorage, Stored
from airflow_provider_spark_datahub.delivery.third_party import ThirdPartyError, third_party

T = TypeVar("T")

REQUEST_SECONDS = 10.0
"""How long the store may take for one request, with its client's own repetitions."""
LEAST_SECONDS = 0.5
"""How long one request may take even where less is left until the deadline."""


class FileSystem(Protocol):
    """What is used of fsspec's ``AbstractFileSystem``; paths are without the protocol."""

    def invalidate_cache(self, path: str) -> None:
        """Forget listings: other processes write here as well."""

    def find(self, path: str, *, detail: bool) -> Mapping[str, Mapping[str, Any]]:
        """All objects below a path, with their sizes."""

    def cat_file(self, path: str) -> bytes:
        """The content of an object."""

    def pipe_file(self, path: str, value: bytes) -> None:
        """Write an object as a whole."""

    def rm_file(self, path: str) -> None:
        """Remove an object."""


class ObjectStorage(OutboxStorage):
    """Objects below a prefix. The store must show in a listing what was written before it began, as S3 does.

    Each request ends in time: within :data:`REQUEST_SECONDS`, and half of what is left until :attr:`deadline`.

    :param root: bucket and prefix.
    :param uri: the same for people, without secrets.
    """

    def __init__(self, file_system: FileSystem, root: str, uri: str) -> None:
        self._fs = file_system
        self._root = root.rstrip("/")
        self._uri = uri.rstrip("/")

    def describe(self, name: str = "") -> str:
        """The URI."""
        return f"{self._uri}/{name}" if name else self._uri

    def stored(self, folder: str) -> list[Stored]:
        """All objects below ``folder``."""
        prefix = f"{self._root}/{folder}"

        def find() -> Mapping[str, Mapping[str, Any]]:
            self._fs.invalidate_cache(prefix)
            return self._fs.find(prefix, detail=True)

        try:
            found = self._request(folder, find)
        except FileNotFoundError:
            return []
        names = ((path.removeprefix(f"{self._root}/"), info) for path, info in found.items())
        return sorted(
            (Stored(name, int(info.get("size") or 0)) for name, info in names if name.startswith(f"{folder}/")),
            key=lambda one: one.name,
        )

    def read(self, name: str) -> bytes:
        """The content of an object."""
        return self._request(name, lambda: self._fs.cat_file(f"{self._root}/{name}"))

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """One PUT, or one multipart upload: the object appears when it is complete."""
        content = b"".join(chunks)
        self._request(name, lambda: self._fs.pipe_file(f"{self._root}/{name}", content))

    def remove(self, name: str) -> None:
        """One DELETE."""
        with suppress(FileNotFoundError):
            self._request(name, lambda: self._fs.rm_file(f"{self._root}/{name}"))

    def _request(self, name: str, call: Callable[[], T]) -> T:
        answer: list[T] = []
        seconds = REQUEST_SECONDS
        if self.deadline is not None:
            seconds = min(seconds, max(LEAST_SECONDS, self.deadline.remaining() / 2))
        try:
            in_time = within(Deadline.after(seconds), lambda: answer.append(third_party(call, OSError)))
        except ThirdPartyError as error:
            # Each store's client has errors of its own, and not all of them are OSErrors.
            raise OSError(f"{self.describe(name)}: {error}") from error
        if not in_time:
            raise TimeoutError(f"{self.describe(name)}: no answer within {seconds:.1f} s")
        return answer[0]
