"""Texts that are kept until the last event has come: long ones compressed, of which a job may have hundreds."""

from __future__ import annotations

import zlib

_LONG_BYTES = 4 * 1024
# JSON never begins with the byte that zlib's format does.
_ZLIB = b"x"


def packed(json_text: bytes) -> bytes:
    """The text, smaller where it is long; equal texts stay equal."""
    return zlib.compress(json_text, level=1) if len(json_text) > _LONG_BYTES else json_text


def unpacked(text: bytes) -> bytes:
    """What was :func:`packed`."""
    return zlib.decompress(text) if text.startswith(_ZLIB) else text
