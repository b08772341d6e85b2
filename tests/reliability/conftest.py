from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.operators.tries import FakeSpark, TaskState
from tests.oracles.gms import GmsStandIn
from tests.reliability.catalogue import catalogue
from tests.reliability.lineage_tries import CASE, connect, prepare, run_try


@pytest.fixture(scope="session", autouse=True)
def _datahub_is_imported() -> None:
    """Importing acryl-datahub takes a second, which would count in what a task's lineage takes."""


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSpark]:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    yield prepare(tmp_path, monkeypatch.setenv)
    for thread in threading.enumerate():
        if thread.name in ("lineage-of-running-job", "lineage-delivery"):
            thread.join(20)
            assert not thread.is_alive()


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """What DataHub is told where nothing goes wrong."""
    with pytest.MonkeyPatch.context() as monkeypatch, GmsStandIn() as gms:
        spark = prepare(tmp_path_factory.mktemp("undisturbed"), monkeypatch.setenv)
        spark.writes(CASE)
        connect(monkeypatch.setenv, conn_type="datahub-rest", host=gms.url)
        succeeded, report = run_try(spark, "warn", TaskState(), budget=30.0)
        assert (succeeded, report["pending"], report["reason"]) == (True, 0, None)
        return catalogue(gms)
