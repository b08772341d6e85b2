"""Typed values of the converter's options, from text, JSON and plain objects."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from airflow_provider_spark_datahub.conversion import paths

Reader = Callable[[str, object], Any]
"""Takes an option's name as the user spelled it, for messages, and its value."""

ENVIRONMENTS = (
    "DEV", "TEST", "QA", "UAT", "EI", "PRE", "STG", "NON_PROD", "PROD", "CORP",
    "RVW", "PRD", "TST", "SIT", "SBX", "SANDBOX", "CERT",
)  # fmt: skip
"""DataHub's ``FabricType``."""

MIN_LENGTH = 100
"""The least that a limit of texts may be."""

# "on" and "off" because the Java listener's configuration library takes them.
_BOOLEANS = {
    **dict.fromkeys(("true", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "no", "off"), False),
}


class SettingsError(ValueError):
    """An option that does not exist or has a wrong value; the message names it and what to write instead."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like the given one, or ``None`` where none is."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)), None)


def read_text(name: str, value: object) -> str | None:
    """Text without blanks around it; ``None`` where nothing is left."""
    if not isinstance(value, str):
        raise SettingsError(f"{name} is {value!r}, want text")
    return value.strip() or None


def read_boolean(name: str, value: object) -> bool:
    """A boolean, or its usual spellings."""
    if isinstance(value, bool):
        return value
    known = _BOOLEANS.get(value.strip().lower()) if isinstance(value, str) else None
    if known is None:
        raise SettingsError(f"{name} is {value!r}, want true or false")
    return known


def read_seconds(name: str, value: object) -> int:
    """A whole number of seconds, 1 at least."""
    return _whole_number(name, value, "a whole number of seconds", 1)


def read_count(name: str, value: object) -> int:
    """A whole number, 1 at least."""
    return _whole_number(name, value, "a whole number", 1)


def read_length(name: str, value: object) -> int:
    """A number of characters in which a text that was cut can say so."""
    return _whole_number(name, value, "a whole number of characters", MIN_LENGTH)


def _whole_number(name: str, value: object, wanted: str, least: int) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not text.isascii() or not text.isdigit() or int(text) < least:
        raise SettingsError(f"{name} is {value!r}, want {wanted}, {least} at least")
    return int(text)


def read_texts(name: str, value: object) -> tuple[str, ...]:
    """A list of texts, or one text with commas between them."""
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise SettingsError(f"{name} is {value!r}, want a list of texts")
    return tuple(item.strip() for item in items if item.strip())


def read_text_map(name: str, value: object) -> dict[str, str]:
    """An object whose values are texts, or its JSON."""
    value = _from_json(name, value)
    if not isinstance(value, Mapping) or not all(isinstance(part, str) for pair in value.items() for part in pair):
        raise SettingsError(f"{name} is {value!r}, want an object of texts")
    return dict(value)


def read_environment(name: str, value: object) -> str:
    """One of :data:`ENVIRONMENTS`, in either case."""
    text = (read_text(name, value) or "").upper()
    if text not in ENVIRONMENTS:
        close = nearest(text, ENVIRONMENTS)
        hint = f"; did you mean {close!r}?" if close else ""
        raise SettingsError(f"{name} is {value!r}, want one of {', '.join(ENVIRONMENTS)}{hint}")
    return text


def read_job_urn(name: str, value: object) -> str | None:
    """The URN of a DataJob."""
    text = read_text(name, value)
    if text is not None and not text.startswith("urn:li:dataJob:("):
        raise SettingsError(f"{name} is {value!r}, want the URN of a DataJob (urn:li:dataJob:(…))")
    return text


def read_regexp(name: str, value: object) -> str | None:
    """The text of a regular expression."""
    text = read_text(name, value)
    try:
        paths.partition_pattern(text or "")
    except re.error as error:
        raise SettingsError(f"{name} is {value!r}, no regular expression: {error}") from error
    return text


def read_path_specs(name: str, value: object) -> tuple[paths.PathSpec, ...]:
    """``{platform: {alias: spec}}``, ``{platform: [spec, …]}`` or ``{platform: spec}``.

    A spec is ``{"path_spec_list": […], "env": …, "platform_instance": …}``, or its list of patterns alone.
    """
    if isinstance(value, tuple) and all(isinstance(item, paths.PathSpec) for item in value):
        return value
    value = _from_json(name, value)
    if not isinstance(value, Mapping):
        raise SettingsError(f"{name} is {value!r}, want an object: {{platform: {{alias: {{path_spec_list: […]}}}}}}")
    specs: list[paths.PathSpec] = []
    for platform, described in value.items():
        for alias, spec in _aliased(described):
            specs.append(_path_spec(f"{name}.{platform}{'.' if alias else ''}{alias}", platform, alias, spec))
    return tuple(specs)


def _from_json(name: str, value: object) -> object:
    """The object that a text spells as JSON; any other value as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise SettingsError(f"{name} is {value!r}, no JSON: {error}") from error


# Each part of a path spec as PathSpec names it, and as the Java listener does.
_SPEC_PARTS: dict[str, tuple[str, Reader]] = {
    "path_spec_list": ("path_spec_list", read_texts),
    "pathSpecList": ("path_spec_list", read_texts),
    "env": ("env", read_environment),
    "platform_instance": ("platform_instance", read_text),
    "platformInstance": ("platform_instance", read_text),
}


def _aliased(described: object) -> list[tuple[str, object]]:
    if isinstance(described, Mapping) and not _SPEC_PARTS.keys() & described.keys():
        return list(described.items())
    if isinstance(described, list) and described and all(isinstance(item, Mapping) for item in described):
        return [("", item) for item in described]
    return [("", described)]


def _path_spec(name: str, platform: str, alias: str, spec: object) -> paths.PathSpec:
    if isinstance(spec, str | list | tuple):
        spec = {"path_spec_list": spec}
    if not isinstance(spec, Mapping):
        raise SettingsError(f"{name} is {spec!r}, want {{path_spec_list: […], env: …, platform_instance: …}}")
    values: dict[str, Any] = {}
    for key, value in spec.items():
        if key not in _SPEC_PARTS:
            close = nearest(str(key), _SPEC_PARTS)
            hint = f"did you mean {close!r}?" if close else f"known are {', '.join(sorted(_SPEC_PARTS))}"
            raise SettingsError(f"unknown option {name}.{key}; {hint}")
        if value is not None:
            part, read = _SPEC_PARTS[key]
            typed = read(f"{name}.{key}", value)
            if values.setdefault(part, typed) != typed:
                raise SettingsError(f"{name}.{key} contradicts {name}'s other spelling of {part}; keep one of them")
    for pattern in values.get("path_spec_list", ()):
        if "/{table}" not in pattern:
            raise SettingsError(f"{name}: the path spec {pattern!r} has no folder {{table}}")
    return paths.PathSpec(platform=platform, alias=alias, **values)
