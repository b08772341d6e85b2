"""Task runs of one DAG run that share a DataJob: together they name all of its edges, whatever
their order.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_spark_datahub import hooks
from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.conversion.run_tree import AirflowSite
from airflow_provider_spark_datahub.hooks import airflow_context
from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator
from airflow_provider_spark_datahub.plugins import dag_run_listener
from tests.conversion.builders import urn
from tests.conversion.pairs import Catalog, Pair
from tests.delivery.samples import delivered
from tests.operators.copies import SPARK_JOB, datasets, write_events
from tests.operators.tries import DagRun, FakeSpark, TaskInstance, context_of, dag, execute

INDEXES, WORKERS = 50, 4
SPARK_COPY = SPARK_JOB.format("shop.copy")
TASK_JOB = "urn:li:dataJob:(urn:li:dataFlow:(airflow,shop,prod),{})"


def copy_task(spark: FakeSpark, number: int, task_id: str) -> SparkSubmitDatahubOperator:
    return SparkSubmitDatahubOperator(
        task_id=task_id,
        application=f"{task_id}.py",
        application_args=[str(number)],
        name="shop",
        datahub_conn_id="datahub_file",
        openlineage_jar=spark.jar,
        dag=dag(),
    )


def stored(tmp_path: Path) -> Catalog:
    """Return what DataHub holds."""
    catalog = Catalog()
    catalog.apply(map(Proposal.from_obj, delivered(tmp_path / "sink")))
    return catalog


def live_jobs(catalog: Catalog) -> set[str]:
    """Return the DataJobs of outputs that are not removed, by the end of their names."""
    jobs = catalog.jobs.keys() - catalog.removed
    return {urn.rpartition("/")[2] for urn in jobs if ".file." in urn}


def copies(numbers: Iterable[int]) -> set[Pair]:
    return {(urn("file", f"/in/{number}"), urn("file", f"/out/{number}")) for number in numbers}


@pytest.mark.slow
def test_mapped_task_runs_in_any_order_keep_each_others_edges(
    spark: FakeSpark, tmp_path: Path
) -> None:
    for number in range(INDEXES):
        write_events(spark, number)
    spark.fails_once("17")

    def run_index(index: int) -> None:
        for try_number in (1, 2):
            task = copy_task(spark, index, "copy")
            ti = TaskInstance(task_id="copy", map_index=index, try_number=try_number, max_tries=1)
            try:
                execute(task, context_of(task, ti))
            except AirflowException:
                assert (index, try_number) == (17, 1)
            report = ti.xcoms["lineage_report"]
            assert (report["reason"], report["pending"], report["rejected"]) == (None, 0, 0), report
            assert report["outputs"] or (index, try_number) == (17, 1), report
            if (index, try_number) != (17, 1):
                return

    order = random.Random(1).sample(range(INDEXES), INDEXES)
    with ThreadPoolExecutor(WORKERS) as workers:
        list(workers.map(run_index, order))

    found = stored(tmp_path)
    assert found.jobs[TASK_JOB.format("copy")].outputs == datasets("out", range(INDEXES))
    assert found.pairs() == copies(range(INDEXES))
    assert sum(len(job.columns) for job in found.jobs.values()) == INDEXES


def test_several_executions_in_one_attempt_add_up(spark: FakeSpark, tmp_path: Path) -> None:
    """A subclass that calls ``super().execute()`` for each of several tables; the next attempt
    calls it for one.
    """
    for number in range(4):
        write_events(spark, number)
    task = copy_task(spark, 3, "copy")

    def copied(ti: TaskInstance, *numbers: int) -> Catalog:
        context = context_of(task, ti)
        for number in numbers:
            task.application_args, task._hook = [str(number)], None
            execute(task, context)
        return stored(tmp_path)

    copied(TaskInstance(task_id="copy"), 3)
    found = copied(TaskInstance(task_id="copy", dag_run=DagRun(run_id="tuesday")), 0, 1, 2)
    assert found.jobs[TASK_JOB.format("copy")].outputs == datasets("out", range(3))
    assert found.pairs() == copies(range(3))
    assert live_jobs(found) == {"1)", "2)"}, "the first one has replaced the application's edges"
    of_task = {
        proposal["aspectName"]: proposal["aspect"]["json"]
        for proposal in delivered(tmp_path / "sink")
        if proposal["aspectName"] in ("dataProcessInstanceInput", "dataProcessInstanceOutput")
        and proposal["entityUrn"] == AirflowSite().task_run_urn("shop", "copy", "tuesday")
    }
    assert set(of_task["dataProcessInstanceInput"]["inputs"]) == datasets("in", range(3))
    assert set(of_task["dataProcessInstanceOutput"]["outputs"]) == datasets("out", range(3))
    found = copied(TaskInstance(task_id="copy", dag_run=DagRun(run_id="wednesday")), 1)
    assert found.pairs() == copies([1])
    assert live_jobs(found) == set()


def test_with_the_applications_id_tasks_replace_each_others_edges(
    spark: FakeSpark, tmp_path: Path
) -> None:
    """As DataHub's Java listener does; the runs of one mapped task only add."""

    def pairs(task_id: str, numbers: range, *, mapped: bool) -> set[Pair]:
        for number in numbers:
            write_events(spark, number)
            task = copy_task(spark, number, task_id)
            task.lineage = {"spark_job_id": "application"}
            execute(
                task,
                context_of(task, TaskInstance(task_id=task_id, map_index=number if mapped else -1)),
            )
        return stored(tmp_path).pairs()

    assert pairs("mapped", range(3), mapped=True) == copies(range(3))
    assert pairs("copy", range(3, 4), mapped=False) == copies(range(4)), "its record knows no other"
    assert stored(tmp_path).jobs[SPARK_JOB.format("shop")].outputs == datasets("out", range(3, 4))


