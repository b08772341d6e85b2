"""Runs that DataHub has, read for ``impact``: as if another host had written them, or the outbox
had forgotten them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion import (
    Fingerprint,
    LineageSettings,
    Proposal,
    SilentTasks,
)
from airflow_provider_spark_datahub.conversion.run_tree import AirflowSite, DagRun, TaskAttempt
from airflow_provider_spark_datahub.delivery import Deadline, SinkSettingsError
from airflow_provider_spark_datahub.delivery.sinks import RestSettings, RestSink, rest_reading
from tests.cases import tables
from tests.cli.commands import run
from tests.conversion.builders import (
    START_MS,
    Json,
    application,
    file,
    only_job,
    proposals,
    query,
    symlink,
    urn,
)
from tests.delivery.connections import connect_to_gms
from tests.oracles.gms import GmsStandIn

ORDERS = urn("hive", "db.orders")
LOGICAL_MS = 1_767_139_200_000


def orders(version: str) -> Json:
    return file(
        "/wh/orders", symlinks=symlink("hive://m", "db.orders"), version={"datasetVersion": version}
    )


def task(
    name: str,
    second: int,
    inputs: list[Json],
    outputs: list[Json],
    run_id: str = "",
    number: int = 1,
    **silent: Any,
) -> list[Proposal]:
    """Return the proposals of an attempt that takes 10 seconds. :param silent: tasks without
    lineage.
    """
    dag_run = DagRun(
        AirflowSite(), "shop", run_id or f"run-{name}", start_ms=START_MS, logical_ms=LOGICAL_MS
    )
    start_ms = START_MS + second * 1000
    begun = TaskAttempt(dag_run, name, number, start_ms=start_ms, silent=SilentTasks(**silent))
    attempt, spark = begun.ended(start_ms + 10_000, "SUCCESS"), f"{name}-{second}"
    events = [
        application("START", run_id=spark, second=second + 1),
        query(
            run_id=f"{spark}-query", parent=spark, second=second + 5, inputs=inputs, outputs=outputs
        ),
        application("COMPLETE", run_id=spark, second=second + 9),
    ]
    jobs = attempt.attach([only_job(events)], LineageSettings())
    return [*attempt.proposals(jobs), *proposals(jobs[0])]


def shop() -> list[Proposal]:
    """Return a shop's runs; the second write of the orders is the wrong one."""
    return [
        *task("build", 0, [file("/raw")], [orders("1")], "a"),
        *task("early", 50, [orders("1")], [file("/early")]),
        *task("build", 100, [file("/raw")], [orders("2")], "b", after=("export", "notify")),
        *task("late", 200, [orders("2")], [file("/late")]),
        *task("report", 300, [file("/late")], [file("/report")]),
        *task("hanging", 400, [file("/other")], [file("/hanging")], "b", before=("export",)),
        *task(
            "started", 420, [file("/other")], [file("/started")], started=(("shop", "b", "export"),)
        ),
        *task("last", 500, [file("/hanging")], [file("/last")]),
        *task("free", 500, [file("/other")], [file("/free")], "b"),
    ]


@pytest.fixture
def gms(monkeypatch: pytest.MonkeyPatch) -> Iterator[GmsStandIn]:
    with GmsStandIn("right") as gms:
        connect_to_gms(monkeypatch, "gms", gms.url, password="right")
        yield gms


def read(gms: GmsStandIn, token: str = "right", seconds: float = 60.0) -> list[Fingerprint]:
    return rest_reading.read_runs(RestSettings(gms.url, token), ORDERS, (), Deadline.after(seconds))


def send(gms: GmsStandIn, found: list[Proposal]) -> None:
    sink = RestSink(RestSettings(gms.url, "right"))
    assert sink.deliver(found, Deadline.after(60)).delivered == len(found)


@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("name", ["orders", ORDERS])
def test_datahubs_runs_show_what_a_write_reached(
    gms: GmsStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: bool, name: str
) -> None:
    for limit in ("_PAGE", "_BATCH") if few else ():
        monkeypatch.setattr(rest_reading, limit, 1)
    send(gms, shop())
    done = run(
        "impact", name, "--version", "2", "--connection", "gms", "--outbox", tmp_path, "--json"
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    names, *reached = tables("impact")["what_a_write_of_the_shop_reached"]
    assert sorted([one[name] for name in names] for one in found["reached"]) == sorted(reached)
    assert found["reached"][0]["logical_ms"] == LOGICAL_MS


def test_all_attempts_of_a_task_run_are_one(gms: GmsStandIn) -> None:
    send(gms, task("build", 0, [file("/raw")], [orders("1")]))
    send(gms, task("build", 100, [file("/raw"), file("/more")], [orders("2")], number=2))
    (known,) = read(gms)
    assert (known.key.try_number, known.succeeded, known.outputs[ORDERS].versions) == (
        2,
        True,
        ("1", "2"),
    )
    assert (known.start_ms, known.end_ms) == (START_MS + 1_000, START_MS + 110_000)
    assert known.inputs.keys() == {urn("file", "/raw"), urn("file", "/more")}
    assert (known.outputs[ORDERS].start_ms, known.outputs[ORDERS].end_ms) == (
        START_MS + 1_000,
        START_MS + 109_000,
    )
    assert set(known.hidden) == known.inputs.keys()


def test_runs_of_others_and_those_without_a_task_are_left_out(gms: GmsStandIn) -> None:
    spark = [
        application("START"),
        query(inputs=[orders("1")], outputs=[file("/out")]),
        application("COMPLETE"),
    ]
    send(gms, proposals(only_job(spark)))
    assert read(gms) == []


@pytest.mark.parametrize(
    ("token", "seconds", "message"), [("wrong", 60.0, "401"), ("right", 0.0, "more are left")]
)
def test_a_datahub_that_does_not_answer_is_an_error(
    gms: GmsStandIn, token: str, seconds: float, message: str
) -> None:
    send(gms, shop())
    with pytest.raises(SinkSettingsError, match=f"DataHub at .* cannot be read: .*{message}"):
        read(gms, token, seconds)


def test_a_command_without_datahub_ends_with_a_message(gms: GmsStandIn, tmp_path: Path) -> None:
    gms.token = "another"
    done = run("impact", "orders", "--connection", "gms", "--outbox", tmp_path)
    assert (done.exit_code, "cannot be read" in done.stderr) == (1, True)
