"""DataHub's metadata model as typed values, read from the Avro schemas that acryl-datahub packages."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import datahub.metadata

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


@dataclass(frozen=True, slots=True)
class Primitive:
    """An Avro primitive, or ``fixed``, which is written as a string."""

    name: str


@dataclass(frozen=True, slots=True)
class Reference:
    """A record or enum by its full name; :meth:`Model.resolve` finds it."""

    full_name: str


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """A JSON array."""

    items: Type


@dataclass(frozen=True, slots=True)
class MapOf:
    """A JSON object with free keys."""

    values: Type


@dataclass(frozen=True, slots=True)
class OneOf:
    """An Avro union; ``branches`` leaves out ``null``."""

    branches: tuple[Type, ...]
    nullable: bool


Type: TypeAlias = Primitive | Reference | ArrayOf | MapOf | OneOf


@dataclass(frozen=True, slots=True)
class UrnRule:
    """What a field's ``Urn`` and ``UrnValidation`` annotations ask of the URN in it.

    :param urn_class: e.g. ``DatasetUrn``, or ``Urn`` for any.
    :param entity_types: the types ``UrnValidation`` names, empty for any.
    :param strict: whether ``UrnValidation`` forbids reserved characters in the key.
    """

    urn_class: str
    entity_types: frozenset[str]
    strict: bool


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a record.

    :param relationships: entity types an URN may have, by its place below the field (``""`` is the
        field itself, ``/*/destinationUrn`` that field of each item), from the ``Relationship``
        annotation.
    """

    name: str
    type: Type
    has_default: bool
    urn: UrnRule | None
    relationships: Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Enum:
    """A named set of symbols."""

    full_name: str
    symbols: frozenset[str]


@dataclass(frozen=True, slots=True)
class Record:
    """A named set of fields."""

    full_name: str
    fields: Mapping[str, Field]


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity type: its key and the aspects it may have (its key aspect among them)."""

    key: Record
    aspects: frozenset[str]


Definition: TypeAlias = Primitive | ArrayOf | MapOf | OneOf | Record | Enum


@dataclass(slots=True)
class Model:
    """All of DataHub's entities, aspects and named types."""

    definitions: dict[str, Record | Enum] = field(default_factory=dict)
    aspects: dict[str, Record] = field(default_factory=dict)
    entities: dict[str, Entity] = field(default_factory=dict)

    def resolve(self, type_: Type) -> Definition:
        """Return the definition behind a reference, or the type itself."""
        return self.definitions[type_.full_name] if isinstance(type_, Reference) else type_

    def entity_type(self, name: str) -> str | None:
        """Return the entity type of that name, whatever its case: GMS's registry ignores it."""
        return next((known for known in self.entities if known.lower() == name.lower()), None)


@functools.cache
def packaged_model() -> Model:
    """Return the model of the installed acryl-datahub."""
    reader = _Reader(Model())
    [package] = datahub.metadata.__path__
    for schema in sorted((Path(package) / "schemas").glob("*.avsc")):
        reader.read(json.loads(schema.read_text(encoding="utf-8")), namespace="")
    return reader.model


@dataclass(frozen=True, slots=True)
class _Reader:
    """Turns Avro's JSON to types, and collects the named types on the way."""

    model: Model

    def read(self, schema: Any, namespace: str) -> Type:
        if isinstance(schema, str):
            return self._by_name(schema, namespace)
        if isinstance(schema, list):
            branches = tuple(self.read(branch, namespace) for branch in schema)
            null = Primitive("null")
            return OneOf(tuple(branch for branch in branches if branch != null), null in branches)
        match schema["type"]:
            case "record":
                return self._record(schema, schema.get("namespace", namespace))
            case "enum":
                return self._enum(schema, schema.get("namespace", namespace))
            case "array":
                return ArrayOf(self.read(schema["items"], namespace))
            case "map":
                return MapOf(self.read(schema["values"], namespace))
            case "fixed":
                return Primitive("bytes")
            case inner:
                return self.read(inner, namespace)

    def _by_name(self, name: str, namespace: str) -> Type:
        return Primitive(name) if name in PRIMITIVES else Reference(_full_name(name, namespace))

    def _enum(self, schema: Mapping[str, Any], namespace: str) -> Reference:
        full_name = _full_name(schema["name"], namespace)
        self.model.definitions.setdefault(full_name, Enum(full_name, frozenset(schema["symbols"])))
        return Reference(full_name)

    def _record(self, schema: Mapping[str, Any], namespace: str) -> Reference:
        full_name = _full_name(schema["name"], namespace)
        record = Record(
            full_name, {each["name"]: self._field(each, namespace) for each in schema["fields"]}
        )
        self.model.definitions.setdefault(full_name, record)
        if aspect := schema.get("Aspect"):
            self._aspect(record, aspect)
        return Reference(full_name)

    def _aspect(self, record: Record, annotation: Mapping[str, Any]) -> None:
        self.model.aspects.setdefault(annotation["name"], record)
        # A key aspect is also defined inside the old snapshot schemas, where it does not say whose
        # key it is.
        if entity := annotation.get("keyForEntity"):
            aspects = frozenset({annotation["name"], *annotation.get("entityAspects", [])})
            self.model.entities[entity] = Entity(record, aspects)

    def _field(self, schema: Mapping[str, Any], namespace: str) -> Field:
        return Field(
            name=schema["name"],
            type=self.read(schema["type"], namespace),
            has_default="default" in schema,
            urn=_urn_rule(schema),
            relationships=_relationships(schema.get("Relationship", {})),
        )


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name else f"{namespace}.{name}"


def _urn_rule(schema: Mapping[str, Any]) -> UrnRule | None:
    if "Urn" not in schema:
        return None
    validation: Mapping[str, Any] = schema.get("UrnValidation", {})
    entity_types: Sequence[str] = validation.get("entityTypes", ())
    return UrnRule(schema["Urn"], frozenset(entity_types), bool(validation.get("strict")))


def _relationships(annotation: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    places = {"": annotation} if "name" in annotation else annotation
    return {
        place: frozenset(each["entityTypes"])
        for place, each in places.items()
        if each.get("entityTypes")
    }
