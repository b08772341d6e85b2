"""Spark's event log beside the events: executions that OpenLineage lost, their edges, and names of
tables.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion import Conversion, Converter, Ending
from airflow_provider_spark_datahub.conversion.diagnostics import LostExecution
from airflow_provider_spark_datahub.conversion.events import parse_time_ms
from airflow_provider_spark_datahub.conversion.proposals import Proposal
from airflow_provider_spark_datahub.conversion.run_tree import AirflowSite, DagRun, TaskAttempt
from airflow_provider_spark_datahub.conversion.spark_log import LoggedApplication, queries_of_logs
from airflow_provider_spark_datahub.conversion.spark_log.log import SparkLog
from tests.cases import cases
from tests.conversion import builders
from tests.conversion.builders import (
    Json,
    application,
    dataset,
    file,
    find,
    find_all,
    proposals,
    query,
    settings,
    symlink,
    urn,
    whole_application,
)
from tests.conversion.event_logs import (
    app_ended,
    app_started,
    execution,
    folded,
    read_log,
    recorded_events,
    recorded_log,
)
from tests.conversion.recordings import RECORDINGS, edges, expected_edges, recorded, truth_of
from tests.oracles.strict import canonical_violations

# -- Executions that OpenLineage lost


WRITE = (
    "== Physical Plan ==\nExecute InsertIntoHadoopFsRelationCommand (2)\n+- Scan csv  (1)\n\n\n"
    "(1) Scan csv \n\n(2) Execute InsertIntoHadoopFsRelationCommand\n"
)
READ = "== Physical Plan ==\nAdaptiveSparkPlan (9)\n+- Scan parquet sales.clean (1)\n\n\n(1) like InsertIntoTable"
RECORDED = ["batch-4.3.0", "streaming-3.5.9", "streaming-4.0.5", "streaming-4.3.0"]


def lost(logs: list[LoggedApplication], events: list[Json]) -> list[LostExecution]:
    return queries_of_logs(folded(events).applications(), logs, {}, settings()).lost


def lost_in(log: list[Json], events: list[Json]) -> list[LostExecution]:
    return lost(read_log([app_started(), *log]), events)


# In the drivers' outputs OpenLineage says that it could not see executions 3 and 30 of the batch
# job, 12 and 28 of the streaming one on 4.0.5: other events of them arrived, or they were
# micro-batches.
@pytest.mark.parametrize("name", RECORDED)
def test_no_false_alarm_for_real_applications(name: str) -> None:
    assert lost(recorded_log(name), recorded_events(name)) == []


def test_a_lost_write_of_a_real_application_is_reported() -> None:
    events = recorded_events("batch-4.3.0")
    silent = {
        event["run"]["runId"]
        for event in events
        if any("fast3" in one["name"] for one in event["outputs"])
    }
    kept = [event for event in events if event["run"]["runId"] not in silent]
    assert silent
    (found,) = lost(recorded_log("batch-4.3.0"), kept)
    assert found.description == "parquet at NativeMethodAccessorImpl.java:0"


@cases("merge")
def test_executions_that_are_not_lost(executions: list[Json]) -> None:
    log = [
        event
        for one in executions
        for event in execution(**one | {"plan": {"READ": READ, "WRITE": WRITE}[one["plan"]]})
    ]
    events = whole_application(
        builders.query("START", second=20), builders.query("COMPLETE", second=22)
    )
    assert lost_in(log, events) == []


def test_without_any_event_no_execution_counts_as_lost() -> None:
    assert lost_in(execution(1, 10, 12, WRITE), []) == []


# -- Edges of the executions that OpenLineage lost: what plans name comes back, and nothing else


WITH_LOG = [one for one in RECORDINGS if recorded("logs", one)]
# Plans hide the URLs of databases, and name no topic that is written.
NOT_IN_PLANS = tuple(f"urn:li:dataset:(urn:li:dataPlatform:{one}," for one in ("postgres", "kafka"))


def read(kind: str, recording: str) -> list[Json]:
    return [json.loads(line) for line in recorded(kind, recording)]


@cache
def executions(recording: str) -> dict[int, set[int]]:
    """Return the times in ms at which each execution and its parts began and ended, by its number."""
    roots: dict[int, int] = {}
    times: dict[int, set[int]] = {}
    for event in read("logs", recording):
        number = int(event.get("executionId", -1))
        if event["Event"].endswith("SQLExecutionStart"):
            roots[number] = event.get("rootExecutionId", number)
        if number in roots:
            times.setdefault(roots[number], set()).add(event["time"])
    return times


def without(events: Sequence[Json], times: set[int]) -> list[Json]:
    """Return the events without the queries that began or ended at these times."""
    gone = {
        event["run"]["runId"]
        for event in events
        if parse_time_ms(event["eventTime"]) in times
        and event["job"]["facets"]["jobType"]["jobType"] != "APPLICATION"
    }
    return [event for event in events if event["run"]["runId"] not in gone]


def convert(events: Sequence[Json | bytes], log: Sequence[Json]) -> Conversion:
    converter = Converter(settings())
    for event in events:
        converter.add(event)
    for event in log:
        converter.add_log_event(event)
    return converter.finish(Ending(succeeded=True))


@cache
def losses(recording: str) -> list[tuple[int, Conversion, Conversion]]:
    """Lose each write of a recording in turn; yield its number, and the result without and with its
    plan.
    """
    events, log = read("events", recording), read("logs", recording)
    found = []
    for number, times in executions(recording).items():
        kept = without(events, times)
        after = convert(kept, log)
        if after.diagnostics.lost_executions:
            found.append((number, convert(kept, ()), after))
    return found


@pytest.mark.no_cover
@pytest.mark.slow
@pytest.mark.parametrize("recording", WITH_LOG)
def test_no_edge_of_a_plan_is_false(recording: str) -> None:
    truth = truth_of(recording)
    found = losses(recording)
    assert found
    # A plan that writes to Kafka does not name the files, and reads of their headers do not count.
    header = {("inputs", "urn:li:dataset:(urn:li:dataPlatform:file,/lake/raw/customers.csv,PROD)")}
    for number, before, after in found:
        hidden = header if recording.startswith("kafka") else set()
        assert edges(after.jobs) >= edges(before.jobs) - hidden, number
        added = edges(after.jobs) - edges(before.jobs)
        assert added <= expected_edges(truth) | expected_edges(truth, "either_"), number
        assert len(after.diagnostics.lost_executions) == 1, number


@pytest.mark.no_cover
@pytest.mark.slow
def test_most_edges_come_back() -> None:
    missing = restored = 0
    for recording in WITH_LOG:
        all_edges = edges(convert(read("events", recording), read("logs", recording)).jobs)
        for _, before, after in losses(recording):
            lost = {
                (side, name)
                for side, name in all_edges - edges(before.jobs)
                if not name.startswith(NOT_IN_PLANS)
            }
            missing, restored = missing + len(lost), restored + len(lost & edges(after.jobs))
    assert restored / missing > 0.9


def lost_write() -> tuple[Conversion, Conversion]:
    """Return a job that lost the write of ``every``, whose inputs other executions read too."""
    return next(
        (before, after) for number, before, after in losses("udf_union-3.5.9") if number == 2
    )


def counts(conversion: Conversion) -> list[str]:
    """Return the numbers of executions in the log, and of those reported, recovered and delivered."""
    (job,) = [job for job in conversion.jobs if job.run.execution_counts]
    custom = find(proposals(job), "dataProcessInstanceProperties").aspect["customProperties"]
    return [
        custom[f"spark_executions{name}"] for name in ("", "_reported", "_recovered", "_delivered")
    ]


def test_a_run_counts_its_executions_with_lineage() -> None:
    recording = "udf_union-3.5.9"
    all_executions = str(len(executions(recording)))
    whole = convert(read("events", recording), read("logs", recording))
    _, after = lost_write()
    reported = int(counts(whole)[1])
    # The driver took the rows of one more, which OpenLineage leaves out.
    assert counts(whole) == [all_executions, str(reported), "1", str(reported + 1)]
    assert counts(after) == [all_executions, str(reported - 1), "2", str(reported + 1)]
    without_log = convert(read("events", recording), ())
    assert not any(job.run.execution_counts for job in without_log.jobs)


def test_executions_that_are_no_longer_in_memory_count() -> None:
    log = SparkLog()
    for event in read("logs", "udf_union-3.5.9"):
        log.add(event)
    (application,) = log.applications
    counted = application.count_executions([])
    assert counted == (len(executions("udf_union-3.5.9")), 0)
    log.forget_executions(1, [])
    assert len(application.executions) == 1
    assert application.count_executions([]) == counted


def edge_properties(found: Proposal) -> dict[str, Json | None]:
    edges = [one["value"] for one in found.aspect if "Edges/" in one["path"]]
    return {edge["destinationUrn"]: edge.get("properties") for edge in edges}


def test_recovered_edges_name_their_source() -> None:
    _, after = lost_write()
    (job,) = after.jobs
    task = TaskAttempt(DagRun(AirflowSite(), "dag", "run"), "task", 1, result="SUCCESS").proposals(
        after.jobs
    )
    every, orders = urn("file", "/lake/out/union/every"), urn("file", "/lake/raw/orders.csv")
    lost, recovered = {"source": "SPARK_PLAN", "executions": "2"}, []
    for found in (
        *find_all(proposals(job), "dataJobInputOutput"),
        *find_all(task, "dataJobInputOutput"),
    ):
        assert canonical_violations(found.to_obj()) == []
        properties = edge_properties(found)
        if every in properties:
            recovered.append(properties.get(orders))
            assert properties[every] == lost
        else:
            assert orders not in properties or "EVENT" in str(properties[orders])
    # Of the output, and of the task, which has no inputs.
    assert recovered == [lost, None]


def test_a_job_with_lost_executions_removes_no_edge() -> None:
    _, after = lost_write()
    assert [job.patch_edges for job in after.jobs] == [True]


def test_the_reason_says_that_the_plan_gave_the_lineage() -> None:
    _, after = lost_write()
    (sentence,) = after.diagnostics.unseen()
    assert sentence.startswith("1 SQL execution without an event (")
    assert sentence.endswith("): lineage comes from the plan")


def test_a_lost_write_of_a_table_counts_under_its_last_name() -> None:
    # ``orders_new`` was renamed later, as events show.
    _, _, after = next(one for one in losses("drop_rename-4.3.0") if one[0] == 8)
    assert urn("hive", "swap.orders_new") not in after.outputs
    assert urn("hive", "swap.orders") in after.outputs


def test_a_lost_write_right_before_its_rename_counts_under_the_new_name() -> None:
    # Without the DROP between the two.
    times = executions("drop_rename-4.3.0")
    events = without(without(read("events", "drop_rename-4.3.0"), times[8]), times[11])
    log = [event for event in read("logs", "drop_rename-4.3.0") if event.get("executionId") != 11]
    after = convert(events, log)
    assert urn("hive", "swap.orders_new") not in after.outputs
    assert urn("hive", "swap.orders") in after.outputs


def cut_off(log: Sequence[Json]) -> list[Json]:
    """Return a log whose plans draw their nodes, and describe none."""
    trees = [event.get("physicalPlanDescription", "").partition("\n\n\n")[0] for event in log]
    plans = [{"physicalPlanDescription": f"{tree}\n\n\n(cut)"} if tree else {} for tree in trees]
    return [event | plan for event, plan in zip(log, plans, strict=True)]


@pytest.mark.parametrize("recording", ["udf_union-3.5.9", "drop_rename-4.3.0", "jdbc-4.3.0"])
def test_plans_that_are_cut_off_leave_what_events_say(recording: str) -> None:
    events, log = read("events", recording), read("logs", recording)
    alone, beside = convert(events, ()), convert(events, cut_off(log))
    assert alone.outputs
    assert edges(beside.jobs) == edges(alone.jobs)
    assert [job.patch_edges for job in beside.jobs] == [job.patch_edges for job in alone.jobs]


def test_a_log_alone_whose_plans_are_cut_off_removes_no_edge() -> None:
    conversion = convert((), cut_off(read("logs", "udf_union-3.5.9")))
    assert [job.patch_edges for job in conversion.jobs] == [True]
    assert "the plan of execution 0 is cut off: edges are only added" in conversion.diagnostics.gaps


@pytest.mark.parametrize("recording", ["udf_union-3.5.9", "jdbc-4.3.0"])
def test_without_column_lineage_plans_add_none(recording: str) -> None:
    converter = Converter(settings(capture_column_level_lineage=False))
    for line in recorded("events", recording):
        converter.add(line)
    for event in read("logs", recording):
        converter.add_log_event(event)
    conversion = converter.finish(Ending(succeeded=True))
    assert conversion.outputs
    assert [lineage for job in conversion.jobs for lineage in job.lineage.fine_grained] == []


# -- Names of tables that only Spark's event log shows, beside those that events give


GLUE, HIVE = "arn:aws:glue:eu-west-1:123456789012", "hive://meta:9083"
ENVIRONMENT = {
    "Event": "SparkListenerEnvironmentUpdate",
    "Spark Properties": {"spark.sql.warehouse.dir": "s3://lake/wh"},
}
ID = {"spark_applicationDetails": {"applicationId": "app-1", "appName": "shop"}}


def table(name: str, catalog: str = HIVE) -> Json:
    named = f"table/sales/{name}" if catalog == GLUE else f"sales.{name}"
    return dataset("s3://lake", f"wh/sales.db/{name}", symlinks=symlink(catalog, named))


def read_of(name: str, sink: str = "CollectLimit (2)", *more: str) -> str:
    """Return the plan of a query that reads one partition of a table."""
    scan = (
        f"(1) Scan parquet spark_catalog.sales.{name}\nOutput [1]: [id#1]\n"
        f"Location: InMemoryFileIndex [s3://lake/wh/sales.db/{name}/dt=1]"
    )
    tree = f"== Physical Plan ==\n{sink}\n+- Scan parquet spark_catalog.sales.{name} (1)"
    return "\n\n\n".join((tree, "\n\n".join((scan, *more)))) + "\n\n"


def insert(source: str, target: str) -> str:
    command = (
        f"(2) Execute InsertIntoHadoopFsRelationCommand\nInput [1]: [id#1]\nArguments: s3://lake/wh/sales.db/{target}, "
        f"false, Parquet, [path=x], Append, `spark_catalog`.`sales`.`{target}`, Index(s3://x), [id]"
    )
    return read_of(source, "Execute InsertIntoHadoopFsRelationCommand (2)", command)


def converted(events: list[Json], plan: str, *, snapshots: int = 0, **options: Any) -> Conversion:
    """Convert one reported query, and one that only the log has."""
    converter = Converter(settings(**options))
    for event in (application("START", run_facets=ID), *events):
        assert converter.add(event) is None
    for event in (ENVIRONMENT, app_started("app-1"), *execution(1, 10, 12, plan)):
        converter.add_log_event(event)
    for _ in range(snapshots):
        converter.snapshot(with_log=True)
    converter.add(application("COMPLETE", second=59, run_facets=ID))
    converter.add_log_event(app_ended())
    return converter.finish(Ending(succeeded=True))


def reported(inputs: list[Json], outputs: list[Json]) -> list[Json]:
    return [
        query(kind, second=at, inputs=inputs, outputs=outputs)
        for kind, at in (("START", 5), ("COMPLETE", 8))
    ]


@pytest.mark.parametrize("snapshots", [0, 1])
def test_a_table_that_events_name_keeps_their_name(snapshots: int) -> None:
    events = reported([table("src", GLUE)], [table("known")])
    assert converted(events, read_of("src"), snapshots=snapshots).inputs == [
        urn("glue", "sales.src")
    ]


def test_a_path_that_events_name_alone_is_the_table_of_the_plan() -> None:
    # As the events of a job of RDDs, and of a query that reads a checkpoint.
    events = reported([dataset("s3://lake", "wh/sales.db/src")], [table("known", GLUE)])
    assert converted(events, read_of("src")).inputs == [urn("glue", "sales.src")]


@pytest.mark.parametrize("snapshots", [0, 1])
def test_other_tables_are_on_the_one_platform_of_the_events(snapshots: int) -> None:
    events = reported([table("src", GLUE)], [file("/out")])
    assert converted(events, read_of("other"), snapshots=snapshots).inputs == [
        urn("glue", "sales.other"),
        urn("glue", "sales.src"),
    ]


def test_other_tables_have_no_name_if_events_show_several_platforms() -> None:
    events = reported([table("a", GLUE)], [table("known")])
    conversion = converted(events, insert("src", "new"))
    assert (conversion.inputs, conversion.outputs) == (
        [urn("glue", "sales.a")],
        [urn("hive", "sales.known")],
    )
    (lost,) = conversion.diagnostics.lost_executions
    assert lost.reason.endswith("the plan names tables that no event names: sales.src, sales.new")


def test_a_lost_write_that_reads_a_partition_of_its_own_table_has_it_as_an_input() -> None:
    conversion = converted(reported([], [table("t")]), insert("t", "t"))
    assert conversion.inputs == conversion.outputs == [urn("hive", "sales.t")]


# -- Doubts: what the log lacks, and what nobody can read in it


def doubtful(*log: Json) -> Conversion:
    """Convert a whole application with one reported query, and these events of its log."""
    converter = Converter(settings())
    queries = reported([file("/in")], [file("/out")])
    for event in whole_application(*queries, run_facets=ID):
        assert converter.add(event) is None
    for event in (ENVIRONMENT, app_started("app-1"), *log, app_ended()):
        converter.add_log_event(event)
    return converter.finish(Ending(succeeded=True))


QUERY = execution(1, 5, 8, read_of("src", "Execute InsertIntoHadoopFsRelationCommand (2)"))
UPSERT = "== Physical Plan ==\nExecute UpsertLakeCommand (1)\n\n\n(1) Execute UpsertLakeCommand\n"


@pytest.mark.parametrize(
    ("log", "doubt"),
    [
        (QUERY, ""),
        ([*QUERY, *execution(3, 10, 12)], "lacks execution 2 of 4"),
        ([*QUERY, *execution(2, 10, None)], "lacks the end of execution 2"),
        ([*QUERY, *execution(2, 10, 12, UPSERT)], "'Execute UpsertLakeCommand'"),
    ],
)
def test_a_run_in_doubt_only_adds_and_says_why(log: list[Json], doubt: str) -> None:
    conversion = doubtful(*log)
    (job,) = conversion.jobs
    assert job.patch_edges == bool(doubt)
    reasons = [gap for gap in conversion.diagnostics.gaps if "lacks" in gap or "not known" in gap]
    assert len(reasons) == bool(doubt)
    assert doubt in "".join(reasons)


def test_a_log_ahead_of_all_events_changes_nothing() -> None:
    converter = Converter(settings())
    converter.add(query("START", second=20, run_facets=ID, inputs=[file("/z")]))
    for event in (ENVIRONMENT, app_started("app-1"), *execution(1, 10, 12, read_of("src"))):
        converter.add_log_event(event)
    assert converter.snapshot(with_log=True).inputs == []


def test_what_a_caught_query_read_is_no_input_if_only_the_log_shows_the_failure() -> None:
    events = [application("START", run_facets=ID), *reported([file("/in")], [file("/out")])]
    log = [
        ENVIRONMENT,
        app_started("app-1"),
        *execution(1, 5, 8, WRITE, errorMessage="division by zero"),
        app_ended(),
    ]
    converter = Converter(settings())
    for event in (*events, application("COMPLETE", second=59, run_facets=ID)):
        assert converter.add(event) is None
    for event in log:
        converter.add_log_event(event)
    conversion = converter.finish(Ending(succeeded=True))
    assert (conversion.inputs, conversion.outputs) == ([], [])


@pytest.mark.parametrize(
    ("description", "kind"), [("saveAsTable at X.java:0", "INSERT"), ("sql at X.java:0", "UPDATE")]
)
def test_a_dataframes_write_is_not_the_command_that_knew_the_table_first(
    description: str, kind: str
) -> None:
    converter = Converter(settings())
    facet = {"sql": {"query": "INSERT OVERWRITE db.t SELECT * FROM db.s"}}
    (start, end) = reported([file("/in")], [file("/out")])
    for event in (
        application("START", run_facets=ID),
        start,
        end,
        application("COMPLETE", second=59, run_facets=ID),
    ):
        event["job"]["facets"] |= facet
        assert converter.add(event) is None
    for event in (
        ENVIRONMENT,
        app_started("app-1"),
        *execution(1, 5, 8, WRITE, description=description),
        app_ended(),
    ):
        converter.add_log_event(event)
    (job,) = converter.finish(Ending(succeeded=True)).jobs
    assert [operation.kind for operation in job.operations] == [kind]