def run_of(number: int, **more: Any) -> DagRun:
    start = datetime(2026, 1, number, 0, 5, tzinfo=UTC)
    due = datetime(2026, 1, number, tzinfo=UTC)
    times = {"start_date": start, "run_after": due, "logical_date": due, **more}
    return DagRun(run_id=f"scheduled__2026-01-{number:02d}", **times)


def end_dag_run(run: DagRun, task: SparkSubmitDatahubOperator) -> None:
    run.dag = task.dag
    dag_run_listener.on_dag_run_success(run, "")
    assert dag_run_listener._keeper().wait(30)
    assert dag_run_listener._deliveries().wait(30)


@pytest.fixture
def task_runs(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, list[int]]]:
    """What Airflow's database has on the DAG runs: the indexes of tasks whose runs all succeeded."""
    found: dict[str, dict[str, list[int]]] = {}
    monkeypatch.setattr(hooks, "successful_task_runs", lambda _, run_id, __: found[run_id])
    return found


@pytest.mark.slow
def test_the_end_of_a_dag_run_removes_edges_that_only_earlier_runs_wrote(
    spark: FakeSpark, tmp_path: Path, task_runs: dict[str, dict[str, list[int]]]
) -> None:
    def run_indexes(run: DagRun, *indexes: int) -> None:
        for index in indexes:
            write_events(spark, index)
            task = copy_task(spark, index, "copy")
            execute(
                task, context_of(task, TaskInstance(task_id="copy", map_index=index, dag_run=run))
            )

    def holds(*numbers: int) -> None:
        found = stored(tmp_path)
        assert found.pairs() == copies(numbers)
        assert live_jobs(found) == {f"{number})" for number in numbers}
        columns = {column for job in found.jobs.values() for column, _ in job.columns}
        assert {column.rpartition("/")[2] for column in columns} == {
            f"{number},PROD),id)" for number in numbers
        }
        outputs = {urn("file", f"/out/{number}") for number in numbers}
        assert found.jobs[TASK_JOB.format("copy")].outputs == outputs

    task = copy_task(spark, 0, "copy")
    first, second, third, fourth = map(run_of, (1, 2, 3, 4))
    run_indexes(first, 0, 1, 2)
    task_runs[first.run_id] = {"copy": [0, 1, 2]}
    end_dag_run(first, task)
    holds(0, 1, 2)

    # One index failed: nobody knows what it would have written.
    run_indexes(second, 0)
    task_runs[second.run_id] = {}
    end_dag_run(second, task)
    holds(0, 1, 2)

    # The fourth DAG run is under way when the third ends, and has written again what the third did
    # not.
    run_indexes(third, 0)
    run_indexes(fourth, 2)
    task_runs[third.run_id] = {"copy": [0]}
    end_dag_run(third, task)
    holds(0, 2)

    task_runs[fourth.run_id] = {"copy": [2]}
    end_dag_run(fourth, task)
    holds(2)
    assert SPARK_COPY not in stored(tmp_path).removed
    assert len(list((tmp_path / "outbox/edges").rglob("*.gz"))) == 1
    run_indexes(run_of(5), 0)
    holds(0, 2)


