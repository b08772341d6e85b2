"""DataHub URNs, spelled as acryl-datahub's URN classes spell them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import quote, quote_plus

# https://docs.datahub.com/docs/what/urn/#restrictions, and Deviation 21: what DataHub's front end decodes again.
_RESERVED = {",": "%2C", "(": "%28", ")": "%29", "␟": quote("␟")}
_ENCODE = str.maketrans(_RESERVED)

MAX_URN_BYTES = 512
"""GMS silently drops a proposal whose URN is longer than this, URL-encoded."""

ACTOR = "urn:li:corpuser:datahub"
"""Who DataHub's own converters name as the author of what they write."""


@lru_cache(maxsize=4096)
def encode(part: str) -> str:
    """A free-text part of a URN with the reserved characters percent-encoded; nothing else changes."""
    return part.translate(_ENCODE)


def dataset_urn(platform: str, name: str, env: str, instance: str | None = None) -> str:
    """``urn:li:dataset:(urn:li:dataPlatform:<platform>,[<instance>.]<name>,<env>)``."""
    full_name = f"{instance}.{name}" if instance else name
    return f"urn:li:dataset:({platform_urn(platform)},{encode(full_name)},{env})"


def platform_urn(platform: str) -> str:
    """``urn:li:dataPlatform:<platform>``."""
    return f"urn:li:dataPlatform:{encode(platform)}"


def platform_instance_urn(platform: str, instance: str) -> str:
    """``urn:li:dataPlatformInstance:(<platform URN>,<instance>)``."""
    return f"urn:li:dataPlatformInstance:({platform_urn(platform)},{encode(instance)})"


def schema_field_urn(dataset: str, field_path: str) -> str:
    """``urn:li:schemaField:(<dataset URN>,<field path>)``."""
    return f"urn:li:schemaField:({dataset},{encode(field_path)})"


def dataflow_urn(orchestrator: str, flow_id: str, cluster: str) -> str:
    """``urn:li:dataFlow:(<orchestrator>,<flow id>,<cluster>)``."""
    return f"urn:li:dataFlow:({encode(orchestrator)},{encode(flow_id)},{encode(cluster)})"


def datajob_urn(flow_urn: str, job_id: str) -> str:
    """``urn:li:dataJob:(<flow URN>,<job id>)``."""
    return f"urn:li:dataJob:({flow_urn},{encode(job_id)})"


def dpi_urn(instance_id: str) -> str:
    """``urn:li:dataProcessInstance:<id>``."""
    return f"urn:li:dataProcessInstance:{encode(instance_id)}"


def tag_urn(tag: str) -> str:
    """``urn:li:tag:<tag>``; a tag that is a URN already stays as it is."""
    return tag if tag.startswith("urn:li:tag:") else f"urn:li:tag:{encode(tag)}"


def owner_urn(name: str) -> str:
    """``urn:li:corpuser:<name>``; an owner that is a URN already stays as it is."""
    return name if name.startswith("urn:li:") else f"urn:li:corpuser:{encode(name)}"


def guid(key: Mapping[str, str]) -> str:
    """The id that acryl-datahub's ``DatahubKey.guid()`` derives from a key's fields."""
    text = json.dumps(key, separators=(",", ":"), sort_keys=True)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def is_too_long(urn: str) -> bool:
    """Whether GMS would drop what is said of this entity because of its URN's length."""
    # Half a surrogate pair, which JSON can carry, is a question mark to Java's URLEncoder.
    encoded = urn.encode(errors="replace")
    # A URL-encoded byte takes at most three characters: most URNs need no encoding to be told short enough.
    return len(encoded) * 3 > MAX_URN_BYTES and len(quote_plus(encoded, safe="*-._")) > MAX_URN_BYTES
