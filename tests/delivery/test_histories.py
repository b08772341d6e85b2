"""Histories in an outbox: fingerprints of the latest attempts of each task."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from msgspec import structs

from airflow_provider_spark_datahub.conversion.history.changes import Fingerprint, Use
from airflow_provider_spark_datahub.delivery.outbox import Histories, LocalStorage, ObjectStorage
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from tests.delivery.outboxes import files, outbox_at

TABLE = "urn:li:dataset:(urn:li:dataPlatform:hive,shop.orders,PROD)"
DAY_MS = 86_400_000


def record(
    day: float, *, green: bool = True, number: int = 1, task: str = "revenue", **fields: object
) -> Fingerprint:
    key = AttemptKey("shop", f"scheduled__{day}", task, -1, number)
    start_ms = 1_790_000_000_000 + round(day * DAY_MS)
    return Fingerprint(key, start_ms, start_ms + 1000 * number, green, **fields)  # type: ignore[arg-type]


def with_columns(*names: str) -> dict[str, Use]:
    return {TABLE: Use(columns=dict.fromkeys(names, "long"))}


@pytest.fixture(params=["folder", "store"])
def histories(tmp_path: Path, request: pytest.FixtureRequest) -> Histories:
    root, memory = (
        f"/{uuid4()}",
        cast("Any", import_module("fsspec.implementations.memory")),
    )  # has no types
    is_folder = request.param == "folder"
    store = (
        LocalStorage(tmp_path)
        if is_folder
        else ObjectStorage(memory.MemoryFileSystem(), root, f"memory:/{root}")
    )
    return Histories(store)


def days(histories: Histories) -> list[str]:
    return [one.key.run_id.removeprefix("scheduled__") for one in histories.of_task(record(0).key)]


def test_the_last_ten_the_last_green_one_and_young_ones_stay(histories: Histories) -> None:
    for day in range(15):
        histories.write(record(day, green=day == 1), max_age=2 * DAY_MS / 1000)
    assert days(histories) == [*map(str, range(14, 4, -1)), "1"]
    histories.write(record(15), max_age=12 * DAY_MS / 1000)
    assert days(histories) == [*map(str, range(15, 4, -1))]


def test_each_index_of_a_mapped_task_has_a_history_of_its_own(histories: Histories) -> None:
    for day in range(12):
        for index in (0, 1):
            one = record(day)
            key = AttemptKey(one.key.dag_id, one.key.run_id, one.key.task_id, index, 1)
            histories.write(
                structs.replace(one, key=key, inputs=with_columns("id", f"of_{index}")), max_age=0
            )
    key = AttemptKey("shop", "another", "revenue", 1, 1)
    assert [set(one.inputs[TABLE].columns) for one in histories.of_task(key)] == [
        {"id", "of_1"}
    ] * 10
    now = structs.replace(record(12), key=key, inputs=with_columns("id"))
    assert [line.partition(" UTC: ")[2] for line in histories.changes(now)] == [
        "shop.orders lost the column of_1"
    ]


def test_an_attempt_has_one_record_and_gives_back_what_it_was(histories: Histories) -> None:
    first = record(1, green=False)
    again = structs.replace(
        first, end_ms=first.end_ms + 9, succeeded=True, inputs=with_columns("id"), hidden=(TABLE,)
    )
    for one in (first, again):
        histories.write(one, max_age=1e9)
    assert list(histories.of_task(first.key)) == list(histories.all()) == [again]


def test_a_failed_run_is_compared_with_the_last_green_run_and_the_writers_since(
    histories: Histories,
) -> None:
    for day in (1, 2):
        histories.write(record(day, inputs=with_columns("id", "vat")), max_age=1e9)
        histories.write(
            record(day - 0.1, task="build", outputs=with_columns("id", "vat")), max_age=1e9
        )
    histories.write(record(2.9, task="build", outputs=with_columns("id")), max_age=1e9)
    # Another attempt of the same run is no earlier run, and neither is one that failed.
    histories.write(record(2.5, green=False), max_age=1e9)
    failed = record(3, green=False, number=2)
    assert histories.changes(failed) == [
        "since the green run of 2026-09-23 14:13 UTC: shop.orders lost the column vat"
    ]
    histories.write(record(2.95, task="build", outputs=with_columns("id", "vat")), max_age=1e9)
    assert histories.changes(failed) == []
    assert histories.changes(record(0.5)) == []


def test_histories_go_after_delivered_proposals_and_before_receipts(tmp_path: Path) -> None:
    outbox = outbox_at(tmp_path)
    histories = Histories(outbox.storage)
    histories.write(record(1), max_age=1e9)
    outbox.storage.write("delivered/task/1-try.jsonl.gz", [b"x"])
    outbox.receipts.shrink(1, dict)
    assert len([*histories.all()]) == 1
    outbox.receipts.shrink(1, dict)
    assert list(histories.all()) == []
    assert files(tmp_path) == []


def test_a_record_of_a_wide_job_is_a_few_kilobytes(tmp_path: Path) -> None:
    urns = [
        f"urn:li:dataset:(urn:li:dataPlatform:hive,shop.table_{number},PROD)"
        for number in range(30)
    ]
    columns = {f"column_{number}": "decimal(10,2)" for number in range(40)}
    pairs = tuple((column, column) for column in columns)
    edges = tuple((30, number, pairs) for number in range(1, 30))
    inputs = {urn: Use(columns=columns) for urn in urns}
    wide = record(1, inputs=inputs, outputs={TABLE: Use()}, edges=edges, hidden=tuple(urns[:3]))
    Histories(LocalStorage(tmp_path)).write(wide, max_age=1e9)
    (path,) = (tmp_path / "history").rglob("*.gz")
    assert path.stat().st_size < 6_000
