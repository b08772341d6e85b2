"""Every regular expression of the package takes linear time on hostile text made of its own pieces."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import time
from collections.abc import Iterable, Iterator
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

import pytest

import airflow_provider_spark_datahub as package

FILLINGS = (
    "a",
    "1",
    " ",
    ".",
    "/",
    "(",
    "[",
    "{",
    ",",
    '"',
    "'",
    "`",
    ":",
    "-",
    "\\",
    "\n",
    ", ",
    "(1) ",
    "a#1, ",
)
SMALL, SLOW_SECONDS, MOST_GROWTH = 4_000, 0.02, 3
REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT)


def patterns_in(value: object) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict | tuple | list | frozenset):
        for item in value.values() if isinstance(value, dict) else value:
            yield from patterns_in(item)


def patterns() -> dict[str, tuple[re.Pattern[Any], set[str]]]:
    """Return the patterns of all modules by their names, each with the methods by which it is used."""
    found: dict[str, tuple[re.Pattern[Any], set[str]]] = {}
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            for pattern in patterns_in(value):
                if str(pattern.pattern) not in found:
                    uses = rf"\b{name}\.(search|match|fullmatch|finditer|sub|split)\b"
                    used = re.findall(uses, inspect.getsource(module))
                    found[str(pattern.pattern)] = pattern, {*used} or {"fullmatch"}
    return {f"{text[:60]} {number}": each for number, (text, each) in enumerate(found.items())}


def example(parts: Iterable[tuple[Any, Any]]) -> Iterator[str]:
    """Yield the pieces of a text that the parts of a pattern match, mostly."""
    for kind, value in parts:
        if kind is _constants.LITERAL:
            yield chr(value)
        elif kind in REPEATS:
            yield from [*example(value[2])] * max(1, min(value[0], 40))
        elif kind is _constants.SUBPATTERN:
            yield from example(value[3])
        elif kind is _constants.BRANCH:
            yield from example(value[1][0])
        elif kind is _constants.IN and value[0][0] in (_constants.LITERAL, _constants.RANGE):
            yield chr(value[0][1] if value[0][0] is _constants.LITERAL else value[0][1][0])
        elif kind is _constants.IN and (_constants.CATEGORY, _constants.CATEGORY_DIGIT) in value:
            yield "1"
        elif kind in (_constants.ANY, _constants.IN, _constants.NOT_LITERAL):
            yield "a"


def hostile(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str]]:
    """Yield beginnings of a text, and what follows them again and again."""
    text = "".join(example(_parser.parse(pattern.pattern, pattern.flags)))
    beginnings = [
        "",
        *(text[:end] for end in range(1, len(text) + 1, max(1, len(text) // 20))),
        text,
    ]
    for beginning in dict.fromkeys(beginnings):
        yield from ((beginning, filling) for filling in FILLINGS)
        yield from (("", beginning + rest) for rest in ("", "a", " ", "\n") if beginning + rest)


def seconds(pattern: re.Pattern[Any], method: str, beginning: str, unit: str, size: int) -> float:
    """Return the time of a use, the shortest of several if it is slow: the machine may be busy."""
    text: Any = f"{beginning}{unit * (size // len(unit))}\x00!"
    text = text.encode() if isinstance(pattern.pattern, bytes) else text
    arguments = (text[:0], text) if method == "sub" else (text,)
    times = []
    for _ in range(3):
        begun = time.process_time()
        result = getattr(pattern, method)(*arguments)
        if method == "finditer":
            assert all(result)
        times.append(time.process_time() - begun)
        if times[-1] < SLOW_SECONDS:
            break
    return min(times)


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.timeout(600)
def test_patterns_take_linear_time() -> None:
    slow = {}
    for name, (pattern, methods) in patterns().items():
        for method, (beginning, unit) in (
            (one, text) for one in sorted(methods) for text in hostile(pattern)
        ):
            size, before = SMALL, seconds(pattern, method, beginning, unit, SMALL)
            while before > SLOW_SECONDS / 8 and size < 16 * SMALL and name not in slow:
                size *= 2
                after = seconds(pattern, method, beginning, unit, size)
                if after > SLOW_SECONDS and after > MOST_GROWTH * before:
                    slow[name] = (method, beginning[-40:], unit[:40], size, after)
                before = after
    assert slow == {}
