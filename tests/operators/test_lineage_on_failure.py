"""``lineage_on_failure``: the one way in which lineage may fail a task, chosen by the user."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_spark_datahub.delivery.outbox.entries import Entry
from airflow_provider_spark_datahub.operators.task_lineage import LineagePendingError
from tests.delivery.samples import delivered_text, run_events
from tests.operators.tries import FakeSpark, TaskState, run_try


@pytest.fixture
def obstacle(tmp_path: Path) -> Path:
    """A file where the sink wants a folder: until it goes, nothing is delivered."""
    path = tmp_path / "sink"
    path.write_text("in the way")
    return path


def ends(tmp_path: Path) -> list[tuple[int, str]]:
    """Return the attempts that ended, and their results."""
    return [
        (event["attempt"], event["result"]["type"])
        for event in run_events(tmp_path / "sink")
        if "attempt" in event and event["status"] == "COMPLETE"
    ]


@pytest.mark.parametrize("policy", ["retry", "fail"])
def test_the_next_attempt_only_delivers(
    spark: FakeSpark, obstacle: Path, tmp_path: Path, state: TaskState | None, policy: str
) -> None:
    run_try(
        spark,
        1,
        state,
        lineage_on_failure=policy,
        fails=LineagePendingError,
        match=f"Spark succeeded, but .*lineage_on_failure={policy}.*sink",
    )
    obstacle.unlink()

    report = run_try(spark, 2, state, lineage_on_failure=policy)

    assert len(spark.runs) == 1
    assert (report["pending"], report["reason"]) == (0, None)
    assert ends(tmp_path)[-1] == (2, "SUCCESS")
    assert "/lake/out/a/revenue_by_country" in delivered_text(tmp_path / "sink")
    assert not (tmp_path / "outbox/pending").exists()


def test_delivering_may_take_several_attempts(
    spark: FakeSpark, obstacle: Path, state: TaskState | None
) -> None:
    for number in (1, 2):
        run_try(
            spark, number, state, max_tries=3, lineage_on_failure="retry", fails=LineagePendingError
        )
    obstacle.unlink()
    assert run_try(spark, 3, state, max_tries=3, lineage_on_failure="retry")["pending"] == 0
    assert len(spark.runs) == 1


@pytest.mark.parametrize(("policy", "fails"), [("retry", False), ("fail", True)])
def test_the_last_attempt_fails_by_fail_alone_and_a_cleared_task_runs_spark_again(
    spark: FakeSpark, obstacle: Path, state: TaskState | None, policy: str, fails: bool
) -> None:
    run_try(
        spark,
        1,
        state,
        max_tries=0,
        lineage_on_failure=policy,
        fails=LineagePendingError if fails else None,
    )
    obstacle.unlink()
    # Somebody clears the task: it is to run again, whole.
    run_try(spark, 2, state, max_tries=1, lineage_on_failure=policy)
    assert len(spark.runs) == 2


@pytest.mark.parametrize(("policy", "fails"), [("retry", False), ("fail", True)])
def test_a_task_that_is_cleared_after_its_last_attempt_only_delivered_runs_spark_again(
    spark: FakeSpark, obstacle: Path, state: TaskState | None, policy: str, fails: bool
) -> None:
    for number in (1, 2):
        failure = LineagePendingError if number == 1 or fails else None
        run_try(spark, number, state, max_tries=1, lineage_on_failure=policy, fails=failure)
    assert len(spark.runs) == 1
    with suppress(LineagePendingError):
        run_try(spark, 3, state, max_tries=2, lineage_on_failure=policy)
    assert len(spark.runs) == 2
    obstacle.unlink()
    run_try(spark, 4, state, max_tries=3, lineage_on_failure=policy)


@pytest.mark.parametrize("policy", ["warn", "retry", "fail"])
def test_after_a_failure_of_spark_spark_runs_again(
    spark: FakeSpark, obstacle: Path, tmp_path: Path, state: TaskState | None, policy: str
) -> None:
    spark.writes("c_fail_midway")
    spark.exits(1)
    with pytest.raises(AirflowException, match="Error code is: 1") as caught:
        run_try(spark, 1, state, lineage_on_failure=policy)
    assert not isinstance(caught.value, LineagePendingError)
    obstacle.unlink()
    spark.writes("a_csv_join_agg")
    spark.exits(0)
    report = run_try(spark, 2, state, lineage_on_failure=policy)
    assert len(spark.runs) == 2
    assert report["pending"] == 0
    # The older try's lineage, still pending, went first.
    assert ends(tmp_path) == [(1, "UP_FOR_RETRY"), (2, "SUCCESS")]


def test_without_a_record_that_only_lineage_is_missing_the_task_does_not_fail(
    spark: FakeSpark, obstacle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next try would run Spark again."""

    def refuse(self: Entry, **_: object) -> Entry:
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Entry, "update", refuse)
    report = run_try(spark, 1, TaskState(), lineage_on_failure="retry")
    assert report["pending"] > 0
    assert obstacle.is_file()


def test_the_tasks_state_keeps_spark_from_running_on_a_worker_without_the_outbox(
    spark: FakeSpark, obstacle: Path, tmp_path: Path
) -> None:
    state = TaskState()
    run_try(spark, 1, state, lineage_on_failure="retry", fails=LineagePendingError)
    obstacle.unlink()
    report = run_try(
        spark, 2, state, lineage_on_failure="retry", outbox_location=str(tmp_path / "other-worker")
    )
    assert len(spark.runs) == 1
    assert f"not in the outbox {tmp_path / 'other-worker'} of this worker" in report["reason"]
