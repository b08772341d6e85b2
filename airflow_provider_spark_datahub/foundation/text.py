"""Text that people read and write: safe to print, counts with their nouns, values of options, and names of secrets.

Ids, names in events and the words of a server may hold escape sequences that write to the clipboard (OSC 52) or change
the title of the window. Messages and views escape them when they take such words in, and the command line escapes
whatever it prints.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable

_STEERING = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_VARIATION_SELECTOR = re.compile("[\ufe00-\ufe0f]")
_BOOLEANS = {
    **dict.fromkeys(("true", "t", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "f", "0", "no", "off"), False),
}

KINDS_OF_KEYS = (
    *("access", "account", "api", "azure", "encryption", "master", "private", "shared", "signing"),
    *("ssh", "storage"),
)
"""Words before ``key`` that make it a secret, unlike a primary key."""
SECRET_WORDS = (
    *("secret", "passw", "passphrase", "pwd", "token", "credential", "authorization", "jaas", "signature"),
    *("azure.sas", "azure_sas", "user.info", "key.pem", "oauthbearer.config"),
)
"""Other words in names of secrets: those of Spark's default of ``spark.redaction.regex``, and more."""
SECRET_NAME = re.compile(
    rf"{'|'.join(map(re.escape, SECRET_WORDS))}|(?:{'|'.join(KINDS_OF_KEYS)})[._-]?key(?![._-]?(?:gen|provider|size))",
    re.IGNORECASE,
)
"""Pattern that is found in the names of secrets."""


def printable(text: str) -> str:
    r"""Return a line in which control, direction and other invisible characters are visible escapes (``\x1b``)."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode("ascii")
        if unicodedata.category(character) in _STEERING or _VARIATION_SELECTOR.match(character)
        else character
        for character in text
    )


def printable_lines(text: str) -> str:
    """Return a text of several lines with the same escapes. Line breaks stay, and tabs become spaces."""
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
    """Return the truth value that a boolean or a text stands for; ``None`` if it is neither true nor false."""
    if isinstance(value, bool):
        return value
    return _BOOLEANS.get(value.strip().lower()) if isinstance(value, str) else None


def nearest(name: str, known: Iterable[str], cutoff: float = 0.5) -> str | None:
    """Return the known name that is most similar to the given one, or ``None`` if none is similar."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)
