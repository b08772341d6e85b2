"""Names and URNs of datasets: stores, paths, partitions and catalogues (conversion rules, section
3).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion import (
    Conversion,
    Converter,
    DatasetId,
    Ending,
    LineageSettings,
)
from airflow_provider_spark_datahub.conversion.datasets import (
    DatasetName,
    DatasetNamer,
    Symlinks,
    table_and_selector,
)
from airflow_provider_spark_datahub.conversion.events import Facets, dataset_id
from airflow_provider_spark_datahub.conversion.settings import PathSpec
from tests.cases import cases
from tests.conversion.builders import (
    Json,
    column,
    column_lineage,
    dataset,
    file,
    only_job,
    query,
    schema,
    settings,
    symlink,
    urn,
    whole_application,
)
from tests.conversion.recordings import lines_of

# -- The URN of each kind of dataset, from an event to the edge: one row per store, catalogue and
# format


def written(stored: Json, **options: Any) -> str:
    """Return the only URN that a query writes to."""
    (urn,) = only_job(whole_application(query(outputs=[stored])), **options).lineage.outputs
    return urn


@cases("datasets")
def test_datasets_without_a_catalogue_have_their_urn(
    namespace: str, name: str, expected: str
) -> None:
    assert (
        written(dataset(namespace, name)) == f"urn:li:dataset:(urn:li:dataPlatform:{expected},PROD)"
    )


@cases("datasets")
def test_tables_of_a_catalogue_have_their_urn(
    link: list[str], facets: Json, options: Json, expected: str
) -> None:
    stored = dataset("s3a://lake", "raw/orders/day=1", symlinks=symlink(*link), **facets)
    assert written(stored, **options) == f"urn:li:dataset:(urn:li:dataPlatform:{expected},PROD)"


def test_case_counts_if_spark_distinguishes_it() -> None:
    facets = {"spark_properties": {"properties": {"spark.sql.caseSensitive": "true"}}}
    job = only_job(
        [
            query(
                run_facets=facets,
                outputs=[dataset("file", "/t", symlinks=symlink("file:/wh", "db.T"))],
            )
        ]
    )
    assert [*job.lineage.outputs] == [urn("hive", "db.T")]


def test_iceberg_in_snowflakes_catalogue_is_the_table_in_snowflake() -> None:
    # OpenLineage (its SnowflakeCatalogTypeHandler) calls the place of its files a symlink of the
    # type TABLE.
    catalog = {"framework": "iceberg", "type": "rest", "name": "c"}
    facets = {
        "symlinks": symlink("s3://lake", "sales/daily"),
        "storage": {"storageLayer": "iceberg"},
    }
    stored = dataset("snowflake://org-account", "WH.SALES.DAILY", catalog=catalog, **facets)
    assert written(stored) == "urn:li:dataset:(urn:li:dataPlatform:snowflake,WH.SALES.DAILY,PROD)"


@cases("datasets")
def test_settings_change_urns(namespace: str, name: str, options: Json, expected: str) -> None:
    assert (
        written(dataset(namespace, name), **options)
        == f"urn:li:dataset:(urn:li:dataPlatform:{expected})"
    )


@cases("datasets", "test_settings_change_urns")
def test_column_lineage_uses_the_same_urns(
    namespace: str, name: str, options: Json, expected: str
) -> None:
    # Deviation 16: the column of a partition folder is the column of its table.
    source = column("", "x", namespace=namespace) | {"name": name}
    output = file("/z", columnLineage=column_lineage({"z": [source]}))
    job = only_job(whole_application(query(outputs=[output])), **options)
    (lineage,) = job.lineage.fine_grained
    assert lineage["upstreams"] == [
        f"urn:li:schemaField:(urn:li:dataset:(urn:li:dataPlatform:{expected}),x)"
    ]


# -- Names and URNs of datasets


def name_urn(
    namespace: str, name: str, symlinks: Sequence[Sequence[str]] = (), **options: Any
) -> str | None:
    """Return a dataset's URN. :param symlinks: namespace and name of paths, and of the tables
    behind them.
    """
    tables = {DatasetId(*link[:2]): DatasetId(*link[2:]) for link in symlinks}
    named = DatasetNamer(settings(**options), tables).name(dataset_id(namespace, name))
    return named.urn if named else None


@cases("datasets")
def test_names_depend_on_symlinks_and_settings(
    namespace: str, name: str, symlinks: list[list[str]], options: Any, expected: str
) -> None:
    expected_urn = f"urn:li:dataset:(urn:li:dataPlatform:{expected})"
    assert name_urn(namespace, name, symlinks, **options) == expected_urn


@cases("datasets")
def test_namespace_and_name_give_platform_and_name(
    namespace: str, name: str, platform: str, expected: str
) -> None:
    assert name_urn(namespace, name) == urn(platform, expected)


@cases("datasets")
def test_tables_without_a_schema_get_the_default(namespace: str, name: str, expected: str) -> None:
    assert name_urn(namespace, name) == expected


@cases("datasets")
def test_symlinks_name_the_table(facet: Any, options: Any, expected: list[str] | None) -> None:
    assert symlinked_table({"symlinks": facet}, **options) == (
        DatasetId(*expected) if expected else None
    )


def symlinked_table(facets: Any, **options: Any) -> DatasetId | None:
    symlinks, path = Symlinks(), DatasetId("file", "/wh/t")
    symlinks.learn(path, Facets.of(facets), settings(**options))
    return symlinks.by_dataset.get(path)


@cases("datasets")
def test_catalog_platforms_set_the_platform_of_tables(facets: Any, platform: str) -> None:
    catalogs = {"iceberg": "iceberg", "delta": "delta-lake", "unity": "databricks"}
    linked = {"symlinks": symlink("s3://warehouse", "db.orders"), **facets}
    assert symlinked_table(linked, catalog_platforms=catalogs) == (platform, "db.orders")
    # Off by default: an Iceberg table is Hive's.
    assert symlinked_table(linked) == ("hive", "db.orders")


def test_a_table_keeps_its_platform_if_only_some_events_describe_it() -> None:
    # OpenLineage 1.53.0 gives a Delta table the facets `catalog` and `storage` if it is written,
    # not if it is read.
    named = {"symlinks": symlink("s3://warehouse", "db.orders")}
    described = named | {"catalog": {"framework": "delta"}, "storage": {"storageLayer": "delta"}}
    parquet = named | {"storage": {"storageLayer": "default"}}
    of_hive = named | {"catalog": {"framework": "hive", "type": "hive"}}
    delta, hive = (
        settings(catalog_platforms={"delta": "delta-lake"}),
        settings(catalog_platforms={"hive": "hive-1"}),
    )
    for events, options, platform in (
        ([described, named], delta, "delta-lake"),
        ([named, described], delta, "delta-lake"),
        ([described, parquet], delta, "hive"),  # made anew
        ([described, named], settings(), "hive"),
        ([described, of_hive, named], delta, "delta-lake"),
        ([of_hive, described], delta, "delta-lake"),
        ([named, of_hive, named], hive, "hive-1"),
    ):
        symlinks, path = Symlinks(), DatasetId("file", "/wh/t")
        for facets in events:
            symlinks.learn(path, Facets.of(facets), options)
        assert symlinks.by_dataset == {path: (platform, "db.orders")}


@cases("datasets")
def test_datasets_without_a_usable_urn_are_left_out(namespace: str, name: str, reason: str) -> None:
    namer = DatasetNamer(settings(), {})
    assert namer.name(dataset_id(namespace, name)) is None
    assert namer.unusable == {DatasetId(namespace, name): reason}


# -- Path specs and partition folders


def named(
    namespace: str, path: str, specs: Sequence[PathSpec] = (), partition: str | None = None
) -> DatasetName:
    settings = LineageSettings(path_specs=tuple(specs), file_partition_regexp=partition)
    name = DatasetNamer(settings, {}).name(DatasetId(namespace, path))
    assert name is not None
    return name


def named_uri(
    uri: str, specs: Sequence[PathSpec] = (), partition: str | None = None
) -> DatasetName:
    scheme, _, rest = uri.partition("://")
    host, slash, path = rest.partition("/")
    return named(f"{scheme}://{host}", slash + path, specs, partition)


@cases("datasets")
def test_a_path_spec_cuts_the_path(path: str, pattern: str | None, name: str) -> None:
    platform = {"s3a": "s3", "gs": "gcs"}.get(path.partition("://")[0], path.partition("://")[0])
    specs = [PathSpec(platform, (pattern,))] if pattern else []
    assert named_uri(path, specs).name == name


@cases("datasets")
def test_schemes_have_platforms(scheme: str, platform: str) -> None:
    assert named_uri(f"{scheme}://b/x").platform == platform


@cases("datasets")
def test_slashes_are_normalized(uri: str, name: str) -> None:
    assert named_uri(uri).name == name


@cases("datasets")
def test_the_partition_pattern_cuts_the_end(path: str, name: str) -> None:
    assert named_uri(path, partition="/dt=[^/]*(/h=[^/]*)?").name == name


def test_a_pattern_without_marker_matches_nothing() -> None:
    assert named_uri("s3://b/a/c", [PathSpec("s3", ("s3://b/a",))]).name == "b/a/c"


# -- Selectors that Iceberg puts behind a table's name: branches, tags, snapshots, metadata tables


@cases("datasets")
def test_names_are_split_into_table_and_selector(
    name: str, path: str, table: str, selector: str
) -> None:
    assert table_and_selector(name, path) == (table, selector)


def facets(name: str, framework: str = "iceberg") -> dict[str, Any]:
    return {"symlinks": symlink("file:/lake", name), "catalog": {"framework": framework}}


@pytest.mark.parametrize(
    ("selector", "of_the_table"), [(".snapshots", False), (".branch_audit", True), ("", True)]
)
def test_only_metadata_tables_have_columns_of_their_own(selector: str, of_the_table: bool) -> None:
    path = DatasetId("file", "/lake/db/orders")
    assert (
        Symlinks().learn(path, Facets.of(facets(f"db.orders{selector}")), settings())
        is of_the_table
    )


def test_reading_a_metadata_table_changes_no_name_and_no_schema() -> None:
    written = file("/lake/db/orders", **facets("db.orders"), schema=schema(("order_id", "long")))
    looked = file(
        "/lake/db/orders", **facets("db.orders.files"), schema=schema(("file_path", "string"))
    )
    events = whole_application(query(outputs=[written]), query(run_id="run-2", inputs=[looked]))
    job = only_job(events, datasets="schemas")
    (output,) = job.lineage.outputs.values()
    assert output.name.urn == urn("hive", "db.orders")
    assert list(job.lineage.inputs) == [urn("hive", "db.orders")]
    assert output.schema is not None
    assert [field["fieldPath"] for field in output.schema["fields"]] == ["order_id"]


def test_names_of_other_catalogues_are_unchanged() -> None:
    job = only_job(
        whole_application(query(outputs=[file("/w/x", **facets("unity.shop.files", "unity"))]))
    )
    assert list(job.lineage.outputs) == [urn("hive", "unity.shop.files")]


# -- One URN for a Delta table of a Hive metastore, whether a job writes it, reads it or merges into
# it


# The applications of ``tests/data/delta_tables`` (Spark 4.1.4, Delta 4.4.0, a metastore in Derby):
# ``writes`` makes ``dt`` with Delta and ``pt`` with Parquet; ``into_files`` copies each into files;
# ``into_tables`` copies each into a Delta table at a path, and merges ``pt`` into ``dt``.
# OpenLineage describes ``dt`` as Delta's only in ``writes``.
DATA = Path(__file__).parents[1] / "data" / "delta_tables"
DELTA, PARQUET = urn("delta-lake", "default.dt"), urn("hive", "default.pt")
ONLY_DELTA, HIVE_TOO = {"delta": "delta-lake"}, {"delta": "delta-lake", "hive": "hive"}


def tables(found: Conversion) -> tuple[set[str], set[str]]:
    """Return the inputs and outputs that are tables of the metastore."""
    return tuple(
        {each for each in urns if ",default." in each} for urns in (found.inputs, found.outputs)
    )  # type: ignore[return-value]


def converted(
    name: str, platforms: Json, *, with_log: bool, without: str | None = None
) -> Conversion:
    """Convert an application. :param without: leaves out the events of queries that name a path."""
    converter = Converter(settings(catalog_platforms=platforms))
    events = [json.loads(line) for line in lines_of(DATA / f"{name}.ndjson")]
    lost = {
        event["run"]["runId"] for event in events if without and f'{without}"' in json.dumps(event)
    }
    for event in events:
        if event["run"]["runId"] not in lost:
            converter.add(event)
    for line in lines_of(DATA / f"{name}.log.ndjson") if with_log else ():
        converter.add_log_event(json.loads(line))
    return converter.finish(Ending(succeeded=True))


@pytest.mark.parametrize("with_log", [False, True])
@pytest.mark.parametrize("platforms", [ONLY_DELTA, HIVE_TOO])
def test_writes_reads_and_merges_have_one_urn(platforms: Json, with_log: bool) -> None:
    assert tables(converted("writes", platforms, with_log=with_log)) == (set(), {DELTA, PARQUET})
    assert tables(converted("into_tables", platforms, with_log=with_log)) == (
        {DELTA, PARQUET},
        {DELTA},
    )


def test_without_the_setting_all_are_tables_of_hive() -> None:
    for name, outputs in (("into_files", set[str]()), ("into_tables", {urn("hive", "default.dt")})):
        for with_log in (False, True):
            found = tables(converted(name, {}, with_log=with_log))
            assert found == ({urn("hive", "default.dt"), PARQUET}, outputs)


@pytest.mark.parametrize("platforms", [ONLY_DELTA, HIVE_TOO])
def test_queries_without_events_have_the_platform_of_their_format(platforms: Json) -> None:
    without_delta = converted("into_tables", platforms, with_log=True, without="/warehouse/dt")
    assert without_delta.diagnostics.lost_executions
    assert tables(without_delta) == ({DELTA, PARQUET}, {DELTA})
    without_parquet = converted("writes", platforms, with_log=True, without="/warehouse/pt")
    assert tables(without_parquet) == (set(), {DELTA, PARQUET})
