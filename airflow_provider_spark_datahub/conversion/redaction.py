"""Redaction of secrets in properties, SQL and URLs that everyone can read in DataHub (conversion rules, section 5)."""

from __future__ import annotations

import json
import re
import traceback
from functools import lru_cache
from math import isfinite
from typing import Any

from airflow_provider_spark_datahub.conversion.diagnostics import cut
from airflow_provider_spark_datahub.conversion.events import EventError
from airflow_provider_spark_datahub.conversion.interruption import check_time, in_time
from airflow_provider_spark_datahub.conversion.linear_regexp import LinearPattern, linear_pattern
from airflow_provider_spark_datahub.printable import printable_lines

# Spark's default of spark.redaction.regex, and "credential" (conversion rules, section 5).
_SECRET_WORDS = r"secret|password|token|access[.]?key|credential"
_SECRET_KEY = re.compile(_SECRET_WORDS, re.IGNORECASE)
# All texts that the pattern matches, in lower case; and more words before an assigned secret.
_WORDS_OF_KEYS = ("secret", "password", "token", "accesskey", "access.key", "credential")
_WORDS_OF_ASSIGNMENTS = (*_WORDS_OF_KEYS, "passwd", "pwd")
REDACTED = "*********(redacted)"
"""Spark's own replacement of a secret."""

