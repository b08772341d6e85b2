"""URNs of DataHub, and the flows and jobs that events belong to.

URNs are spelled as in acryl-datahub's URN classes. For flows and jobs, see the conversion rules,
sections 1 and 2.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from string import ascii_letters, digits
from urllib.parse import quote

from airflow_provider_spark_datahub.conversion.events import (
    EventError,
    Facets,
    RunEvent,
    as_objects,
    as_text,
)
from airflow_provider_spark_datahub.conversion.settings import LineageSettings

# Characters that DataHub's front end decodes (Deviation 21):
# https://docs.datahub.com/docs/what/urn/#restrictions
_RESERVED = {",": "%2C", "(": "%28", ")": "%29", "␟": quote("␟")}
_ENCODE = str.maketrans(_RESERVED)

MAX_URN_BYTES = 512
"""GMS silently drops a proposal if its URN, URL-encoded, is longer than this."""
_DIGEST_CHARACTERS = 12
# Bytes for the parts of a flow's URN, so that the URN of a job with a short id still fits around
# it.
_MAX_FLOW_BYTES = 441
# The platform is also the name of a platform instance's platform.
_MAX_PLATFORM_BYTES = 100
# URL encoding leaves each of these bytes as one byte and makes three of every other byte.
_NOT_ESCAPED = f"{ascii_letters}{digits}_.-~* ".encode()
_CUT_ESCAPE = re.compile("%.?$")

ACTOR = "urn:li:corpuser:datahub"
"""The author that DataHub's own converters name."""


def encode(part: str) -> str:
    """Percent-encode the reserved characters in a free-text part of a URN."""
    return part if part.isidentifier() else part.translate(_ENCODE)


def dataset_urn(platform: str, name: str, env: str, instance: str | None = None) -> str:
    """Return ``urn:li:dataset:(urn:li:dataPlatform:<platform>,[<instance>.]<name>,<env>)``."""
    full_name = f"{instance}.{name}" if instance else name
    return f"urn:li:dataset:({platform_urn(platform)},{encode(full_name)},{env})"


def platform_urn(platform: str) -> str:
    """Return ``urn:li:dataPlatform:<platform>``."""
    return f"urn:li:dataPlatform:{encode(platform)}"


def schema_field_urn(dataset: str, field_path: str) -> str:
    """Return ``urn:li:schemaField:(<dataset URN>,<field path>)``."""
    return f"urn:li:schemaField:({dataset},{encode(field_path)})"


def datajob_urn(flow_urn: str, job_id: str) -> str:
    """Return ``urn:li:dataJob:(<flow URN>,<job id>)``; shorten the id if it is too long."""
    room = MAX_URN_BYTES - _encoded_bytes(f"urn:li:dataJob:({flow_urn},)")
    return f"urn:li:dataJob:({flow_urn},{_shortened(encode(job_id), room)})"


_MAX_OUTPUT_JOB_BYTES = 400


def output_job_id(job_id: str, output: str) -> str:
    """Return the id of an output's DataJob: that of its application's, and the output's name."""
    return _shortened(encode(f"{job_id}.{output}"), _MAX_OUTPUT_JOB_BYTES)


def dataset_of_field(urn: str) -> str:
    """Return the dataset's URN in that of a column, whose own name has no comma: it is encoded."""
    return urn.removeprefix("urn:li:schemaField:(").rpartition(",")[0]


def dpi_urn(instance_id: str) -> str:
    """Return ``urn:li:dataProcessInstance:<id>``; shorten the id if it is too long."""
    prefix = "urn:li:dataProcessInstance:"
    return prefix + _shortened(encode(instance_id), MAX_URN_BYTES - _encoded_bytes(prefix))


def tag_urn(tag: str) -> str:
    """Return ``urn:li:tag:<tag>``, or the tag itself if it is a URN already."""
    return tag if tag.startswith("urn:li:tag:") else f"urn:li:tag:{encode(tag)}"


# Prefixes of an owner's name in OpenLineage's spec.
_OWNER_KINDS = {"user": "corpuser", "team": "corpGroup", "group": "corpGroup"}


def owner_urn(name: str) -> str:
    """Return the URN of a user, or of a group (``team:…``, ``group:…``), or the name itself if it
    is a URN already.
    """
    prefix, separator, own_name = name.partition(":")
    if prefix == "urn":
        return name
    kind = _OWNER_KINDS.get(prefix) if separator else None
    return (
        f"urn:li:{kind}:{encode(own_name.strip())}" if kind else f"urn:li:corpuser:{encode(name)}"
    )


def guid(key: Mapping[str, str]) -> str:
    """Return the id that acryl-datahub's ``DatahubKey.guid()`` derives from a key's fields."""
    text = json.dumps(key, separators=(",", ":"), sort_keys=True)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def is_too_long(urn: str) -> bool:
    """Return whether GMS would drop proposals about this entity because of its URN's length."""
    # A URL-encoded character takes at most twelve bytes: most URNs are short enough for any
    # encoding.
    return len(urn) * 12 > MAX_URN_BYTES and _encoded_bytes(urn) > MAX_URN_BYTES


def _encoded_bytes(text: str) -> int:
    """Return the length of the text after Java's URLEncoder, which is the length that GMS measures."""
    # Java's URLEncoder writes half of a surrogate pair, which JSON can carry, as a question mark.
    encoded = text.encode(errors="replace")
    return len(encoded) + 2 * len(encoded.translate(None, _NOT_ESCAPED))


