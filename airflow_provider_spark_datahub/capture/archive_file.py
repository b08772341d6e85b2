"""The lines of one file of an archive of events, with their offsets, decompressed where the file is compressed."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from airflow_provider_spark_datahub.capture.collect import CollectLimits

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

COMPRESSED = (".gz", ".zst", ".zstd")
"""Ends of the names of compressed files."""
_BUFFER_BYTES = 128 * 1024
# Events may be a thousandth of their size when compressed: what is read at once must not fill the memory.
_COMPRESSED_BYTES = 16 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class DamagedFileError(OSError):
    """A file that cannot be read to its end.

    :param offset: of the first byte that cannot be read, decompressed.
    """

    def __init__(self, reason: str, offset: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset


def lines_of(name: str, stream: IO[bytes], limits: CollectLimits | None = None) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not blank, each with its offset, decompressed, in bytes.

    :param name: of the file, which tells how it is compressed.
    :param stream: its bytes, as they are stored.
    :raises DamagedFileError: where it cannot be read on; what came before counts.
    """
    limit = (limits or CollectLimits()).max_event_bytes
    opened = _decompressed(name, stream)
    offset = 0
    try:
        while line := opened.readline(limit + 1):
            if len(line) > limit and not line.endswith(b"\n"):
                raise DamagedFileError(f"a line of more than {limit} bytes", offset)
            start, offset = offset, offset + len(line)
            if start == 0:
                line = line.removeprefix(_BYTE_ORDER_MARK)
            if line.strip():
                yield start, line
    except EOFError as error:
        raise DamagedFileError("the compressed file is cut off", offset) from error
    except (zlib.error, gzip.BadGzipFile) as error:
        raise DamagedFileError(f"no intact gzip file: {error}", offset) from error
    except _BrokenZstdError as error:
        raise DamagedFileError(str(error), offset) from error


def _decompressed(name: str, stream: IO[bytes]) -> IO[bytes] | io.BufferedReader:
    if name.endswith(".gz"):
        return io.BufferedReader(gzip.GzipFile(fileobj=stream), _BUFFER_BYTES)
    if name.endswith((".zst", ".zstd")):
        return io.BufferedReader(_Zstd(stream), _BUFFER_BYTES)
    return stream


class _BrokenZstdError(Exception):
    """The bytes are no zstd."""


class _Zstd(io.RawIOBase):
    """A zstd stream of any number of frames, decompressed; one that is cut off ends with EOFError."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__()
        try:
            import zstandard
        except ImportError as error:
            raise DamagedFileError("to read zstd files, Python needs the package zstandard") from error
        self._stream = stream
        self._new = zstandard.ZstdDecompressor().decompressobj
        self._broken = zstandard.ZstdError
        self._frame = self._new()
        self._in_frame = False
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill the buffer; 0 at the end."""
        target = memoryview(buffer).cast("B")
        while not self._rest:
            if not self._read_on():
                return 0
        size = min(len(target), len(self._rest))
        target[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def _read_on(self) -> bool:
        # Between two frames, what was read beyond the first one's end belongs to the next.
        compressed = self._frame.unused_data if self._frame.eof else b""
        if self._frame.eof:
            self._frame, self._in_frame = self._new(), False
        compressed = compressed or self._stream.read(_COMPRESSED_BYTES)
        if not compressed:
            if self._in_frame:
                raise EOFError
            return False
        self._in_frame = True
        try:
            self._rest = memoryview(self._frame.decompress(compressed))
        except self._broken as error:
            raise _BrokenZstdError(f"no intact zstd file: {error}") from error
        return True
