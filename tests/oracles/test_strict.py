"""The strict check accepts what acryl-datahub's own classes write, and refuses what a GMS would
refuse or drop.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
from datahub.emitter.mcp import MetadataChangeProposalWrapper
from datahub.emitter.serialization_helper import pre_json_transform
from datahub.metadata.schema_classes import (
    ASPECT_NAME_MAP,
    EdgeClass,
    FineGrainedLineageClass,
    FineGrainedLineageDownstreamTypeClass,
    FineGrainedLineageUpstreamTypeClass,
    OwnerClass,
    OwnershipTypeClass,
    SystemMetadataClass,
    TagAssociationClass,
)
from datahub.specific.datajob import DataJobPatchBuilder

from airflow_provider_spark_datahub.conversion.run_tree import (
    AirflowSite,
    DagRun,
    TaskAttempt,
    UpstreamTask,
)
from tests.cases import cases, filled
from tests.conversion.builders import corpus_events, jobs, proposals
from tests.conversion.test_corpus import CONFIGURATIONS
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


@cache
def upserts() -> dict[str, MetadataChangeProposalWrapper]:
    """Return an aspect of each kind that a recorded job has, in acryl-datahub's classes, by its
    name.
    """
    options = {**CONFIGURATIONS["all aspects"], "parent_job_urn": None}
    attempt = TaskAttempt(DagRun(AirflowSite(), "d", "r"), "t", 1, upstream=(UpstreamTask("u"),))
    found = [
        each
        for job in jobs(corpus_events("a_csv_join_agg"), **options)
        for each in proposals(job, **options)
    ]
    found += attempt.ended(1, "FAILURE").proposals()
    return {
        each.aspect_name: MetadataChangeProposalWrapper(
            entityUrn=each.entity_urn,
            aspect=ASPECT_NAME_MAP[each.aspect_name].from_obj(each.aspect, tuples=False),
        )
        for each in found
        if each.change_type == "UPSERT"
    }


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


def test_upserts_of_the_sdk_are_canonical_in_both_forms() -> None:
    assert upserts().keys() >= {
        "dataJobInputOutput",
        "schemaMetadata",
        "operation",
        "dataProcessInstanceRunEvent",
    }
    for wrapper in upserts().values():
        assert canonical_violations(stored_form(wrapper)) == []
        wire_form = copy.copy(wrapper)
        wire_form.systemMetadata = SystemMetadataClass(lastObserved=1, runId="r")
        wire = pre_json_transform(wire_form.to_obj())
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
    io = {
        "inputDatasets": [],
        "outputDatasets": [],
        "inputDatasetEdges": [{"destinationUrn": destination}],
    }
    return proposal(JOB, "dataJobInputOutput", io)


NAMED = {
    "FILES": FILES,
    "TABLE": TABLE,
    "TABLE_ID": TABLE_ID,
    "FILES_ID": FILES_ID,
    "JOB": JOB,
    "RUN": RUN,
    "QUERY": QUERY,
}


ESCAPED = {f"~{name}": urn.replace("~", "~0").replace("/", "~1") for name, urn in NAMED.items()}


def full(value: Any) -> Any:
    """Return a value of a table of cases with the URNs in place of their names: ``<TABLE>``, or
    ``<~TABLE>`` in a path.
    """
    return filled(value, NAMED | ESCAPED)


@cases("strict")
def test_what_gms_refuses_is_refused(
    urn: str, name: str, value: Any, others: dict[str, Any], message: str
) -> None:
    bad = proposal(full(urn), name, full(value)) | others
    found = violations(bad)
    assert any(full(message) in each for each in found), found
    assert dropping_violations(bad) == []


def test_a_proposal_of_no_entity_is_refused() -> None:
    bad = {"changeType": "UPSERT", "aspectName": "status", "aspect": {"json": {}}}
    assert "entityUrn: is missing" in "".join(violations(bad))
    assert dropping_violations(bad) == []


DROPPED = {
    "fabric": (status_of(dataset("t", "PRODUCTION")), "'PRODUCTION' is not a FabricType"),
    "key parts": (
        status_of("urn:li:dataset:(urn:li:dataPlatform:hive,t)"),
        "has 2 key parts, its type has 3",
    ),
    "blanks": (status_of("urn:li:tag:spark "), "has blanks at its ends"),
    "length": (status_of(dataset("x" * 600)), "is longer than 512 bytes URL-encoded"),
    "length of other letters": (
        status_of(dataset("å" * 100)),
        "is longer than 512 bytes URL-encoded",
    ),
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
    schema = stored_form(upserts()["schemaMetadata"])
    for field in schema["aspect"]["json"]["fields"][:2]:
        field["fieldPath"] = "id"
    assert violations(schema) == ["schemaMetadata.fields: fieldPath 'id' occurs 2 times"]


def test_canonical_means_with_defaults() -> None:
    bad = edges(TABLE)
    bad["aspect"]["json"]["fineGrainedLineages"] = [
        {"upstreamType": "NONE", "downstreamType": "FIELD"}
    ]
    assert violations(bad) == []
    assert canonical_violations(bad) == [
        "proposal.aspect.json.fineGrainedLineages[0].confidenceScore: missing, acryl-datahub writes 1.0"
    ]


def patch(document: Any, name: str = "dataJobInputOutput") -> dict[str, Any]:
    aspect = {"value": json.dumps(document), "contentType": "application/json-patch+json"}
    return proposal(JOB, name, None, changeType="PATCH") | {"aspect": aspect}


@cases("strict")
def test_what_no_template_can_apply_is_refused(name: str, document: Any, message: str) -> None:
    found = violations(patch(full(document), name))
    assert any(message in each for each in found), found


def test_a_patch_is_no_upsert_and_an_aspect_no_patch() -> None:
    assert "want 'application/json'" in "".join(violations(patch([]) | {"changeType": "UPSERT"}))
    message = "want value and contentType (application/json-patch"
    assert message in "".join(violations(edges(TABLE) | {"changeType": "PATCH"}))


@pytest.mark.parametrize("end", ["NONE/<~FILES>", "<~QUERY>/<~FILES_ID>"])
def test_a_lineage_patch_names_its_query_or_none(end: str) -> None:
    path = full(f"/fineGrainedLineages/NONE/<~TABLE_ID>/{end}")
    assert violations(patch([{"op": "add", "path": path, "value": {"confidenceScore": 1.0}}])) == []
