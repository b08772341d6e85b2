"""Time limit of a conversion, which the caller sets and long loops check.

The time can be over before a single event is converted, which may name a hundred thousand datasets
or columns.

Tests: ``tests/attacks/test_sizes.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

_T = TypeVar("_T")
_EXPIRED: ContextVar[Callable[[], bool] | None] = ContextVar("expired", default=None)
_ITEMS_BETWEEN_CHECKS = 1000


class OutOfTimeError(Exception):
    """The time of a conversion is over. Its events must be converted again, from the first one."""


@contextmanager
def time_limit(expired: Callable[[], bool]) -> Iterator[None]:
    """Stop the conversion below by :class:`OutOfTimeError` when its time is over.

    :param expired: returns True when the time is over; :func:`check_time` calls it.
    """
    token = _EXPIRED.set(expired)
    try:
        yield
    finally:
        _EXPIRED.reset(token)


def check_time() -> None:
    """Check the limit, if there is one.

    :raises OutOfTimeError: if the time is over.
    """
    expired = _EXPIRED.get()
    if expired is not None and expired():
        raise OutOfTimeError("the time is over before all events are converted")


def in_time(items: Collection[_T]) -> Iterable[_T]:
    """Return the items; if there are many, the time is checked before every thousand of them."""
    return items if len(items) <= _ITEMS_BETWEEN_CHECKS else _checked(items)


def _checked(items: Iterable[_T]) -> Iterator[_T]:
    for index, item in enumerate(items):
        if index % _ITEMS_BETWEEN_CHECKS == 0:
            check_time()
        yield item
