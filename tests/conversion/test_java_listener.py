"""150 edge events in three configurations, aspect by aspect, against what DataHub's Java converter
made of them.

Where the two differ, a row of the cases names the deviations of the conversion rules that say so,
and the aspects that differ: exactly those. What stands in them instead is proven where it is
decided.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion import EventError, LineageSettings, convert_run_event
from tests.cases import tables
from tests.conversion.builders import CORPUS, Json, json_lines
from tests.oracles.strict import violations

EDGE = CORPUS / "edge"
CONFIGURATIONS: dict[str, Json] = json.loads(
    (EDGE / "configurations.json").read_text(encoding="utf-8")
)


@dataclass(frozen=True)
class Written:
    """An aspect that a converter writes."""

    entity_type: str
    urn: str
    aspect_name: str
    change_type: str
    aspect: Any

    def to_obj(self) -> Json:
        return {
            "entityType": self.entity_type,
            "entityUrn": self.urn,
            "changeType": self.change_type,
            "aspectName": self.aspect_name,
            "aspect": {"json": self.aspect},
        }


@cache
def edge_events() -> dict[str, Json]:
    names: list[str] = json.loads((EDGE / "names.json").read_text(encoding="utf-8"))
    return dict(zip(names, json_lines(EDGE / "events.ndjson"), strict=True))


@cache
def java_lines(configuration: str) -> dict[str, list[Json]]:
    by_name: dict[str, list[Json]] = {name: [] for name in edge_events()}
    names = list(by_name)
    for line in json_lines(EDGE / f"java-{configuration}.jsonl"):
        by_name[names[line["event"]]].append(line)
    return by_name


def java(configuration: str, name: str) -> list[Written]:
    """Return the aspects that the Java converter wrote: none if it lost the event."""
    lines = java_lines(configuration)[name]
    if any("error" in line for line in lines):
        return []
    return [
        Written(
            line["entityType"],
            line["entityUrn"],
            line["aspectName"],
            line["changeType"],
            without_defaults(line["aspect"]),
        )
        for line in lines
    ]


def ours(configuration: str, event: Json) -> list[Written]:
    try:
        # Deviation 27: written files have a schema by default.
        found = convert_run_event(
            event, LineageSettings.from_mapping({"datasets": "none"}, CONFIGURATIONS[configuration])
        )
    except EventError:
        return []
    return [
        Written(
            each.entity_type,
            each.entity_urn,
            each.aspect_name,
            each.change_type,
            without_defaults(each.aspect),
        )
        for each in found
        # Deviation 18; and an aspect of jobs that the listener writes since July 2026, after these
        # recordings.
        if each.aspect_name != "operation"
        and (each.entity_type, each.aspect_name) != ("dataJob", "dataPlatformInstance")
    ]


_UNKNOWN = {"time": 0, "actor": "urn:li:corpuser:unknown"}
_SDK_DEFAULTS: list[tuple[str, Any]] = [
    ("customProperties", {}),
    ("nullable", False),
    ("recursive", False),
    ("isPartOfKey", False),
    ("partitionSpec", {"partition": "FULL_TABLE_SNAPSHOT", "type": "FULL_TABLE"}),
    ("created", _UNKNOWN),
    ("lastModified", _UNKNOWN),
]


def without_defaults(value: Any) -> Any:
    """Return an aspect without the defaults that acryl-datahub's classes write and the Java classes
    omit.
    """
    if isinstance(value, list):
        return [without_defaults(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: without_defaults(item)
        for key, item in value.items()
        if (key, item) not in _SDK_DEFAULTS
    }


def in_order(written: Iterable[Written]) -> list[str]:
    return sorted(json.dumps(each.to_obj(), sort_keys=True, ensure_ascii=False) for each in written)


DEVIATIONS = {
    name: set(aspects.split()) for name, _, aspects in tables("java_listener")["deviations"][1:]
}


def without_the_run(event: Json, written: list[Written]) -> list[Written]:
    """Deviation 22: the run exists, and each of its events has an id of its own."""
    run = f"urn:li:dataProcessInstance:{event['run']['runId']}"
    left = [each for each in written if (each.aspect_name, each.urn) != ("status", run)]
    assert len(left) == len(written) - bool(written)
    for aspect in [
        each.aspect for each in left if each.aspect_name == "dataProcessInstanceRunEvent"
    ]:
        result = aspect.get("result", {"nativeResultType": aspect["status"]})
        assert aspect.pop("messageId") == result["nativeResultType"]
    return left


@pytest.mark.parametrize("name", edge_events())
def test_aspects_equal_the_java_listeners_except_for_deviations(name: str) -> None:
    event, different = edge_events()[name], set[str]()
    for configuration in CONFIGURATIONS:
        written = ours(configuration, event)
        assert [violations(each.to_obj()) for each in written] == [[]] * len(written)
        differences = set(in_order(without_the_run(event, written))) ^ set(
            in_order(java(configuration, name))
        )
        different |= {json.loads(each)["aspectName"] for each in differences}
    assert different == DEVIATIONS.get(name, set())


def test_the_corpus_is_complete() -> None:
    assert DEVIATIONS.keys() <= edge_events().keys()
    assert len(edge_events()) == 150
    assert all(all(java_lines(configuration).values()) for configuration in CONFIGURATIONS)
