from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.operators.tries import FakeSpark, TaskState
from tests.oracles.gms import GmsStandIn
from tests.patience import join_threads
from tests.reliability.catalogue import catalogue
from tests.reliability.lineage_tries import CASE, connect, prepare, run_attempt


@pytest.fixture(autouse=True)
def _no_spark_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)


@pytest.fixture(autouse=True)
def _threads_end() -> Iterator[None]:
    """Wait for the threads of lineage, which would count in the next test."""
    yield
    join_threads("lineage-of-running-job", "lineage-delivery")


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSpark:
    return prepare(tmp_path, monkeypatch.setenv)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Return all that DataHub gets if nothing goes wrong."""
    with pytest.MonkeyPatch.context() as monkeypatch, GmsStandIn() as gms:
        spark = prepare(tmp_path_factory.mktemp("undisturbed"), monkeypatch.setenv)
        spark.writes(CASE)
        connect(monkeypatch.setenv, conn_type="datahub-rest", host=gms.url)
        succeeded, report = run_attempt(spark, "warn", TaskState())
        assert (succeeded, report["pending"], report["reason"]) == (True, 0, None)
        return catalogue(gms)
