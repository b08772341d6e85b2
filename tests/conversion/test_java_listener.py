"""150 edge events in three configurations, aspect by aspect, against what DataHub's Java converter made of them.

Where the two differ, a row of EXPLAINED names the deviations of the conversion rules that say so. An explanation is a
function that proves its claim and takes away exactly the difference it explains: the rest must be equal.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
from datahub.utilities.urn_encoder import UrnEncoder

from airflow_provider_spark_datahub.conversion import EventError, LineageSettings, convert_run_event
from tests.conversion.builders import CORPUS, Json, json_lines
from tests.oracles.strict import violations

EDGE = CORPUS / "edge"
CONFIGURATIONS: dict[str, Json] = json.loads((EDGE / "configurations.json").read_text(encoding="utf-8"))


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


@dataclass(frozen=True)
class Case:
    """An event with the results of both converters; the list of a converter that loses the event is empty.

    :param error: of the Java converter, as ``class: message``.
    """

    configuration: str
    event: Json
    java: list[Written]
    ours: list[Written]
    error: str = ""


Explanation = Callable[[Case], Case]


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


def java(configuration: str, name: str) -> tuple[list[Written], str]:
    """Return the aspects that the Java converter wrote, and its error if it lost the event."""
    written = []
    for line in java_lines(configuration)[name]:
        if "error" in line:
            return [], f"{line['error']}: {line['message']}"
        key = (line["entityType"], line["entityUrn"], line["aspectName"], line["changeType"])
        written.append(Written(*key, without_defaults(line["aspect"])))
    return written, ""


def ours(configuration: str, event: Json) -> list[Written]:
    try:
        # Deviation 27: written files have a schema by default.
        found = convert_run_event(
            event, LineageSettings.from_mapping({"datasets": "none"}, CONFIGURATIONS[configuration])
        )
    except EventError:
        return []
    return [
        Written(each.entity_type, each.entity_urn, each.aspect_name, each.change_type, without_defaults(each.aspect))
        for each in found
        if each.aspect_name != "operation"  # Deviation 18
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
    """Return an aspect without the defaults that acryl-datahub's classes write and the Java classes omit."""
    if isinstance(value, list):
        return [without_defaults(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: without_defaults(item) for key, item in value.items() if (key, item) not in _SDK_DEFAULTS}


def in_order(written: Iterable[Written]) -> list[str]:
    return sorted(json.dumps(each.to_obj(), sort_keys=True, ensure_ascii=False) for each in written)


# Walking through the written aspects


def changed(written: list[Written], aspect_name: str, change: Callable[[Any], Any]) -> list[Written]:
    """Return the case with the aspects of this name changed; ``None`` removes them."""
    result = []
    for each in written:
        if each.aspect_name == aspect_name:
            aspect = change(copy.deepcopy(each.aspect))
            if aspect is not None:
                result.append(replace(each, aspect=aspect))
        else:
            result.append(each)
    return result


def the(written: list[Written], aspect_name: str) -> Written:
    (found,) = (each for each in written if each.aspect_name == aspect_name)
    return found


def with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return the value with every text in it changed, except keys."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [with_texts(item, change) for item in value]
    if isinstance(value, dict):
        return {key: with_texts(item, change) for key, item in value.items()}
    return value


def all_texts_changed(written: list[Written], change: Callable[[str], str]) -> list[Written]:
    return [replace(each, urn=change(each.urn), aspect=with_texts(each.aspect, change)) for each in written]


def edges(written: list[Written]) -> list[str]:
    """Return the URNs of the datasets that a job reads and writes."""
    aspect = the(written, "dataJobInputOutput").aspect
    return [edge["destinationUrn"] for key in ("inputDatasetEdges", "outputDatasetEdges") for edge in aspect[key]]


def fine_grained(written: list[Written]) -> list[Json]:
    found: list[Json] = the(written, "dataJobInputOutput").aspect["fineGrainedLineages"]
    return found


def without_input(written: list[Written], urn: str) -> list[Written]:
    """Return the case with one input less; its columns stay."""
    kept = [each for each in written if each.urn != urn]
    kept = changed(
        kept, "dataProcessInstanceInput", lambda aspect: {"inputs": [one for one in aspect["inputs"] if one != urn]}
    )
    return changed(
        kept,
        "dataJobInputOutput",
        lambda aspect: {
            **aspect,
            "inputDatasetEdges": [edge for edge in aspect["inputDatasetEdges"] if edge["destinationUrn"] != urn],
        },
    )


def is_column_of(dataset_urn: str, schema_field_urn: str) -> bool:
    return schema_field_urn.startswith(f"urn:li:schemaField:({dataset_urn},")


def without_columns_of(written: list[Written], urn: str) -> list[Written]:
    def drop(aspect: Json) -> Json:
        for lineage in aspect["fineGrainedLineages"]:
            lineage["upstreams"] = [
                one for one in lineage["upstreams"] if not one.startswith(f"urn:li:schemaField:({urn},")
            ]
        return aspect

    return changed(written, "dataJobInputOutput", drop)


def named_datasets(event: Json) -> Iterator[tuple[str, str]]:
    """Yield namespace and name of every dataset in the event, including those that only column lineage names."""
    for dataset in [*event.get("inputs", []), *event.get("outputs", [])]:
        yield dataset["namespace"], dataset["name"]
        columns = dataset.get("facets", {}).get("columnLineage", {})
        for field in columns.get("fields", {}).values():
            for item in field["inputFields"]:
                yield item["namespace"], item["name"]


# Explanations, by deviation


def lost(error: str, like: str, spelled: Mapping[str, str] | None = None) -> Explanation:
    """The Java converter lost the event; ours is what it wrote for a like event that it could read.

    :param error: part of its error.
    :param like: the other event.
    :param spelled: texts of the other event, and how this one has them.
    """

    def explain(case: Case) -> Case:
        assert error in case.error
        assert case.java == []
        written, other_error = java(case.configuration, like)
        assert not other_error

        def spell(text: str) -> str:
            for before, after in (spelled or {}).items():
                text = text.replace(before, after)
            return text

        return replace(case, java=all_texts_changed(written, spell))

    return explain


def properties(aspect_name: str, expected: Mapping[str, str]) -> Explanation:
    """After :func:`lost`: this event's custom properties are other than the like event's."""

    def explain(case: Case) -> Case:
        def change(aspect: Json) -> Json:
            return {**aspect, "customProperties": dict(expected)}

        return replace(case, java=changed(case.java, aspect_name, change))

    return explain


def d1_types(case: Case) -> Case:
    """Java knows four types and no nested fields: its ``NullType`` is a type here, and a struct has its fields."""

    def names(field: Json) -> list[str]:
        """Return the field's name behind those above it, without the types of a version 2 path."""
        return re.sub(r"\[[^]]*]\.", "", field["fieldPath"]).split(".")

    def kind(field: Json) -> str:
        (name,) = field["type"]["type"]
        return str(name).rpartition(".")[2]

    our_fields = the(case.ours, "schemaMetadata").aspect["fields"]
    top_level = {names(field)[0]: field for field in our_fields if len(names(field)) == 1}

    def as_ours(field: Json) -> Json:
        our_field = top_level[field["fieldPath"]]
        if kind(field) == "NullType":
            assert kind(our_field) != "NullType" or field["nativeDataType"] == "void"
        elif kind(field) == "MapType":
            assert (field["nativeDataType"], kind(our_field)) == ("struct", "RecordType")
        else:
            return field
        return {**field, "fieldPath": our_field["fieldPath"], "type": our_field["type"]}

    def with_our_types(aspect: Json) -> Json:
        return {**aspect, "fields": [as_ours(field) for field in aspect["fields"]]}

    def without_nested(aspect: Json) -> Json:
        return {**aspect, "fields": [field for field in aspect["fields"] if len(names(field)) == 1]}

    java_fields = changed(case.java, "schemaMetadata", with_our_types)
    return replace(case, java=java_fields, ours=changed(case.ours, "schemaMetadata", without_nested))


def d4_parent(case: Case) -> Case:
    """Return the case with the run below the parent that its ``parent`` facet names."""
    parent = f"urn:li:dataProcessInstance:{case.event['run']['facets']['parent']['run']['runId']}"

    def without_parent(aspect: Json) -> Json:
        assert aspect.pop("parentInstance") == parent
        return aspect

    return replace(case, ours=changed(case.ours, "dataProcessInstanceRelationships", without_parent))


def d6_no_invalid_run_event(case: Case) -> Case:
    """Java wrote a run event that GMS refuses; ours has none."""
    assert violations(the(case.java, "dataProcessInstanceRunEvent").to_obj())
    return replace(case, java=changed(case.java, "dataProcessInstanceRunEvent", lambda _: None))


def d6_time_of_creation(case: Case) -> Case:
    """Without ``eventTime``, Java wrote ``created`` without its ``time``, which GMS refuses."""
    assert "eventTime" not in case.event
    assert violations(the(case.java, "dataProcessInstanceProperties").to_obj())

    def with_time(aspect: Json) -> Json:
        return {**aspect, "created": {**aspect["created"], "time": 0}}

    return replace(case, java=changed(case.java, "dataProcessInstanceProperties", with_time))


def d8_inputs_of_columns(case: Case) -> Case:
    """What an output's columns come from was read, also where ``inputs`` does not list it."""
    added = set(edges(case.ours)) - set(edges(case.java))
    upstreams = [column for lineage in fine_grained(case.ours) for column in lineage["upstreams"]]
    written = case.ours
    for urn in added:
        assert any(is_column_of(urn, column) for column in upstreams)
        written = without_input(written, urn)
    return replace(case, ours=written)


def d10_failure_replaces_nothing(case: Case) -> Case:
    """A failed run that read and wrote nothing leaves the job's edges alone; Java replaces them by none."""
    assert case.event["eventType"] in ("FAIL", "ABORT")
    emptied = the(case.java, "dataJobInputOutput")
    assert emptied.change_type == "UPSERT"
    assert not any(emptied.aspect.values())
    return replace(case, java=changed(case.java, "dataJobInputOutput", lambda _: None))


_ILLEGAL_IN_URI = frozenset(' "<>\\^`{|}[]')


def _refused_by_java(namespace: str, name: str) -> bool:
    """Return whether ``java.net.URI`` refuses it (java-listener.md, section 5.2)."""
    scheme, has_scheme, authority = namespace.partition("://")
    legal_scheme = scheme[:1].isalpha() and all(letter.isalnum() or letter in "+-." for letter in scheme)
    return bool(has_scheme) and (not legal_scheme or bool(_ILLEGAL_IN_URI & set(authority + name)))


def d14_names_that_are_no_uri(case: Case) -> Case:
    """Java drops what ``java.net.URI`` cannot read; ours has those datasets and nothing more."""
    refused = {(namespace, name) for namespace, name in named_datasets(case.event) if _refused_by_java(namespace, name)}
    added = set(edges(case.ours)) - set(edges(case.java))
    assert len(added) == len(refused)
    written = case.ours
    for _, name in refused:
        (urn,) = (urn for urn in added if urn.rpartition(",")[0].endswith(name))
        written = without_columns_of(without_input(written, urn), urn)
    return replace(case, ours=written)


def d17_ownership(case: Case) -> Case:
    """Java computes the owners of the ``ownership`` facet and sends none."""
    owners = [owner["name"] for owner in case.event["job"]["facets"]["ownership"]["owners"]]
    assert [owner["owner"] for owner in the(case.ours, "ownership").aspect["owners"]] == [
        f"urn:li:corpuser:{owner}" for owner in owners
    ]
    assert the(case.ours, "ownership").aspect["lastModified"]["time"] == 1_714_557_600_123
    return replace(case, ours=changed(case.ours, "ownership", lambda _: None))


def d21_encoded(case: Case) -> Case:
    """Java's URNs with ``,()`` in the event's names encoded as acryl-datahub's URN classes do."""
    names = {name for _, name in named_datasets(case.event)}
    names |= {case.event["job"]["name"], case.event["job"]["name"].partition(".")[0]}
    for output in case.event["outputs"]:
        for field, described in output["facets"].get("columnLineage", {}).get("fields", {}).items():
            names |= {field, *(item["field"] for item in described["inputFields"])}
    if case.configuration == "lower":
        names |= {name.lower() for name in names}
    reserved = sorted((name for name in names if set(name) & set(",()")), key=len, reverse=True)
    assert reserved

    def encode(text: str) -> str:
        if text.startswith("urn:li:"):
            for name in reserved:
                text = text.replace(name, UrnEncoder.encode_string(name))
        return text

    def encode_key(aspect: Json) -> Json:
        return {**aspect, "name": UrnEncoder.encode_string(aspect["name"])}

    return replace(case, java=changed(all_texts_changed(case.java, encode), "datasetKey", encode_key))


def upstreams_once(case: Case) -> Case:
    """Rules, section 4 and deviation 2: upstreams are a set; Java names a column as often as the event does."""

    def once(aspect: Json) -> Json:
        for lineage in aspect["fineGrainedLineages"]:
            lineage["upstreams"] = list(dict.fromkeys(lineage["upstreams"]))
        return aspect

    return replace(case, java=changed(case.java, "dataJobInputOutput", once))


def one_slash(case: Case) -> Case:
    """Rules, section 3.3: namespace and name are joined by exactly one slash; Java keeps both of theirs."""
    (dataset,) = case.event["inputs"]
    assert dataset["namespace"].endswith("/")
    assert dataset["name"].startswith("/")
    doubled, single = f"/{dataset['name']}", dataset["name"]
    return replace(case, java=all_texts_changed(case.java, lambda text: text.replace(doubled, single)))


def columns_of_the_dataset(case: Case) -> Case:
    """Rules, section 4: inputs that act on all rows are in ``columnLineage.dataset``, which Java does not read."""
    (output,) = case.event["outputs"]
    items = output["facets"]["columnLineage"]["dataset"]
    java_has, ours_has = fine_grained(case.java), fine_grained(case.ours)
    (more,) = (lineage for lineage in ours_has if lineage not in java_has)
    assert [upstream.rpartition(",")[2] for upstream in more["upstreams"]] == [f"{item['field']})" for item in items]
    assert more["transformOperation"] == "INDIRECT:FILTER"

    def without_it(aspect: Json) -> Json:
        return {**aspect, "fineGrainedLineages": [one for one in aspect["fineGrainedLineages"] if one != more]}

    return replace(case, ours=changed(case.ours, "dataJobInputOutput", without_it))


def dataset_without_name(case: Case) -> Case:
    """A dataset whose name is empty is none; Java writes the platform instance as its name."""
    (dataset,) = case.event["inputs"]
    assert dataset["name"] == ""
    (urn,) = edges(case.java)
    assert urn.endswith(f",{CONFIGURATIONS[case.configuration]['dataset_platform_instance']}.,PROD)")
    return replace(case, java=without_input(case.java, urn))


def d22_entity_of_the_run(case: Case) -> Case:
    """The run exists, and each of its events has an id of its own."""
    run = f"urn:li:dataProcessInstance:{case.event['run']['runId']}"
    written = [one for one in case.ours if (one.aspect_name, one.urn) != ("status", run)]
    assert len(written) == len(case.ours) - bool(case.ours)

    def without_id(aspect: Json) -> Json:
        result = aspect.get("result", {"nativeResultType": aspect["status"]})
        assert aspect.pop("messageId") == result["nativeResultType"]
        return aspect

    return replace(case, ours=changed(written, "dataProcessInstanceRunEvent", without_id))


def d22_facets_of_the_run(case: Case) -> Case:
    """Why it failed and that it had a nominal time, which Java does not read."""

    def without_facets(aspect: Json) -> Json:
        message = case.event["run"]["facets"]["errorMessage"]["message"]
        assert aspect.pop("customProperties") == {"errorMessage": message}
        assert aspect.pop("type") == "BATCH_SCHEDULED"
        return aspect

    assert "nominalTime" in case.event["run"]["facets"]
    return replace(case, ours=changed(case.ours, "dataProcessInstanceProperties", without_facets))


PLAIN = "io_missing"
"""An event that has nothing but a job and a run."""

EXPLAINED: dict[str, tuple[Explanation, ...]] = {
    "ns_02_0": (one_slash,),
    **dict.fromkeys(("ns_38_0", "ns_38_2", "ns_39_1"), (d14_names_that_are_no_uri,)),
    **dict.fromkeys(
        (f"name_{kind}_{number}" for kind in ("s3", "pg") for number in ("03", "05", "17", "19")),
        (d14_names_that_are_no_uri,),
    ),
    **dict.fromkeys(("name_s3_09", "name_pg_09", "name_file_10", "name_s3_11", "name_pg_11"), (d21_encoded,)),
    "full name_s3_11": (lost("mismatched paren nesting", like="name_s3_21", spelled={"/a+b": "/a%28b"}),),
    "full name_pg_11": (lost("mismatched paren nesting", like="name_pg_21", spelled={"/a+b": "/a%28b"}),),
    # Deviation 15: it costs only itself.
    "name_pg_13": (lost("Cannot create a Urn from tuple with an empty value", like=PLAIN),),
    "lower name_pg_13": (dataset_without_name,),
    "sym_alias_cll": (d8_inputs_of_columns,),
    "type_ABORT": (d10_failure_replaces_nothing,),
    "err_facet": (d10_failure_replaces_nothing, d22_facets_of_the_run),
    "type_OTHER": (d6_no_invalid_run_event,),
    "time_missing": (d6_no_invalid_run_event, d6_time_of_creation),
    "job_08": (d21_encoded,),
    "parent_unknown": (lost("Unable to determine orchestrator", like=PLAIN), d4_parent),
    # Deviation 15: a null costs only itself.
    "props_null": (lost("java.lang.NullPointerException", like=PLAIN),),
    "airflow_null": (
        lost("java.lang.NullPointerException", like="airflow_tags_bad"),
        properties("dataFlowInfo", {"dag_id": "d"}),
        properties("dataJobInfo", {"y": "1"}),
    ),
    "airflow": (d17_ownership,),
    "full schema_types": (d1_types,),
    "full schema_nested": (d1_types,),
    "cll_multi": (d14_names_that_are_no_uri, d21_encoded, upstreams_once),
    "cll_paren_ok": (d21_encoded, d8_inputs_of_columns),
    "cll_dataset": (d8_inputs_of_columns, columns_of_the_dataset),
}


def explanations(configuration: str, name: str) -> tuple[Explanation, ...]:
    """A row is for an event's name, or for that name under one configuration."""
    return EXPLAINED.get(f"{configuration} {name}", EXPLAINED.get(name, ()))


@pytest.mark.parametrize("name", edge_events())
def test_aspects_equal_the_java_listeners_except_for_deviations(name: str) -> None:
    event = edge_events()[name]
    for configuration in CONFIGURATIONS:
        java_written, error = java(configuration, name)
        case = d22_entity_of_the_run(Case(configuration, event, java_written, ours(configuration, event), error))
        for explain in explanations(configuration, name):
            before = in_order(case.java), in_order(case.ours)
            case = explain(case)
            assert (in_order(case.java), in_order(case.ours)) != before, f"{configuration}: {explain} explains nothing"
        assert in_order(case.ours) == in_order(case.java), configuration


def test_every_explained_deviation_occurs() -> None:
    assert {row.rpartition(" ")[2] for row in EXPLAINED} <= edge_events().keys()


def test_the_corpus_is_complete() -> None:
    assert len(edge_events()) == 150
    assert all(all(java_lines(configuration).values()) for configuration in CONFIGURATIONS)
