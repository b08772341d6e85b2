from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.operators.tries import FakeSpark, TaskState, configure_airflow
from tests.patience import join_threads


@pytest.fixture(autouse=True)
def airflow_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections, and locations below the test's folder."""
    configure_airflow(tmp_path, monkeypatch.setenv)
    monkeypatch.delenv("SPARK_HOME", raising=False)


@pytest.fixture(autouse=True)
def _nothing_goes_on() -> Iterator[None]:
    """Announcements and deliveries end with the test."""
    yield
    join_threads("lineage-")


@pytest.fixture(params=["with task state", "without"])
def state(request: pytest.FixtureRequest) -> TaskState | None:
    """Airflow keeps a state of tasks since 3.3; otherwise the outbox has the record."""
    return TaskState() if request.param == "with task state" else None


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSpark:
    """A Spark whose jobs write the same events, unless a test says which."""
    spark = FakeSpark(tmp_path, monkeypatch.setenv)
    spark.writes("a_csv_join_agg")
    return spark
