"""The strict check accepts what acryl-datahub's own classes write, and refuses what a GMS would refuse or drop."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

import pytest
from datahub.emitter.mcp import MetadataChangeProposalWrapper
from datahub.emitter.serialization_helper import pre_json_transform
from datahub.metadata.schema_classes import (
    AuditStampClass,
    DataFlowInfoClass,
    DataJobInfoClass,
    DataJobInputOutputClass,
    DataProcessInstanceRelationshipsClass,
    DataProcessInstanceRunEventClass,
    DataProcessInstanceRunResultClass,
    DataProcessRunStatusClass,
    EdgeClass,
    FineGrainedLineageClass,
    FineGrainedLineageDownstreamTypeClass,
    FineGrainedLineageUpstreamTypeClass,
    GlobalTagsClass,
    NumberTypeClass,
    OperationClass,
    OtherSchemaClass,
    OwnerClass,
    OwnershipTypeClass,
    RunResultTypeClass,
    SchemaFieldClass,
    SchemaFieldDataTypeClass,
    SchemaMetadataClass,
    StatusClass,
    StringTypeClass,
    SystemMetadataClass,
    TagAssociationClass,
)
from datahub.specific.datajob import DataJobPatchBuilder

from tests.oracles.strict import canonical_violations, dropping_violations, violations

FLOW = "urn:li:dataFlow:(airflow,etl,prod)"
JOB = f"urn:li:dataJob:({FLOW},load)"
RUN = "urn:li:dataProcessInstance:4f1c0d"
FILES = "urn:li:dataset:(urn:li:dataPlatform:s3,bucket/a~b/c,PROD)"
TABLE = "urn:li:dataset:(urn:li:dataPlatform:hive,db.t,PROD)"
FILES_ID, TABLE_ID = f"urn:li:schemaField:({FILES},id)", f"urn:li:schemaField:({TABLE},id)"
QUERY = "urn:li:query:q1"

LINEAGE = FineGrainedLineageClass(
    upstreamType=FineGrainedLineageUpstreamTypeClass.FIELD_SET,
    upstreams=[FILES_ID],
    downstreamType=FineGrainedLineageDownstreamTypeClass.FIELD,
    downstreams=[TABLE_ID],
    transformOperation="IDENTITY",
    query=QUERY,
)
SCHEMA = SchemaMetadataClass(
    schemaName="t",
    platform="urn:li:dataPlatform:hive",
    version=0,
    hash="",
    platformSchema=OtherSchemaClass(rawSchema=""),
    fields=[
        SchemaFieldClass("id", SchemaFieldDataTypeClass(NumberTypeClass.from_obj({})), "long"),
        SchemaFieldClass("name", SchemaFieldDataTypeClass(StringTypeClass.from_obj({})), "string"),
    ],
)

UPSERTS = [
    MetadataChangeProposalWrapper(entityUrn=FLOW, aspect=DataFlowInfoClass("etl", customProperties={"a": "b"})),
    MetadataChangeProposalWrapper(entityUrn=JOB, aspect=DataJobInfoClass("load", "SPARK", flowUrn=FLOW)),
    MetadataChangeProposalWrapper(
        entityUrn=JOB,
        aspect=DataJobInputOutputClass(
            inputDatasets=[],
            outputDatasets=[],
            inputDatasetEdges=[EdgeClass(FILES, lastModified=AuditStampClass(1, "urn:li:corpuser:datahub"))],
            outputDatasetEdges=[EdgeClass(TABLE, properties={"rows": "3"})],
            fineGrainedLineages=[LINEAGE],
        ),
    ),
    MetadataChangeProposalWrapper(
        entityUrn=RUN, aspect=DataProcessInstanceRelationshipsClass(upstreamInstances=[], parentTemplate=JOB)
    ),
    MetadataChangeProposalWrapper(
        entityUrn=RUN,
        aspect=DataProcessInstanceRunEventClass(
            timestampMillis=1,
            status=DataProcessRunStatusClass.COMPLETE,
            result=DataProcessInstanceRunResultClass(RunResultTypeClass.FAILURE, "airflow"),
        ),
    ),
    MetadataChangeProposalWrapper(entityUrn=TABLE, aspect=SCHEMA),
    MetadataChangeProposalWrapper(
        entityUrn=TABLE, aspect=OperationClass(timestampMillis=1, operationType="INSERT", lastUpdatedTimestamp=1)
    ),
    MetadataChangeProposalWrapper(entityUrn=TABLE, aspect=GlobalTagsClass([TagAssociationClass("urn:li:tag:blå")])),
    MetadataChangeProposalWrapper(entityUrn=TABLE_ID, aspect=StatusClass(removed=False)),
]


def stored_form(wrapper: MetadataChangeProposalWrapper) -> dict[str, Any]:
    return dict(wrapper.to_obj(simplified_structure=True))


def patches() -> list[dict[str, Any]]:
    builder = (
        DataJobPatchBuilder(JOB)
        .add_input_dataset(FILES)
        .add_output_dataset(EdgeClass(TABLE, properties={"rows": "3"}))
        .remove_input_dataset(TABLE)
        .add_input_datajob(f"urn:li:dataJob:({FLOW},extract)")
        .add_input_dataset_field(FILES_ID)
        .set_output_datasets([EdgeClass(TABLE)])
        .add_fine_grained_lineage(LINEAGE)
        .add_custom_property("a/b", "c")
        .add_tag(TagAssociationClass("urn:li:tag:spark"))
        .remove_tag("urn:li:tag:old")
        .add_owner(OwnerClass("urn:li:corpuser:ann", OwnershipTypeClass.TECHNICAL_OWNER))
    )
    return [pre_json_transform(proposal.to_obj()) for proposal in builder.build()]


@pytest.mark.parametrize("wrapper", UPSERTS, ids=lambda wrapper: str(wrapper.aspectName))
def test_upserts_of_the_sdk_are_canonical(wrapper: MetadataChangeProposalWrapper) -> None:
    assert canonical_violations(stored_form(wrapper)) == []


@pytest.mark.parametrize("wrapper", UPSERTS, ids=lambda wrapper: str(wrapper.aspectName))
def test_the_wire_form_is_accepted(wrapper: MetadataChangeProposalWrapper) -> None:
    wrapper = copy.copy(wrapper)
    wrapper.systemMetadata = SystemMetadataClass(lastObserved=1, runId="r")
    wire = pre_json_transform(wrapper.to_obj())
    assert wire["aspect"].keys() == {"value", "contentType"}
    assert canonical_violations(wire) == []


@pytest.mark.parametrize("proposal", patches(), ids=lambda proposal: str(proposal["aspectName"]))
def test_patches_of_the_sdk_are_accepted(proposal: Mapping[str, Any]) -> None:
    assert canonical_violations(proposal) == []


def proposal(urn: str, name: str, aspect: Any, **others: Any) -> dict[str, Any]:
    return {
        "entityType": urn.split(":")[2],
        "entityUrn": urn,
        "changeType": "UPSERT",
        "aspectName": name,
        "aspect": {"json": aspect},
        **others,
    }


def dataset(name: str, fabric: str = "PROD") -> str:
    return f"urn:li:dataset:(urn:li:dataPlatform:hive,{name},{fabric})"


def status_of(urn: str) -> dict[str, Any]:
    return proposal(urn, "status", {"removed": False})


def edges(destination: str) -> dict[str, Any]:
    io = {"inputDatasets": [], "outputDatasets": [], "inputDatasetEdges": [{"destinationUrn": destination}]}
    return proposal(JOB, "dataJobInputOutput", io)


JOB_INFO: dict[str, Any] = {"customProperties": {}, "name": "load", "type": {"string": "SPARK"}}
RUN_EVENT = {"timestampMillis": 1, "status": "COMPLETE", "result": {"type": "SUCCESS", "nativeResultType": "spark"}}
OPERATION = {"timestampMillis": 1, "operationType": "INSERT", "lastUpdatedTimestamp": 1}
JSON_TEXT = "application/json"

REFUSED = {
    "entity type differs": (proposal(JOB, "dataJobInfo", JOB_INFO, entityType="dataset"), "is not the type of"),
    "unknown entity": (status_of("urn:li:sparkJob:a"), "entity type 'sparkJob' is not in the registry"),
    "no entity": ({"changeType": "UPSERT", "aspectName": "status", "aspect": {"json": {}}}, "entityUrn: is missing"),
    "no urn": (status_of("urn:xx:dataset:a"), "does not start with urn:li:"),
    "parentheses": (status_of(dataset("db.(t")), "mismatched parentheses"),
    "open parenthesis": (status_of(TABLE[:-1]), "mismatched parentheses"),
    "text after the key": (status_of(TABLE + "x"), "mismatched parentheses"),
    "empty part": (status_of(dataset("")), "empty part"),
    "reserved character": (status_of(dataset("t(1)")), "reserved character in key part 't(1)'"),
    "unknown aspect": (proposal(JOB, "jobInfo", {}), "no aspect is called 'jobInfo'"),
    "aspect of another": (proposal(TABLE, "dataJobInfo", JOB_INFO), "unknown aspect 'dataJobInfo' for entity dataset"),
    "change type: no text": (
        proposal(JOB, "dataJobInfo", JOB_INFO, changeType=["UPSERT"]),
        "changeType: ['UPSERT']",
    ),
    "change type": (proposal(JOB, "dataJobInfo", JOB_INFO, changeType="MERGE"), "changeType: 'MERGE'"),
    "extra key": (proposal(JOB, "dataJobInfo", JOB_INFO, runId="x"), "runId: is not part of a proposal"),
    "system metadata": (proposal(JOB, "dataJobInfo", JOB_INFO, systemMetadata={"runId": 1}), "systemMetadata.runId"),
    "no aspect": (proposal(JOB, "dataJobInfo", {}) | {"aspect": None}, "aspect: is missing"),
    "content type": (
        status_of(JOB) | {"aspect": {"value": '{"removed":false}', "contentType": "text/json"}},
        "contentType 'text/json'",
    ),
    "no JSON": (status_of(JOB) | {"aspect": {"value": "{", "contentType": JSON_TEXT}}, "aspect: Expecting"),
    "missing field": (
        proposal(JOB, "dataJobInfo", {"type": {"string": "SPARK"}}),
        "dataJobInfo.name: field is required but not found and has no default value",
    ),
    "run event without status": (
        proposal(RUN, "dataProcessInstanceRunEvent", {"timestampMillis": 1}),
        "dataProcessInstanceRunEvent.status: field is required",
    ),
    "enum": (proposal(RUN, "dataProcessInstanceRunEvent", {**RUN_EVENT, "status": "DONE"}), "not a DataProcessRunStat"),
    "enum is not text": (proposal(RUN, "dataProcessInstanceRunEvent", {**RUN_EVENT, "status": {}}), "{} is not a Data"),
    "nested enum": (
        proposal(RUN, "dataProcessInstanceRunEvent", {**RUN_EVENT, "result": {"type": "OK", "nativeResultType": "x"}}),
        "RunEvent.result.type: 'OK' is not a RunResultType",
    ),
    "target type": (edges(JOB), "inputDatasetEdges[0].destinationUrn: 'urn:li:dataJob:"),
    "target's reserved character": (edges(dataset("t(1)")), "DatasetUrn name contains reserved characters"),
    "target fabric": (edges(dataset("t", "prod")), "destinationUrn: 'urn:li:dataset:"),
    "class of urn": (
        proposal(JOB, "dataJobInfo", {**JOB_INFO, "flowUrn": JOB}),
        "flowUrn: 'urn:li:dataJob:(urn:li:dataFlow:(airflow,etl,prod),load)' is a dataJob, want one of ['dataFlow']",
    ),
    "union": (proposal(JOB, "dataJobInfo", {**JOB_INFO, "type": "SPARK"}), "must be wrapped in an object with one key"),
    "union branch": (proposal(JOB, "dataJobInfo", {**JOB_INFO, "type": {"str": "SPARK"}}), "must be wrapped"),
    "unknown field": (proposal(JOB, "dataJobInfo", {**JOB_INFO, "owner": "x"}), "owner: unrecognized field found"),
    "null": (proposal(JOB, "dataJobInfo", {**JOB_INFO, "customProperties": None}), "customProperties: null is not"),
    "no record": (proposal(RUN, "dataProcessInstanceRunEvent", {**RUN_EVENT, "result": []}), "is not an object"),
    "no map": (
        proposal(JOB, "dataJobInfo", {**JOB_INFO, "customProperties": []}),
        "customProperties: list '[]' is not",
    ),
    "null in an array": (
        proposal(JOB, "dataJobInputOutput", {"inputDatasets": [None], "outputDatasets": []}),
        "[0]: None",
    ),
    "map of numbers": (proposal(JOB, "dataJobInfo", {**JOB_INFO, "customProperties": {"n": 1}}), "not of type string"),
    "array": (proposal(JOB, "dataJobInputOutput", {"inputDatasets": {}, "outputDatasets": []}), "is not an array"),
    "boolean": (proposal(TABLE, "status", {"removed": 0}), "status.removed: int '0' is not of type boolean"),
    "number": (proposal(TABLE, "operation", {**OPERATION, "timestampMillis": 1.5}), "is not of type long"),
    "range": (proposal(TABLE, "operation", {**OPERATION, "numAffectedRows": 1 << 63}), "out of range for long"),
    "NaN": (edges(TABLE) | {"aspect": {"json": {"fineGrainedLineages": [float("nan")]}}}, "not JSON compliant"),
    "NaN as text": (
        status_of(TABLE) | {"aspect": {"value": '{"removed": NaN}', "contentType": JSON_TEXT}},
        "NaN is not JSON compliant",
    ),
}


@pytest.mark.parametrize(("bad", "message"), REFUSED.values(), ids=REFUSED)
def test_what_gms_refuses_is_refused(bad: dict[str, Any], message: str) -> None:
    found = violations(bad)
    assert any(message in each for each in found), found
    assert dropping_violations(bad) == []


DROPPED = {
    "fabric": (status_of(dataset("t", "PRODUCTION")), "'PRODUCTION' is not a FabricType"),
    "key parts": (status_of("urn:li:dataset:(urn:li:dataPlatform:hive,t)"), "has 2 key parts, its type has 3"),
    "blanks": (status_of("urn:li:tag:spark "), "has blanks at its ends"),
    "length": (status_of(dataset("x" * 600)), "is longer than 512 bytes URL-encoded"),
    "length of other letters": (status_of(dataset("å" * 100)), "is longer than 512 bytes URL-encoded"),
    "separator": (status_of(dataset("a\u241fb")), "has the character U+241F"),
}


@pytest.mark.parametrize(("bad", "message"), DROPPED.values(), ids=DROPPED)
def test_what_gms_drops_is_refused(bad: dict[str, Any], message: str) -> None:
    [found] = violations(bad)
    assert found.startswith("entityUrn: ")
    assert message in found
    assert dropping_violations(bad) == [found]


def test_urns_of_schema_fields_may_be_long() -> None:
    assert violations(status_of(f"urn:li:schemaField:({TABLE},{'x' * 600})")) == []


def test_field_paths_of_a_schema_are_unique() -> None:
    schema = stored_form(MetadataChangeProposalWrapper(entityUrn=TABLE, aspect=SCHEMA))
    schema["aspect"]["json"]["fields"][1]["fieldPath"] = "id"
    assert violations(schema) == ["schemaMetadata.fields: fieldPath 'id' occurs 2 times"]


def test_field_paths_of_a_schema_are_not_empty() -> None:
    schema = stored_form(MetadataChangeProposalWrapper(entityUrn=TABLE, aspect=SCHEMA))
    schema["aspect"]["json"]["fields"][1]["fieldPath"] = ""
    assert violations(schema) == ["schemaMetadata.fields: a fieldPath is empty"]


def test_canonical_means_valid_too() -> None:
    bad = proposal(JOB, "dataJobInfo", {"type": {"string": "SPARK"}})
    assert canonical_violations(bad) == violations(bad) != []


def test_canonical_means_with_defaults() -> None:
    bad = edges(TABLE)
    bad["aspect"]["json"]["fineGrainedLineages"] = [{"upstreamType": "NONE", "downstreamType": "FIELD"}]
    assert violations(bad) == []
    assert canonical_violations(bad) == [
        "proposal.aspect.json.fineGrainedLineages[0].confidenceScore: missing, acryl-datahub writes 1.0"
    ]


def test_what_is_not_there_is_left_out() -> None:
    # Pegasus refuses null, though the Avro schema allows it.
    bad = proposal(JOB, "dataJobInfo", {**JOB_INFO, "description": None})
    assert violations(bad) == ["dataJobInfo.description: null is not allowed"]


def patch(document: Any, name: str = "dataJobInputOutput") -> dict[str, Any]:
    aspect = {"value": json.dumps(document), "contentType": "application/json-patch+json"}
    return proposal(JOB, name, None, changeType="PATCH") | {"aspect": aspect}


def edge(path: str, value: Any, op: str = "add") -> list[dict[str, Any]]:
    return [{"op": op, "path": path, "value": value}]


def lineage(*keys: str, value: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    path = "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in ("fineGrainedLineages", *keys))
    return edge(path, value or {"confidenceScore": 1.0})


def tagged(path: str, keys: Any, tag: str = "urn:li:tag:a") -> dict[str, Any]:
    return {"arrayPrimaryKeys": keys, "patch": edge(path, {"tag": tag})}


TABLE_EDGE = {"destinationUrn": TABLE}
TAG_KEYS = {"tags": ["attribution\u241fsource", "tag"]}

BAD_PATCHES = {
    "no list": (patch({"op": "add"}), "'op' is not part of a patch"),
    "empty": (patch([]), "a patch must be a list of operations that is not empty"),
    "operation": (patch(["add"]), "an operation has op, path and value"),
    "from": (patch([{"op": "move", "path": "/inputDatasets", "from": "/x"}]), "an operation has op, path and value"),
    "op": (patch(edge(f"/inputDatasetEdges/{TABLE}", TABLE_EDGE, "test")), "op 'test' is not one of"),
    "no value": (patch([{"op": "add", "path": "/inputDatasetEdges"}]), "op 'add' without a value"),
    "pointer": (patch(edge("inputDatasetEdges", [])), "'inputDatasetEdges' is not a JSON pointer"),
    "escape": (patch(edge("/inputDatasetEdges/a~b", {})), "'/inputDatasetEdges/a~b' is not a JSON pointer"),
    "field": (patch(edge(f"/inputs/{TABLE}", TABLE_EDGE)), "starts at 'inputs', which is not a field of the aspect"),
    "empty part": (patch(edge("/inputDatasetEdges/", TABLE_EDGE)), "has an empty part"),
    "slash not escaped": (
        patch(edge(f"/inputDatasetEdges/{dataset('a/b')}", TABLE_EDGE)),
        "path has 2 keys of an edge",
    ),
    "urn": (patch(edge("/inputDatasetEdges/t", {"destinationUrn": "t"})), "'t' is not a URN"),
    "urn type": (patch(edge(f"/inputDatasetEdges/{JOB}", {"destinationUrn": JOB})), "is a dataJob, want one of"),
    "urn to remove": (patch(edge(f"/inputDatasetEdges/{JOB}", {}, "remove")), "is a dataJob, want one of"),
    "destination": (patch(edge(f"/inputDatasetEdges/{dataset('u')}", TABLE_EDGE)), "in the path"),
    "edge": (patch(edge(f"/inputDatasetEdges/{TABLE}", {**TABLE_EDGE, "x": 1})), "unrecognized field found"),
    "whole field": (patch(edge("/inputDatasetEdges", {})), "is not an array"),
    "field urn": (patch(edge(f"/inputDatasetFields/{TABLE}", {})), "is a dataset, want one of ['schemaField']"),
    "below a string": (patch(edge("/name/x", "y"), "dataJobInfo"), "neither a map nor an array"),
    "map key": (patch(edge("/customProperties/a/b", "c"), "dataJobInfo"), "path has 2 keys of a map, want 1"),
    "map value": (patch(edge("/customProperties/a", 1), "dataJobInfo"), "customProperties['a']: int '1' is not of"),
    "lineage keys": (patch(lineage("NONE", TABLE_ID, FILES_ID)), "want transform, downstream, query and upstream"),
    "downstream": (patch(lineage("NONE", TABLE, "NONE", FILES_ID)), "downstream: 'urn:li:dataset:"),
    "upstream": (patch(lineage("NONE", TABLE_ID, "NONE", JOB)), "upstream: 'urn:li:dataJob:"),
    "query": (patch(lineage("NONE", TABLE_ID, "select 1", FILES_ID)), "query: 'select 1' is not a URN"),
    "score": (patch(lineage("NONE", TABLE_ID, QUERY, FILES_ID, value={"confidenceScore": "1"})), "not of type float"),
    "keys no object": (patch(tagged("/tags/urn:li:tag:a", []), "globalTags"), "arrayPrimaryKeys is not an object"),
    "keys of no field": (patch(tagged("/tags/a", {"tag": ["tag"]}), "globalTags"), "names 'tag', which is not a field"),
    "keys no list": (patch(tagged("/tags/a", {"tags": "tag"}), "globalTags"), "is not a list of field names"),
    "keys differ": (patch(tagged("/tags//urn:li:tag:b", TAG_KEYS), "globalTags"), "in the path differ from"),
    "keyed item": (patch(tagged("/tags//x", TAG_KEYS, "x"), "globalTags"), "'x' is not a URN"),
    "keys to remove": (
        patch({"arrayPrimaryKeys": TAG_KEYS, "patch": edge("/tags/a/b/c", {}, "remove")}, "globalTags"),
        "path has 3 keys, arrayPrimaryKeys names 2",
    ),
    "as an upsert": (patch([]) | {"changeType": "UPSERT"}, "want 'application/json'"),
    "as an aspect": (edges(TABLE) | {"changeType": "PATCH"}, "want value and contentType (application/json-patch"),
}


@pytest.mark.parametrize(("bad", "message"), BAD_PATCHES.values(), ids=BAD_PATCHES)
def test_what_no_template_can_apply_is_refused(bad: dict[str, Any], message: str) -> None:
    found = violations(bad)
    assert any(message in each for each in found), found


def test_a_lineage_patch_names_its_query_or_none() -> None:
    assert violations(patch(lineage("NONE", TABLE_ID, "NONE", FILES))) == []
    assert violations(patch(lineage("NONE", TABLE_ID, QUERY, FILES_ID))) == []
