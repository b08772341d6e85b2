"""Documentation, owners and tags that a producer's facets give a dataset, as patches that take nothing away."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.events import Facets, JsonObject, as_objects, as_text
from airflow_provider_spark_datahub.conversion.proposals import Proposal, pointer_part
from airflow_provider_spark_datahub.conversion.settings import LineageSettings

DOCUMENTATION, OWNERSHIP, TAGS = "documentation", "ownership", "tags"
_OWNER_KEYS = {"owners": ["owner", "type", "typeUrn", "attribution␟source"]}
_TAG_KEYS = {"tags": ["attribution␟source", "tag"]}

# DataHub's OwnershipType without CUSTOM, which needs the URN of a type, and NONE.
_OWNER_TYPES = frozenset(
    {"BUSINESS_OWNER", "CONSUMER", "DATAOWNER", "DATA_STEWARD", "DELEGATE"}
    | {"DEVELOPER", "PRODUCER", "STAKEHOLDER", "TECHNICAL_OWNER"}
)
_ANY_OWNER_TYPE = "TECHNICAL_OWNER"
# What OpenLineage's spec puts in front of an owner's name.
_OWNER_PREFIXES = {
    "user:": "urn:li:corpuser:",
    "team:": "urn:li:corpGroup:",
    "group:": "urn:li:corpGroup:",
}
_OWNER_URNS = ("urn:li:corpuser:", "urn:li:corpGroup:")
# Everything of a version 2 field path that is no name.
_PATH_TYPES = re.compile(r"\[(?:version|type|key)=[^\]]*\]\.")


@dataclass(frozen=True, slots=True)
class DatasetNotes:
    """What people wrote about a dataset.

    :param description: empty where there is none.
    :param owners: URN and type (DataHub's ``OwnershipType``) of each.
    :param tags: URNs of the dataset's tags.
    :param field_tags: URNs of the tags of its fields, by the field's name.
    """

    description: str = ""
    owners: tuple[tuple[str, str], ...] = ()
    tags: tuple[str, ...] = ()
    field_tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


NO_NOTES = DatasetNotes()


@lru_cache(maxsize=4)
def noted_facets(settings: LineageSettings) -> tuple[str, ...]:
    """The dataset facets that the options ask for."""
    wanted = {
        DOCUMENTATION: settings.capture_dataset_documentation,
        OWNERSHIP: settings.capture_dataset_owners,
        TAGS: settings.capture_dataset_tags,
    }
    return tuple(name for name, is_wanted in wanted.items() if is_wanted)


def read_notes(facets: Mapping[str, JsonObject]) -> DatasetNotes:
    """What the facets say; each mistake in them costs only itself.

    :param facets: those of :func:`noted_facets` that the dataset has, decoded.
    """
    owners = (_owner(owner) for owner in as_objects(facets.get(OWNERSHIP, {}).get("owners")))
    tags: dict[str, dict[str, None]] = {}
    for tag in as_objects(facets.get(TAGS, {}).get("tags")):
        urn = _tag_urn(tag)
        if urn:
            tags.setdefault(as_text(tag.get("field")), {})[urn] = None
    return DatasetNotes(
        description=as_text(facets.get(DOCUMENTATION, {}).get("description")).strip(),
        owners=tuple(dict.fromkeys(owner for owner in owners if owner is not None)),
        tags=tuple(tags.pop("", ())),
        field_tags={name: tuple(found) for name, found in tags.items()},
    )


def _owner(owner: JsonObject) -> tuple[str, str] | None:
    """URN and type; ``None`` where the name is no user's and no group's."""
    name = as_text(owner.get("name")).strip()
    prefix = next((prefix for prefix in _OWNER_PREFIXES if name.startswith(prefix)), "")
    urn = urns.encode(_OWNER_PREFIXES[prefix] + name[len(prefix) :] if prefix else urns.owner_urn(name))
    kind = as_text(owner.get("type")).strip().upper().replace(" ", "_")
    usable = urn.startswith(_OWNER_URNS) and urn not in _OWNER_URNS and not urns.is_too_long(urn)
    return (urn, kind if kind in _OWNER_TYPES else _ANY_OWNER_TYPE) if usable else None


def _tag_urn(tag: JsonObject) -> str:
    """``key``, or ``key:value`` where the value is not the ``true`` that OpenLineage gives a tag without one."""
    key, value = as_text(tag.get("key")).strip(), as_text(tag.get("value")).strip()
    urn = urns.encode(urns.tag_urn(key if value.lower() in ("", "true") else f"{key}:{value}"))
    return "" if not key or urn == "urn:li:tag:" or urns.is_too_long(urn) else urn


def note_proposals(urn: str, notes: DatasetNotes) -> Iterator[Proposal]:
    """The notes as acryl-datahub's ``DatasetPatchBuilder`` spells them, but for those of fields.

    :param urn: the dataset's.
    """
    if notes.description:
        operation = {"op": "add", "path": "/description", "value": notes.description}
        yield Proposal("dataset", urn, "datasetProperties", [operation], "PATCH")
    if notes.owners:
        added = [
            _added(f"/owners/{pointer_part(owner)}/{kind}//", {"owner": owner, "type": kind, "source": _SOURCE})
            for owner, kind in notes.owners
        ]
        yield Proposal("dataset", urn, "ownership", {"arrayPrimaryKeys": _OWNER_KEYS, "patch": added}, "PATCH")
    if notes.tags:
        added = [_added(f"/tags//{pointer_part(tag)}", {"tag": tag}) for tag in notes.tags]
        yield Proposal("dataset", urn, "globalTags", {"arrayPrimaryKeys": _TAG_KEYS, "patch": added}, "PATCH")


_SOURCE = {"type": "SERVICE"}


def _added(path: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def with_field_tags(schema: dict[str, Any], notes: DatasetNotes) -> dict[str, Any]:
    """A ``schemaMetadata`` with the tags of its fields; the given one stays as it is.

    A nested field is named by the names on the way to it, with dots between them.
    """
    if not notes.field_tags:
        return schema

    def tagged(described: dict[str, Any]) -> dict[str, Any]:
        tags = notes.field_tags.get(_PATH_TYPES.sub("", described["fieldPath"]), ())
        return {**described, "globalTags": {"tags": [{"tag": tag} for tag in tags]}} if tags else described

    return {**schema, "fields": [tagged(described) for described in schema["fields"]]}


def learn_notes(
    known: dict[str, tuple[int, JsonObject]], facets: Facets, wanted: tuple[str, ...], index: int
) -> dict[str, tuple[int, JsonObject]]:
    """What is known with the facets that are wanted; of each the last one counts.

    :param known: where each stood among all events, and its content.
    """
    for name in wanted:
        if name in facets and (content := facets[name]):
            known[name] = index, content
    return known


def with_later_notes(
    known: Mapping[str, tuple[int, JsonObject]], told: Mapping[str, tuple[int, JsonObject]]
) -> Mapping[str, tuple[int, JsonObject]]:
    """What two runs tell of a dataset: of each facet the one that stood last among all events."""
    later = {name: one for name, one in told.items() if name not in known or one[0] >= known[name][0]}
    return {**known, **later}
