"""DataHub URNs, spelled as acryl-datahub's URN classes spell them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from string import ascii_letters, digits
from urllib.parse import quote

# https://docs.datahub.com/docs/what/urn/#restrictions, and Deviation 21: what DataHub's front end decodes again.
_RESERVED = {",": "%2C", "(": "%28", ")": "%29", "␟": quote("␟")}
_ENCODE = str.maketrans(_RESERVED)

MAX_URN_BYTES = 512
"""GMS silently drops a proposal whose URN is longer than this, URL-encoded."""
_DIGEST_CHARACTERS = 12
# What is left of a flow's URN for its parts, when a job's URN with the shortest id has to fit around it.
_MAX_FLOW_BYTES = 441
# Of these one byte stays one, of all others three are made.
_NOT_ESCAPED = f"{ascii_letters}{digits}_.-~* ".encode()
_CUT_ESCAPE = re.compile("%.?$")

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


@lru_cache(maxsize=1024)
def dataflow_urn(orchestrator: str, flow_id: str, cluster: str) -> str:
    """``urn:li:dataFlow:(<orchestrator>,<flow id>,<cluster>)``; its longest parts shortened where it is too long."""
    parts = [encode(part) for part in (orchestrator, flow_id, cluster)]
    while _encoded_bytes(",".join(parts)) > _MAX_FLOW_BYTES:
        longest = max(range(len(parts)), key=lambda index: _encoded_bytes(parts[index]))
        parts[longest] = shortened(parts[longest], _encoded_bytes(parts[longest]) * 3 // 4)
    return f"urn:li:dataFlow:({','.join(parts)})"


@lru_cache(maxsize=1024)
def datajob_urn(flow_urn: str, job_id: str) -> str:
    """``urn:li:dataJob:(<flow URN>,<job id>)``; the id is shortened where that is too long."""
    room = MAX_URN_BYTES - _encoded_bytes(f"urn:li:dataJob:({flow_urn},)")
    return f"urn:li:dataJob:({flow_urn},{shortened(encode(job_id), room)})"


@lru_cache(maxsize=1024)
def dpi_urn(instance_id: str) -> str:
    """``urn:li:dataProcessInstance:<id>``; the id is shortened where that is too long."""
    room = MAX_URN_BYTES - _encoded_bytes("urn:li:dataProcessInstance:")
    return f"urn:li:dataProcessInstance:{shortened(encode(instance_id), room)}"


def tag_urn(tag: str) -> str:
    """``urn:li:tag:<tag>``; a tag that is a URN already stays as it is."""
    return tag if tag.startswith("urn:li:tag:") else f"urn:li:tag:{encode(tag)}"


def test_urn(test: str) -> str:
    """``urn:li:test:<test>``; shortened where it is too long."""
    room = MAX_URN_BYTES - _encoded_bytes("urn:li:test:")
    return f"urn:li:test:{shortened(encode(test), room)}"


def owner_urn(name: str) -> str:
    """``urn:li:corpuser:<name>``; an owner that is a URN already stays as it is."""
    return name if name.startswith("urn:li:") else f"urn:li:corpuser:{encode(name)}"


def guid(key: Mapping[str, str]) -> str:
    """The id that acryl-datahub's ``DatahubKey.guid()`` derives from a key's fields."""
    text = json.dumps(key, separators=(",", ":"), sort_keys=True)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


@lru_cache(maxsize=4096)
def is_too_long(urn: str) -> bool:
    """Whether GMS would drop what is said of this entity because of its URN's length."""
    # A URL-encoded character takes at most twelve bytes: many URNs need no encoding to be told short enough.
    return len(urn) * 12 > MAX_URN_BYTES and _encoded_bytes(urn) > MAX_URN_BYTES


def _encoded_bytes(text: str) -> int:
    """How long GMS takes the text for: that of Java's URLEncoder."""
    # Half a surrogate pair, which JSON can carry, is a question mark to Java's URLEncoder.
    encoded = text.encode(errors="replace")
    return len(encoded) + 2 * len(encoded.translate(None, _NOT_ESCAPED))


def shortened(part: str, room: int) -> str:
    """A part of a URN that takes at most so many bytes, URL-encoded: its beginning, and a digest of all of it.

    What GMS would drop without a word is there under a name that stays the same from run to run.
    """
    if len(part) * 12 <= room or _encoded_bytes(part) <= room:
        return part
    digest = hashlib.md5(part.encode(errors="surrogatepass"), usedforsecurity=False).hexdigest()[:_DIGEST_CHARACTERS]
    kept = part[: max(room, 0)]
    while kept and _encoded_bytes(kept) > room - _DIGEST_CHARACTERS - 1:
        kept = kept[: min(len(kept) - 1, len(kept) * room // _encoded_bytes(kept))]
    # A percent sign that lost its digits would be none any more.
    return f"{_CUT_ESCAPE.sub('', kept)}-{digest}"
