"""Facets of datasets: schemas, documentation, owners, tags, tests, statistics (conversion rules,
section 4).
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from datahub.metadata.schema_classes import (
    OwnerClass,
    OwnershipSourceClass,
    SchemaMetadataClass,
    TagAssociationClass,
)
from datahub.specific.dataset import DatasetPatchBuilder
from datahub.utilities.hive_schema_to_avro import get_schema_fields_for_hive_column
from datahub.utilities.urns.field_paths import get_simple_field_path_from_v2_field_path

from airflow_provider_spark_datahub.conversion import DatasetId, Proposal
from airflow_provider_spark_datahub.conversion.diagnostics import SCHEMAS_LEFT_OUT
from airflow_provider_spark_datahub.conversion.events import Facets, RunEvent
from airflow_provider_spark_datahub.conversion.facets.dataset import (
    DatasetFacets,
    DatasetMetadata,
    OutputStatistics,
    schema_metadata,
)
from airflow_provider_spark_datahub.conversion.runs import lineage
from tests.cases import cases, tables
from tests.conversion.builders import (
    OTHER_QUERY,
    Json,
    application,
    column,
    column_lineage,
    dataset,
    event,
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

# -- ``schemaMetadata`` (Deviation 1)


PLATFORM = "urn:li:dataPlatform:s3"
CONTENT: Json = dict(tables("dataset_facets"))


def metadata(*fields: tuple[str, str] | Json) -> Json:
    return metadata_of(schema(*fields))


def metadata_of(facet: Json) -> Json:
    aspect = schema_metadata(json.dumps(facet).encode(), PLATFORM)
    assert aspect is not None
    return aspect


def kind(field: Json) -> str:
    (name,) = field["type"]["type"]
    return str(name).removeprefix("com.linkedin.schema.")


@cases("dataset_facets")
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
    """Return a Hive type as OpenLineage's Spark listener writes a field's type, with nested fields
    below.
    """
    name, _, inside = hive_type.partition("<")
    parts = _split(inside.removesuffix(">")) if inside else []
    if name == "struct":
        children = [
            {"name": part.partition(":")[0], **open_lineage(part.partition(":")[2])}
            for part in parts
        ]
    elif name == "array":
        children = [{"name": "_element", **open_lineage(parts[0])}]
    elif name == "map":
        children = [
            {"name": side, **open_lineage(part)}
            for side, part in zip(("key", "value"), parts, strict=True)
        ]
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


@cases("dataset_facets")
def test_nested_field_paths_equal_acryl_datahubs(hive_type: str) -> None:
    fields = metadata({"name": "c", **open_lineage(hive_type)})["fields"]
    expected = get_schema_fields_for_hive_column("c", hive_type)
    assert [(field["fieldPath"], f"{kind(field)}Class") for field in fields] == [
        (field.fieldPath, type(field.type.type).__name__) for field in expected
    ]


@cases("dataset_facets")
def test_fields_are_read(fields: Any, expected: list[list[Any]]) -> None:
    found = metadata_of({"fields": fields})["fields"]
    assert [
        [
            field["fieldPath"],
            field["nativeDataType"],
            {kind(field): body for body in field["type"]["type"].values()},
        ]
        for field in found
    ] == expected


def test_a_struct_deeper_than_any_table_is_cut() -> None:
    field: Json = {"name": "leaf", "type": "int"}
    for _ in range(400):
        field = {"name": "s", "type": "struct", "fields": [field]}
    assert len(metadata_of({"fields": [field]})["fields"]) == 51


NESTED: list[Json] = CONTENT["nested"]


def test_columns_of_nested_types_match_their_lineage() -> None:
    # DataHub's pages and its SQL parser look for the lineage of a field's plain path (its column's
    # name).
    names = ["id", *(field["name"] for field in NESTED)]
    lineage = column_lineage({name: [column("/a", name, "DIRECT:IDENTITY")] for name in names})
    output = file("/z", schema=schema(("id", "long"), *NESTED), columnLineage=lineage)
    options: Json = {"datasets": "schemas"}
    found = proposals(only_job(whole_application(query(outputs=[output])), **options), **options)
    fields = find(found, "schemaMetadata").aspect["fields"]
    assert any(field["fieldPath"].startswith("[version=2.0]") for field in fields)
    simple = [get_simple_field_path_from_v2_field_path(field["fieldPath"]) for field in fields]
    assert simple == ["id", "tags", "items", "items.sku", "price", "price.amount", "labels"]
    shown = {
        f"urn:li:schemaField:({urn('file', '/z')},{path})" for path in simple if "." not in path
    }
    edges = find(found, "dataJobInputOutput").aspect["fineGrainedLineages"]
    assert {downstream for edge in edges for downstream in edge["downstreams"]} == shown


def test_a_column_whose_name_is_not_text_is_left_out() -> None:
    # Iceberg's own columns are left out by name, and a name may be a list.
    fields = [
        {"name": ["evil"], "type": "int"},
        {"name": "_file", "type": "string"},
        {"name": "id", "type": "int"},
    ]
    table = file("/ice", schema={"fields": fields}, storage={"storageLayer": "iceberg"})
    options: Json = {"datasets": "schemas"}
    found = proposals(only_job(whole_application(query(outputs=[table])), **options), **options)
    fields = find(found, "schemaMetadata").aspect["fields"]
    assert [field["fieldPath"].rpartition(".")[2] for field in fields] == ["id"]


ID: Json = {"schema": schema(("id", "long"))}


@cases("dataset_facets")
def test_a_file_that_a_job_wrote_has_its_schema(
    namespace: str, name: str, facets: Json, options: Json, described: str | None
) -> None:
    found = written(
        dataset(namespace, name, **facets, **ID), inputs=[file("/read", **ID)], **options
    )
    urns = [urn(*described.split(",", 1))] if described else []
    assert [each.entity_urn for each in find_all(found, "schemaMetadata")] == urns
    assert find_all(found, "datasetKey") == []


@pytest.mark.parametrize("folder", ["/z", "/lake", "/lake/t"])
def test_what_lies_in_the_folder_of_a_table_is_left_to_its_catalogue(folder: str) -> None:
    table = file(folder, symlinks=symlink("hive://h", "db.t"))
    plain = query(outputs=[file("/lake/t/day=1", **ID)], run_id=OTHER_QUERY)
    found = proposals(only_job(whole_application(query(outputs=[table]), plain)))
    assert len(find_all(found, "schemaMetadata")) == (1 if folder == "/z" else 0)


def test_what_a_query_failed_to_write_has_no_schema() -> None:
    found = proposals(only_job(whole_application(query("FAIL", outputs=[file("/z", **ID)]))))
    assert find_all(found, "schemaMetadata") == []


def test_very_many_fields_leave_out_further_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage, "MOST_FIELDS", 3)
    outputs = [
        file(f"/z{number}", schema=schema(("a", "int"), ("b", "int"))) for number in range(5)
    ]
    job = only_job(whole_application(query(outputs=outputs)))
    assert len(find_all(proposals(job), "schemaMetadata")) == 2
    assert job.diagnostics.truncations == {SCHEMAS_LEFT_OUT: 3}


# -- Documentation, owners and tags of datasets, spelled as acryl-datahub's own patch builder spells
# them


TARGET = urn("file", "/z")
JANE, DATA = "urn:li:corpuser:jane", "urn:li:corpGroup:data/eng"
ALL: Json = {"datasets": "none", "dataset_details": ["documentation", "owners", "tags"]}
WITH_SCHEMAS: Json = {"datasets": "schemas"}
FACETS: Json = CONTENT["facets"]


def written(*datasets: Json, inputs: list[Json] | None = None, **options: Any) -> list[Proposal]:
    events = whole_application(query(inputs=inputs or [], outputs=datasets))
    found = proposals(only_job(events, **options), **options)
    assert [violation for each in found for violation in canonical_violations(each.to_obj())] == []
    return found


def patches(found: list[Proposal], dataset: str = TARGET) -> dict[str, Any]:
    of_dataset = (
        each for each in found if each.entity_urn == dataset and each.aspect_name != "operation"
    )
    return {each.aspect_name: each.aspect for each in of_dataset}


def built(builder: DatasetPatchBuilder) -> dict[str, Any]:
    return {
        str(mcp.aspectName): json.loads(mcp.aspect.value)
        for mcp in builder.build()
        if mcp.aspect and mcp.aspectName
    }


def owner(who: str, kind: str) -> OwnerClass:
    return OwnerClass(owner=who, type=kind, source=OwnershipSourceClass(type="SERVICE"))


def test_patches_equal_those_of_acryl_datahub() -> None:
    expected = DatasetPatchBuilder(TARGET).set_description("All orders, 1/day")
    expected.add_owner(owner(JANE, "DATA_STEWARD")).add_owner(owner(DATA, "TECHNICAL_OWNER"))
    expected.add_tag(TagAssociationClass("urn:li:tag:pii")).add_tag(
        TagAssociationClass("urn:li:tag:tier:1/2")
    )
    found = written(file("/z", **FACETS), **ALL)
    assert patches(found) == built(expected)
    assert {each.change_type for each in found if each.aspect_name in built(expected)} == {"PATCH"}


@cases("dataset_facets")
def test_each_detail_has_its_aspect(detail: str, aspect: str) -> None:
    assert list(
        patches(written(file("/z", **FACETS), datasets="none", dataset_details=detail))
    ) == [aspect]


def test_metadata_is_off_by_default() -> None:
    assert list(patches(written(file("/z", **FACETS)))) == ["schemaMetadata"]
    bare = {"schema": schema(("mail", "string"), ("id", "long"), FACETS["schema"]["fields"][2])}
    plain = find(written(file("/z", **FACETS), **WITH_SCHEMAS), "schemaMetadata").aspect["fields"]
    assert (
        plain
        == find(written(file("/z", **bare), **WITH_SCHEMAS), "schemaMetadata").aspect["fields"]
    )


def test_inputs_have_metadata_too() -> None:
    found = written(inputs=[file("/a", **FACETS)], **ALL)
    assert list(patches(found, urn("file", "/a"))) == [
        "datasetProperties",
        "ownership",
        "globalTags",
    ]


def test_field_metadata_is_part_of_the_schema() -> None:
    options = ALL | WITH_SCHEMAS
    fields = find(written(file("/z", **FACETS), **options), "schemaMetadata").aspect["fields"]
    described = [
        [field["fieldPath"], field.get("description"), field.get("globalTags")] for field in fields
    ]
    assert described == CONTENT["metadata_of_fields"][1:]


def test_the_last_facet_counts_and_a_missing_one_removes_nothing() -> None:
    said = [
        {"documentation": {"description": "old"}},
        {"documentation": {"description": "new"}},
        {},
    ]
    events = [
        application("START"),
        *(
            query("RUNNING", second=second, outputs=[file("/z", **facets)])
            for second, facets in enumerate(said)
        ),
        query("COMPLETE", second=9),
        application("COMPLETE", second=59),
    ]
    texts = [json.dumps(each).encode() for each in events]
    for sent in (events, texts):
        found = proposals(only_job(sent, **ALL), **ALL)
        assert find(found, "datasetProperties").aspect == [
            {"op": "add", "path": "/description", "value": "new"}
        ]


def test_the_later_of_two_paths_to_a_table_counts() -> None:
    # In any order: the table's second path comes again after the first.
    said = [("/w/t", "one"), ("/v/t", "two"), ("/w/t", "three")]
    queries = [
        query(
            "RUNNING",
            second=second,
            outputs=[
                file(
                    path, symlinks=symlink("hive://x", "db.t"), documentation={"description": text}
                )
            ],
        )
        for second, (path, text) in enumerate(said)
    ]
    found = proposals(only_job(whole_application(*queries, query(second=9)), **ALL), **ALL)
    assert find(found, "datasetProperties").aspect[0]["value"] == "three"


@cases("dataset_facets")
def test_owners_become_users_and_groups(listed: Json, expected: list[str] | None) -> None:
    facets = {"ownership": {"owners": [listed, listed, None]}}
    assert DatasetMetadata.read(facets).owners == ((tuple(expected),) if expected else ())
    written(file("/z", **facets), **ALL)


@cases("dataset_facets")
def test_tags_have_keys_and_values(listed: Json, expected: str | None) -> None:
    facets = {"tags": {"tags": [listed, listed, "x"]}}
    assert DatasetMetadata.read(facets).tags == ((expected,) if expected else ())
    written(file("/z", **facets), **ALL)


# -- Statistics and lifecycle of an output


@cases("dataset_facets")
def test_statistics_are_read_tolerantly(output_facets: Any, expected: list[int | None]) -> None:
    sent = event(outputs=[{**file("/z"), "outputFacets": output_facets}])
    from_text, from_object = RunEvent.parse(json.dumps(sent).encode()), RunEvent.parse(sent)
    for read in (from_text, from_object):
        assert OutputStatistics.read(read.outputs[0].output_facets) == OutputStatistics(*expected)


@cases("dataset_facets")
def test_lifecycle_changes_are_read_tolerantly(
    facet: Any, change: str, previous: list[str] | None
) -> None:
    expected = DatasetId(*previous) if previous else None
    assert DatasetFacets.of(Facets.of({"lifecycleStateChange": facet})) == (
        None,
        change,
        expected,
        "",
    )
