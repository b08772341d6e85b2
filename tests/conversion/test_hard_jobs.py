"""Real jobs that nobody tuned the conversion for: refused writes, generations of tables, folders,
stopped drivers …

The truth of ``tests/data/hard_jobs`` and ``field_jobs`` was written before the events were looked
at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion import Conversion, Converter, Ending
from airflow_provider_spark_datahub.conversion.events import parse_time_ms
from tests.cases import cases
from tests.conversion.builders import Json, file_urns, jobs, proposals, settings
from tests.conversion.recordings import column_pairs, lines_of
from tests.oracles.strict import canonical_violations

FOLDER = Path(__file__).parents[1] / "data" / "hard_jobs"
CORPORA: dict[str, dict[str, Json]] = {
    name: json.loads((FOLDER.parent / name / "truth.json").read_text(encoding="utf-8"))
    for name in ("hard_jobs", "field_jobs")
}
TRUTH = {case: truth for corpus in CORPORA.values() for case, truth in corpus.items()}
RECORDINGS = [recording for truth in TRUTH.values() for recording in truth["recorded"]]
_FILE_WRITE = "execute_insert_into_hadoop_fs_relation_command"
_PREFIX = "urn:li:schemaField:("
_SQL = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecution"


def truth_of(recording: str) -> Json:
    return TRUTH[recording.partition("-")[0]]


def recorded(kind: str, recording: str) -> list[bytes]:
    """Return the lines of a recording's ``events`` or ``logs``."""
    (corpus,) = (name for name, cases in CORPORA.items() if recording.partition("-")[0] in cases)
    return lines_of(FOLDER.parent / corpus / kind / f"{recording}.ndjson")


def listed(recording: str, name: str, kind: str) -> set[Any]:
    """Return edges that the truth lists under a name, for all Spark versions or for that of the
    recording.
    """
    truth, version = truth_of(recording), recording.partition("-")[2]
    edges: Json = truth.get(f"{name}-{version}") or truth.get(name) or {}
    items = edges.get(kind, ())
    return {tuple(item) if isinstance(item, list) else item for item in items}


def true_edges(recording: str, kind: str) -> set[Any]:
    """Return the edges of the truth: ``inputs``, ``either_inputs`` …"""
    return {
        tuple(item) if isinstance(item, list) else item
        for item in truth_of(recording).get(kind, ())
    }


def found_edges(conversion: Conversion) -> dict[str, set[Any]]:
    return {
        "inputs": set(conversion.inputs),
        "outputs": set(conversion.outputs),
        "columns": direct_columns(conversion),
    }


def converted(
    recording: str, *, with_log: bool = False, ending: Ending | None = None, **options: Any
) -> Conversion:
    converter = Converter(settings(**options))
    for line in recorded("events", recording):
        assert converter.add(line) is None
    for event in log_events(recording) if with_log else ():
        converter.add_log_event(event)
    return converter.finish(ending or Ending(succeeded=truth_of(recording)["result"] == "SUCCESS"))


def log_events(recording: str) -> Iterator[Json]:
    """Yield the events of a job's event log, with those of Spark's properties that the truth lists."""
    for line in recorded("logs", recording):
        event = json.loads(line)
        if event["Event"] == "SparkListenerEnvironmentUpdate":
            event["Spark Properties"] = event.get("Spark Properties", {}) | truth_of(recording).get(
                "properties", {}
            )
        yield event


def from_log(recording: str, **options: Any) -> Conversion:
    converter = Converter(settings(**options))
    for event in log_events(recording):
        converter.add_log_event(event)
    return converter.finish(Ending(succeeded=truth_of(recording)["result"] == "SUCCESS"))


def columns_by(kind: str, conversion: Conversion) -> set[tuple[str, ...]]:
    def parts(field: str) -> list[str]:
        return field.removeprefix(_PREFIX)[:-1].rsplit(",", 1)

    pairs = column_pairs(
        conversion.jobs, lambda transform: transform.removeprefix("-- ").startswith(f"{kind}:")
    )
    return {(*parts(upstream), *parts(downstream)) for upstream, downstream in pairs}


