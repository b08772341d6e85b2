"""Lineage as Airflow's servers know it: reports in XCom, task instances, and the configured outbox."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from zlib import crc32

import pytest
from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.models.dag import DagModel
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from sqlalchemy import create_engine, insert
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery import Deadline
from airflow_provider_spark_datahub.delivery.sink import DeliveryRecord
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from airflow_provider_spark_datahub.hooks import (
    LineageSource,
    NoAnswerError,
    Scope,
    datahub,
    lineage_source,
    stored_result,
    tasks_of_dags,
)
from airflow_provider_spark_datahub.task import XCOM_KEY
from tests.airflow_versions import AIRFLOW
from tests.delivery.connections import connect_to_files
from tests.delivery.outboxes import Recording, outbox_at, put

MORNING = datetime(2026, 1, 1, 6, tzinfo=UTC)


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """An empty database of Airflow's own models."""
    engine = create_engine(
        "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
    )
    import_all_models()  # type: ignore[no-untyped-call]
    Base.metadata.create_all(engine)

    @contextmanager
    def create_session() -> Iterator[Session]:
        with Session(engine) as session:
            yield session

    monkeypatch.setattr(lineage_source, "create_session", create_session)
    monkeypatch.setattr("airflow.utils.session.create_session", create_session)
    with Session(engine) as session:
        yield session
    engine.dispose()


def report(
    session: Session,
    dag_id: str,
    run_id: str,
    task_id: str,
    hour: int,
    value: object,
    index: int = -1,
) -> None:
    row = {
        "dag_run_id": crc32(f"{dag_id}/{run_id}".encode()),
        "task_id": task_id,
        "map_index": index,
        "key": XCOM_KEY,
        "dag_id": dag_id,
        "run_id": run_id,
        "value": json.dumps(value),
        "timestamp": MORNING.replace(hour=hour),
    }
    session.execute(insert(XComModel).values(row))
    session.commit()


def instance(
    session: Session, task_id: str, state: str, index: int = -1, hour: int | None = None
) -> None:
    row = {
        "id": uuid.uuid4() if AIRFLOW >= (3, 2) else str(uuid.uuid4()),
        "task_id": task_id,
        "dag_id": "shop",
        "run_id": "monday",
        "map_index": index,
        "state": state,
        "start_date": hour and MORNING.replace(hour=hour),
        "pool": "default_pool",
        "pool_slots": 1,
        "try_number": 1,
        "max_tries": 0,
    }
    session.execute(insert(TaskInstance.__table__).values(row))
    session.commit()


def test_reports_by_dag_run_task_and_time(database: Session) -> None:
    report(database, "shop", "monday", "build", 1, {"events": 1})
    report(database, "shop", "monday", "copy", 2, {"events": 2}, index=7)
    report(database, "shop", "tuesday", "build", 3, {"events": 3})
    report(database, "other", "monday", "build", 4, {"events": 4})
    report(database, "shop", "monday", "odd", 5, ["not a report"])
    report(
        database,
        "evil",
        "monday",
        "odd",
        6,
        {"__classname__": "airflow.nowhere.X", "__version__": 1, "events": 5},
    )
    source = LineageSource()

    def events(*arguments: object, **more: object) -> list[int]:
        return [each.report["events"] for each in source.reports(*arguments, **more)]  # type: ignore[arg-type]

    assert events(None) == [5, 4, 3, 2, 1]
    assert events(["shop"]) == [3, 2, 1]
    assert events(None, most=3) == [5, 4]  # one is not a report
    assert events(["shop"], Scope("shop", "monday")) == [2, 1]
    assert events(["shop"], Scope("shop", "monday", "build")) == [1]
    assert events(["shop"], Scope("shop", "monday", "copy", 7)) == [2]
    assert events(None, since=MORNING.replace(hour=3)) == [5, 4, 3]
    newest = source.reports(["other"])[0]
    assert newest.key == AttemptKey("other", "monday", "build", -1, 0)
    assert newest.created_ms == 1767240000000


