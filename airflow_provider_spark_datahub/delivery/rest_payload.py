"""Bodies of GMS's Rest.li endpoint ``/aspects?action=ingestProposalBatch``, each written once.

acryl-datahub's emitter validates every proposal against an Avro schema and writes it twice, to learn its size: most of
what a delivery cost. The bodies are the same, which the tests compare.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from airflow_provider_spark_datahub.conversion.proposals import Proposal

LARGEST_BODY = 15 * 1024 * 1024
"""Bytes of one request: acryl-datahub's own limit, below GMS's of 16 MiB."""
_SEPARATOR = b","


def batch_bodies(
    proposals: Sequence[Proposal], *, is_async: bool, system_metadata: dict[str, Any], largest: int = LARGEST_BODY
) -> Iterator[bytes]:
    """The bodies in which the proposals go, in their order; one, unless they are too large.

    :param system_metadata: of each proposal, as JSON.
    :param largest: bytes of a body that none exceeds, but for one of a single larger proposal.
    """
    opening = b'{"async":"true","proposals":[' if is_async else b'{"async":"false","proposals":['
    batch: list[bytes] = []
    size = len(opening)
    for proposal in proposals:
        text = _encoded(_wire_form(proposal, system_metadata))
        if batch and size + len(text) > largest:
            yield opening + _SEPARATOR.join(batch) + b"]}"
            batch, size = [], len(opening)
        batch.append(text)
        size += len(text) + len(_SEPARATOR)
    if batch:
        yield opening + _SEPARATOR.join(batch) + b"]}"


def _wire_form(proposal: Proposal, system_metadata: dict[str, Any]) -> dict[str, Any]:
    return {
        "entityType": proposal.entity_type,
        "entityUrn": proposal.entity_urn,
        "changeType": proposal.change_type,
        "aspectName": proposal.aspect_name,
        "aspect": {"value": proposal.value, "contentType": proposal.content_type},
        "systemMetadata": system_metadata,
    }


def _encoded(obj: object) -> bytes:
    try:
        return msgspec.json.encode(obj)
    except UnicodeEncodeError:
        # Half of a surrogate pair, which JSON can escape and UTF-8 cannot write.
        return json.dumps(obj).encode()
