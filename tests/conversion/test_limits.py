"""Limits on texts: a text that is cut says so, and so do the diagnostics. Long texts are compressed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion.convert import convert_events
from airflow_provider_spark_datahub.conversion.diagnostics import LONG_TEXTS, TextLimit, compressed, decompressed
from airflow_provider_spark_datahub.conversion.proposals import Proposal
from tests.conversion.builders import (
    Json,
    column,
    column_lineage,
    file,
    find,
    query,
    schema,
    settings,
    spark_properties,
    whole_application,
)
from tests.oracles.strict import violations

LONG = "x" * 500


def converted(events: list[Json], **options: Any) -> tuple[list[Proposal], list[str]]:
    conversion = convert_events(events, settings(**options))
    found = conversion.proposals(settings(**options))
    assert [problem for each in found for problem in violations(each.to_obj())] == []
    return found, conversion.diagnostics.messages()


def test_a_text_within_the_limit_stays() -> None:
    limit = TextLimit(500)
    assert limit.text(LONG) == LONG
    assert limit.counts == {}


def test_a_text_above_the_limit_is_cut_and_says_so() -> None:
    limit = TextLimit(100)
    text = limit.text(LONG)
    assert len(text) == 100
    assert text == "x" * 77 + "… (cut: 500 characters)"
    assert limit.counts == {LONG_TEXTS: 1}


def test_texts_of_aspects_are_cut() -> None:
    long_column: Json = {"name": "c", "type": "string", "description": LONG}
    output = file("/z", schema=schema(long_column), documentation={"description": LONG})
    facets = {"documentation": {"description": LONG}}
    events = whole_application(
        query(outputs=[output], run_facets=spark_properties(spark__a=LONG, spark__b="short")), job_facets=facets
    )
    found, cut = converted(
        events,
        max_string_length=200,
        materialize_dataset=True,
        include_schema_metadata=True,
        capture_dataset_documentation=True,
    )
    properties = find(found, "dataFlowInfo").aspect["customProperties"]
    assert properties["spark.a"].endswith("… (cut: 500 characters)")
    assert properties["spark.b"] == "short"
    for text in (
        properties["spark.a"],
        find(found, "dataJobInfo").aspect["customProperties"]["spark.a"],
        find(found, "dataFlowInfo").aspect["description"],
        find(found, "datasetProperties").aspect[0]["value"],
        find(found, "schemaMetadata").aspect["platformSchema"]["com.linkedin.schema.MySqlDDL"]["tableSchema"],
    ):
        assert len(text) == 200
        assert "(cut: 5" in text
    assert cut == ["texts cut to max_string_length: 5"]


def test_a_cut_schema_is_whole_in_the_next_conversion() -> None:
    # Schemas are remembered between conversions: the limit of one is not that of another.
    output = file("/z", schema=schema(*((f"c{number}", "string") for number in range(20))))
    options = {"materialize_dataset": True, "include_schema_metadata": True}
    written = [
        find(converted(whole_application(query(outputs=[output])), **options, **limit)[0], "schemaMetadata").aspect
        for limit in ({"max_string_length": 150}, {})
    ]
    lengths = [len(schema["platformSchema"]["com.linkedin.schema.MySqlDDL"]["tableSchema"]) for schema in written]
    assert lengths[0] == 150 < lengths[1]
    assert len(written[0]["fields"]) == len(written[1]["fields"]) == 20


def test_column_lineage_of_a_job_is_limited() -> None:
    facet = column_lineage({"a": [column("/a", "x")], "b": [column("/a", "y")]})
    events = whole_application(query(outputs=[file("/z", columnLineage=facet)]))
    found, cut = converted(events, max_string_length=400)
    assert len(find(found, "dataJobInputOutput").aspect["fineGrainedLineages"]) == 1
    assert cut == ["column edges left out of column lineage, which would be longer than max_string_length: 1"]


def test_an_event_of_any_length_is_converted() -> None:
    long = json.dumps(query(inputs=[file("/a")], run_facets=spark_properties(a="x" * 1_000_000))).encode()
    assert convert_events([long], settings()).events == 1


@pytest.mark.parametrize("text", [b"", b"null", b"{}", b'{"x":1}', b'"x"', '{"é":"x"}'.encode()])
def test_short_texts_stay_as_they_are(text: bytes) -> None:
    assert compressed(text) is text
    assert decompressed(text) == text


def test_long_texts_are_compressed_and_restored() -> None:
    text = json.dumps({"fields": [{"name": f"c{number}", "type": "string"} for number in range(300)]}).encode()
    assert len(compressed(text)) < len(text) / 4
    assert decompressed(compressed(text)) == text
    assert compressed(text) == compressed(bytes(bytearray(text)))
