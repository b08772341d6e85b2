"""A try that goes back to the driver of an earlier one, by the parent class's logic; the cluster is
a stand-in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators import spark_submit as provider

from airflow_provider_spark_datahub.operators.task_lineage import TaskLineage
from tests.airflow_versions import RECONNECTING
from tests.delivery.outboxes import outbox_at
from tests.delivery.samples import run_events
from tests.operators.tries import CORPUS, FakeSpark, TaskState, run_try

pytestmark = RECONNECTING


class WorkerLostError(BaseException):
    """The worker is gone in the middle of a try: nothing of it runs any more."""


@dataclass
class Cluster:
    """Drivers that run beside the tries. :ivar locations: the event file of each driver."""

    locations: list[str] = field(default_factory=list)
    status: str = "RUNNING"
    while_polled: Callable[[], None] = lambda: None

    def submit(self, hook: Any) -> str:
        self.locations.append(hook._conf["spark.openlineage.transport.location"])
        return f"driver-{len(self.locations)}"

    def writes(self, events: str) -> None:
        """Set the events of the last driver."""
        path = Path(self.locations[-1])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((CORPUS / f"{events}.ndjson").read_bytes())


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    one = Cluster()
    # Older Spark providers (6.1) have one class for all ways to deploy.
    backend = getattr(provider, "_StandaloneSparkSubmitBackend", provider.SparkSubmitOperator)
    monkeypatch.setattr(SparkSubmitHook, "_resolve_should_track_driver_status", lambda _: True)
    monkeypatch.setattr(
        backend, "submit_job", lambda self, _: one.submit(getattr(self, "hook", None) or self._hook)
    )
    monkeypatch.setattr(backend, "get_job_status", lambda *_: one.status)
    monkeypatch.setattr(backend, "poll_until_complete", lambda *_: one.while_polled())
    return one


def lose_the_worker(
    spark: FakeSpark, cluster: Cluster, state: TaskState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Submit in a first attempt and lose its worker, while its driver goes on."""

    def lost() -> None:
        raise WorkerLostError

    cluster.while_polled = lost
    with monkeypatch.context() as patched:
        # The worker is gone: what would follow the job does not happen.
        patched.setattr(TaskLineage, "_conclude", lambda *_: None)
        with pytest.raises(WorkerLostError):
            run_try(spark, 1, state, max_tries=2)
    cluster.while_polled = lambda: None


@pytest.mark.parametrize("status", ["RUNNING", "FINISHED"])
def test_an_attempt_that_reconnects_reads_what_the_driver_wrote(
    spark: FakeSpark, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    state = TaskState()
    lose_the_worker(spark, cluster, state, monkeypatch)
    cluster.writes("a_csv_join_agg")
    cluster.status = status

    report = run_try(spark, 2, state, max_tries=2)

    assert len(cluster.locations) == 1, "the second try submitted nothing"
    assert (report["events"], report["pending"], report["reason"]) == (23, 0, None)
    assert report["outputs"]
    assert list(outbox_at(tmp_path / "outbox").entries()) == [], "nothing is left of the first try"
    assert not list((tmp_path / "events").rglob("*.ndjson"))
    ends = [event for event in run_events(tmp_path / "sink") if "result" in event]
    assert [event["result"]["type"] for event in ends if "attempt" in event] == ["SUCCESS"]


def test_a_new_driver_after_a_failed_one_has_events_of_its_own(
    spark: FakeSpark, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = TaskState()
    lose_the_worker(spark, cluster, state, monkeypatch)
    cluster.writes("c_fail_midway")
    cluster.status = "ERROR"
    cluster.while_polled = lambda: cluster.writes("a_csv_join_agg")
    report = run_try(spark, 2, state, max_tries=2)
    first, second = cluster.locations
    assert first != second
    assert (report["events"], report["pending"]) == (23, 0)


def test_a_third_attempt_reconnects_to_the_firsts_driver(
    spark: FakeSpark, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = TaskState()
    lose_the_worker(spark, cluster, state, monkeypatch)
    lose_the_worker(spark, cluster, state, monkeypatch)
    cluster.writes("a_csv_join_agg")
    assert run_try(spark, 3, state, max_tries=2)["events"] == 23
    assert len(cluster.locations) == 1


def test_a_driver_whose_events_are_not_known_is_reported(
    spark: FakeSpark, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its try ran without lineage, or with an older version of this package."""
    state = TaskState()
    lose_the_worker(spark, cluster, state, monkeypatch)
    state.set("spark_datahub_submitted", None)
    report = run_try(spark, 2, state, max_tries=2)
    assert "reconnected to a job of an earlier one, whose events are not known" in report["reason"]


def test_without_a_state_each_attempt_submits(spark: FakeSpark, cluster: Cluster) -> None:
    cluster.while_polled = lambda: cluster.writes("a_csv_join_agg")
    assert run_try(spark, 1, None, max_tries=2)["events"] == 23
    assert run_try(spark, 2, None, max_tries=2)["events"] == 23
    assert len(cluster.locations) == 2
