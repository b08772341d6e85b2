"""``changed`` and ``impact``, on the histories of an outbox."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.cli.cli_parser import get_parser
from msgspec import structs
from msgspec.json import encode as json_encode

from airflow_provider_spark_datahub.conversion.history.changes import Fingerprint, SilentTasks, Use
from airflow_provider_spark_datahub.delivery.outbox import Histories
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from airflow_provider_spark_datahub.hooks.airflow_context import dag_run_of
from tests.cases import cases
from tests.cli.commands import run
from tests.delivery.outboxes import outbox_at
from tests.operators.tries import DagRun

ORDERS, REVENUE = (
    f"urn:li:dataset:(urn:li:dataPlatform:iceberg,shop.{name},PROD)"
    for name in ("orders", "revenue")
)
START_MS = 1_790_000_000_000
HOUR_MS = 3_600_000

Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def histories(tmp_path: Path) -> Histories:
    return Histories(outbox_at(tmp_path / "outbox").storage)


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    def ask(*arguments: str) -> tuple[int, str, str]:
        done = run(*arguments, "--outbox", str(tmp_path / "outbox"))
        return done.exit_code, done.stdout, done.stderr

    return ask


def record(
    hour: float, task: str, inputs: Any = (), outputs: Any = (), **fields: Any
) -> Fingerprint:
    key, start_ms = AttemptKey("shop", f"run{hour}", task, -1, 1), START_MS + round(hour * HOUR_MS)
    uses = {"inputs": dict(inputs), "outputs": dict(outputs)}
    return Fingerprint(key, start_ms, start_ms + 1000, True, **{"logical_ms": 0, **uses, **fields})


def write(histories: Histories, *records: Fingerprint) -> None:
    for one in records:
        histories.write(one, max_age=1e9)


def test_changed_shows_the_latest_run_or_another_one(histories: Histories, ask: Ask) -> None:
    columns = {ORDERS: Use(columns={"vat": "double", "id": "long"})}
    last = structs.replace(
        record(3, "revenue"), succeeded=False, failure="`vat` cannot be resolved"
    )
    write(
        histories,
        record(1, "revenue", columns),
        record(2, "revenue", {ORDERS: Use(columns={"id": "long"})}),
        last,
    )
    line = "since the green run of 2026-09-21 15:13 UTC: shop.orders lost the column vat"
    code, shown, said = ask("changed", "shop", "revenue", "--run", "run2")
    assert (code, shown, said) == (0, f"{line}\n", "run2: 1 change since the last green run\n")
    assert ask("changed", "shop", "revenue") == (
        0,
        "",
        "run3: 0 changes since the last green run\n",
    )
    code, shown, _ = ask("changed", "shop", "revenue", "--run", "run2", "--json")
    assert json.loads(shown) == {"run": "run2", "try": 1, "changes": [line]}
    assert ask("changed", "shop", "orders")[0] == 2


@pytest.mark.parametrize("microsecond", [594_739, 594_239, 594_500])
def test_impact_names_the_instances_and_the_commands_in_order(
    histories: Histories, ask: Ask, microsecond: int
) -> None:
    logical_date = datetime(2026, 11, 26, 12, 0, 18, microsecond, tzinfo=UTC)
    logical_ms = dag_run_of(DagRun(logical_date=logical_date)).logical_ms
    write(
        histories,
        record(0, "build", outputs={ORDERS: Use(("8841",))}),
        record(1, "build", outputs={ORDERS: Use(("8842",))}, silent=SilentTasks(after=("export",))),
        record(2, "revenue", {ORDERS: Use(("8842",))}, {REVENUE: Use()}, logical_ms=logical_ms),
        record(3, "report.x", {REVENUE: Use()}, logical_ms=None),
        record(1.5, "early", {ORDERS: Use(("8841",))}),
    )
    code, shown, said = ask("impact", "shop.orders", "--version", "8842")
    assert code == 0
    count = (
        "2 of 4 downstream task instances read it; 1 may have, through tasks without lineage; "
        "0 read only other writes"
    )
    assert said.splitlines() == [
        f"{count}; 0 use other columns; 1 read only what it did not reach",
        "shop  run1  export  inferred, it has no lineage",
        "shop  run2  revenue",
        "shop  run3  report.x  inferred from the times",
    ]
    export, clear, by_hand = shown.splitlines()
    assert export.startswith("airflow tasks clear shop -t export ")
    assert by_hand == "# shop run3 has no logical date: clear report.x in Airflow's UI"
    command = get_parser().parse_args(clear.split()[1:])
    # Airflow 3.3 looks for tasks whose id contains the text; earlier ones for a regular expression.
    assert (command.dag_id, command.task_regex, command.yes) == ("shop", "revenue", False)
    assert command.start_date <= logical_date <= command.end_date
    found = json.loads(ask("impact", "orders", "--version", "8842", "--json")[1])
    assert [(one["task_id"], one["inferred"], one["through"]) for one in found["reached"]] == [
        ("export", True, "shop.export"), ("revenue", False, ""), ("report.x", True, ""),
    ]  # fmt: skip
    assert (found["downstream"], found["commands"]) == (4, [export, clear, by_hand])


def packed(**changed: Any) -> bytes:
    made = json.loads(json_encode(record(2, "revenue", {ORDERS: Use(("8842",))}, {REVENUE: Use()})))
    return gzip.compress(json.dumps(made | changed).encode())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        packed()[:-40],
        packed(end_ms=10**17),
        packed(logical_ms=-(10**15)),
        packed(edges=[[1, 7, [["a", "a"]]]]),
        packed(edges=[[0, 1, [["a", "a"]]]]),
        packed(inputs={ORDERS: {"versions": "8842"}}),
        gzip.compress(b'{"key": "' + b"x" * 2**27),
        None,
    ],
    ids=[
        "empty",
        "cut",
        "year",
        "logical date",
        "edge",
        "edge of an input",
        "kind",
        "bomb",
        "another version",
    ],
)
def test_a_fingerprint_that_cannot_be_read_is_said_and_the_others_count(
    histories: Histories, ask: Ask, tmp_path: Path, content: bytes | None
) -> None:
    write(
        histories,
        record(1, "build", outputs={ORDERS: Use(("8842",))}),
        record(2, "revenue", {ORDERS: Use(("8842",))}, {REVENUE: Use()}),
        record(3, "report", {ORDERS: Use(("8842",))}),
    )
    (file,) = tmp_path.rglob("history/shop.revenue-*/*.green.json.gz")
    if content is None:
        file.rename(file.with_name("1790000000000-of-another-version.msgpack"))
    else:
        file.write_bytes(content)
    unread = "1 fingerprint cannot be read: nobody knows what these runs used."
    code, shown, said = ask("impact", "orders")
    assert (code, shown.count("airflow tasks clear shop -t report")) == (1, 1)
    assert unread in said.splitlines()
    assert ask("changed", "shop", "revenue")[0] == 2
    assert unread in ask("changed", "shop", "revenue")[2].splitlines()
    assert ask("changed", "shop", "report")[0] == 0


def test_a_folder_that_may_not_be_listed_is_said(
    histories: Histories, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        histories,
        record(1, "build", outputs={ORDERS: Use(("8842",))}),
        record(2, "sum", {ORDERS: Use(("8842",))}),
    )
    scandir = os.scandir

    def refusing(path: Any) -> Any:
        if "shop.sum" in str(path):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    code, _, said = ask("impact", "orders")
    assert (code, "1 fingerprint cannot be read" in said) == (1, True)


@cases("cli")
def test_a_question_without_an_answer_is_an_error(
    histories: Histories, ask: Ask, arguments: list[str], message: str
) -> None:
    write(
        histories,
        record(
            1, "build", outputs={ORDERS: Use(("8842",), columns={"vat": "double", "id": "long"})}
        ),
    )
    assert ask("impact", *arguments) == (2, "", f"{message}\n")
