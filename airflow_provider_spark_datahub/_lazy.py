"""Lazy exports of the package's folders: names that are imported when they are first used.

A folder's ``__init__`` offers the names that other folders may use. Importing all of their modules at once would cost
every task time before its job is submitted, so each module is imported with the first of its names (PEP 562).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and ``__dir__`` of a folder's ``__init__``.

    :param package: the ``__name__`` of the folder.
    :param modules: the exported names, separated by blanks, by the module in the folder that defines them.
    """
    module_of = {name: module for module, names in modules.items() for name in names.split()}

    def load(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{module_of[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return load, names
