"""A metadata change proposal: one aspect of one entity, as plain JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

ChangeType = Literal["UPSERT", "PATCH"]

JSON_CONTENT_TYPE = "application/json"
JSON_PATCH_CONTENT_TYPE = "application/json-patch+json"


class ProposalFormatError(ValueError):
    """A stored proposal that does not have the shape that :meth:`Proposal.to_obj` writes."""


class Proposal(msgspec.Struct, frozen=True, gc=False):
    """What DataHub calls a MetadataChangeProposal, without its generated classes.

    :param entity_type: the entity's type as in its URN, e.g. ``dataJob``.
    :param entity_urn: the entity's URN.
    :param aspect_name: e.g. ``dataJobInfo``.
    :param aspect: the aspect as JSON: an object, or for a ``PATCH`` the list of JSON-patch operations (or the
        object that wraps one, where the patch names the keys of an array).
    :param change_type: ``UPSERT`` replaces the aspect, ``PATCH`` changes parts of it.
    """

    entity_type: str
    entity_urn: str
    aspect_name: str
    aspect: Any
    change_type: ChangeType = "UPSERT"

    @property
    def content_type(self) -> str:
        """The MIME type of :attr:`value`."""
        return JSON_PATCH_CONTENT_TYPE if self.change_type == "PATCH" else JSON_CONTENT_TYPE

    @property
    def value(self) -> str:
        """The aspect as JSON text: what a ``GenericAspect`` carries."""
        return _json(self.aspect)

    @property
    def _stored_aspect(self) -> dict[str, Any]:
        """A patch keeps its content type next to its text: acryl-datahub's reader takes every ``{"json": …}`` aspect
        for a whole one, and would send a patch as an aspect."""
        if self.change_type == "PATCH":
            return {"value": self.value, "contentType": JSON_PATCH_CONTENT_TYPE}
        return {"json": self.aspect}

    def to_obj(self) -> dict[str, Any]:
        """The proposal as ``MetadataChangeProposalWrapper.to_obj(simplified_structure=True)`` writes it."""
        return {
            "entityType": self.entity_type,
            "entityUrn": self.entity_urn,
            "changeType": self.change_type,
            "aspectName": self.aspect_name,
            "aspect": self._stored_aspect,
        }

    def to_json(self) -> str:
        """:meth:`to_obj` as one line of JSON, without its newline."""
        stored = {"json": self.aspect} if self.change_type == "UPSERT" else self._stored_aspect
        line = _Line(self.entity_type, self.entity_urn, self.change_type, self.aspect_name, stored)
        try:
            return _encode(line).decode()
        except UnicodeEncodeError:
            return _json(self.to_obj())

    @classmethod
    def from_obj(cls, obj: Mapping[str, Any]) -> Proposal:
        """The proposal that :meth:`to_obj` wrote.

        :raises ProposalFormatError: where a part is missing or of another type.
        """
        try:
            change_type: ChangeType = "PATCH" if obj["changeType"] == "PATCH" else "UPSERT"
            aspect = obj["aspect"]
            content = json.loads(aspect["value"]) if "value" in aspect else aspect["json"]
            return cls(obj["entityType"], obj["entityUrn"], obj["aspectName"], content, change_type)
        except (KeyError, TypeError, ValueError) as error:
            raise ProposalFormatError(f"not a stored proposal ({error!r}): {str(obj)[:200]}") from error


def to_json_lines(proposals: Iterable[Proposal]) -> Iterator[str]:
    """One line of JSON per proposal, each with its newline."""
    for proposal in proposals:
        yield proposal.to_json() + "\n"


def pointer_part(text: str) -> str:
    """A part of the path of a patch's operation: a JSON pointer (RFC 6901)."""
    return text.replace("~", "~0").replace("/", "~1")


class _Line(msgspec.Struct, gc=False, rename="camel"):
    """:meth:`Proposal.to_obj`, quicker to write."""

    entity_type: str
    entity_urn: str
    change_type: str
    aspect_name: str
    aspect: dict[str, Any]


_encode = msgspec.json.Encoder().encode


def _json(value: Any) -> str:
    try:
        return _encode(value).decode()
    except UnicodeEncodeError:
        # Half of a surrogate pair, which JSON can escape and UTF-8 cannot write.
        return json.dumps(value, separators=(",", ":"))
