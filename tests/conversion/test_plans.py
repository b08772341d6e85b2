"""What the text of a physical plan names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.conversion.spark_log.plans import (
    Node,
    Plan,
    PlanDataset,
    PlanDatasets,
    Tree,
)
from tests.cases import cases
from tests.conversion.recordings import DATA, lines_of, recorded, recorded_logs


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


def plans_of(path: Path) -> Iterator[str]:
    """Yield the plans in a recorded log."""
    for line in lines_of(path):
        if b"SQLExecutionStart" in line:
            yield json.loads(line)["physicalPlanDescription"]


def query(*heads: str) -> str:
    """Return a plan of nodes one below the other. The last one scans files."""
    count = len(heads)
    tree = [
        f"{'   ' * (place - 1)}{'+- ' * (place > 0)}{head} ({count - place})"
        for place, head in enumerate(heads)
    ]
    described = [f"({count - place}) {head}\nInput [1]: [a#1]" for place, head in enumerate(heads)]
    described[-1] += "\nLocation: InMemoryFileIndex [hdfs://nn:8020/lake/in]"
    return "\n".join(
        ["== Physical Plan ==", *tree, "", "", "\n\n".join(reversed(described)), "", ""]
    )


@cases("plans")
def test_commands_that_nobody_knows_are_reported(command: str, arguments: str) -> None:
    text = query(command, "Scan parquet ").replace(
        f"(2) {command}\n", f"(2) {command}\nArguments: {arguments}\n"
    )
    assert PlanDatasets.of([text]).sinks == ()
    assert Plan.of(text).unknown_nodes() == (command,)


@cases("plans")
def test_plans_of_other_engines_name_their_datasets(
    recording: str, sources: list[list[str]], sinks: list[list[str]], unknown: list[str]
) -> None:
    texts = list(plans_of(DATA / "engines" / f"{recording}.ndjson.gz"))
    assert PlanDatasets.of(texts) == PlanDatasets(datasets(sources), datasets(sinks))
    assert [head for text in texts for head in Plan.of(text).unknown_nodes()] == unknown


@cases("plans")
def test_scans_of_other_engines_are_scans(head: str, table: str) -> None:
    (source,) = plan(node(head, "Location: InMemoryFileIndex [s3a://lake/in]")).sources
    assert source.table == table
    assert Plan.of(query("Execute ShowTablesCommand", head)).unknown_nodes() == ()


@cases("plans")
def test_what_hides_no_dataset_is_known(heads: tuple[str, ...]) -> None:
    assert Plan.of(query(*heads)).unknown_nodes() == ()


@cases("plans")
def test_what_may_hide_a_dataset_is_reported(heads: tuple[str, ...], unknown: str) -> None:
    text = query(*heads)
    if unknown == heads[-1]:
        text = text.replace("Location: ", "Place: ")
    assert Plan.of(text).unknown_nodes() == (unknown,)


def test_a_procedure_that_adds_files_is_reported() -> None:
    texts = list(plans_of(DATA / "engines" / "iceberg_add_files.ndjson.gz"))
    assert [Plan.of(text).unknown_nodes() for text in texts] == [(), ("Scan",), ("Scan",)]
    result = query("CommandResult", "LocalTableScan").replace("[a#1]", "[added_files_count#1L]")
    assert Plan.of(result).unknown_nodes() == ("LocalTableScan",)
    assert Plan.of(query("CommandResult", "LocalTableScan")).unknown_nodes() == ()


def test_a_text_with_an_empty_line_does_not_end_a_node() -> None:
    texts = ["Input [1]: [a#1]\nCondition : (a#1 = one\n\ntwo)", "Output [1]: [a#1]"]
    (first, second) = Plan.of(f"(2) Filter\n{texts[0]}\n\n(1) Scan csv \n{texts[1]}\n\n").nodes
    assert (first.body.strip(), second.body.strip()) == (texts[0], texts[1])
    subqueries = (
        "===== Subqueries =====\n\nSubquery:1 Hosting operator id = 2 Hosting Expression = x\n"
    )
    (last,) = Plan.of(f"(2) Filter\n{texts[0]}\n\n{subqueries}").nodes
    assert last.body.strip() == texts[0]


def place_of_node(tree: Tree, node: Node) -> tuple[object, ...]:
    """Return a key that nodes share if they have the same name, parent and kind of plan."""
    nodes = list(tree.nodes.values())
    above = [parent.kind for parent in nodes if node.number in parent.children][:1]
    text = re.sub(
        r"\d+", "", f"{node.head[:14]}{node.arguments[:20]}" if node.writer else node.head[:14]
    )
    return (node.kind, text, *above, nodes[0].kind, tree.subquery[0], bool(node.children))


@cache
def nodes_of_recorded_plans() -> list[tuple[str, Node]]:
    """Return the nodes of all recorded plans, each with its plan: one of those at the same place."""
    nodes: dict[tuple[object, ...], tuple[str, Node]] = {}
    for path in recorded_logs():
        for text in plans_of(path):
            for tree in Plan.of(text).trees:
                for node in tree.nodes.values():
                    nodes.setdefault(place_of_node(tree, node), (text, node))
    return list(nodes.values())


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("name", "step"), [(r"\1Renamed", 1), (r"\1Acme\2", 5), (r"\1\2Transformer", 5)]
)
def test_a_renamed_node_turns_no_dataset_into_silence(name: str, step: int) -> None:
    nodes = nodes_of_recorded_plans()[::step]
    assert len(nodes) > 400
    silent: list[str] = []
    for text, renamed in nodes:
        head = re.compile(rf"^(\({renamed.number}\) (?:Execute )?)(\S+)", re.MULTILINE)
        other = head.sub(name, text)
        assert other != text
        before, after = PlanDatasets.of([text]), PlanDatasets.of([other])
        is_same = [*map(set, after)] == [*map(set, before)]
        unknown = set(Plan.of(other).unknown_nodes()) - set(Plan.of(text).unknown_nodes())
        if not (is_same or unknown):
            silent.append(renamed.head)
    assert silent == []
