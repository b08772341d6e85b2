"""Reading of stored files: lines of archives, and the content of files that gzip or zstd
compressed.
"""

from __future__ import annotations

import errno
import gzip
import io
import zlib
from collections.abc import Callable, Generator, Iterator
from typing import IO, TYPE_CHECKING, cast

from airflow_provider_spark_datahub.capture.event_lines import MAX_EVENT_BYTES

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class ChunkStream(io.RawIOBase):
    """File over the chunks of a generator; closing it closes the generator."""

    def __init__(self, chunks: Generator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Return ``True``."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill the buffer from one chunk at most; return 0 at the end."""
        target = memoryview(buffer).cast("B")
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        size = min(len(target), len(self._rest))
        target[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def close(self) -> None:
        """Close the generator."""
        self._chunks.close()
        super().close()


COMPRESSED = (".gz", ".zst", ".zstd")
"""Suffixes of compressed files."""
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"  # first bytes
_BUFFER_BYTES = 128 * 1024
# A block of 128 KB may be compressed to 4 bytes: at most 16 MB come from one chunk.
_COMPRESSED_BYTES = 512


_MOST_BYTES = 64 * 1024**3
"""Most bytes of a decompressed file that are read: a few kilobytes may expand to more."""


class DamagedFileError(OSError):
    """A file cannot be read to its end.

    :param offset: position of the first unreadable byte in the decompressed file.
    """

    def __init__(self, reason: str, offset: int = 0) -> None:
        super().__init__(reason)
        self.errno = errno.EINVAL  # it stays so
        self.offset = offset


def read_lines(
    name: str, stream: IO[bytes], limit: int = MAX_EVENT_BYTES
) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file that are not blank, each with its offset in the decompressed file.

    :param name: name of the file; its suffix decides how the file is decompressed.
    :param stream: the file as it is stored.
    :param limit: bytes of the longest line that is read.
    :raises DamagedFileError: if the rest cannot be read; the lines before it are good.
    """
    opened = _decompressed(name, stream)
    offset = 0
    try:
        while line := opened.readline(limit + 1):
            _check_length(line, limit, offset)
            start, offset = offset, offset + len(line)
            if line.strip():
                yield start, line
    except DamagedFileError as error:
        error.offset = offset
        raise


def _check_length(line: bytes, limit: int, offset: int) -> None:
    if len(line) > limit and not line.endswith(b"\n"):
        raise DamagedFileError(f"a line of more than {limit} bytes", offset)


def _decompressed(name: str, stream: IO[bytes]) -> IO[bytes] | io.BufferedReader:
    if name.endswith(".gz"):
        return _whole(_decompressed_gzip, stream)
    return _whole(decompressed_zstd, stream) if name.endswith((".zst", ".zstd")) else stream


def decompressed(stream: IO[bytes]) -> io.BufferedReader:
    """Return the content of a file, decompressed if its first bytes are those of gzip or zstd, and
    close it at its end.

    Reading raises :class:`DamagedFileError` if the file is damaged or cut off.

    :param stream: the file as it is stored.
    """
    # A stream that stands in for standard input is not always buffered.
    stored = (
        stream
        if isinstance(stream, io.BufferedReader)
        else io.BufferedReader(cast("io.RawIOBase", stream))
    )
    first = stored.peek(len(_ZSTD))
    if first.startswith(_GZIP):
        return _whole(_decompressed_gzip, stored, close=True)
    return _whole(decompressed_zstd, stored, close=True) if first.startswith(_ZSTD) else stored


def _whole(
    decompress: Callable[[IO[bytes]], Iterator[bytes]], stored: IO[bytes], *, close: bool = False
) -> io.BufferedReader:
    """Return the content of a file; reading raises :class:`DamagedFileError` if it is cut off, or
    far too long.

    :param close: close the file after its last chunk.
    """

    def checked() -> Generator[bytes]:
        size = 0
        try:
            for chunk in decompress(stored):
                yield chunk
                size += len(chunk)
                if size > _MOST_BYTES:
                    raise DamagedFileError(
                        f"the compressed file expands to more than {_MOST_BYTES} bytes"
                    )
        except EOFError as error:
            raise DamagedFileError("the compressed file is cut off") from error
        finally:
            if close:
                stored.close()

    return io.BufferedReader(ChunkStream(checked()), _BUFFER_BYTES)


def _decompressed_gzip(stream: IO[bytes]) -> Generator[bytes]:
    file = gzip.GzipFile(fileobj=stream)
    try:
        while chunk := file.read1(_BUFFER_BYTES):
            yield chunk
    except (zlib.error, gzip.BadGzipFile) as error:
        raise DamagedFileError(f"damaged gzip file: {error}") from error


def decompressed_zstd(stream: IO[bytes]) -> Generator[bytes]:
    """Yield the decompressed chunks of a zstd stream of any number of frames.

    :raises DamagedFileError: if it is not valid zstd, or zstandard is not installed.
    :raises EOFError: if it is cut off.
    """
    try:
        import zstandard
    except ImportError as error:
        raise DamagedFileError(
            "zstd files cannot be read without the Python package zstandard: install it"
        ) from error
    frame, in_frame = zstandard.ZstdDecompressor().decompressobj(), False
    while True:
        compressed = b""
        if frame.eof:
            # Bytes read beyond the end of one frame belong to the next.
            compressed = frame.unused_data
            frame, in_frame = zstandard.ZstdDecompressor().decompressobj(), False
        compressed = compressed or stream.read(_COMPRESSED_BYTES)
        if not compressed:
            break
        in_frame = True
        try:
            yield frame.decompress(compressed)
        except zstandard.ZstdError as error:
            raise DamagedFileError(f"damaged zstd file: {error}") from error
    if in_frame:
        raise EOFError
