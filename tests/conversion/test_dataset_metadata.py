"""Documentation, owners and tags of datasets, spelled as acryl-datahub's own patch builder spells them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from datahub.metadata.schema_classes import OwnerClass, OwnershipSourceClass, TagAssociationClass
from datahub.specific.dataset import DatasetPatchBuilder

from airflow_provider_spark_datahub.conversion.facets.dataset import DatasetMetadata
from airflow_provider_spark_datahub.conversion.proposals import Proposal
from tests.conversion.builders import (
    Json,
    application,
    file,
    find,
    find_all,
    only_job,
    proposals,
    query,
    schema,
    symlink,
    urn,
    whole_application,
)
from tests.oracles.strict import canonical_violations

TARGET = urn("file", "/z")
JANE, DATA = "urn:li:corpuser:jane", "urn:li:corpGroup:data/eng"
ALL: Json = {"capture_dataset_documentation": True, "capture_dataset_owners": True, "capture_dataset_tags": True}
WITH_SCHEMAS: Json = {"materialize_dataset": True, "include_schema_metadata": True}
ADDRESS: Json = {
    "name": "address",
    "type": "struct",
    "fields": [{"name": "zip", "type": "string", "description": "ZIP"}],
}
FACETS: Json = {
    "documentation": {"description": "All orders, 1/day"},
    "ownership": {"owners": [{"name": "jane", "type": "DATA_STEWARD"}, {"name": "team:data/eng"}]},
    "tags": {
        "tags": [
            {"key": "pii", "value": "true", "source": "SPARK"},
            {"key": "tier", "value": "1/2"},
            {"key": "email", "value": "true", "field": "mail"},
            {"key": "geo", "value": "", "field": "address.zip"},
        ]
    },
    "schema": schema({"name": "mail", "type": "string", "description": "Address "}, ("id", "long"), ADDRESS),
}


def written(*datasets: Json, inputs: list[Json] | None = None, **options: Any) -> list[Proposal]:
    events = whole_application(query(inputs=inputs or [], outputs=datasets))
    found = proposals(only_job(events, **options), **options)
    assert [violation for each in found for violation in canonical_violations(each.to_obj())] == []
    return found


def patches(found: list[Proposal], dataset: str = TARGET) -> dict[str, Any]:
    return {each.aspect_name: each.aspect for each in found if each.entity_urn == dataset}


def built(builder: DatasetPatchBuilder) -> dict[str, Any]:
    return {
        str(mcp.aspectName): json.loads(mcp.aspect.value) for mcp in builder.build() if mcp.aspect and mcp.aspectName
    }


def owner(who: str, kind: str) -> OwnerClass:
    return OwnerClass(owner=who, type=kind, source=OwnershipSourceClass(type="SERVICE"))


def test_patches_equal_those_of_acryl_datahub() -> None:
    expected = DatasetPatchBuilder(TARGET).set_description("All orders, 1/day")
    expected.add_owner(owner(JANE, "DATA_STEWARD")).add_owner(owner(DATA, "TECHNICAL_OWNER"))
    expected.add_tag(TagAssociationClass("urn:li:tag:pii")).add_tag(TagAssociationClass("urn:li:tag:tier:1/2"))
    found = written(file("/z", **FACETS), **ALL)
    assert patches(found) == built(expected)
    assert {each.change_type for each in found if each.entity_urn == TARGET} == {"PATCH"}


@pytest.mark.parametrize(
    ("option", "aspect"),
    [
        ("capture_dataset_documentation", "datasetProperties"),
        ("capture_dataset_owners", "ownership"),
        ("capture_dataset_tags", "globalTags"),
    ],
)
def test_each_setting_writes_its_aspect(option: str, aspect: str) -> None:
    options: Json = {option: True}
    assert list(patches(written(file("/z", **FACETS), **options))) == [aspect]


def test_metadata_is_off_by_default() -> None:
    assert patches(written(file("/z", **FACETS))) == {}
    bare = {"schema": schema(("mail", "string"), ("id", "long"), {**ADDRESS, "fields": [ADDRESS["fields"][0]]})}
    plain = find(written(file("/z", **FACETS), **WITH_SCHEMAS), "schemaMetadata").aspect["fields"]
    assert plain == find(written(file("/z", **bare), **WITH_SCHEMAS), "schemaMetadata").aspect["fields"]


def test_inputs_have_metadata_too() -> None:
    found = written(inputs=[file("/a", **FACETS)], **ALL)
    assert list(patches(found, urn("file", "/a"))) == ["datasetProperties", "ownership", "globalTags"]


def test_field_metadata_is_part_of_the_schema() -> None:
    options = ALL | WITH_SCHEMAS
    fields = find(written(file("/z", **FACETS), **options), "schemaMetadata").aspect["fields"]
    described = {field["fieldPath"]: (field.get("description"), field.get("globalTags")) for field in fields}
    assert described == {
        "mail": ("Address", {"tags": [{"tag": "urn:li:tag:email"}]}),
        "id": (None, None),
        "[version=2.0].[type=struct].[type=struct].address": (None, None),
        "[version=2.0].[type=struct].[type=struct].address.[type=string].zip": (
            "ZIP",
            {"tags": [{"tag": "urn:li:tag:geo"}]},
        ),
    }


def test_the_last_facet_counts_and_a_missing_one_removes_nothing() -> None:
    said = [{"documentation": {"description": "old"}}, {"documentation": {"description": "new"}}, {}]
    events = [
        application("START"),
        *(query("RUNNING", second=second, outputs=[file("/z", **facets)]) for second, facets in enumerate(said)),
        query("COMPLETE", second=9),
        application("COMPLETE", second=59),
    ]
    texts = [json.dumps(each).encode() for each in events]
    for sent in (events, texts):
        found = proposals(only_job(sent, **ALL), **ALL)
        assert find(found, "datasetProperties").aspect == [{"op": "add", "path": "/description", "value": "new"}]


def test_the_later_of_two_paths_to_a_table_counts() -> None:
    # In any order: the table's second path comes again after the first.
    said = [("/w/t", "one"), ("/v/t", "two"), ("/w/t", "three")]
    queries = [
        query(
            "RUNNING",
            second=second,
            outputs=[file(path, symlinks=symlink("hive://x", "db.t"), documentation={"description": text})],
        )
        for second, (path, text) in enumerate(said)
    ]
    found = proposals(only_job(whole_application(*queries, query(second=9)), **ALL), **ALL)
    assert find(found, "datasetProperties").aspect[0]["value"] == "three"


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ({"name": "jane"}, (JANE, "TECHNICAL_OWNER")),
        ({"name": "user:jane", "type": "business owner"}, (JANE, "BUSINESS_OWNER")),
        ({"name": "group:a,b", "type": "CUSTOM"}, ("urn:li:corpGroup:a%2Cb", "TECHNICAL_OWNER")),
        ({"name": "urn:li:corpuser:jane", "type": "MAINTAINER"}, (JANE, "TECHNICAL_OWNER")),
        ({"name": "urn:li:corpuser:a(b"}, ("urn:li:corpuser:a%28b", "TECHNICAL_OWNER")),
        ({"name": "urn:li:dataset:x"}, None),
        ({"name": "user:"}, None),
        ({"name": " "}, None),
        ({"name": 7}, None),
        ({"name": "x" * 600}, None),
        ({}, None),
    ],
)
def test_owners_become_users_and_groups(listed: Json, expected: tuple[str, str] | None) -> None:
    facets = {"ownership": {"owners": [listed, listed, None]}}
    assert DatasetMetadata.read(facets).owners == ((expected,) if expected else ())
    written(file("/z", **facets), **ALL)


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ({"key": "pii"}, "urn:li:tag:pii"),
        ({"key": "pii", "value": "TRUE"}, "urn:li:tag:pii"),
        ({"key": "pii", "value": "false"}, "urn:li:tag:pii:false"),
        ({"key": "a,b", "value": "(c)"}, "urn:li:tag:a%2Cb:%28c%29"),
        ({"key": "urn:li:tag:pii", "value": "true"}, "urn:li:tag:pii"),
        ({"key": "urn:li:tag:"}, None),
        ({"key": ""}, None),
        ({"key": 7, "value": "x"}, None),
        ({"key": "x" * 600}, None),
    ],
)
def test_tags_have_keys_and_values(listed: Json, expected: str | None) -> None:
    facets = {"tags": {"tags": [listed, listed, "x"]}}
    assert DatasetMetadata.read(facets).tags == ((expected,) if expected else ())
    written(file("/z", **facets), **ALL)


@pytest.mark.parametrize("broken", [None, 7, [], "x", {"description": 7, "owners": {}, "tags": None}])
def test_a_broken_facet_affects_no_other(broken: Any) -> None:
    assert patches(written(file("/z", documentation=broken, ownership=broken, tags=broken), **ALL)) == {}
    good = {"documentation": {"description": "x"}, "ownership": broken, "tags": broken}
    assert list(patches(written(file("/z", **good), **ALL))) == ["datasetProperties"]


def test_a_dataset_of_a_failed_query_gets_nothing() -> None:
    events = whole_application(query("FAIL", outputs=[file("/z", **FACETS)]))
    assert find_all(proposals(only_job(events, **ALL), **ALL), "datasetProperties") == []