def _shortened(part: str, room: int) -> str:
    """Shorten a part of a URN to its beginning and a digest of the whole part, if it is too long.

    :param room: how many bytes the part may take, URL-encoded.
    """
    if len(part) * 12 <= room or _encoded_bytes(part) <= room:
        return part
    digest = hashlib.md5(part.encode(errors="surrogatepass"), usedforsecurity=False).hexdigest()[
        :_DIGEST_CHARACTERS
    ]
    kept = part[: max(room, 0)]
    while kept and _encoded_bytes(kept) > room - _DIGEST_CHARACTERS - 1:
        kept = kept[: min(len(kept) - 1, len(kept) * room // _encoded_bytes(kept))]
    # Do not end in a percent sign that lost its digits.
    return f"{_CUT_ESCAPE.sub('', kept)}-{digest}"


_OPENLINEAGE_PRODUCER = re.compile(r"https://github\.com/OpenLineage/OpenLineage/.*/(.*)")
_OTHER_PRODUCERS = {
    "https://github.com/apache/airflow/": "airflow",
    "https://github.com/trinodb/trino/": "trino",
}
_MERGE_JOB = "execute_merge_into_command_edge"
DEFAULT_CLUSTER = "default"
"""The job namespace that OpenLineage itself falls back to."""


@dataclass(frozen=True, slots=True)
class FlowIdentity:
    """The parts of a DataFlow's URN."""

    orchestrator: str
    flow_id: str
    cluster: str
    urn: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Build the URN once, because half of a flow's aspects contain it; shorten its longest
        parts if necessary.
        """
        parts = [encode(part) for part in (self.orchestrator, self.flow_id, self.cluster)]
        while _encoded_bytes(",".join(parts)) > _MAX_FLOW_BYTES:
            longest = max(range(len(parts)), key=lambda index: _encoded_bytes(parts[index]))
            parts[longest] = _shortened(parts[longest], _encoded_bytes(parts[longest]) * 3 // 4)
        object.__setattr__(self, "urn", f"urn:li:dataFlow:({','.join(parts)})")

    @staticmethod
    def of(event: RunEvent, settings: LineageSettings, app_name: str) -> FlowIdentity:
        """Return the flow of an event.

        :param app_name: the application's own name, from any of its events; empty if none has it.
        :raises EventError: if the platform that ran the job is unknown, or no flow can be named
            after the job.
        """
        job = event.job
        flow_id = settings.flow_id(app_name or job.name.partition(".")[0])
        if not flow_id:
            raise EventError(
                f"job.name {job.name!r} starts with a dot: no flow can be named after it"
            )
        cluster = settings.platform_instance or job.namespace or DEFAULT_CLUSTER
        orchestrator = (
            settings.orchestrator or event.names.engine.strip() or _orchestrator(event.producer)
        )
        return FlowIdentity(_shortened(orchestrator, _MAX_PLATFORM_BYTES), flow_id, cluster)


def _orchestrator(producer: str) -> str:
    matched = _OPENLINEAGE_PRODUCER.fullmatch(producer)
    if matched and matched.group(1):
        return matched.group(1)
    for prefix, orchestrator in _OTHER_PRODUCERS.items():
        if producer.startswith(prefix):
            return orchestrator
    raise EventError(
        f"the platform that ran the job is unknown: the producer {producer!r} is not a known one, and the event "
        "has no processing_engine facet; set 'orchestrator'"
    )


def job_id_and_name(event: RunEvent, settings: LineageSettings) -> tuple[str, str]:
    """Return the id and the display name of the job that a single event describes (not coalesced)."""
    job_id = event.job.name
    if settings.enhanced_merge_into_extraction and _MERGE_JOB in job_id:
        table = _merge_target(event)
        if table:
            job_id = f"{job_id}.{re.sub('[. ]', '_', table).lower()}"
    return job_id, display_name(job_id)


def display_name(job_id: str) -> str:
    """Return the part of a job's id after its first dot, or the whole id if it has none."""
    _, dot, rest = job_id.partition(".")
    return rest if dot else job_id


def _merge_target(event: RunEvent) -> str:
    """Return the table that Delta's MERGE writes to, from the first source that names it, or an
    empty text.
    """
    for line in event.job.texts.sql.splitlines():
        words = line.split()
        if len(words) > 2 and [word.upper() for word in words[:2]] == ["MERGE", "INTO"]:
            return words[2].replace("`", "")
    names = [dataset.id.name for dataset in event.outputs]
    for name in names:
        if "." in name and not name.startswith("/"):
            return name
    for dataset in event.outputs:
        table = _table_symlink(dataset.facets)
        if table:
            return table
    return next((table for name in names if (table := _warehouse_table(name))), "")


def _table_symlink(facets: Facets) -> str:
    for identifier in as_objects(facets["symlinks"].get("identifiers")):
        if identifier.get("type") == "TABLE":
            return as_text(identifier.get("name")).removeprefix("table/").replace("/", ".")
    return ""


def _warehouse_table(path: str) -> str:
    """Return ``<db>.<table>`` of ``…/warehouse/<db>.db/<table>``, or an empty text."""
    below = path.rpartition("/warehouse/")[2] if "/warehouse/" in path else ""
    database, found, table = below.rpartition(".db/")
    return f"{database}.{table.rstrip('/')}" if found else ""
