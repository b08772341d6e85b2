"""The raw events of a try as the outbox keeps them: compressed, and without the secrets that jobs have in them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airflow_provider_spark_datahub.capture.collect import Outcome, collect_text
from airflow_provider_spark_datahub.conversion.redaction import redact

_GZIP = 31
"""zlib's window bits for a gzip header."""


def kept_events(events_file: Path, expired: Callable[[], bool]) -> bytes | None:
    """The events that can be read, one per line, compressed by gzip.

    :param expired: says True when the time is up.
    :returns: ``None`` where there are none, or the time was too short for all of them.
    """
    compressor = zlib.compressobj(1, wbits=_GZIP)
    collection = collect_text(events_file, deadline=expired)
    content = b"".join(compressor.compress(_line(event)) for event in collection)
    if not collection.report.events or collection.report.outcome is Outcome.TIMED_OUT:
        return None
    return content + compressor.flush()


def _line(event: bytes) -> bytes:
    return json.dumps(_without_secrets("", json.loads(event)), ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _without_secrets(key: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_secrets(name, one) for name, one in value.items()}
    if isinstance(value, list):
        return [_without_secrets(key, one) for one in value]
    return redact(key, value) if isinstance(value, str) else value
