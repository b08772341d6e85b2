"""Memory: lists out of a stream, by key or of bounded size, and Python's garbage collector, paused while
imports and conversion build objects that stay.

Tests: ``tests/conversion/test_proposals.py`` and ``tests/task/test_garbage_collection.py``.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

K = TypeVar("K")
T = TypeVar("T")


def grouped(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    """Return the values of each key, in their order."""
    groups: dict[K, list[T]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def grouped_by(items: Iterable[T], key_of: Callable[[T], K]) -> dict[K, list[T]]:
    """Return the items of each key, in their order."""
    return grouped((key_of(item), item) for item in items)


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


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the collector; also a decorator.

    What a conversion builds is part of no cycle and stays until it is delivered: collecting it
    takes as long as building it, and frees nothing. Modules stay as well, and importing them may
    start a full collection, which takes 0.3 s of CPU or more for the 900,000 objects of an Airflow
    task.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
