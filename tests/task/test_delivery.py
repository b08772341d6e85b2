"""Delivery of one attempt beside other drainers of the same outbox."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.outbox.drain import Drain
from airflow_provider_spark_datahub.delivery.outbox.entries import OutboxLimits
from airflow_provider_spark_datahub.delivery.outbox.format import EntryName
from airflow_provider_spark_datahub.delivery.outbox.lease import Lease
from airflow_provider_spark_datahub.delivery.outbox.storage import LocalStorage
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from airflow_provider_spark_datahub.task.delivery import TaskDelivery
from airflow_provider_spark_datahub.task.options import LineageOptions, _FailurePolicy
from airflow_provider_spark_datahub.task.report import LineageReport
from tests.delivery.outboxes import Recording, outbox_at, receipts_in
from tests.delivery.samples import upserts
from tests.operators.tries import connections_to

KEY = AttemptKey("shop", "run", "build", -1, 1)
GROUP = (KEY.instance, EntryName.connection_hash("datahub"))


def delivery(
    folder: Path,
    sink: Recording,
    limits: OutboxLimits | None = None,
    on_failure: _FailurePolicy = "warn",
) -> tuple[TaskDelivery, LineageReport]:
    options = LineageOptions(
        connection="datahub",
        settings=LineageSettings(),
        on_failure=on_failure,
        events_location=folder / "events",
        outbox_location=str(folder),
        timeout=30.0,
        openlineage_jar="",
        outbox_limits=limits,
    )
    report = LineageReport()
    return TaskDelivery(
        options, AttemptKey("shop", "run", "build", -1, 1), connections_to(sink), report
    ), report


@pytest.mark.slow
def test_entries_that_another_drainer_holds_are_pending(tmp_path: Path) -> None:
    sink = Recording()
    one, report = delivery(tmp_path, sink)
    lease = Lease.take(LocalStorage(tmp_path), GROUP)
    assert lease is not None
    with lease:
        one.deliver(upserts(2), Deadline.after(0.2), spark_succeeded=True)
    assert (report.delivered, report.pending, sink.arrived) == (0, 2, [])
    assert "another drainer of the outbox holds the entries of this task" in str(report.reason)
    assert "spark-datahub emit" in str(report.reason)
    (entry,) = outbox_at(tmp_path).entries()
    assert report.outbox_entry == str(entry)


def test_an_attempt_waits_for_the_delivery_of_another_run(tmp_path: Path) -> None:
    sink = Recording()
    one, report = delivery(tmp_path, sink)
    another = AttemptKey("shop", "another run", "build", -1, 1).instance, GROUP[1]
    lease = Lease.take(LocalStorage(tmp_path), another, run="another")
    assert lease is not None
    deadline = Deadline.after(0.2)
    with one.leased(deadline):
        one.deliver(upserts(2), deadline, spark_succeeded=True)
        assert (report.delivered, report.pending, sink.arrived) == (0, 2, [])
        assert str(report.reason).startswith(
            "it is pending: another run of this task is being delivered, and after "
        )
        assert "spark-datahub emit" in str(report.reason)
        lease.release()
        one.deliver(upserts(2), Deadline.after(30), spark_succeeded=True)
    assert (report.delivered, outbox_at(tmp_path).names()) == (2, [])


def test_an_attempt_waits_for_others_for_a_share_of_its_time_unless_it_fails_for_its_lineage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an outage, each of many runs that overlap would otherwise wait until its deadline."""
    waited = []

    def no_turn(_: Lease, deadline: Deadline) -> bool:
        waited.append(deadline.remaining())
        return False

    def not_released(_storage: object, _group: object, deadline: Deadline, **_: object) -> None:
        waited.append(deadline.remaining())

    monkeypatch.setattr(Lease, "take_turn", no_turn)
    monkeypatch.setattr(Lease, "wait_for", not_released)
    policies: tuple[_FailurePolicy, ...] = ("warn", "retry", "fail")
    for policy in policies:
        one, report = delivery(tmp_path, Recording(), on_failure=policy)
        deadline = Deadline.after(3_000)
        one.deliver(upserts(2), deadline, spark_succeeded=True)
        with one.leased(deadline):
            one.deliver(upserts(2), deadline, spark_succeeded=True)
        assert (report.delivered, report.pending) == (0, 2)
    assert [seconds <= 300 for seconds in waited] == [True, True, False, False, False, False]


def test_entries_that_another_drainer_delivered_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = Recording()
    one, report = delivery(tmp_path, sink)
    wait = Lease.wait_for

    def after_a_drain(*_: object, **__: object) -> Lease | None:
        Drain(outbox_at(tmp_path), lambda _: (sink, None)).run()
        return wait(LocalStorage(tmp_path), GROUP, Deadline.after(5))

    monkeypatch.setattr(Lease, "wait_for", after_a_drain)
    one.deliver(upserts(2), Deadline.after(30), spark_succeeded=True)
    assert (report.delivered, report.pending, report.stored, report.outbox_entry) == (
        2,
        0,
        True,
        None,
    )
    assert len(sink.arrived) == 2


def test_receipts_expire_with_the_tasks_own_deliveries(tmp_path: Path) -> None:
    for _ in range(3):
        one, _report = delivery(tmp_path, Recording(), OutboxLimits(receipts=-1.0))
        one.deliver(upserts(2), Deadline.after(30), spark_succeeded=True)
    assert receipts_in(outbox_at(tmp_path)) == []
    one, _report = delivery(tmp_path, Recording())
    one.deliver(upserts(2), Deadline.after(30), spark_succeeded=True)
    (path,) = (tmp_path / "receipts").rglob("*.json")
    assert json.loads(path.read_text())["delivered"] == 2
