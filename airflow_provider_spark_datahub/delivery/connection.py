"""What settings are read from: the parts of an Airflow connection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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
