"""Whether a JSON patch of an aspect is one that GMS's patch templates can apply.

The paths are those of acryl-datahub's patch builders: an array is addressed by the keys of its
items, not by index.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.oracles.strict_model import (
    ArrayOf,
    Definition,
    Field,
    MapOf,
    Model,
    OneOf,
    Primitive,
    Record,
    Type,
)
from tests.oracles.strict_urns import UNIT_SEPARATOR, urn_problems
from tests.oracles.strict_values import Place, record_violations, urn_violations, value_violations

_OPERATIONS = frozenset({"add", "remove", "replace"})
_ENVELOPE_KEYS = frozenset({"arrayPrimaryKeys", "patch", "forceGenericPatch"})
_EDGE_KEY = "destinationUrn"
_NO_QUERY = "NONE"


@dataclass(frozen=True, slots=True)
class _Operation:
    """One operation on a field of the aspect; ``keys`` is the rest of its path, unescaped."""

    op: str
    field: Field
    keys: tuple[str, ...]
    value: Any
    place: Place


def patch_violations(model: Model, aspect_name: str, document: Any) -> Iterator[str]:
    """Yield the errors of a patch: a list of operations, or the object around one that names keys
    of arrays.
    """
    primary_keys: Any = {}
    operations = document
    if isinstance(document, Mapping):
        for name in sorted(document.keys() - _ENVELOPE_KEYS):
            yield f"{aspect_name}: {name!r} is not part of a patch"
        primary_keys, operations = document.get("arrayPrimaryKeys", {}), document.get("patch")
    if not isinstance(operations, list) or not operations:
        yield f"{aspect_name}: a patch must be a list of operations that is not empty"
        return
    record = model.aspects[aspect_name]
    key_problems = list(_primary_key_violations(aspect_name, record, primary_keys))
    yield from key_problems
    for index, raw in enumerate(operations):
        where = f"{aspect_name} patch[{index}]"
        shape_problems = list(
            _shape_violations(raw, record, where, {} if key_problems else primary_keys)
        )
        yield from shape_problems
        if not shape_problems and not key_problems:
            operation = _operation(raw, record, where)
            yield from _operation_violations(
                model, operation, primary_keys.get(operation.field.name)
            )


def _primary_key_violations(aspect_name: str, record: Record, primary_keys: Any) -> Iterator[str]:
    if not isinstance(primary_keys, Mapping):
        yield f"{aspect_name}: arrayPrimaryKeys is not an object"
        return
    for name, keys in primary_keys.items():
        if name not in record.fields:
            yield f"{aspect_name}: arrayPrimaryKeys names {name!r}, which is not a field of the aspect"
        if not isinstance(keys, list) or not keys or not all(isinstance(key, str) for key in keys):
            yield f"{aspect_name}: arrayPrimaryKeys of {name!r} is not a list of field names"


def _shape_violations(
    raw: Any, record: Record, where: str, primary_keys: Mapping[str, Any]
) -> Iterator[str]:
    if not isinstance(raw, Mapping) or not raw.keys() <= {"op", "path", "value"}:
        yield f"{where}: an operation has op, path and value, not {str(raw)[:80]}"
        return
    if str(raw.get("op")) not in _OPERATIONS:
        yield f"{where}: op {raw.get('op')!r} is not one of {sorted(_OPERATIONS)}"
    elif raw["op"] != "remove" and raw.get("value") is None:
        yield f"{where}: op {raw['op']!r} without a value"
    path = raw.get("path")
    if not isinstance(path, str) or not path.startswith("/") or re.search("~(?![01])", path):
        yield f"{where}: {path!r} is not a JSON pointer"
        return
    name, *keys = _pointer_parts(path)
    if name not in record.fields:
        yield f"{where}: path {path!r} starts at {name!r}, which is not a field of the aspect"
    # Only a key that the patch itself names may be empty, e.g. the source of a tag that nobody
    # attributed.
    elif "" in keys and name not in primary_keys:
        yield f"{where}: path {path!r} has an empty part"


def _pointer_parts(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _operation(raw: Mapping[str, Any], record: Record, where: str) -> _Operation:
    name, *keys = _pointer_parts(raw["path"])
    field = record.fields[name]
    return _Operation(raw["op"], field, tuple(keys), raw.get("value"), Place(where).field(field))


def _operation_violations(
    model: Model, operation: _Operation, primary_keys: Sequence[str] | None
) -> Iterator[str]:
    type_ = _present(model, operation.field.type)
    if not operation.keys:
        if operation.op != "remove":
            yield from value_violations(
                model, operation.value, operation.field.type, operation.place
            )
    elif isinstance(type_, MapOf):
        yield from _map_entry(model, operation, type_.values)
    elif not isinstance(type_, ArrayOf):
        yield f"{operation.place.path}: path goes on below a field that is neither a map nor an array"
    elif primary_keys is not None:
        yield from _keyed_item(model, operation, type_.items, primary_keys)
    elif operation.field.name == "fineGrainedLineages":
        yield from _fine_grained_lineage(model, operation, type_.items)
    else:
        yield from _item(model, operation, type_.items)


def _present(model: Model, type_: Type) -> Definition:
    """Return the definition of a type without its ``null``."""
    match model.resolve(type_):
        case OneOf((branch,), _):
            return model.resolve(branch)
        case definition:
            return definition


def _map_entry(model: Model, operation: _Operation, values: Type) -> Iterator[str]:
    place = operation.place.below(f"[{operation.keys[0]!r}]", "/$")
    if len(operation.keys) != 1:
        yield f"{place.path}: path has {len(operation.keys)} keys of a map, want 1"
    elif operation.op != "remove":
        yield from value_violations(model, operation.value, values, place)


def _item(model: Model, operation: _Operation, items: Type) -> Iterator[str]:
    """Check an item of an array that GMS's template keys by a URN: an edge, or a URN alone."""
    place = operation.place.item("")
    definition = model.resolve(items)
    if isinstance(definition, Primitive):
        yield from urn_violations(model, operation.keys[0], place)
        return
    if isinstance(definition, Record) and _EDGE_KEY in definition.fields:
        yield from _edge_key(model, operation, place.field(definition.fields[_EDGE_KEY]))
    if operation.op != "remove":
        yield from value_violations(model, operation.value, items, place)