# Bounds on repetitions keep the search linear.
# An `@` or a `/` may stand in the password; digits and then an end are a port, not a password.
_URL_USERINFO = re.compile(r"""(://)[^/?#\s@:]{0,256}:(?!\d+(?:[;,/?#\s]|$))(?:[^/?#\s]{0,256}|[^\s@"']{0,256})@""")
_ORACLE_LOGIN = re.compile(r"""(jdbc:oracle:\w+:)[^/\s@]{0,128}/(?:"[^"]{0,128}"|[^\s@"]{0,128})(?=@)""", re.IGNORECASE)
# A quoted value may contain quotes, doubled or behind a backslash, and lack its end if the text was cut. The engine
# remembers each turn of a loop that may give back what it took, unless it is possessive.
_ASSIGNMENT = re.compile(
    rf"""(?P<key>(?:{_SECRET_WORDS}|passwd|pwd)[\w.-]{{0,64}})
         (?P<between>\\*["'`]?\s*(?:=>|[=:]+)\s*\\*|\\*["'`]?\s+(?=["']))
         (?:{re.escape(REDACTED)}
           |"(?:[^"\\]++|""|\\.)*+(?:"|\\?$)
           |'(?:[^'\\]++|''|\\.)*+(?:'|\\?$)
           |\{{[^}}]*\}}?
           |[^\s,;&"')}}\]]+)""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)


# What the matches begin with.
_URL = re.compile("://")
_ORACLE = re.compile("jdbc:oracle:", re.IGNORECASE)
_WORD = re.compile(f"{_SECRET_WORDS}|passwd|pwd", re.IGNORECASE)
_LONGEST_BEGIN = 16
_UNCHECKED_CHARACTERS = 64 * 1024

MAX_TEXT = 2_000_000
"""Characters of a text that are searched for secrets, in a few seconds at worst; the rest is cut off."""
LONGEST_LOGIN = 600
"""Characters of ``://user:password@``, as far as it is recognised."""
_TURNS = 3
_REMEMBERED_CHARACTERS = 1_000
_MAX_KEY = 256


def redact(key: str, value: str, pattern: str | None = None) -> str:
    """Return the value without secrets, or :data:`REDACTED` if the key names a secret.

    :param pattern: the job's own ``spark.redaction.regex``, in addition to Spark's default. If it cannot be applied in
        linear time, every value may be a secret.
    """
    if len(key) + len(value) <= _REMEMBERED_CHARACTERS:
        return _redact_again(key, value, pattern)
    return _redact(key, value, pattern)


def _redact(key: str, value: str, pattern: str | None) -> str:
    if _has_any(key, _WORDS_OF_KEYS, _SECRET_KEY) or (pattern and _matches(pattern, key)):
        return REDACTED
    return redact_text(value)


_redact_again = lru_cache(maxsize=4096)(_redact)


def redact_text(text: str, longest: int = MAX_TEXT) -> str:
    """Return a free text (SQL, a description, a URL) without ``user:password@`` and without assigned secrets.

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
    if _has_any(text, _WORDS_OF_ASSIGNMENTS, _WORD):
        # Before the URLs: in a URL, an `@` in an assigned password looks like the end of a login.
        text = _replaced(_ASSIGNMENT, _WORD, rf"\g<key>\g<between>{REDACTED}", text)
    if ":" in text and "jdbc:oracle:" in text.lower():
        text = _replaced(_ORACLE_LOGIN, _ORACLE, r"\1", text)
    return redact_url(text) if "://" in text else text


# The outputs of a query, and the steps of a conversion, share a statement.
_redact_long_again = lru_cache(maxsize=4)(_redacted)


def _replaced(pattern: re.Pattern[str], begin: re.Pattern[str], replacement: str, text: str) -> str:
    """Return the text with all matches replaced, as by ``pattern.sub``; in a long text, check the time on the way.

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


def _has_any(text: str, words: tuple[str, ...], pattern: re.Pattern[str]) -> bool:
    """Return whether a pattern of words is found in a text; ASCII is searched for the words, which is much faster.

    :param words: all ASCII texts that the pattern matches, in lower case.
    """
    if not text.isascii():
        return pattern.search(text) is not None
    lower = text.lower()
    return any(word in lower for word in words)


_MAX_DEPTH = 100
_TOO_DEEP = f"… (nested more than {_MAX_DEPTH} levels deep)"
_MAX_DIGITS = 300


def event_without_secrets(event: bytes) -> bytes:
    """Redact every string in an OpenLineage event, and replace values nested too deeply and numbers out of range.

    :raises EventError: if the event cannot be decoded, or its own pattern of secret keys cannot be applied.
    :raises OutOfTimeError: if the time of the conversion is over.
    """
    try:
        decoded = _decode(event.decode())
        redacted = _without_secrets("", decoded, _own_pattern(decoded))
        return json.dumps(redacted, ensure_ascii=False).encode("utf-8", "replace")
    except RecursionError as error:
        raise EventError("it is nested too deeply") from error
    except EventError:
        raise
    except ValueError as error:
        raise EventError(f"not valid JSON: {error}") from error


def _number(digits: str) -> float | str:
    number = float(digits)
    return number if isfinite(number) else digits


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= _MAX_DIGITS else digits


_decode = json.JSONDecoder(parse_float=_number, parse_int=_integer).decode


def _own_pattern(event: Any) -> str | None:
    for name in ("run", "facets", "spark_properties", "properties", "spark.redaction.regex"):
        event = event.get(name) if isinstance(event, dict) else None
    if not event or not isinstance(event, str):
        return None
    if _compile(event) is None:
        raise EventError(f"its spark.redaction.regex cannot be applied in linear time: {event[:_MAX_KEY]!r}")
    return event


def _without_secrets(key: str, value: Any, pattern: str | None, depth: int = 0) -> Any:
    if isinstance(value, str):
        return redact(key, value, pattern)
    if depth > _MAX_DEPTH and isinstance(value, dict | list):
        return _TOO_DEEP
    if isinstance(value, dict):
        return {name: _without_secrets(name, item, pattern, depth + 1) for name, item in in_time(value.items())}
    if isinstance(value, list):
        return [_without_secrets(key, item, pattern, depth + 1) for item in in_time(value)]
    return value


def redacted_trace(error: BaseException) -> str:
    """Return an exception with its stack trace, for a log: libraries quote URLs and options in their messages."""
    return printable_lines(redact_text("".join(traceback.format_exception(error))))


def redact_url(text: str) -> str:
    """Return the text without the ``user:password@`` in its URLs. A user alone stays: ``abfss://container@account``."""
    text = cut(text, MAX_TEXT)
    # The rest of a broken URL may look like another URL. Only a text that is made to take long needs more turns.
    for _ in range(_TURNS):
        if "@" not in text or (without := _replaced(_URL_USERINFO, _URL, r"\1", text)) == text:
            return text
        text = without
    return REDACTED


def _matches(pattern: str, key: str) -> bool:
    compiled = _compile(pattern)
    return compiled is None or len(key) > _MAX_KEY or bool(compiled.search(key))


@lru_cache(maxsize=32)
def _compile(pattern: str) -> LinearPattern | None:
    try:
        return linear_pattern(pattern)
    except ValueError:
        return None