direct_columns, indirect_columns = partial(columns_by, "DIRECT"), partial(columns_by, "INDIRECT")


@pytest.mark.parametrize("with_log", [False, True])
@pytest.mark.parametrize("recording", RECORDINGS)
def test_every_edge_is_true_and_only_known_ones_are_missing(recording: str, with_log: bool) -> None:
    # Spark's event log adds sinks of streams, and knows which Delta writes were refused.
    conversion = converted(recording, with_log=with_log)
    for kind, edges in found_edges(conversion).items():
        true, either = true_edges(recording, kind), true_edges(recording, f"either_{kind}")
        false = listed(recording, "false", kind)
        false |= listed(recording, f"false_with{'' if with_log else 'out'}_log", kind)
        missing = listed(recording, "not_found", kind)
        missing -= listed(recording, "found_with_log", kind) if with_log else set()
        assert edges - true - either == false, f"false {kind}"
        assert true - either - edges == missing, f"missing {kind}"
    for job in conversion.jobs:
        assert [
            wrong for one in proposals(job) for wrong in canonical_violations(one.to_obj())
        ] == []
    # Each output without any direct column lineage is named.
    gaps = conversion.diagnostics.gaps
    known = {target for _, _, target, _ in direct_columns(conversion)}
    for target in {target for _, _, target, _ in listed(recording, "not_found", "columns")} - known:
        named = any(
            f"no column lineage of {target}" in gap or f"no input of {target}" in gap
            for gap in gaps
        )
        is_stream = any("streaming queries" in gap for gap in gaps)
        assert named or is_stream or target not in conversion.outputs, target


@pytest.mark.slow
def test_the_log_alone_makes_no_false_edge_that_events_do_not_make() -> None:
    for recording in RECORDINGS:
        for kind, edges in found_edges(from_log(recording)).items():
            accepted = true_edges(recording, f"either_{kind}") | listed(recording, "false", kind)
            assert edges - true_edges(recording, kind) - accepted == set(), (
                f"false {kind} of {recording}"
            )


@pytest.mark.slow
@cases("hard_jobs")
def test_the_log_alone_finds_every_edge(recording: str) -> None:
    # EXCEPT in the plan of a command, LEFT ANTI JOIN within a union, Delta's tables that are paths,
    # two MERGEs … REPLACE WHERE of a table of the catalogue, EXCEPT ALL, entries of a map …
    for kind, edges in found_edges(from_log(recording)).items():
        assert (
            true_edges(recording, kind) - true_edges(recording, f"either_{kind}") - edges == set()
        ), f"missing {kind}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "recording",
    [
        name
        for name in RECORDINGS
        if name.startswith(("catalogs", "delta", "iceberg", "replaces", "scd2"))
    ],
)
def test_the_log_alone_has_the_platforms_of_the_events(recording: str) -> None:
    # OpenLineage's facets `catalog` and `storage` name Iceberg and Delta; plans show their
    # catalogues, logs, providers.
    options: Any = {"catalog_platforms": {"iceberg": "iceberg", "delta": "delta-lake"}}
    of_events, of_log = (
        {urn.partition(",")[2]: urn for urn in (*found.inputs, *found.outputs)}
        for found in (converted(recording, **options), from_log(recording, **options))
    )
    both = of_events.keys() & of_log.keys()
    assert {of_log[name] for name in both} == {of_events[name] for name in both}
    assert any(
        platform in of_log[name] for name in both for platform in (":iceberg,", ":delta-lake,")
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recording", "output", "lost"),
    [("scd2-4.1.4", "/lake/out/sc/periods", 1), ("delta_streams-4.1.4", "/lake/out/ds/totals", 1)],
)
def test_writes_with_a_shuffle_that_the_listener_leaves_out_are_named(
    recording: str, output: str, lost: int
) -> None:
    # With Delta's extension, OpenLineage 1.53.0 leaves out files written by an adaptive plan (its
    # issue 4299).
    urn = f"urn:li:dataset:(urn:li:dataPlatform:file,{output},PROD)"
    found = converted(recording, with_log=True)
    assert urn not in converted(recording).outputs
    assert urn in found.outputs
    assert len(found.diagnostics.lost_executions) == lost
    assert all(
        job.patch_edges for job in found.jobs if not job.definition.properties.get("batchId")
    )
    assert urn in from_log(recording).outputs
    gap = "OpenLineage 1.53.0 leaves out each query with a shuffle that writes files if Delta's extension is set"
    assert any(one.startswith(gap) for one in converted(recording).diagnostics.gaps)
    quiet = found, converted("dedup-4.3.0")
    assert not any(
        one.startswith(gap) for conversion in quiet for one in conversion.diagnostics.gaps
    )


