"""Proposals that DataHub stored, in a form in which two attempts can be compared."""

from __future__ import annotations

import json
from typing import Any

from tests.delivery.samples import stored_content
from tests.oracles.gms import GmsStandIn

# A task's own end has the time at which it happened.
_CLOCK = ("timestampMillis", "durationMillis", "messageId")


def catalogue(gms: GmsStandIn) -> set[str]:
    """Return every stored proposal, without the times at which the task itself ended."""
    assert gms.dropped == []
    return {timeless(*stored_content(stored)) for stored in gms.stored}


def timeless(urn: str, aspect_name: str, change_type: str, aspect: Any) -> str:
    """Return one proposal without these times."""
    if aspect_name == "dataProcessInstanceRunEvent":
        aspect = {name: value for name, value in aspect.items() if name not in _CLOCK}
    if "(airflow," in urn and isinstance(aspect, dict):
        for edge in [*aspect.get("inputDatasetEdges", ()), *aspect.get("outputDatasetEdges", ())]:
            edge.pop("lastModified", None)
    return json.dumps([urn, aspect_name, change_type, aspect], sort_keys=True)
