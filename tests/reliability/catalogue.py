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
    return {json.dumps(_timeless(one), sort_keys=True) for one in gms.stored}


def _timeless(proposal: dict[str, Any]) -> list[Any]:
    aspect = json.loads(proposal["aspect"]["value"])
    if proposal["aspectName"] == "dataProcessInstanceRunEvent":
        aspect = {name: value for name, value in aspect.items() if name not in _CLOCK}
    if "(airflow," in proposal["entityUrn"] and isinstance(aspect, dict):
        for edge in [*aspect.get("inputDatasetEdges", ()), *aspect.get("outputDatasetEdges", ())]:
            del edge["lastModified"]
    return [proposal["entityUrn"], proposal["changeType"], proposal["aspectName"], aspect]