@pytest.mark.slow
@pytest.mark.parametrize("index", [-1, 0], ids=["one run", "mapped"])
def test_a_cleared_older_dag_run_removes_no_edge_of_a_newer_one(
    spark: FakeSpark, tmp_path: Path, task_runs: dict[str, dict[str, list[int]]], index: int
) -> None:
    third, fourth = run_of(3), run_of(4)
    cleared = run_of(1, clear_number=1, start_date=datetime(2026, 1, 3, 12, tzinfo=UTC))
    backfill = run_of(2, run_type="backfill", start_date=datetime(2026, 1, 3, 13, tzinfo=UTC))

    class Instance(TaskInstance):
        def get_previous_ti(self, state: str, logical_date: datetime) -> Any:
            assert (state, logical_date > datetime(2026, 1, 4, tzinfo=UTC)) == ("success", True)
            return SimpleNamespace(run_id=third.run_id, logical_date=third.logical_date)

    def holds(numbers: Collection[int], after: DagRun, number: int) -> None:
        write_events(spark, number)
        task = copy_task(spark, number, "copy")
        execute(task, context_of(task, Instance(task_id="copy", map_index=index, dag_run=after)))
        task_runs[after.run_id] = {"copy": [index]}
        end_dag_run(after, task)
        found = stored(tmp_path)
        assert found.pairs() == copies(numbers)
        outputs = {urn("file", f"/out/{number}") for number in numbers}
        assert found.jobs[TASK_JOB.format("copy")].outputs == outputs

    holds([3], after=third, number=3)
    holds([1, 3], after=cleared, number=1)
    holds([1, 2, 3] if index < 0 else [2, 3], after=backfill, number=2)
    holds([4], after=fourth, number=4)
    assert live_jobs(stored(tmp_path)) == ({"4)"} if index >= 0 else set())


@pytest.mark.slow
def test_datahubs_plugin_removes_no_edge(spark: FakeSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    """It replaces the edges of the task's DataJob by what the operator returns, after each try of
    each index.
    """
    for module in (hooks, airflow_context):
        monkeypatch.setattr(module, "datahub_plugin_is_active", lambda: True)

    def seen_by_plugin(run: DagRun, task_id: str, number: int, index: int = -1) -> list[str]:
        write_events(spark, number)
        task = copy_task(spark, number, task_id)
        with suppress(AirflowException):
            execute(
                task, context_of(task, TaskInstance(task_id=task_id, map_index=index, dag_run=run))
            )
        lineage = task.get_openlineage_facets_on_complete(None)
        return sorted(f"{dataset.namespace} {dataset.name}" for dataset in lineage.outputs)

    first, second = run_of(1), run_of(2)
    assert seen_by_plugin(first, "copy", 0) == ["file /out/0"]
    spark.fails_once("1")
    assert seen_by_plugin(second, "copy", 1) == ["file /out/0", "file /out/1"], (
        "a failed try only adds"
    )
    assert seen_by_plugin(second, "copy", 1) == ["file /out/1"], "a good try replaces"

    assert seen_by_plugin(first, "mapped", 0, 0) == ["file /out/0"]
    assert seen_by_plugin(first, "mapped", 1, 1) == ["file /out/0", "file /out/1"]
    assert seen_by_plugin(second, "mapped", 2, 0) == ["file /out/0", "file /out/1", "file /out/2"]
    third = run_of(3)
    assert seen_by_plugin(third, "mapped", 0, 0) == ["file /out/0", "file /out/2"], (
        "of the latest DAG run before"
    )
