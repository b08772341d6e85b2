"""What settings are read from: the parts of an Airflow connection.

Reads the extra of an Airflow connection: known keys only, each with its type, and never a value in an error.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_spark_datahub.delivery.sink import SinkSettingsError


@dataclass(frozen=True, slots=True, repr=False)
class ConnectionParts:
    """The parts of a connection, by Airflow's names; what each means is said where settings are read from it.

    :param extra: decoded.
    """

    host: str | None = None
    port: int | None = None
    schema: str | None = None
    login: str | None = None
    password: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


Reader = Callable[[str, object], Any]
"""From a key and its value to the setting.

:raises SinkSettingsError: where the value is of another type.
"""

_SHORTEST_SECRET = 6  # shorter values ("1", "true") are no secrets, and are part of ordinary words


def read_extra(extra: Mapping[str, Any], readers: Mapping[str, Reader], place: str = "extra") -> dict[str, Any]:
    """The settings in ``extra``, by the keys of ``readers``.

    Values from a connection URI are text, so the text of a number or of a truth value will do; empty ones count as
    not given.

    :param place: where in the connection ``extra`` stands, for errors.
    :raises SinkSettingsError: an unknown key, or a value of the wrong type.
    """
    settings: dict[str, Any] = {}
    for key, value in extra.items():
        reader = readers.get(key)
        if reader is None:
            raise SinkSettingsError(f"Unknown key in the connection's {place}: {key!r}.{nearest(key, readers)}")
        if value is not None and value != "":
            settings[key] = reader(key, value)
    return settings


def nearest(key: str, known: Iterable[str]) -> str:
    """A sentence that names the known key that was probably meant, or all of them."""
    names = list(known)
    near = difflib.get_close_matches(key.lower(), names, n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else f" Known keys: {', '.join(names)}."


def ill_typed(key: str, wanted: str, value: object) -> SinkSettingsError:
    """The error for a value of the wrong type; it does not hold the value."""
    return SinkSettingsError(f"{key!r} in the connection's extra must be {wanted}, not {type(value).__name__}.")


def seconds(key: str, value: object) -> float:
    """A number of seconds above 0."""
    wanted = "a number of seconds above 0"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ill_typed(key, wanted, value)
    try:
        number = float(value)
    except ValueError as error:
        raise SinkSettingsError(f"{key!r} in the connection's extra must be {wanted}, not {value!r}.") from error
    if not (number > 0 and math.isfinite(number)):
        raise SinkSettingsError(f"{key!r} in the connection's extra must be {wanted}, not {value!r}.")
    return number


def count(key: str, value: object) -> int:
    """A whole number from 0."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    raise ill_typed(key, "a whole number from 0", value)


def truth(key: str, value: object) -> bool:
    """True or false."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise ill_typed(key, "true or false", value)


def text(key: str, value: object) -> str:
    """A text."""
    if isinstance(value, str):
        return value
    raise ill_typed(key, "text", value)


def mapping(key: str, value: object) -> dict[str, Any]:
    """An object, i.e. a mapping of texts to anything."""
    if isinstance(value, Mapping):
        return {str(name): content for name, content in value.items()}
    raise ill_typed(key, "an object", value)


def masked(text: str, secrets: Iterable[str]) -> str:
    """``text`` with ``***`` in the place of each secret."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "***")
    return text
