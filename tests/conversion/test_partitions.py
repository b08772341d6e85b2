"""Folders of partitions, which openlineage-spark names before 1.39: they are the table that they belong to."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.conversion.runs.coalesce import JobLineage
from tests.conversion.builders import (
    column,
    column_lineage,
    file,
    file_urns,
    only_job,
    query,
    schema,
    whole_application,
)

RECORDED = Path(__file__).parents[1] / "data" / "openlineage_1_37"


def recorded(name: str) -> JobLineage:
    lines = gzip.decompress((RECORDED / f"{name}.ndjson.gz").read_bytes()).splitlines()
    return only_job(map(json.loads, lines), materialize_dataset=True, include_schema_metadata=True)


def test_a_job_that_looks_into_a_partition_reads_the_table() -> None:
    job = recorded("revenue")
    assert list(job.lineage.inputs) == file_urns("/shop/orders")
    assert list(job.lineage.outputs) == file_urns("/shop/revenue_by_country")


def test_a_folder_without_a_table_around_it_that_has_its_column_is_a_dataset() -> None:
    job = recorded("own")
    assert list(job.lineage.inputs) == file_urns("/lake/alone/country=DE", "/lake/deep")
    assert list(job.lineage.outputs) == file_urns(
        *("/lake/alone/country=DE", "/lake/copy", "/lake/deep", "/lake/of_deep", "/lake/of_folder"),
        *("/lake/plain", "/lake/plain/country=DE"),
    )


def test_a_folder_that_is_read_counts_as_the_table_in_columns_too() -> None:
    lineage = recorded("own").lineage
    (deep,) = file_urns("/lake/deep")
    upstreams = {
        upstream
        for edge in lineage.fine_grained
        if "of_folder" in edge["downstreams"][0]
        for upstream in edge["upstreams"]
    }
    assert upstreams == {f"urn:li:schemaField:({deep},{field})" for field in ("id", "amount", "day")}
    fields = (lineage.inputs[deep].schema or {})["fields"]
    assert {field["fieldPath"] for field in fields} >= {"country", "day"}, "the table's schema, not its folder's"


@pytest.mark.parametrize(
    ("folder", "is_table"),
    [
        ("/t/country=DE", True),
        ("/t/COUNTRY=DE", True),
        ("/t/country=DE/day=1", True),
        ("/t/country=", True),
        ("/t/the%20time=1", True),
        ("/t/region=EU", False),
        ("/t/country=DE/region=EU", False),
        ("/t/x/country=DE", False),
        ("/t/country=DE/x", False),
        ("/u/country=DE", False),
        ("/country=DE", False),
    ],
)
def test_a_partition_has_the_names_of_its_tables_columns(folder: str, is_table: bool) -> None:
    table = file("/t", schema=schema(("country", "string"), ("day", "int"), ("the time", "int")))
    events = whole_application(query(inputs=[table]), query(run_id="run-2", inputs=[file(folder)]))
    assert list(only_job(events).lineage.inputs) == file_urns(*(["/t"] if is_table else sorted(["/t", folder])))


def test_of_two_folders_that_fit_the_outer_one_is_the_table() -> None:
    """Another query of the job may have read a folder of the table as a table."""
    whole = file("/t", schema=schema(("country", "string"), ("day", "int")))
    inner = file("/t/country=DE", schema=schema(("day", "int")))
    events = whole_application(query(inputs=[whole, inner, file("/t/country=DE/day=1")]))
    assert list(only_job(events).lineage.inputs) == file_urns("/t")


def test_without_the_outer_one_a_folder_of_partitions_is_the_table() -> None:
    inner = file("/t/country=DE", schema=schema(("day", "int")))
    columns = column_lineage({"x": [column("/t/country=DE/day=1", "x")]})
    events = whole_application(query(inputs=[inner], outputs=[file("/out", columnLineage=columns)]))
    assert list(only_job(events).lineage.inputs) == file_urns("/t/country=DE")
