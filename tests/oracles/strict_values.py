"""Whether a JSON value is what a type of DataHub's model allows, in the form GMS reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.oracles.strict_model import (
    ArrayOf,
    Enum,
    Field,
    MapOf,
    Model,
    OneOf,
    Primitive,
    Record,
    Type,
    UrnRule,
)
from tests.oracles.strict_urns import urn_problems

_PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "bytes": (str,),
    "string": (str,),
}
_INTEGER_BITS: Mapping[str, int] = {"int": 31, "long": 63}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value is, and what the fields above it ask of an URN there.

    :param path: for messages, e.g. ``dataJobInputOutput.inputDatasetEdges[0].destinationUrn``.
    :param urn: the annotation of the field, which also holds for the items of an array in it.
    :param relationships: per field above, its ``relationships`` and the way from it to here.
    """

    path: str
    urn: UrnRule | None = None
    relationships: tuple[tuple[Mapping[str, frozenset[str]], str], ...] = ()

    def below(self, label: str, step: str, urn: UrnRule | None = None) -> Place:
        """Return a place one step down; ``label`` is for messages, ``step`` for relationships."""
        return Place(
            self.path + label, urn, tuple((each, way + step) for each, way in self.relationships)
        )

    def field(self, field: Field) -> Place:
        """Return the place of a record's field."""
        place = self.below(f".{field.name}", f"/{field.name}", field.urn)
        return dataclasses.replace(
            place, relationships=(*place.relationships, (field.relationships, ""))
        )

    def item(self, label: str) -> Place:
        """Return the place of an array's item."""
        return self.below(f"[{label}]", "/*", self.urn)

    def entity_types(self, model: Model) -> frozenset[str] | None:
        """Return the entity types that a URN here may have; ``None`` for any."""
        if self.urn is not None and self.urn.entity_types:
            return self.urn.entity_types
        related = [each[way] for each, way in self.relationships if way in each]
        if related:
            return frozenset.intersection(*related)
        named = (
            model.entity_type(self.urn.urn_class.removesuffix("Urn"))
            if self.urn is not None
            else None
        )
        return None if named is None else frozenset({named})


def value_violations(model: Model, value: Any, type_: Type | Record, place: Place) -> Iterator[str]:
    """Yield the errors of a value, each with its path."""
    match type_ if isinstance(type_, Record) else model.resolve(type_):
        case Primitive(name):
            yield from _primitive(model, value, name, place)
        case Enum(full_name, symbols):
            if not isinstance(value, str) or value not in symbols:
                yield f"{place.path}: {value!r} is not a {full_name.rpartition('.')[2]}"
        case OneOf() as union:
            yield from _union(model, value, union, place)
        case ArrayOf(items):
            yield from _array(model, value, items, place)
        case MapOf(values):
            yield from _map(model, value, values, place)
        case Record() as record:
            yield from record_violations(model, value, record, place)


def record_violations(
    model: Model, value: Any, record: Record, place: Place, *, is_partial: bool = False
) -> Iterator[str]:
    """Yield the errors of an object that should be this record.

    :param is_partial: whether required fields may be missing, as in a patch.
    """
    if not isinstance(value, Mapping):
        yield f"{place.path}: {_shown(value)} is not an object"
        return
    for name in value:
        if name not in record.fields:
            yield f"{place.path}.{name}: unrecognized field found but not allowed"
    for name, field in record.fields.items():
        if value.get(name) is not None:
            yield from value_violations(model, value[name], field.type, place.field(field))
        elif not field.has_default and not is_partial:
            yield f"{place.path}.{name}: field is required but not found and has no default value"
        elif name in value:
            # Pegasus refuses it in an optional field, too: missing values are left out.
            yield f"{place.path}.{name}: null is not allowed"


def urn_violations(model: Model, urn: str, place: Place) -> Iterator[str]:
    """Yield the errors of a URN at a place that asks for one."""
    strict = place.urn is not None and place.urn.strict
    for problem in urn_problems(model, urn, strict=strict, entity_types=place.entity_types(model)):
        yield f"{place.path}: {problem.reason}"


def _primitive(model: Model, value: Any, name: str, place: Place) -> Iterator[str]:
    if not isinstance(value, _PYTHON_TYPES[name]) or isinstance(value, bool) != (name == "boolean"):
        yield f"{place.path}: {_shown(value)} is not of type {name}"
    elif isinstance(value, int) and name in _INTEGER_BITS and not _fits(value, _INTEGER_BITS[name]):
        yield f"{place.path}: {value} is out of range for {name}"
    elif isinstance(value, str) and place.urn is not None and name == "string":
        yield from urn_violations(model, value, place)


def _fits(value: int, bits: int) -> bool:
    return -(1 << bits) <= value < 1 << bits


def _union(model: Model, value: Any, union: OneOf, place: Place) -> Iterator[str]:
    if value is None:
        if not union.nullable:
            yield f"{place.path}: null is not allowed"
    elif union.nullable and len(union.branches) == 1:
        yield from value_violations(model, value, union.branches[0], place)
    else:
        branches = {_discriminator(model, branch): branch for branch in union.branches}
        if not isinstance(value, Mapping) or len(value) != 1 or not value.keys() <= branches.keys():
            yield f"{place.path}: {_shown(value)} must be wrapped in an object with one key of {sorted(branches)}"
            return
        [(key, inner)] = value.items()
        yield from value_violations(
            model, inner, branches[key], dataclasses.replace(place, path=f"{place.path}/{key}")
        )


def _discriminator(model: Model, branch: Type) -> str:
    """Return the key GMS expects around a value of a union's branch: its Pegasus name, not its Avro
    name.
    """
    match model.resolve(branch):
        case Record(full_name, _) | Enum(full_name, _):
            return full_name.replace(".pegasus2avro", "", 1)
        case Primitive(name):
            return name
        case ArrayOf() | MapOf() | OneOf():
            raise ValueError(
                f"DataHub's model has only named types and primitives in its unions, not {branch}"
            )


def _array(model: Model, value: Any, items: Type, place: Place) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{place.path}: {_shown(value)} is not an array"
        return
    for index, item in enumerate(value):
        yield from value_violations(model, item, items, place.item(str(index)))


def _map(model: Model, value: Any, values: Type, place: Place) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{place.path}: {_shown(value)} is not an object"
        return
    for key, each in value.items():
        yield from value_violations(model, each, values, place.below(f"[{key!r}]", "/$"))


def _shown(value: Any) -> str:
    return f"{type(value).__name__} {str(value)[:60]!r}"
