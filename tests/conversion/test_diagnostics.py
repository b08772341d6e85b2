"""Diagnostics: how they add up and are worded, and limits on texts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion import (
    DatasetId,
    Diagnostics,
    Proposal,
    convert_events,
)
from airflow_provider_spark_datahub.conversion.diagnostics import (
    LostExecution,
    compressed,
    decompressed,
)
from tests.conversion.builders import (
    Json,
    file,
    find,
    query,
    schema,
    settings,
    spark_properties,
    whole_application,
)
from tests.oracles.strict import violations

# -- Diagnostics: how they add up, and how they are worded


def test_problems_are_worded_as_messages() -> None:
    diagnostics = Diagnostics(
        rejected_events=4,
        rejections={"not a run event": 3},
        lost_executions=[
            LostExecution(number, "save at Shop.java:1", "no lineage") for number in (7, 9)
        ],
        unusable_datasets={DatasetId("file", ""): "it has no name"},
        truncations={"texts cut": 3, "edges left out": 1},
        column_gaps=("no columns of SELECT 1",),
        unreported_queries=("append_data.t",),
    )
    hint = "it cannot name the tables of every catalogue"
    assert diagnostics.messages() == [
        "not a run event (2 more events like it)",
        "1 more event cannot be converted",
        "dataset file : it has no name",
        "edges left out: 1",
        "texts cut: 3",
        "2 SQL executions without an event (7 save at Shop.java:1, 9 save at Shop.java:1): no lineage",
        f"OpenLineage does not name the tables that these queries wrote ({hint}): append_data.t",
        "no columns of SELECT 1",
    ]


def test_merging_adds_counts_and_keeps_each_reason_once() -> None:
    total = Diagnostics(
        truncations={"a": 1}, column_gaps=("x",), rejected_events=2, rejections={"e": 2}
    )
    more = Diagnostics(truncations={"a": 2, "b": 3}, column_gaps=("y", "x"), rejected_events=2)
    more.rejections = {"e": 1, "f": 1}
    total.merge(more)
    assert total == Diagnostics(
        truncations={"a": 3, "b": 3},
        column_gaps=("x", "y"),
        rejected_events=4,
        rejections={"e": 3, "f": 1},
    )


# -- Limits on texts: a text that is cut says so, and so do the diagnostics. Long texts are
# compressed


LONG = "x" * 500


def converted(events: list[Json], **options: Any) -> tuple[list[Proposal], list[str]]:
    conversion = convert_events(events, settings(**options))
    found = conversion.proposals(settings(**options))
    assert [problem for each in found for problem in violations(each.to_obj())] == []
    return found, conversion.diagnostics.messages()


def test_texts_of_aspects_are_cut() -> None:
    long_column: Json = {"name": "c", "type": "string", "description": LONG}
    output = file("/z", schema=schema(long_column), documentation={"description": LONG})
    facets = {"documentation": {"description": LONG}}
    events = whole_application(
        query(outputs=[output], run_facets=spark_properties(spark__a=LONG, spark__b="short")),
        job_facets=facets,
    )
    found, cut = converted(
        events, max_string_length=200, datasets="schemas", dataset_details=("documentation",)
    )
    properties = find(found, "dataFlowInfo").aspect["customProperties"]
    assert properties["spark.a"].endswith("… (cut: 500 characters)")
    assert properties["spark.b"] == "short"
    for text in (
        properties["spark.a"],
        find(found, "dataJobInfo").aspect["customProperties"]["spark.a"],
        find(found, "dataFlowInfo").aspect["description"],
        find(found, "datasetProperties").aspect[0]["value"],
        find(found, "schemaMetadata").aspect["platformSchema"]["com.linkedin.schema.MySqlDDL"][
            "tableSchema"
        ],
    ):
        assert len(text) == 200
        assert "(cut: 5" in text
    assert cut == ["texts cut to max_string_length: 5"]


@pytest.mark.parametrize("text", [b"", b"null", b"{}", b'{"x":1}', b'"x"', '{"é":"x"}'.encode()])
def test_short_texts_stay_as_they_are(text: bytes) -> None:
    assert compressed(text) is text
    assert decompressed(text) == text


def test_long_texts_are_compressed_and_restored() -> None:
    text = json.dumps(
        {"fields": [{"name": f"c{number}", "type": "string"} for number in range(300)]}
    ).encode()
    assert len(compressed(text)) < len(text) / 4
    assert decompressed(compressed(text)) == text
    assert compressed(text) == compressed(bytes(bytearray(text)))
