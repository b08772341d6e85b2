"""What DataHub was told, in a form in which two task tries can be compared."""

from __future__ import annotations

import json
from typing import Any

from tests.oracles.gms import GmsStandIn

# What a task's own end says is of that moment.
_CLOCK = ("timestampMillis", "durationMillis", "messageId")


def catalogue(gms: GmsStandIn) -> set[str]:
    """Every proposal that was stored, but for the moments at which the task itself ended."""
    assert gms.dropped == []
    return {
        timeless(one["entityUrn"], one["aspectName"], one["changeType"], json.loads(one["aspect"]["value"]))
        for one in gms.stored
    }


def timeless(urn: str, aspect_name: str, change_type: str, aspect: Any) -> str:
    """One proposal without these moments."""
    if aspect_name == "dataProcessInstanceRunEvent":
        aspect = {name: value for name, value in aspect.items() if name not in _CLOCK}
    if "(airflow," in urn and isinstance(aspect, dict):
        for edge in [*aspect.get("inputDatasetEdges", ()), *aspect.get("outputDatasetEdges", ())]:
            edge.pop("lastModified", None)
    return json.dumps([urn, aspect_name, change_type, aspect], sort_keys=True)
