"""Parts of an Airflow connection, and a strict reader of its extra: known keys, typed values, no value in an error.

Tests: ``tests/delivery/test_connections.py``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_spark_datahub.delivery.sink import SinkSettingsError
from airflow_provider_spark_datahub.foundation.text import nearest, read_boolean


@dataclass(frozen=True, slots=True, repr=False)
class ConnectionParts:
    """Parts of a connection, by Airflow's names. Each sink's settings document what they mean.

    :param extra: decoded.
    """

    host: str | None = None
    port: int | None = None
    schema: str | None = None
    login: str | None = None
    password: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


Reader = Callable[[str, object], Any]
"""Returns the setting of a key and its value.

:raises SinkSettingsError: if the value is of another type.
"""


def _reader(wanted: str, read: Callable[[object], Any]) -> Reader:
    """Return the reader of values for which ``read`` does not return ``None``."""

    def reader(key: str, value: object) -> Any:
        setting = read(value)
        if setting is None:
            raise SinkSettingsError.wrong_type(key, wanted, value)
        return setting

    return reader


def _whole(value: object) -> int | None:
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


class Read:
    """Readers of a connection's extra, and of the usual types in it."""

    @classmethod
    def extra(cls, extra: Mapping[str, Any], readers: Mapping[str, Reader], place: str = "extra") -> dict[str, Any]:
        """Return the settings in ``extra``, by the keys of ``readers``.

        Values from a connection URI are text, so the text of a number or of a truth value will do. Empty values count
        as not given.

        :param place: name of this part of the connection, for errors.
        :raises SinkSettingsError: if a key is unknown, or a value is of the wrong type.
        """
        for key in extra:
            if key not in readers:
                hint = cls.suggestion(key, readers)
                raise SinkSettingsError(f"Unknown key in the connection's {place}: {key!r}.{hint}")
        return {key: readers[key](key, value) for key, value in extra.items() if value is not None and value != ""}

    @staticmethod
    def suggestion(key: str, keys: Iterable[str]) -> str:
        """Return a sentence that names the known key that was probably meant, or all of them."""
        names = list(keys)
        near = nearest(key.lower(), names)
        return f" Did you mean {near!r}?" if near else f" Known keys: {', '.join(names)}."

    @staticmethod
    def seconds(key: str, value: object) -> float:
        """Return a number of seconds above 0."""
        wanted = "a number of seconds above 0"
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise SinkSettingsError.wrong_type(key, wanted, value)
        number = math.nan
        with suppress(ValueError):
            number = float(value)
        if not (number > 0 and math.isfinite(number)):
            raise SinkSettingsError(f"{key!r} in the connection's extra must be {wanted}, not {value!r}.")
        return number

    count = staticmethod(_reader("a whole number from 0", _whole))
    boolean = staticmethod(_reader("true or false", read_boolean))
    text = staticmethod(_reader("text", lambda value: value if isinstance(value, str) else None))
    mapping = staticmethod(_reader("an object", lambda value: dict(value) if isinstance(value, Mapping) else None))


def give(settings: dict[str, Any], name: str, value: object, place: str) -> None:
    """Add a setting that is given beside the object of settings, unless the value is empty.

    :param place: where it is given, for the error.
    :raises SinkSettingsError: if it is in both places.
    """
    if value:
        if settings.get(name):
            raise SinkSettingsError(f"{name!r} is given twice: in the extra, and as {place}. Leave one out.")
        settings[name] = value


_SECRET = re.compile(
    r"password|secret|token|api_?key|credential|authorization|user\.info|jaas|\.pem$|oauthbearer\.config", re.IGNORECASE
)
_HEADERS = "extra_headers"
"""Their names are the user's own."""
_CREDENTIALS = re.compile(r"[\s:]+")
_SHORTEST_SECRET = 6  # shorter values ("1", "true") are parts of ordinary words


_USER_OF_URL = re.compile(r"://([^/?#@,]*)@")


def mask_secrets(text: str, settings: object) -> str:
    """Return ``text`` with ``***`` in the place of each secret in some settings, in case a server repeats them.

    Of ``Bearer TOKEN`` and ``USER:PASSWORD``, the second part is a secret as well.
    """
    secrets = {part for secret in _secrets(settings) for part in (secret, *_CREDENTIALS.split(secret, maxsplit=1)[1:])}
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "***")
    return text


def _secrets(value: object, *, is_secret: bool = False) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _secrets(inner, is_secret=is_secret or name == _HEADERS or bool(_SECRET.search(str(name))))
    elif isinstance(value, list):
        for inner in value:
            yield from _secrets(inner, is_secret=is_secret)
    elif isinstance(value, str) and is_secret:
        yield value
    elif isinstance(value, str) and "@" in value and "://" in value:
        yield value.partition("://")[2].rpartition("@")[0]
        # An address may have another "@" in its path, and there may be several with commas between them.
        yield from _USER_OF_URL.findall(value)
