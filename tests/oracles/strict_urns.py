"""What GMS asks of an URN, read from the key aspects of DataHub's model."""

from __future__ import annotations

import urllib.parse
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from datahub.metadata.urns import Urn
from datahub.utilities.urns.error import InvalidUrnError

from tests.oracles.strict_model import Entity, Enum, Model

MAX_ENCODED_BYTES = 512
"""GMS's limit for an URL-encoded URN (``ValidationApiUtils``); schema fields are exempt."""

UNIT_SEPARATOR = "\u241f"
"""GMS keeps this character for itself."""


@dataclass(frozen=True, slots=True)
class UrnProblem:
    """One thing wrong with an URN.

    :param reason: what, with the URN in it.
    :param is_dropped: as the URN of a proposal's own entity, GMS answers 200 and drops the
        proposal; else it refuses.
    """

    reason: str
    is_dropped: bool


def urn_problems(
    model: Model, urn: str, *, strict: bool, entity_types: Collection[str] | None = None
) -> list[UrnProblem]:
    """Yield the errors of a URN, in the order GMS would find it.

    :param strict: whether commas and parentheses in a part of the key are forbidden.
    :param entity_types: the types it may have, None for any.
    """
    try:
        prefix, namespace, type_name, key = urn.split(":", 3)
        parts = _key_parts(key)
    except ValueError as error:
        return [UrnProblem(f"{urn!r} is not a URN: {error}", is_dropped=False)]
    if (prefix, namespace) != ("urn", "li"):
        return [UrnProblem(f"{urn!r} does not start with urn:li:", is_dropped=False)]
    entity_type = model.entity_type(type_name)
    if entity_type is None:
        return [
            UrnProblem(
                f"{urn!r}: entity type {type_name!r} is not in the registry", is_dropped=False
            )
        ]
    problems = [
        *_key_problems(model, urn, model.entities[entity_type], parts),
        *_spelling_problems(urn, entity_type),
    ]
    if strict:
        problems += _reserved_character_problems(urn, parts)
    if entity_types is not None and entity_type not in entity_types:
        problems.append(
            UrnProblem(
                f"{urn!r} is a {entity_type}, want one of {sorted(entity_types)}", is_dropped=False
            )
        )
    return problems or list(_sdk_problems(urn))


def _key_parts(key: str) -> list[str]:
    """Return the parts of ``(a,(b,c),d)`` as DataHub's ``TupleKey`` splits them; any other text is
    one part.

    :raises ValueError: if parentheses do not match or a part is empty.
    """
    if not key.startswith("("):
        parts = [key]
    else:
        parts, depth = [""], 0
        for position, character in enumerate(key):
            depth += {"(": 1, ")": -1}.get(character, 0)
            if depth < 1 and position < len(key) - 1:
                raise ValueError("mismatched parentheses")
            if character == "," and depth == 1:
                parts.append("")
            elif 0 < position < len(key) - 1:
                parts[-1] += character
        if depth != 0:
            raise ValueError("mismatched parentheses")
    if "" in parts:
        raise ValueError("an empty part in its key")
    return parts


def _key_problems(model: Model, urn: str, entity: Entity, parts: list[str]) -> Iterator[UrnProblem]:
    fields = entity.key.fields.values()
    if len(fields) != len(parts):
        yield UrnProblem(
            f"{urn!r} has {len(parts)} key parts, its type has {len(fields)}", is_dropped=True
        )
        return
    for field, part in zip(fields, parts, strict=True):
        definition = model.resolve(field.type)
        if isinstance(definition, Enum) and part not in definition.symbols:
            name = definition.full_name.rpartition(".")[2]
            yield UrnProblem(f"{urn!r}: {part!r} is not a {name}", is_dropped=True)
        if field.urn is not None:
            yield from urn_problems(model, part, strict=True)


def _spelling_problems(urn: str, entity_type: str) -> Iterator[UrnProblem]:
    if urn != urn.strip():
        yield UrnProblem(f"{urn!r} has blanks at its ends", is_dropped=True)
    # Java's URLEncoder leaves these four characters as they are.
    if (
        entity_type != "schemaField"
        and len(urllib.parse.quote_plus(urn, safe="*-._", errors="replace")) > MAX_ENCODED_BYTES
    ):
        yield UrnProblem(
            f"{urn!r} is longer than {MAX_ENCODED_BYTES} bytes URL-encoded", is_dropped=True
        )
    if UNIT_SEPARATOR in urn:
        yield UrnProblem(f"{urn!r} has the character U+241F", is_dropped=True)


def _reserved_character_problems(urn: str, parts: list[str]) -> Iterator[UrnProblem]:
    for part in parts:
        # GMS takes a part with an encoded parenthesis as it is
        # (``ValidationApiUtils.validateUrn``).
        is_exempt = part.startswith("urn:li:") or "%28" in part or "%29" in part
        if not is_exempt and any(character in part for character in "(),"):
            yield UrnProblem(f"{urn!r}: reserved character in key part {part!r}", is_dropped=False)


def _sdk_problems(urn: str) -> Iterator[UrnProblem]:
    try:
        Urn.from_string(urn)
    except (InvalidUrnError, AssertionError, ValueError) as error:
        yield UrnProblem(f"{urn!r}: {error}", is_dropped=False)
