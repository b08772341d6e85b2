"""Lazy exports of the package's folders: names that are imported when they are first used.

A folder's ``__init__`` offers the names that other folders may use. Importing all of their modules
at once would cost every task time before its job is submitted, so each module is imported with the
first of its names (PEP 562).

Tests: ``tests/conversion/test_convert.py``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.abc import InspectLoader
from typing import Any, cast

_IMPORT = re.compile(r"^    from \.([\w.]+) import (?:\(([^)]*)\)|(.+))$", re.MULTILINE)


def lazy_exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and ``__dir__`` of a folder's ``__init__``.

    The exported names are those that the ``__init__`` imports for type checkers, relatively and
    indented: they are read from its source.

    :param package: the ``__name__`` of the folder.
    """
    spec = sys.modules[package].__spec__
    source = cast("InspectLoader", spec and spec.loader).get_source(package) or ""
    module_of = {
        name: module
        for module, *lists in _IMPORT.findall(source)
        for name in re.findall(r"\w+", "".join(lists))
    }

    def load(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{module_of[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return load, names
