"""A job's proposals: their order and content, patches as acryl-datahub spells them, and how they
are stored.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from datahub.emitter.mcp import MetadataChangeProposalWrapper
from datahub.metadata.schema_classes import (
    AuditStampClass,
    EdgeClass,
    FineGrainedLineageClass,
    StatusClass,
)
from datahub.specific.datajob import DataJobPatchBuilder

from airflow_provider_spark_datahub.conversion import (
    Ending,
    Proposal,
    ProposalFormatError,
    json_lines,
)
from tests.cases import cases
from tests.conversion.builders import (
    APP,
    START_MS,
    Json,
    column,
    column_lineage,
    file,
    file_urns,
    find,
    find_all,
    of_outputs,
    only_job,
    proposals,
    query,
    schema,
    urn,
    whole_application,
)
from tests.oracles.strict import canonical_violations

# -- A job's proposals: their order, their content, and patches spelled as acryl-datahub spells them


FLOW = "urn:li:dataFlow:(spark,shop,default)"
JOB = f"urn:li:dataJob:({FLOW},shop)"
END_STAMP = {"time": START_MS + 59_000, "actor": "urn:li:corpuser:datahub"}
PARENT = "urn:li:dataJob:(urn:li:dataFlow:(airflow,dag,prod),task)"


def column_facet(*sources: str) -> Json:
    return column_lineage({"c/~": [column(source, "c", "DIRECT:IDENTITY") for source in sources]})


EVENTS = whole_application(
    query(
        inputs=[file("/b", schema=schema(("c", "int"))), file("/a")],
        outputs=[file("/z", columnLineage=column_facet("/a", "/b"), schema=schema(("c/~", "int")))],
    )
)


def with_job_facets(**facets: Json) -> list[Json]:
    """Return the events with facets of the query's job."""
    started, ran, ended = EVENTS
    return [
        started,
        {**ran, "job": {**ran["job"], "facets": {**ran["job"]["facets"], **facets}}},
        ended,
    ]


def written(
    events: list[Json] = EVENTS, ending: Ending | None = None, **options: Any
) -> list[Proposal]:
    return proposals(only_job(events, ending, **options), **options)


def test_proposals_are_in_delivery_order() -> None:
    # The order of section 7, with every option on.
    found = written(
        with_job_facets(tags={"tags": [{"key": "pii", "value": "true"}]}),
        platform_instance="eu",
        tags="b",
        domains="urn:li:domain:d",
        datasets="schemas",
    )
    dataset = ["dataset datasetKey", "dataset status"]
    assert [f"{each.entity_type} {each.aspect_name}" for each in found] == [
        "dataFlow dataFlowInfo",
        "dataFlow status",
        "dataFlow dataPlatformInstance",
        "dataJob dataJobInfo",
        "dataJob status",
        "dataJob dataPlatformInstance",
        "dataJob globalTags",
        "dataFlow globalTags",
        "dataFlow domains",
        *dataset,
        *dataset,
        "dataset schemaMetadata",
        *dataset,
        "dataset schemaMetadata",
        "dataset operation",
        "dataJob dataJobInputOutput",
        "dataProcessInstance dataProcessInstanceInput",
        "dataProcessInstance dataProcessInstanceOutput",
        "dataProcessInstance dataProcessInstanceProperties",
        "dataProcessInstance status",
        "dataProcessInstance dataProcessInstanceRelationships",
        "dataProcessInstance dataProcessInstanceRunEvent",
        "dataProcessInstance dataProcessInstanceRunEvent",
    ]
    assert [each.entity_urn for each in find_all(found, "datasetKey")] == file_urns(
        "/a", "/b", "/z"
    )


def test_edges_of_a_complete_run_replace_earlier_ones() -> None:
    found = find(written(parent_job_urn=PARENT), "dataJobInputOutput")
    assert (found.entity_urn, found.change_type) == (JOB, "UPSERT")
    assert found.aspect["inputDatasetEdges"] == [
        {"destinationUrn": one, "lastModified": END_STAMP} for one in file_urns("/a", "/b")
    ]
    assert found.aspect["outputDatasetEdges"] == [
        {"destinationUrn": urn("file", "/z"), "lastModified": END_STAMP}
    ]
    assert (found.aspect["inputDatasets"], found.aspect["outputDatasets"]) == ([], [])
    assert found.aspect["inputDatajobs"] == [PARENT]
    assert len(found.aspect["fineGrainedLineages"]) == 1


