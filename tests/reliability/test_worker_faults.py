"""Faults of the worker: its disk, the event file, and our own code. The other half of the fault matrix."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion import Converter
from tests.cli.commands import run as command
from tests.operators.tries import CORPUS, FakeSpark, TaskState
from tests.oracles.gms import GmsStandIn
from tests.reliability.catalogue import catalogue
from tests.reliability.lineage_tries import CASE, POLICIES, connect, run_attempt

EVENTS = (CORPUS / f"{CASE}.ndjson").read_bytes()
each_policy = pytest.mark.parametrize("policy", POLICIES)


@pytest.fixture
def gms(monkeypatch: pytest.MonkeyPatch) -> Iterator[GmsStandIn]:
    with GmsStandIn() as gms:
        connect(monkeypatch.setenv, conn_type="datahub-rest", host=gms.url)
        yield gms


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Return a function that mounts a small file system as the outbox, with a further mount option."""
    folder = tmp_path / "outbox"
    folder.mkdir()

    def mount(option: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", f"size=3m,{option}", "tmpfs", str(folder)]
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
        if mounted.returncode != 0:
            pytest.skip(f"only root may mount a small file system: {mounted.stderr.strip()}")

    yield mount
    if os.path.ismount(folder):
        subprocess.run(["umount", str(folder)], check=True)


def urns_of(proposals: set[str]) -> set[str]:
    return {json.loads(proposal)[0] for proposal in proposals}


def reported(spark: FakeSpark, policy: str, events: bytes = EVENTS) -> dict[str, Any]:
    """Return the report of an attempt that must succeed, and run Spark once."""
    spark.writes(events)
    succeeded, report = run_attempt(spark, policy, TaskState())
    assert (succeeded, len(spark.runs)) == (True, 1)
    return report


@each_policy
@pytest.mark.parametrize(("option", "error"), [("rw", "is nearly full"), ("ro", "Read-only file system")])
def test_a_disk_that_takes_nothing(
    policy: str,
    option: str,
    error: str,
    undisturbed: set[str],
    small_disk: Callable[[str], None],
    spark: FakeSpark,
    gms: GmsStandIn,
    tmp_path: Path,
) -> None:
    small_disk(option)
    if option == "rw":
        (tmp_path / "outbox" / "ballast").write_bytes(bytes(3 * 1024 * 1024))
    report = reported(spark, policy)
    assert error in " ".join(report["warnings"])
    assert (report["pending"], report["delivered"]) == (0, report["proposals"])
    assert catalogue(gms) == undisturbed


@each_policy
def test_lines_that_hold_no_event(policy: str, undisturbed: set[str], spark: FakeSpark, gms: GmsStandIn) -> None:
    huge = json.dumps({"eventType": "OTHER", "padding": "x" * 30_000_000}).encode()
    report = reported(spark, policy, b"\x00\xff garbage\n" + huge + b"\n" + EVENTS + EVENTS[:500])
    assert report["bad_events"] == 3
    assert "cut off" in " ".join(report["warnings"])
    assert urns_of(catalogue(gms)) == urns_of(undisturbed)


@each_policy
def test_a_bug_of_the_converter(
    policy: str,
    undisturbed: set[str],
    spark: FakeSpark,
    gms: GmsStandIn,
    tmp_path: Path,
) -> None:
    spark.writes(EVENTS)
    state = TaskState()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Converter, "finish", _fail)
        succeeded, report = run_attempt(spark, policy, state)
    assert "a bug" in report["reason"]
    assert succeeded is (policy == "warn")

    if not succeeded:
        assert run_attempt(spark, policy, state, 2)[0]
    assert command("emit", "--outbox", tmp_path / "outbox").exit_code == 0
    assert len(spark.runs) == 1
    assert catalogue(gms) >= undisturbed
    assert command("pending", "--outbox", tmp_path / "outbox").exit_code == 0


def _fail(*_: object, **__: object) -> None:
    raise RuntimeError("a bug")