def test_a_table_that_a_query_within_another_one_names_is_reported() -> None:
    # Delta's CREATE OR REPLACE TABLE AS SELECT.
    assert converted("delta_care-4.1.4").diagnostics.unreported_messages() == []


@pytest.mark.parametrize("with_log", [False, True])
@pytest.mark.parametrize(
    "recording", ["two_sinks-4.3.0", "stream_default-4.3.0", "delta_streams-4.1.4"]
)
def test_the_folder_of_a_stream_is_not_that_of_a_file(recording: str, with_log: bool) -> None:
    assert not [
        gap
        for gap in converted(recording, with_log=with_log).diagnostics.gaps
        if "around the file" in gap
    ]


def test_the_report_names_what_the_log_does_not_show() -> None:
    # Spark abbreviates lists of paths, and its plans do not show which paths are files.
    [message] = from_log("folders-4.3.0").diagnostics.unreported_messages()
    assert (
        "2 more beside file:/lake/in/listed/a.csv (raise spark.sql.maxMetadataStringLength)"
        in message
    )
    refused = [
        gap
        for gap in from_log("not_written-4.3.0").diagnostics.gaps
        if gap.startswith("not written")
    ]
    assert [gap.rpartition("_")[2] for gap in refused] == ["1", "3", "16", "18", "24"]
    gaps = from_log("python_code-4.3.0").diagnostics.gaps
    assert any(
        "Spark's event log reports none for execution_13. In Spark's plan, the driver held the rows"
        in g
        for g in gaps
    )
    [message] = from_log("jdbc_catalog-4.3.0").diagnostics.unreported_messages()
    assert message.endswith(": JDBCRelation(public.plain)")
    [message] = from_log("writers-4.3.0").diagnostics.unreported_messages()
    assert message.endswith(": the target of saveAsTextFile (an RDD)")


def test_gaps_have_the_reason_that_a_plan_shows() -> None:
    gaps = converted("python_code-4.3.0", with_log=True).diagnostics.gaps
    for output, reason in {
        "collected": "those that the driver held",
        "pandas": "the driver held the rows",
        "mapped": "the job's own code makes the rows (MapInPandas)",
        "best": "(FlatMapGroupsInPandas)",
        "first": "a checkpoint that the log does not show, or of one of several",
    }.items():
        (gap,) = (gap for gap in gaps if f"/out/pc/{output},PROD" in gap)
        assert reason in gap.partition("In Spark's plan, ")[2]
    for recording, output, reason in (
        ("recursive-4.3.0", "/out/rc/tickets", "BatchScan tickets"),
        ("recursive-4.3.0", "/out/rc/paths", "the query is recursive (UnionLoop)"),
        (
            "udtfs-4.3.0",
            "/out/ud/totals",
            "the job's own code makes the rows (ArrowEvalPythonUDTF)",
        ),
    ):
        gaps = converted(recording, with_log=True).diagnostics.gaps
        assert any(
            output in gap and reason in gap.partition("In Spark's plan, ")[2] for gap in gaps
        )


@cases("hard_jobs")
def test_streams_whose_rows_the_jobs_code_makes_are_named(
    recording: str, nodes: dict[str, str]
) -> None:
    gaps = [
        gap
        for gap in converted(recording, with_log=True).diagnostics.gaps
        if "the streaming query" in gap
    ]
    assert [gap.partition("the streaming query ")[2] for gap in gaps] == [
        f"{name!r}. In Spark's plan, the job's own code makes the rows ({node})"
        for name, node in nodes.items()
    ]


