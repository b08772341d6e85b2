"""The lines of one file of an archive of events, with their offsets, decompressed where the file is compressed."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Generator, Iterator
from typing import IO

from airflow_provider_spark_datahub.capture.chunk_stream import ChunkStream
from airflow_provider_spark_datahub.capture.collect import CollectLimits

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
        return io.BufferedReader(ChunkStream(_decompressed_zstd(stream)), _BUFFER_BYTES)
    return stream


class _BrokenZstdError(Exception):
    """The bytes are no zstd."""


def _decompressed_zstd(stream: IO[bytes]) -> Generator[bytes]:
    """A zstd stream of any number of frames; one that is cut off ends with EOFError."""
    try:
        import zstandard
    except ImportError as error:
        raise DamagedFileError("to read zstd files, Python needs the package zstandard") from error
    frame, in_frame = zstandard.ZstdDecompressor().decompressobj(), False
    while True:
        compressed = b""
        if frame.eof:
            # Between two frames, what was read beyond the first one's end belongs to the next.
            compressed = frame.unused_data
            frame, in_frame = zstandard.ZstdDecompressor().decompressobj(), False
        compressed = compressed or stream.read(_COMPRESSED_BYTES)
        if not compressed:
            break
        in_frame = True
        try:
            yield frame.decompress(compressed)
        except zstandard.ZstdError as error:
            raise _BrokenZstdError(f"no intact zstd file: {error}") from error
    if in_frame:
        raise EOFError
