"""What the text of a physical plan names."""

from __future__ import annotations

import json

import pytest

from airflow_provider_spark_datahub.conversion.spark_log.plan_datasets import PlanDataset, PlanDatasets, unclear_paths
from airflow_provider_spark_datahub.conversion.spark_log.plans import Node
from tests.cases import cases
from tests.conversion.recordings import recorded

CSV = PlanDataset("file:/lake/raw/orders.csv")


def node(head: str, *lines: str) -> str:
    return "\n".join([f"(1) {head}", *lines])


def plan(*nodes: str) -> PlanDatasets:
    return PlanDatasets.of(["== Physical Plan ==\nCommand (2)\n+- Scan (1)\n\n\n" + "\n\n".join(nodes) + "\n\n"])


def write(arguments: str, command: str = "Execute InsertIntoHadoopFsRelationCommand") -> str:
    return node(command, "Input: []", f"Arguments: {arguments}")


def recorded_plans(recording: str, root: int) -> PlanDatasets:
    """Yield the datasets that the plans of each execution and its parts name."""
    starts = [json.loads(line) for line in recorded("logs", recording) if b"SQLExecutionStart" in line]
    return PlanDatasets.of(one["physicalPlanDescription"] for one in starts if one["rootExecutionId"] == root)


# By hand from the jobs: what each execution's statement reads and writes.
@pytest.mark.parametrize(
    ("recording", "root", "sources", "sinks"),
    [
        ("drop_rename-4.3.0", 8, [CSV], [PlanDataset("file:/lake/warehouse/swap.db/orders_new", "swap.orders_new")]),
        ("delta_merge-4.0.5", 5, [CSV], [PlanDataset("", "gold.orders")]),
        (
            "iceberg_hadoop-3.5.9",
            8,
            [PlanDataset("", "ice.sales.orders"), CSV],
            [PlanDataset("", "ice.sales.orders")],
        ),
        ("iceberg_hadoop-4.0.5", 6, [CSV], [PlanDataset("", "sales.orders")]),
        (
            "udf_union-3.5.9",  # From a cached relation.
            3,
            [CSV, PlanDataset("file:/lake/raw/old_orders")],
            [PlanDataset("file:/lake/out/union/spread")],
        ),
    ],
)
def test_plans_of_real_executions_name_their_datasets(
    recording: str, root: int, sources: list[PlanDataset], sinks: list[PlanDataset]
) -> None:
    assert recorded_plans(recording, root) == PlanDatasets(tuple(sources), tuple(sinks))


def test_file_scans_name_their_paths() -> None:
    found = plan(
        node("Scan csv ", "Output [1]: [a#1]", "Location: InMemoryFileIndex [s3a://lake/raw]"),
        node("Scan parquet spark_catalog.shop.orders [codegen id : 1]", "Location: CatalogFileIndex [file:/w/orders]"),
        node("Scan hive spark_catalog.shop.names", "Output: []"),
        node("BatchScan ice.shop.paid", "Output: []"),
    )
    assert found.sources == (
        PlanDataset("s3a://lake/raw"),
        PlanDataset("file:/w/orders", "shop.orders"),
        PlanDataset("", "shop.names"),
        PlanDataset("", "ice.shop.paid"),
    )


@cases("plan_datasets")
def test_abbreviated_and_unclear_names_are_left_out(paths: str, known: list[str]) -> None:
    found = plan(node("Scan csv ", f"Location: InMemoryFileIndex [{paths}]"))
    assert [one.path for one in found.sources] == known


