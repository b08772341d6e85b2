"""Redaction of secrets in texts and names that everyone can read in DataHub (conversion rules,
section 5).
"""

from __future__ import annotations

import re
import traceback
from functools import lru_cache
from typing import Any

from airflow_provider_spark_datahub.conversion.interruption import check_time, in_time
from airflow_provider_spark_datahub.foundation.text import (
    KINDS_OF_KEYS,
    SECRET_NAME,
    SECRET_WORDS,
    decoded_json,
    encoded_json,
    printable_lines,
)

REDACTED = "*********(redacted)"
"""Spark's own replacement of a secret."""

# Bounds on repetitions keep the search linear.
# An `@` or a `/` may stand in the password; digits and then an end are a port, not a password.
_URL_USERINFO = re.compile(
    r"""(://)[^/?#\s@:]{0,256}:(?!\d+(?:[;,/?#\s]|$))(?:[^/?#\s]{0,256}|[^\s@"']{0,256})@"""
)
_ORACLE_LOGIN = re.compile(
    r"""(jdbc:oracle:\w+:)[^/\s@]{0,128}/(?:"[^"]{0,128}"|[^\s@"]{0,128})(?=@)""", re.IGNORECASE
)
# Other words than names of secrets before a secret: a signature in a URL, SQL's own clause, and
# HTTP's.
_OTHER_WORDS = ("sig=", "identified", "bearer", "private key")
_BEGIN = (
    rf"{SECRET_NAME.pattern}|(?<![a-z])sig(?==)|identified(?=\s)|bearer(?=\s)"
    r"|-----BEGIN\ [A-Z\ ]{0,30}PRIVATE\ KEY"
)
# A quoted value may contain quotes, doubled or behind a backslash, and lack its end if the text was
# cut. The engine remembers each turn of a loop that may give back what it took, unless it is
# possessive.
_QUOTED = r"""(?:"(?:[^"\\]++|""|\\.)*+(?:"|\\?$)|'(?:[^'\\]++|''|\\.)*+(?:'|\\?$))"""
_ASSIGNMENT = re.compile(
    rf"""(?P<key>(?:{_BEGIN})[\w.-]{{0,64}})
         (?P<between>\\*+["'`]?(?:\#\d{{1,9}}L?)?\)*+
             (?:\s*+(?:[-=]>|<=>|<>|!=|[=:~]+|[<>]=?(?=\s*+["']))\s*+\\*+
               |\s++(?:(?:by|i?like|is|not|rlike|to|values?|with)\s++){{0,3}}(?=["'])
               |\s++for\s++[^\s=]{{1,128}}\s*+=\s*+
               |\s++(?:not\s++)?in\s*+\((?!\s*+(?:select|with)\b))
           |(?<=identified)\s++(?:with\s++[\w"'`]{{1,64}}\s++)?by\s++(?:password\s++|values?\s++)?
           |(?<=bearer)\s++(?=[^\s"',;]{{0,256}}\d|[^\s"',;]{{20}})
           |(?<=PRIVATE\ KEY)-----)
         (?:{re.escape(REDACTED)}
           |(?<=KEY-----).*?(?=-----END|\Z)
           |(?<=\()(?:{_QUOTED}|[^()"'])*+
           |(?:basic|bearer|digest|negotiate)\s++[^\s"',;)}}\]]+
           |{_QUOTED}
           |\{{[^}}]*\}}?
           |[^\s,;&"')}}\]]+)""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)


# What the matches begin with.
_URL = re.compile("://")
_ORACLE = re.compile("jdbc:oracle:", re.IGNORECASE)
_WORD = re.compile(_BEGIN, re.IGNORECASE | re.VERBOSE)
_LONGEST_BEGIN = 64
_UNCHECKED_CHARACTERS = 64 * 1024

MAX_TEXT = 2_000_000
"""Characters of a text that are searched for secrets, in a few seconds at worst; the rest is cut
off.
"""
LONGEST_LOGIN = 600
"""Characters of ``://user:password@``, as far as it is recognised."""
_TURNS = 3
_REMEMBERED_CHARACTERS = 1_000
_MAX_KEY = 256


def redact(key: str, value: str, pattern: str | None = None) -> str:
    """Return the value without secrets, or :data:`REDACTED` if the key names a secret.

    :param pattern: the job's own ``spark.redaction.regex``, in addition to Spark's default. If
        :func:`_secret_keys` cannot apply it, every value may be a secret.
    """
    if SECRET_NAME.search(key) or (pattern and _matches(pattern, key)):
        return REDACTED
    return redact_name(value) if key in ("name", "namespace") else redact_text(value)


def redact_text(text: str, longest: int = MAX_TEXT) -> str:
    """Return a free text (SQL, a description, a URL) without ``user:password@`` and without
    assigned secrets.

    :param longest: a longer text is cut before it is searched, and ends with its original length.
    """
    if len(text) > longest:
        note = f"… (cut: {len(text)} characters)"
        return redacted_beginning(text, longest - len(note)) + note
    return _redacted(text) if len(text) <= _REMEMBERED_CHARACTERS else _redact_long_again(text)


def redacted_beginning(text: str, length: int) -> str:
    """Return the beginning of :func:`redact_text`, and search no more of the text than that needs."""
    if len(text) <= length + LONGEST_LOGIN:
        return _redacted(text)[:length]
    # A login without its end is not recognised, unlike a value that is assigned.
    return _redacted(text[: length + LONGEST_LOGIN])[:-LONGEST_LOGIN][:length]


def _redacted(text: str) -> str:
    if _has_secret_word(text):
        # Before the URLs: in a URL, an `@` in an assigned password looks like the end of a login.
        text = _replaced(_ASSIGNMENT, _WORD, rf"\g<key>\g<between>{REDACTED}", text)
    if ":" in text and "jdbc:oracle:" in text.lower():
        text = _replaced(_ORACLE_LOGIN, _ORACLE, r"\1", text)
    return _without_logins(text) if "://" in text else text


# The outputs of a query, and the steps of a conversion, share a statement.
_redact_long_again = lru_cache(maxsize=4)(_redacted)


def _replaced(pattern: re.Pattern[str], begin: re.Pattern[str], replacement: str, text: str) -> str:
    """Return the text with all matches replaced, as by ``pattern.sub``; in a long text, check the
    time on the way.

    :param begin: matches at most :data:`_LONGEST_BEGIN` characters at the beginning of each match.
    """
    if len(text) <= _UNCHECKED_CHARACTERS:
        return pattern.sub(replacement, text)
    parts: list[str] = []
    done = at = checked = 0
    while at < len(text):
        if at - checked >= _UNCHECKED_CHARACTERS:
            check_time()
            checked = at
        end = at + _UNCHECKED_CHARACTERS
        found = begin.search(text, at, end + _LONGEST_BEGIN)
        matched = found and pattern.match(text, found.start())
        if matched:
            parts += (text[done : matched.start()], matched.expand(replacement))
            done = at = matched.end()
        else:
            at = found.start() + 1 if found else end
    return "".join((*parts, text[done:]))


_WORDS = (*SECRET_WORDS, *_OTHER_WORDS)


def _has_secret_word(text: str) -> bool:
    """Return whether a text has a word that a secret follows. Searching for one after another is
    fastest.
    """
    lower = text.lower()
    if any(word in lower for word in _WORDS):
        return True
    before_keys = lower.split("key")[:-1]
    return any(before.rstrip("._-").endswith(KINDS_OF_KEYS) for before in before_keys)


# A folder of a partition, whose value belongs to the name.
_PARTITION = re.compile(r"(?<=/)([\w.-]+=[^/;&?=@]*(?=/|$))")


def redact_name(name: str) -> str:
    """Return a dataset's name or namespace without secrets; of a signed URL, without its query."""
    if "@" not in name and not _has_secret_word(name):
        return name
    path, mark, query = name.partition("?")
    rest = "" if redact_text(query) != query else mark + query
    return (
        "".join(
            part if index % 2 else redact_text(part)
            for index, part in enumerate(_PARTITION.split(path))
        )
        + rest
    )


_MAX_DEPTH = 100
_TOO_DEEP = f"… (nested more than {_MAX_DEPTH} levels deep)"


def json_without_secrets(text: bytes) -> bytes:
    """Redact every string of a JSON text, which is decoded only if it may hold a secret; ``null``
    if it cannot be.
    """
    if b"@" not in text and not _has_secret_word(text.decode("latin-1")):
        return text
    try:
        value = decoded_json(text)
        clean = _without_secrets(value)
    except (ValueError, RecursionError):
        return b"null"
    return text if clean == value else encoded_json(clean)


def _without_secrets(value: Any, key: str = "", depth: int = 0) -> Any:
    """Return a decoded value with every string redacted, and without values that are nested too
    deeply.

    :param key: the name of the value.
    """
    if isinstance(value, str):
        return redact(key, value)
    if depth > _MAX_DEPTH and isinstance(value, dict | list):
        return _TOO_DEEP
    if isinstance(value, dict):
        named = next(
            (value[kind] for kind in ("key", "name") if isinstance(value.get(kind), str)), ""
        )
        return {
            redact("", name): _without_secrets(
                item, named if name == "value" and named else name, depth + 1
            )
            for name, item in in_time(value.items())
        }
    if isinstance(value, list):
        return [_without_secrets(item, key, depth + 1) for item in in_time(value)]
    return value


def redacted_trace(error: BaseException) -> str:
    """Return an exception with its stack trace, for a log: libraries quote URLs and options in
    their messages.
    """
    return printable_lines(redact_text("".join(traceback.format_exception(error))))


def _without_logins(text: str) -> str:
    """Return the text without the ``user:password@`` in its URLs. A user alone stays:
    ``abfss://container@account``.
    """
    # The rest of a broken URL may look like another URL. Only a text that is made to take long
    # needs more turns.
    for _ in range(_TURNS):
        if "@" not in text or (without := _replaced(_URL_USERINFO, _URL, r"\1", text)) == text:
            return text
        text = without
    return REDACTED


def _matches(pattern: str, key: str) -> bool:
    compiled = _secret_keys(pattern)
    return compiled is None or len(key) > _MAX_KEY or bool(compiled.search(key))


# Parts that can match in several places or ways: repetitions, options, and a second group with
# branches.
_MANY_WAYS = re.compile(r"[*+?{]|\(.*\(", re.DOTALL)
_MAX_PATTERN = 1_000


@lru_cache(maxsize=32)
def _secret_keys(pattern: str) -> re.Pattern[str] | None:
    """Compile a job's own pattern of secret keys; ``None`` if a match may take long, or if it is
    not valid.

    Python's engine tries every way to match, and ``(a+)+$`` has exponentially many.
    """
    if len(pattern) > _MAX_PATTERN or _MANY_WAYS.search(pattern.removeprefix("(?i)")):
        return None
    try:
        return re.compile(pattern)
    except re.error:
        return None