def _edge_key(model: Model, operation: _Operation, place: Place) -> Iterator[str]:
    if len(operation.keys) != 1:
        yield f"{place.path}: path has {len(operation.keys)} keys of an edge, want its URN (is / in it escaped as ~1?)"
        return
    [urn] = operation.keys
    yield from urn_violations(model, urn, place)
    if (
        operation.op != "remove"
        and isinstance(operation.value, Mapping)
        and operation.value.get(_EDGE_KEY) != urn
    ):
        yield f"{place.path}: {operation.value.get(_EDGE_KEY)!r} differs from {urn!r} in the path"


def _fine_grained_lineage(model: Model, operation: _Operation, items: Type) -> Iterator[str]:
    """Check ``/fineGrainedLineages/<transform>/<downstream>/<query or NONE>/<upstream>``, GMS's
    template.
    """
    path = operation.place.path
    if len(operation.keys) != 4:
        yield f"{path}: path has {len(operation.keys)} keys, want transform, downstream, query and upstream"
        return
    _, downstream, query, upstream = operation.keys
    wanted = [
        ("downstream", downstream, {"schemaField"}),
        ("upstream", upstream, {"schemaField", "dataset"}),
    ]
    if query != _NO_QUERY:
        wanted.append(("query", query, {"query"}))
    for name, urn, entity_types in wanted:
        for problem in urn_problems(model, urn, strict=True, entity_types=entity_types):
            yield f"{path}: {name}: {problem.reason}"
    definition = model.resolve(items)
    if operation.op != "remove" and isinstance(definition, Record):
        yield from record_violations(
            model, operation.value, definition, operation.place.item(""), is_partial=True
        )


def _keyed_item(
    model: Model, operation: _Operation, items: Type, primary_keys: Sequence[str]
) -> Iterator[str]:
    """Check an item by the keys that the patch names; fewer keys than named remove all items that
    begin so.
    """
    place = operation.place.item("")
    if operation.op == "remove":
        if len(operation.keys) > len(primary_keys):
            yield f"{place.path}: path has {len(operation.keys)} keys, arrayPrimaryKeys names {len(primary_keys)}"
        return
    found = list(operation.keys)
    expected = [_key_of(operation.value, key) for key in primary_keys]
    if found != expected:
        yield f"{place.path}: keys {found} in the path differ from {expected} in the value"
    yield from value_violations(model, operation.value, items, place)


def _key_of(value: Any, key: str) -> str:
    for name in key.split(UNIT_SEPARATOR):
        value = value.get(name) if isinstance(value, Mapping) else None
    return "" if value is None else str(value)
