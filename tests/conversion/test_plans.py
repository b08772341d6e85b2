"""What the text of a physical plan names."""

from __future__ import annotations

import json

from airflow_provider_spark_datahub.conversion.spark_log.plans import (
    Node,
    PlanDataset,
    PlanDatasets,
)
from tests.cases import cases
from tests.conversion.recordings import recorded


def node(head: str, *lines: str) -> str:
    return "\n".join([f"(1) {head}", *lines])


def plan(*nodes: str) -> PlanDatasets:
    return PlanDatasets.of(
        ["== Physical Plan ==\nCommand (2)\n+- Scan (1)\n\n\n" + "\n\n".join(nodes) + "\n\n"]
    )


def write(arguments: str, command: str = "Execute InsertIntoHadoopFsRelationCommand") -> str:
    return node(command, "Input: []", f"Arguments: {arguments}")


def datasets(listed: list[list[str]]) -> tuple[PlanDataset, ...]:
    """Return datasets from their paths and tables."""
    return tuple(PlanDataset(path, table) for path, table in listed)


def recorded_plans(recording: str, root: int) -> PlanDatasets:
    """Yield the datasets that the plans of each execution and its parts name."""
    starts = [
        json.loads(line) for line in recorded("logs", recording) if b"SQLExecutionStart" in line
    ]
    return PlanDatasets.of(
        one["physicalPlanDescription"] for one in starts if one["rootExecutionId"] == root
    )


@cases("plans")
def test_plans_of_real_executions_name_their_datasets(
    recording: str, root: int, sources: list[list[str]], sinks: list[list[str]]
) -> None:
    assert recorded_plans(recording, root) == PlanDatasets(datasets(sources), datasets(sinks))


def test_file_scans_name_their_paths() -> None:
    found = plan(
        node("Scan csv ", "Output [1]: [a#1]", "Location: InMemoryFileIndex [s3a://lake/raw]"),
        node(
            "Scan parquet spark_catalog.shop.orders [codegen id : 1]",
            "Location: CatalogFileIndex [file:/w/orders]",
        ),
        node("Scan hive spark_catalog.shop.names", "Output: []"),
        node("BatchScan ice.shop.paid", "Output: []"),
    )
    assert found.sources == (
        PlanDataset("s3a://lake/raw"),
        PlanDataset("file:/w/orders", "shop.orders"),
        PlanDataset("", "shop.names"),
        PlanDataset("", "ice.shop.paid"),
    )


@cases("plans")
def test_abbreviated_and_unclear_names_are_left_out(paths: str, known: list[str]) -> None:
    found = plan(node("Scan csv ", f"Location: InMemoryFileIndex [{paths}]"))
    assert [one.path for one in found.sources] == known


@cases("plans")
def test_sinks_are_read_from_commands(command: str, arguments: str, sinks: list[list[str]]) -> None:
    assert plan(write(arguments, command)).sinks == datasets(sinks)


def test_a_ctas_has_the_name_of_its_command_and_the_path_of_its_write() -> None:
    outer = write(
        "`spark_catalog`.`db`.`t`, ErrorIfExists, [a]", "CreateDataSourceTableAsSelectCommand"
    )
    inner = write("file:/w/db.db/t, false, Parquet, [path=file:/w/db.db/t], Overwrite, [a]")
    assert plan(outer, inner).sinks == (PlanDataset("file:/w/db.db/t", "db.t"),)


def test_a_path_of_two_tables_belongs_to_neither() -> None:
    first, second = (
        write(
            f"`spark_catalog`.`db`.`{name}`, ErrorIfExists, [a]",
            "CreateDataSourceTableAsSelectCommand",
        )
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
    assert [list(node.unclear_paths())[:1] for node in nodes] == [
        [],
        ["2 more beside file:/t/rows/0.json (raise spark.sql.maxMetadataStringLength)"],
    ]
