"""Readers of values that people write: the same for options, settings and the extra of connections."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_BOOLEANS = {
    **dict.fromkeys(("true", "t", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "f", "0", "no", "off"), False),
}


def read_boolean(value: object) -> bool | None:
    """Return the truth value that a boolean or a text stands for; ``None`` if it is neither true nor false."""
    if isinstance(value, bool):
        return value
    return _BOOLEANS.get(value.strip().lower()) if isinstance(value, str) else None


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to the given one, or ``None`` if none is similar."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)), None)