@pytest.mark.parametrize(
    ("nodes", "sinks"),
    [
        ([write("s3://b/out, false, Parquet, [path=s3://b/out], Append, [a]")], [PlanDataset("s3://b/out")]),
        (
            [write("file:/w/t, false, Parquet, [x=1], Append, `spark_catalog`.`db`.`t`, Index(file:/w/t), [a]")],
            [PlanDataset("file:/w/t", "db.t")],
        ),
        ([write("`spark_catalog`.`db`.`t`, Overwrite, [a]", "CreateDataSourceTableAsSelectCommand")],
         [PlanDataset("", "db.t")]),
        ([write("[Database: db, TableName: t]", "CreateHiveTableAsSelectCommand")], [PlanDataset("", "db.t")]),
        ([write("org.apache.spark.sql.delta.sources.DeltaDataSource@1, [mode=x, path=/d/t], Append",
                "SaveIntoDataSourceCommand")], [PlanDataset("/d/t")]),
        ([write("org.apache.spark.sql.jdbc.Provider@1, [url=*********(redacted), dbtable=t], Append",
                "SaveIntoDataSourceCommand")], []),
        ([write("SubqueryAlias s, SubqueryAlias t, Delta[version=3, file:/d/t], (a = b)", "MergeIntoCommand")],
         [PlanDataset("file:/d/t")]),
        ([write("IcebergWrite(table=ice.db.t, format=PARQUET)", "ReplaceData")], [PlanDataset("", "ice.db.t")]),
        ([write("a.b.Catalog@1f, db.t, Relation [a#1] csv", "AtomicCreateTableAsSelect")], [PlanDataset("", "db.t")]),
        # A table of Delta's that is a path.
        ([write("org.apache.spark.sql.delta.catalog.DeltaCatalog@1f, delta.`/d/t`, Project [a#1 AS b#2], TableSpec()",
                "AtomicCreateTableAsSelect")], [PlanDataset("/d/t")]),
        ([write("DeltaTableV2(org.apache.spark.sql.SparkSession@3b,/d/t,None,None,None,Map()), Project [a#1 AS b#2]",
                "AppendDataExecV1")], [PlanDataset("/d/t")]),
        ([write("`spark_catalog`.`db`.`t`, [a]", "AlterTableAddColumnsCommand")], []),
    ],
)  # fmt: skip
def test_sinks_are_read_from_commands(nodes: list[str], sinks: list[PlanDataset]) -> None:
    assert list(plan(*nodes).sinks) == sinks


def test_a_ctas_has_the_name_of_its_command_and_the_path_of_its_write() -> None:
    outer = write("`spark_catalog`.`db`.`t`, ErrorIfExists, [a]", "CreateDataSourceTableAsSelectCommand")
    inner = write("file:/w/db.db/t, false, Parquet, [path=file:/w/db.db/t], Overwrite, [a]")
    assert plan(outer, inner).sinks == (PlanDataset("file:/w/db.db/t", "db.t"),)


def test_a_path_of_two_tables_belongs_to_neither() -> None:
    first, second = (
        write(f"`spark_catalog`.`db`.`{name}`, ErrorIfExists, [a]", "CreateDataSourceTableAsSelectCommand")
        for name in ("t", "u")
    )
    inner = write("file:/other/t, false, Parquet, [], Overwrite, [a]")
    assert plan(first, inner, second).sinks == (PlanDataset("", "db.t"), PlanDataset("", "db.u"))
    in_warehouse = write("file:/w/db.db/t, false, Parquet, [], Overwrite, [a]")
    named = (PlanDataset("file:/w/db.db/t", "db.t"), PlanDataset("", "db.u"))
    assert plan(first, in_warehouse, inner, second).sinks == named
    # The other path is a folder of files.
    assert plan(first, in_warehouse, inner).sinks == (named[0], PlanDataset("file:/other/t"))


def test_the_transaction_log_of_a_table_is_not_a_list_of_files() -> None:
    location = "Location: InMemoryFileIndex [file:/t/{}/0.json, ... 2 entries]"
    nodes = [Node(1, "Scan json", location.format(folder)) for folder in ("_delta_log", "rows")]
    assert [list(unclear_paths(node))[:1] for node in nodes] == [
        [],
        ["2 more beside file:/t/rows/0.json (raise spark.sql.maxMetadataStringLength)"],
    ]
