"""Lists of bounded size, out of a stream.

Tests: ``tests/conversion/test_proposals.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def batches_of(
    items: Iterable[T], size_of: Callable[[T], int], largest: int, most: int | None = None
) -> Iterator[list[T]]:
    """Yield the items in their order, in lists whose sizes add up to ``largest`` at most, or of a
    single larger item.

    A list that is full is yielded before the next item is asked for.

    :param most: number of items of a list.
    """
    batch: list[T] = []
    left = largest
    for item in items:
        size = size_of(item)
        if batch and size > left:
            yield batch
            batch, left = [], largest
        batch.append(item)
        left -= size
        if left <= 0 or len(batch) == most:
            yield batch
            batch, left = [], largest
    if batch:
        yield batch
