"""Applications that ran without OpenLineage's listener, converted from Spark's event log alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion.convert import Conversion, Converter
from airflow_provider_spark_datahub.conversion.runs.coalesce import Ending
from airflow_provider_spark_datahub.conversion.spark_log.log import LoggedApplication
from airflow_provider_spark_datahub.conversion.spark_log.plan_columns import PlanColumns
from airflow_provider_spark_datahub.conversion.spark_log.plan_names import PlanNames
from airflow_provider_spark_datahub.conversion.spark_log.plans import PlanDataset
from tests.cases import cases
from tests.conversion.builders import Json, proposals, settings, urn
from tests.conversion.event_logs import app_ended, app_started, execution
from tests.conversion.recordings import (
    RECORDINGS,
    column_pairs,
    edges,
    expected_columns,
    expected_edges,
    recorded,
    truth_of,
)
from tests.oracles.strict import canonical_violations

LOGGED = [recording for recording in RECORDINGS if recorded("logs", recording)]
# The logs were recorded without Spark's properties. These jobs had one more catalogue, by these
# properties.
ICEBERG = {
    "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.ice.type": "hadoop",
    "spark.sql.catalog.ice.warehouse": "/lake/ice",
}
# Spark hides the address of a database, and does not show the topic that a stream writes.
HIDDEN = ("jdbc", "kafka")


def log_events(recording: str) -> list[Json]:
    events = [json.loads(line) for line in recorded("logs", recording)]
    for event in events:
        if event["Event"] == "SparkListenerEnvironmentUpdate" and recording.startswith("iceberg"):
            event["Spark Properties"] = ICEBERG
    return events


def from_log(events: list[Json], **options: Any) -> Conversion:
    converter = Converter(settings(**options))
    for event in events:
        converter.add_log_event(event)
    return converter.finish(Ending(succeeded=True))


@pytest.mark.slow
@pytest.mark.parametrize("recording", LOGGED)
def test_edges_are_those_that_the_job_read_and_wrote(recording: str) -> None:
    truth, jobs = truth_of(recording), from_log(log_events(recording)).jobs
    assert edges(jobs) - expected_edges(truth) - expected_edges(truth, "either_") == set(), "false"
    if not recording.startswith(HIDDEN):
        assert expected_edges(truth) - edges(jobs) == set(), "missing"
        # Those that the listener reports, and more.
        assert expected_columns(truth) | expected_columns(
            truth, "unreported_columns"
        ) <= column_pairs(jobs)
    assert [
        wrong
        for job in jobs
        for one in proposals(job)
        for wrong in canonical_violations(one.to_obj())
    ] == []


def test_tables_that_a_log_hides_are_named() -> None:
    # Spark redacts the address of a database in its plans.
    [message] = from_log(log_events("jdbc-4.3.0")).diagnostics.unreported_messages()
    assert "JDBCRelation(crm.customers)" in message
    assert "JDBCRelation(public.payments)" in message
    gaps = from_log(log_events("jdbc-4.3.0")).diagnostics.gaps
    assert any(
        "out/jdbc/totals" in gap and "the address of the database is hidden (JDBCRelation(" in gap
        for gap in gaps
    )


@pytest.mark.parametrize("recording", ["kafka-3.5.9", "kafka-4.0.5"])
def test_topics_of_a_batch_are_named_by_its_plan(recording: str) -> None:
    missing = expected_edges(truth_of(recording)) - edges(from_log(log_events(recording)).jobs)
    # Spark writes topics without a plan that names the files.
    customers = ("inputs", "urn:li:dataset:(urn:li:dataPlatform:file,/lake/raw/customers.csv,PROD)")
    assert missing == {
        customers,
        ("outputs", "urn:li:dataset:(urn:li:dataPlatform:kafka,all_orders,PROD)"),
    }
    gaps = from_log(log_events(recording)).diagnostics.gaps
    hidden = "Spark's event log does not name its sink (KafkaTable)"
    assert f"no output of the streaming query 'mirror' is known: {hidden}" in gaps


def test_a_table_of_an_unknown_catalogue_has_no_dataset_and_is_named() -> None:
    events = [json.loads(line) for line in recorded("logs", "iceberg_hadoop-4.0.5")]
    conversion = from_log(events)
    assert not [urn for urn in (*conversion.inputs, *conversion.outputs) if "sales" in urn]
    assert "ice.sales.orders" in conversion.diagnostics.unreported_messages()[0]


# In one of them, the driver took the rows of a query that OpenLineage leaves out.
@pytest.mark.parametrize(
    ("recording", "recovered"), [("hive_tables-4.3.0", "0"), ("udf_union-3.5.9", "1")]
)
def test_an_application_that_the_listener_reported_is_not_converted_again(
    recording: str, recovered: str
) -> None:
    converter = Converter(settings())
    for event in recorded("events", recording):
        converter.add(event)
    for log_event in log_events(recording):
        converter.add_log_event(log_event)
    events = converter.conversion.events
    (job,) = converter.finish(Ending(succeeded=True)).jobs
    assert converter.conversion.events == events
    assert job.run.execution_counts["spark_executions_recovered"] == recovered


def test_the_run_fails_with_the_error_of_its_query() -> None:
    events = log_events("two_sessions-4.0.5")
    for event in events:
        if event["Event"].endswith("SQLExecutionEnd") and event["executionId"] == 9:
            event["errorMessage"] = "java.io.IOException: No space left on device"
    conversion = from_log(events)
    assert (
        "urn:li:dataset:(urn:li:dataPlatform:file,/lake/out/two/german_orders,PROD)"
        not in conversion.outputs
    )
    assert "No space left on device" in json.dumps(
        [p.to_obj() for job in conversion.jobs for p in proposals(job)]
    )


def plan(tree: str, *nodes: str) -> str:
    described = "\n\n".join(f"({number}) {node}" for number, node in enumerate(nodes, start=1))
    return f"== Physical Plan ==\n{tree}\n\n\n{described}\n\n"


SCAN = "Scan csv \nOutput [2]: [a#1, b#2]\nLocation: InMemoryFileIndex [file:/in]"
WRITE = (
    "Execute InsertIntoHadoopFsRelationCommand\nInput: []\n"
    "Arguments: file:/out, false, Parquet, [path=/out], Append, [x, y]"
)
TREE = "Execute InsertIntoHadoopFsRelationCommand (3)\n+- Project (2)\n   +- Scan csv  (1)"


@cases("run_events")
def test_columns_are_followed_through_expressions(
    project: str, columns: dict[str, dict[str, str]]
) -> None:
    [(_, written)] = (
        PlanColumns().of([plan(TREE, SCAN, f"Project\nOutput [2]: {project}", WRITE)]).written
    )
    found = {
        name: {
            f"if {one.column}" if one.decides else one.column: kind.name
            for one, kind in sources.items()
        }
        for name, sources in written.items()
    }
    assert found == columns


@cases("run_events")
def test_plans_show_whole_columns(
    plans: list[list[str]], columns: dict[str, list[str]], unknown: list[str]
) -> None:
    """Plans are those of each execution; a column with a source ``?`` is not resolved."""
    reader = PlanColumns()
    *_, found = [reader.of(texts) for texts in plans]
    sink, written = found.written[0]
    resolved = found.resolved[sink]
    sources = {
        name: sorted(
            f"{one.dataset.path.rpartition('/')[2]}.{one.column}" for one in written.get(name, ())
        )
        for name in written.keys() | resolved
    }
    assert {
        name: listed + ["?"] * (name not in resolved) for name, listed in sources.items()
    } == columns
    assert [*found.unknown] == unknown
    behind_checkpoints = {one.path.rpartition("/")[2] for one in found.held}
    of_columns = {name.partition(".")[0] for listed in columns.values() for name in listed}
    assert behind_checkpoints == (
        of_columns if any("heckpoint at" in text for text in plans[-1]) else set()
    )


@cases("run_events")
def test_folders_of_partitions_and_dates_are_cut_as_openlineage_does(path: str, name: str) -> None:
    assert PlanNames(LoggedApplication("app")).id_of(PlanDataset(path)) == ("file", name)


@cases("run_events")
def test_loaded_files_are_named_from_the_folder_of_the_driver(
    arguments: str, inputs: str | None
) -> None:
    properties = {
        "System Properties": {"user.dir": "/jobs"},
        "Hadoop Properties": {"fs.defaultFS": "hdfs://nn:8020"},
    }
    tree = "Execute LoadDataCommand (1)\n   +- LoadDataCommand (2)"
    text = plan(
        tree,
        "Execute LoadDataCommand\nOutput: []",
        f"LoadDataCommand\nArguments: `db`.`p`, {arguments}",
    )
    began = {"Event": "SparkListenerEnvironmentUpdate", **properties}
    found = from_log([began, app_started(), *execution(1, 1, 2, text), app_ended()]).inputs
    assert found == ([urn(*inputs.split(","))] if inputs else [])


def test_a_write_without_a_job_was_refused_if_the_log_knows_jobs() -> None:
    def outputs(properties: dict[str, str], *jobs: Json) -> list[str]:
        write, end = execution(1, 1, 2, plan(TREE, SCAN, "Project\nOutput [2]: [a#1, b#2]", WRITE))
        begin = {"Event": "SparkListenerEnvironmentUpdate", "Spark Properties": properties}
        return from_log([begin, app_started(), write, *jobs, end, app_ended()]).outputs

    logged = {"spark.eventLog.enabled": "true"}
    job = {"Event": "SparkListenerJobStart", "Properties": {"spark.sql.execution.id": "1"}}
    other = {
        "Event": "SparkListenerJobStart",
        "Properties": {"spark.rdd.scope": '{"id":"3","name":"saveAsTextFile"}'},
    }
    assert outputs(logged) == []
    assert outputs({}, other) == []
    assert len(outputs(logged, job)) == 1
    # Nothing is known of the jobs.
    assert len(outputs({})) == 1
    assert len(outputs({**logged, "spark.eventLog.excludedPatterns": "SparkListenerJobStart"})) == 1


def test_lists_of_paths_are_read_in_full() -> None:
    def inputs(*locations: str) -> list[str]:
        scan = (
            "Scan csv \nOutput [1]: [a#1]\nLocation: InMemoryFileIndex [file:/in/a, ... 2 entries]"
        )
        write = execution(
            1,
            1,
            2,
            plan(TREE, scan, "Project\nOutput [1]: [a#1]", WRITE),
            scanLocations=[*locations],
        )
        conversion = from_log([app_started(), *write, app_ended()])
        return [urn.partition("/")[2].partition(",")[0] for urn in conversion.inputs]

    whole = "InMemoryFileIndex(3 paths)[file:/in/a, file:/in/b, file:/in/c]"
    assert inputs(whole) == ["in/a", "in/b", "in/c"]
    assert inputs() == inputs("InMemoryFileIndex(3 paths)[file:/in/a, ...]") == ["in/a"]
    assert inputs(whole, "InMemoryFileIndex(3 paths)[file:/in/a, file:/in/x, file:/in/y]") == [
        "in/a"
    ]
