"""Boxes, links and columns of a network."""

from __future__ import annotations

import re
from pathlib import Path

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.visualization import Graph, Network, render_svg
from airflow_provider_spark_datahub.visualization.network import ColumnSource, _text_width
from tests.cli.commands import run
from tests.visualization.conftest import (
    RAW,
    TABLE,
    application_run,
    dataset,
    event,
    job_of_writes,
    lineage,
    run_proposals,
    spark_job,
)


def titles(shown: Network) -> list[str]:
    return [box.title for box in shown.boxes.values()]


def links(shown: Network) -> set[tuple[str, str]]:
    return {
        (shown.boxes[source].title, shown.boxes[target].title) for source, target in shown.links
    }


def test_columns_are_those_of_the_schema_then_those_that_lineage_names() -> None:
    orders, clean = dataset("orders"), dataset("clean")
    fields = [
        {"fieldPath": "id", "nativeDataType": "long"},
        {
            "fieldPath": "[version=2.0].[type=struct].[type=struct].address.[type=string].street",
            "nativeDataType": "string",
        },
    ]
    proposals = [
        Proposal("dataset", orders, "schemaMetadata", {"fields": fields}),
        lineage(
            "job",
            [orders],
            [clean],
            [(f"{clean}#x", [f"{orders}#id", f"{orders}#lost"], "-- DIRECT:IDENTITY\nSELECT")],
        ),
    ]
    shown = Network.of(Graph.of(proposals))
    columns = {box.title: box.columns for box in shown.datasets}
    assert [(column.name, column.type) for column in columns["orders"]] == [
        ("id", "long"),
        ("address.street", "string"),
        ("lost", ""),
    ]
    (made,) = columns["clean"]
    job = shown.jobs[0].key
    known, _, lost = columns["orders"]
    assert made.sources == (
        ColumnSource(known.key, "identity", job, 1),
        ColumnSource(lost.key, "identity", job, 1),
    )


def test_the_job_of_a_task_is_shown_under_the_name_of_its_application() -> None:
    job = "urn:li:dataJob:(urn:li:dataFlow:(spark,ingest,default),lake.load)"
    found = Graph.of([
        Proposal("dataJob", job, "dataJobInfo", {"name": "ingest"}),
        Proposal("dataJob", job, "dataJobInputOutput", {"outputDatasets": [dataset("one")]}),
        *run_proposals("urn:li:dataProcessInstance:r", "r", job, None, ()),
    ])  # fmt: skip
    assert found.roots[0].title() == ("Spark", "ingest", "r")
    (box,) = Network.of(found).jobs
    assert (box.title, box.note) == ("ingest", "Spark lake.load")


def test_each_source_names_its_job_and_statement() -> None:
    source, made = dataset("one"), dataset("made")
    columns = f"{made}#x", [f"{source}#x"]
    queries = [f"-- DIRECT:IDENTITY\nSELECT x -- {number}\n\tFROM one" for number in range(2)]
    proposals = [
        lineage("a", [source], [made], [(*columns, text) for text in (*queries, queries[0])]),
        lineage("b", [source], [made], [(*columns, text) for text in (queries[0], "by hand")]),
    ]
    shown = Network.of(Graph.of(proposals))
    (table,) = [box for box in shown.datasets if box.title == "made"]
    first, second = [box.key for box in shown.jobs]
    texts = [f"SELECT x -- {number}\n    FROM one" for number in range(2)]
    assert table.statements == ((first, texts[0]), (first, texts[1]), (second, texts[0]))
    (column,) = table.columns
    assert [(source.label, source.job, source.statement) for source in column.sources] == [
        ("identity", first, 1),
        ("identity", first, 2),
        ("identity", second, 3),
        ("by hand", second, 0),
    ]


def test_what_only_column_lineage_names_is_linked() -> None:
    clean, hidden = TABLE.format("clean"), TABLE.format("hidden")
    shown = Network.of(
        Graph.of([lineage("job", [], [clean], [(f"{clean}#x", [f"{hidden}#y"], "")])])
    )
    assert links(shown) == {("sales.hidden", "job"), ("job", "sales.clean")}


