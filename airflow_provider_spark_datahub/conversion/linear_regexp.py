"""Regular expressions of users and jobs, matched in a bounded number of steps.

Python's engine tries every way to match, and some patterns have exponentially many ways: ``(a+)+$`` takes years on
forty letters. Python matches simple patterns, which have few ways. All others need RE2, an engine whose time is linear
in the length of the text (the extra ``re2``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol

import msgspec

_MAX_PATTERN = 1_000
_MAX_REPEATS = 8
_MAX_WAYS = 64
_RE2_BYTES = 8 * 1024 * 1024

# Pattern of one character: the character itself, an escape (no reference, assertion or code point), or a plain class.
_ONE = r"\\[^0-9ABEGNPQUZbgkopux]|\[\^?\]?(?:\\.|[^\]\\\[&|~])*\]|[^\\()|?*+{}\[\]^$]"
_TOKEN = re.compile(
    rf"(?P<one>{_ONE})(?:(?P<repeat>[*+]|\{{\d*,\d*\}})|(?P<maybe>\?)|\{{\d+\}}|)\??"
    r"|(?P<open>\((?:\?:)?)(?!\?)|\(\?i\)|(?P<branch>\|)|\)(?P<maybe_group>\??)|[\^$]",
    re.DOTALL,
)


class LinearPattern(Protocol):
    """Compiled pattern, of Python or of RE2."""

    def search(self, text: str, /) -> object:
        """Return a match, or ``None``."""

    def sub(self, repl: str, text: str, /) -> str:
        """Return the text with all matches replaced."""


@lru_cache(maxsize=64)
def linear_pattern(pattern: str) -> LinearPattern:
    """Compile a regular expression that never takes long, however it and the text were chosen.

    :raises ValueError: if the pattern is not valid, or needs RE2 and that is not installed or does not know its syntax.
    """
    if len(pattern) > _MAX_PATTERN:
        raise ValueError(f"it is longer than {_MAX_PATTERN} characters")
    with suppress(re.error, OverflowError, RecursionError):
        compiled = re.compile(pattern)
        if _is_simple(list(_tokens(pattern))):
            return compiled
    try:
        re2: Any = import_module("re2")
    except ImportError as error:
        raise ValueError(
            "it is not valid, or a match may take exponential time: repeat only single characters and classes, or "
            "pip install 'airflow-provider-spark-datahub[re2]'"
        ) from error
    options = re2.Options()
    options.max_mem, options.log_errors = _RE2_BYTES, False
    try:
        return _Re2Pattern(re2.compile(_in_utf8(pattern), options))
    except re2.error as error:
        raise ValueError(str(error)) from error


class _Re2Pattern(msgspec.Struct, frozen=True):
    compiled: Any

    def search(self, text: str, /) -> object:
        return self.compiled.search(_in_utf8(text))

    def sub(self, repl: str, text: str, /) -> str:
        return str(self.compiled.sub(repl, _in_utf8(text)))


def _in_utf8(text: str) -> str:
    # JSON can carry half of a surrogate pair, which RE2 cannot read.
    return text.encode("utf-8", "replace").decode()


def _tokens(pattern: str) -> Iterator[re.Match[str]]:
    """Yield the parts of a pattern.

    :raises re.error: if a part is not simple.
    """
    at = 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None or pattern[token.end() :].startswith(("*", "+", "?", "{")):
            raise re.error("not simple", pattern, at)
        yield token
        at = token.end()


def _is_simple(tokens: list[re.Match[str]]) -> bool:
    """Return whether Python's engine needs few steps: a small multiple of the square of the text's length at most.

    At most one repetition may end in several places, and branches and optional parts have few combinations.
    """
    repeats, open_ended, ways = 0, 0, 1
    branches = [1]  # of the groups that are open
    for number, token in enumerate(tokens):
        if token["repeat"]:
            repeats += 1
            open_ended += _may_go_on(token["one"], tokens[number + 1 : number + 2])
        if token["open"]:
            branches.append(1)
        elif token["branch"] and len(branches) > 1:
            branches[-1] += 1
        elif token[0].startswith(")"):
            ways *= branches.pop()
        ways *= 2 if token["maybe"] or token["maybe_group"] else 1
    return repeats <= _MAX_REPEATS and open_ended <= 1 and ways <= _MAX_WAYS


def _may_go_on(repeated: str, behind: list[re.Match[str]]) -> bool:
    """Return whether the next part of the pattern may match a repeated character, and then fail."""
    if not behind:
        return False
    one = behind[0]["one"]
    if one is None or behind[0]["maybe"] or behind[0]["repeat"]:
        return True
    escaped = len(one) == 2 and not one[1].isalnum()
    if one == "." or not (escaped or len(one) == 1):
        return True
    return bool(re.fullmatch(repeated, one[-1], re.IGNORECASE | re.DOTALL))
