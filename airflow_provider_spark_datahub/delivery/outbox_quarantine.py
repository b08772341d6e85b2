"""The quarantine of an outbox: what is in it and why, and the way back."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

from airflow_provider_spark_datahub.conversion.proposals import Proposal
from airflow_provider_spark_datahub.delivery.outbox import Entry, Outbox
from airflow_provider_spark_datahub.delivery.outbox_format import (
    EVENTS_SUFFIX,
    QUARANTINED,
    EntryFormatError,
    Manifest,
    read_quarantined,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Quarantined:
    """What one entry lost to the quarantine at one time.

    :param name: of its object.
    :param held: reasons and proposals.
    """

    name: str
    manifest: Manifest
    held: tuple[tuple[str, Proposal], ...]

    @property
    def reasons(self) -> list[str]:
        """Why, each reason once."""
        return list(dict.fromkeys(reason for reason, _ in self.held))


def quarantined(outbox: Outbox) -> Iterator[Quarantined]:
    """What is in the quarantine. What cannot be read there is left alone, and logged.

    :raises OSError: the outbox cannot be listed.
    """
    for stored in outbox.storage.stored(QUARANTINED):
        if stored.name.endswith(EVENTS_SUFFIX):
            continue
        try:
            manifest, held = read_quarantined(outbox.storage.read(stored.name))
        except (EntryFormatError, OSError) as error:
            log.warning("%s in the quarantine cannot be read: %s", outbox.storage.describe(stored.name), error)
        else:
            yield Quarantined(stored.name, manifest, tuple(held))


def requeue(outbox: Outbox, one: Quarantined) -> Entry:
    """Make pending again what is in the quarantine, as old as it was: it takes its old place in the order, and what
    was delivered since is not overwritten.

    A crash on the way leaves it in both places.

    :raises OSError: the outbox refuses.
    """
    proposals = [proposal for _, proposal in one.held]
    manifest = Manifest(
        one.manifest.key,
        one.manifest.connection_id,
        one.manifest.created_ms,
        spark_succeeded=one.manifest.spark_succeeded,
    ).with_proposals(proposals)
    entry = outbox.restore(replace(manifest, created_by=one.manifest.created_by), proposals)
    outbox.storage.remove(one.name)
    return _with_events(outbox, one, entry)


def _with_events(outbox: Outbox, one: Quarantined, entry: Entry) -> Entry:
    """The raw events come along with the last part of their entry."""
    stem = one.name.rpartition("-")[0]
    left = [stored.name for stored in outbox.storage.stored(QUARANTINED) if stored.name.startswith(stem)]
    if left != [f"{stem}{EVENTS_SUFFIX}"]:
        return entry
    outbox.storage.move(left[0], entry.name.events)
    return entry.told(events=entry.name.events)
