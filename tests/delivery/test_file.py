from __future__ import annotations

import json
import os
import re
from functools import partial
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery import CheckStatus, Deadline, Delivery
from airflow_provider_spark_datahub.delivery.sinks import FileSink
from tests.delivery.samples import delivered, patch, upsert, upserts
from tests.patience import at_once


def write(folder: Path, proposals: list[Proposal]) -> None:
    assert FileSink(folder).deliver(proposals, Deadline.after(30)) == Delivery(
        len(proposals), stored=True
    )


def test_each_delivery_is_a_file_and_their_names_are_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "missing" / "folder"
    proposals = [
        *upserts(3),
        patch("a"),
        upsert("b", title="half a pair: \ud800, 'ä', line\u2028end"),
    ]
    write(folder, proposals[:1])
    write(folder, proposals[1:4])
    write(folder, proposals[4:])
    files = sorted(folder.iterdir())
    assert [len(json.loads(file.read_text())) for file in files] == [1, 3, 1]
    assert all(
        re.fullmatch(r"\d{4}-\d\d-\d\dT\d{6}\.\d{6}Z-[0-9a-f]{12}\.json", file.name)
        for file in files
    )
    assert delivered(folder) == [each.to_obj() for each in proposals]


def test_deliveries_at_once_disturb_none(tmp_path: Path) -> None:
    at_once([partial(write, tmp_path, upserts(2, f"t{number}-")) for number in range(20)])
    assert len(delivered(tmp_path)) == 40


def test_a_disk_that_refuses_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    delivery = FileSink(tmp_path).deliver(proposals := upserts(20), Deadline.after(30))
    problem = f"Cannot write to the folder {tmp_path}: No space left on device."
    assert delivery == Delivery(0, pending=tuple(proposals), problem=problem)
    assert list(tmp_path.iterdir()) == []


def verdicts(path: Path) -> list[tuple[CheckStatus, str]]:
    return [(result.status, result.message) for result in FileSink(path).check(Deadline.after(60))]


def test_a_check_writes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "missing" / "folder"
    good = [(CheckStatus.GOOD, f"The folder {folder} can be written")]
    assert verdicts(folder) == good
    assert not folder.parent.exists()
    write(folder, upserts(2))
    assert verdicts(folder) == good
    assert len(list(folder.iterdir())) == 1


def test_a_check_finds_obstacles(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for folder in (file, file / "folder"):
        assert verdicts(folder) == [
            (CheckStatus.BAD, f"{file} is not a folder that this user can write to")
        ]
