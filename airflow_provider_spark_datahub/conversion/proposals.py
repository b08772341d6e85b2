"""Metadata change proposals as plain JSON, and aspects that entities of several types have."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.foundation.text import encoded_json

ChangeType = Literal["UPSERT", "PATCH"]

_JSON_CONTENT_TYPE = "application/json"
JSON_PATCH_CONTENT_TYPE = "application/json-patch+json"
APPLICATION_JOB = "applicationJob"
"""Property of an output's DataJob: the URN of its application's DataJob."""


class ProposalFormatError(ValueError):
    """Stored proposal that does not have the shape of :meth:`Proposal.to_obj`."""


class Proposal(msgspec.Struct, frozen=True, eq=False, gc=False, repr_omit_defaults=True):
    """DataHub's MetadataChangeProposal, without its generated classes: one aspect of one entity.

    :param entity_type: type as in the entity's URN, e.g. ``dataJob``.
    :param aspect: the aspect as JSON, which must not be changed; for a ``PATCH`` its operations, or
        an object around them.
    :param change_type: ``UPSERT`` replaces the aspect, ``PATCH`` changes parts of it.
    """

    entity_type: str
    entity_urn: str
    aspect_name: str
    aspect: Any
    change_type: ChangeType = "UPSERT"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Proposal) and self.to_obj() == other.to_obj()

    def __hash__(self) -> int:
        """Hash the entity and the name of the aspect: the aspect itself has no hash."""
        return hash((self.entity_urn, self.aspect_name))

    @property
    def content_type(self) -> str:
        """The MIME type of :attr:`value`."""
        return JSON_PATCH_CONTENT_TYPE if self.change_type == "PATCH" else _JSON_CONTENT_TYPE

    @property
    def value(self) -> str:
        """The aspect as JSON text, as in a ``GenericAspect``."""
        return self.encoded_value.decode()

    @property
    def encoded_value(self) -> bytes:
        """The :attr:`value` in UTF-8."""
        return encoded_json(self.aspect)

    @property
    def _stored_aspect(self) -> dict[str, Any]:
        """A patch with its content type: acryl-datahub's reader would send ``{"json": …}`` as a
        whole aspect.
        """
        if self.change_type == "PATCH":
            return {"value": self.value, "contentType": JSON_PATCH_CONTENT_TYPE}
        return {"json": self.aspect}

    def to_obj(self) -> dict[str, Any]:
        """Return the proposal as
        ``MetadataChangeProposalWrapper.to_obj(simplified_structure=True)`` writes it.
        """
        obj: dict[str, Any] = msgspec.to_builtins(_line(self))
        return obj

    def to_json(self) -> str:
        """Return :meth:`to_obj` as one line of JSON, without its newline."""
        return encoded_json(_line(self)).decode()

    @classmethod
    def from_obj(cls, obj: object) -> Proposal:
        """Read the proposal that :meth:`to_obj` wrote.

        :raises ProposalFormatError: if a part is missing or has a wrong type.
        """
        try:
            line = msgspec.convert(obj, _Line)
            content = (
                json.loads(line.aspect["value"]) if "value" in line.aspect else line.aspect["json"]
            )
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
            raise ProposalFormatError(
                f"not a stored proposal ({error}): {str(obj)[:200]}"
            ) from error
        change_type: ChangeType = "PATCH" if line.change_type == "PATCH" else "UPSERT"
        return cls(line.entity_type, line.entity_urn, line.aspect_name, content, change_type)


def pointer_part(text: str) -> str:
    """Escape a part of the path in a patch operation, which is a JSON pointer (RFC 6901)."""
    return text.replace("~", "~0").replace("/", "~1")


def unescaped_part(part: str) -> str:
    """Return the text that :func:`pointer_part` escaped."""
    return part.replace("~1", "/").replace("~0", "~")


class _Line(msgspec.Struct, gc=False, rename="camel"):
    """Struct of :meth:`Proposal.to_obj`, which is faster to encode."""

    entity_type: str
    entity_urn: str
    change_type: str
    aspect_name: str
    aspect: dict[str, Any]


def _line(proposal: Proposal) -> _Line:
    entity_type, urn, name = proposal.entity_type, proposal.entity_urn, proposal.aspect_name
    return _Line(entity_type, urn, proposal.change_type, name, proposal._stored_aspect)


def json_lines(proposals: Iterable[Proposal]) -> bytes:
    """Return proposals as lines of JSON in UTF-8, each as :meth:`Proposal.to_json` writes it, with
    its newline.
    """
    return b"\n".join([*map(encoded_json, map(_line, proposals)), b""])


def status(entity_type: str, urn: str, *, removed: bool = False) -> Proposal:
    """Return the aspect that says whether an entity is soft-deleted."""
    return Proposal(entity_type, urn, "status", {"removed": removed})


def described(
    entity_type: Literal["dataFlow", "dataJob"],
    urn: str,
    info: Mapping[str, Any],
    platform: str,
    instance: str | None,
) -> Iterator[Proposal]:
    """Yield the aspects of a flow or job that is there: its info, its status, and its platform
    instance, if it has one.
    """
    yield Proposal(entity_type, urn, f"{entity_type}Info", info)
    yield status(entity_type, urn)
    if instance:
        platform_urn = urns.platform_urn(platform)
        instance_urn = f"urn:li:dataPlatformInstance:({platform_urn},{urns.encode(instance)})"
        aspect = {"platform": platform_urn, "instance": instance_urn}
        yield Proposal(entity_type, urn, "dataPlatformInstance", aspect)


_OWNER_KEYS = {"owners": ["owner", "type", "typeUrn", "attribution␟source"]}
_TAG_KEYS = {"tags": ["attribution␟source", "tag"]}


def added_owners(
    entity_type: str, urn: str, owners: Iterable[tuple[str, str]]
) -> Iterator[Proposal]:
    """Yield the patch that adds owners, each with URN and type (DataHub's ``OwnershipType``), to an
    entity.
    """
    added = [
        _added(
            f"/owners/{pointer_part(owner)}/{kind}//",
            {"owner": owner, "type": kind, "source": {"type": "SERVICE"}},
        )
        for owner, kind in owners
    ]
    if added:
        yield Proposal(
            entity_type,
            urn,
            "ownership",
            {"arrayPrimaryKeys": _OWNER_KEYS, "patch": added},
            "PATCH",
        )


def added_tags(entity_type: str, urn: str, tags: Iterable[str]) -> Iterator[Proposal]:
    """Yield the patch that adds tags, given by URN, to an entity."""
    added = [_added(f"/tags//{pointer_part(tag)}", {"tag": tag}) for tag in tags]
    if added:
        yield Proposal(
            entity_type, urn, "globalTags", {"arrayPrimaryKeys": _TAG_KEYS, "patch": added}, "PATCH"
        )


def _added(path: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def audit_stamp(time_ms: int | None) -> dict[str, Any]:
    """Return an audit stamp; its time, which is required, is 0 if no event has one."""
    return {"time": time_ms or 0, "actor": urns.ACTOR}
