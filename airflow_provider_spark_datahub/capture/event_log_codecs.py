"""Opens the files of Spark's event log, compressed ones where the codec can be read here."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from zstandard import ZstdDecompressor

_BUFFER_BYTES = 1024 * 1024
UNREADABLE_CODECS = ("lz4", "snappy", "lzf")
"""Codecs of ``spark.eventLog.compression.codec`` in formats of their own, which no common Python library reads."""


class UnreadableCodecError(OSError):
    """The file is compressed in a way that cannot be read here; the message says what to set."""

    def __init__(self, path: Path, codec: str, remedy: str) -> None:
        super().__init__(f"{path.name} is compressed with {codec}: {remedy}")


def open_log(path: Path) -> io.BufferedIOBase:
    """A file of an event log, decompressed, for reading bytes.

    A compressed file that ends too early, because its driver was killed, is read as far as it goes.

    :raises UnreadableCodecError: its codec cannot be read here.
    :raises OSError: the file cannot be opened.
    """
    codecs = {suffix.removeprefix(".") for suffix in path.suffixes}
    for codec in UNREADABLE_CODECS:
        if codec in codecs:
            raise UnreadableCodecError(
                path, codec, "set spark.eventLog.compression.codec=zstd or spark.eventLog.compress=false"
            )
    return _open_zstd(path) if "zstd" in codecs else path.open("rb")


def _open_zstd(path: Path) -> io.BufferedIOBase:
    try:
        import zstandard
    except ImportError as error:
        raise UnreadableCodecError(
            path, "zstd", "install the Python package zstandard, or set spark.eventLog.compress=false"
        ) from error
    return io.BufferedReader(_ZstdFile(path, zstandard.ZstdDecompressor(), zstandard.ZstdError), _BUFFER_BYTES)


class _ZstdFile(io.RawIOBase):
    """A zstd file, decompressed, whose defects are errors of the operating system to its reader."""

    def __init__(self, path: Path, decompressor: ZstdDecompressor, error: type[Exception]) -> None:
        super().__init__()
        self._name = path.name
        self._file = path.open("rb")
        # Spark begins a new frame whenever it flushes.
        self._stream = decompressor.stream_reader(self._file, read_across_frames=True)
        self._error = error

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill the buffer; 0 at the end.

        :raises OSError: the file is damaged.
        """
        try:
            return self._stream.readinto(buffer)
        except self._error as error:
            raise OSError(f"{self._name} is no intact zstd file: {error}") from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()
