"""The boundary to code of others that does not say which errors it raises.

A file system of fsspec or a transport of openlineage-python may be anybody's class; the client of schema registries
raises what the HTTP client of its choice does. A bug in them must not cost more than what it was asked for, and one of
ours must not pass as theirs: only their code is called within this boundary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class ThirdPartyError(Exception):
    """What code of others raised, in its words and with the name of its class."""


def third_party(call: Callable[[], T], *known: type[Exception]) -> T:
    """Call code of others.

    :param known: errors that mean something to the caller, and are raised as they are.
    :raises ThirdPartyError: any other error.
    """
    try:
        return call()
    except known:
        raise
    except Exception as error:
        name, words = type(error).__name__, str(error)
        raise ThirdPartyError(f"{name}: {words}" if words else name) from error
