"""Evidence of edges (``capture_evidence``), and reasons for datasets that are none (conversion
rules, section 7.7).
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion import Conversion, DatasetId, Ending
from airflow_provider_spark_datahub.conversion.datasets import DatasetNamer
from airflow_provider_spark_datahub.conversion.diagnostics import LEFT_OUT
from airflow_provider_spark_datahub.conversion.events import RunEvent
from airflow_provider_spark_datahub.conversion.runs.fold import Fold
from tests.conversion.builders import (
    OTHER_QUERY,
    QUERY,
    Json,
    column,
    column_lineage,
    dataset,
    file,
    find,
    find_all,
    of_application,
    only_job,
    proposals,
    query,
    schema,
    settings,
    symlink,
    whole_application,
)
from tests.conversion.test_hard_jobs import RECORDINGS, converted, listed, recorded, true_edges
from tests.conversion.test_run_events import from_log, log_events
from tests.oracles.strict import canonical_violations

INSERT = "INSERT INTO out SELECT id FROM raw -- jdbc:x://u:secret@host"


def edge_properties(job: Any) -> dict[str, dict[str, str]]:
    """Return the properties of the edges of all of the job's DataJobs; those of an input differ from
    write to write.
    """
    properties: dict[str, dict[str, str]] = {}
    for proposal in find_all(proposals(job, capture_evidence=True), "dataJobInputOutput"):
        assert proposal.change_type == "UPSERT"
        for side, key in (("<", "inputDatasetEdges"), (">", "outputDatasetEdges")):
            for edge in proposal.aspect[key]:
                name = f"{side}{edge['destinationUrn'].split(',')[1]}"
                properties[name] = edge["properties"]
    return properties


def test_an_edge_names_its_queries_and_the_job_has_each_statement_once() -> None:
    sql = {"sql": {"query": INSERT}}
    events = whole_application(
        query(
            run_id=QUERY, second=1, inputs=[file("/raw")], outputs=[file("/out")], job_facets=sql
        ),
        query(
            run_id=OTHER_QUERY,
            second=2,
            inputs=[file("/raw")],
            outputs=[file("/more")],
            job="shop.append_data.m",
        ),
    )
    job = only_job(events, capture_evidence=True)
    info = find(proposals(job, capture_evidence=True), "dataJobInfo").aspect["customProperties"]
    statements = {
        name.removeprefix("statement."): text
        for name, text in info.items()
        if name.startswith("statement.")
    }
    by_text = {text: name for name, text in statements.items()}
    (insert,) = (text for text in by_text if text.startswith("INSERT INTO out"))
    assert "secret" not in insert
    assert set(by_text) == {insert, "append_data.m"}
    first, second = f"{QUERY} {by_text[insert]}", f"{OTHER_QUERY} {by_text['append_data.m']}"
    assert edge_properties(job) == {
        "</raw": {"source": "EVENT", "queries": f"{first}, {second}"},
        ">/out": {"source": "EVENT", "queries": first},
        ">/more": {"source": "EVENT", "queries": second},
    }


def test_a_create_table_as_select_and_the_write_within_it_have_the_same_statement() -> None:
    # Spark runs both, and only the events of the inner one name the statement.
    (job,) = converted("subqueries-4.3.0", capture_evidence=True).jobs
    jobs = proposals(job, capture_evidence=True)
    info = of_application(jobs, "dataJobInfo").aspect["customProperties"]
    (statement,) = (
        name for name, text in info.items() if text.startswith("CREATE TABLE sq.latest ")
    )
    queries = edge_properties(job)[">sq.latest"]["queries"].split(", ")
    assert [found.partition(" ")[2] for found in queries] == [
        statement.removeprefix("statement.")
    ] * 2
    assert not any("as_select" in text for text in info.values())


def test_many_queries_are_counted() -> None:
    queries = [
        query(run_id=f"01900000-0000-7000-8000-{number:012}", second=number, outputs=[file("/out")])
        for number in range(1, 31)
    ]
    properties = edge_properties(only_job(whole_application(*queries), capture_evidence=True))[
        ">/out"
    ]
    assert (properties["queries"].count(", "), properties["moreQueries"]) == (19, "10")


def table(name: str, **facets: Any) -> Json:
    return dataset(
        "file", f"/warehouse/{name}", symlinks=symlink("file:/warehouse", name), **facets
    )


def test_the_source_says_whether_an_event_or_a_plan_names_the_dataset() -> None:
    statement = {
        "sql": {"query": "INSERT INTO db.t SELECT (SELECT max(x) AS m FROM db.u) AS m, y FROM db.v"}
    }
    columns = column_lineage({"y": [column("/warehouse/db.v", "y", "DIRECT:IDENTITY")]})
    v, u = (
        table(f"db.{name}", schema=schema((field, "int")))
        for name, field in (("v", "y"), ("u", "x"))
    )
    t = table("db.t", schema=schema(("m", "int"), ("y", "int")), columnLineage=columns)
    events = whole_application(
        query(run_id=OTHER_QUERY, second=1, outputs=[u]),
        query(run_id=QUERY, second=2, inputs=[v], outputs=[t], job_facets=statement),
    )
    properties = edge_properties(only_job(events, capture_evidence=True))
    sources = {edge: found["source"] for edge, found in properties.items()}
    assert sources == {"<db.v": "EVENT", ">db.t": "EVENT", ">db.u": "EVENT"}

    logged = from_log(log_events("hive_tables-4.3.0"), capture_evidence=True)
    assert {found["source"] for job in logged.jobs for found in edge_properties(job).values()} == {
        "SPARK_PLAN"
    }
    # Sinks of files are in no event. The query's progress names them, and so do plans if columns
    # are wanted.
    for with_columns, source in ((False, "STREAMING_PROGRESS"), (True, "SPARK_PLAN")):
        streamed = converted(
            "stream_default-4.3.0",
            with_log=True,
            capture_evidence=True,
            capture_column_level_lineage=with_columns,
        )
        sinks = {
            edge: found["source"]
            for job in streamed.jobs
            if not job.run.is_application
            for edge, found in edge_properties(job).items()
        }
        assert sinks[">/lake/out/st/files"] == source


@pytest.mark.parametrize(
    "recording", ["generations-3.5.9", "jdbc_names-4.3.0", "delta_modes-4.1.4"]
)
def test_evidence_changes_no_edge(recording: str) -> None:
    for ending in (Ending(succeeded=True), Ending(succeeded=False)):
        plain, with_it = (
            converted(recording, ending=ending, capture_evidence=on) for on in (False, True)
        )
        assert _edges(with_it) == _edges(plain)
        for proposal in with_it.proposals(settings(capture_evidence=True)):
            assert canonical_violations(proposal.to_obj()) == []


def _edges(conversion: Conversion) -> list[Any]:
    lineages = [job.lineage for job in conversion.jobs]
    return [
        [[*lineage.inputs], [*lineage.outputs], [*lineage.fine_grained]] for lineage in lineages
    ]


REJECTED = {
    "not_written-4.3.0": {("output", "section 7.1")},
    "generations-4.3.0": {("output", "Deviation 9")},
    "folders-4.3.0": {("input", "Deviation 5")},
    "by_hand-4.3.0": {("input", "section 7.3")},
    "sigterm-4.3.0": {("output", "section 7.1")},
}


@pytest.mark.slow
@pytest.mark.parametrize("recording", RECORDINGS)
def test_each_dataset_of_an_event_is_an_edge_or_has_a_reason(recording: str) -> None:
    # Or it is a part of a dataset: a file of a micro-batch, the log of a table, a stage of a model
    # (section 7.3).
    conversion = converted(recording, capture_evidence=True)
    rejected = conversion.diagnostics.rejected_edges
    lines = recorded("events", recording)
    fold, events = Fold(settings()), [json.loads(line) for line in lines]
    for event in events:
        fold.add(RunEvent.parse(event))
    namer = DatasetNamer(settings(), fold.symlinks.by_dataset)
    for kind, edges in (("input", conversion.inputs), ("output", conversion.outputs)):
        ids = {
            DatasetId(item["namespace"], item["name"])
            for event in events
            for item in event[f"{kind}s"]
        }
        named = {name.urn for name in map(namer.name, ids) if name is not None}
        explained = {edge.urn for edge in rejected if edge.kind == kind}
        known = {path.removesuffix(",PROD)") for path in (*conversion.inputs, *conversion.outputs)}
        silent = {
            path
            for path in named - set(edges) - explained
            if not any(f"{folder}/" in path for folder in known)
        }
        assert silent == set()
        # A query that only creates a table says nothing about the others, which OpenLineage may not
        # report.
        wrong = {
            edge.urn for edge in rejected if edge.kind == kind and "puts no data" not in edge.reason
        }
        unsure = true_edges(recording, f"either_{kind}s") | listed(
            recording, "not_found", f"{kind}s"
        )
        assert not wrong & (true_edges(recording, f"{kind}s") - unsure)
    assert REJECTED.get(recording, set()) <= {(edge.kind, edge.rule) for edge in rejected}


def test_a_dataset_that_events_name_and_the_plan_does_not_is_counted_and_explained() -> None:
    # The job lists two files of a folder, and OpenLineage names the folder.
    conversion = converted("named_files-4.3.0", with_log=True, capture_evidence=True)
    folder = "urn:li:dataset:(urn:li:dataPlatform:file,/lake/raw,PROD)"
    left_out = {
        edge.urn: edge
        for edge in conversion.diagnostics.rejected_edges
        if edge.rule == "section 8.5"
    }
    assert conversion.diagnostics.sources[LEFT_OUT] == len(left_out)
    assert left_out[folder].kind == "input"
    assert "plans lead" in left_out[folder].reason
    assert left_out.keys().isdisjoint((*conversion.inputs, *conversion.outputs))


def test_events_alone_have_no_sources() -> None:
    conversion = converted("not_written-4.3.0")
    assert conversion.diagnostics.sources == {}
    assert not any(
        found.edge_properties for job in conversion.jobs for found in job.lineage.inputs.values()
    )