def test_a_run_has_the_records_of_its_tasks_and_of_its_end(
    database: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = tmp_path / "sink"
    connect_to_files(monkeypatch, "sink", sink)
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__OUTBOX_LOCATION", str(tmp_path / "outbox"))
    outbox = outbox_at(tmp_path / "outbox")
    for task_id, index in (("build", -1), ("copy", 0), ("copy", 1), ("", -1)):
        if task_id:
            instance(database, task_id, "success", index)
        put(outbox, AttemptKey("shop", "monday", task_id, index, 1), connection="sink")
    put(outbox, AttemptKey("shop", "tuesday", "build", -1, 1), connection="sink")
    source = LineageSource()
    of_run = source.records(Scope("shop", "monday"))
    assert sorted((each.key.task_id, each.key.map_index) for each in of_run) == [
        ("", -1), ("build", -1), ("copy", 0), ("copy", 1),
    ]  # fmt: skip
    assert [each.key.map_index for each in source.records(Scope("shop", "monday", "copy", 1))] == [
        1
    ]
    assert source.deliver(Scope("shop", "monday")).startswith("4 entries settled")
    assert sink.exists()
    assert [each.key.run_id for each in source.newest(None, None, undelivered=True)] == ["tuesday"]


def test_a_delivery_takes_the_newest_of_all_task_instances_first_and_counts_the_rest(
    database: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__OUTBOX_LOCATION", str(tmp_path / "outbox"))
    outbox = outbox_at(tmp_path / "outbox")
    for index in range(502):
        instance(database, "copy", "success", index)
    indexes = range(0, 502, 7)
    for index in indexes:
        proposal = Proposal(
            "dataJob", f"urn:li:dataJob:{index}", "dataJobInfo", {"name": str(index)}
        )
        put(outbox, AttemptKey("shop", "monday", "copy", index, 1), [proposal], connection="sink")
    sink = Recording(refuses=lambda proposal: proposal.aspect["name"] == "0")
    monkeypatch.setattr(datahub, "open_sink", lambda _: (sink, None))
    settled = "71 entries settled (71 proposals delivered, 0 rejected), 1 pending. it is full."
    assert LineageSource().deliver(Scope("shop", "monday")) == settled
    # Those of one lease, which are 64, are delivered by age.
    assert sink.names == [*map(str, indexes[-64:]), *map(str, indexes[1:-64])]


def test_the_attempts_of_the_newest_task_instances_have_their_states(database: Session) -> None:
    for index, (hour, state) in enumerate(
        [(3, "success"), (1, "failed"), (None, ""), (2, "running")]
    ):
        instance(database, "copy", state, index, hour)
    newest = LineageSource().attempts(Scope("shop", "monday"), most=2)
    assert {key.map_index: state for key, state in newest.items()} == {0: "success", 3: "running"}
    assert LineageSource().attempts(Scope("shop", "monday", "copy", 1)) == {
        AttemptKey("shop", "monday", "copy", 1, 1): "failed"
    }


def test_a_delivery_that_fails_gives_each_reason_once(
    database: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__OUTBOX_LOCATION", str(tmp_path / "outbox"))
    outbox = outbox_at(tmp_path / "outbox")
    for task_id in ("build", "copy", ""):
        put(outbox, AttemptKey("shop", "monday", task_id, -1, 1), connection="sink")
        instance(database, task_id, "success")
    reasons = iter(
        f"DataHub is not available (Connection refused, {number} requests)." for number in (2, 3, 4)
    )

    class Refusing(Recording):
        def send(self, record: DeliveryRecord, deadline: Deadline) -> None:  # noqa: ARG002 (the sink's signature)
            record.stop(next(reasons))

    monkeypatch.setattr(datahub, "open_sink", lambda _: (Refusing(), None))
    settled = "0 entries settled (0 proposals delivered, 0 rejected), 3 pending."
    refused = "DataHub is not available (Connection refused, 4 requests)."
    assert LineageSource().deliver(Scope("shop", "monday")) == f"{settled} {refused}"


def test_a_result_is_known_when_airflow_is_done_with_the_task_instance(database: Session) -> None:
    states = {
        "build": "running",
        "failed": "failed",
        "again": "up_for_retry",
        "skipped": "skipped",
        "done": "success",
    }
    for task_id, state in states.items():
        instance(database, task_id, state)
    known = {
        task_id: stored_result(AttemptKey("shop", "monday", task_id, -1, 1))
        for task_id in (*states, "gone")
    }
    assert known == {
        "build": None,
        "failed": "FAILURE",
        "again": None,
        "skipped": "SKIPPED",
        "done": "SUCCESS",
        "gone": None,
    }
    assert stored_result(AttemptKey("shop", "monday", "done", -1, 2)) == "FAILURE", (
        "another attempt than the last"
    )


def test_the_tasks_of_dags_that_airflow_still_has(
    database: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dag(dag_id: str) -> SimpleNamespace:
        return SimpleNamespace(dag_id=dag_id, task_dict={"build": None})

    monkeypatch.setattr(SerializedDagModel, "get_dag", dag)
    with pytest.raises(NoAnswerError, match="it has no DAG"):
        tasks_of_dags({"shop"})
    for dag_id, is_stale in (("shop", False), ("old", True), ("other", False)):
        row = {"dag_id": dag_id, "is_stale": is_stale, "bundle_name": "dags"}
        row |= {"max_active_tasks": 16, "max_active_runs": 16, "max_consecutive_failed_dag_runs": 0}
        row |= {"has_task_concurrency_limits": False}
        database.execute(insert(DagModel).values(row))
    database.commit()
    tasks = tasks_of_dags({"shop", "old", "never"})
    assert {dag_id: set(task_ids) for dag_id, task_ids in tasks.items()} == {"shop": {"build"}}
