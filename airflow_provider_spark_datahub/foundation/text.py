"""Text: safe to print, counts with their nouns, values of options, names of secrets, and JSON with
broken characters.

Ids, names in events and the words of a server may hold escape sequences that write to the clipboard
(OSC 52) or change the title of the window. Messages and views escape them when they take such words
in, and the command line escapes whatever it prints.
"""

from __future__ import annotations

import difflib
import json
import re
import unicodedata
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec

_STEERING = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_VARIATION_SELECTOR = re.compile("[\ufe00-\ufe0f]")
_BOOLEANS = {
    **dict.fromkeys(("true", "t", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "f", "0", "no", "off"), False),
}

KINDS_OF_KEYS = (
    "access",
    "account",
    "api",
    "azure",
    "encryption",
    "master",
    "private",
    "shared",
    "signing",
    "ssh",
    "storage",
)
"""Words before ``key`` that make it a secret, unlike a primary key."""
SECRET_WORDS = (
    "secret",
    "passw",
    "passphrase",
    "pwd",
    "token",
    "credential",
    "authorization",
    "jaas",
    "signature",
    "azure.sas",
    "azure_sas",
    "user.info",
    "key.pem",
    "oauthbearer.config",
)
"""Other words in names of secrets: those of Spark's default of ``spark.redaction.regex``, and more.
"""
SECRET_NAME = re.compile(
    rf"{'|'.join(map(re.escape, SECRET_WORDS))}|(?:{'|'.join(KINDS_OF_KEYS)})[._-]?key(?![._-]?(?:gen|provider|size))",
    re.IGNORECASE,
)
"""Pattern that is found in the names of secrets."""


def printable(text: str) -> str:
    r"""Return a line in which control, direction and other invisible characters are visible escapes
    (``\x1b``).
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode("ascii")
        if unicodedata.category(character) in _STEERING or _VARIATION_SELECTOR.match(character)
        else character
        for character in text
    )


def printable_lines(text: str) -> str:
    """Return a text of several lines with the same escapes. Line breaks stay, and tabs become
    spaces.
    """
    return "\n".join(printable(line) for line in text.expandtabs(4).splitlines())


def counted(count: int, noun: str, nouns: str = "") -> str:
    """Return a count with its noun: ``1 entry``, ``2 entries``.

    :param noun: in the singular; a verb may follow (``entry is``).
    :param nouns: in the plural, if it is not made by ``s`` or ``ies``.
    """
    if count == 1:
        return f"1 {noun}"
    return f"{count} {nouns or (f'{noun[:-1]}ies' if noun.endswith('y') else f'{noun}s')}"


def read_boolean(value: object) -> bool | None:
    """Return the truth value that a boolean or a text stands for; ``None`` if it is neither true
    nor false.
    """
    if isinstance(value, bool):
        return value
    return _BOOLEANS.get(value.strip().lower()) if isinstance(value, str) else None


def nearest(name: str, known: Iterable[str], cutoff: float = 0.5) -> str | None:
    """Return the known name that is most similar to the given one, or ``None`` if none is similar."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)


def encoded_json(value: Any) -> bytes:
    """Return a value as JSON in UTF-8, without spaces and with as few escapes as possible."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        # JSON can escape half of a surrogate pair, but UTF-8 cannot encode it.
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()


_encode = msgspec.json.Encoder().encode


def decoded_json(text: bytes | bytearray) -> Any:
    """Return the value in a JSON text. :raises ValueError: if it is not JSON, or nested too deeply."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if b"\\u" in text:
            # The text may be cut within a character, and have half of a surrogate pair.
            with suppress(ValueError, RecursionError):
                return json.loads(text, parse_constant=_reject_constant)
        raise ValueError(f"not valid JSON: {error}") from error


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not valid in JSON")
