"""Results of a backfill in a bucket of a real S3 server, delivered from there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.backfill.delivery import _BATCH, BackfillDelivery, DeliveryTotals, Rate
from airflow_provider_spark_datahub.backfill.plan import PLAN_FILE, SUMMARY, BackfillPlan, PlanError
from airflow_provider_spark_datahub.delivery import Sink
from airflow_provider_spark_datahub.hooks.storage import result_folder
from tests.backfill.results import write_parts
from tests.backfill.test_delivery import Receiver
from tests.cli.commands import run
from tests.delivery.samples import delivered_lines, upserts
from tests.servers.s3 import S3

SUMMARISED: dict[str, Any] = {
    **dict.fromkeys(("events", "runs", "versions", "proposals", "quarantined"), 1),
    "proposals_by_aspect": {},
    "quarantined_by_reason": {},
}
PARTS = [upserts(_BATCH + 5, "a"), upserts(3, "b")]


@pytest.fixture
def location(s3: S3, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A folder in a bucket of the test's own, as a backfill leaves it."""
    bucket = request.node.name.replace("_", "-")[:60].strip("-")
    s3.make_bucket(bucket)
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(s3.connection()))
    made = write_parts(tmp_path, PARTS)
    folder = result_folder(f"s3://{bucket}/out", "lake")
    for path in made.rglob("*"):
        if path.is_file():
            (folder / str(path.relative_to(made))).write_bytes(path.read_bytes())
    return f"s3://{bucket}/out"


def deliver(location: str, sink: Receiver) -> DeliveryTotals:
    def opened() -> Sink:
        return sink.open()

    return BackfillDelivery(result_folder(location, "lake"), opened, Rate(0), threads=2).run()


def test_parts_in_s3_arrive_once_in_order_and_a_second_time_nothing_does(location: str) -> None:
    sink, again = Receiver(), Receiver()
    assert deliver(location, sink).delivered == sum(map(len, PARTS))
    for part in PARTS:
        assert [one for one in sink.arrived if one in part] == part
    assert deliver(location, again).complete == 2
    assert again.opened == 0


def test_the_command_delivers_from_there(location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = BackfillPlan(("/events",), location)
    (result_folder(location, "lake") / PLAN_FILE).write_bytes(plan.to_json().encode())
    (result_folder(location, "lake") / SUMMARY).write_bytes(json.dumps(SUMMARISED).encode())
    monkeypatch.setenv("AIRFLOW_CONN_SINK", json.dumps({"conn_type": "datahub-file", "host": str(tmp_path / "sink")}))
    done = run("backfill", "/events", "--out", location, "--out-connection", "lake", "--emit", "sink", "--rate", "0")
    assert done.exit_code == 0, done.stderr
    sent = [json.loads(line) for line in delivered_lines(tmp_path / "sink")]
    assert sent == [one.to_obj() for part in PARTS for one in part]


def test_a_missing_connection_is_reported(location: str) -> None:
    with pytest.raises(PlanError, match="The conn_id `absent` isn't defined"):
        result_folder(location, "absent")


def test_a_folder_that_cannot_be_reached_is_reported() -> None:
    with pytest.raises(PlanError, match="cannot reach nowhere://bucket/out from here"):
        result_folder("nowhere://bucket/out")
