"""Python's garbage collector in the workers of Spark."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (100_000, 20, 100)
"""Of new objects, and of collections of the generation below."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Let the collector look seldom.

    What the converter holds is part of no cycle, and is gone when its group is: a tenth of the time went to going
    through it. Spark's own objects are left alone for good.
    """
    before = gc.get_threshold()
    if not gc.get_freeze_count():
        gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
