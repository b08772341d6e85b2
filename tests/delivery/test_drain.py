"""Draining an outbox: order, connections, and what stays."""

from __future__ import annotations

from pathlib import Path

from airflow_provider_spark_datahub.conversion.proposals import Proposal
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.drain import drain
from airflow_provider_spark_datahub.delivery.outbox import Outbox, OutboxKey
from airflow_provider_spark_datahub.delivery.sink import DeliveryRecord, Sink


def proposal(name: str) -> Proposal:
    urn = f"urn:li:dataset:(urn:li:dataPlatform:file,/{name},PROD)"
    return Proposal("dataset", urn, "status", {"removed": False})


def put(outbox: Outbox, task: str, try_number: int, connection: str = "datahub") -> None:
    key = OutboxKey("shop", "run", task, -1, try_number)
    outbox.put(key, [proposal(f"{task}{try_number}")], spark_succeeded=True, connection_id=connection)


class Recording(Sink):
    name = "recording"

    def __init__(self, refused: str = "") -> None:
        self.arrived: list[str] = []
        self._refused = refused

    def describe(self) -> str:
        return "a list"

    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:  # noqa: ARG002 (the sink's signature)
        for item in record.pending():
            if self._refused and self._refused in item[1].entity_urn:
                record.stop("it is full")
                return
            self.arrived.append(item[1].entity_urn.split("/")[1].split(",")[0])
            record.confirm([item], stored=True)


def test_tries_of_a_task_in_their_order(tmp_path: Path) -> None:
    outbox, sink = Outbox(tmp_path), Recording()
    for try_number in (2, 1, 3):
        put(outbox, "build", try_number)
    drained = drain(outbox.all_entries(), lambda _: (sink, None))
    assert sink.arrived == ["build1", "build2", "build3"]
    assert (drained.delivered, drained.pending, list(drained.problems)) == (3, 0, [])
    assert outbox.all_entries() == []


def test_a_pending_try_holds_back_its_tasks_later_ones_only(tmp_path: Path) -> None:
    outbox, sink = Outbox(tmp_path), Recording(refused="build1")
    put(outbox, "build", 1)
    put(outbox, "build", 2)
    put(outbox, "other", 1)
    drained = drain(outbox.all_entries(), lambda _: (sink, None))
    assert sink.arrived == ["other1"]
    assert (drained.delivered, drained.pending, list(drained.problems)) == (1, 2, ["it is full"])


def test_each_connection_is_opened_once(tmp_path: Path) -> None:
    outbox, sinks, opened = Outbox(tmp_path), {"a": Recording(), "b": Recording()}, []
    for task, connection in (("build", "a"), ("load", "b"), ("test", "a")):
        put(outbox, task, 1, connection)

    def open_sink(connection: str) -> tuple[Sink | None, str | None]:
        opened.append(connection)
        return sinks[connection], None

    drain(outbox.all_entries(), open_sink)
    assert sorted(opened) == ["a", "b"]
    assert (sorted(sinks["a"].arrived), sinks["b"].arrived) == (["build1", "test1"], ["load1"])


def test_without_a_sink_everything_stays_and_the_reason_is_told_once(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    put(outbox, "build", 1)
    put(outbox, "load", 1)
    drained = drain(outbox.all_entries(), lambda _: (None, "no such connection"))
    assert (drained.delivered, drained.pending, list(drained.problems)) == (0, 2, ["no such connection"])
    assert len(outbox.all_entries()) == 2


def test_an_entry_that_is_gone_costs_only_its_task(tmp_path: Path) -> None:
    outbox, sink = Outbox(tmp_path), Recording()
    put(outbox, "build", 1)
    put(outbox, "load", 1)
    entries = outbox.all_entries()
    entries[0].path.unlink()
    drained = drain(entries, lambda _: (sink, None))
    assert (drained.delivered, drained.pending, len(drained.problems)) == (1, 1, 1)