@pytest.mark.parametrize(
    ("sql", "transform"),
    [("", "DIRECT:IDENTITY"), ("SELECT a / b, '~1'", "-- DIRECT:IDENTITY\nSELECT a / b, '~1'")],
)
def test_patch_is_spelled_as_acryl_datahub_spells_it(sql: str, transform: str) -> None:
    # The pointers quote `~` and `/` as RFC 6901 has it, which the Java listener does not.
    events = with_job_facets(sql={"query": sql})
    proposals = written(events, use_patch=True, parent_job_urn=PARENT)
    (found,) = of_outputs(proposals, "dataJobInputOutput")
    stamp = AuditStampClass(time=START_MS + 59_000, actor="urn:li:corpuser:datahub")
    builder = DataJobPatchBuilder(f"urn:li:dataJob:({FLOW},shop.file./z)")
    for one in file_urns("/a", "/b"):
        builder.add_input_dataset(EdgeClass(destinationUrn=one, lastModified=stamp))
    builder.add_output_dataset(EdgeClass(destinationUrn=urn("file", "/z"), lastModified=stamp))
    builder.add_input_datajob(EdgeClass(destinationUrn=PARENT, lastModified=stamp))
    builder.add_fine_grained_lineage(
        FineGrainedLineageClass(
            upstreamType="FIELD_SET",
            upstreams=[f"urn:li:schemaField:({one},c)" for one in file_urns("/a", "/b")],
            downstreamType="FIELD_SET",
            downstreams=[f"urn:li:schemaField:({urn('file', '/z')},c/~)"],
            transformOperation=transform,
            confidenceScore=0.5,
        )
    )
    (expected,) = builder.build()
    assert expected.aspect is not None
    assert (found.entity_urn, found.change_type) == (expected.entityUrn, expected.changeType)
    assert found.content_type == expected.aspect.contentType
    assert found.aspect == json.loads(expected.aspect.value)


def test_a_patch_names_columns_without_transformation() -> None:
    output = file("/z", columnLineage=column_lineage({"c": [column("/a", "c")]}))
    found = find(
        written(whole_application(query(outputs=[output])), use_patch=True), "dataJobInputOutput"
    )
    assert found.aspect[-1]["path"].startswith("/fineGrainedLineages/NONE/")


def test_inputs_of_the_whole_dataset_are_a_pair_of_columns_each_in_a_patch() -> None:
    facet = column_lineage({"c": [], "d": []}, [column("/a", "day", "INDIRECT:FILTER")])
    events = whole_application(query(outputs=[file("/z", columnLineage=facet)]))
    found = find(written(events, use_patch=True), "dataJobInputOutput")
    columns = [
        each["path"].split("/") for each in found.aspect if each["path"].startswith("/fineGrained")
    ]
    assert [path[2] for path in columns] == ["INDIRECT:FILTER"] * 2
    assert [path[3].rpartition(",")[2] for path in columns] == ["c)", "d)"]


def test_a_failed_run_only_adds_its_edges() -> None:
    # Deviation 10.
    events = whole_application(query("FAIL", inputs=[file("/a")], outputs=[file("/z")]))
    found = written(events)
    # An input that reaches no write would meet the outputs of an earlier run.
    assert find_all(found, "dataJobInputOutput") == []
    assert find(found, "dataProcessInstanceInput").aspect == {"inputs": file_urns("/a")}
    assert find(found, "dataProcessInstanceOutput").aspect == {"outputs": []}


def test_a_failed_run_without_inputs_writes_no_edges() -> None:
    assert find_all(written(whole_application(query("FAIL"))), "dataJobInputOutput") == []


def test_a_complete_run_without_datasets_removes_all_edges() -> None:
    aspect = find(written(whole_application()), "dataJobInputOutput").aspect
    assert aspect["inputDatasetEdges"] == aspect["outputDatasetEdges"] == []


def test_a_run_has_all_its_aspects() -> None:
    found = written()
    assert {each.entity_urn for each in found if each.entity_type == "dataProcessInstance"} == {
        f"urn:li:dataProcessInstance:{APP}"
    }
    properties = find(found, "dataProcessInstanceProperties").aspect
    assert (properties["name"], properties["created"]) == (APP, END_STAMP)
    assert find(found, "dataProcessInstanceRelationships").aspect == {
        "parentTemplate": JOB,
        "upstreamInstances": [],
    }
    started, ended = (each.aspect for each in find_all(found, "dataProcessInstanceRunEvent"))
    assert (started["status"], started["timestampMillis"]) == ("STARTED", START_MS)
    assert (ended["status"], ended["timestampMillis"], ended["durationMillis"]) == (
        "COMPLETE",
        START_MS + 59_000,
        59_000,
    )
    assert ended["result"] == {"type": "SUCCESS", "nativeResultType": "COMPLETE"}
    # One document each in GMS, even of one millisecond.
    assert (started["messageId"], ended["messageId"]) == ("STARTED", "COMPLETE")


