from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.operators.tries import FakeSpark


@pytest.fixture(autouse=True)
def airflow_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections, and locations below the test's folder."""
    connections = {
        "SPARK_DEFAULT": {"conn_type": "spark", "host": "local[1]"},
        "DATAHUB_FILE": {"conn_type": "datahub-file", "host": str(tmp_path / "sink" / "lineage.jsonl")},
    }
    for name, connection in connections.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(connection))
    for kind in ("events", "outbox"):
        monkeypatch.setenv(f"AIRFLOW__SPARK_DATAHUB__{kind.upper()}_LOCATION", str(tmp_path / kind))
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
    return FakeSpark(tmp_path, monkeypatch.setenv)
