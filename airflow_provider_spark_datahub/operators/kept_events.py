"""The raw events of a try as the outbox keeps them: compressed, and without the secrets that jobs have in them."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

from airflow_provider_spark_datahub.capture.collect import Outcome, collect_text
from airflow_provider_spark_datahub.conversion.redaction import event_without_secrets

_GZIP = 31
"""zlib's window bits for a gzip header."""


def kept_events(events_file: Path, expired: Callable[[], bool]) -> bytes | None:
    """The events that can be read, one per line, compressed by gzip.

    :param expired: says True when the time is up.
    :returns: ``None`` where there are none, or the time was too short for all of them.
    """
    compressor = zlib.compressobj(1, wbits=_GZIP)
    collection = collect_text(events_file, deadline=expired)
    content = b"".join(compressor.compress(event_without_secrets(event) + b"\n") for event in collection)
    if not collection.report.events or collection.report.outcome is Outcome.TIMED_OUT:
        return None
    return content + compressor.flush()