def test_refused_writes_and_outputs_without_inputs_are_named() -> None:
    gaps = converted("not_written-4.3.0").diagnostics.gaps
    assert "not written, as Spark refused or failed to do it: " + _FILE_WRITE + ".old_error" in gaps
    statement = "INSERT OVERWRITE nw.hours PARTITION (hour = '1') IF NOT EXISTS SELECT order_id, "
    assert f"not written, as Spark refused or failed to do it: {statement!r}" in gaps
    one_row = "urn:li:dataset:(urn:li:dataPlatform:file,/lake/out/nw/one_row,PROD)"
    assert f"no input of {one_row} is known: OpenLineage names none for 'SELECT 1 AS one'" in gaps
    assert not any("out/nw/error" in gap for gap in gaps)


def test_schemas_equal_those_of_the_tables() -> None:
    # A query that the database runs has some of the columns, and a scan of Iceberg has columns that
    # no table has.
    fields = {
        urn: [field["fieldPath"] for field in dataset.schema["fields"]]
        for recording in ("jdbc_names-4.3.0", "iceberg_names-4.1.4")
        for job in converted(recording, datasets="schemas").jobs
        for urn, dataset in job.lineage.inputs.items()
        if dataset.schema is not None
    }
    assert fields["urn:li:dataset:(urn:li:dataPlatform:postgres,shop.public.payments,PROD)"] == [
        *("order_id", "amount", "method", "paid_at")
    ]
    assert fields["urn:li:dataset:(urn:li:dataPlatform:hive,db.orders,PROD)"] == [
        "order_id",
        "customer_id",
        "amount",
    ]


@pytest.mark.parametrize(
    ("written_here", "with_log"), [(True, False), (True, True), (False, True), (False, False)]
)
def test_the_columns_of_a_change_feed_are_not_the_tables(
    written_here: bool, with_log: bool
) -> None:
    # Without a write and without the log, the table may be a copy of a feed: it then has such
    # columns itself.
    converter = Converter(settings(datasets="schemas"))
    for line in lines_of(FOLDER / "events" / "delta_streams-4.1.4.ndjson"):
        if written_here or not any(
            output["name"].endswith("/silver") for output in json.loads(line)["outputs"]
        ):
            converter.add(line)
    for event in log_events("delta_streams-4.1.4") if with_log else ():
        converter.add_log_event(event)
    conversion = converter.finish(Ending(succeeded=True))
    silver = "urn:li:dataset:(urn:li:dataPlatform:hive,ds.silver,PROD)"
    schemas = [
        job.lineage.inputs[silver].schema for job in conversion.jobs if silver in job.lineage.inputs
    ]
    columns = {field["fieldPath"] for schema in schemas if schema for field in schema["fields"]}
    columns |= {column for source, column, _, _ in direct_columns(conversion) if source == silver}
    added = {"_change_type", "_commit_version", "_commit_timestamp"}
    assert columns - added == {"order_id", "amount", "source"}
    assert columns & added == (set() if written_here or with_log else added)


def _of_another_producer(name: str) -> list[Json]:
    """Return recorded events as a producer sends them that knows neither jobs nor statistics, nor
    says who it is.
    """
    events = [
        json.loads(line) for line in lines_of(FOLDER.parent / "openlineage_1_37" / f"{name}.ndjson")
    ]
    for event in events:
        event["run"]["facets"] = {
            key: facet for key, facet in event["run"]["facets"].items() if key == "parent"
        }
        event["outputs"] = [{**output, "outputFacets": {}} for output in event["outputs"]]
    return [event for event in events if event["eventType"] in ("START", "COMPLETE")]


def test_a_producer_without_jobs_and_statistics_is_believed() -> None:
    (whole,) = jobs(lines_of(FOLDER.parent / "openlineage_1_37" / "own.ndjson"))
    (job,) = jobs(_of_another_producer("own"))
    assert [*job.lineage.outputs] == [*whole.lineage.outputs] != []
    assert [*job.lineage.inputs] == [*whole.lineage.inputs] != []
    assert not job.patch_edges


