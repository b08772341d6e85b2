"""Edges of the executions that OpenLineage lost: what plans name comes back, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache

import pytest

from airflow_provider_spark_datahub.conversion.convert import Conversion, Converter
from airflow_provider_spark_datahub.conversion.events import parse_time_ms
from airflow_provider_spark_datahub.conversion.proposals import Proposal
from airflow_provider_spark_datahub.conversion.run_tree import AirflowSite, DagRun, TaskAttempt
from airflow_provider_spark_datahub.conversion.runs.coalesce import Ending
from airflow_provider_spark_datahub.conversion.spark_log.log import SparkLog
from tests.conversion.builders import Json, find, proposals, settings, urn
from tests.conversion.recordings import RECORDINGS, edges, expected_edges, recorded, truth_of
from tests.oracles.strict import canonical_violations

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
        if parse_time_ms(event["eventTime"]) in times and event["job"]["facets"]["jobType"]["jobType"] != "APPLICATION"
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
    """Lose each write of a recording in turn; yield its number, and the result without and with its plan."""
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
    for number, before, after in found:
        assert edges(after.jobs) >= edges(before.jobs), number
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
            lost = {(side, name) for side, name in all_edges - edges(before.jobs) if not name.startswith(NOT_IN_PLANS)}
            missing, restored = missing + len(lost), restored + len(lost & edges(after.jobs))
    assert restored / missing > 0.9


def lost_write() -> tuple[Conversion, Conversion]:
    """Return a job that lost the write of ``every``, whose inputs other executions read too."""
    return next((before, after) for number, before, after in losses("udf_union-3.5.9") if number == 2)


def counts(conversion: Conversion) -> list[str]:
    """Return the numbers of executions in the log, and of those reported, recovered and delivered."""
    (job,) = [job for job in conversion.jobs if job.run.execution_counts]
    custom = find(proposals(job), "dataProcessInstanceProperties").aspect["customProperties"]
    return [custom[f"spark_executions{name}"] for name in ("", "_reported", "_recovered", "_delivered")]


def test_a_run_counts_its_executions_with_lineage() -> None:
    recording = "udf_union-3.5.9"
    all_executions = str(len(executions(recording)))
    whole = convert(read("events", recording), read("logs", recording))
    _, after = lost_write()
    reported = int(counts(whole)[1])
    assert counts(whole) == [all_executions, str(reported), "0", str(reported)]
    assert counts(after) == [all_executions, str(reported - 1), "1", str(reported)]
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
    task = TaskAttempt(DagRun(AirflowSite(), "dag", "run"), "task", 1, result="SUCCESS").proposals(after.jobs)
    for found in (find(proposals(job), "dataJobInputOutput"), find(task, "dataJobInputOutput")):
        assert canonical_violations(found.to_obj()) == []
        properties = edge_properties(found)
        assert properties[urn("file", "/lake/out/union/every")] == {"source": "SPARK_PLAN", "executions": "2"}
        assert properties[urn("file", "/lake/raw/orders.csv")] == {"source": "EVENT, SPARK_PLAN"}


def test_a_job_with_lost_executions_removes_no_edge() -> None:
    _, after = lost_write()
    assert [job.patch_edges for job in after.jobs] == [True]


def test_the_reason_says_that_the_plan_gave_the_lineage() -> None:
    _, after = lost_write()
    (reason,) = (one.reason for one in after.diagnostics.lost_executions)
    assert reason == "it wrote data, but OpenLineage sent no event for it; its lineage comes from its plan"


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


def test_a_table_of_an_unknown_catalogue_is_in_the_reason_only() -> None:
    _, _, after = next(one for one in losses("iceberg_hadoop-4.0.5") if one[0] == 15)
    (lost,) = after.diagnostics.lost_executions
    assert lost.reason.endswith("; its plan names tables that no event names: sales.archive")
    assert not [urn for urn in after.outputs if "archive" in urn]


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


def test_edges_from_plans_stay_with_their_job() -> None:
    # The next run of a job shares the lineage of its events, not what the plans of one run add to it.
    recording, number = next(
        (one, number)
        for one in WITH_LOG
        for number, before, after in losses(one)
        if before.inputs != after.inputs or before.outputs != after.outputs
    )
    log, times = read("logs", recording), executions(recording)[number]
    lines = [json.dumps(event).encode() for event in without(read("events", recording), times)]

    def inputs_and_outputs(log: Sequence[Json]) -> list[tuple[list[str], list[str]]]:
        found = convert(lines, log).jobs
        return [(list(job.lineage.inputs), list(job.lineage.outputs)) for job in found]

    before, with_plans, after = inputs_and_outputs([]), inputs_and_outputs(log), inputs_and_outputs([])
    assert with_plans != before == after
