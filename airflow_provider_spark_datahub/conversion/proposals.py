"""A metadata change proposal: one aspect of one entity, as plain JSON.

Aspects, and parts of them, that entities of several types have.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal

import msgspec

from airflow_provider_spark_datahub.conversion import urns

ChangeType = Literal["UPSERT", "PATCH"]

JSON_CONTENT_TYPE = "application/json"
JSON_PATCH_CONTENT_TYPE = "application/json-patch+json"


class ProposalFormatError(ValueError):
    """A stored proposal that does not have the shape that :meth:`Proposal.to_obj` writes."""


class Proposal(msgspec.Struct, frozen=True, eq=False, gc=False, repr_omit_defaults=True):
    """What DataHub calls a MetadataChangeProposal, without its generated classes.

    :param entity_type: the entity's type as in its URN, e.g. ``dataJob``.
    :param entity_urn: the entity's URN.
    :param aspect_name: e.g. ``dataJobInfo``.
    :param aspect: the aspect as JSON: an object, or for a ``PATCH`` the list of JSON-patch operations (or the
        object that wraps one, where the patch names the keys of an array).
    :param change_type: ``UPSERT`` replaces the aspect, ``PATCH`` changes parts of it.
    :param line: what :meth:`to_json` returns, where it is known.
    """

    entity_type: str
    entity_urn: str
    aspect_name: str
    aspect: Any
    change_type: ChangeType = "UPSERT"
    line: str | None = None

    def __eq__(self, other: object) -> bool:
        """Whether both say the same."""
        return isinstance(other, Proposal) and self.to_obj() == other.to_obj()

    def __hash__(self) -> int:
        """Of what it is about: an aspect has no hash."""
        return hash((self.entity_urn, self.aspect_name))

    @property
    def content_type(self) -> str:
        """The MIME type of :attr:`value`."""
        return JSON_PATCH_CONTENT_TYPE if self.change_type == "PATCH" else JSON_CONTENT_TYPE

    @property
    def value(self) -> str:
        """The aspect as JSON text: what a ``GenericAspect`` carries."""
        return json_text(self.aspect)

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
        if self.line is not None:
            return self.line
        stored = {"json": self.aspect} if self.change_type == "UPSERT" else self._stored_aspect
        line = _Line(self.entity_type, self.entity_urn, self.change_type, self.aspect_name, stored)
        try:
            return _encode(line).decode()
        except UnicodeEncodeError:
            return json_text(self.to_obj())

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


class SharedObject(dict[str, Any]):
    """A JSON object that nobody changes, and that many proposals hold: what is made of it can be remembered.

    It is found again as itself: another one is another key, even if it says the same.
    """

    __slots__ = ()
    __hash__ = object.__hash__  # type: ignore[assignment]


def upsert(entity_type: str, entity_urn: str, aspect_name: str, aspect: Any) -> Proposal:
    """A proposal that is made again and again: whoever remembers it does not write its JSON twice."""
    line = Proposal(entity_type, entity_urn, aspect_name, aspect).to_json()
    return Proposal(entity_type, entity_urn, aspect_name, aspect, line=line)


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


def json_text(value: Any) -> str:
    """JSON without spaces, in as few escapes as can be."""
    try:
        return _encode(value).decode()
    except UnicodeEncodeError:
        # Half of a surrogate pair, which JSON can escape and UTF-8 cannot write.
        return json.dumps(value, separators=(",", ":"))


@lru_cache(maxsize=2048)
def status(entity_type: str, urn: str) -> Proposal:
    """The aspect that says that an entity is not (or no longer) soft-deleted."""
    return upsert(entity_type, urn, "status", {"removed": False})


@lru_cache(maxsize=256)
def platform_instance(entity_type: str, urn: str, platform: str, instance: str) -> Proposal:
    """The aspect that names an entity's platform instance."""
    aspect = {"platform": urns.platform_urn(platform), "instance": urns.platform_instance_urn(platform, instance)}
    return upsert(entity_type, urn, "dataPlatformInstance", aspect)


def audit_stamp(time_ms: int | None) -> dict[str, Any]:
    """Who and when; 0 where no event carried a time, because the aspect must have one."""
    return {"time": time_ms or 0, "actor": urns.ACTOR}
