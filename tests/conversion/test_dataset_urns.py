"""The URN of each kind of dataset, from an event to the edge: one row per store, catalogue and format."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conversion.builders import Json, column, column_lineage, dataset, file, only_job, query, whole_application

GLUE_OLD, GLUE_NEW = "aws:glue:eu-west-1:123456789012", "arn:aws:glue:eu-west-1:123456789012"
LAKE = {"s3": {"lake": {"path_spec_list": ["s3://lake/*/{table}"], "env": "DEV", "platform_instance": "eu"}}}


def table(namespace: str, name: str, **facets: Any) -> Json:
    return {"symlinks": {"identifiers": [{"namespace": namespace, "name": name, "type": "TABLE"}]}, **facets}


def catalog(framework: str, kind: str, storage: str = "") -> Json:
    return {
        "catalog": {"framework": framework, "type": kind, "name": "c"},
        **({"storage": {"storageLayer": storage, "fileFormat": "parquet"}} if storage else {}),
    }


# What stands in the event → platform and name in the URN.
PLAIN = {
    "local file": (("file", "/data/in.csv"), "file,/data/in.csv"),
    "s3": (("s3://bucket", "a/b"), "s3,bucket/a/b"),
    "s3a": (("s3a://bucket", "/a/b/"), "s3,bucket/a/b"),
    "s3n": (("s3n://bucket", "a/b"), "s3,bucket/a/b"),
    "gs": (("gs://bucket", "a/b"), "gcs,bucket/a/b"),
    "gcs": (("gcs://bucket", "a/b"), "gcs,bucket/a/b"),
    "abfss": (("abfss://container@account.dfs.core.windows.net", "a"), "abs,container@account.dfs.core.windows.net/a"),
    "wasbs": (
        ("wasbs://container@account.blob.core.windows.net", "a"),
        "abs,container@account.blob.core.windows.net/a",
    ),
    "dbfs": (("dbfs://root", "a"), "dbfs,root/a"),
    "hdfs": (("hdfs://namenode:8020", "/warehouse/t"), "hdfs,/warehouse/t"),
    "viewfs": (("viewfs://cluster", "/warehouse/t"), "viewfs,/warehouse/t"),
    "PostgreSQL": (("postgres://db:5432", "shop.public.orders"), "postgres,shop.public.orders"),
    "PostgreSQL without schema": (("postgres://db:5432", "shop.orders"), "postgres,shop.public.orders"),
    "MySQL": (("mysql://db:3306", "shop.orders"), "mysql,shop.orders"),
    "SQL Server": (("sqlserver://db:1433", "shop.dbo.orders"), "mssql,shop.dbo.orders"),
    "SQL Server without schema": (("sqlserver://db:1433", "shop.orders"), "mssql,shop.dbo.orders"),
    "Oracle": (("oracle://db:1521", "orcl.shop.orders"), "oracle,orcl.shop.orders"),
    "Redshift": (("redshift://c.eu.redshift.amazonaws.com:5439", "dev.public.t"), "redshift,dev.public.t"),
    "Athena": (("awsathena://athena.eu-west-1.amazonaws.com", "c.db.t"), "athena,c.db.t"),
    "BigQuery": (("bigquery", "project.dataset.table"), "bigquery,project.dataset.table"),
    "Snowflake": (("snowflake://org-account", "DB.SCHEMA.T"), "snowflake,DB.SCHEMA.T"),
    "Trino": (("trino://host:8080", "hive.db.t"), "trino,hive.db.t"),
    "Kafka": (("kafka://broker:9092", "orders"), "kafka,orders"),
    "Cassandra": (("cassandra://host:9042", "ks.t"), "cassandra,ks.t"),
    "Delta by path": (("s3a://lake", "delta/orders"), "s3,lake/delta/orders"),
    "Hudi by path": (("s3a://lake", "hudi/orders"), "s3,lake/hudi/orders"),
    "Iceberg of a Hadoop catalogue, without symlink": (("s3a://wh", "db/orders"), "s3,wh/db/orders"),
}


def written(stored: Json, **options: Any) -> str:
    """Return the only URN that a query writes to."""
    (urn,) = only_job(whole_application(query(outputs=[stored])), **options).lineage.outputs
    return urn


@pytest.mark.parametrize("kind", PLAIN)
def test_datasets_without_a_catalogue_have_their_urn(kind: str) -> None:
    (namespace, name), expected = PLAIN[kind]
    assert written(dataset(namespace, name)) == f"urn:li:dataset:(urn:li:dataPlatform:{expected},PROD)"


CATALOGUED: dict[str, tuple[Json, Json, str]] = {
    "Hive": (table("hive://metastore:9083", "sales.daily"), {}, "hive,sales.daily"),
    "Spark's own catalogue": (table("file:/warehouse", "sales.daily"), {}, "hive,sales.daily"),
    "Glue, old spelling": (table(GLUE_OLD, "table/sales/daily"), {}, "glue,sales.daily"),
    "Glue, new spelling": (table(GLUE_NEW, "table/sales/daily"), {}, "glue,sales.daily"),
    "alias of Hive": (table("hive://h", "sales.daily"), {"hive_platform_alias": "glue"}, "glue,sales.daily"),
    "Delta by table": (table("file:/warehouse", "sales.daily", **catalog("delta", "delta")), {}, "hive,sales.daily"),
    "Delta by table, as such": (
        table("file:/warehouse", "sales.daily", **catalog("delta", "delta", "delta")),
        {"catalog_platforms": {"delta": "delta-lake"}},
        "delta-lake,sales.daily",
    ),
    "Hudi by table": (table("hive://h", "sales.daily", **catalog("hive", "hive", "hudi")), {}, "hive,sales.daily"),
    "Hudi by table, as such": (
        table("hive://h", "sales.daily", **catalog("hive", "hive", "hudi")),
        {"catalog_platforms": {"hudi": "hudi"}},
        "hudi,sales.daily",
    ),
    **{
        f"Iceberg of a {kind} catalogue": (
            table(namespace, "sales.daily", **catalog("iceberg", kind, "iceberg")),
            {},
            expected,
        )
        for kind, namespace, expected in (
            ("hadoop", "s3a://lake/warehouse", "hive,sales.daily"),
            ("hive", "hive://metastore:9083", "hive,sales.daily"),
            ("rest", "http://rest:8181", "hive,sales.daily"),
            ("jdbc", "postgres://db:5432", "hive,sales.daily"),
            ("nessie", "http://nessie:19120/api/v1", "hive,sales.daily"),
            ("glue", GLUE_NEW, "glue,sales.daily"),
        )
    },
    "Iceberg, as such": (
        table("http://rest:8181", "sales.daily", **catalog("iceberg", "rest", "iceberg")),
        {"catalog_platforms": {"iceberg": "iceberg"}},
        "iceberg,sales.daily",
    ),
    "Unity": (
        table("unity", "main.sales.daily", **catalog("delta", "unity", "delta")),
        {"catalog_platforms": {"unity": "databricks"}},
        "databricks,main.sales.daily",
    ),
    "view": (table("hive://h", "sales.v_daily", datasetType={"datasetType": "VIEW"}), {}, "hive,sales.v_daily"),
    "lower case": (table("hive://h", "Sales.Daily"), {"lower_case_dataset_urns": True}, "hive,sales.daily"),
    "no symlinks": (table("hive://h", "sales.daily"), {"disable_symlink_resolution": True}, "s3,lake/raw/orders/day=1"),
    "not of type TABLE": (
        {"symlinks": {"identifiers": [{"namespace": "s3://x", "name": "y", "type": "LOCATION"}]}},
        {},
        "s3,lake/raw/orders/day=1",
    ),
}


@pytest.mark.parametrize("kind", CATALOGUED)
def test_tables_of_a_catalogue_have_their_urn(kind: str) -> None:
    facets, options, expected = CATALOGUED[kind]
    stored = dataset("s3a://lake", "raw/orders/day=1", **facets)
    assert written(stored, **options) == f"urn:li:dataset:(urn:li:dataPlatform:{expected},PROD)"


def test_iceberg_in_snowflakes_catalogue_is_the_table_in_snowflake() -> None:
    # OpenLineage (its SnowflakeCatalogTypeHandler) calls the place of its files a symlink of the type TABLE.
    facets = table("s3://lake", "sales/daily", **catalog("iceberg", "rest", "iceberg"))
    stored = dataset("snowflake://org-account", "WH.SALES.DAILY", **facets)
    assert written(stored) == "urn:li:dataset:(urn:li:dataPlatform:snowflake,WH.SALES.DAILY,PROD)"


S3_DAY = dataset("s3://lake", "raw/orders/day=1")
FOLDED: dict[str, tuple[Json, Json, str]] = {
    "path spec with alias": (S3_DAY, {"path_specs": LAKE}, "s3,eu.lake/raw/orders,DEV"),
    "partition pattern": (S3_DAY, {"file_partition_regexp": "/day=.*"}, "s3,lake/raw/orders,PROD"),
    "both": (
        S3_DAY,
        {"path_specs": LAKE, "file_partition_regexp": "/orders/day=.*"},
        "s3,eu.lake/raw/orders,DEV",
    ),
    "partition pattern of a local path": (
        file("/raw/orders/day=1"),
        {"file_partition_regexp": "/day=.*"},
        "file,/raw/orders,PROD",
    ),
    "partition pattern in HDFS": (
        dataset("hdfs://nn", "/raw/orders/day=1"),
        {"file_partition_regexp": "/day=.*"},
        "hdfs,/raw/orders,PROD",
    ),
    "instance and env of all": (
        S3_DAY,
        {"dataset_platform_instance": "eu", "env": "QA"},
        "s3,eu.lake/raw/orders/day=1,QA",
    ),
    "instance and env of a platform": (
        dataset("postgres://db", "shop.public.orders"),
        {
            "path_specs": {"postgres": {"platform_instance": "main", "env": "DEV"}},
            "dataset_platform_instance": "x",
        },
        "postgres,main.shop.public.orders,DEV",
    ),
}


@pytest.mark.parametrize("kind", FOLDED)
def test_settings_change_urns(kind: str) -> None:
    stored, options, expected = FOLDED[kind]
    assert written(stored, **options) == f"urn:li:dataset:(urn:li:dataPlatform:{expected})"


@pytest.mark.parametrize("kind", FOLDED)
def test_column_lineage_uses_the_same_urns(kind: str) -> None:
    # Deviation 16: the column of a partition folder is the column of its table.
    stored, options, expected = FOLDED[kind]
    source = column("", "x") | {key: stored[key] for key in ("namespace", "name")}
    output = file("/z", columnLineage=column_lineage({"z": [source]}))
    job = only_job(whole_application(query(outputs=[output])), **options)
    (lineage,) = job.lineage.fine_grained
    assert lineage["upstreams"] == [f"urn:li:schemaField:(urn:li:dataset:(urn:li:dataPlatform:{expected}),x)"]
