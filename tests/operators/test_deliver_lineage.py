"""The operator that drains the outbox."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse

from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from airflow_provider_spark_datahub.operators.deliver_lineage import DeliverLineageOperator
from tests.cli.commands import run
from tests.delivery.outboxes import outbox_at
from tests.delivery.samples import delivered, upserts
from tests.operators.tries import (
    FakeSpark,
    TaskInstance,
    context_of,
    execute as spark_execute,
    killed_last_attempt,
    operator_with_lineage,
)


def put(
    folder: Path, dag_id: str, connection: str = "datahub_file", task_id: str = "build"
) -> None:
    key = AttemptKey(dag_id, "run", task_id, -1, 1)
    outbox_at(folder / "outbox").put(
        key, upserts(2, task_id), spark_succeeded=True, connection_id=connection
    )


def execute(**arguments: Any) -> dict[str, Any]:
    return DeliverLineageOperator(task_id="deliver", **arguments).execute({})


def waiting(folder: Path) -> list[str]:
    return [entry.manifest.key.dag_id for entry in outbox_at(folder / "outbox").entries()]


def test_pending_entries_of_all_dags_are_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Metrics that fail do not fail the drain.
    monkeypatch.setattr(
        "airflow_provider_spark_datahub.hooks.metrics.Stats.gauge", lambda *_: 1 / 0
    )
    put(tmp_path, "shop")
    put(tmp_path, "bank", task_id="count")
    result = execute()
    assert (result["settled"], result["delivered"], result["waiting"], result["problems"]) == (
        2,
        4,
        0,
        [],
    )
    assert len(delivered(tmp_path / "sink")) == 4
    assert waiting(tmp_path) == []


def test_one_dag_may_be_a_text_as_a_template_renders_it(tmp_path: Path) -> None:
    put(tmp_path, "shop")
    put(tmp_path, "bank")
    assert execute(dag_ids="shop")["settled"] == 1
    assert execute(dag_ids="")["settled"] == 1


def test_no_delivery_begins_after_max_seconds(tmp_path: Path) -> None:
    put(tmp_path, "shop")
    assert execute(max_seconds="0")["waiting"] == 1


def test_entries_of_another_outbox_are_delivered_through_another_connection(tmp_path: Path) -> None:
    put(tmp_path / "other", "shop", "gone")
    result = execute(outbox_location=str(tmp_path / "other/outbox"), datahub_conn_id="datahub_file")
    assert (result["settled"], waiting(tmp_path / "other")) == (1, [])


def test_entries_that_stay_are_reported(tmp_path: Path) -> None:
    put(tmp_path, "shop", "nowhere")
    (problem,) = execute()["problems"]
    assert "connection 'nowhere' cannot be used" in problem
    with pytest.raises(AirflowException, match="1 pending: connection 'nowhere' cannot be used"):
        execute(fail_when_waiting=True)
    assert waiting(tmp_path) == ["shop"]


def test_its_arguments_are_templates() -> None:
    assert (
        set(DeliverLineageOperator.template_fields)
        <= vars(DeliverLineageOperator(task_id="deliver")).keys()
    )


@pytest.mark.parametrize(
    ("states", "settled"),
    [
        ({"build": {"build": "failed"}}, 1),
        ({"build": {"build": "running"}}, 0),
        ({"build": {"build": "awaiting_input"}}, 0),
        ({"build": {}}, 1),  # it was deleted
        (AirflowException("no answer"), 0),
        (OSError("no answer"), 0),
        (AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR)), 0),
    ],
)
def test_a_killed_tasks_events_are_converted_when_airflow_says_that_it_is_over(
    tmp_path: Path, states: Any, settled: int
) -> None:
    killed_last_attempt(tmp_path, task_id="build")
    context: Any = {"ti": TaskInstance(task_id="deliver", states=states)}
    result = DeliverLineageOperator(task_id="deliver").execute(context)
    assert (result["settled"], result["waiting"]) == (settled, 1 - settled)


def test_a_killed_attempt_is_over_if_a_later_one_left_an_entry(tmp_path: Path) -> None:
    outbox, _ = killed_last_attempt(tmp_path)
    later = AttemptKey("shop", "another", "killed", -1, 2)
    outbox.put(later, upserts(2), spark_succeeded=True, connection_id="datahub_file")
    context: Any = {"ti": TaskInstance(task_id="deliver", others="running")}
    assert DeliverLineageOperator(task_id="deliver").execute(context)["settled"] == 2


@pytest.mark.slow
@pytest.mark.parametrize(("events", "stay"), [("a_csv_join_agg", False), (b"no json\n", True)])
@pytest.mark.parametrize("way", ["operator", "command", "next attempt"])
def test_events_that_are_delivered_later_are_removed_then(
    spark: FakeSpark, tmp_path: Path, events: str | bytes, stay: bool, way: str
) -> None:
    spark.writes(events)
    (tmp_path / "sink").write_text("a file, and the sink wants a folder")
    first = operator_with_lineage(spark)
    spark_execute(first, context_of(first))
    (events_file,) = (path for path in (tmp_path / "events").rglob("*.ndjson"))
    (tmp_path / "sink").unlink()
    if way == "operator":
        assert execute()["waiting"] == 0
    elif way == "command":
        assert run("emit").exit_code == 0
    else:
        second = operator_with_lineage(spark)
        spark_execute(second, context_of(second, TaskInstance(try_number=2, id="second")))
    assert waiting(tmp_path) == []
    assert events_file.exists() is stay
    if not stay:
        assert list((tmp_path / "events").iterdir()) == []
