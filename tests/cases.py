"""Tables of cases in ``tests/data/cases``: a row of names, then a row of values for each case."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

FOLDER = Path(__file__).parent / "data" / "cases"

Test = TypeVar("Test", bound=Callable[..., None])


@cache
def tables(section: str) -> dict[str, list[list[Any]]]:
    """Return the tables of a file by the tests that they belong to."""
    found: dict[str, list[list[Any]]] = yaml.load(
        (FOLDER / f"{section}.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader
    )
    return found


def cases(section: str, table: str | None = None) -> Callable[[Test], Test]:
    """Run a test with each row of a table in ``tests/data/cases/<section>.yaml``, by default that
    of its own name.

    A first column ``case`` has the ids of the cases; without it, the values are their ids.
    """

    def with_rows(test: Test) -> Test:
        names, *rows = tables(section)[table or test.__name__]
        named = names[0] == "case"
        values = [pytest.param(*row[1:], id=row[0]) if named else row for row in rows]
        marked: Test = pytest.mark.parametrize(names[named:], values, ids=_shown)(test)
        return marked

    return with_rows


def filled(value: Any, names: Mapping[str, Any]) -> Any:
    """Return a value of a table with what stands for ``<name>`` in its texts."""
    if isinstance(value, dict):
        return {filled(key, names): filled(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, names) for item in value]
    if not isinstance(value, str):
        return value
    if value.startswith("<") and value[1:-1] in names:
        return names[value[1:-1]]
    for name, text in names.items():
        value = value.replace(f"<{name}>", str(text))
    return value


def _shown(value: object) -> str:
    """Return a value as a case's id has it."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:59]}…"
