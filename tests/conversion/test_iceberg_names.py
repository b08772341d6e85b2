"""Selectors that Iceberg puts behind a table's name: branches, tags, snapshots, metadata tables."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion.datasets import Symlinks, table_and_selector
from airflow_provider_spark_datahub.conversion.events import DatasetId, Facets
from tests.conversion.builders import file, only_job, query, schema, settings, symlink, urn, whole_application


@pytest.mark.parametrize(
    ("name", "path", "table", "selector"),
    [
        ("db.orders", "/lake/db/orders", "db.orders", ""),
        ("db.orders.snapshots", "/lake/db/orders", "db.orders", "snapshots"),
        ("db.orders.all_data_files", "/lake/db/orders", "db.orders", "all_data_files"),
        ("db.orders.branch_audit", "/lake/db/orders", "db.orders", "branch_audit"),
        ("db.orders.tag_2026", "/lake/db/orders", "db.orders", "tag_2026"),
        ("db.orders.snapshot_id_123", "/lake/db/orders", "db.orders", "snapshot_id_123"),
        # Tables that are truly called so: in a database, and in a namespace within another.
        ("db.files", "/lake/db/files", "db.files", ""),
        ("eu.shop.files", "/lake/eu/shop/files", "eu.shop.files", ""),
        ("eu.shop.files", "/lake/eu/shop/files-1f3c", "eu.shop.files", ""),
        ("eu.shop.orders", "/lake/x", "eu.shop.orders", ""),
    ],
)
def test_names_are_split_into_table_and_selector(name: str, path: str, table: str, selector: str) -> None:
    assert table_and_selector(name, path) == (table, selector)


def facets(name: str, framework: str = "iceberg") -> dict[str, Any]:
    return {"symlinks": symlink("file:/lake", name), "catalog": {"framework": framework}}


@pytest.mark.parametrize(("selector", "of_the_table"), [(".snapshots", False), (".branch_audit", True), ("", True)])
def test_only_metadata_tables_have_columns_of_their_own(selector: str, of_the_table: bool) -> None:
    path = DatasetId("file", "/lake/db/orders")
    assert Symlinks().learn(path, Facets(facets(f"db.orders{selector}")), settings()) is of_the_table


def test_reading_a_metadata_table_changes_no_name_and_no_schema() -> None:
    written = file("/lake/db/orders", **facets("db.orders"), schema=schema(("order_id", "long")))
    looked = file("/lake/db/orders", **facets("db.orders.files"), schema=schema(("file_path", "string")))
    events = whole_application(query(outputs=[written]), query(run_id="run-2", inputs=[looked]))
    job = only_job(events, materialize_dataset=True, include_schema_metadata=True)
    (output,) = job.lineage.outputs.values()
    assert output.name.urn == urn("hive", "db.orders")
    assert list(job.lineage.inputs) == [urn("hive", "db.orders")]
    assert output.schema is not None
    assert [field["fieldPath"] for field in output.schema["fields"]] == ["order_id"]


def test_names_of_other_catalogues_are_unchanged() -> None:
    job = only_job(whole_application(query(outputs=[file("/w/x", **facets("unity.shop.files", "unity"))])))
    assert list(job.lineage.outputs) == [urn("hive", "unity.shop.files")]
