"""Chunks of bytes that come one by one, as a file."""

from __future__ import annotations

import io
from collections.abc import Generator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class ChunkStream(io.RawIOBase):
    """Reads what a generator yields; what that raises, reading raises. To close it closes the generator."""

    def __init__(self, chunks: Generator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill the buffer, from one chunk at most; 0 at the end."""
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
        """Nothing more is read."""
        self._chunks.close()
        super().close()