def test_long_names_keep_both_ends_and_fit_their_box() -> None:
    long = dataset("start_" + "x" * 400 + "_end")
    shown = Network.of(Graph.of([lineage("job", [long], [RAW.format("a")], [])]))
    box = next(iter(shown.boxes.values()))
    assert box.title.startswith("start_")
    assert _text_width(box.title, 13) < shown.sizes[box.key][0]


def test_a_job_with_a_datajob_for_each_output_is_drawn_write_by_write() -> None:
    raw, base, big, seen = map(dataset, ("raw", "base", "big", "seen"))
    proposals = job_of_writes(
        "daily",
        ([base], [big], [(f"{big}#x", [f"{base}#x"], "INDIRECT:FILTER")]),
        ([raw], [base], [(f"{base}#x", [f"{raw}#x"], "DIRECT:IDENTITY")]),
        reads=(seen,),
    )
    proposals += application_run("urn:li:dataProcessInstance:app", "daily")
    proposals.append(event("urn:li:dataProcessInstance:app", 1, "FAILURE"))
    network = Network.of(Graph.of(proposals))
    # In the order of the data, whatever that of the proposals.
    assert links(network) == {
        ("seen", "daily 1/3"),
        ("raw", "daily 2/3"),
        ("daily 2/3", "base"),
        ("base", "daily 3/3"),
        ("daily 3/3", "big"),
    }
    assert network.job_count == 1
    assert {(box.urn, box.state) for box in network.jobs} == {(spark_job("daily"), "FAILURE")}


def test_the_only_write_of_a_job_has_its_name() -> None:
    raw, base = map(dataset, ("raw", "base"))
    network = Network.of(Graph.of(job_of_writes("daily", ([raw], [base], []))))
    assert links(network) == {("raw", "daily"), ("daily", "base")}


def test_every_view_says_why_a_run_failed() -> None:
    job = Path(__file__).parents[1] / "data" / "corpus" / "events" / "c_fail_midway.ndjson"
    shown = {
        suffix: run("show", job, "--format", suffix).stdout
        for suffix in ("terminal", "html", "svg", "mermaid")
    }
    for view, text in shown.items():
        assert "ValueError: bad row in stage two" in text.replace("#58;", ":"), view
    assert 'class="box job FAILURE"' in shown["svg"]
    assert re.search(r"classDef failed .*\n +class j1 failed", shown["mermaid"])
    assert "order_id, customer_id, amount, status, order_date" in shown["mermaid"]
    assert "PythonRunner.scala" in shown["html"]  # all of it on demand
    assert "PythonRunner.scala" not in shown["svg"] + shown["mermaid"] + shown["terminal"]


def test_the_colour_of_a_platform_is_the_same_in_every_picture() -> None:
    def colours(*platforms: str) -> dict[str, int]:
        urns = [f"urn:li:dataset:(urn:li:dataPlatform:{platform},t,PROD)" for platform in platforms]
        return Network.of(Graph.of([lineage("job", urns, [], [])])).platform_colours

    usual = ("delta-lake", "file", "hive", "iceberg", "kafka", "postgres", "s3")
    assert len(set(colours(*usual).values())) == len(usual)
    assert colours("s3", "unheard-of")["unheard-of"] == colours("unheard-of", *usual)["unheard-of"]


def test_the_edges_of_a_table_that_is_read_and_written_run_beside_each_other() -> None:
    both = dataset("both")
    svg = render_svg(Network.of(Graph.of([lineage("daily", [both], [both], [])])))
    heights = {
        tuple(re.findall(r",([\d.]+)", path))
        for path in re.findall(r'class="edge"[^>]* d="([^"]+)"', svg)
    }
    assert len(heights) == 2
    assert len({height for path in heights for height in path}) == 2
