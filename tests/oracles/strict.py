"""The strictest offline check of one proposal: would a GMS accept it, keep it, and is it what the
SDK would write?

Everything comes from the packages of acryl-datahub: the Avro schemas with their annotations, and
its own reader and writer. ``MetadataChangeProposalWrapper.validate()`` alone accepts most of what
this refuses.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from datahub.emitter.mcp import MetadataChangeProposalWrapper

from tests.oracles.strict_model import Model, Reference, packaged_model
from tests.oracles.strict_patches import patch_violations
from tests.oracles.strict_urns import UrnProblem, urn_problems
from tests.oracles.strict_values import Place, value_violations

JSON_CONTENT_TYPE = "application/json"
JSON_PATCH_CONTENT_TYPE = "application/json-patch+json"
_CHANGE_TYPES = frozenset({"UPSERT", "CREATE", "CREATE_ENTITY", "UPDATE", "PATCH", "RESTATE"})
_SYSTEM_METADATA = "com.linkedin.pegasus2avro.mxe.SystemMetadata"
_PROPOSAL_KEYS = frozenset(
    {
        "entityType",
        "entityUrn",
        "changeType",
        "aspectName",
        "aspect",
        "systemMetadata",
        "headers",
        "auditHeader",
    }
)


def violations(proposal: Mapping[str, Any]) -> list[str]:
    """Return the reasons for which a GMS would refuse or drop it, each with its path; empty for a
    good proposal.

    :param proposal: as JSON, with the aspect as ``{"json": …}`` (how files keep it) or as
        ``{"contentType": …, "value": "…"}`` (how the wire carries it, and a patch always).
    """
    return [f"entityUrn: {problem.reason}" for problem in _entity_urn_problems(proposal)] + [
        *_envelope_violations(packaged_model(), proposal),
        *_aspect_violations(packaged_model(), proposal),
    ]


def dropping_violations(proposal: Mapping[str, Any]) -> list[str]:
    """Return those of :func:`violations` for which GMS answers 200, logs, and keeps nothing."""
    return [
        f"entityUrn: {problem.reason}"
        for problem in _entity_urn_problems(proposal)
        if problem.is_dropped
    ]


def canonical_violations(proposal: Mapping[str, Any]) -> list[str]:
    """Return :func:`violations`; if there are none, the differences of an upsert from
    acryl-datahub's spelling.

    A proposal that leaves out a default, or spells a value in another way than the SDK, differs.
    """
    if found := violations(proposal):
        return found
    if proposal["changeType"] != "UPSERT":
        return []
    content = _content(proposal["aspect"], JSON_CONTENT_TYPE)
    wire = {"contentType": JSON_CONTENT_TYPE, "value": json.dumps(content)}
    wrapper = MetadataChangeProposalWrapper.from_obj_require_wrapper({**proposal, "aspect": wire})
    written = wrapper.to_obj(simplified_structure=True)
    return list(_differences({**proposal, "aspect": {"json": content}}, written, "proposal"))


def _entity_urn_problems(proposal: Mapping[str, Any]) -> list[UrnProblem]:
    urn = proposal.get("entityUrn")
    if not isinstance(urn, str):
        return [UrnProblem("is missing", is_dropped=False)]
    return urn_problems(packaged_model(), urn, strict=True)


def _envelope_violations(model: Model, proposal: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted(proposal.keys() - _PROPOSAL_KEYS):
        yield f"{key}: is not part of a proposal"
    entity_type, urn = proposal.get("entityType"), proposal.get("entityUrn")
    if isinstance(urn, str) and not urn.startswith(f"urn:li:{entity_type}:"):
        yield f"entityType: {entity_type!r} is not the type of {urn!r}"
    if str(proposal.get("changeType")) not in _CHANGE_TYPES:
        yield f"changeType: {proposal.get('changeType')!r} is not one of {sorted(_CHANGE_TYPES)}"
    entity = model.entities.get(str(entity_type))
    if entity is not None and str(proposal.get("aspectName")) not in entity.aspects:
        yield f"aspectName: unknown aspect {proposal.get('aspectName')!r} for entity {entity_type}"
    if proposal.get("systemMetadata") is not None:
        place = Place("systemMetadata")
        yield from value_violations(
            model, proposal["systemMetadata"], Reference(_SYSTEM_METADATA), place
        )


def _aspect_violations(model: Model, proposal: Mapping[str, Any]) -> Iterator[str]:
    name = proposal.get("aspectName")
    record = model.aspects.get(str(name))
    if record is None:
        yield f"aspectName: no aspect is called {name!r}"
        return
    is_patch = proposal.get("changeType") == "PATCH"
    try:
        content = _content(
            proposal.get("aspect"), JSON_PATCH_CONTENT_TYPE if is_patch else JSON_CONTENT_TYPE
        )
    except (ValueError, TypeError) as error:
        yield f"aspect: {error}"
        return
    if is_patch:
        yield from patch_violations(model, str(name), content)
        return
    yield from value_violations(model, content, record, Place(str(name)))
    if name == "schemaMetadata":
        yield from _field_path_violations(content)


def _content(aspect: Any, content_type: str) -> Any:
    """Return the aspect's JSON.

    :raises ValueError: if it is not JSON, or is said to be something else.
    :raises TypeError: if Python's JSON has no form for it.
    """
    if not isinstance(aspect, Mapping):
        raise TypeError("is missing")
    if aspect.keys() == {"json"} and content_type == JSON_CONTENT_TYPE:
        return json.loads(json.dumps(aspect["json"], allow_nan=False))
    if aspect.keys() != {"value", "contentType"}:
        raise ValueError(
            f"has the keys {sorted(aspect)}, want value and contentType ({content_type})"
        )
    if aspect["contentType"] != content_type:
        raise ValueError(f"contentType {aspect['contentType']!r}, want {content_type!r}")
    return json.loads(aspect["value"], parse_constant=_refuse_constant)


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON compliant")


def _field_path_violations(schema: Any) -> Iterator[str]:
    """Yield the field paths that a schema has twice, which GMS refuses (``FieldPathValidator``)."""
    fields = schema.get("fields") if isinstance(schema, Mapping) else None
    paths = Counter(
        field["fieldPath"]
        for field in (fields if isinstance(fields, list) else [])
        if isinstance(field, Mapping) and isinstance(field.get("fieldPath"), str)
    )
    for path, count in paths.items():
        if count > 1:
            yield f"schemaMetadata.fields: fieldPath {path!r} occurs {count} times"
        if not path.strip():
            yield "schemaMetadata.fields: a fieldPath is empty"


def _differences(given: Any, written: Any, path: str) -> Iterator[str]:
    if isinstance(given, Mapping) and isinstance(written, Mapping):
        for key in sorted(given.keys() | written.keys()):
            if key not in given:
                yield f"{path}.{key}: missing, acryl-datahub writes {written[key]!r}"
            elif key not in written:
                yield f"{path}.{key}: acryl-datahub leaves it out, found {given[key]!r}"
            else:
                yield from _differences(given[key], written[key], f"{path}.{key}")
    elif isinstance(given, list) and isinstance(written, list) and len(given) == len(written):
        for index, pair in enumerate(zip(given, written, strict=True)):
            yield from _differences(*pair, f"{path}[{index}]")
    elif given != written:
        yield f"{path}: acryl-datahub writes {written!r}, found {given!r}"
