from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.operators.tries import FakeSpark, configure_airflow


@pytest.fixture(autouse=True)
def airflow_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections, and locations below the test's folder."""
    configure_airflow(tmp_path, monkeypatch.setenv)
    monkeypatch.delenv("SPARK_HOME", raising=False)


@pytest.fixture(autouse=True)
def _nothing_goes_on() -> Iterator[None]:
    """Announcements and deliveries end with the test."""
    yield
    for thread in threading.enumerate():
        if thread.name.startswith("lineage-"):
            thread.join(20)
            assert not thread.is_alive()


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSpark:
    """A Spark whose jobs write the same events, unless a test says which."""
    spark = FakeSpark(tmp_path, monkeypatch.setenv)
    spark.writes("a_csv_join_agg")
    return spark
