"""Names and URNs of datasets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion.datasets import DatasetNamer, Symlinks
from airflow_provider_spark_datahub.conversion.events import DatasetId, Facets
from tests.conversion.builders import settings, symlink, urn

NO_SYMLINKS: dict[DatasetId, DatasetId] = {}


def name_urn(
    namespace: str, name: str, symlinks: Mapping[DatasetId, DatasetId] = NO_SYMLINKS, **options: Any
) -> str | None:
    named = DatasetNamer(settings(**options), symlinks).name(DatasetId(namespace, name))
    return named.urn if named else None


@pytest.mark.parametrize(
    ("namespace", "name", "platform", "expected"),
    [
        # OpenlineageTableDataset and the path facts of the Java listener's own tests.
        ("postgres://db.foo.com:6543", "metrics.sales.orders", "postgres", "metrics.sales.orders"),
        ("mysql://db.foo.com:6543", "metrics.orders", "mysql", "metrics.orders"),
        ("s3://sales-metrics", "orders.csv", "s3", "sales-metrics/orders.csv"),
        ("gs://sales-metrics", "orders.csv", "gcs", "sales-metrics/orders.csv"),
        ("hdfs://stg.foo.com:3000", "salesorders.csv", "hdfs", "salesorders.csv"),
        ("bigquery", "metrics.sales.orders", "bigquery", "metrics.sales.orders"),
        ("redshift://prod.foo.com", "metrics.sales.orders", "redshift", "metrics.sales.orders"),
        ("awsathena://athena.foo.com", "metrics.sales.orders", "athena", "metrics.sales.orders"),
        ("sqlserver://XXX.sql.net", "SQLPool1/sales.orders", "mssql", "SQLPool1/sales.orders"),
        ("azurecosmos://XXX.com/dbs", "metrics.colls.orders", "azurecosmos", "metrics.colls.orders"),
        ("gs://spark-tests", "/a/test_gcs_delta_lake", "gcs", "spark-tests/a/test_gcs_delta_lake"),
        ("gs://spark-tests", "a/test_gcs_delta_lake", "gcs", "spark-tests/a/test_gcs_delta_lake"),
        ("file", "/tmp/streaming_output/file.txt", "file", "/tmp/streaming_output/file.txt"),
        # The rules themselves.
        ("s3://my-bucket", "warehouse/db/table", "s3", "my-bucket/warehouse/db/table"),
        ("s3a://my-bucket/", "/warehouse/", "s3", "my-bucket/warehouse"),
        ("hdfs://nn:8020", "/warehouse/db/t", "hdfs", "/warehouse/db/t"),
        ("viewfs://cluster", "/warehouse/db/t", "viewfs", "/warehouse/db/t"),
        ("kafka://b1:9092,b2:9092", "orders", "kafka", "orders"),
        ("abfss://c@acc.dfs.core.windows.net", "/t", "abs", "c@acc.dfs.core.windows.net/t"),
        # Deviations 14 and 21.
        ("s3://b", "/a b/[0]{x}", "s3", "b/a b/[0]{x}"),
        ("file", "/a,b(c)", "file", "/a%2Cb%28c%29"),
        ("my_scheme://x", "t", "my_scheme", "t"),
    ],
)
def test_namespace_and_name_give_platform_and_name(namespace: str, name: str, platform: str, expected: str) -> None:
    assert name_urn(namespace, name) == urn(platform, expected)


def test_names_can_be_lower_cased() -> None:
    assert name_urn("S3://Bucket", "Db/Orders", lower_case_dataset_urns=True) == urn("s3", "bucket/db/orders")
    assert name_urn("Hive", "Db.T", lower_case_dataset_urns=True, dataset_platform_instance="EU") == urn(
        "hive", "EU.db.t"
    )


def test_a_path_shows_no_password() -> None:
    assert name_urn("s3://key:secret@bucket", "/t") == urn("s3", "bucket/t")


@pytest.mark.parametrize(
    ("namespace", "name", "expected"),
    [
        # Deviation 11.
        ("postgres://h:5432", "shop.orders", urn("postgres", "shop.public.orders")),
        ("postgres://h:5432", "shop.sales.orders", urn("postgres", "shop.sales.orders")),
        ("postgres://h:5432", "orders", urn("postgres", "orders")),
        ("sqlserver://h:1433", "shop.orders", urn("mssql", "shop.dbo.orders")),
        ("sqlserver://h:1433", "pool/sales.orders", urn("mssql", "pool/sales.orders")),
        ("mysql://h:3306", "shop.orders", urn("mysql", "shop.orders")),
    ],
)
def test_tables_without_a_schema_get_the_default(namespace: str, name: str, expected: str) -> None:
    assert name_urn(namespace, name) == expected


def test_default_schemas_are_a_setting() -> None:
    schemas = {"redshift": "dev"}
    assert name_urn("redshift://h", "shop.orders", default_schemas=schemas) == urn("redshift", "shop.dev.orders")
    assert name_urn("postgres://h", "shop.orders", default_schemas=schemas) == urn("postgres", "shop.orders")


GLUE_NAME = "table/my_glue_database/my_glue_table"


@pytest.mark.parametrize(
    ("facet", "options", "expected"),
    [
        (symlink("hive://ms:9083", "db.t"), {}, ("hive", "db.t")),
        (symlink("file:/warehouse", "db.t"), {}, ("hive", "db.t")),
        (symlink("hive://ms:9083", "db.t"), {"hive_platform_alias": "glue"}, ("glue", "db.t")),
        (symlink("aws:glue:eu-west-1:123", GLUE_NAME), {}, ("glue", "my_glue_database.my_glue_table")),
        (symlink("arn:aws:glue:eu-west-1:123", GLUE_NAME), {}, ("glue", "my_glue_database.my_glue_table")),
        (symlink("arn:aws:glue:eu-west-1:123", "db.t"), {"hive_platform_alias": "x"}, ("glue", "db.t")),
        (symlink("hive://ms", GLUE_NAME), {}, ("hive", "my_glue_database.my_glue_table")),
        (symlink("hive://ms:9083", "db.t", kind="LOCATION"), {}, None),
        (symlink("hive://ms:9083", ""), {}, None),
        # The path of a table in another catalogue is not a table.
        (symlink("s3://lake", "sales/daily"), {}, None),
        (symlink("file", "/lake/sales/daily"), {}, None),
        (symlink("hive://ms:9083", "db.t"), {"disable_symlink_resolution": True}, None),
        # Of several the last counts.
        (
            {
                "identifiers": [
                    *symlink("arn:aws:glue:e:1", "a.b")["identifiers"],
                    *symlink("hive://m", "c.d")["identifiers"],
                ]
            },
            {},
            ("hive", "c.d"),
        ),
        (None, {}, None),
        ([], {}, None),
        ({"identifiers": None}, {}, None),
        ({"identifiers": [None, 1]}, {}, None),
    ],
)
def test_symlinks_name_the_table(facet: Any, options: Any, expected: tuple[str, str] | None) -> None:
    assert symlinked_table({"symlinks": facet}, **options) == expected


def symlinked_table(facets: Any, **options: Any) -> DatasetId | None:
    symlinks, path = Symlinks(), DatasetId("file", "/wh/t")
    symlinks.learn(path, Facets(facets), settings(**options))
    return symlinks.by_dataset.get(path)


@pytest.mark.parametrize(
    ("facets", "platform"),
    [
        ({"catalog": {"framework": "iceberg", "type": "hadoop"}}, "iceberg"),
        ({"storage": {"storageLayer": "delta"}}, "delta-lake"),
        ({"catalog": {"framework": "unity"}}, "databricks"),
        ({"catalog": {"framework": "hive"}}, "hive"),
        ({"catalog": None}, "hive"),
    ],
)
def test_catalog_platforms_set_the_platform_of_tables(facets: Any, platform: str) -> None:
    catalogs = {"iceberg": "iceberg", "delta": "delta-lake", "unity": "databricks"}
    linked = {"symlinks": symlink("s3://warehouse", "db.orders"), **facets}
    assert symlinked_table(linked, catalog_platforms=catalogs) == (platform, "db.orders")
    # Off by default: an Iceberg table is Hive's.
    assert symlinked_table(linked) == ("hive", "db.orders")


def test_a_table_keeps_its_platform_if_only_some_events_describe_it() -> None:
    # OpenLineage 1.53.0 gives a Delta table the facets `catalog` and `storage` if it is written, not if it is read.
    named = {"symlinks": symlink("s3://warehouse", "db.orders")}
    described = named | {"catalog": {"framework": "delta"}, "storage": {"storageLayer": "delta"}}
    parquet = named | {"storage": {"storageLayer": "default"}}
    delta = settings(catalog_platforms={"delta": "delta-lake"})
    for events, options, platform in (
        ([described, named], delta, "delta-lake"),
        ([named, described], delta, "delta-lake"),
        ([described, parquet], delta, "hive"),  # made anew
        ([described, named], settings(), "hive"),
    ):
        symlinks, path = Symlinks(), DatasetId("file", "/wh/t")
        for facets in events:
            symlinks.learn(path, Facets(facets), options)
        assert symlinks.by_dataset == {path: (platform, "db.orders")}


def test_a_path_counts_as_the_table_behind_it() -> None:
    symlinks = {DatasetId("file", "/wh/t"): DatasetId("hive", "db.t")}
    assert name_urn("file", "/wh/t", symlinks) == urn("hive", "db.t")
    assert name_urn("file", "/wh/other", symlinks) == urn("file", "/wh/other")


def test_another_spelling_of_a_path_counts_as_the_table() -> None:
    symlinks = {DatasetId("s3://b", "/wh/t"): DatasetId("glue", "db.t")}
    assert name_urn("s3a://b/", "wh/t/", symlinks) == urn("glue", "db.t")


def test_a_table_has_env_and_instance_of_its_own_platform() -> None:
    symlinks = {DatasetId("s3://b", "/wh/t"): DatasetId("hive", "db.t")}
    specs = {"s3": {"env": "DEV", "platform_instance": "lake"}, "hive": {"env": "QA", "platform_instance": "eu"}}
    assert name_urn("s3://b", "/wh/t", symlinks, path_specs=specs) == urn("hive", "eu.db.t", "QA")


INSTANCE = {"dataset_platform_instance": "common", "env": "DEV"}
TABLE_SPECS = {
    "hive": {
        "first": {"env": "QA"},
        "second": {"env": "UAT", "platform_instance": "one"},
        "third": {"platform_instance": "two"},
    }
}
S3_SPECS = {"s3": {"path_spec_list": "s3a://my-bucket/foo/{table}", "platform_instance": "s3Instance"}}
BARE_S3_SPECS = {"s3": ["s3a://my-bucket/foo/{table}"]}
S3_ENV_SPECS = {"s3": {"path_spec_list": "s3a://my-bucket/foo/{table}", "env": "STG"}}


@pytest.mark.parametrize(
    ("namespace", "name", "options", "expected"),
    [
        ("hive", "db.t", {}, urn("hive", "db.t")),
        ("hive", "db.t", INSTANCE, urn("hive", "common.db.t", "DEV")),
        ("hive", "db.t", {**INSTANCE, "path_specs": TABLE_SPECS}, urn("hive", "one.db.t", "QA")),
        ("mysql://h", "db.t", {**INSTANCE, "path_specs": TABLE_SPECS}, urn("mysql", "common.db.t", "DEV")),
        ("file", "/tmp/f", {"dataset_platform_instance": "mine"}, urn("file", "mine./tmp/f")),
        # HdfsPathDatasetTest: a spec that fits has its own instance or none.
        (
            "s3a://my-bucket",
            "foo/tests/x",
            {**INSTANCE, "path_specs": S3_SPECS},
            urn("s3", "s3Instance.my-bucket/foo/tests", "DEV"),
        ),
        (
            "s3a://my-bucket",
            "foo/tests/x",
            {**INSTANCE, "path_specs": BARE_S3_SPECS},
            urn("s3", "my-bucket/foo/tests", "DEV"),
        ),
        (
            "s3a://my-bucket",
            "foo/tests/x",
            {**INSTANCE, "path_specs": S3_ENV_SPECS},
            urn("s3", "my-bucket/foo/tests", "STG"),
        ),
        (
            "s3a://my-bucket",
            "bar/x",
            {**INSTANCE, "path_specs": BARE_S3_SPECS},
            urn("s3", "common.my-bucket/bar/x", "DEV"),
        ),
    ],
)
def test_instance_and_env_come_from_the_settings(namespace: str, name: str, options: Any, expected: str) -> None:
    assert name_urn(namespace, name, **options) == expected


@pytest.mark.parametrize(
    ("namespace", "name", "reason"),
    [
        ("postgres://h", "", "it has no name"),
        ("", "t", "it has no name"),
        (" ", "t", "it has no name"),
        (" ://h", "t", "it has no name"),
        ("hive", "t" * 500, "its URN is longer than 512 bytes, which DataHub drops"),
        ("hive", "日" * 60, "its URN is longer than 512 bytes, which DataHub drops"),
    ],
)
def test_datasets_without_a_usable_urn_are_left_out(namespace: str, name: str, reason: str) -> None:
    namer = DatasetNamer(settings(), {})
    assert namer.name(DatasetId(namespace, name)) is None
    assert namer.unusable == {DatasetId(namespace, name): reason}
