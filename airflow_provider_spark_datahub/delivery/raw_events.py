"""Raw OpenLineage events as items of the outbox and of a sink, which know proposals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from airflow_provider_spark_datahub.conversion.proposals import Proposal

CONTENT = "events"
"""The content of an outbox's entry that holds events."""
ASPECT = "openLineageEvent"
_ENTITY = "openLineageRun"


def as_items(events: Iterable[bytes]) -> Iterator[Proposal]:
    """Each event in the form of a proposal: the event, as it is, in the place of the aspect.

    It is no proposal to DataHub, and goes only where :func:`event_of` is asked.

    :param events: JSON texts, each of an object.
    """
    for event in events:
        yield Proposal(_ENTITY, "", ASPECT, msgspec.Raw(event))


def event_of(item: Proposal) -> Mapping[str, Any] | None:
    """The event in an item that :func:`as_items` made and the outbox kept; ``None`` where it is a proposal."""
    is_event = item.entity_type == _ENTITY and item.aspect_name == ASPECT and isinstance(item.aspect, dict)
    return item.aspect if is_event else None
