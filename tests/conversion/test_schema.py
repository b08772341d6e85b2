"""``schemaMetadata`` (Deviation 1)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from datahub.metadata.schema_classes import SchemaMetadataClass
from datahub.utilities.hive_schema_to_avro import get_schema_fields_for_hive_column
from datahub.utilities.urns.field_paths import get_simple_field_path_from_v2_field_path

from airflow_provider_spark_datahub.conversion.facets.dataset import schema_metadata
from tests.conversion.builders import (
    Json,
    column,
    column_lineage,
    file,
    find,
    only_job,
    proposals,
    query,
    schema,
    urn,
    whole_application,
)

PLATFORM = "urn:li:dataPlatform:s3"


def metadata(*fields: tuple[str, str] | Json) -> Json:
    aspect = schema_metadata(schema(*fields), PLATFORM)
    assert aspect is not None
    return aspect


def kind(field: Json) -> str:
    (name,) = field["type"]["type"]
    return str(name).removeprefix("com.linkedin.schema.")


@pytest.mark.parametrize(
    ("native", "expected"),
    [
        *((native, "StringType") for native in ("string", "STRING", "char(3)", "varchar(10)")),
        *(
            (native, "NumberType")
            for native in ("byte", "short", "int", "integer", "long", "bigint", "float", "double")
        ),
        *((native, "NumberType") for native in ("tinyint", "smallint", "decimal(10,2)", "decimal(38, 18)", "decimal")),
        ("boolean", "BooleanType"),
        ("date", "DateType"),
        *((native, "TimeType") for native in ("timestamp", "timestamp_ntz", "timestamp_ltz")),
        *((native, "TimeType") for native in ("interval", "interval day to second", "interval year to month")),
        ("binary", "BytesType"),
        ("array", "ArrayType"),
        ("array<string>", "ArrayType"),
        ("map<string,int>", "MapType"),
        ("struct<a:int>", "RecordType"),
        ("variant", "RecordType"),
        ("void", "NullType"),
        ("no such type", "NullType"),
    ],
)
def test_types_are_mapped(native: str, expected: str) -> None:
    (field,) = metadata(("c", native))["fields"]
    assert (field["fieldPath"], field["nativeDataType"], kind(field)) == ("c", native, expected)


def test_the_schema_aspect_equals_acryl_datahubs() -> None:
    aspect = metadata({"name": "id", "type": "long", "description": "key"}, ("at", "timestamp"))
    assert {key: aspect[key] for key in ("schemaName", "platform", "version", "hash")} == {
        "schemaName": "",
        "platform": PLATFORM,
        "version": 1,
        "hash": "",
    }
    # The fields as they came, as the Java listener writes them.
    assert aspect["platformSchema"]["com.linkedin.schema.MySqlDDL"]["tableSchema"] == (
        '[{"name":"id","type":"long","description":"key"},{"name":"at","type":"timestamp"}]'
    )
    assert SchemaMetadataClass.from_obj(aspect, tuples=False).validate()


def open_lineage(hive_type: str) -> Json:
    """Return a Hive type as OpenLineage's Spark listener writes a field's type, with nested fields below."""
    name, _, inside = hive_type.partition("<")
    parts = _split(inside.removesuffix(">")) if inside else []
    if name == "struct":
        children = [{"name": part.partition(":")[0], **open_lineage(part.partition(":")[2])} for part in parts]
    elif name == "array":
        children = [{"name": "_element", **open_lineage(parts[0])}]
    elif name == "map":
        children = [{"name": side, **open_lineage(part)} for side, part in zip(("key", "value"), parts, strict=True)]
    else:
        return {"type": hive_type}
    return {"type": name, "fields": children}


def _split(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


@pytest.mark.parametrize(
    "hive_type",
    [
        "struct<a:int,b:struct<c:string>>",
        "struct<a:array<int>,m:map<string,string>,d:decimal(3,1),f:float,x:boolean,day:date>",
        "array<string>",
        "array<struct<a:int>>",
        "array<array<struct<x:int>>>",
        "map<string,int>",
        "map<string,struct<a:int>>",
        "array<map<string,struct<a:bigint>>>",
    ],
)
def test_nested_field_paths_equal_acryl_datahubs(hive_type: str) -> None:
    fields = metadata({"name": "c", **open_lineage(hive_type)})["fields"]
    expected = get_schema_fields_for_hive_column("c", hive_type)
    assert [(field["fieldPath"], f"{kind(field)}Class") for field in fields] == [
        (field.fieldPath, type(field.type.type).__name__) for field in expected
    ]


@pytest.mark.parametrize("element", ["_element", "element", "array_element", "item"])
def test_elements_of_arrays_may_have_any_name(element: str) -> None:
    field = {"name": "c", "type": "array", "fields": [{"name": element, "type": "int"}]}
    (described,) = metadata(field)["fields"]
    assert described["fieldPath"] == "[version=2.0].[type=struct].[type=array].[type=int].c"
    assert described["type"]["type"] == {"com.linkedin.schema.ArrayType": {"nestedType": ["int"]}}


def test_fields_of_a_struct_may_be_right_below_its_array() -> None:
    field = {"name": "c", "type": "array", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "date"}]}
    assert [re.sub(r"\[[^]]*]\.", "", each["fieldPath"]) for each in metadata(field)["fields"]] == ["c", "c.a", "c.b"]


def test_maps_have_keys_and_values() -> None:
    children = [{"name": "key", "type": "int"}, {"name": "value", "type": "double"}]
    (described,) = metadata({"name": "c", "type": "map", "fields": children})["fields"]
    assert described["type"]["type"] == {"com.linkedin.schema.MapType": {"keyType": "int", "valueType": "double"}}


@pytest.mark.parametrize("facet", [{}, {"fields": None}, {"fields": "x"}, {"fields": {}}])
def test_a_facet_without_fields_is_ignored(facet: Any) -> None:
    assert schema_metadata(facet, PLATFORM) is None


@pytest.mark.parametrize(
    "broken",
    [None, 1, {}, {"name": None, "type": "int"}, {"name": ""}, {"type": "int"}],
)
def test_a_broken_field_affects_no_other(broken: Any) -> None:
    # Deviation 15.
    facet = {"fields": [broken, {"name": "a", "type": "int"}]}
    aspect = schema_metadata(facet, PLATFORM)
    assert aspect is not None
    assert [field["fieldPath"] for field in aspect["fields"]] == ["a"]


@pytest.mark.parametrize("broken", [{}, {"type": None}, {"type": 1}, {"type": "struct", "fields": None}])
def test_a_field_without_type_keeps_its_name(broken: Json) -> None:
    # Deviation 15.
    (field,) = metadata({"name": "a", **broken})["fields"]
    assert field["fieldPath"] == "a"
    assert field["nativeDataType"] == (broken["type"] if broken.get("fields", 0) is None else "")


def test_a_field_path_is_written_once() -> None:
    # GMS refuses a schema with the same path twice; the first field counts.
    (field,) = metadata(("a", "int"), ("a", "string"))["fields"]
    assert kind(field) == "NumberType"


def test_a_schema_may_have_no_fields() -> None:
    assert metadata()["fields"] == []
    assert json.loads(metadata()["platformSchema"]["com.linkedin.schema.MySqlDDL"]["tableSchema"]) == []


def test_a_struct_deeper_than_any_table_is_cut() -> None:
    field: Json = {"name": "leaf", "type": "int"}
    for _ in range(400):
        field = {"name": "s", "type": "struct", "fields": [field]}
    aspect = schema_metadata({"fields": [field]}, PLATFORM)
    assert aspect is not None
    assert len(aspect["fields"]) == 51


NESTED: list[Json] = [
    {"name": "tags", "type": "array<string>", "fields": [{"name": "_element", "type": "string"}]},
    {
        "name": "items",
        "type": "array",
        "fields": [{"name": "_element", "type": "struct", "fields": [{"name": "sku", "type": "string"}]}],
    },
    {"name": "price", "type": "struct", "fields": [{"name": "amount", "type": "decimal(10,2)"}]},
    {
        "name": "labels",
        "type": "map",
        "fields": [{"name": "key", "type": "string"}, {"name": "value", "type": "int"}],
    },
]


def test_columns_of_nested_types_match_their_lineage() -> None:
    # DataHub's pages and its SQL parser look for the lineage of a field's plain path (its column's name).
    names = ["id", *(field["name"] for field in NESTED)]
    lineage = column_lineage({name: [column("/a", name, "DIRECT:IDENTITY")] for name in names})
    output = file("/z", schema=schema(("id", "long"), *NESTED), columnLineage=lineage)
    options: Json = {"materialize_dataset": True, "include_schema_metadata": True}
    found = proposals(only_job(whole_application(query(outputs=[output])), **options), **options)
    fields = find(found, "schemaMetadata").aspect["fields"]
    assert any(field["fieldPath"].startswith("[version=2.0]") for field in fields)
    simple = [get_simple_field_path_from_v2_field_path(field["fieldPath"]) for field in fields]
    assert simple == ["id", "tags", "items", "items.sku", "price", "price.amount", "labels"]
    shown = {f"urn:li:schemaField:({urn('file', '/z')},{path})" for path in simple if "." not in path}
    edges = find(found, "dataJobInputOutput").aspect["fineGrainedLineages"]
    assert {downstream for edge in edges for downstream in edge["downstreams"]} == shown


def test_a_column_whose_name_is_not_text_is_left_out() -> None:
    # Iceberg's own columns are left out by name, and a name may be a list.
    fields = [{"name": ["evil"], "type": "int"}, {"name": "_file", "type": "string"}, {"name": "id", "type": "int"}]
    table = file("/ice", schema={"fields": fields}, storage={"storageLayer": "iceberg"})
    options: Json = {"materialize_dataset": True, "include_schema_metadata": True}
    found = proposals(only_job(whole_application(query(outputs=[table])), **options), **options)
    fields = find(found, "schemaMetadata").aspect["fields"]
    assert [field["fieldPath"].rpartition(".")[2] for field in fields] == ["id"]
