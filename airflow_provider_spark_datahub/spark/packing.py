"""Many small rows as few large ones, so that Spark moves, sorts and stores little; and their order again afterwards.

OpenLineage repeats most of an event in the next one, and aspects repeat each other's names: fifty of them, compressed
together, are a fiftieth or a tenth of their size.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from types import GenericAlias
from typing import Any, Generic, TypeVar

import msgspec
import pyarrow as pa

T = TypeVar("T", bound=tuple[Any, ...])
Key = tuple[Any, ...]

# A higher level takes longer than what it saves takes to move.
_codec = pa.Codec("zstd", compression_level=-1)
_encode = msgspec.msgpack.Encoder().encode


class Packing(Generic[T]):
    """Packs lists of tuples of one type.

    :param kind: the type: a ``NamedTuple``.
    """

    def __init__(self, kind: type[T]) -> None:
        self._decode: Callable[[bytes], list[T]] = msgspec.msgpack.Decoder(GenericAlias(list, (kind,))).decode

    def pack(self, values: list[T]) -> tuple[int, bytes]:
        """The values compressed, and their size before, in bytes."""
        packed = _encode(values)
        return len(packed), _codec.compress(packed, asbytes=True)

    def unpack(self, size: int, payload: bytes) -> list[T]:
        """What :meth:`pack` was given.

        :param size: what it told, likewise :attr:`payload`.
        """
        return self._decode(_codec.decompress(payload, size))


def merged(lists: Iterable[tuple[Key, Callable[[], list[T]]]]) -> Iterator[T]:
    """The values of sorted lists in their order, of which only those that overlap are held in memory.

    :param lists: of each how its first value begins, by which they are sorted, and what gives it.
    """
    heap: list[tuple[T, int, Iterator[T]]] = []
    for number, (key, unpacked) in enumerate(lists):
        yield from _before(key, heap)
        rest = iter(unpacked())
        heapq.heappush(heap, (next(rest), number, rest))
    yield from _before(None, heap)


def _before(limit: Key | None, heap: list[tuple[T, int, Iterator[T]]]) -> Iterator[T]:
    length = len(limit) if limit is not None else 0
    while heap and (limit is None or heap[0][0][:length] < limit):
        value, number, rest = heap[0]
        yield value
        if len(heap) == 1 and limit is None:
            heap.clear()
            yield from rest
            return
        following = next(rest, None)
        if following is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (following, number, rest))