def test_the_only_write_of_an_application_was_refused_if_its_listener_names_itself() -> None:
    (job,) = jobs(lines_of(FOLDER.parent / "openlineage_1_37" / "refused.ndjson"))
    assert (job.lineage.inputs, job.lineage.outputs, job.patch_edges) == ({}, {}, True)
    (believed,) = jobs(_of_another_producer("refused"))
    assert [*believed.lineage.outputs] == file_urns("/lake/target")


@pytest.mark.parametrize("worked", [False, True])
def test_the_jobs_in_the_log_count_if_the_events_name_none(worked: bool) -> None:
    # The job may have switched off the facet `spark_jobDetails`.
    events = [
        json.loads(line) for line in lines_of(FOLDER.parent / "openlineage_1_37" / "refused.ndjson")
    ]
    begin, end = (parse_time_ms(event["eventTime"]) for event in events[1:3])
    execution = {"executionId": 0, "rootExecutionId": 0, "physicalPlanDescription": ""}
    converter = Converter(settings())
    for event in events:
        assert converter.add(event) is None
    application = {
        "App ID": events[0]["run"]["facets"]["spark_applicationDetails"]["applicationId"]
    }
    for kind, more in (
        ("SparkListenerApplicationStart", application),
        (f"{_SQL}Start", {**execution, "time": begin}),
        *(
            [("SparkListenerJobStart", {"Properties": {"spark.sql.execution.id": "0"}})]
            if worked
            else []
        ),
        (f"{_SQL}End", {"executionId": 0, "time": end}),
    ):
        converter.add_log_event({"Event": kind, **more})
    outputs = converter.finish(Ending(succeeded=True)).outputs
    assert outputs == (file_urns("/lake/target") if worked else [])


def test_a_ctas_counts_as_a_write_without_the_events_of_its_inner_query() -> None:
    # A catalogue that cannot stage a table has two queries: the command, and the write within it.
    converter = Converter(settings())
    for line in lines_of(FOLDER / "events" / "jdbc_catalog-4.3.0.ndjson"):
        if b".append_data_exec_v1." not in line:
            converter.add(line)
    conversion = converter.finish(Ending(succeeded=True))
    assert (
        "urn:li:dataset:(urn:li:dataPlatform:postgres,shop.public.totals,PROD)"
        in conversion.outputs
    )


def test_a_refused_write_keeps_the_edges_of_earlier_runs() -> None:
    # The save mode ``ignore`` writes in the first run only: the next runs add their edges, and
    # remove none.
    (job,) = converted("not_written-4.3.0").jobs
    assert job.patch_edges
    (job,) = converted("folders-4.3.0").jobs
    assert not job.patch_edges


@pytest.mark.slow
@pytest.mark.parametrize("word", ["password_changed_at", "token", "api_key"])
def test_columns_that_are_named_like_secrets_have_the_same_lineage(word: str) -> None:
    """The longest name of a column in each truth becomes this word, in its events, statements and
    plans.
    """

    def edges_of(recording: str, change: Callable[[str], str]) -> dict[str, set[Any]]:
        converter = Converter(settings())
        for line in recorded("events", recording):
            converter.add(change(line.decode()).encode())
        for event in log_events(recording):
            converter.add_log_event(json.loads(change(json.dumps(event))))
        return found_edges(
            converter.finish(Ending(succeeded=truth_of(recording)["result"] == "SUCCESS"))
        )

    compared = 0
    for recording in RECORDINGS:
        names = {
            column
            for *_, column in truth_of(recording).get("columns", ())
            if re.fullmatch(r"\w{5,}", column)
        }
        if names:
            name = re.compile(rf"\b{max(names, key=lambda column: (len(column), column))}\b")
            found, plain = edges_of(recording, partial(name.sub, word)), edges_of(recording, str)
            expected = {
                kind: json.loads(name.sub(word, json.dumps([*edges])))
                for kind, edges in plain.items()
            }
            assert as_json(found) == as_json(expected), recording
            compared += 1
    assert compared > 50


def as_json(edges: dict[str, Any]) -> str:
    return json.dumps({kind: sorted(items) for kind, items in edges.items()})
