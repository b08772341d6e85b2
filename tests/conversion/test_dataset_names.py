"""Names and URNs of datasets: stores, paths, partitions and catalogues (conversion rules, section 3)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion import DatasetId, JobLineage, LineageSettings
from airflow_provider_spark_datahub.conversion.datasets import (
    DatasetName,
    DatasetNamer,
    Symlinks,
    is_parent_folder,
    table_and_selector,
)
from airflow_provider_spark_datahub.conversion.events import Facets
from airflow_provider_spark_datahub.conversion.settings import PathSpec
from tests.conversion.builders import (
    Json,
    column,
    column_lineage,
    dataset,
    file,
    file_urns,
    only_job,
    query,
    schema,
    settings,
    symlink,
    urn,
    whole_application,
)

# -- The URN of each kind of dataset, from an event to the edge: one row per store, catalogue and format


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


# -- Names and URNs of datasets


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


# -- Path specs and partition folders


BAR = "s3://my-bucket/foo/tests/bar.avro"


def named(namespace: str, path: str, specs: Sequence[PathSpec] = (), partition: str | None = None) -> DatasetName:
    settings = LineageSettings(path_specs=tuple(specs), file_partition_regexp=partition)
    name = DatasetNamer(settings, {}).name(DatasetId(namespace, path))
    assert name is not None
    return name


def named_uri(uri: str, specs: Sequence[PathSpec] = (), partition: str | None = None) -> DatasetName:
    scheme, _, rest = uri.partition("://")
    host, slash, path = rest.partition("/")
    return named(f"{scheme}://{host}", slash + path, specs, partition)


@pytest.mark.parametrize(
    ("path", "pattern", "name"),
    [
        (BAR, None, "my-bucket/foo/tests/bar.avro"),
        (BAR, "s3://my-bucket/foo/{table}/*", "my-bucket/foo/tests"),
        (BAR, "s3://my-bucket/foo/tests/{table}", "my-bucket/foo/tests/bar.avro"),
        ("gs://my-bucket/foo/tests/bar.avro", "gs://my-bucket/{table}/*/*", "my-bucket/foo"),
        # HdfsPathDatasetTest of the Java listener.
        ("s3a://my-bucket/foo/tests/bar.avro", "s3a://my-bucket/foo/{table}", "my-bucket/foo/tests"),
        ("s3a://my-bucket/foo/tests/bar.avro", "s3a://my-bucket/{table}", "my-bucket/foo"),
        ("s3a://my-bucket/foo/tests/bar.avro", "s3a://my-bucket/other/{table}", "my-bucket/foo/tests/bar.avro"),
        # StreamingDescriptionGCSWithPathSpec and OpenlineageDatasetWithPathSpec.
        (
            "gcs://my-bucket/foo/tests/year=2023/month=03/day=11/myfile.parquet",
            "gcs://my-bucket/foo/{table}/*/*/*",
            "my-bucket/foo/tests",
        ),
        ("s3a://d/kafka_backup/482_MCL/year=2023/x", "s3a://d/kafka_backup/{table}/year=*/*", "d/kafka_backup/482_MCL"),
        # `*` is one folder, and the scheme counts.
        ("s3://b/eu/sales/x", "s3://b/*/{table}", "b/eu/sales"),
        ("s3://b/eu/sales", "s3://b/*/*/{table}", "b/eu/sales"),
        (BAR, "s3a://my-bucket/{table}", "my-bucket/foo/tests/bar.avro"),
        ("file:///lake/orders/x.csv", "file:///lake/{table}", "/lake/orders"),
    ],
)
def test_a_path_spec_cuts_the_path(path: str, pattern: str | None, name: str) -> None:
    platform = {"s3a": "s3", "gs": "gcs"}.get(path.partition("://")[0], path.partition("://")[0])
    specs = [PathSpec(platform, (pattern,))] if pattern else []
    assert named_uri(path, specs).name == name


@pytest.mark.parametrize(
    ("scheme", "platform"),
    [
        *((scheme, "s3") for scheme in ("s3", "s3a", "s3n")),
        *((scheme, "gcs") for scheme in ("gs", "gcs")),
        *((scheme, "abs") for scheme in ("abfs", "abfss", "wasb", "wasbs")),
        ("dbfs", "dbfs"),
        ("file", "file"),
        # No scheme, but the Java listener's parser finds s3 in it.
        ("s3:cos", "hdfs"),
    ],
)
def test_schemes_have_platforms(scheme: str, platform: str) -> None:
    assert named_uri(f"{scheme}://b/x").platform == platform


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("s3://b/a/b///", "b/a/b"),
        ("s3:///b/a", "b/a"),
        ("file:///a/b", "/a/b"),
        ("wasbs://c@acc.blob.core.windows.net/t", "c@acc.blob.core.windows.net/t"),
    ],
)
def test_slashes_are_normalized(uri: str, name: str) -> None:
    assert named_uri(uri).name == name


def test_a_path_with_two_schemes_is_an_hdfs_path() -> None:
    assert named_uri("s3://b/x://y") == DatasetName("hdfs", "s3://b/x://y", "PROD")


def test_the_first_spec_that_fits_decides_with_its_own_instance() -> None:
    first = PathSpec("s3", ("s3://b/x/{table}", "s3://b/*/{table}"), platform_instance="one")
    second = PathSpec("s3", ("s3://b/{table}",), platform_instance="two", alias="whole bucket")
    other = PathSpec("gcs", ("s3://b/{table}",))
    assert named_uri("s3://b/a/t/f", [other, first, second]) == DatasetName("s3", "b/a/t", "PROD", "one")
    assert named_uri("s3://b/a", [other, first, second]) == DatasetName("s3", "b/a", "PROD", "two")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("s3://b/t/dt=2026-01-01/h=1", "b/t"),
        ("s3://b/t/dt=1/", "b/t"),
        ("s3://b/dt=1/t", "b/dt=1/t"),
        ("s3://b/t", "b/t"),
    ],
)
def test_the_partition_pattern_cuts_the_end(path: str, name: str) -> None:
    assert named_uri(path, partition="/dt=[^/]*(/h=[^/]*)?").name == name


def test_a_path_spec_goes_before_the_partition_pattern() -> None:
    specs = [PathSpec("s3", ("s3://b/{table}",))]
    assert named_uri("s3://b/t/dt=1", specs, "/t/dt=.*").name == "b/t"


@pytest.mark.parametrize(
    "pattern", ["hdfs://nn:8020/wh/{table}", "hdfs:///wh/{table}", "hdfs:/wh/{table}", "/wh/{table}"]
)
def test_plain_paths_follow_specs_too(pattern: str) -> None:
    # Deviation 16; the name keeps its leading slash.
    spec = PathSpec("hdfs", (pattern,), env="DEV")
    assert named("hdfs://nn:8020", "/wh/t/part-0", [spec]) == DatasetName("hdfs", "/wh/t", "DEV")


@pytest.mark.parametrize(
    ("path", "name"), [("/wh/t/dt=1", "/wh/t"), ("/wh/t/dt=1/", "/wh/t"), ("/wh/t/", "/wh/t/"), ("/dt=1", "/dt=1")]
)
def test_plain_paths_follow_the_partition_pattern_too(path: str, name: str) -> None:
    # Deviation 16; a path without partition keeps its text, and nothing is cut to nothing.
    assert named("file", path, partition="/dt=.*").name == name


def test_a_pattern_without_marker_matches_nothing() -> None:
    assert named_uri("s3://b/a/c", [PathSpec("s3", ("s3://b/a",))]).name == "b/a/c"


@pytest.mark.parametrize(
    ("folder", "path", "expected"),
    [("/a", "/a/b", True), ("/a/", "/a/b/c", True), ("/a", "/ab", False), ("/a", "/a", False), ("/", "/a", True)],
)
def test_parent_folders_are_recognised(folder: str, path: str, expected: bool) -> None:
    assert is_parent_folder(folder, path) == expected


# -- Folders of partitions, which openlineage-spark names before 1.39: they are the table that they belong to


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


# -- Selectors that Iceberg puts behind a table's name: branches, tags, snapshots, metadata tables


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