@cases("proposals")
def test_dataset_aspects_depend_on_the_settings(options: Json, aspects: list[str]) -> None:
    assert (
        sorted({each.aspect_name for each in written(**options) if each.entity_type == "dataset"})
        == aspects
    )


def test_the_key_of_a_dataset_has_the_parts_of_its_urn() -> None:
    events = whole_application(query(inputs=[file("/a,b")]))
    key = find(
        written(events, datasets="keys", dataset_platform_instance="eu", env="DEV"), "datasetKey"
    )
    assert key.entity_urn == urn("file", "eu./a%2Cb", "DEV")
    assert key.aspect == {
        "platform": "urn:li:dataPlatform:file",
        "name": "eu./a%2Cb",
        "origin": "DEV",
    }
    assert canonical_violations(key.to_obj()) == []


def test_tags_and_domains_are_sorted_ignoring_case() -> None:
    found = written(tags="b,A,c", domains="urn:li:domain:b,urn:li:domain:A,no-urn")
    assert find(found, "globalTags").aspect == {
        "tags": [{"tag": f"urn:li:tag:{tag}"} for tag in "Abc"]
    }
    assert find(found, "domains").aspect == {"domains": ["urn:li:domain:A", "urn:li:domain:b"]}
    # Deviation 17.
    assert find(found, "domains").entity_type == "dataFlow"


def test_tags_are_added_by_a_patch() -> None:
    # As acryl-datahub's builder adds them.
    found = find(written(tags="b,a/1", use_patch=True), "globalTags")
    assert found.change_type == "PATCH"
    assert found.aspect == {
        "arrayPrimaryKeys": {"tags": ["attribution␟source", "tag"]},
        "patch": [
            {"op": "add", "path": "/tags//urn:li:tag:a~11", "value": {"tag": "urn:li:tag:a/1"}},
            {"op": "add", "path": "/tags//urn:li:tag:b", "value": {"tag": "urn:li:tag:b"}},
        ],
    }


def test_owners_come_from_settings_and_the_ownership_facet() -> None:
    # Section 1: the settings' and those of the ``ownership`` facet.
    facets = {
        "ownership": {
            "owners": [{"name": name} for name in ("bob", "user:jane", "group:data", "team:bi")]
        }
    }
    events = whole_application(query(job_facets=facets))
    aspect = find(written(events, owners="jane,urn:li:corpGroup:data"), "ownership").aspect
    owners = [
        f"urn:li:{name}"
        for name in ("corpuser:jane", "corpGroup:data", "corpuser:bob", "corpGroup:bi")
    ]
    assert aspect["owners"] == [
        {"owner": one, "type": "DEVELOPER", "source": {"type": "SERVICE"}} for one in owners
    ]
    assert aspect["lastModified"] == END_STAMP


# -- Proposals as they are stored


DATASET = urn("hive", "db.größe")
UPSERT = Proposal("dataset", DATASET, "status", {"removed": False})
PATCH = Proposal(
    "dataset", DATASET, "globalTags", [{"op": "add", "path": "/tags/ü", "value": {}}], "PATCH"
)


def test_an_upsert_is_stored_as_acryl_datahub_stores_it() -> None:
    wrapper = MetadataChangeProposalWrapper(entityUrn=DATASET, aspect=StatusClass(removed=False))
    assert UPSERT.to_obj() == wrapper.to_obj(simplified_structure=True)


@pytest.mark.parametrize("proposal", [UPSERT, PATCH])
def test_a_stored_proposal_can_be_read_again(proposal: Proposal) -> None:
    line = proposal.to_json()
    assert line.count("\n") == 0
    assert "größe" in line
    assert Proposal.from_obj(json.loads(line)) == proposal


@pytest.mark.parametrize("text", ["plain", "größe\n", "half of a pair: \ud83d"])
def test_many_proposals_are_written_as_lines(text: str) -> None:
    many = [UPSERT, PATCH, Proposal("dataset", DATASET, "datasetProperties", {"description": text})]
    assert json_lines(many).decode() == "".join(f"{proposal.to_json()}\n" for proposal in many)
    assert json_lines([]) == b""


@cases("proposals")
def test_malformed_stored_proposals_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ProposalFormatError, match="not a stored proposal"):
        Proposal.from_obj({**UPSERT.to_obj(), **change})
